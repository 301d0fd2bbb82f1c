//! What comes before there is an IKE SA: cookies, limits, messages for none that we know.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::Endpoint;
use super::unprotected::Unprotected;
use crate::config::Connection;
use crate::event::{Event, Reason};
use crate::half_open::Network;
use crate::puzzle;
use crate::sa::{IkeId, IkeSa, Refused, init_notifies, init_notify};
use crate::types::Path;
use crate::wire::{Datagram, ExchangeType, Notify, NotifyType, Payload, encode_clear};

/// INVALID_IKE_SPI and INVALID_SPI notifications in a second.
const UNKNOWN_PER_SECOND: u32 = 10;
/// The same with tokens: a thousand peers that find us restarted hear of it in a tenth of a second each, not one
/// after the other. These are 76 bytes for 60 or more, so they are a poor weapon, and one network gets no more
/// than [`TOKENS_PER_NETWORK`] of them.
const TOKENS_PER_SECOND: u32 = 5000;
/// Notifications in a second to one network (/24 or /56).
const TOKENS_PER_NETWORK: u32 = 400;

impl Endpoint {
    /// Tells a peer that its IKE SA is not here (RFC 7296 §1.5), where [`Unprotected`] permits it. The answer is not
    /// longer than its cause, and bounded in number for each network, so that it amplifies nothing.
    pub(super) fn on_unknown(&mut self, path: Path, datagram: &Datagram) {
        let is_ours = |spi| self.table.contains_key(&IkeId(spi));
        let answer = Unprotected::to(&datagram.header, datagram.encrypted.is_some(), is_ours);
        if answer == Unprotected::Nothing {
            return;
        }
        if !self.may_notify(path.remote.ip()) {
            return;
        }
        let mut header = datagram.header;
        header.flags.response = true;
        header.flags.initiator = !header.flags.initiator;
        let notify = Payload::Notify(Notify::new(NotifyType::INVALID_IKE_SPI));
        let spis = header.spis();
        let token = self.core.crash_secret.as_ref();
        let token = token.map(|secret| secret.token(spis));
        let payloads: Vec<Payload> = token.into_iter().chain([notify]).collect();
        let message = encode_clear(header, &payloads);
        self.core.transmit(path, &message);
    }

    pub(super) fn on_first(&mut self, path: Path, datagram: &Datagram, bytes: &[u8]) {
        let header = datagram.header;
        if header.message_id != 0 || datagram.encrypted.is_some() {
            return;
        }
        let first = (path.remote, header.spi_i, header.exchange);
        if let Some(id) = self.first_messages.get(&first).copied() {
            if let Some(sa) = self.table.remove(&id) {
                self.run(sa, |sa, core| sa.handle(core, path, datagram, bytes));
            }
            return;
        }
        let Some(solved) = self.admit(path, datagram) else {
            return;
        };
        let fits = |connection: &&Arc<Connection>| {
            connection
                .remote_address
                .is_none_or(|address| address == path.remote.ip().to_canonical())
        };
        let candidates: Vec<_> = self.core.connections.iter().filter(fits).cloned().collect();
        if candidates.is_empty() {
            let notify = Notify::new(NotifyType::NO_PROPOSAL_CHOSEN);
            self.reply(path, datagram, notify);
            return;
        }
        let core = &mut self.core;
        let respond = || match datagram.header.exchange {
            ExchangeType::IKE_SESSION_RESUME => {
                IkeSa::resume(core, &candidates, path, datagram, bytes)
            }
            _ => IkeSa::respond(core, &candidates, path, datagram, bytes),
        };
        // As with an IKE SA: a fault ends what it came by.
        let response = catch_unwind(AssertUnwindSafe(respond));
        match response.unwrap_or(Err(Refused::Silently)) {
            Ok(sa) => {
                let network = Network::of(path.remote.ip());
                self.half_open.insert(sa.id(), (network, first));
                self.first_messages.insert(first, sa.id());
                self.networks.add(network, sa.id(), self.core.now);
                if !solved {
                    self.unsolved.insert(sa.id());
                }
                self.process(sa);
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
                self.reply(path, datagram, notify);
            }
        }
    }

