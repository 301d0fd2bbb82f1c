//! The header of an IBC file (specification section 6): bytes to typed values and back.
//!
//! A file is this header and then the ciphertext up to its end. Nothing in it is authenticated:
//! whoever can write to the file can change the header and every block below it.
//!
//! | offset | size | content |
//! |---|---|---|
//! | 0 | 4 | ASCII `IBC1` |
//! | 4 | 1 | format version 1 |
//! | 5 | 1 | mode: 0 ECB, 1 CBC, 2 CTR |
//! | 6 | 1 | key length in bytes: 16, 24, 32, 40 |
//! | 7 | 1 | rounds |
//! | 8 | 1 | padding: 1 PKCS#7 (ECB, CBC), 0 none (CTR) |
//! | 9 | 1 | length of the IV: 0 for ECB, 32 for CBC and CTR |
//! | 10 | 6 | zero |
//! | 16 | 0 or 32 | IV |
//!
//! ```
//! use ibc::Variant;
//! use ibc::container::{Header, Mode};
//!
//! let header = Header::cbc(Variant::Indect192, [7; 32]);
//! let mut file = header.encode();
//! file.extend_from_slice(b"ciphertext");
//! let (read, rest) = Header::parse(&file)?;
//! assert_eq!((read.variant(), read.mode(), rest), (Variant::Indect192, Mode::Cbc, &b"ciphertext"[..]));
//! # Ok::<(), ibc::container::HeaderError>(())
//! ```

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::{Block, Variant};

/// The first bytes of every file.
pub const MAGIC: [u8; 4] = *b"IBC1";
/// The only version of the format.
pub const VERSION: u8 = 1;
/// Bytes of the header before the IV.
pub const FIXED_LEN: usize = 16;
/// Bytes of the longest header: a reader needs no more to parse any.
pub const MAX_LEN: usize = FIXED_LEN + IV_LEN;

/// Bytes of the IV in a header; a short IV is stored expanded (section 4).
const IV_LEN: usize = 32;
/// Value of the padding field: PKCS#7.
const PADDING_PKCS7: u8 = 1;
/// Value of the padding field: none.
const PADDING_NONE: u8 = 0;

/// Chaining of blocks (section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Blocks one by one; equal blocks stay visible.
    Ecb,
    /// Cipher block chaining.
    Cbc,
    /// Counter mode, without padding.
    Ctr,
}

impl Mode {
    /// All modes in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Ecb, Self::Cbc, Self::Ctr];

    /// The name on command lines: `ecb`, `cbc`, `ctr`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ecb => "ecb",
            Self::Cbc => "cbc",
            Self::Ctr => "ctr",
        }
    }

    /// Whether the last block is filled up by PKCS#7.
    #[must_use]
    pub const fn is_padded(self) -> bool {
        !matches!(self, Self::Ctr)
    }

    /// Bytes of the IV that a header of this mode holds: 0 or 32.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Ecb => 0,
            Self::Cbc | Self::Ctr => IV_LEN,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Ecb => 0,
            Self::Cbc => 1,
            Self::Ctr => 2,
        }
    }

    const fn padding_code(self) -> u8 {
        if self.is_padded() {
            PADDING_PKCS7
        } else {
            PADDING_NONE
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mode is none of ecb, cbc, ctr")]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(text))
            .ok_or(UnknownMode)
    }
}

/// A valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    variant: Variant,
    chaining: Chaining,
}

