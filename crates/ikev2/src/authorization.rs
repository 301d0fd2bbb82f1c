//! What an authenticated peer may have.
//!
//! Authentication says who the peer is; an [`Authorization`] says what this peer may have. The caller
//! builds one for each IKE SA ([`crate::Ask::Authorize`]), once, after the peer has proved who it is. An
//! IKE SA is established only with one, successors inherit it, and neither a Child SA nor an answer with
//! addresses can be built without it: the first exchange and every later one take the peer's traffic from
//! the same value.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::budget::Rates;
use crate::config::Connection;
use crate::wire::TrafficSelector;

/// Child SAs that a peer may have at once, unless the caller says otherwise: those of the usual
/// configurations twice over, so that all may be replaced at once.
const CHILDREN: usize = 16;
/// Networks of a peer, unless the caller says otherwise. Each may become a route, and a range of IPv4
/// addresses is 62 networks at most.
const NETWORKS: usize = 64;

/// Holder of inner addresses. IKE SAs of one holder may hold the same addresses, as they do while a peer
/// reconnects; those of different holders never do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<[u8]>);

impl Holder {
    /// A holder by a name that the caller chooses. Whatever makes two peers different must be in it: an
    /// identity, and under whose authority it was proved.
    pub fn new(name: &[u8]) -> Self {
        Self(name.into())
    }
}

/// Rights of one authenticated peer. None, until the caller adds to it.
#[derive(Clone, Debug)]
pub struct Authorization {
    holder: Holder,
    addresses: Vec<IpAddr>,
    name_servers: Vec<IpAddr>,
    peer: Vec<TrafficSelector>,
    own: Vec<TrafficSelector>,
    children: usize,
    networks: usize,
    rates: Rates,
    resumption: Option<Vec<u8>>,
}

impl Authorization {
    /// No addresses, no traffic: the IKE SA may be there, and nothing else.
    pub fn nothing(holder: Holder) -> Self {
        Self {
            holder,
            addresses: Vec::new(),
            name_servers: Vec::new(),
            peer: Vec::new(),
            own: Vec::new(),
            children: CHILDREN,
            networks: NETWORKS,
            rates: Rates::default(),
            resumption: None,
        }
    }

    /// Builds the rights for which the children of a connection are configured: for a peer that has a connection to itself.
    /// One that gets its addresses from us has none but those that [`Self::assigning`] adds.
    pub fn of_connection(connection: &Connection, holder: Holder) -> Self {
        let children = connection.children.iter();
        let own = children.flat_map(|child| child.local.iter().copied());
        Self::nothing(holder)
            .with_own_networks(own)
            .with_peer_networks(connection.peer_networks())
    }

    /// Gives the peer these addresses inside the tunnel, and tells it of name servers. It may be the
    /// source of packets from them.
    #[must_use]
    pub fn assigning(mut self, addresses: &[IpAddr], name_servers: &[IpAddr]) -> Self {
        let hosts = addresses.iter().copied().map(TrafficSelector::host);
        self.peer.extend(hosts);
        self.addresses.extend(addresses);
        self.name_servers.extend(name_servers);
        self
    }

    /// Lets the peer be the source of packets from these networks.
    #[must_use]
    pub fn with_peer_networks(
        mut self,
        networks: impl IntoIterator<Item = TrafficSelector>,
    ) -> Self {
        self.peer.extend(networks);
        self
    }

    /// Lets the peer reach these networks on our side.
    #[must_use]
    pub fn with_own_networks(
        mut self,
        networks: impl IntoIterator<Item = TrafficSelector>,
    ) -> Self {
        self.own.extend(networks);
        self
    }

    /// Bounds the Child SAs that the peer may have at once, and the networks (prefixes) that all of them
    /// together may cover on its side.
    #[must_use]
    pub const fn with_limits(mut self, children: usize, networks: usize) -> Self {
        self.children = children;
        self.networks = networks;
        self
    }

    /// Bounds how often the peer may ask for something, over all its IKE SAs.
    #[must_use]
    pub const fn with_rates(mut self, rates: Rates) -> Self {
        self.rates = rates;
        self
    }

    /// Lets the session be resumed (RFC 5723). `state` is what the caller needs to decide about the peer anew when
    /// it comes back ([`crate::Ask::ReviewPeer`]): as a responder's it goes into a ticket, as an initiator's it
    /// stays here.
    #[must_use]
    pub fn with_resumption(mut self, state: Vec<u8>) -> Self {
        self.resumption = Some(state);
        self
    }

    pub(crate) fn resumption(&self) -> Option<&[u8]> {
        self.resumption.as_deref()
    }

    pub(crate) const fn rates(&self) -> Rates {
        self.rates
    }

    /// Addresses inside the tunnel that the peer is given.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Name servers of which the peer is told.
    pub fn name_servers(&self) -> &[IpAddr] {
        &self.name_servers
    }

