//! One block after the other, on the shortest path: for CBC encryption, where each block waits
//! for the one before.
//!
//! The state is four bytes of the block in the low half of each of eight lanes. In each round one
//! instruction substitutes; then, for 64 bits of the result at a time, a byte permutation picks the
//! byte that holds each bit, a mask keeps that bit, and a matrix product packs eight of them
//! (parities of one bit each) into a byte of its own. The four results are added.
//!
//! On an AMD Zen 5 this path is 3 + 5 + 2 + 3 + 4 = 17 cycles per round by the measured latencies;
//! 18 are seen. Testing bits into mask registers (`vpshufbitqmb`, 13 cycles to come back as a
//! vector) is longer, and so is the detour of the parallel form through bit slices. To pick from two
//! partial sums (`vpermi2b`) and so to save an addition gained one percent there, and that
//! instruction is slow on Intel's processors.

use super::V;
use super::tables::Tables;
use crate::Block;
use core::arch::x86_64::*;
use inout::InOutBuf;

/// Encrypts a state; gives the result and its sum with `next`, which costs no time on the path.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
fn encrypt(tables: &Tables, mut state: V, next: V) -> (V, V) {
    let pack = [
        _mm512_set1_epi64(0xFF),
        _mm512_set1_epi64(0xFF << 8),
        _mm512_set1_epi64(0xFF << 16),
        _mm512_set1_epi64(0xFF << 24),
    ];
    let (mut r, mut left) = (0, tables.count);
    loop {
        let round = &tables.rounds[r];
        let substituted = _mm512_gf2p8affineinv_epi64_epi8::<0x63>(state, round.lanes.get());
        let mut packed = pack;
        for (g, v) in packed.iter_mut().enumerate() {
            let picked = _mm512_permutexvar_epi8(round.pick[g].get(), substituted);
            let bits = _mm512_and_si512(picked, round.mask[g].get());
            *v = _mm512_gf2p8affine_epi64_epi8::<0>(*v, bits);
        }
        let [a, b, c, d] = packed;
        // The four have no byte in common: XOR and OR are the same.
        state = xor3(_mm512_xor_si512(a, b), c, d);
        left -= 1;
        if left == 0 {
            return (state, xor3(xor3(a, b, next), c, d));
        }
        r = if r + 1 == tables.period { 0 } else { r + 1 };
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor3(a: V, b: V, c: V) -> V {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn spread(block: &Block) -> V {
    // SAFETY: the reference is valid for the 32 bytes read; the instruction needs no alignment.
    _mm512_cvtepu32_epi64(unsafe { _mm256_loadu_si256(block.as_ptr().cast()) })
}

#[target_feature(enable = "avx512f")]
#[inline]
fn gather(block: &mut Block, state: V) {
    // SAFETY: the reference is valid for the 32 bytes written; the instruction needs no alignment.
    unsafe { _mm256_storeu_si256(block.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(state)) }
}

/// Encrypts one block after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn encrypt_blocks(tables: &Tables, blocks: InOutBuf<'_, '_, Block>) {
    for mut block in blocks {
        let (state, _) = encrypt(tables, spread(block.get_in()), _mm512_setzero_si512());
        gather(block.get_out(), state);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn cbc_encrypt(tables: &Tables, value: &mut Block, blocks: InOutBuf<'_, '_, Block>) {
    let mut blocks = blocks.into_iter();
    let Some(mut block) = blocks.next() else {
        return;
    };
    let mut mixed = _mm512_xor_si512(spread(value), spread(block.get_in()));
    loop {
        // The next text is read before this block is written; they do not overlap.
        let following = blocks.next();
        let text = following
            .as_ref()
            .map_or(_mm512_setzero_si512(), |b| spread(b.get_in()));
        let state;
        (state, mixed) = encrypt(tables, mixed, text);
        gather(block.get_out(), state);
        match following {
            Some(b) => block = b,
            None => return gather(value, state),
        }
    }
}
