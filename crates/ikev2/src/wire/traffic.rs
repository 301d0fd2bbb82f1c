//! Traffic selectors (RFC 7296 §3.13) and their intersection (§2.9).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::limits;
use super::reader::{DecodeError, Reader, Reason};

const IPV4_RANGE: u8 = 7;
const IPV6_RANGE: u8 = 8;

/// A range of addresses and ports of one IP protocol.
///
/// Both addresses are of one family and in order, and so are the ports, with one exception of the
/// standard: start 65535 and end 0 mean "OPAQUE" (RFC 7296 §3.13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrafficSelector {
    protocol: u8,
    ports: (u16, u16),
    addresses: (IpAddr, IpAddr),
}

impl TrafficSelector {
    /// All ports and protocols of the addresses `first..=last`; none if they are of different
    /// families or in the wrong order.
    pub fn range(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self {
            protocol: 0,
            ports: (0, u16::MAX),
            addresses: (first, last),
        })
    }

    /// All traffic of a network; none if the prefix is longer than an address.
    pub fn network(address: IpAddr, prefix: u8) -> Option<Self> {
        match address {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
                let first = address.to_bits() & !host;
                let ends = (
                    Ipv4Addr::from_bits(first),
                    Ipv4Addr::from_bits(first | host),
                );
                (prefix <= 32).then(|| Self::range(ends.0.into(), ends.1.into()))?
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
                let first = address.to_bits() & !host;
                let ends = (
                    Ipv6Addr::from_bits(first),
                    Ipv6Addr::from_bits(first | host),
                );
                (prefix <= 128).then(|| Self::range(ends.0.into(), ends.1.into()))?
            }
        }
    }

    /// One address.
    pub const fn host(address: IpAddr) -> Self {
        Self {
            protocol: 0,
            ports: (0, u16::MAX),
            addresses: (address, address),
        }
    }

    /// The same restricted to one IP protocol and a range of ports; none if the ports are in the
    /// wrong order or the protocol is 0, which means any.
    pub fn with_ports(mut self, protocol: u8, first: u16, last: u16) -> Option<Self> {
        if first > last || (protocol == 0 && (first, last) != (0, u16::MAX)) {
            return None;
        }
        self.protocol = protocol;
        self.ports = (first, last);
        Some(self)
    }

    /// First and last address.
    pub const fn addresses(&self) -> (IpAddr, IpAddr) {
        self.addresses
    }

    /// First and last port; (65535, 0) means opaque.
    pub const fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// The IP protocol, 0 for any.
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Intersection of both, if there is one.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let protocol = match (self.protocol, other.protocol) {
            (one, two) if one == two => one,
            (0, any) | (any, 0) => any,
            _ => return None,
        };
        if self.addresses.0.is_ipv4() != other.addresses.0.is_ipv4() {
            return None;
        }
        let first = self.addresses.0.max(other.addresses.0);
        let last = self.addresses.1.min(other.addresses.1);
        let ports = intersect_ports(self.ports, other.ports)?;
        (first <= last).then_some(Self {
            protocol,
            ports,
            addresses: (first, last),
        })
    }

    /// Whether all of `other` is covered.
    pub fn contains(&self, other: &Self) -> bool {
        self.intersection(other) == Some(*other)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = *reader;
        let kind = reader.u8("selector type")?;
        let protocol = reader.u8("IP protocol")?;
        let len = reader.u16("selector length")?;
        let ports = (reader.u16("start port")?, reader.u16("end port")?);
        let addresses: (IpAddr, IpAddr) = match (kind, len) {
            (IPV4_RANGE, 16) => {
                let (first, last) = (reader.array("address")?, reader.array("address")?);
                (
                    Ipv4Addr::from_octets(first).into(),
                    Ipv4Addr::from_octets(last).into(),
                )
            }
            (IPV6_RANGE, 40) => {
                let (first, last) = (reader.array("address")?, reader.array("address")?);
                (
                    Ipv6Addr::from_octets(first).into(),
                    Ipv6Addr::from_octets(last).into(),
                )
            }
            (IPV4_RANGE | IPV6_RANGE, _) => return Err(at.error(Reason::Length("selector"))),
            _ => return Err(at.error(Reason::Invalid("selector type"))),
        };
        let ordered = ports.0 <= ports.1 || ports == (u16::MAX, 0);
        if !ordered || addresses.0 > addresses.1 {
            return Err(at.error(Reason::Invalid("selector range")));
        }
        Ok(Self {
            protocol,
            ports,
            addresses,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, len) = if self.addresses.0.is_ipv4() {
            (IPV4_RANGE, 16)
        } else {
            (IPV6_RANGE, 40)
        };
        out.extend([kind, self.protocol, 0, len]);
        out.extend(self.ports.0.to_be_bytes());
        out.extend(self.ports.1.to_be_bytes());
        for address in [self.addresses.0, self.addresses.1] {
            match address {
                IpAddr::V4(address) => out.extend(address.octets()),
                IpAddr::V6(address) => out.extend(address.octets()),
            }
        }
    }
}

