//! Handshakes of peers that have not proved who they are, and who makes room for whom.
//!
//! When there are as many as there may be, a newcomer takes the place of the oldest handshake of the branch of
//! the address space that has most of them, at the first level at which its own has fewer:
//!
//! ```text
//! all ──► /8 ──► /16 ──► /24      IPv6: all ──► /32 ──► /48 ──► /56
//! ```
//!
//! So whoever fills the table from one network, a thousand of one provider, or a provider's all takes places from
//! itself. Where attackers are everywhere, age decides: a handshake that has had its time makes room. Networks
//! from which somebody authenticated before are the last to give, and have a share of the places that no
//! others take.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::time::Timestamp;
use crate::types::IkeId;

/// IPv4 peers share a /24, IPv6 peers a /56: what one subscriber or one attacker typically has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network(u128);

/// Levels of the address space: everything, and prefixes down to a network.
const LEVELS: usize = 4;

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u128::from(address.to_bits() >> 8)),
            // The top bit is set in no IPv4 entry.
            IpAddr::V6(address) => Self((address.to_bits() >> 72) | (1 << 127)),
        }
    }

    /// The prefixes that hold it, from everything to itself.
    fn branches(self) -> [Self; LEVELS] {
        let wide = self.0 >> 127 == 1;
        let drop = |bits: u32| Self(self.0 >> bits << bits);
        match wide {
            true => [Self(0), drop(24), drop(8), self],
            false => [Self(0), drop(16), drop(8), self],
        }
    }
}

/// Networks that are remembered because a peer of theirs authenticated.
const KNOWN: usize = 4096;
/// Age of a handshake that alone is no reason to make room: four round trips of a slow bearer.
const TIME: Duration = Duration::from_secs(3);

/// Handshakes of strangers by branch.
#[derive(Debug, Default)]
struct Tree {
    /// By level and branch.
    counts: BTreeMap<(usize, Network), usize>,
    /// Level, the branch above, count, branch: the last of a range is the heaviest.
    order: BTreeSet<(usize, Network, usize, Network)>,
}

impl Tree {
    fn count(&self, level: usize, branch: Network) -> usize {
        self.counts.get(&(level, branch)).copied().unwrap_or(0)
    }

    /// Changes the counts of a network and all branches that hold it.
    fn change(&mut self, network: Network, change: impl Fn(usize) -> usize) {
        let mut above = Network(0);
        for (level, branch) in network.branches().into_iter().enumerate() {
            let before = self.count(level, branch);
            let after = change(before);
            self.order.remove(&(level, above, before, branch));
            if after > 0 {
                self.order.insert((level, above, after, branch));
                self.counts.insert((level, branch), after);
            } else {
                self.counts.remove(&(level, branch));
            }
            above = branch;
        }
    }

    /// The branch with most handshakes below another, but for one.
    fn heaviest(
        &self,
        level: usize,
        above: Network,
        but: Option<Network>,
    ) -> Option<(usize, Network)> {
        let first = (level, above, 0, Network(0));
        let last = (level, above, usize::MAX, Network(u128::MAX));
        let mut all = self.order.range(first..=last).rev();
        let found = all.find(|(.., branch)| Some(*branch) != but);
        found.map(|(_, _, count, branch)| (*count, *branch))
    }

    /// The network with most below a branch.
    fn leaf(&self, level: usize, branch: Network) -> Network {
        let below = (level.saturating_add(1)..LEVELS).try_fold(branch, |above, level| {
            self.heaviest(level, above, None).map(|(_, found)| found)
        });
        below.unwrap_or(branch)
    }

    /// The network with most, but for `own`.
    fn largest_beside(&self, own: Network) -> Option<Network> {
        let (_, root) = self.heaviest(0, Network(0), None)?;
        let largest = self.leaf(0, root);
        if largest != own {
            return Some(largest);
        }
        let branches = own.branches();
        let mut levels = (1..LEVELS).rev().zip(branches.windows(2).rev());
        levels.find_map(|(level, pair)| {
            let [above, own] = *pair else { return None };
            let (_, found) = self.heaviest(level, above, Some(own))?;
            Some(self.leaf(level, found))
        })
    }

    /// The network that has too many beside `own`.
    fn heavier_than(&self, own: Network) -> Option<Network> {
        let mut above = Network(0);
        for (level, own) in own.branches().into_iter().enumerate() {
            if let Some((count, found)) = self.heaviest(level, above, Some(own))
                && count > self.count(level, own).saturating_add(1)
            {
                return Some(self.leaf(level, found));
            }
            above = own;
        }
        None
    }
}

