//! The trust file: what a verifier knows before it sees a package.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{CheckError, malformed};
use crate::digest::Sha256Digest;

/// Value of the field `schema`.
pub const SCHEMA: &str = "cordon.trust/1";

/// A verifier's trust, had from the authority itself over another way than the package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustFile {
    pub schema: String,
    /// SHA-256 of the root certificate's DER.
    pub root_sha256: Sha256Digest,
    /// Arc of the installation's own extensions; `.3` under it says what an authority issues.
    pub extension_arc: String,
    pub log: LogTrust,
    /// Witnesses of the log's checkpoints. Room for a later version: this one refuses a file that
    /// demands any, for it would not look for them.
    pub witnesses: Vec<Value>,
}

/// The audit log, as a verifier knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogTrust {
    pub origin: String,
    /// Its Ed25519 public key, 32 bytes in hexadecimal.
    pub public_key: String,
}

impl TrustFile {
    /// Pins a root certificate and a log.
    #[must_use]
    pub fn new(
        root_sha256: Sha256Digest,
        extension_arc: String,
        origin: String,
        public_key: &[u8; 32],
    ) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            root_sha256,
            extension_arc,
            log: LogTrust {
                origin,
                public_key: hex::encode(public_key),
            },
            witnesses: Vec::new(),
        }
    }

    /// Reads a trust file.
    ///
    /// # Errors
    /// [`CheckError::Trust`] or [`CheckError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CheckError> {
        let trust: Self =
            serde_json::from_slice(bytes).map_err(|e| malformed("the trust file", e))?;
        if trust.schema != SCHEMA {
            return Err(CheckError::Trust("schema is not cordon.trust/1"));
        }
        if !trust.witnesses.is_empty() {
            return Err(CheckError::Trust(
                "it demands witnesses, which this version cannot check",
            ));
        }
        trust.log_key()?;
        Ok(trust)
    }

    pub(super) fn log_key(&self) -> Result<[u8; 32], CheckError> {
        let mut key = [0; 32];
        hex::decode_to_slice(&self.log.public_key, &mut key)
            .map_err(|_| CheckError::Trust("log.public_key is not 32 bytes in hexadecimal"))?;
        Ok(key)
    }
}
