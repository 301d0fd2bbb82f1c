//! The receipt: the centre's signed statement about what became of a block.
//!
//! A camera deletes its copy only after [`verify`] has accepted a receipt that names the block. The
//! receipt is canonical JSON like the manifest, signed like it (CMS `SignedData`, CAdES-BES).

use std::error::Error;

use pki::cert::CertificateChain;
use pki::key::PrivateKey;
use pki::profile::ServiceRole;
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, UtcOffset};

use crate::cms::{self, CmsError, Placement};
use crate::digest::Sha256Digest;
use crate::manifest::MAX_INTEGER;
use crate::names;

/// Value of the field `schema` of receipts without a checkpoint, for cameras of earlier versions.
pub const SCHEMA: &str = "cordon.receipt/1";
/// Value of the field `schema` of receipts with a checkpoint.
pub const SCHEMA_2: &str = "cordon.receipt/2";
/// Largest checkpoint in a receipt, in bytes: room for a dozen signatures of witnesses.
pub const MAX_CHECKPOINT_LEN: usize = 4 * 1024;
/// Largest receipt, in bytes of JSON.
pub const MAX_RECEIPT_LEN: usize = 16 * 1024;
const MAX_TEXT_LEN: usize = 1_024;

/// The centre's decision about the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Verified, archived and indexed.
    Accepted,
    /// Kept, but set apart for a person to look at; `reason` says why.
    Quarantined,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// [`SCHEMA`] or [`SCHEMA_2`].
    pub schema: String,
    /// SHA-256 over the whole block.
    pub block_sha256: Sha256Digest,
    /// Size of the block in bytes.
    pub size: u64,
    /// The camera, by the manifest, or by its TLS certificate if the manifest is unreadable.
    pub device: String,
    /// Sequence number by the manifest; absent if the manifest is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// SHA-256 of the manifest; absent if it is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_sha256: Option<Sha256Digest>,
    pub verdict: Verdict,
    /// Why, present exactly when quarantined: a code such as `chunk-authentication`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the last byte had been received; UTC.
    #[serde(with = "time::serde::rfc3339")]
    pub received_at: OffsetDateTime,
    /// Origin of the audit log that holds the event of receipt.
    pub log_origin: String,
    /// Index of that event in the log.
    pub log_index: u64,
    /// Checkpoint of the log that has the event: a signed note (C2SP). Present exactly with
    /// [`SCHEMA_2`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// Why a receipt was refused or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// More than [`MAX_RECEIPT_LEN`] bytes.
    #[error("receipt of {len} bytes is larger than {MAX_RECEIPT_LEN}")]
    TooLarge { len: usize },
    /// Not JSON of this schema.
    #[error("receipt is not of schema {SCHEMA} or {SCHEMA_2}")]
    Json(#[source] serde_json::Error),
    /// The bytes differ from the canonical form of what they say.
    #[error("receipt is not in canonical form")]
    NotCanonical,
    /// A field's value is outside what the format allows.
    #[error("receipt field {field}: {problem}")]
    Field {
        /// Name of the field.
        field: &'static str,
        problem: &'static str,
    },
    /// The signature is not valid, or signing failed.
    #[error("signature of the receipt is not valid")]
    Signature(#[source] CmsError),
    /// The signer's role is to sign trust bundles.
    #[error("receipt is signed by the role for trust bundles")]
    OtherRole,
    /// The caller does not trust the signer.
    #[error("signer of the receipt is not trusted")]
    Untrusted(#[source] Box<dyn Error + Send + Sync>),
}

impl ReceiptError {
    /// Stable name of the reason.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "receipt-too-large",
            Self::Json(_) => "receipt-malformed",
            Self::NotCanonical => "receipt-not-canonical",
            Self::Field { .. } => "receipt-field-invalid",
            Self::Signature(_) => "receipt-signature-invalid",
            Self::Untrusted(_) | Self::OtherRole => "receipt-signer-untrusted",
        }
    }
}

