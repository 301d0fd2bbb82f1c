//! What all IKE SAs of an endpoint share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::fragment_budget::FragmentBudget;
use super::sessions::{Origin, PeerKey, Sessions};
use super::successor::{InheritedState, Successor};
use crate::Random;
use crate::authorization::{Claims, Holder};
use crate::budget::Budgets;
use crate::config::{Connection, Limits};
use crate::crash::CrashSecret;
use crate::event::{Event, Request, RequestId, Transmit};
use crate::half_open::Network;
use crate::ticket::{HeldTickets, TicketKeys, UsedTickets};
use crate::time::Timestamp;
use crate::types::{IkeId, Path};

/// Request of one IKE SA about another; the endpoint does it after the event.
pub(crate) enum Transfer {
    /// `to` takes over what belongs to `from`.
    Inherit {
        from: IkeId,
        to: IkeId,
        inherited: Box<InheritedState>,
    },
    /// A stranger from this network found no room for its fragments: somebody else makes some.
    MakeRoom(Network),
    /// This one lost against the peer's and is to be deleted.
    Discard(IkeId),
    /// Whatever else of this connection goes over the first path goes over the second.
    Moved {
        connection: Arc<Connection>,
        from: Path,
        to: Path,
    },
    /// This IKE SA is up or has a successor that is: its holder has so many at most.
    Holds {
        ike: IkeId,
        holder: Holder,
        most: usize,
    },
    /// The peer of this IKE SA had no other with us when it proved who it is: what was up before this one
    /// began is forgotten there.
    InitialContact { keep: IkeId, begun: u64 },
    /// The peer has answered through this IKE SA, which takes the place of others.
    Confirmed(IkeId),
    /// A Child SA of this IKE SA sends from now on, though another IKE SA takes its place.
    Yields(IkeId),
    /// An IKE SA of this peer has ended.
    Ended(PeerKey),
}

/// Time, randomness, configuration and output of an endpoint.
pub(crate) struct Core {
    pub(crate) now: Timestamp,
    pub(crate) random: Box<dyn Random + Send>,
    pub(crate) limits: Limits,
    pub(crate) connections: Vec<Arc<Connection>>,
    pub(crate) esp_spis: BTreeSet<u32>,
    /// Inner addresses of peers' Child SAs.
    pub(crate) claims: Claims,
    pub(crate) budgets: Budgets,
    /// Bytes of fragments of strangers.
    pub(crate) room: FragmentBudget,
    pub(crate) fragments_dropped: u64,
    pub(crate) crash_secret: Option<CrashSecret>,
    pub(crate) ticket_keys: Option<TicketKeys>,
    pub(crate) used_tickets: UsedTickets,
    pub(crate) held_tickets: HeldTickets,
    pub(crate) transmits: VecDeque<Transmit>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) requests: BTreeMap<RequestId, IkeId>,
    pub(crate) next_ask: u64,
    // As data: an IKE SA needs this core for all it does, so this core must not need IKE SAs.
    pub(crate) spawned: Vec<Successor>,
    pub(crate) transfers: Vec<Transfer>,
    pub(crate) sessions: Sessions,
    /// Whether the event has made a Child SA send.
    pub(crate) sends_anew: bool,
    moments: u64,
}

impl Core {
    pub(crate) fn new(limits: Limits, random: Box<dyn Random + Send>, now: Timestamp) -> Self {
        Self {
            now,
            random,
            limits,
            connections: Vec::new(),
            esp_spis: BTreeSet::new(),
            claims: Claims::default(),
            budgets: Budgets::default(),
            room: FragmentBudget::default(),
            fragments_dropped: 0,
            crash_secret: None,
            ticket_keys: None,
            used_tickets: UsedTickets::default(),
            held_tickets: HeldTickets::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            requests: BTreeMap::new(),
            next_ask: 0,
            spawned: Vec::new(),
            transfers: Vec::new(),
            sessions: Sessions::default(),
            sends_anew: false,
            moments: 0,
        }
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.random.fill(&mut out);
        out
    }

    /// A number that is larger than those before: what has the smaller one came first.
    pub(crate) const fn moment(&mut self) -> u64 {
        self.moments = self.moments.saturating_add(1);
        self.moments
    }

    /// The origin of an IKE SA that comes up now.
    pub(crate) const fn origin(&mut self, begun: u64, ours: bool) -> Origin {
        let up = self.moment();
        Origin { begun, up, ours }
    }

    /// An IKE SPI; never zero. A repetition among 2^64 is not to be expected, and would be refused by
    /// the table.
    pub(crate) fn ike_spi(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes()).max(1)
    }

    /// A free SPI for ESP, at this place among the resources; those up to 255 are reserved (RFC 4303 §2.1).
    pub(crate) fn esp_spi(&mut self, place: Option<u32>) -> u32 {
        let resources = u32::try_from(self.limits.resources).unwrap_or(1);
        loop {
            let drawn = u32::from_be_bytes(self.bytes());
            let moved = |place: u32| {
                let rest = drawn.checked_rem(resources)?;
                drawn.saturating_sub(rest).checked_add(place)
            };
            let spi = place.and_then(moved).unwrap_or(drawn);
            // Of four thousand million few are taken, so this ends soon.
            if spi > 255 && self.esp_spis.insert(spi) {
                return spi;
            }
        }
    }

    /// Gives an SPI back, and with it the inner addresses that its Child SA had.
    pub(crate) fn free_esp_spi(&mut self, spi: u32) {
        self.esp_spis.remove(&spi);
        self.claims.release(spi);
    }

    /// A nonce: at least half the key length of the pseudorandom function (RFC 7296 §2.10).
    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        self.bytes::<32>().to_vec()
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn request(&mut self, ike: IkeId, request: Request) -> RequestId {
        let id = RequestId(self.next_ask);
        // Answers come late or twice, so no number comes again.
        self.next_ask = self.next_ask.wrapping_add(1);
        self.requests.insert(id, ike);
        self.event(Event::Request(id, request));
        id
    }

    /// Queues a message, with the non-ESP marker where it belongs.
    pub(crate) fn transmit(&mut self, path: Path, message: &[u8]) {
        let marker: &[u8] = match path.has_marker(self.limits.nat_port) {
            true => &[0; 4],
            false => &[],
        };
        let payload = [marker, message].concat();
        self.transmits.push_back(Transmit {
            local: path.local,
            remote: path.remote,
            transport: path.transport,
            payload,
        });
    }

    /// A pause of once to twice `base`, so that two sides do not fail in step for ever.
    pub(crate) fn jittered(&mut self, base: Duration) -> Duration {
        let [byte] = self.bytes();
        base.saturating_add(
            base.saturating_mul(u32::from(byte))
                .checked_div(256)
                .unwrap_or(base),
        )
    }
}

/// When to replace something of this life: up to a tenth earlier, so that not all peers of a gateway
/// come at once, nor both sides of one SA.
pub(crate) fn rekey_time(core: &mut Core, life: Option<Duration>) -> Option<Timestamp> {
    let life = life?;
    let spread = life.checked_div(10).unwrap_or_default();
    let earlier = core.jittered(spread).saturating_sub(spread);
    Some(core.now.after(life.saturating_sub(earlier)))
}

/// When something of this life ends, if it is not replaced.
pub(crate) fn end_time(core: &Core, life: Option<Duration>) -> Option<Timestamp> {
    Some(core.now.after(life?).after(core.limits.overdue?))
}
