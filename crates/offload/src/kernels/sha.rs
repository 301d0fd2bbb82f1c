//! SHA-1 and SHA-256 (FIPS 180-4) on sixteen messages at once: each vector holds the same word of
//! all of them.

use core::arch::x86_64::*;

use super::vector::{load, load_words, store_words, xor3};

/// Messages side by side.
pub(super) const LANES: usize = 16;

/// A hash on sixteen messages.
pub(super) trait Hash {
    /// Words of the state; the digest is all of them.
    const WORDS: usize;
    /// The state before the first block (FIPS 180-4 §5.3).
    const START: [u32; 8];
    /// Hashes block number `0..steps` of each message into `state`.
    ///
    /// # Safety
    /// The processor must have AVX-512 F and BW.
    unsafe fn compress(state: &mut State, messages: &[&[[u8; 64]]; LANES], steps: usize);
}

/// Word by word, the states of all messages.
pub(super) type State = [[u32; LANES]; 8];

/// SHA-1; its state leaves the last three words alone.
pub(super) struct Sha1;

/// SHA-256.
pub(super) struct Sha256;

impl Hash for Sha1 {
    const WORDS: usize = 5;
    const START: [u32; 8] = [
        0x6745_2301,
        0xEFCD_AB89,
        0x98BA_DCFE,
        0x1032_5476,
        0xC3D2_E1F0,
        0,
        0,
        0,
    ];

    unsafe fn compress(state: &mut State, messages: &[&[[u8; 64]]; LANES], steps: usize) {
        // SAFETY: the caller vouches for the features.
        unsafe { sha1(state, messages, steps) }
    }
}

impl Hash for Sha256 {
    const WORDS: usize = 8;
    const START: [u32; 8] = [
        0x6A09_E667,
        0xBB67_AE85,
        0x3C6E_F372,
        0xA54F_F53A,
        0x510E_527F,
        0x9B05_688C,
        0x1F83_D9AB,
        0x5BE0_CD19,
    ];

    unsafe fn compress(state: &mut State, messages: &[&[[u8; 64]]; LANES], steps: usize) {
        // SAFETY: the caller vouches for the features.
        unsafe { sha256(state, messages, steps) }
    }
}

/// Repeats a block for each value of a constant. The compiler leaves loops of this size alone, and
/// then every word makes a detour through memory.
macro_rules! unrolled {
    ($at:ident in [$($value:literal)*] $body:block) => {
        $({
            const $at: usize = $value;
            $body
        })*
    };
}

/// Twenty rounds of SHA-1 (FIPS 180-4 §6.1.2) from `$from` on, with one function and one constant.
macro_rules! sha1_rounds {
    ($from:literal, $function:ident, $constant:literal, $state:ident, $words:ident) => {
        let constant = _mm512_set1_epi32(u32::cast_signed($constant));
        unrolled!(AT in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19] {
            const ROUND: usize = $from + AT;
            if ROUND >= 16 {
                let word = xor3(
                    $words[(ROUND + 13) & 15],
                    $words[(ROUND + 8) & 15],
                    _mm512_xor_si512($words[(ROUND + 2) & 15], $words[ROUND & 15]),
                );
                $words[ROUND & 15] = _mm512_rol_epi32::<1>(word);
            }
            let [a, b, c, d, e] = $state;
            let mixed = _mm512_ternarylogic_epi32::<{ $function }>(b, c, d);
            let known = _mm512_add_epi32(_mm512_add_epi32(e, constant), $words[ROUND & 15]);
            let sum = _mm512_add_epi32(
                _mm512_add_epi32(known, mixed),
                _mm512_rol_epi32::<5>(a),
            );
            $state = [sum, a, _mm512_rol_epi32::<30>(b), c, d];
        });
    };
}

/// Truth tables of FIPS 180-4 §4.1: bit `4a + 2b + c` is the result for those inputs.
const PARITY: i32 = 0x96;
const CHOICE: i32 = 0xCA;
const MAJORITY: i32 = 0xE8;

#[target_feature(enable = "avx512f,avx512bw")]
fn sha1(state: &mut State, messages: &[&[[u8; 64]]; LANES], steps: usize) {
    let mut words = [_mm512_setzero_si512(); 16];
    let [w0, w1, w2, w3, w4, ..] = state;
    let mut sums = [w0, w1, w2, w3, w4].map(|word| load_words(word));
    for step in 0..steps {
        if !load_messages(messages, step, &mut words) {
            break;
        }
        let mut now = sums;
        sha1_rounds!(0, CHOICE, 0x5A82_7999, now, words);
        sha1_rounds!(20, PARITY, 0x6ED9_EBA1, now, words);
        sha1_rounds!(40, MAJORITY, 0x8F1B_BCDC, now, words);
        sha1_rounds!(60, PARITY, 0xCA62_C1D6, now, words);
        for (sum, now) in sums.iter_mut().zip(now) {
            *sum = _mm512_add_epi32(*sum, now);
        }
    }
    for (word, sum) in state.iter_mut().zip(sums) {
        store_words(word, sum);
    }
}

/// FIPS 180-4 §4.2.2.
const K256: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

