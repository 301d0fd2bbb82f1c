//! Addresses at which no peer can be, and networks that no tunnel carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tunnel::config::Prefix;

use super::{Finding, Host, show, within};
use crate::config::DaemonConfig;

/// Blocks of special addresses (RFC 6890, IANA's registries) that are nobody's network, and why.
const SPECIAL: [(IpAddr, u8, &str); 9] = [
    (v4(127, 0, 0, 0), 8, "is for what a host says to itself"),
    (v6(0, 1), 128, "is for what a host says to itself"),
    (v4(224, 0, 0, 0), 4, "is for multicast, which has no peer"),
    (v6(0xff00, 0), 8, "is for multicast, which has no peer"),
    (v4(255, 255, 255, 255), 32, "is the broadcast address"),
    (v4(0, 0, 0, 0), 8, "is nobody's address"),
    (v6(0, 0), 128, "is nobody's address"),
    (
        v4(169, 254, 0, 0),
        16,
        "is on every link, and not behind a gateway",
    ),
    (
        v6(0xfe80, 0),
        10,
        "is on every link, and not behind a gateway",
    ),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(first: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last))
}

/// Says why no peer can be at an address outside.
#[must_use]
pub fn unfit_peer(address: IpAddr) -> Option<&'static str> {
    if let IpAddr::V6(v6) = address
        && v6.to_ipv4_mapped().is_some()
    {
        return Some("is an IPv4 address: write it as one");
    }
    unfit_network(&Prefix::host(address))
}

/// Says why no tunnel carries a network. One that is wider than what is special, as a default route is, may be carried.
#[must_use]
pub fn unfit_network(network: &Prefix) -> Option<&'static str> {
    let is_in = |(address, bits, _): &&(IpAddr, u8, &str)| {
        let (address, bits) = (*address, *bits);
        network.address.is_ipv4() == address.is_ipv4() && within(network, &Prefix { address, bits })
    };
    SPECIAL.iter().find(is_in).map(|(_, _, what)| *what)
}

/// Finds such addresses in a configuration, and peers that are this host itself.
pub(super) fn findings(config: &DaemonConfig, host: &Host, found: &mut Vec<Finding>) {
    for connection in &config.connection {
        let place = format!("connection {:?}", connection.name);
        let remote = connection.remote;
        let unfit = remote.and_then(|remote| Some((remote, unfit_peer(remote)?)));
        if let Some((remote, what)) = unfit {
            found.push(Finding::error(
                format!("{place}: remote"),
                format!("{remote} {what}"),
                "name the address that the peer has outside",
            ));
        } else if let Some(remote) = remote.filter(|remote| host.addresses.contains(remote)) {
            found.push(Finding::error(
                format!("{place}: remote"),
                format!("{remote} is this host itself"),
                "name the address that the peer has outside",
            ));
        }
        for child in &connection.child {
            for (side, networks) in [("local", &child.local), ("remote", &child.remote)] {
                for network in networks {
                    if let Some(what) = unfit_network(network) {
                        found.push(Finding::error(
                            format!("{place}: child {:?}: {side}", child.name),
                            format!("{} {what}", show(network)),
                            "name the networks behind the gateways",
                        ));
                    }
                }
            }
        }
    }
}
