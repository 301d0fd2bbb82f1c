use proptest::prelude::*;

use super::*;

fn source(key: &str, networks: &[&str]) -> Source {
    Source {
        what: key.to_owned(),
        key: key.to_owned(),
        networks: networks.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

#[test]
fn sources_without_a_common_address_are_accepted() {
    let all = [
        source("a", &["10.1.0.0/16", "fd01::/64"]),
        source("b", &["10.2.0.0/16", "fd02::/64"]),
        // The same peer, by another connection.
        source("a", &["10.1.0.0/16", "10.1.7.0/24"]),
        source("c", &["10.0.255.255/32", "10.3.0.0/32", "::/8"]),
    ];
    assert_eq!(overlap(&all), None);
}

#[test]
fn overlap_behind_a_shorter_network_is_found() {
    let all = [
        source("a", &["10.0.0.0/8"]),
        source("a", &["10.1.0.0/24"]),
        source("b", &["10.200.0.0/16"]),
    ];
    let text = overlap(&all).unwrap().to_string();
    assert!(
        text.contains("a may send from 10.0.0.0/8 and b from 10.200.0.0/16"),
        "{text}"
    );
}

proptest! {
    #[test]
    fn overlaps_equal_those_of_all_pairs(
        networks in proptest::collection::vec((0u8..4, 0u8..64, 24u8..=32, any::<bool>()), 0..12)
    ) {
        let make = |(key, low, bits, wide): &(u8, u8, u8, bool)| {
            let text = match wide {
                true => format!("fd00::{low:x}/{}", bits + 96),
                false => format!("10.0.0.{low}/{bits}"),
            };
            source(&key.to_string(), &[&text])
        };
        let all: Vec<Source> = networks.iter().map(make).collect();
        let meet = |one: &Source, two: &Source| {
            let (one, two) = (one.networks[0].range(), two.networks[0].range());
            one.contains(two.first()) || two.contains(one.first())
        };
        let pairs = all.iter().flat_map(|one| all.iter().map(move |two| (one, two)));
        let expected = pairs.filter(|(one, two)| one.key != two.key).any(|(one, two)| meet(one, two));
        prop_assert_eq!(overlap(&all).is_some(), expected);
    }
}
