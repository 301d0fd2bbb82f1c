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
use x509_cert::ext::pkix::{KeyUsage, KeyUsages};

use crate::key::KeyAlgorithm;
use crate::oid::eku;

/// What an issuing authority issues for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CaKind {
    /// People.
    Users,
    /// Cameras, terminals, vehicles.
    Devices,
    /// Servers, and keys of central roles that sign or decrypt.
    Services,
}

impl CaKind {
    /// All kinds.
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
    /// A TLS server.
    Server,
    /// A central role that signs CMS, for instance receipts.
    ServiceSigner,
    /// A central role that CMS content is encrypted to.
    ServiceRecipient,
}

impl Profile {
    /// Every profile, for tests and listings.
    pub const ALL: [Self; 10] = [
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
        Self::Server,
        Self::ServiceSigner,
        Self::ServiceRecipient,
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
            Self::Root | Self::IssuingCa(_) => None,
            Self::User { .. } => Some(CaKind::Users),
            Self::Device => Some(CaKind::Devices),
            Self::Server | Self::ServiceSigner | Self::ServiceRecipient => Some(CaKind::Services),
        }
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
            Self::User { .. } | Self::Device | Self::ServiceSigner => {
                DigitalSignature | NonRepudiation
            }
            Self::Server if key.is_rsa() => DigitalSignature | KeyEncipherment,
            Self::Server => DigitalSignature.into(),
            Self::ServiceRecipient if key.is_rsa() => KeyEncipherment.into(),
            Self::ServiceRecipient if key.is_ecdh() => KeyAgreement.into(),
            Self::ServiceRecipient => return None,
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
            Self::Server => vec![eku::SERVER_AUTH],
            Self::ServiceSigner | Self::ServiceRecipient => vec![eku::EMAIL_PROTECTION],
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
            Self::Server => f.write_str("server"),
            Self::ServiceSigner => f.write_str("service signer"),
            Self::ServiceRecipient => f.write_str("service recipient"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                    assert_eq!(
                        (profile, key),
                        (Profile::ServiceRecipient, KeyAlgorithm::Ed25519)
                    );
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
