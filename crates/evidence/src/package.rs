//! The form of a custody package, in which its maker and its verifier agree.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use const_oid::db::{rfc5912, rfc8410};
use der::Encode as _;
use pki::key::KeyAlgorithm;
use serde::{Deserialize, Serialize};
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use time::OffsetDateTime;

use crate::digest::Sha256Digest;

/// Event that began the epoch of the camera's chain, in packages of blocks after the first epoch.
pub(crate) const EPOCH: &str = "epoch.json";

/// Content of [`EPOCH`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EpochFile {
    /// The leaf, which is JSON of its own.
    pub(crate) entry: String,
    /// RFC 6962 inclusion proof, lowest first.
    pub(crate) hashes: Vec<Sha256Digest>,
    pub(crate) index: u64,
}

/// List of the hashes of a package's files.
pub(crate) const SUMS: &str = "SHA256SUMS";

/// Signature over [`SUMS`].
pub(crate) const SIGNATURE: &str = "SHA256SUMS.sig";

/// Content of `package.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageFile {
    pub schema: String,
    pub violation: String,
    /// When the package was made, by the clock of its maker.
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// For whom and why.
    pub purpose: String,
    /// Index of the receipt's event in the log.
    pub receipt_index: u64,
    /// Index of the event of this export, the newest of the custody record.
    pub export_index: u64,
}

/// Value of the field `schema` of `package.json`. Packages of earlier versions have no such file.
pub const PACKAGE_SCHEMA: &str = "cordon.package/2";

/// Most audit events in a package, some 100 MB with their proofs. A violation with more cannot be
/// exported: leaving events out would make the custody record incomplete.
pub const MAX_EVENTS: usize = 50_000;

/// Name of medium number `index` (from 0) in a package.
///
/// Names are safe for a file system by the manifest's rules; here also for a shell.
#[must_use]
pub fn medium_name(index: usize, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let safe: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    format!("media/{:02}-{safe}", index.saturating_add(1))
}

/// Verifies the raw signature over `SHA256SUMS`; the algorithm follows from the key.
pub(crate) fn verify_sums(
    spki: &SubjectPublicKeyInfoOwned,
    sums: &[u8],
    signature: &[u8],
) -> Result<(), ()> {
    let key = KeyAlgorithm::of_spki(spki).map_err(|_| ())?;
    let (oid, parameters) = match key {
        KeyAlgorithm::EcdsaP256 => (rfc5912::ECDSA_WITH_SHA_256, None),
        KeyAlgorithm::EcdsaP384 => (rfc5912::ECDSA_WITH_SHA_384, None),
        KeyAlgorithm::Ed25519 => (rfc8410::ID_ED_25519, None),
        _ => (rfc5912::SHA_256_WITH_RSA_ENCRYPTION, Some(der::Any::null())),
    };
    let algorithm = AlgorithmIdentifierOwned { oid, parameters };
    let der = spki.to_der().map_err(|_| ())?;
    pki::key::verify(&der, &algorithm, sums, signature).map_err(|_| ())
}

/// An Ed25519 key as a PEM `SubjectPublicKeyInfo` (RFC 8410 section 4).
pub(crate) fn ed25519_pem(raw: &[u8; 32]) -> String {
    const PREFIX: [u8; 12] = [
        0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
    ];
    let mut der = PREFIX.to_vec();
    der.extend_from_slice(raw);
    format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(der)
    )
}
