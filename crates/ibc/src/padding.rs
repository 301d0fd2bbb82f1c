//! PKCS#7 padding to blocks of 32 bytes (specification, section 4).
//!
//! The check does not branch on the padding and gives one error for every failure. It can not
//! hide *that* the padding was wrong: a receiver that shows this to an attacker needs a MAC that
//! is checked before anything is decrypted.

use crate::{BLOCK_SIZE, Block};

/// Block size as the pad byte of a whole block of padding.
const FULL: u16 = 32;
const _: () = assert!(FULL as usize == BLOCK_SIZE);

/// The last block does not end in valid padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid padding")]
pub struct PaddingError;

/// Writes the padding of a message of `len` bytes into its last block.
///
/// `last` holds the `len % 32` payload bytes that are left after the whole blocks; the rest is
/// overwritten. If `len` is a multiple of 32, the result is a block of padding alone.
pub fn pad(len: usize, last: &mut Block) {
    let payload = len % BLOCK_SIZE;
    let fill = u8::try_from(BLOCK_SIZE - payload).unwrap_or(u8::MAX); // 1 to 32
    for byte in last.iter_mut().skip(payload) {
        *byte = fill;
    }
}

/// Checks the padding of a decrypted last block and returns how many payload bytes it holds,
/// 0 to 31.
///
/// Runs in constant time up to the result.
///
/// # Errors
/// [`PaddingError`], whatever is wrong with it.
pub fn unpad(last: &Block) -> Result<usize, PaddingError> {
    let [.., fill] = last.map(u16::from);
    // The one branch: whether the padding is valid is the result.
    if wrong_bits(last) == 0 {
        Ok(usize::from(FULL - fill))
    } else {
        Err(PaddingError)
    }
}

/// Returns 0 if the block ends in valid padding; any other number means an error.
///
/// Not inlined, so that no part of it can be skipped for the sake of the verdict.
#[inline(never)]
fn wrong_bits(last: &Block) -> u16 {
    let [.., fill] = last.map(u16::from);
    // Differences below zero have their high bits set.
    let mut wrong = fill.wrapping_sub(1) >> 8 | FULL.wrapping_sub(fill) >> 8;
    for (distance, byte) in (1u16..).zip(last.iter().rev()) {
        // All ones left of the padding, where anything may stand.
        let outside = (fill.wrapping_sub(distance) >> 15).wrapping_neg();
        wrong |= (u16::from(*byte) ^ fill) & !outside;
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        for len in 0..=96usize {
            let mut block = [0xA5; 32];
            pad(len, &mut block);
            assert_eq!(unpad(&block), Ok(len % 32));
            assert!(block.iter().take(len % 32).all(|&b| b == 0xA5));
        }
    }

    #[test]
    fn every_wrong_byte_is_refused() {
        for payload in 0..32usize {
            for wrong in payload..32 {
                let mut block = [0u8; 32];
                pad(payload, &mut block);
                block[wrong] ^= 0x80;
                assert_eq!(
                    unpad(&block),
                    Err(PaddingError),
                    "payload {payload}, byte {wrong}"
                );
            }
        }
    }

    #[test]
    fn pad_lengths_outside_1_to_32_are_refused() {
        for fill in [0u8, 33, 34, 128, 255] {
            assert_eq!(unpad(&[fill; 32]), Err(PaddingError));
        }
        assert_eq!(unpad(&[32; 32]), Ok(0));
    }

    #[test]
    fn any_last_byte_agrees_with_the_plain_rule() {
        for fill in 0..=255u8 {
            for run in 0..=32usize {
                let mut block = [fill ^ 1; 32];
                block.iter_mut().rev().take(run).for_each(|b| *b = fill);
                let fill = usize::from(block[31]);
                let plain = (1..=32).contains(&fill)
                    && block
                        .iter()
                        .rev()
                        .take(fill)
                        .all(|&b| usize::from(b) == fill);
                assert_eq!(unpad(&block).ok(), plain.then(|| 32 - fill));
            }
        }
    }
}
