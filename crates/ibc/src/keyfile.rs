//! Key files (specification section 6): raw bytes or hexadecimal text, never a password.

use alloc::vec::Vec;

use zeroize::Zeroizing;

/// Longest key file that is read; a key with comments stays far below.
pub const MAX_LEN: usize = 64 * 1024;

/// Why a file is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// Neither the raw key nor text.
    #[error(
        "the file has {len} bytes and byte {offset} is no hexadecimal digit: a key of {key_size} bytes is a file of exactly so many bytes or text of {digits} digits",
        digits = key_size * 2
    )]
    NotHex {
        /// Size of the file.
        len: usize,
        /// The first byte that does not belong there.
        offset: usize,
        /// The size asked for.
        key_size: usize,
    },
    /// Text with the wrong number of digits.
    #[error("the file has {digits} hexadecimal digits, a key of {key_size} bytes has {expected}", expected = key_size * 2)]
    Digits {
        /// Digits there are.
        digits: usize,
        /// The size asked for.
        key_size: usize,
    },
    /// More than any key file has.
    #[error("the file is longer than {MAX_LEN} bytes")]
    TooLong,
}

/// Reads the key of `key_size` bytes from the content of a key file.
///
/// A file of exactly `key_size` bytes is the key. Otherwise lines starting with `#` and white
/// space (the ASCII kind) are dropped, and the rest must be `2 * key_size` hexadecimal digits.
///
/// # Errors
/// [`KeyFileError`]; no part of the content is ever in an error.
pub fn parse(content: &[u8], key_size: usize) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    if content.len() == key_size {
        return Ok(Zeroizing::new(content.to_vec()));
    }
    if content.len() > MAX_LEN {
        return Err(KeyFileError::TooLong);
    }
    let mut digits = Zeroizing::new(Vec::with_capacity(content.len()));
    let mut offset = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if line.first() != Some(&b'#') {
            for (index, byte) in line.iter().enumerate() {
                match char::from(*byte).to_digit(16) {
                    // A hexadecimal digit is below 16.
                    Some(digit) => digits.push(u8::try_from(digit).unwrap_or_default()),
                    None if byte.is_ascii_whitespace() => {}
                    None => {
                        return Err(KeyFileError::NotHex {
                            len: content.len(),
                            offset: offset + index,
                            key_size,
                        });
                    }
                }
            }
        }
        offset += line.len();
    }
    if digits.len() != 2 * key_size {
        let digits = digits.len();
        return Err(KeyFileError::Digits { digits, key_size });
    }
    let mut key = Zeroizing::new(Vec::with_capacity(key_size));
    let (pairs, _) = digits.as_chunks::<2>();
    key.extend(pairs.iter().map(|[high, low]| high << 4 | low));
    Ok(key)
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn exactly_the_size_is_the_raw_key_even_if_it_looks_like_text() {
        assert_eq!(
            **parse(b"00112233445566aa", 16).unwrap(),
            *b"00112233445566aa"
        );
        assert_eq!(**parse(&[0xff; 40], 40).unwrap(), [0xff; 40]);
    }

    #[test]
    fn text_may_have_comments_white_space_and_both_cases() {
        let text = b"# key of camera-17\n00 11 22 33\t44556677\r\n#ff\n8899AAbb ccddeeFF\n";
        let key = parse(text, 16).unwrap();
        let expected: Vec<u8> = (0..16).map(|n| n * 0x11).collect();
        assert_eq!(*key, expected);
        // Without a line feed at the end, and with a comment there.
        let bare = format!("{}\n# end", "ab".repeat(24));
        assert_eq!(**parse(bare.as_bytes(), 24).unwrap(), [0xab; 24]);
    }

    #[test]
    fn a_comment_starts_in_the_first_column_only() {
        let text = format!(" # no comment\n{}", "00".repeat(16));
        let error = parse(text.as_bytes(), 16).unwrap_err();
        let expected = KeyFileError::NotHex {
            len: text.len(),
            offset: 1,
            key_size: 16,
        };
        assert_eq!(error, expected);
    }

    #[test]
    fn other_sizes_are_refused() {
        for key_size in [16, 24, 32, 40] {
            for digits in [0, 2 * key_size - 1, 2 * key_size + 1, 2 * key_size + 2] {
                let text = "a".repeat(digits);
                let error = KeyFileError::Digits { digits, key_size };
                assert_eq!(parse(text.as_bytes(), key_size), Err(error));
            }
            assert!(parse(&[0; 15], key_size).is_err());
            assert!(parse(b"correct horse battery staple", key_size).is_err());
        }
        assert_eq!(parse(&[b' '; MAX_LEN + 1], 16), Err(KeyFileError::TooLong));
        let longest = parse(&[b' '; MAX_LEN], 16);
        let digits = KeyFileError::Digits {
            digits: 0,
            key_size: 16,
        };
        assert_eq!(longest, Err(digits));
    }
}
