//! What comes before there is an IKE SA: cookies, limits, messages for none that we know.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::Endpoint;
use crate::config::Connection;
use crate::event::{Event, Reason};
use crate::half_open::Network;
use crate::sa::{IkeId, IkeSa, Refused, init_notify};
use crate::wire::{Datagram, Notify, NotifyType, Payload, encode_clear};

/// INVALID_IKE_SPI and INVALID_SPI notifications in a second.
const UNKNOWN_PER_SECOND: u32 = 10;
/// The same with tokens: a thousand peers that find us restarted hear of it within three seconds. These are
/// 76 bytes for 60 or more, so they are a poor weapon.
const TOKENS_PER_SECOND: u32 = 400;

impl Endpoint {
    /// Tells a peer that we have forgotten its IKE SA (RFC 7296 §1.5). The message is shorter than its
    /// cause and goes out ten times in a second at most, so it is no weapon.
    pub(super) fn on_unknown(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        datagram: &Datagram,
    ) {
        if datagram.header.flags.response || datagram.encrypted.is_none() {
            return;
        }
        if !self.may_tell() {
            return;
        }
        let mut header = datagram.header;
        header.flags.response = true;
        header.flags.initiator = !header.flags.initiator;
        let notify = Payload::Notify(Notify::new(NotifyType::INVALID_IKE_SPI));
        let spis = (header.spi_i, header.spi_r);
        let token = self.core.crash_secret.as_ref();
        let token = token.map(|secret| secret.token(spis));
        let payloads: Vec<Payload> = token.into_iter().chain([notify]).collect();
        let message = encode_clear(header, &payloads);
        self.core.transmit(local, remote, &message);
    }

    pub(super) fn on_first(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        datagram: &Datagram,
        bytes: &[u8],
    ) {
        let header = datagram.header;
        if header.message_id != 0 || datagram.encrypted.is_some() {
            return;
        }
        if let Some(id) = self.first_messages.get(&(remote, header.spi_i)).copied() {
            if let Some(sa) = self.table.remove(&id) {
                self.run(sa, |sa, core| {
                    sa.handle(core, (local, remote), datagram, bytes);
                });
            }
            return;
        }
        if !self.admit(local, remote, datagram) {
            return;
        }
        let fits = |connection: &&Arc<Connection>| {
            connection
                .remote_address
                .is_none_or(|address| address == remote.ip().to_canonical())
        };
        let candidates: Vec<_> = self.core.connections.iter().filter(fits).cloned().collect();
        if candidates.is_empty() {
            let notify = Notify::new(NotifyType::NO_PROPOSAL_CHOSEN);
            self.reply(local, remote, datagram, notify);
            return;
        }
        let (core, path) = (&mut self.core, (local, remote));
        let respond = || IkeSa::respond(core, &candidates, path, datagram, bytes);
        // As with an IKE SA: a fault ends what it came by.
        let response = catch_unwind(AssertUnwindSafe(respond));
        match response.unwrap_or(Err(Refused::Silently)) {
            Ok(sa) => {
                let network = Network::of(remote.ip());
                self.half_open
                    .insert(sa.id, (network, (remote, header.spi_i)));
                self.first_messages.insert((remote, header.spi_i), sa.id);
                self.networks.add(network, sa.id, self.core.now);
                self.settle(sa);
            }
            Err(Refused::Silently) => {}
            Err(Refused::With(notify, failure)) => {
                if let Some(failure) = failure {
                    self.counters.no_proposal = self.counters.no_proposal.saturating_add(1);
                    let (ike, connection) = (IkeId(0), None);
                    let reason = Reason::Negotiation(*failure);
                    self.core.event(Event::IkeDown {
                        ike,
                        connection,
                        reason,
                    });
                }
                self.reply(local, remote, datagram, notify);
            }
        }
    }

    /// Whether a first message may cost us a key exchange: within the limits, and with a cookie once
    /// there are many half-open IKE SAs.
    fn admit(&mut self, local: SocketAddr, remote: SocketAddr, datagram: &Datagram) -> bool {
        let mut nonce = &[][..];
        let mut cookie = None;
        for payload in &datagram.clear {
            match payload {
                Payload::Nonce(data) => nonce = data,
                Payload::Notify(notify) if notify.kind == NotifyType::COOKIE => {
                    cookie = Some(notify.data.as_slice());
                }
                _ => {}
            }
        }
        let spi_i = datagram.header.spi_i;
        self.cookies.rotate(&mut self.core);
        let from = Network::of(remote.ip());
        let network = self.networks.of(from);
        let limits = &self.core.limits;
        // A cookie proves the address, so from here on the limit per network hits whom it should.
        let busy = self.half_open.len() >= limits.cookie_threshold
            || network >= limits.half_open_per_network / 2;
        let valid = cookie.is_some_and(|c| self.cookies.is_valid(c, nonce, remote, spi_i));
        if busy && !valid {
            if let Some(cookie) = self.cookies.current(nonce, remote, spi_i) {
                self.counters.cookies_sent = self.counters.cookies_sent.saturating_add(1);
                let notify = Notify::new(NotifyType::COOKIE).with_data(cookie);
                self.reply(local, remote, datagram, notify);
            }
            return false;
        }
        // A quarter is for those from whose networks somebody authenticated before.
        let reserve = match self.networks.is_known(from) {
            true => 0,
            false => limits.half_open.div_euclid(4),
        };
        let most = limits.half_open.saturating_sub(reserve);
        let room = self.networks.len() < most || self.make_room(from);
        if !room || network >= self.core.limits.half_open_per_network {
            self.counters.half_open_limit = self.counters.half_open_limit.saturating_add(1);
            return false;
        }
        true
    }

    /// Ends a handshake for a newcomer that has returned a cookie; false if its network has to wait.
    fn make_room(&mut self, network: Network) -> bool {
        let displaced = self.networks.displaced_by(network, self.core.now);
        displaced.is_some_and(|id| self.displace(id))
    }

    /// Ends a handshake whose peer has not proved who it is.
    pub(super) fn displace(&mut self, id: IkeId) -> bool {
        let Some(sa) = self.table.remove(&id) else {
            return false;
        };
        self.counters.displaced = self.counters.displaced.saturating_add(1);
        self.forget(id);
        self.core.event(Event::IkeDown {
            ike: id,
            connection: Some(sa.connection.name.clone()),
            reason: Reason::Displaced,
        });
        true
    }

    fn reply(&mut self, local: SocketAddr, remote: SocketAddr, request: &Datagram, notify: Notify) {
        let message = init_notify(request, notify);
        self.core.transmit(local, remote, &message);
    }

    /// Whether another unasked-for notification is allowed in this second.
    pub(super) fn may_tell(&mut self) -> bool {
        let (since, count) = &mut self.told;
        if self.core.now.since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (self.core.now, 0);
        }
        let most = match self.core.crash_secret {
            Some(_) => TOKENS_PER_SECOND,
            None => UNKNOWN_PER_SECOND,
        };
        if *count >= most {
            return false;
        }
        *count = count.saturating_add(1);
        true
    }

    pub(super) fn close_handshake(&mut self, id: IkeId) {
        let Some((network, first)) = self.half_open.remove(&id) else {
            return;
        };
        self.first_messages.remove(&first);
        self.networks.remove(network, id);
    }
}
