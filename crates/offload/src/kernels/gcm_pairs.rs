//! AES-GCM on two blocks per instruction, for processors with VAES and VPCLMULQDQ that lack AVX-512.
//!
//! The algorithm is that of [`super::gcm`]. With half as many registers of half the size, the processor's scheduler does not
//! see far enough to hash beside the next group's rounds by itself: the two are written interleaved, one vector hashed after each
//! round.

use core::arch::x86_64::*;

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::aes::{LONG, RoundKeys, SHORT};
use super::gcm::{MAX_TEXT, multiply, reduce, reverse, times_x};
use super::vector::{load_block, store_block};

/// Vectors whose rounds run side by side; with key, sums and one product they fill the sixteen registers.
const GROUP: usize = 8;
/// Blocks whose products are summed before a reduction: two groups.
const CHUNK: usize = 32;
/// Powers of the hash key: a chunk's, and one for the lengths.
const POWERS: usize = CHUNK + 1;

/// AES-GCM with one key.
pub(crate) struct GcmPairsKernel {
    keys: RoundKeys,
    /// The highest power first, and a block of zero behind the first power, so that a vector can be read from each power on.
    powers: [[u8; 16]; POWERS + 1],
}

impl Drop for GcmPairsKernel {
    fn drop(&mut self) {
        self.powers.zeroize();
    }
}

/// Looks for all that is used here, in the processor and the operating system.
fn detected() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("vpclmulqdq")
}

impl GcmPairsKernel {
    /// Sets up a key of 16 or 32 bytes. None for other sizes and where the processor lacks the instructions.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        if !detected() {
            return None;
        }
        // SAFETY: the features were just detected.
        unsafe { Self::with_features(key) }
    }

    #[target_feature(enable = "aes,sse4.1,pclmulqdq,ssse3")]
    fn with_features(key: &[u8]) -> Option<Self> {
        let keys = RoundKeys::encrypting(key)?;
        let zero = _mm_setzero_si128();
        let hash_key = reverse(if keys.are_long() {
            keys.encrypt_block::<LONG>(zero)
        } else {
            keys.encrypt_block::<SHORT>(zero)
        });
        let first = times_x(hash_key);
        let mut powers = [[0; 16]; POWERS + 1];
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
    #[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
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
            counters: _mm256_add_epi32(
                _mm256_broadcastsi128_si256(reverse(counter_block)),
                _mm256_set_epi32(0, 0, 0, 3, 0, 0, 0, 2),
            ),
        };
        let bits = |len: usize| (len as u64).wrapping_mul(8).cast_signed();
        let mut hash = self.start(aad);
        let mut rest = text;
        let lengths = _mm_set_epi64x(bits(aad.len()), bits(rest.len()));
        loop {
            let last = rest.len() <= CHUNK * 16;
            let (chunk, behind) = rest.split_at_mut(rest.len().min(CHUNK * 16));
            let blocks = chunk.len().div_ceil(16);
            let powers = self.powers_from(blocks.wrapping_add(usize::from(last)));
            let mut sums = Sums::zero();
            if last {
                // The hash goes into the first block of a chunk, or, where there is none, into the lengths.
                let block = match blocks {
                    0 => _mm_xor_si128(lengths, hash),
                    _ => lengths,
                };
                let first = _mm256_zextsi128_si256(load_block(self.first()));
                sums.add(_mm256_zextsi128_si256(block), first);
            }
            self.chunk::<SEAL, ROUNDS>(&mut stream, &mut sums, hash, chunk, powers);
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
    #[target_feature(enable = "avx2,aes,vaes,pclmulqdq,vpclmulqdq")]
    fn chunk<const SEAL: bool, const ROUNDS: usize>(
        &self,
        stream: &mut Stream,
        sums: &mut Sums,
        hash: __m128i,
        chunk: &mut [u8],
        powers: &[[u8; 32]],
    ) {
        let mut hash = _mm256_zextsi128_si256(hash);
        let mut take = |sums: &mut Sums, text: __m256i, power: &[u8; 32]| {
            sums.add(_mm256_xor_si256(reverse_each(text), hash), load(power));
            hash = _mm256_setzero_si256();
        };
        let (groups, rest) = chunk.as_chunks_mut::<{ GROUP * 32 }>();
        let (powers, last_powers) = powers.split_at(powers.len().min(groups.len() * GROUP));
        let powers = powers.as_chunks::<GROUP>().0;
        // What is encrypted is hashed beside the next group's rounds, what is to be decrypted beside its own.
        let mut behind = None;
        for (group, powers) in groups.iter_mut().zip(powers) {
            let texts = group.as_chunks_mut::<32>().0;
            let counters = stream.next();
            let beside = if SEAL {
                behind.take()
            } else {
                Some((&*texts, powers))
            };
            let keys = match beside {
                Some((texts, powers)) => {
                    let mut each = texts.iter().zip(powers);
                    self.keys.encrypt_pairs::<GROUP, ROUNDS>(counters, || {
                        if let Some((text, power)) = each.next() {
                            take(sums, load(text), power);
                        }
                    })
                }
                None => self.keys.encrypt_pairs::<GROUP, ROUNDS>(counters, || {}),
            };
            for (key, text) in keys.into_iter().zip(texts.iter_mut()) {
                store(text, _mm256_xor_si256(load(text), key));
            }
            behind = Some((&*texts, powers));
        }
        if SEAL && let Some((texts, powers)) = behind {
            for (text, power) in texts.iter().zip(powers) {
                take(sums, load(text), power);
            }
        }
        let mut rest = rest;
        let mut powers = last_powers;
        while !rest.is_empty() {
            let (part, after) = rest.split_at_mut(rest.len().min(4 * 32));
            let (own, later) = powers.split_at(powers.len().min(4));
            let keys = self.keys.encrypt_pairs::<4, ROUNDS>(stream.next(), || {});
            let mut left = &mut *part;
            for (key, power) in keys.into_iter().zip(own) {
                let (text, further) = left.split_at_mut(left.len().min(32));
                let before = load_part(text);
                let sealed = store_part(text, _mm256_xor_si256(before, key));
                take(sums, if SEAL { sealed } else { before }, power);
                left = further;
            }
            (rest, powers) = (after, later);
        }
    }

    /// The hash of the additional data, due for the next block.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn start(&self, aad: &[u8]) -> __m128i {
        let mut hash = _mm_setzero_si128();
        for part in aad.chunks(16) {
            let mut block = [0; 16];
            let (place, _) = block.split_at_mut(part.len());
            place.copy_from_slice(part);
            let sum = _mm_xor_si128(hash, reverse(load_block(&block)));
            hash = multiply(sum, load_block(self.first()));
        }
        hash
    }

    /// The hash key's first power.
    #[inline]
    fn first(&self) -> &[u8; 16] {
        let [.., first, _] = &self.powers;
        first
    }

    /// Falling powers from `power` on, two per vector.
    #[inline]
    fn powers_from(&self, power: usize) -> &[[u8; 32]] {
        let powers = self.powers.get(POWERS.wrapping_sub(power)..);
        powers.unwrap_or(&[]).as_flattened().as_chunks().0
    }
}

