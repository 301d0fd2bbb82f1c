//! AES-GCM (NIST SP 800-38D) for packets: everything that depends on the key alone is made once, so
//! that a packet costs little more than its blocks.
//!
//! GHASH is computed in the representation of POLYVAL (RFC 8452, appendix A), which needs no bit
//! reversal: with `H' = mulX(reverse(H))`, `GHASH(H, X…) = reverse(POLYVAL(H', reverse(X)…))`. The
//! products of up to [`CHUNK`] blocks with falling powers of `H'` are summed unreduced, then reduced
//! once; longer messages go on with the next chunk, so no length is out of bounds.

use core::arch::x86_64::*;

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::aes::{LONG, RoundKeys, SHORT};
use super::vector::{
    detected, load, load_block, load_part, mask, store, store_block, store_part, xor3,
};

/// Blocks whose products are summed before a reduction. With 32 the latency of a reduction hides
/// behind the next blocks' rounds, and the table of powers stays at nine cache lines.
const CHUNK: usize = 32;
/// Vectors whose rounds run side by side: enough for the latency of a round, however many of them the processor's
/// scheduler sees.
const GROUP: usize = 8;
/// Powers of the hash key: a chunk's, one for the additional data and one for the lengths.
const POWERS: usize = CHUNK + 2;
/// Longest text, in bytes: far beyond any packet, far below where the block counter would wrap.
pub(super) const MAX_TEXT: usize = 1 << 30;

/// AES-GCM with one key.
pub(crate) struct GcmKernel {
    keys: RoundKeys,
    /// The highest power first, and three blocks of zero behind the first power, so that a vector
    /// can be read from each power on.
    powers: [[u8; 16]; POWERS + 3],
}

impl Drop for GcmKernel {
    fn drop(&mut self) {
        self.powers.zeroize();
    }
}

