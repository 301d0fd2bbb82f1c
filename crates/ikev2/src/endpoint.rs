//! The table of IKE SAs: demultiplexing, timers, what the caller wants.

mod counters;
mod first;
mod paths;
mod table;
mod unique;
mod unprotected;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub use counters::{Counters, Misuse};
use unique::Contests;

use crate::Random;
use crate::admission::Cookies;
use crate::authorization::Holder;
use crate::config::{Connection, Limits};
use crate::crash::CrashSecret;
use crate::event::{Event, Reason, RequestId, Response, Transmit};
use crate::half_open::{HalfOpen, Network};
use crate::sa::{Core, IkeId, IkeSa, Intent, Transfer, WrongState};
use crate::ticket::TicketKeys;
use crate::time::Timestamp;
use crate::types::Path;
use crate::wire::{self, Datagram, ExchangeType};

/// Sender, SPI and exchange of a first message: whoever cannot resume begins anew under the same SPI.
type FirstMessage = (SocketAddr, u64, ExchangeType);

/// One IKE daemon's protocol half.
///
/// After each call, [`Self::poll_transmit`] and [`Self::poll_event`] are to be emptied; what they hold
/// is bounded by what one call can cause.
pub struct Endpoint {
    core: Core,
    table: BTreeMap<IkeId, IkeSa>,
    timers: BTreeSet<(Timestamp, IkeId)>,
    armed: BTreeMap<IkeId, Timestamp>,
    /// IKE SAs that answered a first message, for repetitions of it.
    first_messages: BTreeMap<FirstMessage, IkeId>,
    half_open: BTreeMap<IkeId, (Network, FirstMessage)>,
    networks: HalfOpen,
    /// Those whose peers solved no puzzle.
    unsolved: BTreeSet<IkeId>,
    /// IKE SAs of each holder in the order in which they came up, closed and replaced ones among them.
    held: BTreeMap<Holder, Vec<IkeId>>,
    holders: BTreeMap<IkeId, Holder>,
    contests: Contests,
    cookies: Cookies,
    counters: Counters,
    notified: NotifyRate,
    wrong_states: BTreeMap<WrongState, u64>,
}

/// INVALID_IKE_SPI and INVALID_SPI sent in this second, in all and to each network.
struct NotifyRate {
    since: Timestamp,
    count: u32,
    networks: BTreeMap<Network, u32>,
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(limits: Limits, random: Box<dyn Random + Send>, now: Timestamp) -> Self {
        let core = Core::new(limits, random, now);
        let mut endpoint = Self {
            core,
            table: BTreeMap::new(),
            timers: BTreeSet::new(),
            armed: BTreeMap::new(),
            first_messages: BTreeMap::new(),
            half_open: BTreeMap::new(),
            networks: HalfOpen::default(),
            unsolved: BTreeSet::new(),
            held: BTreeMap::new(),
            holders: BTreeMap::new(),
            contests: Contests::default(),
            cookies: Cookies::new(now),
            counters: Counters::default(),
            notified: NotifyRate {
                since: now,
                count: 0,
                networks: BTreeMap::new(),
            },
            wrong_states: BTreeMap::new(),
        };
        endpoint.cookies.fill(&mut endpoint.core);
        endpoint
    }

    /// Adds a connection; earlier ones are preferred where several fit. One of the same name is
    /// replaced for new IKE SAs; those that are up keep what they were made with.
    pub fn add_connection(&mut self, connection: Connection) {
        let connection = Arc::new(connection);
        self.core.held_tickets.forget(&connection.name);
        let same = self
            .core
            .connections
            .iter_mut()
            .find(|other| other.name == connection.name);
        match same {
            Some(place) => *place = connection,
            None => self.core.connections.push(connection),
        }
    }

    /// From now on peers get tokens by which they learn that we have lost their IKE SAs (RFC 6290). After a
    /// restart the secret must be the same.
    pub fn set_crash_secret(&mut self, secret: CrashSecret) {
        self.core.crash_secret = Some(secret);
    }

    /// From now on peers with certificates get tickets with which they resume their sessions (RFC 5723); tickets
    /// sealed with other keys than these are refused. Peers of none do without.
    pub fn set_ticket_keys(&mut self, keys: TicketKeys) {
        self.core.ticket_keys = Some(keys);
    }

    /// Forgets a connection: there are no new IKE SAs for it. Those that are up go on.
    pub fn remove_connection(&mut self, name: &str) {
        self.core.held_tickets.forget(name);
        self.core.connections.retain(|other| other.name != name);
    }

