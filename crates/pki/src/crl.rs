//! Certificate revocation lists: issuing and verified reading (RFC 5280, section 5).
//!
//! Complete lists, lists for a part of the certificates (by distribution point, by reason, for
//! authorities or end entities only) and delta lists are processed; indirect lists are refused.

mod scope;
mod verify;

use std::fmt;
use std::str::FromStr;

use const_oid::db::rfc5912::{ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_CRL_NUMBER, ID_CE_CRL_REASONS};
use der::Encode;
use der::asn1::{BitString, Uint};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, CrlNumber, CrlReason};
use x509_cert::serial_number::SerialNumber;

pub use self::scope::CrlScope;
pub(crate) use self::scope::{Points, distribution_points};
pub(crate) use self::verify::{is_negative, verify_parsed};
pub use self::verify::{parse, verify};
use crate::extension::{extension, to_x509_time};
use crate::issue::{CertificateAuthority, IssueError};
use crate::key;
use crate::path::PathError;
use crate::status::{CrlSigner, CrlWindow, IssuerId, Revocation};

/// Largest CRL read, in bytes: about a million entries.
pub const MAX_CRL_LEN: usize = 48 * 1024 * 1024;

/// Why a certificate was revoked (RFC 5280, section 5.3.1), without those that only concern
/// attribute certificates and delta CRLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RevocationReason {
    Unspecified,
    /// The subject's key is, or may be, in other hands.
    KeyCompromise,
    /// The authority's key is, or may be, in other hands.
    CaCompromise,
    /// Name or other information about the subject changed.
    AffiliationChanged,
    /// Replaced by another certificate.
    Superseded,
    CessationOfOperation,
    /// Suspended; treated as revoked.
    CertificateHold,
    /// A privilege in the certificate was withdrawn.
    PrivilegeWithdrawn,
}

impl RevocationReason {
    pub const ALL: [Self; 8] = [
        Self::Unspecified,
        Self::KeyCompromise,
        Self::CaCompromise,
        Self::AffiliationChanged,
        Self::Superseded,
        Self::CessationOfOperation,
        Self::CertificateHold,
        Self::PrivilegeWithdrawn,
    ];

    /// Name on the command line and in JSON, for instance `key-compromise`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::KeyCompromise => "key-compromise",
            Self::CaCompromise => "ca-compromise",
            Self::AffiliationChanged => "affiliation-changed",
            Self::Superseded => "superseded",
            Self::CessationOfOperation => "cessation-of-operation",
            Self::CertificateHold => "certificate-hold",
            Self::PrivilegeWithdrawn => "privilege-withdrawn",
        }
    }

    pub(crate) const fn to_code(self) -> CrlReason {
        match self {
            Self::Unspecified => CrlReason::Unspecified,
            Self::KeyCompromise => CrlReason::KeyCompromise,
            Self::CaCompromise => CrlReason::CaCompromise,
            Self::AffiliationChanged => CrlReason::AffiliationChanged,
            Self::Superseded => CrlReason::Superseded,
            Self::CessationOfOperation => CrlReason::CessationOfOperation,
            Self::CertificateHold => CrlReason::CertificateHold,
            Self::PrivilegeWithdrawn => CrlReason::PrivilegeWithdrawn,
        }
    }

    /// `None` for `removeFromCRL`, which only a delta CRL may hold.
    const fn from_code(code: CrlReason) -> Option<Self> {
        Some(match code {
            CrlReason::Unspecified => Self::Unspecified,
            CrlReason::KeyCompromise => Self::KeyCompromise,
            CrlReason::CaCompromise | CrlReason::AaCompromise => Self::CaCompromise,
            CrlReason::AffiliationChanged => Self::AffiliationChanged,
            CrlReason::Superseded => Self::Superseded,
            CrlReason::CessationOfOperation => Self::CessationOfOperation,
            CrlReason::CertificateHold => Self::CertificateHold,
            CrlReason::PrivilegeWithdrawn => Self::PrivilegeWithdrawn,
            CrlReason::RemoveFromCRL => return None,
        })
    }
}

impl fmt::Display for RevocationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RevocationReason {
    type Err = UnknownReason;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|r| r.name() == name)
            .ok_or_else(|| UnknownReason(name.into()))
    }
}

