//! Sliced rounds on whole blocks: what the portable back end and those with narrow vectors share.

use super::portable::Portable;
use super::sliced::{Tables, Word, block_from_words, block_words, transpose};
use super::split_front;
use crate::Block;
use inout::InOutBuf;

/// A word or vector register of `N` lanes, one block each.
pub(super) trait Lanes<const N: usize>: Word {
    fn load(lanes: &[u32; N]) -> Self;
    fn store(self, lanes: &mut [u32; N]);
}

/// Encrypts up to `N` blocks; to be inlined where the vector instructions are enabled.
#[inline(always)]
pub(super) fn encrypt_batch<W: Lanes<N>, const N: usize>(
    tables: &Tables,
    mut blocks: InOutBuf<'_, '_, Block>,
) {
    let mut slices: [W; 8] = slice(blocks.get_in());
    tables.encrypt(&mut slices);
    unslice(slices, blocks.get_out());
}

/// Decrypts up to `N` blocks; to be inlined where the vector instructions are enabled.
#[inline(always)]
pub(super) fn decrypt_batch<W: Lanes<N>, const N: usize>(
    tables: &Tables,
    mut blocks: InOutBuf<'_, '_, Block>,
) {
    let mut slices: [W; 8] = slice(blocks.get_in());
    tables.decrypt(&mut slices);
    unslice(slices, blocks.get_out());
}

/// Calls `batch` for up to `width` blocks at a time, and `few` for one or two at the end, which
/// a 64-bit word takes faster.
#[inline(always)]
pub(super) fn in_batches(
    blocks: InOutBuf<'_, '_, Block>,
    width: usize,
    batch: impl Fn(InOutBuf<'_, '_, Block>),
    few: impl Fn(InOutBuf<'_, '_, Block>),
) {
    let mut rest = blocks;
    while rest.len() > Portable::WIDTH {
        let (some, others) = split_front(rest, width);
        batch(some);
        rest = others;
    }
    if !rest.is_empty() {
        few(rest);
    }
}

/// Slices up to `N` blocks; missing ones are zero.
#[inline(always)]
pub(super) fn slice<W: Lanes<N>, const N: usize>(blocks: &[Block]) -> [W; 8] {
    let mut words = [[0; N]; 8];
    for (lane, block) in blocks.iter().enumerate() {
        for (word, value) in words.iter_mut().zip(block_words(block)) {
            if let Some(slot) = word.get_mut(lane) {
                *slot = value;
            }
        }
    }
    let mut slices = [W::ZERO; 8];
    for (slice, lanes) in slices.iter_mut().zip(&words) {
        *slice = W::load(lanes);
    }
    transpose(&mut slices);
    slices
}

/// Turns slices into as many blocks as there is room for.
#[inline(always)]
pub(super) fn unslice<W: Lanes<N>, const N: usize>(mut slices: [W; 8], blocks: &mut [Block]) {
    transpose(&mut slices);
    let mut words = [[0; N]; 8];
    for (slice, lanes) in slices.into_iter().zip(&mut words) {
        slice.store(lanes);
    }
    for (lane, block) in blocks.iter_mut().enumerate() {
        *block = block_from_words(words.each_ref().map(|w| w.get(lane).copied().unwrap_or(0)));
    }
}
