//! The sum of the Internet checksum (RFC 1071), as many words at once as the processor adds.
//!
//! Every packet of a tunnel is summed twice, once on each side, so this is among the dearest things a
//! gateway does besides the cipher. The code is the same for every processor; only the instructions
//! that the compiler may use for it differ.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "a function compiled for newer processors")
)]

/// The sum of `bytes` as big-endian words of 16 bits, added to `sum`: 16 bits, not complemented. An
/// odd last byte counts as if a zero followed.
pub fn add(bytes: &[u8], sum: u32) -> u32 {
    let folded = u16::from_be(fold(wide_sum(bytes)));
    u32::from(fold(u64::from(folded) + u64::from(sum)))
}

/// Adds the carries back in until 16 bits are left.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let [.., high, low] = sum.to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[cfg(target_arch = "x86_64")]
fn wide_sum(bytes: &[u8]) -> u64 {
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function was compiled for, as the line above asked it.
        return unsafe { wide_sum_avx2(bytes) };
    }
    sum_words(bytes)
}

#[cfg(not(target_arch = "x86_64"))]
fn wide_sum(bytes: &[u8]) -> u64 {
    sum_words(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn wide_sum_avx2(bytes: &[u8]) -> u64 {
    sum_words(bytes)
}

/// Neither byte order nor width of the words matter (RFC 1071 §2), so they are those of the machine.
#[inline(always)]
fn sum_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut tail = [0; 4];
    for (to, from) in tail.iter_mut().zip(rest) {
        *to = *from;
    }
    // 2^32 words would be needed to wrap; checked additions could not be done several at once.
    words.iter().chain([&tail]).fold(0_u64, |sum, word| {
        sum.wrapping_add(u64::from(u32::from_ne_bytes(*word)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_sum_of_pairs_at_every_length_and_offset() {
        let bytes: Vec<u8> = (0..400_u16)
            .map(|i| i.wrapping_mul(167).to_be_bytes()[1] | 0x80)
            .collect();
        for offset in 0..9 {
            for end in offset..bytes.len() {
                let part = &bytes[offset..end];
                let mut expected: u64 = part
                    .chunks(2)
                    .map(|pair| {
                        u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0))
                    })
                    .sum::<u64>()
                    + 0xFFFF;
                while expected > 0xFFFF {
                    expected = (expected & 0xFFFF) + (expected >> 16);
                }
                assert_eq!(u64::from(add(part, 0xFFFF)), expected, "{offset}..{end}");
                assert_eq!(fold(sum_words(part)), fold(wide_sum(part)));
            }
        }
    }

    #[test]
    fn the_example_of_the_standard() {
        // RFC 1071 §3.
        let bytes = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
        assert_eq!(add(&bytes, 0), 0xDDF2);
    }
}
