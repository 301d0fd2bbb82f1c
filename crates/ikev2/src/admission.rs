//! What a first message must show before it costs us a key exchange (RFC 7296 §2.6).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::sa::{Core, IkeId};
use crate::time::Timestamp;

/// IPv4 peers share a /24, IPv6 peers a /56: what one subscriber or one attacker typically has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network(u128);

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u128::from(address.to_bits() >> 8)),
            // The top bit is set in no IPv4 entry.
            IpAddr::V6(address) => Self((address.to_bits() >> 72) | (1 << 127)),
        }
    }
}

/// Networks that are remembered because a peer of theirs authenticated.
const KNOWN: usize = 4096;

/// Handshakes in which the peer has not proved who it is, by network, and who makes room for whom.
///
/// When there are as many as there may be, a newcomer takes the place of the oldest one of the network that
/// has most of them, unless its own has as many. So whoever fills the table from a few networks, or a
/// thousand, takes places from itself, and a peer from a network with few handshakes always finds one.
/// Networks from which somebody authenticated before are the last to give, and have a share of the places
/// that no others take.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    /// The oldest first.
    by_network: BTreeMap<Network, VecDeque<IkeId>>,
    /// Whether one is known, and how many it has.
    order: BTreeSet<(bool, usize, Network)>,
    total: usize,
    known: BTreeMap<Network, Timestamp>,
    known_since: BTreeSet<(Timestamp, Network)>,
}

impl HalfOpen {
    pub(crate) const fn len(&self) -> usize {
        self.total
    }

    pub(crate) fn of(&self, network: Network) -> usize {
        self.by_network.get(&network).map_or(0, VecDeque::len)
    }

    /// Whether somebody from there has authenticated before.
    pub(crate) fn is_known(&self, network: Network) -> bool {
        self.known.contains_key(&network)
    }

    fn change(&mut self, network: Network, change: impl FnOnce(&mut Self)) {
        let key = |all: &Self| (all.is_known(network), all.of(network), network);
        self.order.remove(&key(self));
        change(self);
        let (known, count, _) = key(self);
        if count > 0 {
            self.order.insert((known, count, network));
        }
    }

    pub(crate) fn add(&mut self, network: Network, id: IkeId) {
        self.change(network, |all| {
            all.by_network.entry(network).or_default().push_back(id);
            all.total = all.total.saturating_add(1);
        });
    }

    pub(crate) fn remove(&mut self, network: Network, id: IkeId) {
        self.change(network, |all| {
            let Some(ids) = all.by_network.get_mut(&network) else {
                return;
            };
            let before = ids.len();
            ids.retain(|other| *other != id);
            let removed = before.saturating_sub(ids.len());
            if ids.is_empty() {
                all.by_network.remove(&network);
            }
            all.total = all.total.saturating_sub(removed);
        });
    }

    /// Somebody from there has authenticated. Of too many networks the one that did longest ago is
    /// forgotten.
    pub(crate) fn authenticated(&mut self, network: Network, now: Timestamp) {
        self.change(network, |all| {
            if let Some(before) = all.known.insert(network, now) {
                all.known_since.remove(&(before, network));
            }
            all.known_since.insert((now, network));
        });
        if self.known.len() > KNOWN
            && let Some((_, oldest)) = self.known_since.first().copied()
        {
            self.change(oldest, |all| {
                all.known_since.pop_first();
                all.known.remove(&oldest);
            });
        }
    }

    /// The oldest of the network that has most, but for `network`; of the unknown first.
    pub(crate) fn oldest_beside(&self, network: Network) -> Option<IkeId> {
        let unknown = self.order.range(..(true, 0, Network(0)));
        let known = self.order.range((true, 0, Network(0))..);
        let mut all = unknown.rev().chain(known.rev());
        let (_, _, found) = all.find(|(_, _, other)| *other != network)?;
        self.by_network.get(found)?.front().copied()
    }

    /// Who gives its place to a newcomer from `network`; none if nobody has to.
    pub(crate) fn displaced_by(&self, network: Network) -> Option<IkeId> {
        let (known, own) = (self.is_known(network), self.of(network));
        // The unknown come first in the order.
        let largest_unknown = self.order.range(..(true, 0, Network(0))).next_back();
        let largest_known = self.order.iter().next_back().filter(|(known, ..)| *known);
        let gives = |(_, count, _): &&(bool, usize, Network)| *count > own.saturating_add(1);
        let found = match known {
            true => largest_unknown.or(largest_known.filter(gives)),
            false => largest_unknown.filter(gives),
        };
        let (_, _, network) = found?;
        self.by_network.get(network)?.front().copied()
    }
}

/// Secrets for cookies: the current one and the one before.
pub(crate) struct Cookies {
    secrets: [Zeroizing<[u8; 32]>; 2],
    version: u8,
    changes_at: Timestamp,
}