/// The mode with the IV that it needs, so that no header lacks one or has one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chaining {
    Ecb,
    Cbc(Block),
    Ctr(Block),
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file ends within the header.
    #[error("the file ends after {have} bytes of a header of {need}")]
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes the header has, as far as is known.
        need: usize,
    },
    /// The first four bytes are not `IBC1`.
    #[error("the file does not begin with IBC1")]
    Magic,
    /// A version that this reader does not know.
    #[error("field version is {0}, known is 1")]
    Version(u8),
    /// No mode has this code.
    #[error("field mode is {0}, known are 0 to 2")]
    Mode(u8),
    /// No variant has this key length and number of rounds (section 2).
    #[error("fields key length and rounds are {key_bytes} and {rounds}, which is no IBC variant")]
    Variant {
        /// The key length in bytes.
        key_bytes: u8,
        /// The rounds.
        rounds: u8,
    },
    /// The padding is not the one of the mode.
    #[error("field padding is {found}, mode {mode} has {expected}")]
    Padding {
        /// The header's mode.
        mode: Mode,
        /// The mode's demand.
        expected: u8,
        /// The header's value.
        found: u8,
    },
    /// The length of the IV is not the one of the mode.
    #[error("field IV length is {found}, mode {mode} has {expected}")]
    IvLength {
        /// The header's mode.
        mode: Mode,
        /// The mode's demand.
        expected: u8,
        /// The header's value.
        found: u8,
    },
    /// A byte that must be zero is not.
    #[error("reserved byte {offset} is {value:#04x}, not zero")]
    Reserved {
        /// Offset in the header.
        offset: usize,
        /// Value at that offset.
        value: u8,
    },
}

/// A field in which the header contradicts the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Contradiction {
    /// Another variant.
    #[error("the header says {header}, asked for is {given}")]
    Variant {
        /// The header's value.
        header: Variant,
        /// The caller's value.
        given: Variant,
    },
    /// Another mode.
    #[error("the header says mode {header}, asked for is {given}")]
    Mode {
        /// The header's value.
        header: Mode,
        /// The caller's value.
        given: Mode,
    },
    /// Another IV, or one for a mode that has none.
    #[error("the header's IV is not the one given")]
    Iv,
}

/// The caller's knowledge of a file; `None` takes the header's word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    /// The variant.
    pub variant: Option<Variant>,
    /// The mode.
    pub mode: Option<Mode>,
    /// The IV, expanded to 32 bytes.
    pub iv: Option<Block>,
}

impl Header {
    /// The header of a file in ECB mode.
    #[must_use]
    pub const fn ecb(variant: Variant) -> Self {
        let chaining = Chaining::Ecb;
        Self { variant, chaining }
    }

    /// The header of a file in CBC mode; `iv` is the first chaining value.
    #[must_use]
    pub const fn cbc(variant: Variant, iv: Block) -> Self {
        let chaining = Chaining::Cbc(iv);
        Self { variant, chaining }
    }

    /// The header of a file in CTR mode; `iv` is the first counter block.
    #[must_use]
    pub const fn ctr(variant: Variant, iv: Block) -> Self {
        let chaining = Chaining::Ctr(iv);
        Self { variant, chaining }
    }

    /// The variant.
    #[must_use]
    pub const fn variant(&self) -> Variant {
        self.variant
    }

