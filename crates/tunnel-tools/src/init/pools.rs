//! Networks of which peers get their addresses inside.

use std::net::{IpAddr, Ipv6Addr};

use tunnel::config::Prefix;

/// Bits of the site's part and of a network's in an address of IPv6 (RFC 4193 §3, RFC 4291 §2.5.4).
const SITE_BITS: u8 = 48;
const NETWORK_BITS: u8 = 64;

/// A free network for each family that the gateway's networks have.
pub(super) fn free(networks: &[Prefix]) -> Vec<Prefix> {
    let has = |v4: bool| networks.iter().any(|one| one.address.is_ipv4() == v4);
    let v4 = has(true).then(|| first_free(v4_candidates(), networks));
    let site = networks.iter().find_map(site);
    let v6 = site.map(|site| first_free(v6_candidates(site), networks));
    [v4, v6].into_iter().flatten().flatten().collect()
}

fn first_free(mut candidates: impl Iterator<Item = Prefix>, networks: &[Prefix]) -> Option<Prefix> {
    candidates.find(|pool| !networks.iter().any(|one| vpn::host::common(pool, one)))
}

fn v4_candidates() -> impl Iterator<Item = Prefix> {
    (0..=255_u8).map(|number| Prefix {
        address: IpAddr::from([10, 9, number, 0]),
        bits: 24,
    })
}

/// The /48 of a network of IPv6.
fn site(network: &Prefix) -> Option<u128> {
    match network.address {
        IpAddr::V6(address) => Some(address.to_bits() & (u128::MAX << (128 - SITE_BITS))),
        IpAddr::V4(_) => None,
    }
}

/// Networks of a site's own prefix, from the end, because people count from the beginning.
fn v6_candidates(site: u128) -> impl Iterator<Item = Prefix> {
    (0..=u16::MAX).rev().map(move |number| {
        let bits = site | (u128::from(number) << (128 - NETWORK_BITS));
        Prefix {
            address: IpAddr::V6(Ipv6Addr::from_bits(bits)),
            bits: NETWORK_BITS,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::text::prefix;
    use super::*;

    #[test]
    fn pools_have_nothing_in_common_with_the_networks() {
        let free = |taken: &[&str]| -> Vec<String> {
            let taken: Vec<Prefix> = taken.iter().map(|text| text.parse().unwrap()).collect();
            free(&taken).iter().map(prefix).collect()
        };
        assert_eq!(free(&["10.2.0.0/16"]), ["10.9.0.0/24"]);
        assert_eq!(free(&["10.9.0.0/23", "10.9.2.7/32"]), ["10.9.3.0/24"]);
        assert!(free(&["10.0.0.0/8"]).is_empty());
        assert_eq!(
            free(&["10.2.0.0/16", "fd02:1:2:3::1/64"]),
            ["10.9.0.0/24", "fd02:1:2:ffff::/64"]
        );
        assert_eq!(
            free(&["fd02:1:2:3::/64", "fd02:1:2:ff00::/56"]),
            ["fd02:1:2:feff::/64"]
        );
        assert!(free(&["fd02:1:2::/48"]).is_empty());
    }
}