    /// Starts an IKE SA. The ports are those of IKE without NAT traversal.
    ///
    /// Where one is up, the new one takes its place as [`crate::Unique`] says. Whoever starts another towards the same
    /// peer before this one is up or has failed has the peer end this one when the other comes up (INITIAL_CONTACT,
    /// RFC 7296 §2.4).
    ///
    /// # Errors
    /// [`Misuse::Connection`], [`Misuse::Proposal`].
    pub fn initiate(
        &mut self,
        now: Timestamp,
        connection: &str,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<IkeId, Misuse> {
        self.initiate_over(now, connection, Path::udp(local, remote))
    }

    /// Starts an IKE SA as [`Self::initiate`] does, by datagrams or over a TCP connection.
    ///
    /// # Errors
    /// Those of [`Self::initiate`].
    pub fn initiate_over(
        &mut self,
        now: Timestamp,
        connection: &str,
        path: Path,
    ) -> Result<IkeId, Misuse> {
        self.core.now = now;
        let connection = self
            .core
            .connections
            .iter()
            .find(|c| c.name == connection)
            .cloned();
        let connection = connection.ok_or(Misuse::Connection)?;
        let sa = IkeSa::initiate(&mut self.core, connection, path);
        let sa = sa.ok_or(Misuse::Proposal)?;
        let id = sa.id();
        self.process(sa);
        Ok(id)
    }

    /// Handles a UDP payload. On the port for NAT traversal, payloads without the non-ESP marker are
    /// not for IKE and are ignored.
    pub fn handle_datagram(
        &mut self,
        now: Timestamp,
        local: SocketAddr,
        remote: SocketAddr,
        payload: &[u8],
    ) {
        self.handle_message(now, Path::udp(local, remote), payload);
    }

    /// Handles a UDP payload or the content of a TCP frame. Over TCP all messages have the non-ESP marker.
    pub fn handle_message(&mut self, now: Timestamp, path: Path, payload: &[u8]) {
        self.core.now = now;
        let bytes = if path.has_marker(self.core.limits.nat_port) {
            match payload.strip_prefix(&[0; 4]) {
                Some(bytes) => bytes,
                None => return,
            }
        } else {
            payload
        };
        let Ok(datagram) = Datagram::parse(bytes) else {
            self.counters.malformed = self.counters.malformed.saturating_add(1);
            if wire::is_first_of_version_1(bytes) {
                self.core.event(Event::IkeDown {
                    ike: IkeId(0),
                    connection: None,
                    reason: Reason::Version(1),
                });
            }
            return;
        };
        let header = datagram.header;
        let first = header.exchange.is_first()
            && header.spi_r == 0
            && header.flags.initiator
            && !header.flags.response;
        if first {
            self.on_first(path, &datagram, bytes);
            return;
        }
        // The initiator's messages carry our SPI as the responder's, and the other way round.
        let ours = if header.flags.initiator {
            header.spi_r
        } else {
            header.spi_i
        };
        let Some(sa) = self.table.remove(&IkeId(ours)) else {
            self.counters.unknown_spi = self.counters.unknown_spi.saturating_add(1);
            self.on_unknown(path, &datagram);
            return;
        };
        self.run(sa, |sa, core| sa.handle(core, path, &datagram, bytes));
    }

    /// Does what is due at `now`; calling too early or too often is harmless.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.core.now = now;
        while let Some((at, id)) = self.timers.first().copied() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, id));
            self.armed.remove(&id);
            if let Some(sa) = self.table.remove(&id) {
                self.run(sa, |sa, core| {
                    sa.on_timeout(core);
                    Ok(())
                });
            }
        }
        self.settle_due(now);
    }

    /// Takes the caller's response to a request. One that nothing waits for any more is ignored.
    pub fn respond(&mut self, now: Timestamp, pending: RequestId, response: Response) {
        self.core.now = now;
        let Some(id) = self.core.requests.remove(&pending) else {
            return;
        };
        if let Some(sa) = self.table.remove(&id) {
            self.run(sa, |sa, core| {
                sa.on_caller_response(core, pending, response)
            });
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.core.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let timers = self.timers.first().map(|(at, _)| *at);
        timers.into_iter().chain(self.contests.next()).min()
    }

    /// Makes another Child SA by the name of its configuration.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`], [`Misuse::Child`].
    pub fn create_child(&mut self, now: Timestamp, ike: IkeId, child: &str) -> Result<(), Misuse> {
        let sa = self.table.get(&ike).ok_or(Misuse::IkeSa)?;
        let index = sa
            .connection()
            .children
            .iter()
            .position(|config| config.name == child);
        self.want(now, ike, Intent::CreateChild(index.ok_or(Misuse::Child)?))
    }

    /// Replaces the Child SA with this inbound SPI.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`], [`Misuse::Child`].
    pub fn rekey_child(&mut self, now: Timestamp, ike: IkeId, spi_in: u32) -> Result<(), Misuse> {
        self.child(ike, spi_in)?;
        self.want(now, ike, Intent::RekeyChild(spi_in))
    }

    /// Deletes the Child SA with this inbound SPI.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`], [`Misuse::Child`].
    pub fn delete_child(&mut self, now: Timestamp, ike: IkeId, spi_in: u32) -> Result<(), Misuse> {
        self.child(ike, spi_in)?;
        self.want(now, ike, Intent::DeleteChild(spi_in, Reason::Local))
    }

    /// Replaces the IKE SA.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`].
    pub fn rekey_ike(&mut self, now: Timestamp, ike: IkeId) -> Result<(), Misuse> {
        self.want(now, ike, Intent::RekeyIke)
    }

    /// Closes the IKE SA and its Child SAs.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`].
    pub fn close(&mut self, now: Timestamp, ike: IkeId) -> Result<(), Misuse> {
        self.want(now, ike, Intent::DeleteIke(Reason::Local))
    }

    /// Closes an IKE SA that we started and whose place another one of ours has taken, where the connection lets a
    /// peer have several ([`crate::Unique::Never`]); else it goes by itself.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`].
    pub fn close_replaced(&mut self, now: Timestamp, ike: IkeId) -> Result<(), Misuse> {
        self.want(now, ike, Intent::DeleteIke(Reason::Replaced))
    }

    /// Sees whether the peer lives.
    ///
    /// # Errors
    /// [`Misuse::IkeSa`].
    pub fn probe(&mut self, now: Timestamp, ike: IkeId) -> Result<(), Misuse> {
        self.want(now, ike, Intent::Liveness)
    }

    /// Tells a peer that packets with an SPI that we do not know came from its address, ten times in a
    /// second at most; whether to is the caller's policy. Without an IKE SA with that address nobody is
    /// told: an unprotected message would be believed by nobody, and could be aimed at others.
    pub fn note_unknown_spi(&mut self, now: Timestamp, remote: IpAddr, spi: u32) {
        self.core.now = now;
        let here = |sa: &&IkeSa| sa.is_live() && sa.path().remote.ip() == remote;
        let Some(id) = self.table.values().find(here).map(IkeSa::id) else {
            return;
        };
        if self.may_notify(remote)
            && let Some(sa) = self.table.remove(&id)
        {
            self.run(sa, |sa, core| sa.notify_invalid_spi(core, spi));
        }
    }

    /// Tells that packets of the peer come through a Child SA: it lives, and need not be asked for a while
    /// (RFC 7296 §2.4).
    pub fn note_alive(&mut self, now: Timestamp, ike: IkeId) {
        self.core.now = now;
        if let Some(sa) = self.table.remove(&ike) {
            self.run(sa, |sa, core| {
                sa.note_alive(core);
                Ok(())
            });
        }
    }

    /// Tells that packets came through a Child SA that does not send yet. See [`Event::ChildUp`].
    pub fn note_inbound(&mut self, now: Timestamp, ike: IkeId, spi_in: u32) {
        self.core.now = now;
        if let Some(sa) = self.table.remove(&ike) {
            self.run(sa, |sa, core| sa.note_inbound(core, spi_in));
        }
    }

    /// IKE SAs that carry Child SAs, with the SPIs (inbound, outbound) of these.
    pub fn established(&self) -> impl Iterator<Item = (IkeId, Vec<(u32, u32)>)> {
        self.table
            .values()
            .filter(|sa| sa.is_live())
            .map(|sa| (sa.id(), sa.children()))
    }

    /// IKE SAs of any state, half-open ones among them.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no IKE SA at all.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Tells whether every peer has heard of the IKE SAs that have ended here, or was told often enough.
    pub fn all_told(&self) -> bool {
        !self.table.values().any(IkeSa::owes_notice)
    }

    /// Figures for the operator.
    pub const fn counters(&self) -> Counters {
        Counters {
            fragments_dropped: self.core.fragments_dropped,
            ..self.counters
        }
    }

    /// Events that had no place in the state of their IKE SA, with their numbers. There are as many pairs at most
    /// as states times exchange types.
    pub fn wrong_states(&self) -> impl Iterator<Item = (WrongState, u64)> {
        self.wrong_states
            .iter()
            .map(|(pair, count)| (*pair, *count))
    }

    fn child(&self, ike: IkeId, spi_in: u32) -> Result<(), Misuse> {
        let sa = self.table.get(&ike).ok_or(Misuse::IkeSa)?;
        let known = sa.children().iter().any(|(spi, _)| *spi == spi_in);
        known.then_some(()).ok_or(Misuse::Child)
    }

    fn want(&mut self, now: Timestamp, ike: IkeId, intent: Intent) -> Result<(), Misuse> {
        self.core.now = now;
        let sa = self.table.remove(&ike).ok_or(Misuse::IkeSa)?;
        let taken = self.run(sa, |sa, core| sa.want(core, intent));
        taken.ok_or(Misuse::IkeSa)
    }

    /// Puts an IKE SA back after an event, and does what it wants done to others.
    fn process(&mut self, sa: IkeSa) {
        if std::mem::take(&mut self.core.sends_anew) && sa.is_superseded() {
            self.core.transfers.push(Transfer::Yields(sa.id()));
        }
        self.put(sa);
        self.transfer_all();
    }

    /// Does what IKE SAs want done to others.
    fn transfer_all(&mut self) {
        // Each transfer names IKE SAs that do not make further ones, so this ends.
        loop {
            for successor in std::mem::take(&mut self.core.spawned) {
                self.put(IkeSa::succeed(&self.core, successor));
            }
            let transfers = std::mem::take(&mut self.core.transfers);
            if transfers.is_empty() {
                return;
            }
            for transfer in transfers {
                self.transfer(transfer);
            }
        }
    }

    fn transfer(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Inherit {
                from,
                to,
                inherited,
            } => match self.table.remove(&to) {
                Some(mut sa) => {
                    let outcome = sa.inherit(&mut self.core, from, *inherited);
                    self.note_state(outcome);
                    self.put(sa);
                }
                None => inherited.release(&mut self.core, from),
            },
            Transfer::MakeRoom(network) => {
                if let Some(id) = self.networks.oldest_beside(network) {
                    self.displace(id);
                }
            }
            Transfer::Holds { ike, holder, most } => {
                self.hold(ike, holder, most);
                self.settle(ike);
            }
            Transfer::Confirmed(ike) => self.confirmed(ike),
            Transfer::Yields(ike) => self.yields(ike),
            Transfer::Ended(key) => self.ended(&key),
            Transfer::Discard(id) => {
                if let Some(mut sa) = self.table.remove(&id) {
                    let outcome = sa.discard(&mut self.core);
                    self.note_state(outcome);
                    self.put(sa);
                }
            }
            Transfer::Moved {
                connection,
                from,
                to,
            } => {
                let superseded = |sa: &&IkeSa| sa.is_established() && !sa.is_live();
                let old: Vec<_> = self
                    .table
                    .values()
                    .filter(superseded)
                    .map(IkeSa::id)
                    .collect();
                for id in old {
                    if let Some(mut sa) = self.table.remove(&id) {
                        let outcome = sa.follow_path(&mut self.core, &connection, (from, to));
                        self.note_state(outcome);
                        self.put(sa);
                    }
                }
            }
            Transfer::InitialContact { keep, begun } => {
                let key = self.core.sessions.key(keep);
                let others = key.map(|key| self.core.sessions.all(key));
                for id in others.into_iter().flatten().filter(|id| *id != keep) {
                    // What came up later may be what the peer did not know yet when it spoke.
                    let earlier = |sa: &IkeSa| {
                        let origin = sa.origin();
                        origin.is_none_or(|origin| origin.up < begun)
                    };
                    if self.table.get(&id).is_some_and(earlier)
                        && let Some(mut sa) = self.table.remove(&id)
                    {
                        sa.down(&mut self.core, Reason::InitialContact);
                        self.put(sa);
                    }
                }
            }
        }
    }

    fn put(&mut self, sa: IkeSa) {
        let id = sa.id();
        if let Some(at) = self.armed.remove(&id) {
            self.timers.remove(&(at, id));
        }
        // One that failed counts until it is forgotten: failing is cheap.
        if sa.is_established()
            && let Some((network, _)) = self.half_open.get(&id)
        {
            self.networks.authenticated(*network, self.core.now);
        }
        if sa.is_established() || sa.is_gone() {
            self.close_handshake(id);
        }
        if sa.is_gone() {
            self.core.requests.retain(|_, owner| *owner != id);
            self.release(id);
            return;
        }
        let ended = self.core.sessions.note(&sa.seen());
        self.core.transfers.extend(ended.map(Transfer::Ended));
        if let Some(at) = sa.next_timeout() {
            self.timers.insert((at, id));
            self.armed.insert(id, at);
        }
        self.table.insert(id, sa);
    }
}