    pub(crate) const fn holder(&self) -> &Holder {
        &self.holder
    }

    pub(crate) const fn children(&self) -> usize {
        self.children
    }

    /// Of the peer's traffic that a child is configured for, what the peer may have.
    pub(crate) fn of_peer(&self, configured: &[TrafficSelector]) -> Vec<TrafficSelector> {
        narrow(configured, &self.peer)
    }

    /// Of our traffic that a child is configured for, what the peer may reach.
    pub(crate) fn of_ours(&self, configured: &[TrafficSelector]) -> Vec<TrafficSelector> {
        narrow(configured, &self.own)
    }

    /// Whether all of this lies in what the peer may have.
    pub(crate) fn permits(&self, own: &[TrafficSelector], peer: &[TrafficSelector]) -> bool {
        let within = |wanted: &[TrafficSelector], allowed: &[TrafficSelector]| {
            let inside = |one: &TrafficSelector| allowed.iter().any(|other| other.contains(one));
            !wanted.is_empty() && wanted.iter().all(inside)
        };
        within(own, &self.own) && within(peer, &self.peer)
    }

    /// Whether the peer's Child SAs may cover so many networks.
    pub(crate) fn permits_networks<'a>(
        &self,
        selectors: impl Iterator<Item = &'a TrafficSelector>,
    ) -> bool {
        let mut ranges: Vec<_> = selectors.map(TrafficSelector::addresses).collect();
        ranges.sort_unstable();
        ranges.dedup();
        let mut count: usize = 0;
        for (first, last) in ranges {
            count = count.saturating_add(networks_in(first, last));
            if count > self.networks {
                return false;
            }
        }
        true
    }
}

/// All intersections, without those that another contains (RFC 7296 §2.9).
pub(crate) fn narrow(ours: &[TrafficSelector], theirs: &[TrafficSelector]) -> Vec<TrafficSelector> {
    let mut out: Vec<TrafficSelector> = Vec::new();
    for one in ours {
        for selector in theirs.iter().filter_map(|two| one.intersection(two)) {
            if out.iter().any(|kept| kept.contains(&selector)) {
                continue;
            }
            out.retain(|kept| !selector.contains(kept));
            out.push(selector);
        }
    }
    out
}

/// An address as a number, with its family above it, so that both families fit one order.
type Place = (bool, u128);

fn place(address: IpAddr) -> Place {
    match address {
        IpAddr::V4(address) => (false, u128::from(address.to_bits())),
        IpAddr::V6(address) => (true, address.to_bits()),
    }
}

/// Prefixes that a range of addresses consists of.
fn networks_in(first: IpAddr, last: IpAddr) -> usize {
    let ((_, first), (wide, last)) = (place(first), place(last));
    let width = if wide { 128 } else { 32 };
    let (mut at, mut count) = (first, 0_usize);
    loop {
        count = count.saturating_add(1);
        // The largest prefix that begins here and does not end behind the range.
        let room = last.saturating_sub(at);
        let aligned = at.trailing_zeros().min(width);
        let fits = room
            .checked_add(1)
            .map_or(width, |size| size.checked_ilog2().unwrap_or(0));
        let bits = aligned.min(fits);
        let size = 1_u128.checked_shl(bits);
        let next = size.and_then(|size| at.checked_add(size));
        match next {
            Some(next) if next <= last => at = next,
            _ => return count,
        }
    }
}

/// A piece of the address space that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    last: u128,
    holder: Holder,
    /// Child SAs of the holder that have it.
    count: usize,
}

/// Holders of inner addresses, over all peers. The first one keeps what it has.
///
/// Pieces do not overlap, and neighbours that are alike are one, so there are at most two for each selector
/// of a live Child SA, and a look-up takes the logarithm of that.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pieces: BTreeMap<Place, Piece>,
    held: BTreeMap<u32, (Holder, Vec<(Place, Place)>)>,
}

impl Claims {
    /// Whether somebody else has an address of these; the first that does.
    pub(crate) fn conflict(
        &self,
        holder: &Holder,
        selectors: &[TrafficSelector],
    ) -> Option<TrafficSelector> {
        let taken = |selector: &&TrafficSelector| {
            let (first, last) = ends(selector);
            let mut inside = self.overlapping(first, last);
            inside.any(|(_, piece)| piece.holder != *holder)
        };
        selectors.iter().find(taken).copied()
    }

    /// Takes the addresses of these selectors for a Child SA, or says which of them another has.
    pub(crate) fn take(
        &mut self,
        spi_in: u32,
        holder: &Holder,
        selectors: &[TrafficSelector],
    ) -> Result<(), TrafficSelector> {
        if let Some(taken) = self.conflict(holder, selectors) {
            return Err(taken);
        }
        self.release(spi_in);
        let ranges: Vec<_> = selectors.iter().map(ends).collect();
        for (first, last) in &ranges {
            self.add(*first, *last, holder);
        }
        self.held.insert(spi_in, (holder.clone(), ranges));
        Ok(())
    }

