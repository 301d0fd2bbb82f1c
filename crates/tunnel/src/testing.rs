//! Packets for tests.

use ipsec::ip::{IpHeader, write_v4_checksum};

use crate::segment::upper_sum;

fn packet(v6: bool, protocol: u8, checksum: usize, upper: &[u8]) -> Vec<u8> {
    let mut packet = if v6 {
        let length = u16::try_from(upper.len()).unwrap_or(0).to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
        packet.extend([0xFD; 32]);
        packet
    } else {
        let length = u16::try_from(20 + upper.len()).unwrap_or(0).to_be_bytes();
        let mut packet = vec![
            0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0,
        ];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        write_v4_checksum(&mut packet, 20).unwrap();
        packet
    };
    let at = packet.len() + checksum;
    packet.extend_from_slice(upper);
    let ip = IpHeader::parse(&packet).unwrap();
    let sum = !upper_sum(&packet, &ip).unwrap();
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A TCP packet with a right checksum.
pub(crate) fn tcp_packet(v6: bool, sequence: u32, payload: &[u8], flags: u8) -> Vec<u8> {
    let mut upper = vec![0x30, 0x39, 0, 80];
    upper.extend(sequence.to_be_bytes());
    upper.extend([0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    upper.extend_from_slice(payload);
    packet(v6, 6, 16, &upper)
}

/// A UDP packet with a right checksum.
pub(crate) fn udp_packet(v6: bool, payload: &[u8]) -> Vec<u8> {
    let mut upper = vec![0x30, 0x39, 0, 53];
    upper.extend(u16::try_from(8 + payload.len()).unwrap_or(0).to_be_bytes());
    upper.extend([0, 0]);
    upper.extend_from_slice(payload);
    packet(v6, 17, 6, &upper)
}
