//! Segmentation of the GSO super-packets that the kernel hands over.
//!
//! The kernel's own rules are repeated here: each segment has the headers of the whole, with length,
//! IPv4 identification, TCP sequence number and checksums of its own; FIN and PSH stay on the last
//! segment, CWR on the first.

use ipsec::ip::{IpHeader, protocol};
use sys::checksum;

use crate::vnet::{NEEDS_CHECKSUM, Segmentation, VnetHeader};

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Why a packet cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Not an IP packet.
    #[error("not an IP packet")]
    NotIp,
    /// The kernel's description does not fit the packet.
    #[error("the packet is not what its description says")]
    Contradiction,
}

/// A packet and how it is cut.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    packet: &'a [u8],
    ip: IpHeader,
    cut: Segmentation,
    /// Offset of TCP's or UDP's payload.
    payload: usize,
    /// Payload bytes of each segment.
    size: usize,
    checksum: Option<(usize, usize)>,
    /// The sum over what is alike in all segments' IPv4 headers.
    header_sum: u32,
}

impl<'a> Segments<'a> {
    /// Reads how `packet` is to be cut. Only the packet itself is believed about where its headers
    /// lie.
    ///
    /// # Errors
    /// [`SegmentError`] for what is no packet, or not the described one.
    pub fn plan(header: &VnetHeader, packet: &'a [u8]) -> Result<Self, SegmentError> {
        let ip = IpHeader::parse(packet).map_err(|_| SegmentError::NotIp)?;
        // A link may pad short packets; what is behind the IP length belongs to nobody.
        let packet = packet.get(..ip.total_len).ok_or(SegmentError::NotIp)?;
        let cut = header.cut().ok_or(SegmentError::Contradiction)?;
        let upper = packet.get(ip.upper..).unwrap_or_default();
        let upper_len = match (cut, ip.protocol) {
            (Segmentation::None, _) => 0,
            (Segmentation::Tcp, protocol::TCP) => {
                // TCP says itself where its header ends. The description does as well, but a length of two sources is one
                // too many.
                let words = upper.get(12).ok_or(SegmentError::Contradiction)? >> 4;
                usize::from(words) * 4
            }
            (Segmentation::Udp, protocol::UDP) => 8,
            _ => return Err(SegmentError::Contradiction),
        };
        let payload = ip.upper + upper_len;
        let size = usize::from(header.segment_size);
        let is_cut = cut != Segmentation::None;
        // A size of zero would never end, and a fragment has its upper header in another packet.
        if is_cut && (size == 0 || payload >= packet.len() || upper_len < 8 || ip.fragment) {
            return Err(SegmentError::Contradiction);
        }
        let checksum = (header.flags & NEEDS_CHECKSUM != 0).then(|| {
            let start = usize::from(header.checksum_start);
            (start, start + usize::from(header.checksum_offset))
        });
        // Summed once for all segments: each has the same header but for three fields.
        let header_sum = header_sum(packet, &ip).ok_or(SegmentError::NotIp)?;
        Ok(Self {
            packet,
            ip,
            cut,
            payload,
            size,
            checksum,
            header_sum,
        })
    }

    /// The whole packet's header.
    pub const fn ip(&self) -> &IpHeader {
        &self.ip
    }

    /// The super-packet's bytes.
    pub const fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// How many packets it becomes.
    pub const fn count(&self) -> usize {
        match self.cut {
            Segmentation::None => 1,
            Segmentation::Tcp | Segmentation::Udp => {
                (self.packet.len() - self.payload).div_ceil(self.size)
            }
        }
    }

    /// Bytes of packet `index`.
    pub fn len(&self, index: usize) -> usize {
        match self.cut {
            Segmentation::None => self.packet.len(),
            Segmentation::Tcp | Segmentation::Udp => {
                let begun = self.payload + index * self.size;
                self.payload + self.size.min(self.packet.len().saturating_sub(begun))
            }
        }
    }

    /// Writes packet `index` to `place`, which has its length. None where it has not.
    pub fn write(&self, index: usize, place: &mut [u8]) -> Option<()> {
        if self.cut == Segmentation::None {
            place.copy_from_slice(self.packet.get(..place.len())?);
            return match self.checksum {
                Some((start, at)) => finish_checksum(place, start, at),
                None => Some(()),
            };
        }
        let from = self.payload + index * self.size;
        let (headers, payload) = place.split_at_mut_checked(self.payload)?;
        headers.copy_from_slice(self.packet.get(..self.payload)?);
        payload.copy_from_slice(self.packet.get(from..from + payload.len())?);
        self.write_ip(index, place)?;
        match self.cut {
            Segmentation::Tcp => self.write_tcp(index, place),
            _ => self.write_udp(place),
        }
    }

