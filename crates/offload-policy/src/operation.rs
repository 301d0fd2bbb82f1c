//! Operations for which the engine is chosen.

/// An operation on a whole message, or on a piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// AES in Galois/counter mode: encryption, and the tag.
    GcmSeal,
    /// AES in Galois/counter mode: comparison of the tag, and decryption.
    GcmOpen,
    /// AES in CBC mode: encryption of whole blocks.
    CbcEncrypt,
    /// AES in CBC mode: decryption of whole blocks.
    CbcDecrypt,
    /// AES in counter mode, in either direction.
    Ctr,
    /// HMAC with SHA-1.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// RSA's private operation, without any encoding.
    RsaPrivate,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 8] = [
        Self::GcmSeal,
        Self::GcmOpen,
        Self::CbcEncrypt,
        Self::CbcDecrypt,
        Self::Ctr,
        Self::HmacSha1,
        Self::HmacSha256,
        Self::RsaPrivate,
    ];

    /// Operations on messages of any size.
    pub const MESSAGES: [Self; 7] = [
        Self::GcmSeal,
        Self::GcmOpen,
        Self::CbcEncrypt,
        Self::CbcDecrypt,
        Self::Ctr,
        Self::HmacSha1,
        Self::HmacSha256,
    ];

    /// The name for people and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GcmSeal => "AES-GCM seal",
            Self::GcmOpen => "AES-GCM open",
            Self::CbcEncrypt => "AES-CBC encrypt",
            Self::CbcDecrypt => "AES-CBC decrypt",
            Self::Ctr => "AES-CTR",
            Self::HmacSha1 => "HMAC-SHA1",
            Self::HmacSha256 => "HMAC-SHA256",
            Self::RsaPrivate => "RSA private",
        }
    }

    /// Bytes of the tag that a device appends to its result.
    pub const fn tag_len(self) -> usize {
        match self {
            Self::GcmSeal => 16,
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            _ => 0,
        }
    }

    /// Bytes of a device's result for a message of `len` bytes.
    pub const fn result_len(self, len: usize) -> usize {
        match self {
            Self::HmacSha1 | Self::HmacSha256 => self.tag_len(),
            _ => len.saturating_add(self.tag_len()),
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