    /// A Child SA is gone, or never came up.
    pub(crate) fn release(&mut self, spi_in: u32) {
        let Some((_, ranges)) = self.held.remove(&spi_in) else {
            return;
        };
        for (first, last) in ranges {
            self.subtract(first, last);
        }
    }

    /// The pieces that have something of a range.
    fn overlapping(&self, first: Place, last: Place) -> impl Iterator<Item = (Place, &Piece)> {
        let before = self.pieces.range(..first).next_back();
        let before =
            before.filter(move |((wide, _), piece)| *wide == first.0 && piece.last >= first.1);
        let inside = self.pieces.range(first..=last);
        before
            .into_iter()
            .chain(inside)
            .map(|(at, piece)| (*at, piece))
    }

    /// Cuts the piece that goes on over `at`, so that one begins there.
    fn cut(&mut self, at: Place) {
        let Some((start, piece)) = self.pieces.range_mut(..at).next_back() else {
            return;
        };
        if start.0 != at.0 || piece.last < at.1 {
            return;
        }
        let rest = piece.clone();
        piece.last = at.1.saturating_sub(1);
        self.pieces.insert(at, rest);
    }

    /// Cuts at both ends of a range.
    fn cut_out(&mut self, first: Place, last: Place) {
        self.cut(first);
        if let Some(behind) = last.1.checked_add(1) {
            self.cut((last.0, behind));
        }
    }

    fn add(&mut self, first: Place, last: Place, holder: &Holder) {
        self.cut_out(first, last);
        let fresh = |last| Piece {
            last,
            holder: holder.clone(),
            count: 1,
        };
        let mut gaps = Vec::new();
        let mut at = Some(first.1);
        for (start, piece) in self.pieces.range_mut(first..=last) {
            if let Some(from) = at.filter(|from| *from < start.1) {
                gaps.push((from, start.1.saturating_sub(1)));
            }
            piece.count = piece.count.saturating_add(1);
            at = piece.last.checked_add(1);
        }
        if let Some(from) = at.filter(|from| *from <= last.1) {
            gaps.push((from, last.1));
        }
        for (from, to) in gaps {
            self.pieces.insert((first.0, from), fresh(to));
        }
        self.join(first, last);
    }

    fn subtract(&mut self, first: Place, last: Place) {
        self.cut_out(first, last);
        let mut unused = Vec::new();
        for (start, piece) in self.pieces.range_mut(first..=last) {
            piece.count = piece.count.saturating_sub(1);
            if piece.count == 0 {
                unused.push(*start);
            }
        }
        for start in unused {
            self.pieces.remove(&start);
        }
        self.join(first, last);
    }

    /// Makes one piece of neighbours that are alike, in a range and at its ends.
    fn join(&mut self, first: Place, last: Place) {
        let before = self.pieces.range(..first).next_back().map(|(at, _)| *at);
        let behind = last.1.saturating_add(1);
        let starts = self.pieces.range(first..=(last.0, behind));
        let starts: Vec<Place> = before
            .into_iter()
            .chain(starts.map(|(at, _)| *at))
            .collect();
        let mut kept: Option<Place> = None;
        for start in starts {
            let Some(piece) = self.pieces.get(&start).cloned() else {
                continue;
            };
            let left = kept.and_then(|at| Some((at, self.pieces.get_mut(&at)?)));
            match left {
                Some((at, left))
                    if at.0 == start.0
                        && left.last.checked_add(1) == Some(start.1)
                        && left.count == piece.count
                        && left.holder == piece.holder =>
                {
                    left.last = piece.last;
                    self.pieces.remove(&start);
                }
                _ => kept = Some(start),
            }
        }
    }

    /// Selectors of Child SAs with these inbound SPIs.
    pub(crate) fn networks_of(&self, spis: impl Iterator<Item = u32>) -> Vec<TrafficSelector> {
        let ranges = spis.filter_map(|spi| self.held.get(&spi));
        let ranges = ranges.flat_map(|(_, ranges)| ranges);
        ranges.filter_map(|range| selector(*range)).collect()
    }
}

fn ends(selector: &TrafficSelector) -> (Place, Place) {
    let (first, last) = selector.addresses();
    (place(first), place(last))
}

fn selector(((wide, first), (_, last)): (Place, Place)) -> Option<TrafficSelector> {
    let address = |bits: u128| -> Option<IpAddr> {
        match wide {
            true => Some(IpAddr::V6(bits.into())),
            false => Some(IpAddr::V4(u32::try_from(bits).ok()?.into())),
        }
    };
    TrafficSelector::range(address(first)?, address(last)?)
}

#[cfg(test)]
mod tests;
