//! Checksums of UDP and TCP: in transport mode behind address translation (RFC 3948 §3.1.2), and of
//! our own encapsulation.

use std::net::IpAddr;

use crate::ip::{IpHeader, checksum_add, protocol};
use crate::sa::OriginalAddresses;

/// Corrects the TCP or UDP checksum of a packet whose sender computed it over other addresses than
/// the ones it arrived with. Other protocols do not cover addresses.
pub(crate) fn fix_checksum(
    packet: &mut [u8],
    header: &IpHeader,
    original: &OriginalAddresses,
) -> Option<()> {
    let offset = match header.protocol {
        protocol::TCP => 16,
        protocol::UDP | protocol::UDP_LITE => 6,
        _ => return Some(()),
    };
    let at = header.upper + offset;
    let field = packet.get_mut(at..at + 2)?.first_chunk_mut::<2>()?;
    let old = u16::from_be_bytes(*field);
    if old == 0 && header.protocol == protocol::UDP {
        return Some(());
    }
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let mut sum = u32::from(!old);
    for address in [original.source, original.destination] {
        sum = add_address(sum, address, true);
    }
    for address in [header.source, header.destination] {
        sum = add_address(sum, address, false);
    }
    let new = !u16::try_from(sum).ok()?;
    // Zero means "no checksum" in UDP; its other form is all ones.
    let new = if new == 0 && header.protocol != protocol::TCP {
        0xFFFF
    } else {
        new
    };
    *field = new.to_be_bytes();
    Some(())
}

/// Writes the checksum of a UDP header at `udp` of a whole IPv6 packet without routing header. Over
/// IPv6 it may not be left out: RFC 6935 allows that for tunnels, but receivers have to be told, and
/// Linux drops such packets unless it was.
pub(crate) fn write_udp6_checksum(packet: &mut [u8], udp: usize) -> Option<()> {
    packet.get_mut(udp + 6..udp + 8)?.fill(0);
    let upper = packet.get(udp..)?;
    let length = u32::try_from(upper.len()).ok()?;
    let sum = checksum_add(packet.get(8..40)?, u32::from(protocol::UDP) + length);
    let sum = match !u16::try_from(checksum_add(upper, sum)).ok()? {
        0 => 0xFFFF,
        sum => sum,
    };
    packet
        .get_mut(udp + 6..udp + 8)?
        .copy_from_slice(&sum.to_be_bytes());
    Some(())
}

fn add_address(sum: u32, address: IpAddr, complement: bool) -> u32 {
    let mut bytes = [0; 16];
    let bytes = match address {
        IpAddr::V4(address) => {
            let (head, _) = bytes.split_at_mut(4);
            head.copy_from_slice(&address.octets());
            head
        }
        IpAddr::V6(address) => {
            bytes = address.octets();
            &mut bytes
        }
    };
    if complement {
        for byte in &mut *bytes {
            *byte = !*byte;
        }
    }
    checksum_add(bytes, sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ip::checksum;

    /// A packet with the checksum its sender computed over `source` and `destination`.
    fn packet(
        kind: u8,
        source: [u8; 4],
        destination: [u8; 4],
        arrived: [u8; 4],
        payload: &[u8],
    ) -> Vec<u8> {
        let offset = if kind == protocol::TCP { 16 } else { 6 };
        let upper_len = 20 + payload.len();
        let mut upper = vec![0; 20];
        upper.extend_from_slice(payload);
        let sum = pseudo(kind, source, destination, &upper);
        upper[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
        let mut packet = vec![0x45, 0];
        packet.extend(u16::try_from(20 + upper_len).unwrap().to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, kind, 0, 0]);
        packet.extend(arrived);
        packet.extend(destination);
        packet.extend(upper);
        packet
    }

    fn pseudo(kind: u8, source: [u8; 4], destination: [u8; 4], upper: &[u8]) -> u16 {
        let mut covered = Vec::new();
        covered.extend(source);
        covered.extend(destination);
        covered.extend([0, kind]);
        covered.extend(u16::try_from(upper.len()).unwrap().to_be_bytes());
        covered.extend_from_slice(upper);
        checksum(&covered)
    }

    proptest! {
        #[test]
        fn corrected_checksums_verify(
            source in any::<[u8; 4]>(),
            destination in any::<[u8; 4]>(),
            arrived in any::<[u8; 4]>(),
            payload in prop::collection::vec(any::<u8>(), 0..40),
            kind in prop::sample::select(vec![protocol::TCP, protocol::UDP]),
        ) {
            let mut packet = packet(kind, source, destination, arrived, &payload);
            let header = IpHeader::parse(&packet).unwrap();
            let original = OriginalAddresses {
                source: IpAddr::from(source),
                destination: IpAddr::from(destination),
            };
            fix_checksum(&mut packet, &header, &original).unwrap();
            // A right checksum makes the sum over everything zero.
            prop_assert_eq!(pseudo(kind, arrived, destination, &packet[20..]), 0);
        }
    }

    #[test]
    fn absent_udp_checksums_stay_absent() {
        let mut packet = packet(protocol::UDP, [1; 4], [2; 4], [3; 4], &[]);
        packet[26..28].fill(0);
        let header = IpHeader::parse(&packet).unwrap();
        let original = OriginalAddresses {
            source: IpAddr::from([1; 4]),
            destination: IpAddr::from([2; 4]),
        };
        fix_checksum(&mut packet, &header, &original).unwrap();
        assert_eq!(packet[26..28], [0, 0]);
    }
}
