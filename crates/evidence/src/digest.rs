//! SHA-256 values as a type, and hashing while reading or writing.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use aws_lc_rs::digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes in a SHA-256 value.
pub const SHA256_LEN: usize = 32;

/// A SHA-256 value; shown, parsed and serialised as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Digest([u8; SHA256_LEN]);

impl Sha256Digest {
    /// All bits zero: the predecessor of a camera's first manifest.
    pub const ZERO: Self = Self([0; SHA256_LEN]);

    /// Hashes `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_digest(&digest::digest(&digest::SHA256, bytes))
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; SHA256_LEN] {
        &self.0
    }

    /// Whether this is [`Self::ZERO`].
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    fn from_digest(value: &digest::Digest) -> Self {
        let mut out = [0; SHA256_LEN];
        for (to, from) in out.iter_mut().zip(value.as_ref()) {
            *to = *from;
        }
        Self(out)
    }
}

impl From<[u8; SHA256_LEN]> for Sha256Digest {
    fn from(bytes: [u8; SHA256_LEN]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a sha-256 value of 64 lower-case hexadecimal digits")]
pub struct NotASha256;

impl FromStr for Sha256Digest {
    type Err = NotASha256;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // One form only: upper case would give one value two canonical manifests.
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(NotASha256);
        }
        let mut out = [0; SHA256_LEN];
        hex::decode_to_slice(text, &mut out).map_err(|_| NotASha256)?;
        Ok(Self(out))
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// An incremental SHA-256.
pub struct Sha256 {
    context: digest::Context,
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

impl Sha256 {
    /// Starts an empty hash.
    #[must_use]
    pub fn new() -> Self {
        Self {
            context: digest::Context::new(&digest::SHA256),
        }
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    #[must_use]
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest::from_digest(&self.context.finish())
    }
}

/// Passes bytes on to a writer, counting and hashing what the writer took.
pub(crate) struct HashingWriter<'a> {
    inner: &'a mut dyn Write,
    hash: Sha256,
    written: u64,
}

impl<'a> HashingWriter<'a> {
    pub(crate) fn new(inner: &'a mut dyn Write) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            written: 0,
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn finish(self) -> (Sha256Digest, u64) {
        (self.hash.finish(), self.written)
    }
}

impl Write for HashingWriter<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.hash.update(buf.get(..n).unwrap_or(buf));
        self.written = self.written.saturating_add(n as u64);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
