//! What lies in front of an ESP packet's text, and what of it is authenticated.

use crate::mac::sequence_upper;

/// Direction in which a key is used. One key protects packets in one direction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// [`Transform::seal`](crate::Transform::seal) may be called.
    Seal,
    /// [`Transform::open`](crate::Transform::open) may be called.
    Open,
}

/// Bytes of SPI and sequence number.
pub const HEADER_LEN: usize = 8;

/// Additional authenticated data of a combined mode (RFC 4106 §5, RFC 4309 §5).
pub(crate) struct Aad {
    bytes: [u8; 12],
    len: usize,
}

impl Aad {
    /// Of a packet that begins with SPI and sequence number; with `extended` the upper half of the number
    /// stands between them.
    pub(crate) fn new(message: &[u8], sequence: u64, extended: bool) -> Option<Self> {
        let (spi, rest) = message.split_first_chunk::<4>()?;
        let low = rest.first_chunk::<4>()?;
        let mut aad = Self {
            bytes: [0; 12],
            len: HEADER_LEN,
        };
        let (first, rest) = aad.bytes.split_first_chunk_mut::<4>()?;
        let (second, third) = rest.split_first_chunk_mut::<4>()?;
        *first = *spi;
        if extended {
            *second = sequence_upper(sequence);
            third.copy_from_slice(low);
            aad.len = 12;
        } else {
            *second = *low;
        }
        Some(aad)
    }
}

impl AsRef<[u8]> for Aad {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}
