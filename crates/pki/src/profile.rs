//! Certificate profiles: which key usages each kind of certificate carries.
//!
//! The user profile is the published one of the INDECT architecture. Two of its points meet a
//! standard that says otherwise; both are kept, with these limits:
//!
//! - It lists *time stamping* among other purposes. RFC 3161 (section 2.3) wants the extension
//!   critical, which it is, and that purpose alone, which it is not. So tokens made with a user
//!   certificate are rejected by conforming verifiers; a time-stamping authority needs a profile
//!   of its own.
//! - It lists *key encipherment* and *data encipherment*, which only RSA keys can do. For elliptic
//!   curve keys *key agreement* stands in their place (RFC 5480, section 3), and Ed25519 keys,
//!   which only sign, carry neither (RFC 8410, section 5).

use std::fmt;
use std::str::FromStr;

use const_oid::ObjectIdentifier;
use x509_cert::ext::pkix::{ExtendedKeyUsage, KeyUsage, KeyUsages};

use crate::cert::Certificate;
use crate::key::KeyAlgorithm;
use crate::oid::eku;

/// What an issuing authority issues for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CaKind {
    Users,
    Devices,
    /// Servers, and keys of central roles that sign or decrypt.
    Services,
}

impl CaKind {
    pub const ALL: [Self; 3] = [Self::Users, Self::Devices, Self::Services];

    /// Lower-case name: `users`, `devices`, `services`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Devices => "devices",
            Self::Services => "services",
        }
    }
}

impl fmt::Display for CaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CaKind {
    type Err = UnknownCaKind;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|k| k.name() == name)
            .ok_or_else(|| UnknownCaKind(name.into()))
    }
}

/// Not the name of a [`CaKind`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind of authority {0:?}, expected users, devices or services")]
pub struct UnknownCaKind(pub String);

/// The kind of certificate to issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Profile {
    /// Self-signed root, path length 1.
    Root,
    /// Issuing authority under the root, path length 0.
    IssuingCa(CaKind),
    /// A person: log-in, mail, documents, files.
    User {
        /// Adds the EFS recovery purpose.
        administrator: bool,
    },
    /// A camera or terminal: TLS client, IKE peer, CMS signer.
    Device,
    /// A device that only opens tunnels: TLS client and IKE peer, no signer of evidence.
    VpnDevice,
    Server,
    /// A server of the network that is none of the site's, as a web server or database: enrols over ACME.
    NetworkServer,
    /// A gateway of tunnels, which renews its certificate over EST: a server, and a client there.
    Gateway,
    /// The central role that signs receipts and custody packages.
    ServiceSigner,
    /// The central role that signs trust bundles.
    TrustBundleSigner,
    /// A central role that CMS content is encrypted to.
    ServiceRecipient,
    /// Whoever signs OCSP responses for this authority (RFC 6960, section 4.2.2.2).
    OcspSigner(CaKind),
    /// Whoever signs CMP answers (RFC 9810, section 4.5).
    CmpSigner,
    /// The registration authority that SCEP messages are encrypted to, and that signs answers (RFC 8894, section 2.1.2): an
    /// RSA key, as the protocol has no other.
    ScepAuthority,
    /// Whoever signs the transcript of a ceremony: certified by the root, with a key of that day.
    CeremonySigner,
}

impl Profile {
    /// Every profile, for tests and listings.
    pub const ALL: [Self; 20] = [
        Self::Root,
        Self::IssuingCa(CaKind::Users),
        Self::IssuingCa(CaKind::Devices),
        Self::IssuingCa(CaKind::Services),
        Self::User {
            administrator: false,
        },
        Self::User {
            administrator: true,
        },
        Self::Device,
        Self::VpnDevice,
        Self::Server,
        Self::NetworkServer,
        Self::Gateway,
        Self::ServiceSigner,
        Self::TrustBundleSigner,
        Self::ServiceRecipient,
        Self::OcspSigner(CaKind::Users),
        Self::OcspSigner(CaKind::Devices),
        Self::OcspSigner(CaKind::Services),
        Self::CmpSigner,
        Self::ScepAuthority,
        Self::CeremonySigner,
    ];

    /// Whether the subject is an authority.
    #[must_use]
    pub const fn is_ca(self) -> bool {
        matches!(self, Self::Root | Self::IssuingCa(_))
    }