    /// The mode.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.chaining {
            Chaining::Ecb => Mode::Ecb,
            Chaining::Cbc(_) => Mode::Cbc,
            Chaining::Ctr(_) => Mode::Ctr,
        }
    }

    /// The IV, except in ECB mode.
    #[must_use]
    pub const fn iv(&self) -> Option<&Block> {
        match &self.chaining {
            Chaining::Ecb => None,
            Chaining::Cbc(iv) | Chaining::Ctr(iv) => Some(iv),
        }
    }

    /// The header as bytes: 16, and 32 more when there is an IV.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mode = self.mode();
        let iv = self.iv().map_or(&[][..], |iv| iv);
        let byte = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
        let mut out = Vec::with_capacity(MAX_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[
            VERSION,
            mode.code(),
            byte(self.variant.key_size()),
            byte(self.variant.rounds()),
            mode.padding_code(),
            byte(iv.len()),
        ]);
        out.resize(FIXED_LEN, 0);
        out.extend_from_slice(iv);
        out
    }

    /// Reads the header at the start of `bytes` and returns it with the bytes behind it.
    ///
    /// The first [`MAX_LEN`] bytes of a file are enough, or all of it when it is shorter.
    ///
    /// # Errors
    /// [`HeaderError`] names the first field that is wrong, in the order of the fields.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let have = bytes.len();
        let truncated = |need| HeaderError::Truncated { have, need };
        let known = MAGIC.len().min(have);
        // What is no IBC file at all is told as such, however short it is.
        if bytes.get(..known) != MAGIC.get(..known) {
            return Err(HeaderError::Magic);
        }
        let (fixed, rest) = bytes
            .split_first_chunk::<FIXED_LEN>()
            .ok_or(truncated(FIXED_LEN))?;
        let (variant, mode) = parse_fixed(fixed)?;
        let with_iv = || rest.split_first_chunk::<IV_LEN>().ok_or(truncated(MAX_LEN));
        let (chaining, rest) = match mode {
            Mode::Ecb => (Chaining::Ecb, rest),
            Mode::Cbc => with_iv().map(|(iv, rest)| (Chaining::Cbc(*iv), rest))?,
            Mode::Ctr => with_iv().map(|(iv, rest)| (Chaining::Ctr(*iv), rest))?,
        };
        Ok((Self { variant, chaining }, rest))
    }

    /// Compares the header with what the caller asked for.
    ///
    /// # Errors
    /// [`Contradiction`] names the field with both values.
    pub fn check(&self, expected: &Expected) -> Result<(), Contradiction> {
        if let Some(given) = expected.variant
            && given != self.variant
        {
            let header = self.variant;
            return Err(Contradiction::Variant { header, given });
        }
        if let Some(given) = expected.mode
            && given != self.mode()
        {
            let header = self.mode();
            return Err(Contradiction::Mode { header, given });
        }
        if expected.iv.is_some() && expected.iv.as_ref() != self.iv() {
            return Err(Contradiction::Iv);
        }
        Ok(())
    }
}

