//! AES round keys (FIPS 197 §5.2) and rounds on four blocks per vector.

use core::arch::x86_64::*;

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::vector::{load_block, store_block};

/// Rounds of AES-128 between the first key and the last (FIPS 197 §5).
pub(super) const SHORT: usize = 9;
/// Rounds of AES-256 between the first key and the last.
pub(super) const LONG: usize = 13;
/// Round keys of AES-256, the longest schedule.
const MOST_KEYS: usize = LONG + 2;

/// The round keys of one direction, cleared when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct RoundKeys {
    keys: [[u8; 16]; MOST_KEYS],
    /// Keys in use: 11 or 15.
    count: usize,
}

impl RoundKeys {
    /// The schedule for encryption. None unless the key has 16 or 32 bytes.
    #[target_feature(enable = "aes,sse4.1")]
    pub(super) fn encrypting(key: &[u8]) -> Option<Self> {
        let words = key.len() / 4;
        let count = match key.len() {
            16 => SHORT + 2,
            32 => LONG + 2,
            _ => return None,
        };
        let mut schedule = [0_u32; MOST_KEYS * 4];
        for (word, bytes) in schedule.iter_mut().zip(key.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let mut round_constant = 1_u32;
        let mut last = *schedule.get(words.checked_sub(1)?)?;
        for at in words..count * 4 {
            if at % words == 0 {
                // Little-endian words, so the rotation towards the first byte is to the right.
                last = substitute(last.rotate_right(8)) ^ round_constant;
                // Doubling in the field (FIPS 197 §4.2.1); the constant is public.
                round_constant =
                    (round_constant << 1) ^ if round_constant & 0x80 == 0 { 0 } else { 0x11B };
            } else if words == 8 && at % words == 4 {
                last = substitute(last);
            }
            last ^= *schedule.get(at - words)?;
            *schedule.get_mut(at)? = last;
        }
        let mut keys = [[0; 16]; MOST_KEYS];
        let bytes = keys.as_flattened_mut().as_chunks_mut::<4>().0;
        for (bytes, word) in bytes.iter_mut().zip(&schedule) {
            *bytes = word.to_le_bytes();
        }
        schedule.zeroize();
        Some(Self { keys, count })
    }

    /// The schedule of the equivalent inverse cipher (FIPS 197 §5.3.5).
    #[target_feature(enable = "aes,sse4.1")]
    pub(super) fn decrypting(key: &[u8]) -> Option<Self> {
        let mut keys = Self::encrypting(key)?;
        let used = keys.keys.get_mut(..keys.count)?;
        used.reverse();
        let inner = used.len().checked_sub(1)?;
        for key in used.get_mut(1..inner)? {
            let inverse = _mm_aesimc_si128(load_block(key));
            store_block(key, inverse);
        }
        Some(keys)
    }

    /// Whether these are keys of AES-256: [`LONG`] rounds between the first key and the last, else
    /// [`SHORT`].
    #[inline]
    pub(super) const fn are_long(&self) -> bool {
        self.count == MOST_KEYS
    }

    #[inline]
    #[target_feature(enable = "aes,sse2")]
    pub(super) fn encrypt_block<const ROUNDS: usize>(&self, block: __m128i) -> __m128i {
        let mut block = _mm_xor_si128(block, load_block(self.key(0)));
        for round in 1..=ROUNDS {
            block = _mm_aesenc_si128(block, load_block(self.key(round)));
        }
        _mm_aesenclast_si128(block, load_block(self.key(ROUNDS + 1)))
    }

    /// Encrypts four blocks in each of `N` vectors.
    #[inline]
    #[target_feature(enable = "avx512f,vaes")]
    pub(super) fn encrypt<const N: usize, const ROUNDS: usize>(
        &self,
        blocks: [__m512i; N],
    ) -> [__m512i; N] {
        let mut blocks = blocks;
        let key = _mm512_broadcast_i32x4(load_block(self.key(0)));
        for block in &mut blocks {
            *block = _mm512_xor_si512(*block, key);
        }
        for round in 1..=ROUNDS {
            let key = _mm512_broadcast_i32x4(load_block(self.key(round)));
            for block in &mut blocks {
                *block = _mm512_aesenc_epi128(*block, key);
            }
        }
        let key = _mm512_broadcast_i32x4(load_block(self.key(ROUNDS + 1)));
        for block in &mut blocks {
            *block = _mm512_aesenclast_epi128(*block, key);
        }
        blocks
    }

    /// Encrypts two blocks in each of `N` vectors. `beside` is called after each round but the last: for work that hides
    /// behind the rounds' latency.
    #[inline]
    #[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
    pub(super) fn encrypt_pairs<const N: usize, const ROUNDS: usize>(
        &self,
        blocks: [__m256i; N],
        mut beside: impl FnMut(),
    ) -> [__m256i; N] {
        let mut blocks = blocks;
        let key = _mm256_broadcastsi128_si256(load_block(self.key(0)));
        for block in &mut blocks {
            *block = _mm256_xor_si256(*block, key);
        }
        for round in 1..=ROUNDS {
            let key = _mm256_broadcastsi128_si256(load_block(self.key(round)));
            for block in &mut blocks {
                *block = _mm256_aesenc_epi128(*block, key);
            }
            beside();
        }
        let key = _mm256_broadcastsi128_si256(load_block(self.key(ROUNDS + 1)));
        for block in &mut blocks {
            *block = _mm256_aesenclast_epi128(*block, key);
        }
        blocks
    }

    /// Decrypts four blocks in each of `N` vectors; only with [`decrypting`](Self::decrypting) keys.
    #[inline]
    #[target_feature(enable = "avx512f,vaes")]
    pub(super) fn decrypt<const N: usize, const ROUNDS: usize>(
        &self,
        blocks: [__m512i; N],
    ) -> [__m512i; N] {
        let mut blocks = blocks;
        let key = _mm512_broadcast_i32x4(load_block(self.key(0)));
        for block in &mut blocks {
            *block = _mm512_xor_si512(*block, key);
        }
        for round in 1..=ROUNDS {
            let key = _mm512_broadcast_i32x4(load_block(self.key(round)));
            for block in &mut blocks {
                *block = _mm512_aesdec_epi128(*block, key);
            }
        }
        let key = _mm512_broadcast_i32x4(load_block(self.key(ROUNDS + 1)));
        for block in &mut blocks {
            *block = _mm512_aesdeclast_epi128(*block, key);
        }
        blocks
    }

    /// The key of a round; rounds are constants, so nothing is checked at run time.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "at most LONG + 1, the last of the array"
    )]
    const fn key(&self, round: usize) -> &[u8; 16] {
        &self.keys[round]
    }
}

/// The S-box on each byte of a word. Four equal columns make the row shift of a last round do
/// nothing, and the instruction looks nothing up in memory.
#[target_feature(enable = "aes,sse4.1")]
fn substitute(word: u32) -> u32 {
    let columns = _mm_set1_epi32(word.cast_signed());
    let columns = _mm_aesenclast_si128(columns, _mm_setzero_si128());
    _mm_extract_epi32::<0>(columns).cast_unsigned()
}