    /// Whether a first message may cost us a key exchange: within the limits, with a cookie once there are many
    /// half-open IKE SAs, and with the solution of a puzzle once there are very many. Gives whether one was solved.
    fn admit(&mut self, path: Path, datagram: &Datagram) -> Option<bool> {
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
        let from = Network::of(path.remote.ip());
        let network = self.networks.of(from);
        let limits = &self.core.limits;
        // A cookie proves the address, so from here on the limit per network hits whom it should.
        let busy = self.half_open.len() >= limits.cookie_threshold
            || network >= limits.half_open_per_network / 2;
        let shown = cookie.and_then(|c| Some((c, self.cookies.check(c, nonce, path, spi_i)?)));
        let solved = shown.is_some_and(|(cookie, bits)| {
            bits > 0 && puzzle::is_solved(&datagram.clear, cookie, bits)
        });
        let demanded = match solved {
            true => None,
            false => self.puzzle_for(from, datagram),
        };
        // Who knows no puzzles has a share of the places all the same.
        let share = self.core.limits.half_open.div_euclid(4);
        let full = demanded.is_some() && self.unsolved.len() >= share;
        // Who has opened a TCP connection has shown its address (RFC 9329 §6.3); the puzzle needs the cookie all the same.
        let proved = path.is_tcp() && demanded.is_none();
        let must_show = busy && shown.is_none() && !proved;
        if must_show || full && !self.make_room_in_share(from) {
            self.demand(path, datagram, nonce, demanded);
            return None;
        }
        let limits = &self.core.limits;
        // A quarter is for those from whose networks somebody authenticated before.
        let reserve = match self.networks.is_known(from) {
            true => 0,
            false => limits.half_open.div_euclid(4),
        };
        let most = limits.half_open.saturating_sub(reserve);
        let room = self.networks.len() < most || self.make_room(from);
        if !room || network >= self.core.limits.half_open_per_network {
            self.counters.half_open_limit = self.counters.half_open_limit.saturating_add(1);
            return None;
        }
        Some(solved)
    }

    /// Ends a handshake without solution for a newcomer without one, if it is one of a heavier branch.
    fn make_room_in_share(&mut self, network: Network) -> bool {
        let displaced = self.networks.displaced_by(network, self.core.now);
        let displaced = displaced.filter(|id| self.unsolved.contains(id));
        displaced.is_some_and(|id| self.displace(id))
    }

    /// Difficulty and function of a stranger's puzzle; none while there is room, for those of
    /// known networks, and where there is no key exchange to be saved.
    fn puzzle_for(&self, from: Network, datagram: &Datagram) -> Option<(u16, u8)> {
        let limits = &self.core.limits;
        let load = self.half_open.len().checked_div(limits.puzzle_threshold)?;
        if load == 0 || self.networks.is_known(from) {
            return None;
        }
        let (function, _) = puzzle::function(&datagram.clear)?;
        let share = limits.half_open_per_network.div_euclid(8).max(1);
        let of_network = self.networks.of(from).div_euclid(share);
        let doublings = [load, of_network].map(|times| times.checked_ilog2().unwrap_or(0));
        let more = doublings.into_iter().sum::<u32>();
        let more = u8::try_from(more).unwrap_or(u8::MAX);
        let bits = limits.puzzle_bits.saturating_add(more);
        Some((function, bits.min(limits.puzzle_bits_max)))
    }

    /// Asks for the same message again with a cookie, and with the solution of a puzzle.
    fn demand(&mut self, path: Path, request: &Datagram, nonce: &[u8], puzzle: Option<(u16, u8)>) {
        let bits = puzzle.map_or(0, |(_, bits)| bits);
        let cookie = self
            .cookies
            .current(bits, nonce, path, request.header.spi_i);
        let Some(cookie) = cookie else { return };
        self.counters.cookies_sent = self.counters.cookies_sent.saturating_add(1);
        let cookie = Notify::new(NotifyType::COOKIE).with_data(cookie);
        let mut payloads = vec![Payload::Notify(cookie)];
        if let Some((function, bits)) = puzzle {
            self.counters.puzzles_sent = self.counters.puzzles_sent.saturating_add(1);
            payloads.push(puzzle::demand(function, bits));
        }
        let message = init_notifies(request, &payloads);
        self.core.transmit(path, &message);
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
            connection: Some(sa.connection().name.clone()),
            reason: Reason::Displaced,
        });
        true
    }

    fn reply(&mut self, path: Path, request: &Datagram, notify: Notify) {
        let message = init_notify(request, notify);
        self.core.transmit(path, &message);
    }

    /// Whether another unasked-for notification is allowed in this second.
    pub(super) fn may_notify(&mut self, remote: IpAddr) -> bool {
        let notified = &mut self.notified;
        if self.core.now.since(notified.since) >= Duration::from_secs(1) {
            (notified.since, notified.count) = (self.core.now, 0);
            notified.networks.clear();
        }
        let (most, of_network) = match self.core.crash_secret {
            Some(_) => (TOKENS_PER_SECOND, TOKENS_PER_NETWORK),
            None => (UNKNOWN_PER_SECOND, UNKNOWN_PER_SECOND),
        };
        if notified.count >= most {
            return false;
        }
        // As many networks as notifications at most.
        let network = notified.networks.entry(Network::of(remote)).or_default();
        if *network >= of_network {
            return false;
        }
        *network = network.saturating_add(1);
        notified.count = notified.count.saturating_add(1);
        true
    }

    pub(super) fn close_handshake(&mut self, id: IkeId) {
        let Some((network, first)) = self.half_open.remove(&id) else {
            return;
        };
        self.first_messages.remove(&first);
        self.networks.remove(network, id);
        self.unsolved.remove(&id);
    }
}
