//! Tunnel mode's outer header, and what passes between outer and inner header (RFC 4301 §5.1.2,
//! RFC 6040).

use std::net::IpAddr;

use crate::drops::DropCause;
use crate::ip::{IpHeader, write_v4_checksum};

/// The DSCP of the outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dscp {
    /// The inner packet's. Shows classes of traffic to the network between.
    Copy,
    /// Always this one, 0..=63.
    Set(u8),
}

/// The "don't fragment" bit of an outer IPv4 header (RFC 4301 §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DontFragment {
    /// The inner packet's.
    Copy,
    /// Always set.
    Set,
    /// Never set.
    Clear,
}

/// The ends of a tunnel and how its outer header is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Our outer address.
    pub local: IpAddr,
    /// The far gateway's outer address; of the same family.
    pub remote: IpAddr,
    /// Outer DSCP.
    pub dscp: Dscp,
    /// Outer DF.
    pub dont_fragment: DontFragment,
    /// Outer TTL or hop limit.
    pub hop_limit: u8,
}

impl Tunnel {
    /// A tunnel with RFC 4301's defaults: DSCP and DF copied, 64 hops.
    pub const fn new(local: IpAddr, remote: IpAddr) -> Self {
        Self {
            local,
            remote,
            dscp: Dscp::Copy,
            dont_fragment: DontFragment::Copy,
            hop_limit: 64,
        }
    }

    /// Bytes of the outer IP header.
    pub const fn header_len(&self) -> usize {
        match self.local {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        }
    }

    /// DSCP and ECN of the outer header.
    pub(crate) const fn traffic_class(&self, inner: &IpHeader) -> u8 {
        let dscp = match self.dscp {
            Dscp::Copy => inner.traffic_class & 0xFC,
            Dscp::Set(dscp) => dscp << 2,
        };
        // RFC 6040 §4.1, normal mode: the congestion bits are copied.
        dscp | (inner.traffic_class & 0x03)
    }

    /// Writes the outer header at the beginning of `packet`, whose length is the outer packet's.
    /// `identification` is IPv4's, used where routers may fragment.
    pub(crate) fn write_header(
        &self,
        packet: &mut [u8],
        inner: &IpHeader,
        protocol: u8,
        identification: u16,
    ) -> Option<()> {
        let dont_fragment = match self.dont_fragment {
            DontFragment::Copy => inner.dont_fragment,
            DontFragment::Set => true,
            DontFragment::Clear => false,
        };
        let class = self.traffic_class(inner);
        let id = if dont_fragment { 0 } else { identification };
        let ends = (self.local, self.remote);
        write_ip_header(
            packet,
            ends,
            (class, self.hop_limit),
            protocol,
            (dont_fragment, id),
        )
    }
}

/// Writes an IP header without options over `packet`, whose length is the packet's.
pub(crate) fn write_ip_header(
    packet: &mut [u8],
    ends: (IpAddr, IpAddr),
    (class, hop_limit): (u8, u8),
    protocol: u8,
    (dont_fragment, identification): (bool, u16),
) -> Option<()> {
    let total = packet.len();
    match ends {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = packet.first_chunk_mut::<20>()?;
            let [i0, i1] = identification.to_be_bytes();
            let [l0, l1] = u16::try_from(total).ok()?.to_be_bytes();
            let flags = if dont_fragment { 0x40 } else { 0 };
            let [s0, s1, s2, s3] = source.octets();
            let [d0, d1, d2, d3] = destination.octets();
            *header = [
                0x45, class, l0, l1, i0, i1, flags, 0, hop_limit, protocol, 0, 0, s0, s1, s2, s3,
                d0, d1, d2, d3,
            ];
            write_v4_checksum(packet, 20)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (header, _) = packet.split_first_chunk_mut::<40>()?;
            let (fixed, addresses) = header.split_first_chunk_mut::<8>()?;
            let [l0, l1] = u16::try_from(total.checked_sub(40)?).ok()?.to_be_bytes();
            *fixed = [
                0x60 | (class >> 4),
                class << 4,
                0,
                0,
                l0,
                l1,
                protocol,
                hop_limit,
            ];
            let (first, second) = addresses.split_first_chunk_mut::<16>()?;
            *first = source.octets();
            second.copy_from_slice(&destination.octets());
            Some(())
        }
        _ => None,
    }
}