struct Stream {
    /// The next two, their bytes reversed, so that the counter is the lowest word.
    counters: __m256i,
}

impl Stream {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn next<const N: usize>(&mut self) -> [__m256i; N] {
        let two = _mm256_set_epi32(0, 0, 0, 2, 0, 0, 0, 2);
        let mut blocks = [_mm256_setzero_si256(); N];
        for block in &mut blocks {
            *block = reverse_each(self.counters);
            self.counters = _mm256_add_epi32(self.counters, two);
        }
        blocks
    }
}

/// Unreduced products, summed per lane.
struct Sums {
    low: __m256i,
    middle: __m256i,
    high: __m256i,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> Self {
        let zero = _mm256_setzero_si256();
        Self {
            low: zero,
            middle: zero,
            high: zero,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,vpclmulqdq")]
    fn add(&mut self, blocks: __m256i, powers: __m256i) {
        let low = _mm256_clmulepi64_epi128::<0x00>(blocks, powers);
        let high = _mm256_clmulepi64_epi128::<0x11>(blocks, powers);
        let cross = _mm256_clmulepi64_epi128::<0x01>(blocks, powers);
        let other = _mm256_clmulepi64_epi128::<0x10>(blocks, powers);
        self.low = _mm256_xor_si256(self.low, low);
        self.high = _mm256_xor_si256(self.high, high);
        self.middle = _mm256_xor_si256(self.middle, _mm256_xor_si256(cross, other));
    }

    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn reduce(&self) -> __m128i {
        reduce(
            sum_of_lanes(self.low),
            sum_of_lanes(self.middle),
            sum_of_lanes(self.high),
        )
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum_of_lanes(value: __m256i) -> __m128i {
    _mm_xor_si128(
        _mm256_castsi256_si128(value),
        _mm256_extracti128_si256::<1>(value),
    )
}

/// Reverses the bytes of each of two blocks.
#[inline]
#[target_feature(enable = "avx2")]
fn reverse_each(blocks: __m256i) -> __m256i {
    let order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm256_shuffle_epi8(blocks, _mm256_broadcastsi128_si256(order))
}

/// Reads 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn load(from: &[u8; 32]) -> __m256i {
    // SAFETY: the reference is valid for the 32 bytes read; the instruction needs no alignment.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// Writes 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [u8; 32], value: __m256i) {
    // SAFETY: the reference is valid for the 32 bytes written; the instruction needs no alignment.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
}

/// Reads at most 32 bytes; zeros follow what `from` is too short for.
#[inline]
#[target_feature(enable = "avx2")]
fn load_part(from: &[u8]) -> __m256i {
    if let Ok(whole) = from.try_into() {
        return load(whole);
    }
    let mut bytes = [0; 32];
    for (to, from) in bytes.iter_mut().zip(from) {
        *to = *from;
    }
    load(&bytes)
}

/// Writes at most 32 bytes, as many as `to` has; gives what was written, and zeros.
#[inline]
#[target_feature(enable = "avx2")]
fn store_part(to: &mut [u8], value: __m256i) -> __m256i {
    if let Ok(whole) = <&mut [u8; 32]>::try_from(&mut *to) {
        store(whole, value);
        return value;
    }
    let mut bytes = [0; 32];
    store(&mut bytes, value);
    for (to, from) in to.iter_mut().zip(bytes) {
        *to = from;
    }
    load_part(to)
}
