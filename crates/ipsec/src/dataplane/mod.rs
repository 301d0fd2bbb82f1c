//! The packet path: policies and associations applied to batches.
//!
//! One [`DataPlane`] belongs to one worker, which owns it: no locks, but for what several workers share of an
//! association, once per group. Packets of a batch are grouped
//! by association, and each group goes to the crypto engine at once.

mod authentication;
mod expiry;
mod inbound;
mod outbound;

use offload::Slot;
use offload::mac::MacSlot;
use std::collections::HashMap;
use std::net::SocketAddr;

use self::expiry::{Limits, Party};
use crate::drops::{DropCause, DropCounters};
use crate::hash::Seeded;
use crate::ip::IpHeader;
use crate::lifetime::Expiry;
use crate::sa::{InboundSa, OutboundSa, Protection, SaHandle, Spi, Trailer};
use crate::selector::Flow;
use crate::spd::{Action, PolicyId, Spd};

/// Something the owner of the data plane should act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Traffic asks for protection that nobody set up: negotiate. Reported once per policy until an
    /// association is installed.
    Acquire(PolicyId),
    /// An outbound association reached a limit.
    OutboundExpired(SaHandle, Expiry),
    /// An inbound association reached a limit.
    InboundExpired(Spi, Expiry),
    /// The newest packet of an inbound association in UDP came from another address or port than the
    /// newest before: the NAT in front of the peer has changed its mapping. Also reported of the first.
    /// At most once a second for each association.
    SourceChanged(Spi, SocketAddr),
}

/// Packets and bytes that went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes of the inner packets.
    pub bytes: u64,
}

impl Traffic {
    const fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Counters of a data plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Protected and ready to send.
    pub protected: Traffic,
    /// Sent as they are, by policy.
    pub bypassed: Traffic,
    /// Verified, decrypted, allowed.
    pub delivered: Traffic,
    /// Packets dropped on the way out.
    pub outbound_drops: DropCounters,
    /// Packets dropped on the way in.
    pub inbound_drops: DropCounters,
}

/// The association that protects a packet in tunnel mode, and the overhead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The association.
    pub sa: SaHandle,
    /// Its place.
    index: SaIndex,
    /// The packet's header.
    inner: IpHeader,
    /// Bytes in front of the inner packet.
    pub before: usize,
    /// The largest inner packet that fits the path.
    pub inner_mtu: usize,
    trailer: Trailer,
}

impl Frame {
    /// Bytes behind an inner packet of `inner` bytes.
    pub const fn after(&self, inner: usize) -> usize {
        self.trailer.after(inner)
    }
}

/// An association's place among those of its direction; reused after removal, when nothing points to
/// it any more.
type SaIndex = usize;

/// Policies and associations of one worker.
pub struct DataPlane {
    spd: Spd,
    outbound: Vec<Option<OutboundSa>>,
    /// Places of `outbound` that hold nothing.
    free: Vec<SaIndex>,
    /// Inbound associations' places by SPI: small, so that most of it stays in a cache.
    by_spi: HashMap<Spi, SaIndex, Seeded>,
    inbound: Vec<Option<InboundSa>>,
    /// Places of `inbound` that hold nothing.
    free_inbound: Vec<SaIndex>,
    acquired: HashMap<PolicyId, (), Seeded>,
    limits: Limits,
    /// Changes of source that [`poll_sources`](Self::poll_sources) has still to report.
    sources: Vec<(Spi, SocketAddr)>,
    statistics: Statistics,
    scratch: Scratch,
}

/// Memory that is kept between batches, so that a batch allocates nothing.
#[derive(Default)]
struct Scratch {
    /// (association, packet) of each packet to protect or to open, to be sorted into groups.
    order: Vec<(SaIndex, usize)>,
    slots: Vec<Slot>,
    mac_slots: Vec<MacSlot>,
    /// Headers of AH packets as they were before their mutable fields were zeroed.
    saved: Vec<u8>,
}

