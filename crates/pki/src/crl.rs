//! Certificate revocation lists: issuing and verified reading (RFC 5280, section 5).

use std::fmt;
use std::str::FromStr;

use const_oid::db::rfc5912::{
    ID_CE_AUTHORITY_KEY_IDENTIFIER, ID_CE_CRL_NUMBER, ID_CE_CRL_REASONS, ID_CE_KEY_USAGE,
    ID_CE_SUBJECT_KEY_IDENTIFIER,
};
use der::asn1::{BitString, Uint};
use der::{Decode, Encode};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, CrlNumber, CrlReason, KeyUsage, SubjectKeyIdentifier,
};
use x509_cert::serial_number::SerialNumber;

use crate::extension::{decoded, extension, find, from_x509_time, to_x509_time};
use crate::issue::{CertificateAuthority, IssueError};
use crate::key;
use crate::status::{CrlWindow, IssuerId, Revocation};

/// Largest CRL read, in bytes: about a million entries.
pub const MAX_CRL_LEN: usize = 48 * 1024 * 1024;
/// Extensions that may be critical in a CRL we read. Delta CRLs and CRLs that cover a part of the
/// certificates carry others, and are refused: taken for complete they would hide revocations.
const KNOWN_CRITICAL: [const_oid::ObjectIdentifier; 2] =
    [ID_CE_CRL_NUMBER, ID_CE_AUTHORITY_KEY_IDENTIFIER];
/// `deltaCRLIndicator`, by definition critical; refused even where it is not marked so.
const DELTA_CRL_INDICATOR: const_oid::ObjectIdentifier =
    const_oid::ObjectIdentifier::new_unwrap("2.5.29.27");

/// Why a certificate was revoked (RFC 5280, section 5.3.1), without those that only concern
/// attribute certificates and delta CRLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RevocationReason {
    /// No reason given.
    Unspecified,
    /// The subject's key is, or may be, in other hands.
    KeyCompromise,
    /// The authority's key is, or may be, in other hands.
    CaCompromise,
    /// Name or other information about the subject changed.
    AffiliationChanged,
    /// Replaced by another certificate.
    Superseded,
    /// No longer needed.
    CessationOfOperation,
    /// Suspended; treated as revoked.
    CertificateHold,
    /// A privilege in the certificate was withdrawn.
    PrivilegeWithdrawn,
}

impl RevocationReason {
    /// All reasons.
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

