//! The host's routes, as the kernel lists them in `/proc/net`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tunnel::config::Prefix;

/// Routes of the tables that are read at most; a router of the whole Internet has more.
const MOST: usize = 10_000;
/// Flags of a route (kernel, uapi/linux/route.h and ipv6_route.h): by another router, refused, our own address.
const GATEWAY: u32 = 0x0002;
const REJECT: u32 = 0x0200;
const LOCAL: u32 = 0x8000_0000;

/// A route of the host that is narrower than the default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoute {
    pub network: Prefix,
    pub interface: String,
    /// Whether its hosts are beside us, without another router.
    pub is_connected: bool,
}

/// Reads the routes; none where the system does not say.
pub(super) fn read() -> Vec<HostRoute> {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (text("/proc/net/route"), text("/proc/net/ipv6_route"));
    let v4 = v4.lines().skip(1).filter_map(of_v4);
    let v6 = v6.lines().filter_map(of_v6);
    v4.take(MOST).chain(v6.take(MOST)).collect()
}

/// Reads a line: interface, destination, gateway, flags, three numbers, mask; addresses in the host's byte order.
fn of_v4(line: &str) -> Option<HostRoute> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address = |field: usize| -> Option<Ipv4Addr> {
        let number = u32::from_str_radix(fields.get(field)?, 16).ok()?;
        Some(Ipv4Addr::from(number.to_ne_bytes()))
    };
    let bits = address(7)?.to_bits().count_ones();
    made(fields.first()?, address(1)?.into(), bits, flags(&fields)?)
}

/// Reads a line: destination, its bits, source, its bits, next hop, three numbers, flags, interface.
fn of_v6(line: &str) -> Option<HostRoute> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = u128::from_str_radix(fields.first()?, 16).ok()?;
    let address = Ipv6Addr::from_bits(number);
    let bits = u32::from_str_radix(fields.get(1)?, 16).ok()?;
    let flags = u32::from_str_radix(fields.get(8)?, 16).ok()?;
    if address.is_multicast() || address.is_unicast_link_local() {
        return None;
    }
    made(fields.get(9)?, address.into(), bits, flags)
}

fn flags(fields: &[&str]) -> Option<u32> {
    u32::from_str_radix(fields.get(3)?, 16).ok()
}

fn made(interface: &str, address: IpAddr, bits: u32, flags: u32) -> Option<HostRoute> {
    if bits == 0 || flags & (REJECT | LOCAL) != 0 || interface == "lo" {
        return None;
    }
    Some(HostRoute {
        network: Prefix {
            address,
            bits: u8::try_from(bits).ok()?,
        },
        interface: interface.to_owned(),
        is_connected: flags & GATEWAY == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_the_kernel_are_read() {
        // As a little-endian machine prints them.
        let line = "eth0\t0000020A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0";
        if cfg!(target_endian = "little") {
            let route = of_v4(line).unwrap();
            assert_eq!(route.network, "10.2.0.0/16".parse().unwrap());
            assert_eq!(
                (route.interface.as_str(), route.is_connected),
                ("eth0", true)
            );
        }
        let default = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert_eq!(of_v4(default), None);
        assert_eq!(of_v4("eth0\t0000020A"), None);
        let zero = "00000000000000000000000000000000";
        let v6 = |net: &str, bits: &str, flags: &str| {
            of_v6(&format!(
                "{net} {bits} {zero} 00 {zero} 00000100 00000001 00000000 {flags} eth0"
            ))
        };
        let net = "20010db8000000000000000000000000";
        let route = v6(net, "20", "00000003").unwrap();
        assert_eq!(route.network, "2001:db8::/32".parse().unwrap());
        assert!(!route.is_connected);
        assert_eq!(v6(net, "80", "80200001"), None);
        assert_eq!(v6(&net.replace("2001", "fe80"), "40", "00000001"), None);
        assert_eq!(v6(net, "20", "00000200"), None);
    }
}
