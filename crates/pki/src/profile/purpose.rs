//! Extended key usages by the names that profiles give them.

use const_oid::ObjectIdentifier;

use super::kind::CaKind;
use crate::oid::eku;

/// Names in profiles: those of the standards where they have one.
const NAMED: [(&str, ObjectIdentifier); 18] = [
    ("serverAuth", eku::SERVER_AUTH),
    ("clientAuth", eku::CLIENT_AUTH),
    ("emailProtection", eku::EMAIL_PROTECTION),
    ("timeStamping", eku::TIME_STAMPING),
    ("OCSPSigning", eku::OCSP_SIGNING),
    ("ipsecIKE", eku::IPSEC_IKE),
    ("secureShellClient", eku::SSH_CLIENT),
    ("documentSigning", eku::DOCUMENT_SIGNING),
    ("cmcCA", eku::CMC_CA),
    ("cmcRA", eku::CMC_RA),
    ("smartCardLogon", eku::SMART_CARD_LOGON),
    ("msDocumentSigning", eku::MS_DOCUMENT_SIGNING),
    ("msEFS", eku::MS_EFS),
    ("msEFSRecovery", eku::MS_EFS_RECOVERY),
    ("pdfSigning", eku::PDF_SIGNING),
    ("receiptSigning", eku::RECEIPT_SIGNING),
    ("trustBundleSigning", eku::TRUST_BUNDLE_SIGNING),
    ("anyExtendedKeyUsage", eku::ANY),
];

/// Arcs in which identifiers are others' to define: what they mean, only the table says.
const DEFINED_ELSEWHERE: [&str; 7] = [
    // id-kp
    "1.3.6.1.5.5.7.3.",
    // Microsoft
    "1.3.6.1.4.1.311.",
    // Extended key usages of X.509 itself
    "2.5.29.37.",
    // Netscape: a server, once
    "2.16.840.1.113730.",
    // IPsec before RFC 4945
    "1.3.6.1.5.5.8.",
    // Kerberos: a domain controller (RFC 4556)
    "1.3.6.1.5.2.3.",
    // Cordon's own, wherever the site's arc lies
    "1.3.6.1.4.1.99999.",
];

/// The identifier of a purpose, by its name or in dots.
pub(super) fn by_name(name: &str) -> Option<ObjectIdentifier> {
    let named = NAMED.iter().find(|(known, _)| *known == name);
    named
        .map(|(_, oid)| *oid)
        .or_else(|| ObjectIdentifier::new(name).ok())
}

/// The name of a purpose, or its identifier in dots.
#[must_use]
pub fn purpose_name(purpose: ObjectIdentifier) -> String {
    let named = NAMED.iter().find(|(_, oid)| *oid == purpose);
    named.map_or_else(|| purpose.to_string(), |(name, _)| (*name).to_owned())
}

/// Purposes that a new profile of this authority may name, beside private ones that nobody else defines.
///
/// Left out is what would open a door that is somebody else's: mail protection of devices is how evidence is signed, of
/// services how receipts were; servers are known by serverAuth, signers of OCSP and CMP by theirs, and files are recovered
/// by administrators.
pub(super) const fn allowed(authority: CaKind) -> &'static [ObjectIdentifier] {
    match authority {
        CaKind::Users => &[
            eku::CLIENT_AUTH,
            eku::EMAIL_PROTECTION,
            eku::SSH_CLIENT,
            eku::DOCUMENT_SIGNING,
            eku::SMART_CARD_LOGON,
            eku::MS_DOCUMENT_SIGNING,
            eku::MS_EFS,
            eku::PDF_SIGNING,
        ],
        CaKind::Devices => &[eku::CLIENT_AUTH, eku::IPSEC_IKE],
        CaKind::Services => &[eku::TIME_STAMPING, eku::DOCUMENT_SIGNING],
    }
}

/// Tells whether a purpose is one that a site may give a meaning of its own.
pub(super) fn is_private(purpose: ObjectIdentifier) -> bool {
    let text = purpose.to_string();
    let named = NAMED.iter().any(|(_, oid)| *oid == purpose);
    !named && !DEFINED_ELSEWHERE.iter().any(|arc| text.starts_with(arc))
}
