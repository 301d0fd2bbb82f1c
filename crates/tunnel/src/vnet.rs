//! `virtio_net_hdr`: what stands in front of each packet of a TUN interface with offload
//! (linux/virtio_net.h). Fields are in the machine's byte order.

use sys::tun::HEADER_LEN;

/// The checksum is only begun: it has to be finished from `checksum_start` on.
pub const NEEDS_CHECKSUM: u8 = 1;

/// How a packet is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    None,
    /// TCP over IPv4 or IPv6.
    Tcp,
    Udp,
}

const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// May be set beside the TCP types.
const GSO_ECN: u8 = 0x80;

/// A read header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`NEEDS_CHECKSUM`] or zero; other bits are left alone.
    pub flags: u8,
    kind: u8,
    /// Payload bytes of each segment.
    pub segment_size: u16,
    /// Where the checksum covers from.
    pub checksum_start: u16,
    /// Where it lies, from there.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Reads a header.
    pub const fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        let [flags, kind, _, _, s0, s1, c0, c1, o0, o1] = *bytes;
        Self {
            flags,
            kind,
            segment_size: u16::from_ne_bytes([s0, s1]),
            checksum_start: u16::from_ne_bytes([c0, c1]),
            checksum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// The header of segments put together.
    pub const fn joined(
        cut: Segmentation,
        v6: bool,
        segment_size: u16,
        (checksum_start, checksum_offset): (u16, u16),
    ) -> Self {
        let kind = match (cut, v6) {
            (Segmentation::None, _) => GSO_NONE,
            (Segmentation::Tcp, false) => GSO_TCP_V4,
            (Segmentation::Tcp, true) => GSO_TCP_V6,
            (Segmentation::Udp, _) => GSO_UDP,
        };
        Self {
            flags: NEEDS_CHECKSUM,
            kind,
            segment_size,
            checksum_start,
            checksum_offset,
        }
    }

    /// The bytes for the kernel. `header_len` is the length of all headers of the packet.
    pub const fn to_bytes(self, header_len: u16) -> [u8; HEADER_LEN] {
        let [h0, h1] = header_len.to_ne_bytes();
        let [s0, s1] = self.segment_size.to_ne_bytes();
        let [c0, c1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.kind, h0, h1, s0, s1, c0, c1, o0, o1]
    }

    /// How the packet is to be cut; none for ways that were never asked for.
    pub const fn cut(&self) -> Option<Segmentation> {
        match self.kind & !GSO_ECN {
            GSO_NONE => Some(Segmentation::None),
            GSO_TCP_V4 | GSO_TCP_V6 => Some(Segmentation::Tcp),
            GSO_UDP => Some(Segmentation::Udp),
            _ => None,
        }
    }
}
