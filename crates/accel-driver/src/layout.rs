//! The driver's use of registered memory.

use accel_abi::{IV_MAX, RING_MAX, RING_MIN, Segment, TAG_MAX, TRANSFER_MAX, descriptor};

/// Offsets in registered memory: the ring, then for each descriptor its lists and buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) ring_size: u32,
    /// Most bytes of a source, and of a destination without its tag.
    pub(crate) buffer: usize,
}

/// Distances are multiples of this: no two pieces share a cache line.
const LINE: usize = 64;
const LISTS: usize = 2 * LINE;
const _: () = assert!(Segment::SIZE <= LINE && IV_MAX <= LINE);

impl Layout {
    /// The layout; none if the ring's size or the buffers are out of bounds.
    pub(crate) fn new(ring_size: u32, buffer: usize) -> Option<Self> {
        let sized = (RING_MIN..=RING_MAX).contains(&ring_size) && ring_size.is_power_of_two();
        let held = (LINE..=TRANSFER_MAX as usize - TAG_MAX).contains(&buffer);
        (sized && held).then_some(Self { ring_size, buffer })
    }

    fn stride(self) -> usize {
        LISTS + 2 * (self.buffer + TAG_MAX).next_multiple_of(LINE)
    }

    /// Bytes of registered memory that it takes.
    pub(crate) fn total(self) -> usize {
        self.ring_size as usize * (descriptor::SIZE + self.stride())
    }

    /// Offset of a descriptor.
    pub(crate) fn descriptor(self, index: u32) -> usize {
        index as usize * descriptor::SIZE
    }

    /// Offset of the source's list.
    pub(crate) fn source_list(self, index: u32) -> usize {
        self.descriptor(self.ring_size) + index as usize * self.stride()
    }

    /// Offset of the destination's list.
    pub(crate) fn destination_list(self, index: u32) -> usize {
        self.source_list(index) + LINE
    }

    /// Offset of the source.
    pub(crate) fn source(self, index: u32) -> usize {
        self.source_list(index) + LISTS
    }

    /// Offset of the destination.
    pub(crate) fn destination(self, index: u32) -> usize {
        self.source(index) + (self.buffer + TAG_MAX).next_multiple_of(LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_one_another_and_fit() {
        for (ring_size, buffer) in [(2, 64), (8, 1500), (1024, 65536)] {
            let layout = Layout::new(ring_size, buffer).unwrap();
            let mut end = layout.descriptor(ring_size);
            for index in 0..ring_size {
                assert_eq!(layout.source_list(index), end);
                assert!(layout.source_list(index).is_multiple_of(Segment::SIZE));
                assert!(layout.destination_list(index) + Segment::SIZE <= layout.source(index));
                assert!(layout.source(index) + buffer <= layout.destination(index));
                end = layout.destination(index) + (buffer + TAG_MAX).next_multiple_of(LINE);
            }
            assert_eq!(end, layout.total());
        }
        for (ring_size, buffer) in [(0, 64), (1, 64), (3, 64), (2048, 64), (8, 0), (8, 1 << 20)] {
            assert!(Layout::new(ring_size, buffer).is_none());
        }
    }
}
