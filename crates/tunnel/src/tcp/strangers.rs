//! Connections whose peers have not proved who they are: how many there may be, and which one makes room.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Connections of strangers at once (our choice): each costs a descriptor, and at most one incomplete message.
pub(super) const STRANGERS: usize = 256;
/// The same of one network (/24 or /56): as many devices behind one translator that come at the same moment.
pub(super) const OF_NETWORK: usize = 32;
/// Places of a network or an address that are not held against it (our choice): two devices behind one translator, or one that comes back
/// before its former connection has ended.
const FEW: usize = 4;
/// Silent ones keep their places until they hold one in this many (our choice).
const SILENT_SHARE: usize = 4;
/// Time in which the stream's prefix and a first message must be there (our choice).
pub(super) const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// Time in which the peer must have proved who it is: a handshake of IKE ends after 30 seconds.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(40);

/// A network, as budgets of strangers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Network(u128);

impl Network {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits() >> 8),
            IpAddr::V6(address) => address.to_bits() >> 72 << 72,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Stranger {
    network: Network,
    address: IpAddr,
    opened: Instant,
    /// Whether a whole message of IKE has come.
    speaks: bool,
}

/// The connections of strangers.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    all: BTreeMap<u64, Stranger>,
    counts: BTreeMap<Network, usize>,
}

impl Strangers {
    /// Takes another one; gives the one that makes room for it.
    pub(super) fn add(&mut self, id: u64, from: IpAddr, now: Instant) -> Option<u64> {
        let network = Network::of(from);
        let own = self.counts.get(&network).copied().unwrap_or(0);
        let displaced = match (own >= OF_NETWORK, self.all.len() >= STRANGERS) {
            (true, _) => self.first_of(&BTreeSet::from([network])),
            // The networks with most give, so that whoever holds many places holds up itself. Where many have as many, or none
            // has more than a few, what was said and the age decide between them, never the address.
            (false, true) => {
                let most = self.counts.values().max().copied().unwrap_or(0);
                let given = if most > FEW { most } else { 0 };
                let have = self.counts.iter().filter(|(_, count)| **count >= given);
                self.first_of(&have.map(|(network, _)| *network).collect())
            }
            (false, false) => None,
        };
        if let Some(displaced) = displaced {
            self.remove(displaced);
        }
        let stranger = Stranger {
            network,
            address: from,
            opened: now,
            speaks: false,
        };
        self.all.insert(id, stranger);
        *self.counts.entry(network).or_default() += 1;
        displaced
    }

    /// The one of these networks that goes first: who has said nothing, while those are many, then the address with more than
    /// a few, then the oldest.
    fn first_of(&self, networks: &BTreeSet<Network>) -> Option<u64> {
        let of = || {
            let all = self.all.iter();
            all.filter(|(_, one)| networks.contains(&one.network))
        };
        let mut addresses: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (_, one) in of() {
            *addresses.entry(one.address).or_default() += 1;
        }
        let many = |one: &Stranger| {
            let count = addresses.get(&one.address).copied();
            Reverse(count.filter(|count| *count > FEW))
        };
        // Everybody is silent at first: where nearly all others speak, whoever was just accepted is spared, or the next one
        // would displace it before its first message can be read.
        let silent = of().filter(|(_, one)| !one.speaks).count();
        let silent_first = silent.saturating_mul(SILENT_SHARE) >= of().count();
        let stays = |one: &Stranger| one.speaks == silent_first;
        let first = of().min_by_key(|(id, one)| (stays(one), many(one), one.opened, **id));
        first.map(|(id, _)| *id)
    }

    /// Notes that a whole message of IKE came.
    pub(super) fn speaks(&mut self, id: u64) {
        if let Some(stranger) = self.all.get_mut(&id) {
            stranger.speaks = true;
        }
    }