fn intersect_ports(one: (u16, u16), two: (u16, u16)) -> Option<(u16, u16)> {
    const ANY: (u16, u16) = (0, u16::MAX);
    const OPAQUE: (u16, u16) = (u16::MAX, 0);
    match (one, two) {
        (OPAQUE, OPAQUE | ANY) | (ANY, OPAQUE) => Some(OPAQUE),
        (OPAQUE, _) | (_, OPAQUE) => None,
        _ => {
            let ports = (one.0.max(two.0), one.1.min(two.1));
            (ports.0 <= ports.1).then_some(ports)
        }
    }
}

/// Bits of the prefix that a range of addresses is, if it is one.
fn prefix_len(first: IpAddr, last: IpAddr) -> Option<u32> {
    let (first, last, width) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            (u128::from(first.to_bits()), u128::from(last.to_bits()), 32)
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits(), last.to_bits(), 128),
        _ => return None,
    };
    // Of a prefix, the bits in which both ends differ are all that is free: zeros first, then ones.
    let free = first ^ last;
    let is_prefix = free & free.wrapping_add(1) == 0 && first & free == 0;
    let len = free
        .leading_zeros()
        .saturating_sub(128_u32.saturating_sub(width));
    is_prefix.then_some(len)
}

impl fmt::Display for TrafficSelector {
    /// A network as a prefix; other ranges by their ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.addresses;
        match prefix_len(first, last) {
            Some(len) => write!(f, "{first}/{len}")?,
            None => write!(f, "{first}-{last}")?,
        }
        if self.protocol != 0 {
            write!(f, "/{}", self.protocol)?;
        }
        if self.ports != (0, u16::MAX) {
            write!(f, ":{}-{}", self.ports.0, self.ports.1)?;
        }
        Ok(())
    }
}

pub(super) fn decode_selectors(
    mut reader: Reader<'_>,
) -> Result<Vec<TrafficSelector>, DecodeError> {
    let count = usize::from(reader.u8("selector count")?);
    reader.take(3, "reserved bytes")?;
    if count == 0 {
        return Err(reader.error(Reason::Invalid("selector count")));
    }
    if count > limits::SELECTORS {
        return Err(reader.error(Reason::TooMany("selectors")));
    }
    let selectors = (0..count)
        .map(|_| TrafficSelector::decode(&mut reader))
        .collect::<Result<_, _>>()?;
    reader.finish()?;
    Ok(selectors)
}

pub(super) fn encode_selectors(selectors: &[TrafficSelector], out: &mut Vec<u8>) {
    out.extend([u8::try_from(selectors.len()).unwrap_or(u8::MAX), 0, 0, 0]);
    for selector in selectors {
        selector.encode(out);
    }
}