    fn write_ip(&self, index: usize, place: &mut [u8]) -> Option<()> {
        let total = place.len();
        if self.ip.source.is_ipv6() {
            let length = u16::try_from(total - 40).ok()?.to_be_bytes();
            place.get_mut(4..6)?.copy_from_slice(&length);
            return Some(());
        }
        let total = u16::try_from(total).ok()?;
        let [_, _, l0, l1, i0, i1, _, _, _, _, c0, c1, ..] = place.first_chunk_mut::<20>()?;
        let step = u16::try_from(index).ok()?;
        // Segments are packets of their own, so each needs its own identification (RFC 791 §3.1), as the kernel gives them.
        let identification = u16::from_be_bytes([*i0, *i1]).wrapping_add(step);
        let sum = u64::from(self.header_sum) + u64::from(total) + u64::from(identification);
        [*l0, *l1] = total.to_be_bytes();
        [*i0, *i1] = identification.to_be_bytes();
        [*c0, *c1] = (!checksum::fold(sum)).to_be_bytes();
        Some(())
    }

    fn write_tcp(&self, index: usize, place: &mut [u8]) -> Option<()> {
        let tcp = place.get_mut(self.ip.upper..)?;
        let sequence = tcp.get_mut(4..8)?.first_chunk_mut::<4>()?;
        let step = u32::try_from(index * self.size).ok()?;
        *sequence = u32::from_be_bytes(*sequence)
            .wrapping_add(step)
            .to_be_bytes();
        let flags = tcp.get_mut(13)?;
        // What ends or pushes the stream stands at its last byte (RFC 9293 §3.9.1).
        if index + 1 < self.count() {
            *flags &= !(TCP_FIN | TCP_PSH);
        }
        if index > 0 {
            // The sender says once that it has reduced its window (RFC 3168 §6.1.2).
            *flags &= !TCP_CWR;
        }
        self.write_checksum(place, 16)
    }

    fn write_udp(&self, place: &mut [u8]) -> Option<()> {
        let udp = place.get_mut(self.ip.upper..)?;
        let length = u16::try_from(udp.len()).ok()?.to_be_bytes();
        udp.get_mut(4..6)?.copy_from_slice(&length);
        self.write_checksum(place, 6)
    }

