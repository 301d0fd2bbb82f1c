//! Telling a sender that its packets are too big for the tunnel (RFC 792, RFC 1191, RFC 4443 §3.2).

use std::net::IpAddr;

use crate::ip::{IpHeader, checksum, checksum_add, protocol, write_v4_checksum};

/// Builds the message "fragmentation needed" or "packet too big" for `packet`, from `router`'s
/// address to the packet's sender. None for what must not be answered: ICMP errors, fragments
/// behind the first, senders that are no single host, or a router address of the other family.
pub fn too_big(packet: &[u8], mtu: u16, router: IpAddr) -> Option<Vec<u8>> {
    let header = IpHeader::parse(packet).ok()?;
    if header.ports == crate::ip::Ports::Opaque || is_icmp_error(packet, &header) {
        return None;
    }
    match (router, header.source) {
        (IpAddr::V4(router), IpAddr::V4(sender)) => {
            if sender.is_unspecified() || sender.is_multicast() || sender.is_broadcast() {
                return None;
            }
            // RFC 1812 §4.3.2.3: as much of the packet as fits into 576 bytes.
            let quoted = packet.get(..header.total_len.min(576 - 28))?;
            let [m0, m1] = mtu.to_be_bytes();
            let mut body = vec![3, 4, 0, 0, 0, 0, m0, m1];
            body.extend_from_slice(quoted);
            let sum = checksum(&body);
            body.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
            let [l0, l1] = u16::try_from(20 + body.len()).ok()?.to_be_bytes();
            let mut message = vec![0x45, 0xC0, l0, l1, 0, 0, 0, 0, 64, protocol::ICMP, 0, 0];
            message.extend(router.octets());
            message.extend(sender.octets());
            write_v4_checksum(&mut message, 20)?;
            message.extend(body);
            Some(message)
        }
        (IpAddr::V6(router), IpAddr::V6(sender)) => {
            if sender.is_unspecified() || sender.is_multicast() {
                return None;
            }
            let quoted = packet.get(..header.total_len.min(1280 - 48))?;
            let mut body = vec![2, 0, 0, 0];
            body.extend(u32::from(mtu).to_be_bytes());
            body.extend_from_slice(quoted);
            let length = u16::try_from(body.len()).ok()?;
            let mut sum = u32::from(length) + u32::from(protocol::ICMPV6);
            sum = checksum_add(&router.octets(), sum);
            sum = checksum_add(&sender.octets(), sum);
            let sum = !u16::try_from(checksum_add(&body, sum)).ok()?;
            body.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
            let [l0, l1] = length.to_be_bytes();
            let mut message = vec![0x60, 0, 0, 0, l0, l1, protocol::ICMPV6, 64];
            message.extend(router.octets());
            message.extend(sender.octets());
            message.extend(body);
            Some(message)
        }
        _ => None,
    }
}

/// Errors are never answered with errors (RFC 1122 §3.2.2).
fn is_icmp_error(packet: &[u8], header: &IpHeader) -> bool {
    let kind = packet.get(header.upper).copied().unwrap_or(0);
    match header.protocol {
        protocol::ICMP => !matches!(kind, 0 | 8 | 13..=18),
        protocol::ICMPV6 => kind < 128,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_message_quotes_the_packet() {
        let mut packet = hex::decode("4500003000010000401100000a0000010a000002").unwrap();
        packet.resize(48, 7);
        let message = too_big(&packet, 1400, "10.0.0.254".parse().unwrap()).unwrap();
        let header = IpHeader::parse(&message).unwrap();
        assert_eq!(header.destination, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(header.total_len, message.len());
        assert_eq!(message[20..22], [3, 4]);
        assert_eq!(message[26..28], 1400_u16.to_be_bytes());
        assert_eq!(checksum(&message[20..]), 0);
        assert_eq!(message[28..], packet);
    }

    #[test]
    fn v6_message_has_a_right_checksum() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 20, protocol::UDP, 64];
        packet.extend([0x20; 32]);
        packet.extend([9; 20]);
        let router: IpAddr = "2001:db8::1".parse().unwrap();
        let message = too_big(&packet, 1280, router).unwrap();
        let length = u32::try_from(message.len() - 40).unwrap();
        let sum = checksum_add(&message[8..], length + u32::from(protocol::ICMPV6));
        assert_eq!(sum, 0xFFFF);
        assert_eq!(message[40], 2);
    }

    #[test]
    fn errors_and_crowds_are_not_answered() {
        let router = "10.0.0.254".parse().unwrap();
        let mut packet = hex::decode("4500001c00010000400100000a0000010a000002").unwrap();
        packet.extend([3, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(too_big(&packet, 1400, router), None);
        packet[20] = 8;
        assert!(too_big(&packet, 1400, router).is_some());
        packet[12] = 224;
        assert_eq!(too_big(&packet, 1400, router), None);
        assert_eq!(too_big(&packet, 1400, "::1".parse().unwrap()), None);
    }
}
