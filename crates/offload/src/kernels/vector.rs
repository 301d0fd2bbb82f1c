//! Loads, stores and the little that several kernels share.

use core::arch::x86_64::*;

/// Whether the processor and the operating system have all that the kernels use.
pub(super) fn detected() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("vpclmulqdq")
}

/// Reads 16 bytes.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn load_block(from: &[u8; 16]) -> __m128i {
    // SAFETY: the reference is valid for the 16 bytes read; the instruction needs no alignment.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

/// Writes 16 bytes.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn store_block(to: &mut [u8; 16], value: __m128i) {
    // SAFETY: the reference is valid for the 16 bytes written; the instruction needs no alignment.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
}

/// Reads 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load(from: &[u8; 64]) -> __m512i {
    // SAFETY: the reference is valid for the 64 bytes read; the instruction needs no alignment.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

/// Writes 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store(to: &mut [u8; 64], value: __m512i) {
    // SAFETY: the reference is valid for the 64 bytes written; the instruction needs no alignment.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
}

/// Reads 16 words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load_words(from: &[u32; 16]) -> __m512i {
    // SAFETY: the reference is valid for the 64 bytes read; the instruction needs no alignment.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

/// Writes 16 words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store_words(to: &mut [u32; 16], value: __m512i) {
    // SAFETY: the reference is valid for the 64 bytes written; the instruction needs no alignment.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
}

/// The mask of the first `len` bytes of a vector; all of it from 64 on.
#[inline]
pub(super) const fn mask(len: usize) -> __mmask64 {
    if len >= 64 { u64::MAX } else { (1 << len) - 1 }
}

/// Reads at most 64 bytes; zeros follow what `from` is too short for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn load_part(from: &[u8]) -> __m512i {
    // SAFETY: the mask selects only bytes of the slice, and bytes outside a mask are not accessed.
    unsafe { _mm512_maskz_loadu_epi8(mask(from.len()), from.as_ptr().cast()) }
}

/// Writes at most 64 bytes: as many as `to` has.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn store_part(to: &mut [u8], value: __m512i) {
    // SAFETY: the mask selects only bytes of the slice, and bytes outside a mask are not accessed.
    unsafe { _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), mask(to.len()), value) }
}

/// Exclusive or of three.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}
