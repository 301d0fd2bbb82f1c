//! The check values of descriptors and segments.

/// CRC-32 as in IEEE 802.3: reflected, initial value and final XOR all ones.
///
/// It finds damage on the way, not malice: who can write descriptors can compute it.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let feedback = if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
            crc = crc >> 1 ^ feedback;
        }
    }
    !crc
}

/// CRC-16-CCITT: polynomial 0x1021, initial value all ones, highest bit first.
pub(crate) fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = u16::MAX;
    for &byte in bytes {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            let feedback = if crc >> 15 == 1 { 0x1021 } else { 0 };
            crc = crc << 1 ^ feedback;
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc16_of_the_check_string_is_as_published() {
        assert_eq!(super::crc16(b"123456789"), 0x29B1);
    }

    #[test]
    fn crc32_of_the_check_string_is_as_published() {
        assert_eq!(super::crc32(b"123456789"), 0xCBF4_3926);
    }
}