/// The fields before the IV.
fn parse_fixed(fixed: &[u8; FIXED_LEN]) -> Result<(Variant, Mode), HeaderError> {
    let [
        _,
        _,
        _,
        _,
        version,
        code,
        key_bytes,
        rounds,
        padding,
        iv_len,
        reserved @ ..,
    ] = *fixed;
    if version != VERSION {
        return Err(HeaderError::Version(version));
    }
    let mode = Mode::ALL.into_iter().find(|mode| mode.code() == code);
    let mode = mode.ok_or(HeaderError::Mode(code))?;
    let variant = Variant::from_parts(key_bytes.into(), rounds.into())
        .ok_or(HeaderError::Variant { key_bytes, rounds })?;
    let expected = mode.padding_code();
    if padding != expected {
        let found = padding;
        return Err(HeaderError::Padding {
            mode,
            expected,
            found,
        });
    }
    if usize::from(iv_len) != mode.iv_len() {
        return Err(HeaderError::IvLength {
            mode,
            expected: u8::try_from(mode.iv_len()).unwrap_or(u8::MAX),
            found: iv_len,
        });
    }
    let first = FIXED_LEN - reserved.len();
    match reserved.iter().position(|byte| *byte != 0) {
        Some(index) => Err(HeaderError::Reserved {
            offset: first + index,
            value: reserved.get(index).copied().unwrap_or_default(),
        }),
        None => Ok((variant, mode)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    const IV: Block = [0x5a; 32];

    fn headers() -> impl Iterator<Item = Header> {
        Variant::ALL.into_iter().flat_map(|variant| {
            [
                Header::ecb(variant),
                Header::cbc(variant, IV),
                Header::ctr(variant, IV),
            ]
        })
    }

    #[test]
    fn every_header_reads_back() {
        for header in headers() {
            let mut bytes = header.encode();
            assert_eq!(bytes.len(), FIXED_LEN + header.mode().iv_len());
            bytes.push(0xee);
            assert_eq!(Header::parse(&bytes), Ok((header, &[0xee][..])));
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let bytes = Header::ctr(Variant::Indect320, IV).encode();
        assert_eq!(bytes[..16], *b"IBC1\x01\x02\x28\x0c\x00\x20\0\0\0\0\0\0");
        assert_eq!(bytes[16..], IV);
        let bytes = Header::ecb(Variant::Indect128).encode();
        assert_eq!(bytes, *b"IBC1\x01\x00\x10\x08\x01\x00\0\0\0\0\0\0");
    }

    #[test]
    fn every_cut_is_told_as_a_cut() {
        for header in headers() {
            let bytes = header.encode();
            for have in 0..bytes.len() {
                let need = if have < FIXED_LEN { FIXED_LEN } else { MAX_LEN };
                let error = Header::parse(&bytes[..have]).unwrap_err();
                assert_eq!(error, HeaderError::Truncated { have, need });
            }
        }
    }

    /// Changes each fixed byte to every other value: what still parses differs in mode or variant
    /// only, and encodes to the very bytes that were read.
    #[test]
    fn no_two_spellings_mean_the_same() {
        for header in headers() {
            let good = header.encode();
            for at in 0..FIXED_LEN {
                for value in 0..=u8::MAX {
                    let mut bytes = good.clone();
                    bytes[at] = value;
                    if let Ok((read, rest)) = Header::parse(&bytes) {
                        let mut again = read.encode();
                        again.extend_from_slice(rest);
                        assert_eq!(again, bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn each_wrong_field_is_named_with_its_value() {
        let spoilt = |at: usize, value: u8| {
            let mut bytes = Header::cbc(Variant::Indect256, IV).encode();
            bytes[at] = value;
            Header::parse(&bytes).unwrap_err().to_string()
        };
        for (at, value, message) in [
            (0, b'X', "the file does not begin with IBC1"),
            (4, 2, "field version is 2, known is 1"),
            (5, 3, "field mode is 3, known are 0 to 2"),
            (
                6,
                17,
                "fields key length and rounds are 17 and 10, which is no IBC variant",
            ),
            (
                7,
                9,
                "fields key length and rounds are 32 and 9, which is no IBC variant",
            ),
            (8, 0, "field padding is 0, mode cbc has 1"),
            (9, 16, "field IV length is 16, mode cbc has 32"),
            (10, 1, "reserved byte 10 is 0x01, not zero"),
            (15, 0x80, "reserved byte 15 is 0x80, not zero"),
        ] {
            assert_eq!(spoilt(at, value), message);
        }
        assert_eq!(Header::parse(b"PK\x03\x04"), Err(HeaderError::Magic));
        assert_eq!(Header::parse(b"IX"), Err(HeaderError::Magic));
    }

    #[test]
    fn contradictions_are_found_and_silence_is_none() {
        let header = Header::cbc(Variant::Indect128, IV);
        let check = |variant, mode, iv| header.check(&Expected { variant, mode, iv });
        assert_eq!(check(None, None, None), Ok(()));
        let all = (Some(Variant::Indect128), Some(Mode::Cbc), Some(IV));
        assert_eq!(check(all.0, all.1, all.2), Ok(()));
        assert_eq!(
            check(Some(Variant::Indect128Vh), None, None),
            Err(Contradiction::Variant {
                header: Variant::Indect128,
                given: Variant::Indect128Vh
            })
        );
        assert_eq!(
            check(None, Some(Mode::Ctr), None),
            Err(Contradiction::Mode {
                header: Mode::Cbc,
                given: Mode::Ctr
            })
        );
        assert_eq!(check(None, None, Some([0; 32])), Err(Contradiction::Iv));
        let ecb = Header::ecb(Variant::Indect128);
        let iv = Some(IV);
        let expected = Expected {
            iv,
            ..Expected::default()
        };
        assert_eq!(ecb.check(&expected), Err(Contradiction::Iv));
    }

    #[test]
    fn modes_have_names() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().to_uppercase().parse(), Ok(mode));
        }
        assert_eq!("ofb".parse::<Mode>(), Err(UnknownMode));
    }
}
