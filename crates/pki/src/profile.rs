//! Certificate profiles: what each kind of certificate says, as typed files.
//!
//! Built in are the files in `crates/pki/profiles`; the user profile among them is the published one of the INDECT
//! architecture. A site may put others in force for certificates that are asked for, within bounds
//! ([`Definition::parse`]).

mod bounds;
mod built_in;
mod definition;
mod error;
mod kind;
mod purpose;
mod text;

use const_oid::ObjectIdentifier;
use x509_cert::ext::pkix::ExtendedKeyUsage;

use crate::cert::Certificate;
use crate::oid::eku;

pub use self::built_in::built_in;
pub use self::definition::{Definition, Issuer, KeyUsageTable, Names, Presence, SharedDefinition};
pub use self::error::ProfileError;
pub use self::kind::{CaKind, Profile, ProfileName, UnknownCaKind};
pub use self::purpose::purpose_name;
pub use self::text::MAX_PROFILE_TEXT;

/// A role among those who sign for a centre.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceRole {
    /// Signs receipts and custody packages.
    Receipts,
    TrustBundle,
}

impl ServiceRole {
    /// The role that a certificate's extended key usage gives; `None` if it gives both.
    ///
    /// Certificates of before these usages have neither: their subject tells, which is the caller's
    /// `otherwise`.
    #[must_use]
    pub fn of(certificate: &Certificate, otherwise: Self) -> Option<Self> {
        let uses = extended_usages(certificate);
        let has = |usage| uses.contains(&usage);
        match (has(eku::RECEIPT_SIGNING), has(eku::TRUST_BUNDLE_SIGNING)) {
            (true, true) => None,
            (true, false) => Some(Self::Receipts),
            (false, true) => Some(Self::TrustBundle),
            (false, false) => Some(otherwise),
        }
    }
}

/// Whether a device's certificate is for signing evidence, rather than for tunnels alone.
#[must_use]
pub fn signs_evidence(certificate: &Certificate) -> bool {
    extended_usages(certificate).contains(&eku::EMAIL_PROTECTION)
}

fn extended_usages(certificate: &Certificate) -> Vec<ObjectIdentifier> {
    let found = certificate.tbs_certificate.get::<ExtendedKeyUsage>();
    found
        .ok()
        .flatten()
        .map_or_else(Vec::new, |(_, uses)| uses.0)
}

#[cfg(test)]
mod tests;