/// The congestion bits of an inner packet after a tunnel (RFC 6040 §4.2, figure 4).
///
/// # Errors
/// [`DropCause::IllegalEcn`] where congestion cannot be reported to an inner packet that does not
/// take part.
pub const fn decapsulated_ecn(inner: u8, outer: u8) -> Result<u8, DropCause> {
    const NOT_ECT: u8 = 0;
    const ECT_1: u8 = 1;
    const CE: u8 = 3;
    match (inner & 3, outer & 3) {
        (NOT_ECT, CE) => Err(DropCause::IllegalEcn),
        (NOT_ECT, _) => Ok(NOT_ECT),
        (CE, _) | (_, CE) => Ok(CE),
        (_, ECT_1) => Ok(ECT_1),
        (inner, _) => Ok(inner),
    }
}

/// Sets the congestion bits of the packet whose header was read as `header`.
pub(crate) fn set_ecn(packet: &mut [u8], header: &IpHeader, ecn: u8) -> Option<()> {
    if header.traffic_class & 3 == ecn {
        return Some(());
    }
    if header.source.is_ipv4() {
        let class = packet.get_mut(1)?;
        *class = (*class & 0xFC) | ecn;
        write_v4_checksum(packet, header.header_len)
    } else {
        let byte = packet.get_mut(1)?;
        *byte = (*byte & 0xCF) | (ecn << 4);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6040 §4.2, figure 4, row by row.
    #[test]
    fn congestion_table() {
        let (not_ect, ect1, ect0, ce) = (0, 1, 2, 3);
        let outer = [not_ect, ect0, ect1, ce];
        let table = [
            (not_ect, [Some(not_ect), Some(not_ect), Some(not_ect), None]),
            (ect0, [Some(ect0), Some(ect0), Some(ect1), Some(ce)]),
            (ect1, [Some(ect1), Some(ect1), Some(ect1), Some(ce)]),
            (ce, [Some(ce), Some(ce), Some(ce), Some(ce)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in outer.into_iter().zip(row) {
                assert_eq!(
                    decapsulated_ecn(inner, outer).ok(),
                    expected,
                    "{inner} in {outer}"
                );
            }
        }
    }

    fn inner(class: u8, df: bool) -> (Vec<u8>, IpHeader) {
        let mut packet = hex::decode("4500001400010000401100000a0000010a000002").unwrap();
        packet[1] = class;
        packet[6] = if df { 0x40 } else { 0 };
        let header = IpHeader::parse(&packet).unwrap();
        (packet, header)
    }

    #[test]
    fn outer_v4_follows_the_rules() {
        let tunnel = Tunnel::new("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        for (rule, df, expected) in [
            (DontFragment::Copy, true, true),
            (DontFragment::Copy, false, false),
            (DontFragment::Set, false, true),
            (DontFragment::Clear, true, false),
        ] {
            let mut packet = vec![0; 60];
            let (_, inner) = inner(0xB9, df);
            Tunnel {
                dont_fragment: rule,
                ..tunnel
            }
            .write_header(&mut packet, &inner, 50, 7)
            .unwrap();
            let outer = IpHeader::parse(&packet).unwrap();
            assert_eq!(outer.dont_fragment, expected);
            assert_eq!((outer.traffic_class, outer.protocol), (0xB9, 50));
            assert_eq!(crate::ip::checksum(&packet[..20]), 0);
        }
    }

    #[test]
    fn outer_v6_with_a_fixed_dscp() {
        let tunnel = Tunnel::new(
            "2001:db8::1".parse().unwrap(),
            "2001:db8::2".parse().unwrap(),
        );
        let mut packet = vec![0; 100];
        let (_, inner) = inner(0xB9, true);
        Tunnel {
            dscp: Dscp::Set(10),
            ..tunnel
        }
        .write_header(&mut packet, &inner, 50, 7)
        .unwrap();
        let outer = IpHeader::parse(&packet).unwrap();
        assert_eq!(outer.traffic_class, (10 << 2) | 1);
        assert_eq!((outer.total_len, outer.hop_limit), (100, 64));
        assert_eq!(outer.destination, tunnel.remote);
    }

    #[test]
    fn congestion_bits_are_set_in_both_families() {
        let (mut packet, header) = inner(0xB8, false);
        write_v4_checksum(&mut packet, 20).unwrap();
        set_ecn(&mut packet, &header, 3).unwrap();
        assert_eq!(IpHeader::parse(&packet).unwrap().traffic_class, 0xBB);
        assert_eq!(crate::ip::checksum(&packet[..20]), 0);
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
        packet.extend([0; 32]);
        let header = IpHeader::parse(&packet).unwrap();
        set_ecn(&mut packet, &header, 1).unwrap();
        assert_eq!(IpHeader::parse(&packet).unwrap().traffic_class, 1);
    }
}