    /// The kind of authority that issues this profile; `None` for the root's own products.
    #[must_use]
    pub const fn issued_by(self) -> Option<CaKind> {
        match self {
            Self::Root | Self::IssuingCa(_) | Self::CeremonySigner => None,
            Self::User { .. } => Some(CaKind::Users),
            Self::Device | Self::VpnDevice => Some(CaKind::Devices),
            Self::Server
            | Self::NetworkServer
            | Self::Gateway
            | Self::ServiceSigner
            | Self::TrustBundleSigner
            | Self::CmpSigner
            | Self::ScepAuthority
            | Self::ServiceRecipient => Some(CaKind::Services),
            Self::OcspSigner(kind) => Some(kind),
        }
    }

    /// Whether the registration authority may make the key (RFC 7030, section 4.4): not where its owner
    /// signs for evidence with it, which nobody else must be able to.
    #[must_use]
    pub const fn allows_server_key(self) -> bool {
        matches!(self, Self::VpnDevice)
    }

    /// The path length constraint, for authorities.
    #[must_use]
    pub const fn path_len(self) -> Option<u8> {
        match self {
            Self::Root => Some(1),
            Self::IssuingCa(_) => Some(0),
            _ => None,
        }
    }

    /// The key usage bits for a key of type `key`; `None` if such a key cannot serve the profile.
    #[must_use]
    pub fn key_usage(self, key: KeyAlgorithm) -> Option<KeyUsage> {
        use KeyUsages::{
            CRLSign, DataEncipherment, DigitalSignature, KeyAgreement, KeyCertSign,
            KeyEncipherment, NonRepudiation,
        };
        let usages = match self {
            Self::Root | Self::IssuingCa(_) => KeyCertSign | CRLSign,
            Self::User { .. } if key.is_rsa() => {
                DigitalSignature | NonRepudiation | KeyEncipherment | DataEncipherment
            }
            Self::Device if key.is_rsa() => DigitalSignature | NonRepudiation | KeyEncipherment,
            Self::User { .. } | Self::Device if key.is_ecdh() => {
                DigitalSignature | NonRepudiation | KeyAgreement
            }
            Self::User { .. }
            | Self::Device
            | Self::ServiceSigner
            | Self::TrustBundleSigner
            | Self::CeremonySigner => DigitalSignature | NonRepudiation,
            Self::Server
            | Self::NetworkServer
            | Self::Gateway
            | Self::VpnDevice
            | Self::ScepAuthority
                if key.is_rsa() =>
            {
                DigitalSignature | KeyEncipherment
            }
            Self::Server
            | Self::NetworkServer
            | Self::Gateway
            | Self::VpnDevice
            | Self::OcspSigner(_)
            | Self::CmpSigner => DigitalSignature.into(),
            Self::ServiceRecipient if key.is_rsa() => KeyEncipherment.into(),
            Self::ServiceRecipient if key.is_ecdh() => KeyAgreement.into(),
            Self::ServiceRecipient | Self::ScepAuthority => return None,
        };
        Some(KeyUsage(usages))
    }

