//! Routes into the tunnel, and which of them a peer may cause.
//!
//! [`Route`] is what the thread with `CAP_NET_ADMIN` takes. There are two ways to one: the operator's file,
//! and a peer's Child SA, whose networks lie in what the peer may have. The latter must leave the host
//! alone: a more specific route draws traffic away from where it goes now.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use tunnel::config::Prefix;

use super::config::IKE_PORT;

/// Shorter prefixes are no network of somebody but most of the Internet, in one piece or a few: the
/// largest networks that an organisation has of its own are 10.0.0.0/8 and fd00::/8.
const SHORTEST: u8 = 8;

/// A route that may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route(Prefix);

/// Why a peer's network is not routed to it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unroutable {
    /// The carrier of another tunnel would go into this one.
    #[error("the network {} has the outer address {outer} of another peer", text(.network))]
    Outer { network: Prefix, outer: IpAddr },
    /// Hosts beside us would be looked for behind the peer.
    #[error("the network {} is in {}, to which this host is connected", text(.network), text(.own))]
    Own { network: Prefix, own: Prefix },
    /// Everything would go to the peer.
    #[error(
        "the network {} is most of the address space: allow it by `default_route` of `peer`",
        text(.network)
    )]
    Default { network: Prefix },
    /// Nobody knows whether it may be.
    #[error("the networks to which this host is connected cannot be read: {0}")]
    Unknown(String),
}

fn text(network: &Prefix) -> String {
    format!("{}/{}", network.address, network.bits)
}

/// Addresses and networks that a route must leave alone.
pub(super) struct Surroundings<'a> {
    pub(super) outer: &'a OuterAddresses,
    /// Networks to which this host is connected, apart from the tunnel's interface.
    pub(super) connected: &'a [Prefix],
    /// Whether the connection's peers may have most of the address space.
    pub(super) default_route: bool,
}

impl Route {
    /// A route that the operator's file asks for.
    pub(super) const fn configured(network: Prefix) -> Self {
        Self(network)
    }

    /// A route to a network of a peer's Child SA.
    ///
    /// # Errors
    /// [`Unroutable`].
    pub(super) fn granted(network: Prefix, around: &Surroundings<'_>) -> Result<Self, Unroutable> {
        let range = network.range();
        // Before the host's own networks are looked at: nearly everything lies in such a one.
        if network.bits < SHORTEST && !around.default_route {
            return Err(Unroutable::Default { network });
        }
        if let Some(outer) = around.outer.first_in(range.first(), range.last()) {
            return Err(Unroutable::Outer { network, outer });
        }
        let inside = |own: &&Prefix| {
            let own = own.range();
            own.contains(range.first()) && own.contains(range.last())
        };
        match around.connected.iter().find(inside) {
            Some(own) => Err(Unroutable::Own { network, own: *own }),
            None => Ok(Self(network)),
        }
    }

    pub(super) const fn network(&self) -> Prefix {
        self.0
    }
}

/// Peers' addresses outside the tunnels, each with how many IKE SAs go there.
#[derive(Debug, Default)]
pub(super) struct OuterAddresses(BTreeMap<IpAddr, usize>);

impl OuterAddresses {
    /// One more IKE SA goes there.
    pub(super) fn add(&mut self, address: IpAddr) {
        let count = self.0.entry(address.to_canonical()).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn remove(&mut self, address: IpAddr) {
        let address = address.to_canonical();
        if let Some(count) = self.0.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(&address);
            }
        }
    }

    /// One of a range.
    fn first_in(&self, first: IpAddr, last: IpAddr) -> Option<IpAddr> {
        self.0
            .range(first..=last)
            .next()
            .map(|(address, _)| *address)
    }
}

/// The routes that are set, each with how many want it.
#[derive(Debug, Default)]
pub(super) struct Routes(BTreeMap<(IpAddr, u8), Wanted>);

#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    by_file: usize,
    by_peers: usize,
}

impl Wanted {
    const fn none(self) -> bool {
        self.by_file == 0 && self.by_peers == 0
    }
}

impl Routes {
    fn key(network: Prefix) -> (IpAddr, u8) {
        (network.range().first(), network.bits)
    }

    /// Whether a network is routed into the tunnel already.
    pub(super) fn has(&self, network: Prefix) -> bool {
        self.0.contains_key(&Self::key(network))
    }

    /// One more wants a route; whether it is new.
    pub(super) fn add(&mut self, route: Route, by_file: bool) -> bool {
        let wanted = self.0.entry(Self::key(route.0)).or_default();
        let new = wanted.none();
        let count = match by_file {
            true => &mut wanted.by_file,
            false => &mut wanted.by_peers,
        };
        *count = count.saturating_add(1);
        new
    }

    /// One less; whether it was the last.
    pub(super) fn remove(&mut self, route: Route, by_file: bool) -> bool {
        let key = Self::key(route.0);
        let Some(wanted) = self.0.get_mut(&key) else {
            return false;
        };
        let count = match by_file {
            true => &mut wanted.by_file,
            false => &mut wanted.by_peers,
        };
        *count = count.saturating_sub(1);
        let last = wanted.none();
        if last {
            self.0.remove(&key);
        }
        last
    }