impl Cookies {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            secrets: [Zeroizing::new([0; 32]), Zeroizing::new([0; 32])],
            version: 0,
            changes_at: now,
        }
    }

    /// Draws both secrets, so that neither is the initial zero.
    pub(crate) fn fill(&mut self, core: &mut Core) {
        self.rotate(core);
        self.changes_at = core.now;
        self.rotate(core);
    }

    /// The cookie for a first message.
    pub(crate) fn current(&self, nonce: &[u8], remote: SocketAddr, spi_i: u64) -> Option<Vec<u8>> {
        self.make(self.version, nonce, remote, spi_i)
    }

    /// Makes a new secret when the old one has served its time; the previous one stays valid.
    pub(crate) fn rotate(&mut self, core: &mut Core) {
        if core.now < self.changes_at {
            return;
        }
        let fresh = Zeroizing::new(core.bytes());
        self.secrets.swap(0, 1);
        if let Some(current) = self.secrets.first_mut() {
            *current = fresh;
        }
        self.version = self.version.wrapping_add(1);
        self.changes_at = core.now.after(core.limits.cookie_life);
    }

    /// Version, then HMAC over nonce, address and SPI (RFC 7296 §2.6).
    fn make(&self, version: u8, nonce: &[u8], remote: SocketAddr, spi_i: u64) -> Option<Vec<u8>> {
        let age = usize::from(self.version.wrapping_sub(version));
        let secret = self.secrets.get(age)?;
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &**secret));
        context.update(&[version]);
        context.update(nonce);
        context.update(remote.to_string().as_bytes());
        context.update(&spi_i.to_be_bytes());
        Some([&[version], context.sign().as_ref()].concat())
    }

    pub(crate) fn is_valid(
        &self,
        cookie: &[u8],
        nonce: &[u8],
        remote: SocketAddr,
        spi_i: u64,
    ) -> bool {
        let expected = cookie
            .first()
            .and_then(|version| self.make(*version, nonce, remote, spi_i));
        expected.is_some_and(|expected| bool::from(expected.ct_eq(cookie)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u8) -> Network {
        Network::of(IpAddr::from([10, 0, number, 1]))
    }

    fn id_of(number: u8, id: u64) -> IkeId {
        IkeId(u64::from(number).saturating_mul(1000).saturating_add(id))
    }

    fn filled(counts: &[(u8, u64)]) -> HalfOpen {
        let mut all = HalfOpen::default();
        for (number, count) in counts {
            for id in 0..*count {
                all.add(network(*number), id_of(*number, id));
            }
        }
        all
    }

    #[test]
    fn the_oldest_of_the_network_with_most_makes_room() {
        let mut all = filled(&[(1, 5), (2, 9), (3, 7)]);
        assert_eq!((all.len(), all.of(network(2))), (21, 9));
        assert_eq!(all.displaced_by(network(4)), Some(IkeId(2000)));
        all.remove(network(2), IkeId(2000));
        all.remove(network(2), IkeId(2000));
        assert_eq!((all.len(), all.of(network(2))), (20, 8));
        assert_eq!(all.displaced_by(network(4)), Some(IkeId(2001)));
        // Who has most takes nothing from others.
        assert_eq!(all.displaced_by(network(2)), None);
        assert_eq!(all.displaced_by(network(3)), None, "as many after it");
        assert_eq!(all.displaced_by(network(1)), Some(IkeId(2001)));
    }

    #[test]
    fn the_known_give_last() {
        let mut all = filled(&[(1, 50), (2, 3), (3, 60)]);
        all.authenticated(network(1), Timestamp::default());
        assert_eq!(all.displaced_by(network(2)), Some(IkeId(3000)));
        // Somebody known takes from the unknown, whatever it has itself.
        let mut all = filled(&[(1, 50), (2, 3)]);
        all.authenticated(network(1), Timestamp::default());
        assert_eq!(all.displaced_by(network(1)), Some(IkeId(2000)));
        // Strangers take nothing from the known.
        assert_eq!(all.displaced_by(network(4)), Some(IkeId(2000)));
        for id in 0..3 {
            all.remove(network(2), id_of(2, id));
        }
        assert_eq!(all.displaced_by(network(4)), None);
        all.authenticated(network(5), Timestamp::default());
        assert_eq!(all.displaced_by(network(5)), Some(IkeId(1000)));
    }

    #[test]
    fn so_many_networks_are_remembered_and_the_oldest_goes() {
        let mut all = HalfOpen::default();
        for number in 0..=KNOWN as u64 {
            let now = Timestamp::new(std::time::Duration::from_secs(number));
            all.authenticated(Network(u128::from(number)), now);
        }
        assert_eq!((all.known.len(), all.known_since.len()), (KNOWN, KNOWN));
        assert!(!all.is_known(Network(0)) && all.is_known(Network(1)));
    }
}