    /// Takes one away: it has ended, or its peer is known.
    pub(super) fn remove(&mut self, id: u64) {
        let Some(stranger) = self.all.remove(&id) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&stranger.network) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&stranger.network);
            }
        }
    }

    /// Those whose time is over.
    pub(super) fn overdue(&self, now: Instant) -> Vec<u64> {
        let over = |one: &Stranger| {
            let time = if one.speaks { HANDSHAKE } else { FIRST_MESSAGE };
            now.saturating_duration_since(one.opened) >= time
        };
        let overdue = self.all.iter().filter(|(_, one)| over(one));
        overdue.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn network_with_many_connections_displaces_its_own() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        assert_eq!(strangers.add(9999, address("198.51.100.1"), now), None);
        for id in 0..1000 {
            let displaced = strangers.add(id, address("192.0.2.7"), now);
            let expected = id.checked_sub(OF_NETWORK as u64);
            assert_eq!(displaced, expected, "the oldest of its own network");
        }
        assert_eq!(strangers.all.len(), OF_NETWORK + 1);
        assert!(strangers.all.contains_key(&9999));
    }

    #[test]
    fn silent_ones_go_before_those_that_speak() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        strangers.add(0, address("192.0.2.1"), now);
        strangers.speaks(0);
        for id in 1..=1000 {
            strangers.add(id, address("192.0.2.2"), now);
        }
        assert!(strangers.all.contains_key(&0));
    }

    #[test]
    fn newcomer_is_spared_where_all_others_speak() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        let from = |network: u64| IpAddr::from([10, 1, u8::try_from(network % 256).unwrap(), 1]);
        for id in 0..STRANGERS as u64 {
            strangers.add(id, from(id), now);
            strangers.speaks(id);
        }
        strangers.add(9999, address("203.0.113.1"), now + Duration::from_millis(1));
        for id in 1000..1050 {
            strangers.add(id, from(id), now + Duration::from_millis(id));
        }
        assert!(strangers.all.contains_key(&9999));
    }

    #[test]
    fn second_connection_of_a_network_is_not_the_first_to_go() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        let from = |id: u64| {
            IpAddr::from([
                10,
                u8::try_from(id / 256).unwrap(),
                u8::try_from(id % 256).unwrap(),
                1,
            ])
        };
        for id in 0..STRANGERS as u64 {
            strangers.add(id, from(id), now);
        }
        // The second one is silent yet when others follow.
        for id in [8888, 9999] {
            strangers.add(id, address("203.0.113.1"), now + Duration::from_millis(1));
            for other in 0..9 {
                strangers.add(
                    2000 + id + other,
                    from(other + id),
                    now + Duration::from_millis(1),
                );
            }
            strangers.speaks(id);
        }
        for id in 1000..1500 {
            strangers.add(id, from(id), now + Duration::from_millis(id));
        }
        assert!(strangers.all.contains_key(&8888) && strangers.all.contains_key(&9999));
    }

    #[test]
    fn address_with_many_that_speak_displaces_its_own() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        strangers.add(0, address("192.0.2.1"), now);
        strangers.speaks(0);
        for id in 1..=1000 {
            strangers.add(id, address("192.0.2.2"), now);
            strangers.speaks(id);
        }
        assert!(strangers.all.contains_key(&0));
        assert_eq!(strangers.all.len(), OF_NETWORK);
    }

    #[test]
    fn all_places_taken_the_network_with_most_gives() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        let mut id = 0;
        for network in 0..9 {
            for _ in 0..OF_NETWORK {
                let from = IpAddr::from([10, network, 0, 1]);
                strangers.add(id, from, now);
                id += 1;
            }
        }
        assert_eq!(strangers.all.len(), STRANGERS);
        let displaced = strangers.add(id, address("2001:db8::1"), now);
        assert!(displaced.is_some_and(|gone| gone < id));
        assert_eq!(strangers.all.len(), STRANGERS);
        assert_eq!(strangers.counts.values().sum::<usize>(), STRANGERS);
    }

    #[test]
    fn who_speaks_stays_beside_silent_ones_of_as_many_networks_as_there_are_places() {
        for honest in ["10.0.0.1", "10.0.255.1", "203.0.113.1", "2001:db8:ffff::1"] {
            let (mut strangers, now) = (Strangers::default(), Instant::now());
            let silent =
                |network: u64| IpAddr::from([10, 1, u8::try_from(network % 256).unwrap(), 1]);
            for id in 0..STRANGERS as u64 - 1 {
                assert_eq!(strangers.add(id, silent(id), now), None);
            }
            strangers.add(9999, address(honest), now);
            strangers.speaks(9999);
            for id in 1000..2000_u64 {
                let later = now + Duration::from_millis(id);
                // Those of before have gone: nothing else than one of theirs makes room.
                let displaced = strangers.add(id, silent(id), later);
                assert!(displaced.is_some_and(|gone| gone != 9999), "{honest}");
            }
        }
    }

    #[test]
    fn time_depends_on_what_was_said() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        strangers.add(1, address("192.0.2.1"), now);
        strangers.add(2, address("192.0.2.1"), now);
        strangers.speaks(2);
        let before = now + FIRST_MESSAGE - Duration::from_millis(1);
        assert!(strangers.overdue(before).is_empty());
        assert_eq!(strangers.overdue(now + FIRST_MESSAGE), [1]);
        assert_eq!(strangers.overdue(now + HANDSHAKE), [1, 2]);
        strangers.remove(2);
        assert_eq!(strangers.overdue(now + HANDSHAKE), [1]);
        strangers.remove(1);
        assert!(strangers.counts.is_empty());
    }
}