    /// A network of a peer with this address in it: whoever is there outside cannot be answered.
    pub(super) fn over(&self, address: IpAddr) -> Option<Prefix> {
        let address = address.to_canonical();
        let width = if address.is_ipv4() { 32 } else { 128 };
        let network = |bits| Prefix { address, bits };
        (0..=width).map(network).find(|network| {
            let wanted = self.0.get(&Self::key(*network));
            wanted.is_some_and(|wanted| wanted.by_file == 0)
        })
    }
}

/// Our address towards another one, as the kernel's routes have it.
pub(super) fn source_of(listen: IpAddr, remote: IpAddr) -> Option<IpAddr> {
    if !listen.is_unspecified() {
        return Some(listen);
    }
    let any: IpAddr = match remote {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let probe = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    // Connecting sends nothing.
    probe.connect(SocketAddr::new(remote, IKE_PORT)).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// Networks to which this host is connected, apart from those of one interface.
///
/// # Errors
/// Those of the system.
pub(super) fn connected(but: &str) -> Result<Vec<Prefix>, String> {
    let all = nix::ifaddrs::getifaddrs().map_err(|error| error.to_string())?;
    let ip = |address: &nix::sys::socket::SockaddrStorage| -> Option<IpAddr> {
        let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
    };
    let networks = all
        .filter(|found| found.interface_name != but)
        .filter_map(|found| {
            let (address, mask) = (ip(&found.address?)?, ip(&found.netmask?)?);
            let bits = match mask {
                IpAddr::V4(mask) => mask.to_bits().count_ones(),
                IpAddr::V6(mask) => mask.to_bits().count_ones(),
            };
            Some(Prefix {
                address,
                bits: u8::try_from(bits).ok()?,
            })
        });
    Ok(networks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn peer_route_into_host_or_other_tunnels_is_refused() {
        let mut outer = OuterAddresses::default();
        outer.add("192.0.2.7".parse().unwrap());
        outer.add("192.0.2.7".parse().unwrap());
        let connected = [net("10.2.0.1/16"), net("127.0.0.1/8"), net("fe80::1/64")];
        let around = Surroundings {
            outer: &outer,
            connected: &connected,
            default_route: false,
        };
        let granted = |text: &str| Route::granted(net(text), &around);
        for good in ["10.9.0.2/32", "10.0.0.0/8", "fd09::/64", "192.0.3.0/24"] {
            assert_eq!(granted(good), Ok(Route(net(good))), "{good}");
        }
        for bad in ["10.2.0.0/16", "10.2.7.1/32", "127.0.0.1/32", "fe80::7/128"] {
            assert!(matches!(granted(bad), Err(Unroutable::Own { .. })), "{bad}");
        }
        for bad in ["192.0.2.7/32", "192.0.2.0/24"] {
            assert!(
                matches!(granted(bad), Err(Unroutable::Outer { .. })),
                "{bad}"
            );
        }
        for bad in ["0.0.0.0/0", "128.0.0.0/1", "8.0.0.0/7", "::/0", "2000::/3"] {
            assert!(
                matches!(granted(bad), Err(Unroutable::Default { .. })),
                "{bad}"
            );
        }
        let around = Surroundings {
            default_route: true,
            ..around
        };
        assert!(Route::granted(net("::/0"), &around).is_ok());
        assert!(
            Route::granted(net("0.0.0.0/0"), &around).is_err(),
            "a peer is in it"
        );
        outer.remove("192.0.2.7".parse().unwrap());
        assert!(
            outer
                .first_in(
                    "0.0.0.0".parse().unwrap(),
                    "255.255.255.255".parse().unwrap()
                )
                .is_some()
        );
        outer.remove("::ffff:192.0.2.7".parse().unwrap());
        assert!(outer.0.is_empty());
    }

    #[test]
    fn routes_are_counted_and_found_by_address() {
        let mut routes = Routes::default();
        let (wide, narrow) = (Route(net("10.9.0.0/16")), Route(net("10.9.3.7/24")));
        assert!(routes.add(wide, true));
        assert!(routes.add(narrow, false));
        assert!(!routes.add(narrow, false));
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(routes.over(at("10.9.3.1")).map(|p| p.bits), Some(24));
        // What the file routes is the operator's business.
        assert_eq!(routes.over(at("10.9.4.1")), None);
        assert!(!routes.remove(narrow, false));
        assert!(routes.remove(narrow, false));
        assert!(!routes.has(net("10.9.3.0/24")) && routes.has(net("10.9.0.0/16")));
    }

    #[test]
    fn connected_networks_include_loopback() {
        let all = connected("none").unwrap();
        assert!(
            all.iter()
                .any(|own| own.range().contains("127.0.0.1".parse().unwrap()))
        );
        let others = connected("lo").unwrap();
        assert!(!others.iter().any(|own| own.address.is_loopback()));
    }
}
