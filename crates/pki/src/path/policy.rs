//! What a caller demands of a path: one value for each use of the validator.

use std::collections::BTreeSet;

use rustls_pki_types::ServerName;
use serde::Deserialize;

use super::policies::PolicyDemand;
use super::purpose::Purpose;
use crate::profile::CaKind;

/// Shortest RSA key in bits, at any level of a path.
pub const MIN_RSA_BITS: usize = 2048;

/// What the issuing authority must certify.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum AuthorityKinds {
    /// The authority says whom it certifies, and the purpose allows these holders. What certificates of
    /// the site are held to.
    #[default]
    ByPurpose,
    /// The authority says that it certifies one of these.
    OneOf(BTreeSet<CaKind>),
    /// Authorities outside of the site do not say it: whoever is accepted so gets no identity of the site.
    Any,
}

/// What is demanded of revocation lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RevocationPolicy {
    /// Refuse what is known to be revoked. Right where revocations are pushed to the process.
    #[default]
    Known,
    /// Also refuse if no current CRL of the issuer speaks for a certificate of the path. Right where CRLs
    /// are the only source, as in offline verification.
    RequireCrl,
}

/// What is demanded of OCSP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OcspPolicy {
    /// Nothing: responses are not looked at.
    #[default]
    Off,
    /// A response that says "revoked" counts; none is no harm.
    IfGiven,
    /// An end entity for which no current response speaks is refused.
    Required,
}

/// The demands on a path.
#[derive(Clone, Debug)]
pub struct PathPolicy {
    /// What the certificate is presented for: key usage, extended key usage, and kinds of holders.
    pub purpose: Purpose,
    /// What the issuing authority must certify.
    pub authority: AuthorityKinds,
    /// A name that the end entity must have in subjectAltName.
    pub name: Option<ServerName<'static>>,
    pub certificate_policies: PolicyDemand,
    /// Shortest RSA key in bits; less than [`MIN_RSA_BITS`] counts as that.
    pub min_rsa_bits: usize,
    /// Authorities between end entity and anchor at most, those not counted that are self-issued.
    pub max_intermediates: Option<u8>,
    pub crl: RevocationPolicy,
    pub ocsp: OcspPolicy,
}

impl PathPolicy {
    /// The demands of the site for a purpose, with what is known to be revoked refused.
    #[must_use]
    pub fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            authority: AuthorityKinds::default(),
            name: None,
            certificate_policies: PolicyDemand::default(),
            min_rsa_bits: MIN_RSA_BITS,
            max_intermediates: None,
            crl: RevocationPolicy::default(),
            ocsp: OcspPolicy::default(),
        }
    }

    /// Another demand on the issuing authority.
    #[must_use]
    pub fn with_authority(self, authority: AuthorityKinds) -> Self {
        Self { authority, ..self }
    }

    /// With a name that the end entity must have.
    #[must_use]
    pub fn with_name(self, name: ServerName<'static>) -> Self {
        let name = Some(name);
        Self { name, ..self }
    }

    #[must_use]
    pub fn with_certificate_policies(self, certificate_policies: PolicyDemand) -> Self {
        Self {
            certificate_policies,
            ..self
        }
    }

    /// With other demands on revocation information.
    #[must_use]
    pub fn with_revocation(self, crl: RevocationPolicy, ocsp: OcspPolicy) -> Self {
        Self { crl, ocsp, ..self }
    }
}
