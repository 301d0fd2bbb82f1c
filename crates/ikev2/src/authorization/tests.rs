#![allow(
    clippy::arithmetic_side_effects,
    reason = "a panic is how a test fails"
)]

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn range(first: u8, last: u8) -> TrafficSelector {
    let address = |low| IpAddr::V4(Ipv4Addr::new(10, 0, 0, low));
    TrafficSelector::range(address(first), address(last)).unwrap()
}

fn net(text: &str) -> TrafficSelector {
    let (address, bits) = text.split_once('/').unwrap();
    TrafficSelector::network(address.parse().unwrap(), bits.parse().unwrap()).unwrap()
}

#[test]
fn ranges_consist_of_their_prefixes() {
    let count =
        |first: &str, last: &str| networks_in(first.parse().unwrap(), last.parse().unwrap());
    assert_eq!(count("0.0.0.0", "255.255.255.255"), 1);
    assert_eq!(count("10.0.0.7", "10.0.0.7"), 1);
    assert_eq!(count("10.0.0.0", "10.0.0.255"), 1);
    assert_eq!(count("10.0.0.1", "10.0.0.255"), 8);
    assert_eq!(count("0.0.0.1", "255.255.255.254"), 62);
    assert_eq!(count("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 1);
    assert_eq!(count("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"), 254);
}

#[test]
fn an_authorization_without_networks_permits_nothing() {
    let nothing = Authorization::nothing(Holder::new(b"camera-17"));
    assert!(nothing.of_peer(&[net("0.0.0.0/0"), net("::/0")]).is_empty());
    assert!(nothing.of_ours(&[net("0.0.0.0/0"), net("::/0")]).is_empty());
    assert!(!nothing.permits(&[net("10.2.0.0/16")], &[net("10.9.0.1/32")]));
    // No traffic at all is not permitted either: there is no Child SA without.
    assert!(!nothing.permits(&[], &[]));
}

#[test]
fn networks_are_counted_once_and_bounded() {
    let may = Authorization::nothing(Holder::new(b"a")).with_limits(4, 3);
    let all = [
        net("10.1.0.0/24"),
        net("10.1.0.0/24"),
        net("10.1.1.0/24"),
        net("10.1.2.0/24"),
    ];
    assert!(may.permits_networks(all.iter()));
    let more = [net("10.1.3.0/24")];
    assert!(!may.permits_networks(all.iter().chain(&more)));
}

/// Addresses as a table, the simple model.
#[derive(Default)]
struct Table {
    held: BTreeMap<u32, (Holder, Vec<(u8, u8)>)>,
}

impl Table {
    fn holder_of(&self, address: u8) -> Option<&Holder> {
        let inside = |(first, last): &(u8, u8)| (*first..=*last).contains(&address);
        let mut all = self.held.values();
        all.find(|(_, ranges)| ranges.iter().any(inside))
            .map(|(holder, _)| holder)
    }
}

proptest! {
    #[test]
    fn claims_agree_with_a_table_of_all_addresses(
        steps in proptest::collection::vec(
            (0u32..12, 0u8..3, proptest::collection::vec((0u8..40, 0u8..40), 1..4), any::<bool>()),
            1..80,
        )
    ) {
        let (mut claims, mut table) = (Claims::default(), Table::default());
        for (spi, who, ranges, release) in steps {
            let holder = Holder::new(&[who]);
            if release {
                claims.release(spi);
                table.held.remove(&spi);
            } else {
                let ranges: Vec<(u8, u8)> =
                    ranges.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
                let selectors: Vec<_> = ranges.iter().map(|(a, b)| range(*a, *b)).collect();
                let mut addresses = ranges.iter().flat_map(|(a, b)| *a..=*b);
                let free = addresses.all(|at| table.holder_of(at).is_none_or(|of| *of == holder));
                prop_assert_eq!(claims.take(spi, &holder, &selectors).is_ok(), free);
                if free {
                    table.held.insert(spi, (holder, ranges));
                }
            }
            for at in 0..40 {
                for other in 0..3 {
                    let other = Holder::new(&[other]);
                    let expected = table.holder_of(at).is_some_and(|of| *of != other);
                    let found = claims.conflict(&other, &[range(at, at)]).is_some();
                    prop_assert_eq!(found, expected, "address {}", at);
                }
            }
            let selectors: usize = table.held.values().map(|(_, ranges)| ranges.len()).sum();
            prop_assert!(claims.pieces.len() <= 2 * selectors, "{:?}", claims.pieces);
        }
        for spi in 0..12 {
            claims.release(spi);
        }
        prop_assert!(claims.pieces.is_empty());
    }
}

#[test]
fn the_first_holder_keeps_an_address_and_may_have_it_twice() {
    let mut claims = Claims::default();
    let (one, two) = (Holder::new(b"one"), Holder::new(b"two"));
    let host = [net("10.9.0.7/32")];
    claims.take(1, &one, &host).unwrap();
    assert_eq!(
        claims.take(2, &two, &[net("10.9.0.0/24")]),
        Err(net("10.9.0.0/24"))
    );
    claims.take(3, &one, &[net("10.9.0.0/24")]).unwrap();
    claims.release(1);
    assert_eq!(claims.take(2, &two, &host), Err(host[0]));
    claims.release(3);
    claims.take(2, &two, &host).unwrap();
    // The other family is another place.
    claims.take(4, &one, &[net("::/0")]).unwrap();
}
