//! The trust bundle: what a camera must know of its site for years, in one signed file.
//!
//! It names the certificates to seal to, the issuing authorities, the revocation lists and the audit
//! log's key. A camera fetches it on contact. It is canonical JSON signed like a receipt, by a central
//! role of its own ([`SIGNER`]).
//!
//! The signature protects choice and order, not trust: every certificate in it still needs its own
//! path to the camera's root, every list its issuer's signature. A bundle that is older than one
//! the camera has seen is refused by its version, so that nobody brings back a recipient whose key was
//! replaced.

use std::error::Error;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pki::cert::{self, Certificate, CertificateChain};
use pki::key::PrivateKey;
use pki::profile::ServiceRole;
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, UtcOffset};

use crate::cms::{self, CmsError, Placement};
use crate::digest::Sha256Digest;
use crate::manifest::MAX_INTEGER;
use crate::names;

/// Value of the field `schema`.
pub const SCHEMA: &str = "cordon.trust-bundle/1";
/// Common name in the certificate that signs bundles. Receipts are not accepted from it, nor bundles
/// from the role that signs receipts.
pub const SIGNER: &str = "Trust Bundle";
/// Largest bundle, in bytes of JSON: below what a camera reads of an answer (256 KiB).
pub const MAX_BUNDLE_LEN: usize = 160 * 1024;
/// Most certificates to seal to: the present and some that follow.
pub const MAX_RECIPIENTS: usize = 4;
/// Most authorities: each kind with former certificates that still have valid leaves.
pub const MAX_AUTHORITIES: usize = 16;
/// Most revocation lists: the root's and one of each authority.
pub const MAX_LISTS: usize = 8;
const MAX_TEXT_LEN: usize = 1_024;

/// A site's statement about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustBundle {
    pub schema: String,
    /// Grows with every change of the rest; never used twice.
    pub version: u64,
    /// When it was signed; UTC, whole seconds.
    #[serde(with = "time::serde::rfc3339")]
    pub issued_at: OffsetDateTime,
    /// Certificates to seal to, DER in base64.
    pub recipients: Vec<String>,
    /// Issuing authorities, DER in base64.
    pub authorities: Vec<String>,
    /// Revocation lists, DER in base64.
    pub lists: Vec<String>,
    /// Public key of the audit log (`name+hash+key`, C2SP signed-note), whose checkpoints receipts carry.
    pub log_key: String,
}

/// Why a bundle was refused or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// More than [`MAX_BUNDLE_LEN`] bytes.
    #[error("trust bundle of {len} bytes is larger than {MAX_BUNDLE_LEN}")]
    TooLarge { len: usize },
    /// Not JSON of this schema.
    #[error("trust bundle is not of schema {SCHEMA}")]
    Json(#[source] serde_json::Error),
    /// The bytes differ from the canonical form of what they say.
    #[error("trust bundle is not in canonical form")]
    NotCanonical,
    /// A field's value is outside what the format allows.
    #[error("trust bundle field {field}: {problem}")]
    Field {
        /// Name of the field.
        field: &'static str,
        problem: &'static str,
    },
    /// The signature is not valid, or signing failed.
    #[error("signature of the trust bundle is not valid")]
    Signature(#[source] CmsError),
    /// The signer has another role.
    #[error("trust bundle is signed by {found:?}, not by {SIGNER:?}")]
    OtherSigner {
        /// Common name of the signer.
        found: String,
    },
    /// The caller does not trust the signer.
    #[error("signer of the trust bundle is not trusted")]
    Untrusted(#[source] Box<dyn Error + Send + Sync>),
}

impl TrustBundle {
    /// Reads a bundle's canonical JSON; says nothing about its signature.
    ///
    /// # Errors
    /// [`BundleError`], one variant per reason.
    pub fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        if bytes.len() > MAX_BUNDLE_LEN {
            return Err(BundleError::TooLarge { len: bytes.len() });
        }
        let bundle: Self = serde_json::from_slice(bytes).map_err(BundleError::Json)?;
        if bundle.to_canonical()? != bytes {
            return Err(BundleError::NotCanonical);
        }
        Ok(bundle)
    }

    /// The canonical bytes (RFC 8785), which are what is signed.
    ///
    /// # Errors
    /// [`BundleError::Field`] or [`BundleError::TooLarge`] if a rule of the format is broken.
    pub fn to_canonical(&self) -> Result<Vec<u8>, BundleError> {
        self.check()?;
        let bytes = serde_json_canonicalizer::to_vec(self).map_err(BundleError::Json)?;
        if bytes.len() > MAX_BUNDLE_LEN {
            return Err(BundleError::TooLarge { len: bytes.len() });
        }
        Ok(bytes)
    }

    /// SHA-256 of everything but version and time: what decides whether a new version is needed.
    ///
    /// # Errors
    /// As [`Self::to_canonical`].
    pub fn content_sha256(&self) -> Result<Sha256Digest, BundleError> {
        let fixed = Self {
            version: 1,
            issued_at: OffsetDateTime::UNIX_EPOCH + time::Duration::days(365 * 40),
            ..self.clone()
        };
        Ok(Sha256Digest::of(&fixed.to_canonical()?))
    }

    /// Signs the bundle at `issued_at`.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn sign(&self, key: &PrivateKey, chain: &CertificateChain) -> Result<Vec<u8>, BundleError> {
        cms::sign(
            key,
            chain,
            &self.to_canonical()?,
            Placement::Attached,
            self.issued_at,
        )
        .map_err(BundleError::Signature)
    }

    /// The certificates to seal to.
    ///
    /// # Errors
    /// [`BundleError::Field`].
    pub fn recipients(&self) -> Result<Vec<Certificate>, BundleError> {
        certificates("recipients", &self.recipients)
    }

    /// The issuing authorities.
    ///
    /// # Errors
    /// [`BundleError::Field`].
    pub fn authorities(&self) -> Result<Vec<Certificate>, BundleError> {
        certificates("authorities", &self.authorities)
    }

    /// The revocation lists in DER.
    ///
    /// # Errors
    /// [`BundleError::Field`].
    pub fn lists(&self) -> Result<Vec<Vec<u8>>, BundleError> {
        decoded("lists", &self.lists)
    }

    fn check(&self) -> Result<(), BundleError> {
        let refuse = |field, problem| Err(BundleError::Field { field, problem });
        if self.schema != SCHEMA {
            return refuse("schema", "is not cordon.trust-bundle/1");
        }
        if self.version == 0 || self.version > MAX_INTEGER {
            return refuse("version", "outside 1 to 2^53 - 1");
        }
        if self.issued_at.offset() != UtcOffset::UTC
            || self.issued_at.nanosecond() != 0
            || !(2000..=2999).contains(&self.issued_at.year())
        {
            return refuse("issued_at", "not whole seconds of UTC, or of another age");
        }
        if self.recipients.is_empty() || self.recipients.len() > MAX_RECIPIENTS {
            return refuse("recipients", "none, or too many");
        }
        if self.authorities.is_empty() || self.authorities.len() > MAX_AUTHORITIES {
            return refuse("authorities", "none, or too many");
        }
        if self.lists.len() > MAX_LISTS {
            return refuse("lists", "too many");
        }
        if self.log_key.is_empty()
            || self.log_key.len() > MAX_TEXT_LEN
            || self.log_key.chars().any(char::is_control)
        {
            return refuse("log_key", "empty, too long or with control characters");
        }
        Ok(())
    }
}

