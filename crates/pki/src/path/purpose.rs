//! What certificates are presented for, and which of them are fit for it.

use std::fmt;

use const_oid::ObjectIdentifier;
use x509_cert::ext::pkix::KeyUsage;

use super::certificate::ParsedCertificate;
use crate::oid::eku;
use crate::profile::CaKind;

/// What a certificate is presented for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// TLS client: a user or a device.
    Client,
    /// TLS client: a user.
    ClientUser,
    /// TLS client: a device.
    ClientDevice,
    /// TLS client of EST: a person, a device or a gateway.
    ClientEnrolment,
    Server,
    /// Signer of CMS: anybody.
    Signer,
    /// Signer of CMS: a device, for instance the camera that sealed a block.
    DeviceSigner,
    /// Signer of CMS: a central role, for instance the centre that wrote a receipt.
    ServiceSigner,
    /// Recipient of CMS: a central role.
    Recipient,
    /// Peer in IKE or EAP-TLS (RFC 4945, section 5.1.3): if the certificate limits its use at all, then to
    /// signatures, and to IKE, TLS servers or TLS clients.
    Ike,
    /// Peer in OpenVPN: a device of the site with the extended key usage for IKE, which no other has.
    VpnDevice,
    /// Signer of revocation lists, which need not be an authority.
    CrlSigner,
}

impl Purpose {
    /// Extended key usages of which the certificate must have one; empty: they are not looked at.
    pub(super) const fn uses(self) -> &'static [ObjectIdentifier] {
        match self {
            Self::Client | Self::ClientUser | Self::ClientDevice | Self::ClientEnrolment => {
                &[eku::CLIENT_AUTH]
            }
            Self::Server => &[eku::SERVER_AUTH],
            Self::Signer | Self::DeviceSigner | Self::ServiceSigner | Self::Recipient => {
                &[eku::EMAIL_PROTECTION]
            }
            Self::Ike => &[eku::IPSEC_IKE, eku::SERVER_AUTH, eku::CLIENT_AUTH],
            Self::VpnDevice => &[eku::IPSEC_IKE],
            Self::CrlSigner => &[],
        }
    }

    /// Whether a certificate without the extensions for its use is refused.
    const fn must_be_limited(self) -> bool {
        !matches!(self, Self::Ike)
    }

    /// Whether a certificate may be an authority's own.
    pub(super) const fn allows_authority(self) -> bool {
        matches!(self, Self::CrlSigner)
    }

    /// The uses for which key usage and extended key usage of an end entity leave it fit; `None` if it is
    /// fit for none.
    pub(super) fn of_leaf(self, leaf: &ParsedCertificate) -> Option<Vec<ObjectIdentifier>> {
        let usage = match leaf.key_usage {
            Some(usage) => self.allows_usage(usage),
            None => !self.must_be_limited(),
        };
        if !usage {
            return None;
        }
        let uses = self.uses().iter().copied();
        match &leaf.extended_usage {
            _ if self.uses().is_empty() => Some(Vec::new()),
            None if self.must_be_limited() => None,
            None => Some(uses.collect()),
            Some(extended) => {
                let left: Vec<_> = uses.filter(|one| extended.0.contains(one)).collect();
                (!left.is_empty()).then_some(left)
            }
        }
    }

    pub(super) const fn allows_kind(self, kind: CaKind) -> bool {
        match self {
            Self::Client => matches!(kind, CaKind::Users | CaKind::Devices),
            Self::ClientUser => matches!(kind, CaKind::Users),
            Self::ClientDevice | Self::DeviceSigner | Self::VpnDevice => {
                matches!(kind, CaKind::Devices)
            }
            Self::Server | Self::ServiceSigner | Self::Recipient => {
                matches!(kind, CaKind::Services)
            }
            Self::ClientEnrolment | Self::Signer | Self::Ike | Self::CrlSigner => true,
        }
    }

    fn allows_usage(self, usage: KeyUsage) -> bool {
        match self {
            Self::Recipient => usage.key_encipherment() || usage.key_agreement(),
            Self::Signer | Self::DeviceSigner | Self::ServiceSigner | Self::Ike => {
                usage.digital_signature() || usage.non_repudiation()
            }
            Self::CrlSigner => usage.crl_sign(),
            _ => usage.digital_signature(),
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "a user or device to connect",
            Self::ClientUser => "a user to connect",
            Self::ClientDevice => "a device to connect",
            Self::ClientEnrolment => "renewing a certificate",
            Self::Server => "a server",
            Self::Signer => "signing",
            Self::DeviceSigner => "signing by a device",
            Self::ServiceSigner => "signing by a service",
            Self::Recipient => "decryption by a service",
            Self::Ike => "signatures in IKE",
            Self::VpnDevice => "a device to open a tunnel",
            Self::CrlSigner => "signing revocation lists",
        })
    }
}
