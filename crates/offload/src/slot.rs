//! Where a packet lies in a batch's buffer.

use std::ops::Range;

/// One packet of a batch: a range of the batch's buffer and the packet's sequence number.
///
/// Slots of one batch never overlap. An engine works on each slot in place and reports per slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Offset of the packet's first byte in the buffer.
    pub start: usize,
    /// Bytes from there to the end of the integrity value.
    pub len: usize,
    /// All 64 bits of the sequence number; without extended numbers the upper half is zero.
    pub sequence: u64,
    /// False once something was wrong with this packet. Engines leave such slots alone; what their
    /// bytes hold afterwards is undefined, so the caller drops them.
    pub valid: bool,
}

impl Slot {
    /// A slot that holds a packet.
    pub const fn new(start: usize, len: usize, sequence: u64) -> Self {
        Self {
            start,
            len,
            sequence,
            valid: true,
        }
    }

    /// The slot's bytes in the buffer.
    pub const fn range(&self) -> Range<usize> {
        self.start..self.start.saturating_add(self.len)
    }
}
