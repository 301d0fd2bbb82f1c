//! What a profile says of a certificate.

use std::sync::Arc;

use const_oid::ObjectIdentifier;
use spki::SubjectPublicKeyInfoOwned;
use time::Duration;
use x509_cert::ext::pkix::KeyUsage;

use super::built_in;
use super::kind::{CaKind, Profile, ProfileName};
use crate::clearance::Clearance;
use crate::key::{KeyAlgorithm, KeyError};
use crate::name::AltName;

/// Presence of a field in a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    #[default]
    None,
    Optional,
    Required,
}

impl Presence {
    /// Tells whether this allows nothing that `other` forbids, and demands whatever it demands.
    pub(super) fn is_within(self, other: Self) -> bool {
        match other {
            Self::None => self == Self::None,
            Self::Optional => true,
            Self::Required => self == Self::Required,
        }
    }
}

/// Whose signature a certificate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// Its own.
    Itself,
    Root,
    /// An issuing authority's.
    Authority(CaKind),
    /// Any issuing authority's, each for itself.
    Each,
}

/// Key usage by type of key; `None`: such keys are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsageTable {
    pub rsa: Option<KeyUsage>,
    pub ecdsa: Option<KeyUsage>,
    pub ed25519: Option<KeyUsage>,
}

impl KeyUsageTable {
    pub(super) fn each(&self) -> [(&'static str, Option<KeyUsage>); 3] {
        [
            ("rsa", self.rsa),
            ("ecdsa", self.ecdsa),
            ("ed25519", self.ed25519),
        ]
    }
}

/// Names that a certificate has beside its common name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    pub uid: Presence,
    /// E-mail address, in the subject and in subjectAltName.
    pub email: Presence,
    /// Windows user principal name.
    pub principal: Presence,
    /// Names or addresses of a host.
    pub host: Presence,
    /// Windows security identifier, in Microsoft's extension.
    pub security_identifier: Presence,
}

/// A profile as its file says it.
///
/// [`Definition::parse`] reads what an administrator wrote and refuses whatever would let a certificate do more than its
/// authority's certificates may; [`Profile::definition`] gives what is built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub(super) name: String,
    pub(super) issuer: Issuer,
    /// `None` where the file does not say.
    pub(super) administrators_only: Option<bool>,
    pub(super) path_len: Option<u8>,
    pub(super) key_usage: KeyUsageTable,
    pub(super) purposes: Vec<ObjectIdentifier>,
    pub(super) critical_purposes: bool,
    pub(super) time_stamping_among_others: bool,
    pub(super) names: Names,
    pub(super) clearance: Presence,
    pub(super) highest_clearance: Option<Clearance>,
    pub(super) lifetime: Option<Duration>,
    pub(super) centre_makes_key: bool,
    pub(super) archive_key: bool,
    pub(super) ocsp_no_check: bool,
}

impl Definition {
    /// Name in requests, events and commands.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub const fn issuer(&self) -> Issuer {
        self.issuer
    }

    /// The profile that it defines; `None` of those that several authorities have.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        let authority = match self.issuer {
            Issuer::Authority(authority) => Some(authority),
            Issuer::Itself | Issuer::Root => None,
            Issuer::Each => return None,
        };
        let mut known = Profile::ALL.into_iter();
        let known = known.find(|one| one.issued_by() == authority && one.to_string() == self.name);
        known.or_else(|| {
            Some(Profile::Named {
                name: ProfileName::new(&self.name)?,
                authority: authority?,
            })
        })
    }

    /// Tells whether it is for people with the role administrator alone.
    ///
    /// Of a built-in name this does not change, whatever else a file in its place says or leaves out.
    #[must_use]
    pub fn is_for_administrators(&self) -> bool {
        let of_name = || built_in::by_name(&self.name).and_then(|one| one.administrators_only);
        self.administrators_only.or_else(of_name).unwrap_or(false)
    }

    /// Tells whether the subject is an authority.
    #[must_use]
    pub const fn is_ca(&self) -> bool {
        self.path_len.is_some()
    }

    /// The path length constraint, for authorities.
    #[must_use]
    pub const fn path_len(&self) -> Option<u8> {
        self.path_len
    }

    /// The key usage bits for a key of type `key`; `None` if such a key cannot serve the profile.
    #[must_use]
    pub const fn key_usage(&self, key: KeyAlgorithm) -> Option<KeyUsage> {
        match key {
            KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 => self.key_usage.ecdsa,
            KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => {
                self.key_usage.rsa
            }
            KeyAlgorithm::Ed25519 => self.key_usage.ed25519,
        }
    }

    /// The key usage bits for this key; `None` if it cannot serve the profile.
    ///
    /// # Errors
    /// Those of [`KeyAlgorithm::of_spki`].
    pub(crate) fn usage_of_key(
        &self,
        spki: &SubjectPublicKeyInfoOwned,
    ) -> Result<Option<KeyUsage>, KeyError> {
        Ok(self.key_usage(KeyAlgorithm::of_spki(spki)?))
    }

    /// Extended key usages in their order; none of authorities, which are not limited by them.
    #[must_use]
    pub fn purposes(&self) -> &[ObjectIdentifier] {
        &self.purposes
    }

    /// Tells whether the extension with the extended key usages is critical.
    #[must_use]
    pub const fn has_critical_purposes(&self) -> bool {
        self.critical_purposes
    }

    /// Tells whether time stamping may be one of several purposes, against RFC 3161: in the published user profile.
    #[must_use]
    pub const fn has_time_stamping_among_others(&self) -> bool {
        self.time_stamping_among_others
    }

    #[must_use]
    pub const fn names(&self) -> Names {
        self.names
    }

    /// Tells whether the certificate has the holder's clearance.
    #[must_use]
    pub const fn clearance(&self) -> Presence {
        self.clearance
    }

    /// Highest clearance in such a certificate, below the authority's own bound.
    #[must_use]
    pub const fn highest_clearance(&self) -> Option<Clearance> {
        self.highest_clearance
    }

    /// Longest time for which such a certificate is good, below what the site's configuration says.
    #[must_use]
    pub const fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// Tells whether the centre may make the key (RFC 7030, section 4.4). No such certificate has nonRepudiation: what is signed
    /// with a key that somebody else had proves nothing.
    #[must_use]
    pub const fn centre_makes_key(&self) -> bool {
        self.centre_makes_key
    }

    /// Whether a key that the centre made is archived for recovery, encrypted. It signs nothing.
    #[must_use]
    pub const fn archives_key(&self) -> bool {
        self.archive_key
    }

    /// Tells whether nobody need ask for the certificate's own revocation (RFC 6960, section 4.2.2.2.1).
    #[must_use]
    pub const fn has_no_check(&self) -> bool {
        self.ocsp_no_check
    }

    /// Tells whether an alternative name of this form may stand in the certificate.
    #[must_use]
    pub const fn allows(&self, name: &AltName) -> bool {
        let presence = match name {
            AltName::Email(_) => self.names.email,
            AltName::Upn(_) => self.names.principal,
            AltName::Dns(_) | AltName::Ip(_) => self.names.host,
        };
        !matches!(presence, Presence::None)
    }
}

/// A definition that several certificates share.
pub type SharedDefinition = Arc<Definition>;
