//! The manifest: what a sealed block says about itself, as canonical JSON.
//!
//! One manifest has exactly one byte representation (RFC 8785), so that its SHA-256 can chain the
//! blocks of a camera and so that a verifier in another language hashes the same bytes. Numbers
//! are integers of at most 53 bits, because RFC 8785 numbers are IEEE 754 doubles.

mod check;

use pki::clearance::Clearance;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::digest::Sha256Digest;

/// Value of the field `schema`.
pub const SCHEMA: &str = "cordon.manifest/1";
/// Largest manifest, in bytes of canonical JSON.
pub const MAX_MANIFEST_LEN: usize = 256 * 1024;
/// Most media in one block.
pub const MAX_MEDIA: usize = 64;
/// Most entries in [`Notice::dropped`]; more are told by several notices.
pub const MAX_DROPPED: usize = 1_000;
/// Largest integer of the format (RFC 8785 section 3.2.2.3 and RFC 7493 section 2.2).
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Kind of a camera's statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An observed violation with its pictures or video.
    Violation,
    /// A statement of the camera about itself, for instance that blocks were dropped.
    Notice,
}

/// Place of a violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Human name, for instance `A4 km 215.3 westbound`.
    pub name: String,
    /// Latitude in millionths of a degree, north positive, WGS 84.
    pub latitude_microdeg: i32,
    /// Longitude in millionths of a degree, east positive, WGS 84.
    pub longitude_microdeg: i32,
}

/// The facts of one violation, as the camera measured them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// Kind of violation: a token such as `speeding` or `red-light`.
    #[serde(rename = "type")]
    pub violation_type: String,
    /// Place of the violation.
    pub place: Place,
    /// Measured speed in km/h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_kmh: Option<u32>,
    /// Speed limit in km/h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_kmh: Option<u32>,
    /// Number plate as read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plate: Option<String>,
    /// Lane, counted from the kerb, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<u32>,
    /// Serial number of the measuring device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_serial: Option<String>,
}

/// One picture, film or file of the block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// File name without folder, unique in the block.
    pub name: String,
    /// Media type, for instance `image/jpeg`.
    pub media_type: String,
    /// Size of the plaintext in bytes.
    pub size: u64,
    /// SHA-256 of the plaintext.
    pub sha256: Sha256Digest,
}

/// Why the camera gave a block up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// Evicted to make room for a block of the same or a higher class.
    SpoolFull,
    /// Older than the longest time a block may wait.
    Expired,
    /// The stored block could not be read back or no longer had its hash.
    Damaged,
}

/// A block that will never arrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Sequence number of the block.
    pub sequence: u64,
    /// SHA-256 of its manifest, so that the chain of hashes can be followed across it.
    pub manifest_sha256: Sha256Digest,
    /// Why it was given up.
    pub reason: DropReason,
}

/// A statement of the camera about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notice {
    /// Blocks the camera gave up; one block may be named by more than one notice.
    pub dropped: Vec<Dropped>,
    /// Free text for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A sealed block's statement about itself; made by [`crate::seal::Sealer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub schema: String,
    pub kind: Kind,
    /// Common name of the camera's certificate.
    pub device: String,
    /// Position in the camera's chain, from 1, without holes.
    pub sequence: u64,
    /// SHA-256 of the previous manifest's canonical bytes; zeros in the first one.
    pub previous: Sha256Digest,
    /// When the violation was seen; UTC, at most nanoseconds.
    #[serde(with = "time::serde::rfc3339")]
    pub captured_at: OffsetDateTime,
    /// When the block was sealed; UTC, whole seconds, equal to the signing time.
    #[serde(with = "time::serde::rfc3339")]
    pub sealed_at: OffsetDateTime,
    /// Clearance needed to see the content, 0 to 4.
    pub classification: Clearance,
    /// Present exactly when `kind` is `violation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation: Option<Violation>,
    /// The media in the order they stand in the block; empty in a notice.
    pub media: Vec<Medium>,
    /// Present exactly when `kind` is `notice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Notice>,
}

/// Why bytes are not a manifest, or a manifest is not acceptable.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// More than [`MAX_MANIFEST_LEN`] bytes.
    #[error("manifest of {len} bytes is larger than {MAX_MANIFEST_LEN}")]
    TooLarge { len: usize },
    /// Not JSON, a field is missing, unknown, repeated or of another type.
    #[error("manifest is not of schema {SCHEMA}")]
    Json(#[source] serde_json::Error),
    /// The field `schema` names something else.
    #[error("manifest schema is {found:?}, expected {SCHEMA:?}")]
    Schema { found: String },
    /// The bytes differ from the canonical form of what they say.
    #[error("manifest is not in canonical form")]
    NotCanonical,
    /// A field's value is outside what the format allows.
    #[error("manifest field {field}: {problem}")]
    Field {
        /// Name of the field, with dots for nesting.
        field: &'static str,
        problem: &'static str,
    },
}

impl ManifestError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "manifest-too-large",
            Self::Json(_) => "manifest-malformed",
            Self::Schema { .. } => "manifest-schema-unsupported",
            Self::NotCanonical => "manifest-not-canonical",
            Self::Field { .. } => "manifest-field-invalid",
        }
    }
}

impl Manifest {
    /// Reads a manifest and checks every rule of the format, including that `bytes` are canonical.
    ///
    /// # Errors
    /// [`ManifestError`], one variant per reason.
    pub fn parse_canonical(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_MANIFEST_LEN {
            return Err(ManifestError::TooLarge { len: bytes.len() });
        }
        check::schema(bytes)?;
        let manifest: Self = serde_json::from_slice(bytes).map_err(ManifestError::Json)?;
        check::manifest(&manifest)?;
        if encode(&manifest)? != bytes {
            return Err(ManifestError::NotCanonical);
        }
        Ok(manifest)
    }

    /// The canonical bytes (RFC 8785), which are what is signed and hashed.
    ///
    /// # Errors
    /// [`ManifestError::Field`] if a rule of the format is broken, or
    /// [`ManifestError::TooLarge`].
    pub fn to_canonical(&self) -> Result<Vec<u8>, ManifestError> {
        check::manifest(self)?;
        let bytes = encode(self)?;
        if bytes.len() > MAX_MANIFEST_LEN {
            return Err(ManifestError::TooLarge { len: bytes.len() });
        }
        Ok(bytes)
    }
}

fn encode(manifest: &Manifest) -> Result<Vec<u8>, ManifestError> {
    serde_json_canonicalizer::to_vec(manifest).map_err(ManifestError::Json)
}

pub use check::medium_name as check_medium_name;

#[cfg(test)]
mod tests;