impl GcmKernel {
    /// Sets up a key of 16 or 32 bytes. None for other sizes and where the processor lacks the
    /// instructions.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        if !detected() {
            return None;
        }
        // SAFETY: the features were just detected.
        unsafe { Self::with_features(key) }
    }

    #[target_feature(enable = "avx512f,aes,sse4.1,pclmulqdq,ssse3")]
    fn with_features(key: &[u8]) -> Option<Self> {
        let keys = RoundKeys::encrypting(key)?;
        let zero = _mm_setzero_si128();
        let hash_key = reverse(if keys.are_long() {
            keys.encrypt_block::<LONG>(zero)
        } else {
            keys.encrypt_block::<SHORT>(zero)
        });
        let first = times_x(hash_key);
        let mut powers = [[0; 16]; POWERS + 3];
        let mut power = first;
        for place in powers.iter_mut().take(POWERS).rev() {
            store_block(place, power);
            power = multiply(power, first);
        }
        Some(Self { keys, powers })
    }

    /// Encrypts `text` in place and returns the tag. None where the text is longer than 1 GiB.
    pub(crate) fn seal(&self, nonce: &[u8; 12], aad: &[u8], text: &mut [u8]) -> Option<[u8; 16]> {
        // SAFETY: a kernel exists only where `new` detected the features.
        (text.len() <= MAX_TEXT).then(|| unsafe {
            if self.keys.are_long() {
                self.run::<true, LONG>(nonce, aad, text)
            } else {
                self.run::<true, SHORT>(nonce, aad, text)
            }
        })
    }

    /// Decrypts `text` in place if `tag` is right; clears it if not.
    pub(crate) fn open(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8],
    ) -> Option<()> {
        if text.len() > MAX_TEXT {
            return None;
        }
        // SAFETY: a kernel exists only where `new` detected the features.
        let expected = unsafe {
            if self.keys.are_long() {
                self.run::<false, LONG>(nonce, aad, text)
            } else {
                self.run::<false, SHORT>(nonce, aad, text)
            }
        };
        if bool::from(expected.ct_eq(tag)) {
            return Some(());
        }
        text.fill(0);
        None
    }

    /// Both directions: they differ in which side of the key stream is hashed.
    #[target_feature(
        enable = "avx512f,avx512bw,avx512vl,avx512dq,aes,vaes,pclmulqdq,vpclmulqdq,ssse3"
    )]
    fn run<const SEAL: bool, const ROUNDS: usize>(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        text: &mut [u8],
    ) -> [u8; 16] {
        let mut counter_block = [0; 16];
        let (place, _) = counter_block.split_at_mut(12);
        place.copy_from_slice(nonce);
        let counter_block = load_block(&counter_block);
        let tag_mask = self
            .keys
            .encrypt_block::<ROUNDS>(_mm_or_si128(counter_block, _mm_set_epi32(1 << 24, 0, 0, 0)));
        let mut stream = Stream {
            counters: _mm512_add_epi32(
                _mm512_broadcast_i32x4(reverse(counter_block)),
                _mm512_set_epi32(0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 2),
            ),
        };
        let bits = |len: usize| (len as u64).wrapping_mul(8).cast_signed();
        let lengths = _mm_set_epi64x(bits(aad.len()), bits(text.len()));
        let mut extra = Some(self.start(aad));
        let mut hash = _mm_setzero_si128();
        let mut rest = text;
        loop {
            let last = rest.len() <= CHUNK * 16;
            let (chunk, behind) = rest.split_at_mut(rest.len().min(CHUNK * 16));
            let mut sums = Sums::default();
            let blocks = chunk.len().div_ceil(16);
            if last || extra.is_some() {
                let first = extra.take();
                let power = blocks + usize::from(last) + usize::from(first.is_some());
                let first = first.unwrap_or(_mm_setzero_si128());
                let lengths = if last { lengths } else { _mm_setzero_si128() };
                sums.add(pair(first, lengths), pair(self.power(power), self.power(1)));
            }
            let highest = blocks + usize::from(last);
            self.chunk::<SEAL, ROUNDS>(
                &mut stream,
                &mut sums,
                hash,
                chunk,
                self.powers_from(highest),
            );
            hash = sums.reduce();
            if last {
                let mut tag = [0; 16];
                store_block(&mut tag, _mm_xor_si128(reverse(hash), tag_mask));
                return tag;
            }
            rest = behind;
        }
    }

    /// Key stream and hash over at most [`CHUNK`] blocks.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512vl,avx512dq,aes,vaes,pclmulqdq,vpclmulqdq,ssse3"
    )]
    fn chunk<const SEAL: bool, const ROUNDS: usize>(
        &self,
        stream: &mut Stream,
        sums: &mut Sums,
        hash: __m128i,
        chunk: &mut [u8],
        powers: &[[u8; 64]],
    ) {
        let mut hash = _mm512_zextsi128_si512(hash);
        let (groups, rest) = chunk.as_chunks_mut::<{ GROUP * 64 }>();
        let (powers, last_powers) = powers.split_at(powers.len().min(groups.len() * GROUP));
        for (group, powers) in groups.iter_mut().zip(powers.as_chunks::<GROUP>().0) {
            let texts = group.as_chunks_mut::<64>().0;
            let keys = self.keys.encrypt::<GROUP, ROUNDS>(stream.next());
            for ((key, text), power) in keys.into_iter().zip(texts).zip(powers) {
                let before = load(text);
                let after = _mm512_xor_si512(before, key);
                store(text, after);
                let cipher = if SEAL { after } else { before };
                sums.add(_mm512_xor_si512(reverse_each(cipher), hash), load(power));
                hash = _mm512_setzero_si512();
            }
        }
        match rest.len().div_ceil(64) {
            0 => {}
            1 => self.rest::<1, SEAL, ROUNDS>(stream, sums, hash, rest, last_powers),
            2 => self.rest::<2, SEAL, ROUNDS>(stream, sums, hash, rest, last_powers),
            3 => self.rest::<3, SEAL, ROUNDS>(stream, sums, hash, rest, last_powers),
            4 => self.rest::<4, SEAL, ROUNDS>(stream, sums, hash, rest, last_powers),
            5 => self.rest::<5, SEAL, ROUNDS>(stream, sums, hash, rest, last_powers),
            6 => self.rest::<6, SEAL, ROUNDS>(stream, sums, hash, rest, last_powers),
            7 => self.rest::<7, SEAL, ROUNDS>(stream, sums, hash, rest, last_powers),
            _ => self.rest::<GROUP, SEAL, ROUNDS>(stream, sums, hash, rest, last_powers),
        }
    }

    /// Key stream and hash over `N` vectors, the last of which may be a part.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512vl,avx512dq,aes,vaes,pclmulqdq,vpclmulqdq,ssse3"
    )]
    fn rest<const N: usize, const SEAL: bool, const ROUNDS: usize>(
        &self,
        stream: &mut Stream,
        sums: &mut Sums,
        hash: __m512i,
        rest: &mut [u8],
        powers: &[[u8; 64]],
    ) {
        let keys = self.keys.encrypt::<N, ROUNDS>(stream.next());
        let Some(powers) = powers.first_chunk::<N>() else {
            return;
        };
        let (mut hash, mut rest) = (hash, rest);
        for (key, power) in keys.into_iter().zip(powers) {
            let (text, behind) = rest.split_at_mut(rest.len().min(64));
            let before = load_part(text);
            let after = _mm512_xor_si512(before, key);
            store_part(text, after);
            let cipher = if SEAL {
                _mm512_maskz_mov_epi8(mask(text.len()), after)
            } else {
                before
            };
            sums.add(_mm512_xor_si512(reverse_each(cipher), hash), load(power));
            hash = _mm512_setzero_si512();
            rest = behind;
        }
    }

    /// The hash of all but the last block of the additional data, with that last block added: what
    /// the next multiplication is due for. Packets have one block, so this multiplies nothing.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,pclmulqdq,ssse3")]
    fn start(&self, aad: &[u8]) -> __m128i {
        let mut hash = _mm_setzero_si128();
        let mut rest = aad;
        loop {
            let (block, behind) = rest.split_at(rest.len().min(16));
            let block = _mm512_castsi512_si128(load_part(block));
            hash = _mm_xor_si128(hash, reverse(block));
            if behind.is_empty() {
                return hash;
            }
            hash = multiply(hash, self.power(1));
            rest = behind;
        }
    }

    /// A power of the hash key, from 1 to [`POWERS`].
    #[inline]
    #[target_feature(enable = "sse2")]
    fn power(&self, power: usize) -> __m128i {
        let place = self.powers.get(POWERS.wrapping_sub(power));
        load_block(place.unwrap_or(&[0; 16]))
    }

    /// Falling powers from `power` on, four per vector.
    #[inline]
    fn powers_from(&self, power: usize) -> &[[u8; 64]] {
        let powers = self.powers.get(POWERS.wrapping_sub(power)..);
        powers.unwrap_or(&[]).as_flattened().as_chunks().0
    }
}

