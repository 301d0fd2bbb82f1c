//! Kinds of authorities and of certificates.

use std::fmt;
use std::str::FromStr;

/// Longest name of a [`Profile::Named`], in bytes.
pub(super) const MAX_NAME: usize = 32;

/// Purpose of an issuing authority.
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
    /// The signer of OCSP responses for this authority (RFC 6960, section 4.2.2.2).
    OcspSigner(CaKind),
    /// Whoever signs CMP answers (RFC 9810, section 4.5).
    CmpSigner,
    /// The registration authority that SCEP messages are encrypted to, and that signs answers (RFC 8894, section 2.1.2): an
    /// RSA key, as the protocol has no other.
    ScepAuthority,
    /// Whoever signs the transcript of a ceremony: certified by the root, with a key of that day.
    CeremonySigner,
    /// Known by its name only: what it says, its [`Definition`] does.
    Named {
        name: ProfileName,
        authority: CaKind,
    },
}

/// The name of a profile: lower-case letters, digits and hyphens, beginning with a letter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileName {
    /// Zeros after the name.
    bytes: [u8; MAX_NAME],
}

impl ProfileName {
    /// `None` for a text that is no name.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let first = text.bytes().next()?;
        if !first.is_ascii_lowercase() || !text.bytes().all(letter) {
            return None;
        }
        let mut bytes = [0; MAX_NAME];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self { bytes })
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let text = std::str::from_utf8(&self.bytes).unwrap_or_default();
        text.trim_end_matches('\0')
    }
}

impl fmt::Debug for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Profile {
    /// Profiles that the program itself knows, for tests and listings; [`built_in`] has those known by name, too.
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
            Self::Named { authority, .. } => Some(authority),
        }
    }

    /// Profiles of certificates that somebody asks for, beside those known by name.
    pub const ON_REQUEST: [Self; 5] = [
        Self::User {
            administrator: false,
        },
        Self::User {
            administrator: true,
        },
        Self::Device,
        Self::VpnDevice,
        Self::NetworkServer,
    ];

    /// Tells whether such certificates are issued to somebody who asks, rather than to the site's own services.
    #[must_use]
    pub fn is_on_request(self) -> bool {
        matches!(self, Self::Named { .. }) || Self::ON_REQUEST.contains(&self)
    }

    /// Tells whether the holder is a person.
    #[must_use]
    pub const fn is_of_person(self) -> bool {
        matches!(
            self,
            Self::User { .. }
                | Self::Named {
                    authority: CaKind::Users,
                    ..
                }
        )
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
            Self::Named { name, .. } => f.write_str(name.as_str()),
        }
    }
}
