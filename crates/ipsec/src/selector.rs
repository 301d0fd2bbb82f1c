//! Traffic selectors: which packets a policy is about (RFC 4301 §4.4.1.1).

use std::net::IpAddr;

use crate::ip::{IpHeader, Ports};

/// An inclusive range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

/// Why a range is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Two families, or the end before the beginning.
    #[error("no address range: {0} to {1}")]
    Order(IpAddr, IpAddr),
    /// More prefix bits than the address has.
    #[error("{0} has no prefix of {1} bits")]
    Prefix(IpAddr, u8),
}

impl AddressRange {
    /// All addresses from `first` to `last`.
    ///
    /// # Errors
    /// [`RangeError::Order`].
    pub fn new(first: IpAddr, last: IpAddr) -> Result<Self, RangeError> {
        if first.is_ipv4() != last.is_ipv4() || first > last {
            return Err(RangeError::Order(first, last));
        }
        Ok(Self { first, last })
    }

    /// The addresses that share the first `bits` bits with `address`.
    ///
    /// # Errors
    /// [`RangeError::Prefix`].
    pub fn prefix(address: IpAddr, bits: u8) -> Result<Self, RangeError> {
        let width = if address.is_ipv4() { 32 } else { 128 };
        let Some(free) = u8::checked_sub(width, bits) else {
            return Err(RangeError::Prefix(address, bits));
        };
        let mask = if free == 0 {
            0
        } else {
            u128::MAX >> (128 - u32::from(free))
        };
        let (value, v4) = to_bits(address);
        Ok(Self {
            first: from_bits(value & !mask, v4),
            last: from_bits(value | mask, v4),
        })
    }

    /// One address.
    pub const fn host(address: IpAddr) -> Self {
        Self {
            first: address,
            last: address,
        }
    }

    /// The first address.
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// The last address.
    pub const fn last(&self) -> IpAddr {
        self.last
    }

    /// Whether `address` lies in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        // Ordering of `IpAddr` puts all of IPv4 before IPv6, so families never mix.
        self.first <= address && address <= self.last
    }

    /// The range as networks: address and bits of the prefix, for routes. At most 62 for IPv4, 254 for
    /// IPv6.
    pub fn networks(&self) -> Vec<(IpAddr, u8)> {
        let v4 = self.first.is_ipv4();
        let of = |(bits, len)| (from_bits(if v4 { bits >> 96 } else { bits }, v4), len);
        self.prefixes().into_iter().map(of).collect()
    }

    /// The range as prefixes, each the address bits left-aligned in 128 bits and their number.
    pub(crate) fn prefixes(&self) -> Vec<(u128, u8)> {
        let (first, v4) = to_bits(self.first);
        let (last, _) = to_bits(self.last);
        let width = if v4 { 32 } else { 128 };
        let mut prefixes = Vec::new();
        let mut at = first;
        loop {
            // The largest aligned block that begins here and does not reach beyond the end.
            let mut free = at.trailing_zeros().min(width);
            while free > 0 && at | low_mask(free) > last {
                free -= 1;
            }
            let bits = u8::try_from(width - free).unwrap_or(u8::MAX);
            prefixes.push((at << (128 - width), bits));
            match (at | low_mask(free)).checked_add(1) {
                Some(next) if next <= last => at = next,
                _ => return prefixes,
            }
        }
    }
}

const fn low_mask(bits: u32) -> u128 {
    if bits == 0 {
        0
    } else {
        u128::MAX >> (128 - bits)
    }
}

fn to_bits(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), true),
        IpAddr::V6(address) => (u128::from(address), false),
    }
}

fn from_bits(value: u128, v4: bool) -> IpAddr {
    if v4 {
        IpAddr::V4(u32::try_from(value & 0xFFFF_FFFF).unwrap_or(0).into())
    } else {
        IpAddr::V6(value.into())
    }
}

/// The bits of an address, left-aligned in 128.
pub(crate) fn aligned_bits(address: IpAddr) -> u128 {
    match to_bits(address) {
        (value, true) => value << 96,
        (value, false) => value,
    }
}

/// Ports that a selector accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortMatch {
    /// Any, present or not.
    Any,
    /// Only packets that show no ports: fragments behind the first.
    Opaque,
    /// From the first to the last, both included.
    Range(u16, u16),
}

impl PortMatch {
    fn accepts(self, port: Option<u16>, ports: Ports) -> bool {
        match (self, port) {
            (Self::Any, _) => true,
            (Self::Opaque, _) => ports == Ports::Opaque,
            (Self::Range(first, last), Some(port)) => first <= port && port <= last,
            (Self::Range(..), None) => false,
        }
    }
}

/// A packet seen from this side: what lookups compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Our side's address: the source of what goes out.
    pub local: IpAddr,
    /// The far side's address.
    pub remote: IpAddr,
    /// Upper-layer protocol.
    pub protocol: u8,
    /// Ports, the source being ours.
    pub ports: Ports,
}

impl Flow {
    /// The flow of a packet that goes out.
    pub const fn outbound(header: &IpHeader) -> Self {
        Self {
            local: header.source,
            remote: header.destination,
            protocol: header.protocol,
            ports: header.ports,
        }
    }

