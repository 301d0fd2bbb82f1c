//! Reading IPv4 and IPv6 headers: just what policies and encapsulation need.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocol numbers that matter here.
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP: next header of tunnel mode.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP: next header of tunnel mode.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating Security Payload.
    pub const ESP: u8 = 50;
    /// Authentication Header.
    pub const AH: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// No next header; in ESP a dummy packet (RFC 4303 §2.6).
    pub const NONE: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
}

/// Why bytes are no IP packet that could be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpError {
    /// Version is neither 4 nor 6.
    #[error("neither IPv4 nor IPv6")]
    Version,
    /// Shorter than its headers say.
    #[error("shorter than its headers say")]
    Truncated,
    /// A header length that cannot be.
    #[error("malformed IP header")]
    Malformed,
    /// More IPv6 extension headers than anyone needs.
    #[error("more than {MAX_EXTENSIONS} IPv6 extension headers")]
    TooManyExtensions,
}

/// IPv6 extension headers looked through before a packet is refused.
pub const MAX_EXTENSIONS: usize = 8;

/// Ports of a packet, or what stands in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ports {
    /// Source and destination port. ICMP: type in the upper, code in the lower byte, twice (RFC 4301
    /// §4.4.1.1).
    Known {
        /// Of the sender.
        source: u16,
        /// Of the receiver.
        destination: u16,
    },
    /// The protocol has none.
    None,
    /// There may be some, but not in this packet: a fragment behind the first.
    Opaque,
}

/// Parsed header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// From.
    pub source: IpAddr,
    /// To.
    pub destination: IpAddr,
    /// Upper-layer protocol, behind IPv6 extension headers.
    pub protocol: u8,
    /// Ports of that protocol.
    pub ports: Ports,
    /// Bytes of the IP header; for IPv6 without extension headers, 40.
    pub header_len: usize,
    /// Offset of the upper-layer header.
    pub upper: usize,
    /// Offset of a transport-mode header: behind what every hop and every fragment needs (RFC 4303
    /// §3.1.1).
    pub insertion: usize,
    /// Offset of the byte that names what stands at [`insertion`](Self::insertion).
    pub next_header_at: usize,
    /// Bytes of the packet; what follows them in the buffer is no part of it.
    pub total_len: usize,
    /// DSCP and ECN: the TOS byte or traffic class.
    pub traffic_class: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// IPv4 "don't fragment"; always set for IPv6, whose routers never do.
    pub dont_fragment: bool,
    /// A fragment, first ones included.
    pub fragment: bool,
}

impl IpHeader {
    /// Reads the headers at the beginning of `packet`.
    ///
    /// # Errors
    /// [`IpError`] for what is not an IP packet or does not hold what it says.
    pub fn parse(packet: &[u8]) -> Result<Self, IpError> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => parse_v4(packet),
            Some(6) => parse_v6(packet),
            Some(_) => Err(IpError::Version),
            None => Err(IpError::Truncated),
        }
    }

    /// The number that names this packet as payload of a tunnel.
    pub const fn tunnel_protocol(&self) -> u8 {
        match self.source {
            IpAddr::V4(_) => protocol::IPV4,
            IpAddr::V6(_) => protocol::IPV6,
        }
    }
}

fn parse_v4(packet: &[u8]) -> Result<IpHeader, IpError> {
    let fixed = packet.first_chunk::<20>().ok_or(IpError::Truncated)?;
    let [
        v,
        traffic_class,
        l0,
        l1,
        _,
        _,
        f0,
        f1,
        hop_limit,
        protocol,
        _,
        _,
        addresses @ ..,
    ] = fixed;
    let [s0, s1, s2, s3, d0, d1, d2, d3] = *addresses;
    let header_len = usize::from(v & 0x0F) * 4;
    let total_len = usize::from(u16::from_be_bytes([*l0, *l1]));
    if header_len < 20 || total_len < header_len {
        return Err(IpError::Malformed);
    }
    let packet = packet.get(..total_len).ok_or(IpError::Truncated)?;
    let flags = u16::from_be_bytes([*f0, *f1]);
    let later = flags & 0x1FFF != 0;
    Ok(IpHeader {
        source: Ipv4Addr::new(s0, s1, s2, s3).into(),
        destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
        protocol: *protocol,
        ports: ports(
            *protocol,
            later,
            packet.get(header_len..).unwrap_or_default(),
        ),
        header_len,
        upper: header_len,
        insertion: header_len,
        next_header_at: 9,
        total_len,
        traffic_class: *traffic_class,
        hop_limit: *hop_limit,
        dont_fragment: flags & 0x4000 != 0,
        fragment: flags & 0x3FFF != 0,
    })
}