/// Groups ahead of which keys are fetched: memory answers while the groups before are worked on.
const AHEAD: usize = 2;

/// Calls `work` for each group of `order` with its association, of those in `places`; the keys of the
/// groups behind it are on their way by then.
fn for_each_group<S: Keyed>(
    places: &mut [Option<S>],
    order: &[(SaIndex, usize)],
    mut work: impl FnMut(&mut S, SaIndex, &[(SaIndex, usize)]),
) {
    let groups = || order.chunk_by(|a, b| a.0 == b.0);
    let place = |group: &[(SaIndex, usize)]| group.first().map_or(SaIndex::MAX, |(sa, _)| *sa);
    let fetch = |places: &[Option<S>], group| {
        if let Some(Some(sa)) = places.get(place(group)) {
            sa.protection().prefetch();
        }
    };
    let mut ahead = groups();
    for group in ahead.by_ref().take(AHEAD) {
        fetch(places, group);
    }
    for group in groups() {
        if let Some(later) = ahead.next() {
            fetch(places, later);
        }
        if let Some(Some(sa)) = places.get_mut(place(group)) {
            work(sa, place(group), group);
        }
    }
}

/// Common view of both kinds of association.
trait Keyed {
    fn protection(&self) -> &Protection;
}

impl Keyed for InboundSa {
    fn protection(&self) -> &Protection {
        &self.protection
    }
}

impl Keyed for OutboundSa {
    fn protection(&self) -> &Protection {
        &self.protection
    }
}

impl DataPlane {
    /// An empty data plane: it drops everything. `seed` randomises the policy cache.
    pub fn new(seed: u64) -> Self {
        Self {
            spd: Spd::new(seed),
            outbound: Vec::new(),
            free: Vec::new(),
            by_spi: HashMap::with_hasher(Seeded(seed)),
            inbound: Vec::new(),
            free_inbound: Vec::new(),
            acquired: HashMap::with_hasher(Seeded(seed)),
            limits: Limits::default(),
            sources: Vec::new(),
            statistics: Statistics::default(),
            scratch: Scratch::default(),
        }
    }

    /// Reports from where packets of inbound associations come since the last call.
    pub fn poll_sources(&mut self, events: &mut Vec<Event>) {
        let sources = self.sources.drain(..);
        events.extend(sources.map(|(spi, source)| Event::SourceChanged(spi, source)));
    }

    /// The policies.
    pub const fn spd(&self) -> &Spd {
        &self.spd
    }

    /// Adds a policy.
    pub fn insert_policy(&mut self, policy: crate::spd::Policy) -> PolicyId {
        self.spd.insert(policy)
    }

    /// Removes a policy; its association stays until it is removed.
    pub fn remove_policy(&mut self, id: PolicyId) {
        self.spd.remove(id);
        self.acquired.remove(&id);
    }

    /// Installs an association for the traffic of `policies`, instead of the one they have. The old
    /// one stays until [`remove_outbound`](Self::remove_outbound), and carries no more packets.
    pub fn install_outbound(&mut self, sa: OutboundSa, policies: &[PolicyId]) {
        let index = self.free.pop().unwrap_or(self.outbound.len());
        self.limits.add(Party::Outbound(index), &sa.usage);
        match self.outbound.get_mut(index) {
            Some(place) => *place = Some(sa),
            None => self.outbound.push(Some(sa)),
        }
        for policy in policies {
            self.spd.bind(*policy, Some(index));
            self.acquired.remove(policy);
        }
    }

    /// Lets an association that is installed protect the traffic of `policies` from now on. False if
    /// there is none of this name.
    pub fn bind(&mut self, handle: SaHandle, policies: &[PolicyId]) -> bool {
        let is_it = |sa: &Option<OutboundSa>| sa.as_ref().is_some_and(|sa| sa.handle() == handle);
        let Some(index) = self.outbound.iter().position(is_it) else {
            return false;
        };
        for policy in policies {
            self.spd.bind(*policy, Some(index));
            self.acquired.remove(policy);
        }
        true
    }