    /// The flow of a packet that came in, turned round.
    pub const fn inbound(header: &IpHeader) -> Self {
        let ports = match header.ports {
            Ports::Known {
                source,
                destination,
            } => Ports::Known {
                source: destination,
                destination: source,
            },
            other => other,
        };
        Self {
            local: header.destination,
            remote: header.source,
            protocol: header.protocol,
            ports,
        }
    }
}

/// A traffic selector, seen from this side: it serves both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Addresses on our side.
    pub local: AddressRange,
    /// Addresses on the far side.
    pub remote: AddressRange,
    /// Upper-layer protocol; none means any.
    pub protocol: Option<u8>,
    /// Ports on our side.
    pub local_ports: PortMatch,
    /// Ports on the far side.
    pub remote_ports: PortMatch,
}

impl Selector {
    /// Everything between two address ranges.
    pub const fn between(local: AddressRange, remote: AddressRange) -> Self {
        Self {
            local,
            remote,
            protocol: None,
            local_ports: PortMatch::Any,
            remote_ports: PortMatch::Any,
        }
    }

    /// Whether the selector is about this flow.
    pub fn matches(&self, flow: &Flow) -> bool {
        let (local, remote) = match flow.ports {
            Ports::Known {
                source,
                destination,
            } => (Some(source), Some(destination)),
            Ports::None | Ports::Opaque => (None, None),
        };
        self.local.contains(flow.local)
            && self.remote.contains(flow.remote)
            && self
                .protocol
                .is_none_or(|protocol| protocol == flow.protocol)
            && self.local_ports.accepts(local, flow.ports)
            && self.remote_ports.accepts(remote, flow.ports)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(first: &str, last: &str) -> AddressRange {
        AddressRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap()
    }

    #[test]
    fn ranges_are_checked() {
        let (a, b) = ("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap());
        assert_eq!(AddressRange::new(a, b), Err(RangeError::Order(a, b)));
        assert!(AddressRange::new(a, "fd00::1".parse().unwrap()).is_err());
        assert_eq!(AddressRange::prefix(a, 33), Err(RangeError::Prefix(a, 33)));
        assert_eq!(
            AddressRange::prefix(a, 8).unwrap(),
            range("10.0.0.0", "10.255.255.255")
        );
        assert!(
            AddressRange::prefix("::".parse().unwrap(), 0)
                .unwrap()
                .contains("ffff::".parse().unwrap())
        );
        assert!(
            !AddressRange::prefix("0.0.0.0".parse().unwrap(), 0)
                .unwrap()
                .contains("::1".parse().unwrap())
        );
    }

    #[test]
    fn prefixes_of_odd_ranges() {
        let prefixes = range("10.0.0.1", "10.0.0.6").prefixes();
        let bits: Vec<u8> = prefixes.iter().map(|prefix| prefix.1).collect();
        assert_eq!(bits, [32, 31, 31, 32]);
        assert_eq!(range("0.0.0.0", "255.255.255.255").prefixes(), [(0, 0)]);
        assert_eq!(
            range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").prefixes(),
            [(0, 0)]
        );
    }

    #[test]
    fn opaque_ports_match_only_any_and_opaque() {
        let everywhere = range("0.0.0.0", "255.255.255.255");
        let mut selector = Selector::between(everywhere, everywhere);
        let flow = Flow {
            local: "10.0.0.1".parse().unwrap(),
            remote: "10.0.0.2".parse().unwrap(),
            protocol: 17,
            ports: Ports::Opaque,
        };
        assert!(selector.matches(&flow));
        selector.remote_ports = PortMatch::Opaque;
        assert!(selector.matches(&flow));
        selector.remote_ports = PortMatch::Range(0, u16::MAX);
        assert!(!selector.matches(&flow));
    }

    #[test]
    fn a_range_is_told_in_networks() {
        let networks = |first: &str, last: &str| {
            let range = AddressRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
            let networks = range.networks();
            let of = |(address, bits): (IpAddr, u8)| format!("{address}/{bits}");
            networks.into_iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(networks("10.0.0.0", "10.0.1.255"), ["10.0.0.0/23"]);
        assert_eq!(
            networks("10.0.0.1", "10.0.0.3"),
            ["10.0.0.1/32", "10.0.0.2/31"]
        );
        assert_eq!(networks("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(networks("fd00::", "fd00::ffff"), ["fd00::/112"]);
    }

    proptest! {
        #[test]
        fn prefixes_cover_exactly_the_range(a in any::<u32>(), b in any::<u32>(), probe in any::<u32>()) {
            let (first, last) = (a.min(b), a.max(b));
            let range = AddressRange::new(IpAddr::V4(first.into()), IpAddr::V4(last.into())).unwrap();
            let inside = |value: u32| {
                let aligned = u128::from(value) << 96;
                range.prefixes().iter().filter(|(bits, len)| {
                    *len == 0 || (aligned ^ bits) >> (128 - u32::from(*len)) == 0
                }).count()
            };
            for value in [probe, first, last, first.wrapping_sub(1), last.wrapping_add(1)] {
                prop_assert_eq!(inside(value), usize::from(first <= value && value <= last));
            }
            prop_assert!(range.prefixes().len() <= 62);
        }
    }
}
