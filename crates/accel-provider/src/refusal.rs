//! Reasons for which a call is refused, as the provider's own reason codes in OpenSSL's error queue.

use std::ffi::{CStr, c_uint};
use std::panic::Location;

use provider_abi::{CallError, Host};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("a key of {0} bytes does not fit")]
    KeyLength(usize),
    #[error("an IV of {given} bytes was given, expected {wanted}")]
    IvLength { given: usize, wanted: usize },
    #[error("no key was set")]
    NoKey,
    #[error("no IV was set, or the last one was used")]
    NoIv,
    #[error("neither encryption nor decryption was begun")]
    NotBegun,
    #[error("the message is finished; begin the next one with an init call")]
    Finished,
    /// One reason for wrong padding and a wrong length: what is wrong with a ciphertext must not be told apart.
    #[error("wrong key, or the ciphertext is cut or damaged")]
    BadDecrypt,
    #[error("without padding the data must be whole blocks of 16 bytes")]
    PartialBlock,
    #[error("the output needs {needed} bytes and has room for {room}")]
    OutputTooSmall { needed: usize, room: usize },
    #[error("the message is too long for the algorithm")]
    MessageLength,
    #[error("a pointer is null where {bytes} bytes are announced")]
    NullPointer { bytes: usize },
    #[error("the parameter {0:?} has a wrong type, size or value")]
    Parameter(&'static CStr),
    #[error("an internal error; the context can no longer be used")]
    Broken,
    #[error(
        "records of TLS in CBC mode are not offered; take suites with GCM, or leave cbc and hmac out of `algorithms`"
    )]
    TlsCbc,
    #[error("the setting {0:?} has a value that is none of its values")]
    Setting(&'static CStr),
    #[error("the digest is not offered for signatures")]
    Digest,
    #[error("the signature is wrong")]
    Signature,
    #[error(
        "the digest is not offered for HMAC; leave hmac out of `algorithms` for programs that need it"
    )]
    MacDigest,
}

impl provider_abi::Refusal for Refusal {
    const BROKEN: Self = Self::Broken;

    fn raise(self, host: &Host, place: &Location<'_>) {
        host.raise(self.reason(), &self.to_string(), c"cordon_accel", place);
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
            Self::KeyLength(_) => 1,
            Self::IvLength { .. } => 2,
            Self::NoKey => 3,
            Self::NoIv => 4,
            Self::NotBegun => 5,
            Self::Finished => 6,
            Self::BadDecrypt => 7,
            Self::PartialBlock => 8,
            Self::OutputTooSmall { .. } => 9,
            Self::MessageLength => 10,
            Self::NullPointer { .. } => 11,
            Self::Parameter(_) => 12,
            Self::Broken => 13,
            Self::TlsCbc => 14,
            Self::Setting(_) => 15,
            Self::Digest => 16,
            Self::Signature => 17,
            Self::MacDigest => 18,
        }
    }
}

/// Codes and their texts, as error messages show them before the details.
pub(crate) const REASONS: [(c_uint, &CStr); 18] = [
    (1, c"invalid key length"),
    (2, c"invalid iv length"),
    (3, c"no key set"),
    (4, c"no iv set"),
    (5, c"not initialised"),
    (6, c"already finished"),
    (7, c"bad decrypt"),
    (8, c"data not multiple of block length"),
    (9, c"output buffer too small"),
    (10, c"message too long"),
    (11, c"null pointer"),
    (12, c"invalid parameter"),
    (13, c"internal error"),
    (14, c"tls records in cbc mode are not offered"),
    (15, c"invalid setting"),
    (16, c"digest not offered"),
    (17, c"wrong signature"),
    (18, c"digest not offered for hmac"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_text() {
        let all = [
            Refusal::KeyLength(1),
            Refusal::IvLength {
                given: 1,
                wanted: 16,
            },
            Refusal::NoKey,
            Refusal::NoIv,
            Refusal::NotBegun,
            Refusal::Finished,
            Refusal::BadDecrypt,
            Refusal::PartialBlock,
            Refusal::OutputTooSmall { needed: 2, room: 1 },
            Refusal::MessageLength,
            Refusal::NullPointer { bytes: 1 },
            Refusal::Parameter(c"ivlen"),
            Refusal::Broken,
            Refusal::TlsCbc,
            Refusal::Setting(c"from"),
            Refusal::Digest,
            Refusal::Signature,
            Refusal::MacDigest,
        ];
        assert_eq!(all.map(Refusal::reason), REASONS.map(|(code, _)| code));
        let texts: std::collections::BTreeSet<_> = REASONS.iter().map(|(_, text)| text).collect();
        assert_eq!(texts.len(), REASONS.len());
    }
}
