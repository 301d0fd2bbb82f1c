//! Views of byte buffers as blocks.
#![expect(unsafe_code, reason = "the buffer type offers no such view")]

use crate::{BLOCK_SIZE, Block};
use inout::InOutBuf;

/// Divides a byte buffer of any alignment into whole blocks and a rest of at most 31 bytes.
pub(crate) fn whole_blocks<'i, 'o>(
    bytes: InOutBuf<'i, 'o, u8>,
) -> (InOutBuf<'i, 'o, Block>, InOutBuf<'i, 'o, u8>) {
    let count = bytes.len() / BLOCK_SIZE;
    let (head, tail) = bytes.split_at(count * BLOCK_SIZE);
    let (input, output) = head.into_raw();
    // SAFETY: `head` covers `count * 32` bytes, which `count` arrays of 32 bytes fill exactly; such
    // arrays have alignment 1; equality or disjointness of the pointers is that of `head`, whose
    // lifetimes carry over, and `head` itself is used up.
    let blocks = unsafe { InOutBuf::from_raw(input.cast(), output.cast(), count) };
    (blocks, tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_rest_cover_the_buffer() {
        for len in 0..=100usize {
            let bytes: [u8; 101] = core::array::from_fn(|i| u8::try_from(i).unwrap());
            let mut out = [0u8; 101];
            let buffer = InOutBuf::new(&bytes[1..=len], &mut out[1..=len]).unwrap();
            let (mut blocks, mut tail) = whole_blocks(buffer);
            assert_eq!(blocks.len(), len / 32);
            let input = blocks.get_in().to_vec();
            blocks.get_out().copy_from_slice(&input);
            let input = tail.get_in().to_vec();
            tail.get_out().copy_from_slice(&input);
            assert_eq!(out[1..=len], bytes[1..=len]);
        }
    }
}