    const fn to_code(self) -> CrlReason {
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

/// One revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedEntry {
    /// Serial number, unsigned big-endian.
    pub serial: Vec<u8>,
    /// When and why.
    pub revocation: Revocation,
}

/// Why a CRL was refused.
#[derive(Debug, thiserror::Error)]
pub enum CrlError {
    /// Longer than [`MAX_CRL_LEN`].
    #[error("CRL longer than {MAX_CRL_LEN} bytes")]
    TooLong,
    /// Not a version 2 CRL in DER, or one that RFC 5280 forbids.
    #[error("malformed CRL: {reason}")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
    /// No trusted authority has this name.
    #[error("CRL of unknown issuer {issuer}")]
    UnknownIssuer {
        /// Name in the CRL.
        issuer: String,
    },
    /// The authority's certificate does not allow it to sign CRLs.
    #[error("issuer may not sign CRLs")]
    NotACrlSigner,
    /// The signature does not match.
    #[error("CRL signature does not verify")]
    Signature(#[source] key::VerifyError),
    /// Dated after `now`.
    #[error("CRL is dated {this_update}, in the future")]
    FromTheFuture {
        /// Its date.
        this_update: OffsetDateTime,
    },
    /// The next CRL was due.
    #[error("CRL is stale since {next_update}")]
    Stale {
        /// When the next was due.
        next_update: OffsetDateTime,
    },
    /// A critical extension that we do not process, such as those of delta or partial CRLs.
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
    /// Who issued it.
    pub issuer: IssuerId,
    /// Number and dates.
    pub window: CrlWindow,
    /// What it revokes.
    pub entries: Vec<RevokedEntry>,
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

/// Parses a CRL without checking anything but its form.
///
/// # Errors
/// [`CrlError::TooLong`] or [`CrlError::Malformed`].
pub fn parse(der: &[u8]) -> Result<CertificateList, CrlError> {
    if der.len() > MAX_CRL_LEN {
        return Err(CrlError::TooLong);
    }
    let crl = CertificateList::from_der(der).map_err(|_| CrlError::Malformed {
        reason: "not a DER CertificateList",
    })?;
    if crl.tbs_cert_list.version != x509_cert::Version::V2 {
        return Err(CrlError::Malformed {
            reason: "not version 2",
        });
    }
    if crl.tbs_cert_list.signature != crl.signature_algorithm {
        return Err(CrlError::Malformed {
            reason: "two different signature algorithms",
        });
    }
    Ok(crl)
}

/// Parses a CRL and checks that `issuer` signed it and that it is current at `now`.
///
/// The caller has established trust in `issuer`.
///
/// # Errors
/// [`CrlError`], one variant per reason.
pub fn verify(
    der: &[u8],
    issuer: &Certificate,
    now: OffsetDateTime,
) -> Result<VerifiedCrl, CrlError> {
    verify_parsed(&parse(der)?, issuer, now)
}

pub(crate) fn verify_parsed(
    crl: &CertificateList,
    issuer: &Certificate,
    now: OffsetDateTime,
) -> Result<VerifiedCrl, CrlError> {
    let tbs = &crl.tbs_cert_list;
    if tbs.issuer != issuer.tbs_certificate.subject {
        return Err(CrlError::UnknownIssuer {
            issuer: tbs.issuer.to_string(),
        });
    }
    check_signature(crl, issuer)?;
    let malformed = |reason| CrlError::Malformed { reason };
    let extensions = tbs.crl_extensions.as_ref();
    if let Some(unknown) = extensions.into_iter().flatten().find(|e| {
        (e.critical && !KNOWN_CRITICAL.contains(&e.extn_id)) || e.extn_id == DELTA_CRL_INDICATOR
    }) {
        return Err(CrlError::UnsupportedCritical(unknown.extn_id));
    }
    let number = find(extensions, ID_CE_CRL_NUMBER)
        .ok()
        .flatten()
        .and_then(|der| CrlNumber::from_der(der).ok())
        .ok_or(malformed("no CRL number"))?;
    let this_update = from_x509_time(tbs.this_update);
    // RFC 5280, section 5.1.2.5: nextUpdate MUST be there.
    let next_update = from_x509_time(tbs.next_update.ok_or(malformed("no next update"))?);
    if this_update > now {
        return Err(CrlError::FromTheFuture { this_update });
    }
    if next_update < now {
        return Err(CrlError::Stale { next_update });
    }
    let entries = tbs
        .revoked_certificates
        .iter()
        .flatten()
        .map(entry_from_der)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(VerifiedCrl {
        issuer: IssuerId::of(&tbs.issuer),
        window: CrlWindow {
            number: number.0.as_bytes().to_vec(),
            this_update,
            next_update,
        },
        entries,
    })
}

fn check_signature(crl: &CertificateList, issuer: &Certificate) -> Result<(), CrlError> {
    let malformed = |_| CrlError::Malformed {
        reason: "unreadable extension",
    };
    let usage: Option<KeyUsage> = decoded(issuer, ID_CE_KEY_USAGE).map_err(malformed)?;
    if !usage.is_none_or(|u| u.crl_sign()) {
        return Err(CrlError::NotACrlSigner);
    }
    let own: Option<SubjectKeyIdentifier> =
        decoded(issuer, ID_CE_SUBJECT_KEY_IDENTIFIER).map_err(malformed)?;
    let named = find(
        crl.tbs_cert_list.crl_extensions.as_ref(),
        ID_CE_AUTHORITY_KEY_IDENTIFIER,
    )
    .map_err(malformed)?
    .map(AuthorityKeyIdentifier::from_der)
    .transpose()
    .map_err(malformed)?
    .and_then(|aki| aki.key_identifier);
    if let (Some(own), Some(named)) = (own, named)
        && own.0 != named
    {
        // Same name, other key: an authority that was renewed.
        return Err(CrlError::UnknownIssuer {
            issuer: crl.tbs_cert_list.issuer.to_string(),
        });
    }
    let encoded = |_| CrlError::Malformed {
        reason: "cannot be encoded again",
    };
    let message = crl.tbs_cert_list.to_der().map_err(encoded)?;
    let spki = issuer
        .tbs_certificate
        .subject_public_key_info
        .to_der()
        .map_err(encoded)?;
    let signature = crl.signature.as_bytes().ok_or(CrlError::Malformed {
        reason: "signature is not whole bytes",
    })?;
    key::verify(&spki, &crl.signature_algorithm, &message, signature).map_err(CrlError::Signature)
}

fn entry_from_der(entry: &RevokedCert) -> Result<RevokedEntry, CrlError> {
    let extensions = entry.crl_entry_extensions.as_ref();
    // The certificate-issuer extension of indirect CRLs is critical and lands here.
    if let Some(unknown) = extensions
        .into_iter()
        .flatten()
        .find(|e| e.critical && e.extn_id != ID_CE_CRL_REASONS)
    {
        return Err(CrlError::UnsupportedCritical(unknown.extn_id));
    }
    let malformed = CrlError::Malformed {
        reason: "unreadable reason code",
    };
    let reason = match find(extensions, ID_CE_CRL_REASONS) {
        Ok(None) => RevocationReason::Unspecified,
        Ok(Some(der)) => CrlReason::from_der(der)
            .ok()
            .and_then(RevocationReason::from_code)
            .ok_or(malformed)?,
        Err(_) => return Err(malformed),
    };
    Ok(RevokedEntry {
        serial: entry.serial_number.as_bytes().to_vec(),
        revocation: Revocation {
            at: from_x509_time(entry.revocation_date),
            reason,
        },
    })
}