impl Receipt {
    /// Reads a receipt's canonical JSON; says nothing about its signature.
    ///
    /// # Errors
    /// [`ReceiptError`], one variant per reason.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReceiptError> {
        if bytes.len() > MAX_RECEIPT_LEN {
            return Err(ReceiptError::TooLarge { len: bytes.len() });
        }
        let receipt: Self = serde_json::from_slice(bytes).map_err(ReceiptError::Json)?;
        if receipt.to_canonical()? != bytes {
            return Err(ReceiptError::NotCanonical);
        }
        Ok(receipt)
    }

    /// The canonical bytes (RFC 8785), which are what is signed.
    ///
    /// # Errors
    /// [`ReceiptError::Field`] if a rule of the format is broken.
    pub fn to_canonical(&self) -> Result<Vec<u8>, ReceiptError> {
        self.check()?;
        serde_json_canonicalizer::to_vec(self).map_err(ReceiptError::Json)
    }

    /// Signs the receipt with the centre's key.
    ///
    /// The signing time is `received_at`, so that one check of the chain at that time serves both.
    ///
    /// # Errors
    /// [`ReceiptError::Field`] or [`ReceiptError::Signature`].
    pub fn sign(
        &self,
        key: &PrivateKey,
        chain: &CertificateChain,
    ) -> Result<Vec<u8>, ReceiptError> {
        self.sign_at(key, chain, self.received_at)
    }

    /// Signs the receipt at another time than that of its first signature.
    ///
    /// # Errors
    /// [`ReceiptError::Field`] or [`ReceiptError::Signature`].
    pub fn sign_at(
        &self,
        key: &PrivateKey,
        chain: &CertificateChain,
        at: OffsetDateTime,
    ) -> Result<Vec<u8>, ReceiptError> {
        cms::sign(key, chain, &self.to_canonical()?, Placement::Attached, at)
            .map_err(ReceiptError::Signature)
    }

    fn check(&self) -> Result<(), ReceiptError> {
        let refuse = |field, problem| Err(ReceiptError::Field { field, problem });
        let bad = |text: &str, max: usize| {
            text.is_empty() || text.len() > max || text.chars().any(char::is_control)
        };
        match (self.schema.as_str(), &self.checkpoint) {
            (SCHEMA, None) => {}
            (SCHEMA_2, Some(note)) => {
                let plain = |c: char| c == '\n' || !c.is_control();
                if note.is_empty() || note.len() > MAX_CHECKPOINT_LEN || !note.chars().all(plain) {
                    return refuse("checkpoint", "empty, too long or with control characters");
                }
            }
            (SCHEMA | SCHEMA_2, _) => return refuse("checkpoint", "does not fit the schema"),
            _ => return refuse("schema", "is not cordon.receipt/1 or /2"),
        }
        if self.size > MAX_INTEGER || self.log_index > MAX_INTEGER {
            return refuse("size", "above 2^53 - 1");
        }
        if self.sequence.is_some_and(|s| s == 0 || s > MAX_INTEGER) {
            return refuse("sequence", "outside 1 to 2^53 - 1");
        }
        if bad(&self.device, MAX_TEXT_LEN) {
            return refuse("device", "empty, too long or with control characters");
        }
        if bad(&self.log_origin, MAX_TEXT_LEN) {
            return refuse("log_origin", "empty, too long or with control characters");
        }
        if self.reason.as_deref().is_some_and(|r| bad(r, MAX_TEXT_LEN)) {
            return refuse("reason", "empty, too long or with control characters");
        }
        if self.received_at.offset() != UtcOffset::UTC
            || !(2000..=2999).contains(&self.received_at.year())
        {
            return refuse(
                "received_at",
                "not in UTC or outside the years 2000 to 2999",
            );
        }
        match self.verdict {
            Verdict::Accepted if self.reason.is_some() => refuse("reason", "given on acceptance"),
            Verdict::Accepted if self.sequence.is_none() || self.manifest_sha256.is_none() => {
                refuse("sequence", "missing on acceptance")
            }
            Verdict::Quarantined if self.reason.is_none() => {
                refuse("reason", "missing on quarantine")
            }
            Verdict::Accepted | Verdict::Quarantined => Ok(()),
        }
    }
}

/// A receipt whose signature is valid and whose signer the caller trusts; made by [`verify`] only.
#[derive(Clone, Debug)]
pub struct VerifiedReceipt {
    receipt: Receipt,
    der: Vec<u8>,
    signer_chain: CertificateChain,
    signing_time: OffsetDateTime,
}

impl VerifiedReceipt {
    /// Returns the content of the receipt.
    #[must_use]
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The signed message, as received.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The signer's certificate and issuers, leaf first.
    #[must_use]
    pub fn signer_chain(&self) -> &CertificateChain {
        &self.signer_chain
    }

    /// When the centre says it signed.
    #[must_use]
    pub fn signing_time(&self) -> OffsetDateTime {
        self.signing_time
    }
}

/// Verifies a signed receipt; `trust` decides on the signer from its chain and the signing time.
///
/// # Errors
/// [`ReceiptError::Signature`], [`ReceiptError::Untrusted`] with `trust`'s error, or a reason of
/// [`Receipt::parse`].
pub fn verify<E>(
    der: &[u8],
    trust: impl FnOnce(&CertificateChain, OffsetDateTime) -> Result<(), E>,
) -> Result<VerifiedReceipt, ReceiptError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let verified = cms::parse_signed_data(der)
        .and_then(|message| message.verify())
        .map_err(ReceiptError::Signature)?;
    if names::service_role(verified.signer_chain.leaf()) != Some(ServiceRole::Receipts) {
        return Err(ReceiptError::OtherRole);
    }
    trust(&verified.signer_chain, verified.signing_time)
        .map_err(|e| ReceiptError::Untrusted(e.into()))?;
    Ok(VerifiedReceipt {
        receipt: Receipt::parse(&verified.content)?,
        der: der.to_vec(),
        signer_chain: verified.signer_chain,
        signing_time: verified.signing_time,
    })
}
