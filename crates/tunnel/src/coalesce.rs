//! Putting packets together before they are written to the TUN interface, so that the kernel handles
//! up to 64 KiB of a flow at once.
//!
//! Only neighbours that a receiver could not tell apart from one large packet are put together:
//! plain data of one flow, in sequence, alike in every header field that matters. Each packet's own
//! checksum is verified first, because the kernel does not check the joined packet's again. A packet
//! that stays alone is written untouched and the kernel checks it.

use std::io::IoSlice;
use std::ops::Range;

use ipsec::ip::{IpHeader, protocol, write_v4_checksum};
use sys::tun::{HEADER_LEN, Offload};

use crate::segment::{pseudo_sum, upper_sum};
use crate::vnet::{Segmentation, VnetHeader};

const TCP_ACK: u8 = 0x10;
const TCP_PSH: u8 = 0x08;
/// Segments of one write at most.
const MAX_PIECES: usize = 64;
/// Bytes of IP and TCP headers at most: IPv6 and TCP with all options.
const MAX_HEADERS: usize = 100;
const MAX_TOTAL: usize = 65535;

/// Takes finished writes: pieces that belong together, the offload header first.
pub trait Sink {
    fn write(&mut self, pieces: &[IoSlice<'_>]);
}

/// Packets that are being put together.
pub struct Coalescer {
    offload: Offload,
    group: Option<Group>,
    /// Payloads of the group, the first packet's first.
    pieces: Vec<Range<usize>>,
}

#[derive(Clone, Copy)]
struct Group {
    /// Offset of the first packet in the buffer.
    first: usize,
    first_len: usize,
    ip: IpHeader,
    cut: Segmentation,
    /// Bytes of IP and upper header.
    headers: usize,
    /// Payload bytes of every segment but the last.
    segment: usize,
    payload: usize,
    next_sequence: u32,
    /// No more segments: the last was short or pushed.
    closed: bool,
    pushed: bool,
}

/// A packet that could be part of a group.
struct Candidate {
    ip: IpHeader,
    cut: Segmentation,
    headers: usize,
    sequence: u32,
    pushed: bool,
}

impl Coalescer {
    /// Puts together what the interface takes as super-packets.
    pub fn new(offload: Offload) -> Self {
        Self {
            offload,
            group: None,
            pieces: Vec::with_capacity(MAX_PIECES),
        }
    }

    /// Adds a packet that lies in `buffer`; what no longer fits with it is written first.
    pub fn push(&mut self, buffer: &[u8], range: Range<usize>, sink: &mut impl Sink) {
        let Some(packet) = buffer.get(range.clone()) else {
            return;
        };
        let candidate = self.candidate(packet);
        if let Some(candidate) = &candidate
            && self.try_join(buffer, &range, packet, candidate)
        {
            return;
        }
        self.flush(buffer, sink);
        match candidate {
            Some(candidate) => self.begin(range, packet, &candidate),
            None => sink.write(&[IoSlice::new(&[0; HEADER_LEN]), IoSlice::new(packet)]),
        }
    }

    /// Writes what is there.
    pub fn flush(&mut self, buffer: &[u8], sink: &mut impl Sink) {
        if let Some(group) = self.group.take() {
            if self.pieces.len() > 1 {
                self.write_joined(buffer, &group, sink);
            } else if let Some(packet) = buffer.get(group.first..group.first + group.first_len) {
                sink.write(&[IoSlice::new(&[0; HEADER_LEN]), IoSlice::new(packet)]);
            }
        }
        self.pieces.clear();
    }

    /// Whether a packet is of the kind that is put together at all.
    fn candidate(&self, packet: &[u8]) -> Option<Candidate> {
        let ip = IpHeader::parse(packet).ok()?;
        // Options and extension headers may differ from segment to segment: such packets stay as they are.
        let plain = ip.header_len == if ip.source.is_ipv4() { 20 } else { 40 };
        if !plain || ip.upper != ip.header_len || ip.fragment || ip.total_len != packet.len() {
            return None;
        }
        let upper = packet.get(ip.upper..)?;
        match (self.offload, ip.protocol) {
            (Offload::Tcp | Offload::TcpAndUdp, protocol::TCP) => {
                let flags = *upper.get(13)?;
                let headers = ip.upper + usize::from(upper.get(12)? >> 4) * 4;
                // Everything else changes the connection: SYN, FIN, RST, URG and the congestion bits must arrive as they were sent.
                if flags & !TCP_PSH != TCP_ACK || headers < ip.upper + 20 || headers >= packet.len()
                {
                    return None;
                }
                let sequence = u32::from_be_bytes(*upper.get(4..)?.first_chunk::<4>()?);
                Some(Candidate {
                    ip,
                    cut: Segmentation::Tcp,
                    headers,
                    sequence,
                    pushed: flags & TCP_PSH != 0,
                })
            }
            (Offload::TcpAndUdp, protocol::UDP) => {
                let headers = ip.upper + 8;
                let length = usize::from(u16::from_be_bytes(*upper.get(4..)?.first_chunk::<2>()?));
                // Without a checksum nobody could say of the whole whether its parts were right.
                let has_checksum = upper.get(6..8)? != [0, 0];
                (headers < packet.len() && length == upper.len() && has_checksum).then_some(
                    Candidate {
                        ip,
                        cut: Segmentation::Udp,
                        headers,
                        sequence: 0,
                        pushed: false,
                    },
                )
            }
            _ => None,
        }
    }

    fn begin(&mut self, range: Range<usize>, packet: &[u8], candidate: &Candidate) {
        let payload = packet.len() - candidate.headers;
        self.pieces.push(range.start + candidate.headers..range.end);
        self.group = Some(Group {
            first: range.start,
            first_len: packet.len(),
            ip: candidate.ip,
            cut: candidate.cut,
            headers: candidate.headers,
            segment: payload,
            payload,
            next_sequence: candidate
                .sequence
                .wrapping_add(u32::try_from(payload).unwrap_or(0)),
            // The sender wants its data delivered now.
            closed: candidate.pushed,
            pushed: candidate.pushed,
        });
    }

    fn try_join(
        &mut self,
        buffer: &[u8],
        range: &Range<usize>,
        packet: &[u8],
        candidate: &Candidate,
    ) -> bool {
        let Some(group) = &mut self.group else {
            return false;
        };
        let payload = packet.len() - candidate.headers;
        let fits = !group.closed
            && group.cut == candidate.cut
            && group.headers == candidate.headers
            // The kernel cuts into pieces of one size, of which only the last may be smaller.
            && payload <= group.segment
            && self.pieces.len() < MAX_PIECES
            && group.headers + group.payload + payload <= MAX_TOTAL
            // Datagrams have no order among them; a stream with a hole would get other bytes in it.
            && (candidate.cut == Segmentation::Udp || group.next_sequence == candidate.sequence);
        if !fits {
            return false;
        }
        let Some(first) = buffer.get(group.first..group.first + group.first_len) else {
            return false;
        };
        if !alike(first, packet, &group.ip, group.cut).unwrap_or(false) {
            return false;
        }
        let valid = |packet: &[u8], ip: &IpHeader| upper_sum(packet, ip) == Some(0xFFFF);
        // The first is checked when it stops being alone.
        if (self.pieces.len() == 1 && !valid(first, &group.ip)) || !valid(packet, &candidate.ip) {
            return false;
        }
        self.pieces.push(range.start + candidate.headers..range.end);
        group.payload += payload;
        group.next_sequence = group
            .next_sequence
            .wrapping_add(u32::try_from(payload).unwrap_or(0));
        group.pushed = candidate.pushed;
        // After a short one nothing fits any more.
        group.closed = candidate.pushed || payload < group.segment;
        true
    }

    fn write_joined(&self, buffer: &[u8], group: &Group, sink: &mut impl Sink) {
        let mut headers = [0; MAX_HEADERS];
        let first = buffer.get(group.first..group.first + group.headers);
        let Some((headers, first)) = headers.get_mut(..group.headers).zip(first) else {
            return;
        };
        headers.copy_from_slice(first);
        let Some(vnet) = joined_headers(headers, group) else {
            return;
        };
        let mut pieces = [IoSlice::new(&[]); MAX_PIECES + 2];
        let [head, second, rest @ ..] = &mut pieces;
        *head = IoSlice::new(&vnet);
        *second = IoSlice::new(headers);
        for (piece, range) in rest.iter_mut().zip(&self.pieces) {
            *piece = IoSlice::new(buffer.get(range.clone()).unwrap_or_default());
        }
        sink.write(pieces.get(..self.pieces.len() + 2).unwrap_or_default());
    }
}

/// Makes the first packet's headers those of the whole; returns the offload header.
fn joined_headers(headers: &mut [u8], group: &Group) -> Option<[u8; HEADER_LEN]> {
    let total = group.headers + group.payload;
    let upper_len = total - group.ip.upper;
    let v6 = group.ip.source.is_ipv6();
    if v6 {
        let length = u16::try_from(total - 40).ok()?.to_be_bytes();
        headers.get_mut(4..6)?.copy_from_slice(&length);
    } else {
        headers
            .get_mut(2..4)?
            .copy_from_slice(&u16::try_from(total).ok()?.to_be_bytes());
        write_v4_checksum(headers, group.ip.header_len)?;
    }
    let offset = match group.cut {
        Segmentation::Tcp => {
            if group.pushed {
                *headers.get_mut(group.ip.upper + 13)? |= TCP_PSH;
            }
            16
        }
        Segmentation::Udp | Segmentation::None => {
            let length = u16::try_from(upper_len).ok()?.to_be_bytes();
            headers
                .get_mut(group.ip.upper + 4..group.ip.upper + 6)?
                .copy_from_slice(&length);
            6
        }
    };
    // The kernel finishes the checksum when it cuts or delivers: it wants the sum over the pseudo-header.
    let begun = u16::try_from(pseudo_sum(headers, &group.ip, upper_len)?).ok()?;
    let at = group.ip.upper + offset;
    headers
        .get_mut(at..at + 2)?
        .copy_from_slice(&begun.to_be_bytes());
    let checksum = (
        u16::try_from(group.ip.upper).ok()?,
        u16::try_from(offset).ok()?,
    );
    let segment = u16::try_from(group.segment).ok()?;
    Some(
        VnetHeader::joined(group.cut, v6, segment, checksum)
            .to_bytes(u16::try_from(group.headers).ok()?),
    )
}

/// Whether two packets differ only in what segments of one packet differ in.
fn alike(first: &[u8], next: &[u8], ip: &IpHeader, cut: Segmentation) -> Option<bool> {
    let same = |range: Range<usize>| Some(first.get(range.clone())? == next.get(range)?);
    let ip_same = if ip.source.is_ipv4() {
        // All but length, identification and header checksum.
        same(0..2)? && same(6..10)? && same(12..20)?
    } else {
        // All but the length.
        same(0..4)? && same(6..40)?
    };
    let upper = ip.upper;
    Some(match cut {
        // Ports; acknowledgement and data offset; window; urgent pointer and options.
        Segmentation::Tcp => {
            let headers = upper + usize::from(first.get(upper + 12)? >> 4) * 4;
            ip_same
                && same(upper..upper + 4)?
                && same(upper + 8..upper + 13)?
                && same(upper + 14..upper + 16)?
                && same(upper + 18..headers)?
        }
        Segmentation::Udp | Segmentation::None => ip_same && same(upper..upper + 4)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::Segments;
    use crate::testing::{tcp_packet, udp_packet};

    #[derive(Default)]
    struct Written(Vec<Vec<u8>>);

    impl Sink for Written {
        fn write(&mut self, pieces: &[IoSlice<'_>]) {
            self.0.push(
                pieces
                    .iter()
                    .flat_map(|piece| piece.iter().copied())
                    .collect(),
            );
        }
    }

    fn coalesce(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let buffer = packets.concat();
        let (mut coalescer, mut sink) = (Coalescer::new(Offload::TcpAndUdp), Written::default());
        let mut at = 0;
        for packet in packets {
            coalescer.push(&buffer, at..at + packet.len(), &mut sink);
            at += packet.len();
        }
        coalescer.flush(&buffer, &mut sink);
        sink.0
    }

    fn cut(vnet: &[u8], packet: &[u8]) -> Vec<Vec<u8>> {
        let header = VnetHeader::parse(vnet.first_chunk().unwrap());
        let segments = Segments::plan(&header, packet).unwrap();
        (0..segments.count())
            .map(|index| {
                let mut place = vec![0; segments.len(index)];
                segments.write(index, &mut place).unwrap();
                place
            })
            .collect()
    }

    proptest! {
        /// Checks that the kernel's cutting gives back what went in, whatever was sent in whatever order.
        #[test]
        fn segmenting_a_coalesced_packet_returns_the_original(
            v6 in any::<bool>(),
            sizes in prop::collection::vec(prop::sample::select(vec![1_usize, 100, 700, 1400]), 1..80),
            gaps in prop::collection::vec(prop::sample::select(vec![0_u32, 0, 0, 0, 9]), 80),
            flags in prop::collection::vec(prop::sample::select(vec![0x10_u8, 0x10, 0x10, 0x18, 0x11]), 80),
            udp in any::<bool>(),
        ) {
            let mut sequence = u32::MAX - 5000;
            let mut packets = Vec::new();
            for ((size, gap), flags) in sizes.iter().zip(gaps).zip(flags) {
                sequence = sequence.wrapping_add(gap);
                let payload: Vec<u8> = (0..*size).map(|n| u8::try_from(n % 251).unwrap()).collect();
                let mut packet = if udp {
                    udp_packet(v6, &payload)
                } else {
                    tcp_packet(v6, sequence, &payload, flags)
                };
                // Identifications count up, as a sender's do.
                if !v6 {
                    let id = u16::try_from(packets.len()).unwrap().to_be_bytes();
                    packet[4..6].copy_from_slice(&id);
                    write_v4_checksum(&mut packet, 20).unwrap();
                }
                packets.push(packet);
                sequence = sequence.wrapping_add(u32::try_from(*size).unwrap());
            }
            let written = coalesce(&packets);
            let back: Vec<Vec<u8>> =
                written.iter().flat_map(|write| cut(write, &write[HEADER_LEN..])).collect();
            prop_assert_eq!(back, packets);
        }
    }

    #[test]
    fn tcp_stream_is_coalesced_into_one_write() {
        let packets: Vec<_> = (0..40)
            .map(|n| tcp_packet(false, n * 1000, &[7; 1000], 0x10))
            .collect();
        assert_eq!(coalesce(&packets).len(), 1);
        let datagrams: Vec<_> = (0..40).map(|_| udp_packet(true, &[7; 1000])).collect();
        assert_eq!(coalesce(&datagrams).len(), 1);
    }

    /// A wrong checksum must stay wrong, not be repaired by joining.
    #[test]
    fn packet_with_wrong_checksum_is_not_coalesced() {
        for damaged in 0..3 {
            let mut packets: Vec<_> = (0..3)
                .map(|n| tcp_packet(false, n * 100, &[7; 100], 0x10))
                .collect();
            packets[damaged][60] ^= 1;
            let written = coalesce(&packets);
            let whole = [&[0; HEADER_LEN][..], &packets[damaged]].concat();
            assert!(written.contains(&whole), "packet {damaged} was changed");
        }
    }

    #[test]
    fn packets_with_different_headers_are_not_coalesced() {
        let change: [fn(&mut Vec<u8>); 5] = [
            |packet| packet[1] = 4,
            |packet| packet[8] = 3,
            |packet| packet[6] ^= 0x40,
            |packet| packet[28] ^= 1,
            |packet| packet[34] ^= 1,
        ];
        for change in change {
            let first = tcp_packet(false, 0, &[7; 100], 0x10);
            let mut second = tcp_packet(false, 100, &[7; 100], 0x10);
            change(&mut second);
            write_v4_checksum(&mut second, 20).unwrap();
            let ip = IpHeader::parse(&second).unwrap();
            second[36..38].fill(0);
            let sum = !upper_sum(&second, &ip).unwrap();
            second[36..38].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(coalesce(&[first, second]).len(), 2);
        }
    }
}