    /// The extended key usages; empty for authorities, which are not limited by them.
    #[must_use]
    pub fn extended_key_usage(self) -> Vec<ObjectIdentifier> {
        match self {
            Self::Root | Self::IssuingCa(_) => Vec::new(),
            Self::User { administrator } => {
                let mut purposes = vec![
                    eku::CLIENT_AUTH,
                    eku::EMAIL_PROTECTION,
                    eku::TIME_STAMPING,
                    eku::SSH_CLIENT,
                    eku::SMART_CARD_LOGON,
                    eku::MS_DOCUMENT_SIGNING,
                    eku::MS_EFS,
                    eku::PDF_SIGNING,
                ];
                if administrator {
                    purposes.push(eku::MS_EFS_RECOVERY);
                }
                purposes
            }
            // Mail protection is what `openssl cms -verify` asks of a signer by default; there is
            // no registered purpose for "signs evidence".
            Self::Device => vec![eku::CLIENT_AUTH, eku::IPSEC_IKE, eku::EMAIL_PROTECTION],
            Self::VpnDevice => vec![eku::CLIENT_AUTH, eku::IPSEC_IKE],
            Self::Server | Self::NetworkServer => vec![eku::SERVER_AUTH],
            Self::Gateway => vec![eku::SERVER_AUTH, eku::CLIENT_AUTH],
            Self::OcspSigner(_) => vec![eku::OCSP_SIGNING],
            Self::CmpSigner => vec![eku::CMC_CA],
            Self::ScepAuthority => vec![eku::CMC_RA],
            Self::CeremonySigner => vec![eku::DOCUMENT_SIGNING],
            Self::ServiceSigner => vec![eku::EMAIL_PROTECTION, eku::RECEIPT_SIGNING],
            Self::TrustBundleSigner => vec![eku::EMAIL_PROTECTION, eku::TRUST_BUNDLE_SIGNING],
            Self::ServiceRecipient => vec![eku::EMAIL_PROTECTION],
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::IssuingCa(kind) => write!(f, "{kind} authority"),
            Self::User {
                administrator: false,
            } => f.write_str("user"),
            Self::User {
                administrator: true,
            } => f.write_str("administrator"),
            Self::Device => f.write_str("device"),
            Self::VpnDevice => f.write_str("vpn device"),
            Self::Server => f.write_str("server"),
            Self::NetworkServer => f.write_str("network server"),
            Self::Gateway => f.write_str("gateway"),
            Self::OcspSigner(kind) => write!(f, "{kind} OCSP signer"),
            Self::CmpSigner => f.write_str("CMP signer"),
            Self::ScepAuthority => f.write_str("SCEP authority"),
            Self::CeremonySigner => f.write_str("ceremony signer"),
            Self::ServiceSigner => f.write_str("service signer"),
            Self::TrustBundleSigner => f.write_str("trust bundle signer"),
            Self::ServiceRecipient => f.write_str("service recipient"),
        }
    }
}

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
mod tests {
    use super::*;

    #[test]
    fn services_roles_and_evidence_are_told_apart_by_usage() {
        let has = |profile: Profile, usage| profile.extended_key_usage().contains(&usage);
        for profile in Profile::ALL {
            let receipts = profile == Profile::ServiceSigner;
            assert_eq!(has(profile, eku::RECEIPT_SIGNING), receipts, "{profile}");
            let bundles = profile == Profile::TrustBundleSigner;
            assert_eq!(
                has(profile, eku::TRUST_BUNDLE_SIGNING),
                bundles,
                "{profile}"
            );
        }
        assert!(has(Profile::Device, eku::EMAIL_PROTECTION));
        assert!(!has(Profile::VpnDevice, eku::EMAIL_PROTECTION));
        assert!(has(Profile::VpnDevice, eku::IPSEC_IKE));
    }

    #[test]
    fn keys_for_signing_evidence_are_made_by_their_owners() {
        for profile in Profile::ALL {
            for key in KeyAlgorithm::ALL {
                let usage = profile.key_usage(key);
                let signs = usage.is_some_and(|usage| usage.non_repudiation());
                assert!(!(signs && profile.allows_server_key()), "{profile} {key}");
            }
        }
        assert!(Profile::VpnDevice.allows_server_key());
    }

    #[test]
    fn only_administrators_recover_files() {
        let has = |administrator| {
            Profile::User { administrator }
                .extended_key_usage()
                .contains(&eku::MS_EFS_RECOVERY)
        };
        assert!(has(true));
        assert!(!has(false));
    }

    #[test]
    fn encipherment_only_where_the_key_can() {
        for profile in Profile::ALL {
            for key in KeyAlgorithm::ALL {
                let Some(usage) = profile.key_usage(key) else {
                    let rsa_only = profile == Profile::ScepAuthority && !key.is_rsa();
                    let signs_only =
                        (profile, key) == (Profile::ServiceRecipient, KeyAlgorithm::Ed25519);
                    assert!(rsa_only || signs_only, "{profile} {key}");
                    continue;
                };
                assert!(key.is_rsa() || !usage.key_encipherment(), "{profile} {key}");
                assert!(
                    key.is_rsa() || !usage.data_encipherment(),
                    "{profile} {key}"
                );
                assert!(key.is_ecdh() || !usage.key_agreement(), "{profile} {key}");
                assert_eq!(usage.key_cert_sign(), profile.is_ca());
            }
        }
    }
}