/// Handshakes in which the peer has not proved who it is.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    /// The oldest first.
    by_network: BTreeMap<Network, VecDeque<IkeId>>,
    /// Of networks that nobody knows.
    strangers: Tree,
    /// The same by age.
    ages: BTreeSet<(Timestamp, IkeId)>,
    began: BTreeMap<IkeId, Timestamp>,
    /// Of known networks: how many each has.
    friends: BTreeSet<(usize, Network)>,
    known: BTreeMap<Network, Timestamp>,
    known_since: BTreeSet<(Timestamp, Network)>,
}

impl HalfOpen {
    pub(crate) fn len(&self) -> usize {
        self.began.len()
    }

    pub(crate) fn of(&self, network: Network) -> usize {
        self.by_network.get(&network).map_or(0, VecDeque::len)
    }

    /// Whether somebody from there has authenticated before.
    pub(crate) fn is_known(&self, network: Network) -> bool {
        self.known.contains_key(&network)
    }

    /// Takes a network out of what the choice is made by, lets it change, and puts it in again.
    fn change(&mut self, network: Network, change: impl FnOnce(&mut Self)) {
        self.count(network, false);
        change(self);
        self.count(network, true);
    }

    fn count(&mut self, network: Network, present: bool) {
        let ids = self.by_network.get(&network);
        let count = ids.map_or(0, VecDeque::len);
        if self.known.contains_key(&network) {
            match present && count > 0 {
                true => self.friends.insert((count, network)),
                false => self.friends.remove(&(count, network)),
            };
            return;
        }
        for id in ids.into_iter().flatten() {
            let Some(began) = self.began.get(id) else {
                continue;
            };
            match present {
                true => self.ages.insert((*began, *id)),
                false => self.ages.remove(&(*began, *id)),
            };
        }
        self.strangers.change(network, |before| match present {
            true => before.saturating_add(count),
            false => before.saturating_sub(count),
        });
    }

    pub(crate) fn add(&mut self, network: Network, id: IkeId, now: Timestamp) {
        self.change(network, |all| {
            all.by_network.entry(network).or_default().push_back(id);
            all.began.insert(id, now);
        });
    }

    pub(crate) fn remove(&mut self, network: Network, id: IkeId) {
        self.change(network, |all| {
            let Some(ids) = all.by_network.get_mut(&network) else {
                return;
            };
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                all.by_network.remove(&network);
            }
        });
        // Only now: what it was counted by is its beginning.
        if let Some(began) = self.began.remove(&id) {
            self.ages.remove(&(began, id));
        }
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

    fn oldest_of(&self, network: Network) -> Option<IkeId> {
        self.by_network.get(&network)?.front().copied()
    }

    /// The network of strangers that has most, but for `network`; else the known one.
    pub(crate) fn oldest_beside(&self, network: Network) -> Option<IkeId> {
        let known = || {
            let mut all = self.friends.iter().rev().map(|(_, known)| *known);
            all.find(|known| *known != network)
        };
        self.oldest_of(self.strangers.largest_beside(network).or_else(known)?)
    }

