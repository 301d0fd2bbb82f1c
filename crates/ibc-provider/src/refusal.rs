//! Reasons for which a call is refused, as the provider's own reason codes in OpenSSL's error queue.

use std::ffi::{CStr, c_uint};
use std::panic::Location;

use provider_abi::{CallError, Host};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the key has {given} bytes and this cipher takes {wanted}")]
    KeyLength { given: usize, wanted: usize },
    #[error("the IV has {given} bytes and this context takes {wanted}")]
    IvLength { given: usize, wanted: usize },
    #[error("no key was set")]
    NoKey,
    #[error("no IV was set")]
    NoIv,
    #[error("neither encryption nor decryption was begun")]
    NotBegun,
    #[error("the message is finished; begin the next one with an init call")]
    Finished,
    /// One reason for a wrong length and wrong padding (section 4 of the specification): what is
    /// wrong with a ciphertext must not be told apart.
    #[error("wrong key, or the ciphertext is cut or damaged")]
    BadDecrypt,
    #[error("without padding the data must be a multiple of 32 bytes and {left} are left over")]
    PartialBlock { left: usize },
    #[error("the output needs {needed} bytes and has room for {room}")]
    OutputTooSmall { needed: usize, room: usize },
    #[error("the output overlaps later parts of the input")]
    Overlap,
    #[error("a pointer is null where {bytes} bytes are announced")]
    NullPointer { bytes: usize },
    #[error("the parameter {0:?} has a wrong type, size or value")]
    Parameter(&'static CStr),
    #[error("an internal error; the context can no longer be used")]
    Broken,
    #[error("the configured back end is unknown or this processor does not have it")]
    Backend,
}

impl provider_abi::Refusal for Refusal {
    const BROKEN: Self = Self::Broken;

    fn raise(self, host: &Host, place: &Location<'_>) {
        host.raise(self.reason(), &self.to_string(), c"cordon_ibc", place);
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        match error {
            CallError::OutputTooSmall { needed, room } => Self::OutputTooSmall { needed, room },
            CallError::NullPointer { bytes } => Self::NullPointer { bytes },
            CallError::Parameter(name) => Self::Parameter(name),
        }
    }
}

impl Refusal {
    /// The code in the error queue.
    pub(crate) const fn reason(self) -> c_uint {
        match self {
            Self::KeyLength { .. } => 1,
            Self::IvLength { .. } => 2,
            Self::NoKey => 3,
            Self::NoIv => 4,
            Self::NotBegun => 5,
            Self::Finished => 6,
            Self::BadDecrypt => 7,
            Self::PartialBlock { .. } => 8,
            Self::OutputTooSmall { .. } => 9,
            Self::Overlap => 10,
            Self::NullPointer { .. } => 11,
            Self::Parameter(_) => 12,
            Self::Broken => 13,
            Self::Backend => 14,
        }
    }
}

/// Codes and their texts, as error messages show them before the details.
pub(crate) const REASONS: [(c_uint, &CStr); 14] = [
    (1, c"invalid key length"),
    (2, c"invalid iv length"),
    (3, c"no key set"),
    (4, c"no iv set"),
    (5, c"not initialised"),
    (6, c"already finished"),
    (7, c"bad decrypt"),
    (8, c"data not multiple of block length"),
    (9, c"output buffer too small"),
    (10, c"partially overlapping buffers"),
    (11, c"null pointer"),
    (12, c"invalid parameter"),
    (13, c"internal error"),
    (14, c"unknown back end"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_text() {
        let all = [
            Refusal::KeyLength {
                given: 1,
                wanted: 16,
            },
            Refusal::IvLength {
                given: 1,
                wanted: 16,
            },
            Refusal::NoKey,
            Refusal::NoIv,
            Refusal::NotBegun,
            Refusal::Finished,
            Refusal::BadDecrypt,
            Refusal::PartialBlock { left: 1 },
            Refusal::OutputTooSmall { needed: 2, room: 1 },
            Refusal::Overlap,
            Refusal::NullPointer { bytes: 1 },
            Refusal::Parameter(c"ivlen"),
            Refusal::Broken,
            Refusal::Backend,
        ];
        assert_eq!(all.map(Refusal::reason), REASONS.map(|(code, _)| code));
        let texts: std::collections::BTreeSet<_> = REASONS.iter().map(|(_, text)| text).collect();
        assert_eq!(texts.len(), REASONS.len());
    }
}
