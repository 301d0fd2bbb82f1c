//! Packets in one buffer, worked on in place.

use std::ops::Range;

use crate::dataplane::Frame;
use crate::drops::DropCause;
use crate::sa::{SaHandle, Spi};

/// Bytes free in front of each packet that goes out: outer IPv6 (40), UDP (8), the longest AH header
/// (48), rounded up.
pub const HEADROOM: usize = 112;
/// Bytes free behind each packet: ESP padding and trailer (18), the longest integrity value (32),
/// rounded up.
pub const TAILROOM: usize = 64;

/// Result for an outbound packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not looked at yet.
    Pending,
    /// Protected. The packet's range holds the whole outer packet; from `payload` on it is the ESP
    /// packet (behind the UDP header, where there is one) or the AH header.
    Protected {
        /// The association.
        sa: SaHandle,
        /// Offset in the buffer of the ESP or AH header.
        payload: usize,
        /// DSCP and ECN of the outer header, for a socket that writes it.
        traffic_class: u8,
    },
    /// A policy lets it go as it is.
    Bypassed,
    /// Dropped. For [`DropCause::TooBig`] the sender is to be told `mtu`.
    Dropped {
        /// Why.
        cause: DropCause,
        /// The largest packet that would have fitted; zero for other causes.
        mtu: u16,
    },
}

/// A packet that goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundPacket {
    /// Offset of its first byte in the buffer.
    pub start: usize,
    /// Its bytes.
    pub len: usize,
    /// Result for the packet.
    pub outcome: Outcome,
    /// The place it may fill.
    place: (usize, usize),
    /// The frame that it was placed in, by number.
    frame: Option<FrameIndex>,
}

/// A frame of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameIndex(usize);

impl OutboundPacket {
    /// The packet's bytes in the buffer.
    pub const fn range(&self) -> Range<usize> {
        self.start..self.start.saturating_add(self.len)
    }

    /// Bytes of the place in front of the packet.
    pub(crate) const fn room_before(&self) -> usize {
        self.start.saturating_sub(self.place.0)
    }

    /// Bytes from the packet's first byte to the end of its place.
    pub(crate) const fn room(&self) -> usize {
        self.place.1.saturating_sub(self.start)
    }

    /// The frame that it was placed in, one of `frames`.
    pub(crate) fn frame<'a>(&self, frames: &'a [Frame]) -> Option<&'a Frame> {
        frames.get(self.frame?.0)
    }
}

/// Packets that go out, one behind the other in one buffer, each with room for headers and trailer.
pub struct OutboundBatch {
    /// The bytes.
    pub buffer: Vec<u8>,
    /// The packets, in order.
    pub packets: Vec<OutboundPacket>,
    /// What was asked of the data plane when packets were placed.
    frames: Vec<Frame>,
    used: usize,
}

impl OutboundBatch {
    /// Room for `capacity` packets of `largest` bytes; more of smaller ones.
    pub fn new(capacity: usize, largest: usize) -> Self {
        Self {
            buffer: vec![0; capacity * (HEADROOM + largest + TAILROOM)],
            packets: Vec::with_capacity(capacity),
            frames: Vec::new(),
            used: 0,
        }
    }

    /// Forgets all packets; keeps the memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.frames.clear();
        self.used = 0;
    }

    /// Bytes of the buffer that packets and their room take.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Adds a packet of `len` bytes with `before` bytes free in front of it and `after` behind, and
    /// returns the packet's bytes, to be written by the caller. None when the buffer is full.
    pub fn place(&mut self, before: usize, len: usize, after: usize) -> Option<&mut [u8]> {
        self.place_at(before, len, after, None)
    }

    /// Adds a frame for packets that are placed next.
    ///
    /// What the data plane said about it is not asked again, so the batch goes to the same data plane before anything
    /// of that changes.
    pub fn add_frame(&mut self, frame: Frame) -> FrameIndex {
        self.frames.push(frame);
        FrameIndex(self.frames.len() - 1)
    }

    /// Adds a packet of `len` bytes that is the one the frame was made for, or a segment of it, and returns its bytes, to
    /// be written by the caller. None when the buffer is full.
    ///
    /// It gets the room that protection fills, so that protected packets lie side by side, as segmentation offload
    /// wants them.
    pub fn place_framed(&mut self, index: FrameIndex, len: usize) -> Option<&mut [u8]> {
        let frame = self.frames.get(index.0)?;
        let (before, after) = (frame.before, frame.after(len));
        self.place_at(before, len, after, Some(index))
    }

    fn place_at(
        &mut self,
        before: usize,
        len: usize,
        after: usize,
        frame: Option<FrameIndex>,
    ) -> Option<&mut [u8]> {
        let place = self.used;
        let start = place.checked_add(before)?;
        let end = start.checked_add(len)?;
        let place_end = end
            .checked_add(after)
            .filter(|end| *end <= self.buffer.len())?;
        self.used = place_end;
        self.packets.push(OutboundPacket {
            start,
            len,
            outcome: Outcome::Pending,
            place: (place, place_end),
            frame,
        });
        self.buffer.get_mut(start..end)
    }

    /// Copies a packet into the batch. False when there is no room for it.
    pub fn push(&mut self, packet: &[u8]) -> bool {
        match self.place(HEADROOM, packet.len(), TAILROOM) {
            Some(place) => {
                place.copy_from_slice(packet);
                true
            }
            None => false,
        }
    }

    /// Buffer, packets and frames.
    pub(crate) fn parts(&mut self) -> (&mut [u8], &mut [OutboundPacket], &[Frame]) {
        (&mut self.buffer, &mut self.packets, &self.frames)
    }

    /// A packet's bytes.
    pub fn bytes(&self, packet: &OutboundPacket) -> &[u8] {
        self.buffer.get(packet.range()).unwrap_or_default()
    }
}

/// Outer headers with which a packet reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// From.
    pub source: std::net::IpAddr,
    /// From which port, if it came in UDP; else 0.
    pub source_port: u16,
    /// To.
    pub destination: std::net::IpAddr,
    /// Outer DSCP and ECN.
    pub traffic_class: u8,
    /// Whether it came in UDP.
    pub in_udp: bool,
}

/// Result for an inbound packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Not looked at yet.
    Pending,
    /// Verified, decrypted and allowed: the packet's range holds the inner packet.
    Delivered {
        /// The association it came by.
        spi: Spi,
    },
    /// Dropped.
    Dropped(DropCause),
}

/// A packet that came in, lying in a buffer of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundPacket {
    /// Offset of the ESP or AH header; afterwards of the inner packet.
    pub start: usize,
    /// Bytes from there to the end.
    pub len: usize,
    /// Offset of the outer IP header in the same buffer, where it is there: always for AH, and for
    /// ESP from a raw socket. From a UDP socket it is not.
    pub ip_header: Option<usize>,
    /// Bytes in front of `start` that may be overwritten; the packets before this one in the batch may
    /// lie there. Transport mode without an IP header rebuilds one: 12 bytes suffice for IPv4.
    pub room_before: usize,
    /// Outer headers of the packet.
    pub arrival: Arrival,
    /// Result for the packet.
    pub outcome: Arrived,
}

impl InboundPacket {
    /// The packet's bytes in the buffer.
    pub const fn range(&self) -> Range<usize> {
        self.start..self.start.saturating_add(self.len)
    }
}