#[target_feature(enable = "avx512f,avx512bw")]
#[expect(
    clippy::indexing_slicing,
    reason = "arrays of sixteen, indices below sixteen"
)]
fn sha256(state: &mut State, messages: &[&[[u8; 64]]; LANES], steps: usize) {
    let mut words = [_mm512_setzero_si512(); 16];
    let mut sums = state.each_ref().map(|word| load_words(word));
    for step in 0..steps {
        if !load_messages(messages, step, &mut words) {
            break;
        }
        let mut now = sums;
        let (first, rest) = K256.split_at(16);
        unrolled!(AT in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
            now = round256(now, words[AT], first[AT]);
        });
        for constants in rest.as_chunks::<16>().0 {
            unrolled!(AT in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                words[AT] = schedule(
                    words[AT],
                    words[(AT + 1) & 15],
                    words[(AT + 9) & 15],
                    words[(AT + 14) & 15],
                );
                now = round256(now, words[AT], constants[AT]);
            });
        }
        for (sum, now) in sums.iter_mut().zip(now) {
            *sum = _mm512_add_epi32(*sum, now);
        }
    }
    for (word, sum) in state.iter_mut().zip(sums) {
        store_words(word, sum);
    }
}

/// The next word of the message schedule (FIPS 180-4 §6.2.2, step 1), from those 16, 15, 7 and 2
/// places before.
#[inline]
#[target_feature(enable = "avx512f")]
fn schedule(w16: __m512i, w15: __m512i, w7: __m512i, w2: __m512i) -> __m512i {
    let small0 = xor3(
        _mm512_ror_epi32::<7>(w15),
        _mm512_ror_epi32::<18>(w15),
        _mm512_srli_epi32::<3>(w15),
    );
    let small1 = xor3(
        _mm512_ror_epi32::<17>(w2),
        _mm512_ror_epi32::<19>(w2),
        _mm512_srli_epi32::<10>(w2),
    );
    _mm512_add_epi32(_mm512_add_epi32(w16, w7), _mm512_add_epi32(small0, small1))
}

/// One round (FIPS 180-4 §6.2.2, step 3).
#[inline]
#[target_feature(enable = "avx512f")]
fn round256(now: [__m512i; 8], word: __m512i, constant: u32) -> [__m512i; 8] {
    let [a, b, c, d, e, f, g, h] = now;
    let big1 = xor3(
        _mm512_ror_epi32::<6>(e),
        _mm512_ror_epi32::<11>(e),
        _mm512_ror_epi32::<25>(e),
    );
    let big0 = xor3(
        _mm512_ror_epi32::<2>(a),
        _mm512_ror_epi32::<13>(a),
        _mm512_ror_epi32::<22>(a),
    );
    let known = _mm512_add_epi32(
        _mm512_add_epi32(h, word),
        _mm512_set1_epi32(constant.cast_signed()),
    );
    let t1 = _mm512_add_epi32(
        _mm512_add_epi32(known, big1),
        _mm512_ternarylogic_epi32::<CHOICE>(e, f, g),
    );
    let t2 = _mm512_add_epi32(big0, _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c));
    [
        _mm512_add_epi32(t1, t2),
        a,
        b,
        c,
        _mm512_add_epi32(d, t1),
        e,
        f,
        g,
    ]
}

/// Reads one block of each message as big-endian words and turns rows into columns. False where a
/// message has no such block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
#[expect(
    clippy::indexing_slicing,
    reason = "arrays of sixteen, indices below sixteen"
)]
fn load_messages(messages: &[&[[u8; 64]]; LANES], step: usize, words: &mut [__m512i; 16]) -> bool {
    let order = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    let order = _mm512_broadcast_i32x4(order);
    let mut rows = [_mm512_setzero_si512(); 16];
    for (row, message) in rows.iter_mut().zip(messages) {
        let Some(block) = message.get(step) else {
            return false;
        };
        *row = _mm512_shuffle_epi8(load(block), order);
    }
    // Pairs of words, then quadruples; the sixteen lanes of four words remain to be sorted.
    let mut pairs = rows;
    for at in (0..16).step_by(2) {
        pairs[at] = _mm512_unpacklo_epi32(rows[at], rows[at + 1]);
        pairs[at + 1] = _mm512_unpackhi_epi32(rows[at], rows[at + 1]);
    }
    let mut fours = pairs;
    for at in (0..16).step_by(4) {
        fours[at] = _mm512_unpacklo_epi64(pairs[at], pairs[at + 2]);
        fours[at + 1] = _mm512_unpackhi_epi64(pairs[at], pairs[at + 2]);
        fours[at + 2] = _mm512_unpacklo_epi64(pairs[at + 1], pairs[at + 3]);
        fours[at + 3] = _mm512_unpackhi_epi64(pairs[at + 1], pairs[at + 3]);
    }
    for at in 0..4 {
        let [a, b, c, d] = [fours[at], fours[at + 4], fours[at + 8], fours[at + 12]];
        let (ab, cd) = (
            _mm512_shuffle_i32x4::<0x44>(a, b),
            _mm512_shuffle_i32x4::<0x44>(c, d),
        );
        words[at] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        words[at + 4] = _mm512_shuffle_i32x4::<0xDD>(ab, cd);
        let (ab, cd) = (
            _mm512_shuffle_i32x4::<0xEE>(a, b),
            _mm512_shuffle_i32x4::<0xEE>(c, d),
        );
        words[at + 8] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        words[at + 12] = _mm512_shuffle_i32x4::<0xDD>(ab, cd);
    }
    true
}