fn parse_v6(packet: &[u8]) -> Result<IpHeader, IpError> {
    let (fixed, _) = packet.split_first_chunk::<40>().ok_or(IpError::Truncated)?;
    let [v, c, _, _, l0, l1, next, hop_limit, addresses @ ..] = fixed;
    let (source, destination) = addresses
        .split_first_chunk::<16>()
        .ok_or(IpError::Truncated)?;
    let destination = destination.first_chunk::<16>().ok_or(IpError::Truncated)?;
    let total_len = 40 + usize::from(u16::from_be_bytes([*l0, *l1]));
    let packet = packet.get(..total_len).ok_or(IpError::Truncated)?;
    let walk = Extensions::walk(packet, *next)?;
    Ok(IpHeader {
        source: Ipv6Addr::from(*source).into(),
        destination: Ipv6Addr::from(*destination).into(),
        protocol: walk.protocol,
        ports: ports(
            walk.protocol,
            walk.later_fragment,
            packet.get(walk.upper..).unwrap_or_default(),
        ),
        header_len: 40,
        upper: walk.upper,
        insertion: walk.insertion,
        next_header_at: walk.next_header_at,
        total_len,
        traffic_class: (v << 4) | (c >> 4),
        hop_limit: *hop_limit,
        dont_fragment: true,
        fragment: walk.fragment,
    })
}

/// Result of a walk over IPv6 extension headers.
struct Extensions {
    protocol: u8,
    upper: usize,
    insertion: usize,
    next_header_at: usize,
    fragment: bool,
    later_fragment: bool,
}

impl Extensions {
    fn walk(packet: &[u8], first: u8) -> Result<Self, IpError> {
        let mut found = Self {
            protocol: first,
            upper: 40,
            insertion: 40,
            next_header_at: 6,
            fragment: false,
            later_fragment: false,
        };
        for _ in 0..=MAX_EXTENSIONS {
            let kind = found.protocol;
            if !matches!(
                kind,
                protocol::HOP_BY_HOP
                    | protocol::ROUTING
                    | protocol::FRAGMENT
                    | protocol::DESTINATION
            ) {
                return Ok(found);
            }
            let rest = packet.get(found.upper..).unwrap_or_default();
            let [next, len, f0, f1, ..] = rest else {
                return Err(IpError::Truncated);
            };
            let size = if kind == protocol::FRAGMENT {
                8
            } else {
                8 + usize::from(*len) * 8
            };
            if rest.len() < size {
                return Err(IpError::Truncated);
            }
            if kind == protocol::FRAGMENT {
                let offset = u16::from_be_bytes([*f0, *f1]);
                found.fragment = true;
                found.later_fragment = offset & 0xFFF8 != 0;
            }
            let at = found.upper;
            found.upper += size;
            found.protocol = *next;
            // Destination options in front of a routing header belong to it; those behind, to the
            // receiver: only the latter are protected.
            let before_routing = kind == protocol::DESTINATION && *next == protocol::ROUTING;
            if kind != protocol::DESTINATION || before_routing {
                found.insertion = found.upper;
                found.next_header_at = at;
            }
            if found.later_fragment {
                return Ok(found);
            }
        }
        Err(IpError::TooManyExtensions)
    }
}

fn ports(protocol: u8, later_fragment: bool, upper: &[u8]) -> Ports {
    use protocol::*;
    let has_ports = matches!(protocol, TCP | UDP | SCTP | UDP_LITE);
    let is_icmp = matches!(protocol, ICMP | ICMPV6);
    match upper {
        _ if !has_ports && !is_icmp => Ports::None,
        _ if later_fragment => Ports::Opaque,
        [kind, code, ..] if is_icmp => {
            let port = u16::from_be_bytes([*kind, *code]);
            Ports::Known {
                source: port,
                destination: port,
            }
        }
        [s0, s1, d0, d1, ..] if has_ports => Ports::Known {
            source: u16::from_be_bytes([*s0, *s1]),
            destination: u16::from_be_bytes([*d0, *d1]),
        },
        _ => Ports::Opaque,
    }
}

/// The Internet checksum (RFC 1071) of `bytes`, added to `sum`: 16 bits, not yet complemented.
pub fn checksum_add(bytes: &[u8], sum: u32) -> u32 {
    // The sum does not depend on the byte order it is made in (RFC 1071 §2.B), nor on the width of
    // the words: wide words in the machine's order, turned round once at the end.
    let (words, rest) = bytes.as_chunks::<4>();
    // 2^32 words would be needed to wrap; a check at each of them would keep the compiler from adding
    // several at once.
    let mut wide = words.iter().fold(0_u64, |sum, word| {
        sum.wrapping_add(u64::from(u32::from_ne_bytes(*word)))
    });
    let mut tail = [0; 4];
    for (to, from) in tail.iter_mut().zip(rest) {
        *to = *from;
    }
    wide += u64::from(u32::from_ne_bytes(tail));
    let folded = u16::from_be(fold(wide));
    u32::from(fold(u64::from(folded) + u64::from(sum)))
}

