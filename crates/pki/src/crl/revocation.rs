//! When and why certificates are revoked (RFC 5280, section 5.3.1).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use x509_cert::ext::pkix::CrlReason;

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
    pub(crate) const fn from_code(code: CrlReason) -> Option<Self> {
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

/// When and why a certificate was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// From this instant on the certificate is not to be trusted.
    pub at: OffsetDateTime,
    pub reason: RevocationReason,
}
