//! Initialisation vectors (specification, section 4).

use crate::{Block, Ibc};

/// An initialisation vector as it comes from outside; the modes expand it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iv {
    /// 16 bytes, for programs that know no longer ones. It must not repeat under a key, but may
    /// be predictable (a packet number).
    Short([u8; 16]),
    /// 32 bytes, used as they are. For CBC they must be unpredictable, for CTR the counter ranges
    /// of two messages must not overlap.
    Full([u8; 32]),
}

/// An initialisation vector must have 16 or 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("IV has {0} bytes, expected 16 or 32")]
pub struct IvLengthError(
    /// Bytes given.
    pub usize,
);

impl TryFrom<&[u8]> for Iv {
    type Error = IvLengthError;

    fn try_from(bytes: &[u8]) -> Result<Self, IvLengthError> {
        if let Ok(short) = bytes.try_into() {
            Ok(Self::Short(short))
        } else if let Ok(full) = bytes.try_into() {
            Ok(Self::Full(full))
        } else {
            Err(IvLengthError(bytes.len()))
        }
    }
}

impl Iv {
    /// First chaining value of CBC. A short IV is encrypted with its complement, so that the
    /// value is unpredictable even if the IV is not.
    pub(crate) fn chaining_value(&self, cipher: &Ibc) -> Block {
        match self {
            Self::Full(block) => *block,
            Self::Short(short) => {
                let mut block = join(short, &short.map(|b| !b));
                cipher.encrypt_block(&mut block);
                block
            }
        }
    }

    /// First counter block of CTR. A short IV is followed by zeros: 2^128 blocks per IV.
    pub(crate) fn counter_block(&self) -> Block {
        match self {
            Self::Full(block) => *block,
            Self::Short(short) => join(short, &[0; 16]),
        }
    }
}

fn join(left: &[u8; 16], right: &[u8; 16]) -> Block {
    let mut block = [0; 32];
    for (to, from) in block.iter_mut().zip(left.iter().chain(right)) {
        *to = *from;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_16_and_32_bytes_are_taken() {
        for len in 0..=40usize {
            let iv = Iv::try_from(&[7u8; 40][..len]);
            match len {
                16 => assert_eq!(iv, Ok(Iv::Short([7; 16]))),
                32 => assert_eq!(iv, Ok(Iv::Full([7; 32]))),
                _ => assert_eq!(iv, Err(IvLengthError(len))),
            }
        }
    }
}
