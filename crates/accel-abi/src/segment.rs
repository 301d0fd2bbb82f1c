//! Entries of segment lists.

use crate::crc::crc16;

/// One entry of a segment list, 16 bytes: a piece of memory, or a link to where the list goes on.
///
/// The last two bytes check the others: an address that was damaged on its way would otherwise be
/// some other request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Device address of the piece or of the next entry.
    pub address: u64,
    /// Bytes of the piece; zero in a link, and nowhere else.
    pub length: u32,
    /// [`Self::LAST`], [`Self::LINK`] or neither; other bits are zero.
    pub flags: u16,
}

impl Segment {
    /// Bytes of an entry.
    pub const SIZE: usize = 16;
    /// Flag of the entry that ends a list.
    pub const LAST: u16 = 1;
    /// Flag of an entry that names the next entry instead of a piece.
    pub const LINK: u16 = 2;

    /// Bytes as they stand in memory.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.address.to_le_bytes();
        let [l0, l1, l2, l3] = self.length.to_le_bytes();
        let [f0, f1] = self.flags.to_le_bytes();
        let fields = [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1];
        let mut bytes = [0; Self::SIZE];
        let check = crc16(&fields).to_le_bytes();
        for (to, from) in bytes.iter_mut().zip(fields.iter().chain(&check)) {
            *to = *from;
        }
        bytes
    }

    /// An entry from memory; none if its check value is wrong. Flags are the reader's to check.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let [
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            l0,
            l1,
            l2,
            l3,
            f0,
            f1,
            c0,
            c1,
        ] = *bytes;
        let fields = [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1];
        let whole = crc16(&fields) == u16::from_le_bytes([c0, c1]);
        whole.then_some(Self {
            address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            flags: u16::from_le_bytes([f0, f1]),
        })
    }
}
