//! AES-CBC (NIST SP 800-38A §6.2). Encryption is one chain per packet, each step waiting for the one
//! before; so sixteen packets go side by side, four per vector. Decryption has no such chain.

use core::arch::x86_64::*;

use super::aes::{LONG, RoundKeys, SHORT};
use super::vector::{detected, load, load_block, load_part, store, store_part};

/// Packets side by side: four vectors of four blocks keep the cipher's pipeline full.
pub(crate) const LANES: usize = 16;

/// A text to encrypt: whole blocks of the buffer, the initialisation vector right in front of them.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// Offset of the first block.
    pub(crate) start: usize,
    /// Number of blocks, at least one.
    pub(crate) blocks: usize,
}

/// AES-CBC with one key in one direction.
pub(crate) struct CbcKernel {
    keys: RoundKeys,
}

impl CbcKernel {
    /// Sets up a key of 16 or 32 bytes for encryption. None for other sizes and where the processor
    /// lacks the instructions.
    pub(crate) fn encrypting(key: &[u8]) -> Option<Self> {
        if !detected() {
            return None;
        }
        // SAFETY: the features were just detected.
        let keys = unsafe { RoundKeys::encrypting(key)? };
        Some(Self { keys })
    }

    /// As [`encrypting`](Self::encrypting), for decryption.
    pub(crate) fn decrypting(key: &[u8]) -> Option<Self> {
        if !detected() {
            return None;
        }
        // SAFETY: the features were just detected.
        let keys = unsafe { RoundKeys::decrypting(key)? };
        Some(Self { keys })
    }

    /// Encrypts single blocks, for initialisation vectors.
    pub(crate) fn encrypt_blocks(&self, blocks: &mut [[u8; 16]; LANES]) {
        // SAFETY: a kernel exists only where the features were detected.
        unsafe {
            if self.keys.are_long() {
                self.encrypt_blocks_with_features::<LONG>(blocks);
            } else {
                self.encrypt_blocks_with_features::<SHORT>(blocks);
            }
        }
    }

    /// Encrypts texts in place, a new one taking the lane of one that ended. None where a text
    /// reaches out of the buffer; what was not begun by then is left alone.
    pub(crate) fn encrypt(
        &self,
        buffer: &mut [u8],
        texts: &mut dyn Iterator<Item = Text>,
    ) -> Option<()> {
        let mut lanes = [Text {
            start: 0,
            blocks: 0,
        }; LANES];
        let mut chains = [[0; 16]; LANES];
        loop {
            for (lane, chain) in lanes.iter_mut().zip(&mut chains) {
                if lane.blocks == 0
                    && let Some(text) = texts.next()
                {
                    let iv = buffer.get(text.start.checked_sub(16)?..)?;
                    *chain = *iv.first_chunk()?;
                    *lane = text;
                }
            }
            let active = |lane: &&Text| lane.blocks != 0;
            let Some(steps) = lanes.iter().filter(active).map(|lane| lane.blocks).min() else {
                break;
            };
            // A lane without work does what the first busy one does: the same bytes, written twice.
            let (copied, chain) = lanes.iter().zip(&chains).find(|(lane, _)| active(lane))?;
            let (copied, chain) = (copied.start, *chain);
            let mut starts = [copied; LANES];
            for ((lane, start), place) in lanes.iter().zip(&mut starts).zip(&mut chains) {
                if lane.blocks == 0 {
                    *place = chain;
                } else {
                    *start = lane.start;
                }
            }
            // SAFETY: a kernel exists only where the features were detected.
            unsafe {
                if self.keys.are_long() {
                    self.steps::<LONG>(buffer, &starts, &mut chains, steps)?;
                } else {
                    self.steps::<SHORT>(buffer, &starts, &mut chains, steps)?;
                }
            }
            for lane in lanes.iter_mut().filter(|lane| lane.blocks != 0) {
                lane.blocks -= steps;
                lane.start += steps * 16;
            }
        }
        Some(())
    }

    /// Decrypts `text` in place. None unless it consists of whole blocks.
    pub(crate) fn decrypt(&self, iv: &[u8; 16], text: &mut [u8]) -> Option<()> {
        if !text.len().is_multiple_of(16) {
            return None;
        }
        // SAFETY: a kernel exists only where the features were detected.
        unsafe {
            if self.keys.are_long() {
                self.decrypt_with_features::<LONG>(iv, text);
            } else {
                self.decrypt_with_features::<SHORT>(iv, text);
            }
        }
        Some(())
    }