/// A bundle whose signature is valid and whose signer the caller trusts; made by [`verify`] only.
#[derive(Clone, Debug)]
pub struct VerifiedBundle {
    bundle: TrustBundle,
    der: Vec<u8>,
}

impl VerifiedBundle {
    /// Returns the content of the bundle.
    #[must_use]
    pub fn bundle(&self) -> &TrustBundle {
        &self.bundle
    }

    /// The signed message, as received.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}

/// Verifies a signed bundle; `trust` decides on the signer from its chain and the signing time.
///
/// # Errors
/// [`BundleError`], one variant per reason.
pub fn verify<E>(
    der: &[u8],
    trust: impl FnOnce(&CertificateChain, OffsetDateTime) -> Result<(), E>,
) -> Result<VerifiedBundle, BundleError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let verified = cms::parse_signed_data(der)
        .and_then(|message| message.verify())
        .map_err(BundleError::Signature)?;
    let found = names::common_name(verified.signer_chain.leaf()).unwrap_or_default();
    let role = names::service_role(verified.signer_chain.leaf());
    if found != SIGNER || role != Some(ServiceRole::TrustBundle) {
        return Err(BundleError::OtherSigner { found });
    }
    trust(&verified.signer_chain, verified.signing_time)
        .map_err(|e| BundleError::Untrusted(e.into()))?;
    let bundle = TrustBundle::parse(&verified.content)?;
    if bundle.issued_at != verified.signing_time {
        return Err(BundleError::Field {
            field: "issued_at",
            problem: "is not the signing time",
        });
    }
    Ok(VerifiedBundle {
        bundle,
        der: der.to_vec(),
    })
}

/// A certificate as it stands in a bundle.
///
/// # Errors
/// [`BundleError::Field`].
pub fn encoded(certificate: &Certificate) -> Result<String, BundleError> {
    let der = cert::to_der(certificate).map_err(|_| BundleError::Field {
        field: "certificate",
        problem: "cannot be encoded",
    })?;
    Ok(STANDARD.encode(der))
}

/// A revocation list as it stands in a bundle.
#[must_use]
pub fn encoded_list(der: &[u8]) -> String {
    STANDARD.encode(der)
}

fn certificates(field: &'static str, list: &[String]) -> Result<Vec<Certificate>, BundleError> {
    decoded(field, list)?
        .iter()
        .map(|der| {
            cert::from_der(der).map_err(|_| BundleError::Field {
                field,
                problem: "is not a certificate",
            })
        })
        .collect()
}

fn decoded(field: &'static str, list: &[String]) -> Result<Vec<Vec<u8>>, BundleError> {
    list.iter()
        .map(|text| {
            STANDARD.decode(text).map_err(|_| BundleError::Field {
                field,
                problem: "is not base64",
            })
        })
        .collect()
}