    /// Chooses who gives its place to a newcomer from `network`; none if nobody has to.
    pub(crate) fn displaced_by(&self, network: Network, now: Timestamp) -> Option<IkeId> {
        if !self.is_known(network) {
            return match self.strangers.heavier_than(network) {
                Some(found) => self.oldest_of(found),
                None => {
                    let (began, id) = self.ages.first()?;
                    (now.since(*began) >= TIME).then_some(*id)
                }
            };
        }
        if let Some((_, branch)) = self.strangers.heaviest(0, Network(0), None) {
            return self.oldest_of(self.strangers.leaf(0, branch));
        }
        let (count, largest) = self.friends.last()?;
        let gives = *count > self.of(network).saturating_add(1);
        gives.then(|| self.oldest_of(*largest)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::new(Duration::ZERO);

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
                all.add(network(*number), id_of(*number, id), START);
            }
        }
        all
    }

    #[test]
    fn the_oldest_of_the_network_with_most_makes_room() {
        let mut all = filled(&[(1, 5), (2, 9), (3, 7)]);
        assert_eq!((all.len(), all.of(network(2))), (21, 9));
        assert_eq!(all.displaced_by(network(4), START), Some(IkeId(2000)));
        all.remove(network(2), IkeId(2000));
        all.remove(network(2), IkeId(2000));
        assert_eq!((all.len(), all.of(network(2))), (20, 8));
        assert_eq!(all.displaced_by(network(4), START), Some(IkeId(2001)));
        // Who has most takes nothing from others.
        assert_eq!(all.displaced_by(network(2), START), None);
        assert_eq!(
            all.displaced_by(network(3), START),
            None,
            "as many after it"
        );
        assert_eq!(all.displaced_by(network(1), START), Some(IkeId(2001)));
    }

    #[test]
    fn many_networks_of_one_provider_are_one_branch() {
        // Each network has one, and all are of 10.0.0.0/16.
        let counts: Vec<_> = (0..200).map(|number| (number, 1)).collect();
        let all = filled(&counts);
        let elsewhere = Network::of(IpAddr::from([10, 1, 0, 1]));
        assert!(all.displaced_by(elsewhere, START).is_some());
        assert!(
            all.displaced_by(Network::of(IpAddr::from([11, 0, 0, 1])), START)
                .is_some()
        );
        assert!(all.displaced_by(network(201), START).is_none());
        // Within the branch the levels below decide.
        let all = filled(&[(1, 200), (2, 1)]);
        assert_eq!(all.displaced_by(network(3), START), Some(IkeId(1000)));
        // The other family is a branch of its own.
        let wide = Network::of("2001:db8::1".parse().unwrap());
        assert_eq!(all.displaced_by(wide, START), Some(IkeId(1000)));
    }

    #[test]
    fn where_all_have_as_many_age_decides() {
        let mut all = HalfOpen::default();
        for number in 0..100 {
            let from = Network::of(IpAddr::from([number, 0, 0, 1]));
            all.add(
                from,
                id_of(number, 0),
                Timestamp::new(Duration::from_millis(number.into())),
            );
        }
        let newcomer = Network::of(IpAddr::from([100, 0, 0, 1]));
        assert_eq!(
            all.displaced_by(newcomer, START.after(Duration::from_secs(2))),
            None
        );
        let later = START.after(Duration::from_secs(3));
        assert_eq!(all.displaced_by(newcomer, later), Some(IkeId(0)));
        // Nobody takes the place of somebody known in this way.
        all.authenticated(Network::of(IpAddr::from([0, 0, 0, 1])), later);
        assert_eq!(
            all.displaced_by(newcomer, later.after(TIME)),
            Some(IkeId(1000))
        );
    }

    #[test]
    fn the_known_give_last() {
        let mut all = filled(&[(1, 50), (2, 3), (3, 60)]);
        all.authenticated(network(1), START);
        assert_eq!(all.displaced_by(network(2), START), Some(IkeId(3000)));
        // Somebody known takes from the unknown, whatever it has itself.
        let mut all = filled(&[(1, 50), (2, 3)]);
        all.authenticated(network(1), START);
        assert_eq!(all.displaced_by(network(1), START), Some(IkeId(2000)));
        // Strangers take nothing from the known.
        assert_eq!(all.displaced_by(network(4), START), Some(IkeId(2000)));
        for id in 0..3 {
            all.remove(network(2), id_of(2, id));
        }
        assert_eq!(all.displaced_by(network(4), START), None);
        all.authenticated(network(5), START);
        assert_eq!(all.displaced_by(network(5), START), Some(IkeId(1000)));
    }

    #[test]
    fn so_many_networks_are_remembered_and_the_oldest_goes() {
        let mut all = HalfOpen::default();
        for number in 0..=KNOWN as u64 {
            let now = Timestamp::new(Duration::from_secs(number));
            all.authenticated(Network(u128::from(number)), now);
        }
        assert_eq!((all.known.len(), all.known_since.len()), (KNOWN, KNOWN));
        assert!(!all.is_known(Network(0)) && all.is_known(Network(1)));
    }

    #[test]
    fn counts_are_right_after_any_changes() {
        let mut all = HalfOpen::default();
        let mut random = 1_u64;
        let mut next = |below: u64| -> u8 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            u8::try_from((random >> 33) % below).unwrap()
        };
        let mut present: BTreeMap<u64, Network> = BTreeMap::new();
        for step in 0..5000_u64 {
            let a = [next(4), next(3), next(3), 1];
            let from = Network::of(IpAddr::from(a));
            match next(5) {
                0 => all.authenticated(from, START.after(Duration::from_secs(step))),
                1 | 2 => {
                    all.add(from, IkeId(step), START);
                    present.insert(step, from);
                }
                _ => {
                    if let Some((id, from)) = present.pop_first() {
                        all.remove(from, IkeId(id));
                    }
                }
            }
            assert_eq!(all.len(), present.len());
            let unknown = present.values().filter(|network| !all.is_known(**network));
            assert_eq!(all.ages.len(), unknown.clone().count());
            for level in 0..LEVELS {
                let counts = all
                    .strangers
                    .counts
                    .range((level, Network(0))..(level + 1, Network(0)));
                assert_eq!(
                    counts.map(|(_, count)| count).sum::<usize>(),
                    unknown.clone().count()
                );
            }
        }
    }
}