struct Stream {
    /// The next four, their bytes reversed, so that the counter is the lowest word.
    counters: __m512i,
}

impl Stream {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn next<const N: usize>(&mut self) -> [__m512i; N] {
        let four = _mm512_set_epi32(0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4);
        let mut blocks = [_mm512_setzero_si512(); N];
        for block in &mut blocks {
            *block = reverse_each(self.counters);
            self.counters = _mm512_add_epi32(self.counters, four);
        }
        blocks
    }
}

/// Unreduced products, summed per lane.
struct Sums {
    low: __m512i,
    middle: __m512i,
    high: __m512i,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn default() -> Self {
        let zero = _mm512_setzero_si512();
        Self {
            low: zero,
            middle: zero,
            high: zero,
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn add(&mut self, blocks: __m512i, powers: __m512i) {
        let low = _mm512_clmulepi64_epi128::<0x00>(blocks, powers);
        let high = _mm512_clmulepi64_epi128::<0x11>(blocks, powers);
        let cross = _mm512_clmulepi64_epi128::<0x01>(blocks, powers);
        let other = _mm512_clmulepi64_epi128::<0x10>(blocks, powers);
        self.low = _mm512_xor_si512(self.low, low);
        self.high = _mm512_xor_si512(self.high, high);
        self.middle = xor3(self.middle, cross, other);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,pclmulqdq")]
    fn reduce(&self) -> __m128i {
        reduce(
            sum_of_lanes(self.low),
            sum_of_lanes(self.middle),
            sum_of_lanes(self.high),
        )
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn sum_of_lanes(value: __m512i) -> __m128i {
    let half = _mm256_xor_si256(
        _mm512_castsi512_si256(value),
        _mm512_extracti64x4_epi64::<1>(value),
    );
    _mm_xor_si128(
        _mm256_castsi256_si128(half),
        _mm256_extracti128_si256::<1>(half),
    )
}

/// Two blocks in the lowest lanes of a vector.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair(first: __m128i, second: __m128i) -> __m512i {
    _mm512_inserti32x4::<1>(_mm512_zextsi128_si512(first), second)
}

/// A product of 256 bits, its middle apart, modulo `x^128 + x^127 + x^126 + x^121 + 1`, times
/// `x^-128`: twice, the lower 64 bits are folded upwards, as the polynomial's lowest term is 1.
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn reduce(low: __m128i, middle: __m128i, high: __m128i) -> __m128i {
    let polynomial = _mm_set_epi64x(0xC2_u64.cast_signed() << 56, 1);
    let low = _mm_xor_si128(low, _mm_slli_si128::<8>(middle));
    let high = _mm_xor_si128(high, _mm_srli_si128::<8>(middle));
    let folded = _mm_clmulepi64_si128::<0x10>(low, polynomial);
    let low = _mm_xor_si128(_mm_shuffle_epi32::<0x4E>(low), folded);
    let folded = _mm_clmulepi64_si128::<0x10>(low, polynomial);
    let low = _mm_xor_si128(_mm_shuffle_epi32::<0x4E>(low), folded);
    _mm_xor_si128(high, low)
}

/// The product of two field elements (the "dot" of RFC 8452 §3).
#[inline]
#[target_feature(enable = "pclmulqdq")]
pub(super) fn multiply(a: __m128i, b: __m128i) -> __m128i {
    let middle = _mm_xor_si128(
        _mm_clmulepi64_si128::<0x01>(a, b),
        _mm_clmulepi64_si128::<0x10>(a, b),
    );
    reduce(
        _mm_clmulepi64_si128::<0x00>(a, b),
        middle,
        _mm_clmulepi64_si128::<0x11>(a, b),
    )
}

/// `mulX_POLYVAL` of RFC 8452, appendix A, without a branch on the key.
#[target_feature(enable = "sse2")]
pub(super) fn times_x(value: __m128i) -> __m128i {
    let mut bytes = [0; 16];
    store_block(&mut bytes, value);
    let number = u128::from_le_bytes(bytes);
    let carry = (number >> 127).wrapping_neg();
    let doubled = (number << 1) ^ (carry & ((0xC2 << 120) | 1));
    let result = load_block(&doubled.to_le_bytes());
    bytes.zeroize();
    result
}

#[inline]
#[target_feature(enable = "ssse3")]
pub(super) fn reverse(block: __m128i) -> __m128i {
    let order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm_shuffle_epi8(block, order)
}

/// Reverses the bytes of each of four blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn reverse_each(blocks: __m512i) -> __m512i {
    let order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_shuffle_epi8(blocks, _mm512_broadcast_i32x4(order))
}