    #[target_feature(enable = "avx512f,vaes")]
    fn encrypt_blocks_with_features<const ROUNDS: usize>(&self, blocks: &mut [[u8; 16]; LANES]) {
        let mut vectors = [_mm512_setzero_si512(); 4];
        let bytes = blocks.as_flattened_mut().as_chunks_mut::<64>().0;
        for (vector, bytes) in vectors.iter_mut().zip(&*bytes) {
            *vector = load(bytes);
        }
        let vectors = self.keys.encrypt::<4, ROUNDS>(vectors);
        for (vector, bytes) in vectors.into_iter().zip(bytes) {
            store(bytes, vector);
        }
    }

    /// Moves each of sixteen chains `steps` blocks on. None where one would leave the buffer.
    #[target_feature(enable = "avx512f,vaes")]
    fn steps<const ROUNDS: usize>(
        &self,
        buffer: &mut [u8],
        starts: &[usize; LANES],
        chains: &mut [[u8; 16]; LANES],
        steps: usize,
    ) -> Option<()> {
        let reach = steps.checked_mul(16)?;
        let highest = starts.iter().max()?.checked_add(reach)?;
        buffer.get(..highest)?;
        let base = buffer.as_mut_ptr();
        let mut state = [_mm512_setzero_si512(); 4];
        for (vector, chain) in state.iter_mut().zip(chains.as_flattened().as_chunks().0) {
            *vector = load(chain);
        }
        let (starts, _) = starts.as_chunks::<4>();
        for offset in (0..reach).step_by(16) {
            for (vector, [a, b, c, d]) in state.iter_mut().zip(starts) {
                // SAFETY: each start plus `reach` lies within the buffer, as checked above, and
                // `offset` is at most `reach - 16`, so 16 bytes may be read there.
                let [a, b, c, d] = [a, b, c, d]
                    .map(|start| unsafe { _mm_loadu_si128(base.add(start + offset).cast()) });
                *vector = _mm512_xor_si512(*vector, join([a, b, c, d]));
            }
            state = self.keys.encrypt::<4, ROUNDS>(state);
            for (vector, starts) in state.iter().zip(starts) {
                for (block, start) in split(*vector).into_iter().zip(starts) {
                    // SAFETY: as for the reads; `base` comes from a unique borrow of the buffer.
                    unsafe { _mm_storeu_si128(base.add(start + offset).cast(), block) };
                }
            }
        }
        let chains = chains.as_flattened_mut().as_chunks_mut().0;
        for (vector, chains) in state.into_iter().zip(chains) {
            store(chains, vector);
        }
        Some(())
    }

    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    fn decrypt_with_features<const ROUNDS: usize>(&self, iv: &[u8; 16], text: &mut [u8]) {
        // The vector before, of which only the last block counts.
        let mut before = join([load_block(iv); 4]);
        let (groups, rest) = text.as_chunks_mut::<256>();
        for group in groups {
            let texts = group.as_chunks_mut::<64>().0;
            let mut blocks = [before; 4];
            let mut masks = blocks;
            for ((block, mask), text) in blocks.iter_mut().zip(&mut masks).zip(&*texts) {
                *block = load(text);
                *mask = chained(before, *block);
                before = *block;
            }
            let blocks = self.keys.decrypt::<4, ROUNDS>(blocks);
            for ((block, mask), text) in blocks.into_iter().zip(masks).zip(texts) {
                store(text, _mm512_xor_si512(block, mask));
            }
        }
        for part in rest.chunks_mut(64) {
            let block = load_part(part);
            let mask = chained(before, block);
            before = block;
            let [block] = self.keys.decrypt::<1, ROUNDS>([block]);
            store_part(part, _mm512_xor_si512(block, mask));
        }
    }
}

/// Builds what is added to four blocks after decryption: the last block of the vector before them, then the
/// first three of their own.
#[inline]
#[target_feature(enable = "avx512f")]
fn chained(before: __m512i, blocks: __m512i) -> __m512i {
    _mm512_alignr_epi64::<6>(blocks, before)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn join([a, b, c, d]: [__m128i; 4]) -> __m512i {
    let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b);
    let high = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(c), d);
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn split(vector: __m512i) -> [__m128i; 4] {
    [
        _mm512_castsi512_si128(vector),
        _mm512_extracti32x4_epi32::<1>(vector),
        _mm512_extracti32x4_epi32::<2>(vector),
        _mm512_extracti32x4_epi32::<3>(vector),
    ]
}