    fn write_checksum(&self, place: &mut [u8], offset: usize) -> Option<()> {
        let at = self.ip.upper + offset;
        place.get_mut(at..at + 2)?.fill(0);
        let sum = !upper_sum(place, &self.ip)?;
        // UDP's zero means "none"; all ones is the same sum.
        let sum = if sum == 0 && self.cut == Segmentation::Udp {
            0xFFFF
        } else {
            sum
        };
        place
            .get_mut(at..at + 2)?
            .copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

/// The sum over an IPv4 header but for length, identification and checksum; nothing for IPv6.
fn header_sum(packet: &[u8], ip: &IpHeader) -> Option<u32> {
    if ip.source.is_ipv6() {
        return Some(0);
    }
    let header = packet.get(..ip.header_len)?;
    let parts = [header.get(..2)?, header.get(6..10)?, header.get(12..)?];
    Some(parts.iter().fold(0, |sum, part| checksum::add(part, sum)))
}

/// The sum, not complemented, over pseudo-header and all that follows the IP header. Over a packet
/// with a right checksum it is all ones.
pub(crate) fn upper_sum(packet: &[u8], ip: &IpHeader) -> Option<u16> {
    let upper = packet.get(ip.upper..)?;
    let sum = pseudo_sum(packet, ip, upper.len())?;
    u16::try_from(checksum::add(upper, sum)).ok()
}

/// The sum over the pseudo-header of `upper_len` bytes.
pub(crate) fn pseudo_sum(packet: &[u8], ip: &IpHeader, upper_len: usize) -> Option<u32> {
    let addresses = if ip.source.is_ipv4() {
        packet.get(12..20)?
    } else {
        packet.get(8..40)?
    };
    let length = u32::try_from(upper_len).ok()?;
    Some(checksum::add(addresses, u32::from(ip.protocol) + length))
}

/// Finishes a checksum whose place holds the pseudo-header's sum.
fn finish_checksum(packet: &mut [u8], start: usize, at: usize) -> Option<()> {
    let sum = !u16::try_from(checksum::add(packet.get(start..)?, 0)).ok()?;
    // Zero would mean "none" in UDP (RFC 768), and for TCP both are the same sum.
    let sum = if sum == 0 { 0xFFFF } else { sum };
    packet
        .get_mut(at..at + 2)?
        .copy_from_slice(&sum.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{tcp_packet, udp_packet};

    fn header(cut: Segmentation, size: u16) -> VnetHeader {
        VnetHeader::joined(cut, false, size, (20, 16))
    }

    fn cut(header: &VnetHeader, packet: &[u8]) -> Vec<Vec<u8>> {
        let segments = Segments::plan(header, packet).unwrap();
        (0..segments.count())
            .map(|index| {
                let mut place = vec![0; segments.len(index)];
                segments.write(index, &mut place).unwrap();
                place
            })
            .collect()
    }

    proptest! {
        #[test]
        fn tcp_segments_carry_the_stream_in_order(
            v6 in any::<bool>(),
            payload in prop::collection::vec(any::<u8>(), 1..9000),
            size in 1_u16..1500,
        ) {
            let whole = tcp_packet(v6, 1000, &payload, TCP_FIN | TCP_PSH | TCP_CWR | 0x10);
            let packets = cut(&header(Segmentation::Tcp, size), &whole);
            let mut joined = Vec::new();
            for (index, packet) in packets.iter().enumerate() {
                let ip = IpHeader::parse(packet).unwrap();
                prop_assert_eq!(ip.total_len, packet.len());
                prop_assert_eq!(upper_sum(packet, &ip), Some(0xFFFF));
                let tcp = &packet[ip.upper..];
                let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
                prop_assert_eq!(usize::try_from(sequence).unwrap(), 1000 + joined.len());
                let last = index + 1 == packets.len();
                prop_assert_eq!(tcp[13] & (TCP_FIN | TCP_PSH) != 0, last);
                prop_assert_eq!(tcp[13] & TCP_CWR != 0, index == 0);
                joined.extend_from_slice(&tcp[20..]);
            }
            prop_assert_eq!(joined, payload);
        }

        #[test]
        fn udp_segments_are_whole_datagrams(
            v6 in any::<bool>(),
            payload in prop::collection::vec(any::<u8>(), 1..4000),
            size in 1_u16..1400,
        ) {
            let whole = udp_packet(v6, &payload);
            let mut joined = Vec::new();
            for packet in cut(&header(Segmentation::Udp, size), &whole) {
                let ip = IpHeader::parse(&packet).unwrap();
                prop_assert_eq!(upper_sum(&packet, &ip), Some(0xFFFF));
                let udp = &packet[ip.upper..];
                prop_assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
                joined.extend_from_slice(&udp[8..]);
            }
            prop_assert_eq!(joined, payload);
        }

        #[test]
        fn contradictory_offload_header_never_panics(
            bytes in prop::array::uniform10(any::<u8>()),
            packet in prop::collection::vec(any::<u8>(), 0..200),
            v6 in any::<bool>(),
        ) {
            let mut packet = packet;
            if let Some(first) = packet.first_mut() {
                *first = if v6 { 0x60 } else { 0x45 };
            }
            if let Ok(segments) = Segments::plan(&VnetHeader::parse(&bytes), &packet) {
                for index in 0..segments.count().min(100) {
                    let mut place = vec![0; segments.len(index)];
                    let _ = segments.write(index, &mut place);
                }
            }
        }
    }

    #[test]
    fn partial_checksum_is_completed() {
        let mut packet = tcp_packet(false, 7, b"hello", 0x18);
        let ip = IpHeader::parse(&packet).unwrap();
        let right = packet[36..38].to_vec();
        let begun = u16::try_from(pseudo_sum(&packet, &ip, 25).unwrap()).unwrap();
        packet[36..38].copy_from_slice(&begun.to_be_bytes());
        let done = cut(&header(Segmentation::None, 0), &packet);
        assert_eq!(done[0][36..38], right);
    }
}
