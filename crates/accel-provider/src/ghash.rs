//! GHASH (NIST SP 800-38D, section 6.4), for messages that come in more than one piece.
//!
//! Without tables and branches on secret data, at some tens of megabytes a second: a message in one piece goes another way.

use zeroize::{Zeroize as _, ZeroizeOnDrop};

const BLOCK: usize = 16;
/// x^128 modulo the field's polynomial, in the bit order of GCM.
const REDUCTION: u128 = 0xe1 << 120;

/// A hash under way.
#[derive(Clone)]
pub(crate) struct Ghash {
    key: u128,
    sum: u128,
}

impl Drop for Ghash {
    fn drop(&mut self) {
        self.key.zeroize();
        self.sum.zeroize();
    }
}

impl ZeroizeOnDrop for Ghash {}

impl Ghash {
    pub(crate) fn new(key: [u8; BLOCK]) -> Self {
        Self {
            key: u128::from_be_bytes(key),
            sum: 0,
        }
    }

    /// Takes bytes with zeros up to a whole block.
    pub(crate) fn padded(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(BLOCK) {
            let mut block = [0; BLOCK];
            block
                .iter_mut()
                .zip(piece)
                .for_each(|(to, from)| *to = *from);
            self.block(block);
        }
    }

    /// Takes a whole block.
    pub(crate) fn block(&mut self, block: [u8; BLOCK]) {
        let factor = self.sum ^ u128::from_be_bytes(block);
        let (mut product, mut multiple) = (0, self.key);
        for bit in (0..128).rev() {
            // All ones if the bit is set.
            product ^= multiple & 0u128.wrapping_sub(factor >> bit & 1);
            multiple = multiple >> 1 ^ REDUCTION & 0u128.wrapping_sub(multiple & 1);
        }
        self.sum = product;
    }

    /// Takes the block of lengths, which are in bytes, and gives the hash.
    pub(crate) fn finish(mut self, aad: u64, data: u64) -> [u8; BLOCK] {
        let lengths = u128::from(aad) << 67 | u128::from(data) << 3;
        self.block(lengths.to_be_bytes());
        self.sum.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_the_specification_comes_out() {
        // "The Galois/Counter Mode of Operation", McGrew and Viega, test case 2.
        let mut hash = Ghash::new(0x66e9_4bd4_ef8a_2c3b_884c_fa59_ca34_2b2e_u128.to_be_bytes());
        hash.block(0x0388_dace_60b6_a392_f328_c2b9_71b2_fe78_u128.to_be_bytes());
        let expected = 0xf38c_bb1a_d692_23dc_c345_7ae5_b6b0_f885_u128.to_be_bytes();
        assert_eq!(hash.finish(0, 16), expected);
    }

    #[test]
    fn short_pieces_are_padded_with_zeros() {
        let mut padded = Ghash::new([7; 16]);
        padded.padded(&[1; 20]);
        let mut whole = Ghash::new([7; 16]);
        whole.block([1; 16]);
        whole.block([1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(padded.finish(0, 20), whole.finish(0, 20));
    }
}