/// Adds the carries back in until 16 bits are left.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let [.., high, low] = sum.to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// The complemented Internet checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u16 {
    !u16::try_from(checksum_add(bytes, 0)).unwrap_or(0)
}

/// Writes the header checksum of an IPv4 packet whose header has `header_len` bytes.
pub fn write_v4_checksum(packet: &mut [u8], header_len: usize) -> Option<()> {
    let header = packet.get_mut(..header_len)?;
    header.get_mut(10..12)?.fill(0);
    let sum = checksum(header);
    header.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn udp4() -> Vec<u8> {
        let mut packet = hex::decode("4500001c00010000401100000a0000010a000002").unwrap();
        packet.extend(hex::decode("1194003500080000").unwrap());
        packet
    }

    #[test]
    fn v4_with_ports() {
        let header = IpHeader::parse(&udp4()).unwrap();
        assert_eq!(header.source, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(header.destination, "10.0.0.2".parse::<IpAddr>().unwrap());
        assert_eq!(
            header.ports,
            Ports::Known {
                source: 4500,
                destination: 53
            }
        );
        assert_eq!((header.upper, header.total_len), (20, 28));
        assert!(!header.dont_fragment && !header.fragment);
    }

    #[test]
    fn later_fragments_have_opaque_ports() {
        let mut packet = udp4();
        packet[7] = 1;
        let header = IpHeader::parse(&packet).unwrap();
        assert_eq!(header.ports, Ports::Opaque);
        assert!(header.fragment);
    }

    #[test]
    fn v6_extension_headers_are_walked() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 32, protocol::HOP_BY_HOP, 64];
        packet.extend([0xFD; 32]);
        packet.extend([protocol::DESTINATION, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend([protocol::ROUTING, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend([protocol::TCP, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([0, 80, 1, 187, 0, 0, 0, 0]);
        let header = IpHeader::parse(&packet).unwrap();
        assert_eq!(header.protocol, protocol::TCP);
        assert_eq!(
            header.ports,
            Ports::Known {
                source: 80,
                destination: 443
            }
        );
        assert_eq!(
            (header.upper, header.insertion, header.next_header_at),
            (64, 64, 56)
        );
    }

    #[test]
    fn the_receivers_options_stay_behind_the_insertion_point() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, protocol::DESTINATION, 64];
        packet.extend([0xFD; 32]);
        packet.extend([protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend([128, 0, 0, 0, 0, 0, 0, 0]);
        let header = IpHeader::parse(&packet).unwrap();
        assert_eq!(
            (header.upper, header.insertion, header.next_header_at),
            (48, 40, 6)
        );
        assert_eq!(
            header.ports,
            Ports::Known {
                source: 0x8000,
                destination: 0x8000
            }
        );
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        assert_eq!(IpHeader::parse(&[]), Err(IpError::Truncated));
        assert_eq!(IpHeader::parse(&[0x50; 40]), Err(IpError::Version));
        assert_eq!(IpHeader::parse(&udp4()[..27]), Err(IpError::Truncated));
        let mut packet = udp4();
        packet[0] = 0x44;
        assert_eq!(IpHeader::parse(&packet), Err(IpError::Malformed));
        let mut endless = vec![0x60, 0, 0, 0, 0, 80, protocol::HOP_BY_HOP, 64];
        endless.extend([0xFD; 32]);
        endless.extend([0; 80]);
        assert_eq!(IpHeader::parse(&endless), Err(IpError::TooManyExtensions));
    }

    proptest! {
        #[test]
        fn checksum_equals_the_sum_of_pairs(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            sum in 0_u32..0x1_0000,
        ) {
            let pairs = bytes.chunks(2).map(|pair| {
                u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0))
            });
            let mut expected = pairs.sum::<u64>() + u64::from(sum);
            while expected > 0xFFFF {
                expected = (expected & 0xFFFF) + (expected >> 16);
            }
            prop_assert_eq!(u64::from(checksum_add(&bytes, sum)), expected);
        }
    }

    #[test]
    fn checksum_of_a_known_header() {
        let mut packet = udp4();
        write_v4_checksum(&mut packet, 20).unwrap();
        assert_eq!(checksum(&packet[..20]), 0);
        assert_eq!(checksum(&[1]), 0xFEFF);
    }

    proptest! {
        #[test]
        fn offsets_stay_inside(
            packet in prop::collection::vec(any::<u8>(), 0..200),
            version in 0_u8..16,
        ) {
            let mut packet = packet;
            if let Some(first) = packet.first_mut() {
                *first = (version << 4) | (*first & 0x0F);
            }
            if let Ok(header) = IpHeader::parse(&packet) {
                prop_assert!(header.total_len <= packet.len());
                prop_assert!(header.upper <= header.total_len);
                prop_assert!(header.insertion <= header.upper);
                prop_assert!(header.next_header_at < header.insertion);
            }
        }
    }
}
