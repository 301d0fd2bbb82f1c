//! What certificates are presented for, and which of them are fit for it.

use std::fmt;

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912::{ID_CE_EXT_KEY_USAGE, ID_CE_KEY_USAGE};
use x509_cert::ext::pkix::{ExtendedKeyUsage, KeyUsage};

use super::PathError;
use crate::cert::Certificate;
use crate::extension::decoded;
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
    /// TLS server. The host name is checked elsewhere.
    Server,
    /// Signer of CMS: anybody.
    Signer,
    /// Signer of CMS: a device, for instance the camera that sealed a block.
    DeviceSigner,
    /// Signer of CMS: a central role, for instance the centre that wrote a receipt.
    ServiceSigner,
    /// Recipient of CMS: a central role.
    Recipient,
}

impl Purpose {
    fn eku(self) -> ObjectIdentifier {
        match self {
            Self::Client | Self::ClientUser | Self::ClientDevice => eku::CLIENT_AUTH,
            Self::Server => eku::SERVER_AUTH,
            Self::Signer | Self::DeviceSigner | Self::ServiceSigner | Self::Recipient => {
                eku::EMAIL_PROTECTION
            }
        }
    }

    /// What webpki asks of the whole path: an authority need not have the extension.
    pub(super) fn path_eku(self) -> webpki::KeyUsage {
        // DER contents of the identifiers in `oid::eku`.
        const SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
        const CLIENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
        const EMAIL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 4];
        webpki::KeyUsage::required_if_present(match self.eku() {
            eku::SERVER_AUTH => SERVER,
            eku::CLIENT_AUTH => CLIENT,
            _ => EMAIL,
        })
    }

    /// What we ask of the leaf: both extensions must be there, and allow it.
    pub(super) fn allows_leaf(self, leaf: &Certificate) -> Result<bool, PathError> {
        let malformed = |source| PathError::Malformed { source };
        let usage: Option<KeyUsage> = decoded(leaf, ID_CE_KEY_USAGE).map_err(malformed)?;
        let extended: Option<ExtendedKeyUsage> =
            decoded(leaf, ID_CE_EXT_KEY_USAGE).map_err(malformed)?;
        Ok(usage.is_some_and(|u| self.allows_usage(u))
            && extended.is_some_and(|e| e.0.contains(&self.eku())))
    }

    pub(super) fn allows_kind(self, kind: CaKind) -> bool {
        match self {
            Self::Client => matches!(kind, CaKind::Users | CaKind::Devices),
            Self::ClientUser => kind == CaKind::Users,
            Self::ClientDevice | Self::DeviceSigner => kind == CaKind::Devices,
            Self::Server | Self::ServiceSigner | Self::Recipient => kind == CaKind::Services,
            Self::Signer => true,
        }
    }

    fn allows_usage(self, usage: KeyUsage) -> bool {
        match self {
            Self::Recipient => usage.key_encipherment() || usage.key_agreement(),
            Self::Signer | Self::DeviceSigner | Self::ServiceSigner => {
                usage.digital_signature() || usage.non_repudiation()
            }
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
            Self::Server => "a server",
            Self::Signer => "signing",
            Self::DeviceSigner => "signing by a device",
            Self::ServiceSigner => "signing by a service",
            Self::Recipient => "decryption by a service",
        })
    }
}