/// Not the name of a [`RevocationReason`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown revocation reason {0:?}")]
pub struct UnknownReason(pub String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedEntry {
    /// Serial number, unsigned big-endian.
    pub serial: Vec<u8>,
    pub revocation: Revocation,
}

/// Why a CRL was refused.
#[derive(Debug, thiserror::Error)]
pub enum CrlError {
    #[error("CRL longer than {MAX_CRL_LEN} bytes")]
    TooLong,
    /// Not a version 2 CRL in DER, or one that RFC 5280 forbids.
    #[error("malformed CRL: {reason}")]
    Malformed { reason: &'static str },
    /// No trusted authority has this name.
    #[error("CRL of unknown issuer {issuer}")]
    UnknownIssuer {
        /// Name in the CRL.
        issuer: String,
    },
    /// The authority's certificate does not allow it to sign CRLs.
    #[error("issuer may not sign CRLs")]
    NotACrlSigner,
    /// No valid path leads to the signer's certificate.
    #[error("signer of the CRL is refused")]
    Signer(#[source] Box<PathError>),
    /// The signature does not match.
    #[error("CRL signature does not verify")]
    Signature(#[source] key::VerifyError),
    #[error("CRL is dated {this_update}, in the future")]
    FromTheFuture { this_update: OffsetDateTime },
    /// The next CRL was due.
    #[error("CRL is stale since {next_update}")]
    Stale {
        /// When the next was due.
        next_update: OffsetDateTime,
    },
    /// A delta CRL, and no complete one to which it belongs.
    #[error("delta CRL without the complete CRL to which it belongs")]
    NoBase,
    /// An indirect CRL, which lists certificates of other issuers.
    #[error("indirect CRLs are not processed")]
    Indirect,
    /// A critical extension that we do not process, or a partial or delta CRL where a complete one is
    /// to be.
    #[error("CRL has the unsupported critical extension {0}")]
    UnsupportedCritical(const_oid::ObjectIdentifier),
    /// Number below that of a CRL already known.
    #[error("CRL is older than the one already known")]
    Rollback,
    /// The status cache is full.
    #[error("status cache is full")]
    Full,
}

/// A CRL whose signature and dates have been checked.
#[derive(Clone, Debug)]
pub struct VerifiedCrl {
    pub issuer: IssuerId,
    pub window: CrlWindow,
    pub entries: Vec<RevokedEntry>,
    /// Which certificates it speaks for.
    pub scope: CrlScope,
    /// Of a delta CRL, the number of the complete one from which on it counts.
    pub(crate) base: Option<Vec<u8>>,
    /// Serial numbers that a delta CRL takes from hold.
    pub(crate) released: Vec<Vec<u8>>,
    /// The path of the signer's certificate, if this crate established it.
    pub(crate) signer: Option<CrlSigner>,
}

impl CertificateAuthority {
    /// Issues a complete CRL in DER. `number` must grow from one CRL to the next.
    ///
    /// # Errors
    /// [`IssueError::ValidityInverted`] if `next_update` is not after `this_update`;
    /// [`IssueError::Serial`], [`IssueError::Sign`] or [`IssueError::Encode`].
    pub fn crl(
        &self,
        number: u64,
        revoked: &[RevokedEntry],
        this_update: OffsetDateTime,
        next_update: OffsetDateTime,
    ) -> Result<Vec<u8>, IssueError> {
        if next_update <= this_update {
            return Err(IssueError::ValidityInverted);
        }
        let authority = AuthorityKeyIdentifier {
            key_identifier: Some(self.key_id()?.0),
            ..AuthorityKeyIdentifier::default()
        };
        let number = CrlNumber(Uint::new(&number.to_be_bytes())?);
        let entries = revoked
            .iter()
            .map(entry_to_der)
            .collect::<Result<Vec<_>, _>>()?;
        let tbs_cert_list = TbsCertList {
            version: x509_cert::Version::V2,
            signature: self.key().signature_algorithm(),
            issuer: self.certificate().tbs_certificate.subject.clone(),
            this_update: to_x509_time(this_update)?,
            next_update: Some(to_x509_time(next_update)?),
            // RFC 5280, section 5.1.2.6: absent when nothing is revoked.
            revoked_certificates: (!entries.is_empty()).then_some(entries),
            crl_extensions: Some(vec![
                extension(ID_CE_AUTHORITY_KEY_IDENTIFIER, false, &authority)?,
                extension(ID_CE_CRL_NUMBER, false, &number)?,
            ]),
        };
        let signature = self
            .key()
            .sign(&tbs_cert_list.to_der()?)
            .map_err(IssueError::Sign)?;
        let crl = CertificateList {
            signature_algorithm: tbs_cert_list.signature.clone(),
            tbs_cert_list,
            signature: BitString::from_bytes(&signature)?,
        };
        Ok(crl.to_der()?)
    }
}

fn entry_to_der(entry: &RevokedEntry) -> Result<RevokedCert, IssueError> {
    let reason = entry.revocation.reason;
    // RFC 5280, section 5.3.1: the reason "unspecified" SHOULD be expressed by absence.
    let extensions = (reason != RevocationReason::Unspecified)
        .then(|| extension(ID_CE_CRL_REASONS, false, &reason.to_code()).map(|e| vec![e]))
        .transpose()?;
    Ok(RevokedCert {
        serial_number: SerialNumber::new(&entry.serial).map_err(|_| IssueError::Serial)?,
        revocation_date: to_x509_time(entry.revocation.at)?,
        crl_entry_extensions: extensions,
    })
}