    /// Lets traffic of a policy without association be reported again ([`Event::Acquire`]), when what
    /// it led to came to nothing.
    pub fn forget_acquire(&mut self, policy: PolicyId) {
        self.acquired.remove(&policy);
    }

    /// The inbound association with this SPI.
    pub fn inbound_sa(&self, spi: Spi) -> Option<&InboundSa> {
        self.inbound.get(*self.by_spi.get(&spi)?)?.as_ref()
    }

    /// Removes the outbound associations of this name.
    pub fn remove_outbound(&mut self, handle: SaHandle) {
        for (index, place) in self.outbound.iter_mut().enumerate() {
            if let Some(sa) = place.take_if(|sa| sa.handle() == handle) {
                self.limits.remove(Party::Outbound(index), &sa.usage);
                self.free.push(index);
                for policy in self.spd.bound_to(index) {
                    self.spd.bind(policy, None);
                }
            }
        }
    }

    /// Installs an inbound association; returns the one that had its SPI.
    pub fn install_inbound(&mut self, sa: InboundSa) -> Option<InboundSa> {
        let old = self.remove_inbound(sa.spi());
        let (spi, index) = (
            sa.spi(),
            self.free_inbound.pop().unwrap_or(self.inbound.len()),
        );
        self.limits.add(Party::Inbound(index), &sa.usage);
        match self.inbound.get_mut(index) {
            Some(place) => *place = Some(sa),
            None => self.inbound.push(Some(sa)),
        }
        self.by_spi.insert(spi, index);
        old
    }

    /// Removes an inbound association.
    pub fn remove_inbound(&mut self, spi: Spi) -> Option<InboundSa> {
        let index = self.by_spi.remove(&spi)?;
        let sa = self.inbound.get_mut(index)?.take()?;
        self.limits.remove(Party::Inbound(index), &sa.usage);
        self.free_inbound.push(index);
        Some(sa)
    }

    /// Outbound associations.
    pub fn outbound_sas(&self) -> impl Iterator<Item = &OutboundSa> {
        self.outbound.iter().flatten()
    }

    /// Inbound associations, in no order.
    pub fn inbound_sas(&self) -> impl Iterator<Item = &InboundSa> {
        self.inbound.iter().flatten()
    }

    /// Learns how large packets may be on an association's path (RFC 4301 §8.2.1). What an ICMP
    /// message says is not authenticated, so it never goes below what every path carries.
    pub fn set_path_mtu(&mut self, handle: SaHandle, mtu: u16) {
        for sa in self
            .outbound
            .iter_mut()
            .flatten()
            .filter(|sa| sa.handle() == handle)
        {
            let v6 = matches!(&sa.mode, crate::sa::Mode::Tunnel(tunnel) if tunnel.local.is_ipv6());
            sa.options.path_mtu = Some(mtu.max(if v6 { 1280 } else { 576 }));
        }
    }

    /// The counters.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Whether a packet that came in without protection is allowed (RFC 4301 §5.2, step 3b).
    ///
    /// # Errors
    /// Why it is to be dropped.
    pub fn admit_unprotected(&mut self, packet: &[u8]) -> Result<(), DropCause> {
        let result = self.judge_unprotected(packet);
        if let Err(cause) = result {
            self.statistics.inbound_drops.count(cause);
        }
        result
    }

    fn judge_unprotected(&mut self, packet: &[u8]) -> Result<(), DropCause> {
        let header = IpHeader::parse(packet)?;
        let decision = self.spd.decide(&Flow::inbound(&header));
        match decision.map(|decision| decision.action) {
            Some(Action::Bypass) => Ok(()),
            Some(Action::Discard) => Err(DropCause::PolicyDiscard),
            Some(Action::Protect) => Err(DropCause::Unprotected),
            None => Err(DropCause::NoPolicy),
        }
    }
}
