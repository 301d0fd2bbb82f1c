//! Object identifiers: those of the standards that the library has no name for, and our own arc.

use const_oid::ObjectIdentifier;

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

/// `id-at-clearance` (RFC 5913, section 2).
pub const CLEARANCE: ObjectIdentifier = oid("2.5.4.55");
/// `id-pe-clearanceConstraints` (RFC 5913, section 3).
pub const AUTHORITY_CLEARANCE_CONSTRAINTS: ObjectIdentifier = oid("1.3.6.1.5.5.7.1.21");
/// `userId` attribute (RFC 4519, section 2.39).
pub const UID: ObjectIdentifier = oid("0.9.2342.19200300.100.1.1");
/// `emailAddress` attribute (RFC 2985, section 5.2.1).
pub const EMAIL_ADDRESS: ObjectIdentifier = oid("1.2.840.113549.1.9.1");
/// Windows user principal name in subjectAltName.
pub const UPN: ObjectIdentifier = oid("1.3.6.1.4.1.311.20.2.3");
/// Extension with the Windows security identifier of the holder (Microsoft KB5014754, `szOID_NTDS_CA_SECURITY_EXT`).
pub const NTDS_CA_SECURITY: ObjectIdentifier = oid("1.3.6.1.4.1.311.25.2");
/// Form of name in that extension (`szOID_NTDS_OBJECTSID`).
pub const NTDS_OBJECT_SID: ObjectIdentifier = oid("1.3.6.1.4.1.311.25.2.1");

/// Extended key usages, as the published user profile lists them, and two of our own.
pub mod eku {
    use super::{ObjectIdentifier, oid};

    /// `anyExtendedKeyUsage` (RFC 5280): in an authority, no limit.
    pub const ANY: ObjectIdentifier = oid("2.5.29.37.0");
    /// TLS server (RFC 5280).
    pub const SERVER_AUTH: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.1");
    /// TLS client (RFC 5280).
    pub const CLIENT_AUTH: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.2");
    /// S/MIME and, in practice, CMS at large (RFC 5280).
    pub const EMAIL_PROTECTION: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.4");
    /// Time stamping (RFC 3161).
    pub const TIME_STAMPING: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.8");
    /// Signer of OCSP responses (RFC 6960).
    pub const OCSP_SIGNING: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.9");
    /// IKE peer (RFC 4945).
    pub const IPSEC_IKE: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.17");
    /// Signer of CMP messages for an authority (RFC 6402, RFC 9810).
    pub const CMC_CA: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.27");
    /// Registration authority that answers for an authority (RFC 6402).
    pub const CMC_RA: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.28");
    /// SSH client (RFC 6187).
    pub const SSH_CLIENT: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.21");
    /// Document signing (RFC 9336).
    pub const DOCUMENT_SIGNING: ObjectIdentifier = oid("1.3.6.1.5.5.7.3.36");
    /// Microsoft smart-card logon.
    pub const SMART_CARD_LOGON: ObjectIdentifier = oid("1.3.6.1.4.1.311.20.2.2");
    /// Microsoft document signing.
    pub const MS_DOCUMENT_SIGNING: ObjectIdentifier = oid("1.3.6.1.4.1.311.10.3.12");
    /// Microsoft encrypting file system.
    pub const MS_EFS: ObjectIdentifier = oid("1.3.6.1.4.1.311.10.3.4");
    /// Microsoft encrypting file system, recovery agent.
    pub const MS_EFS_RECOVERY: ObjectIdentifier = oid("1.3.6.1.4.1.311.10.3.4.1");
    /// Receipts and custody packages of a centre; our own, wherever [`super::ExtensionArc`] lies.
    pub const RECEIPT_SIGNING: ObjectIdentifier = oid("1.3.6.1.4.1.99999.1.5.1");
    /// Trust bundles of a site; our own.
    pub const TRUST_BUNDLE_SIGNING: ObjectIdentifier = oid("1.3.6.1.4.1.99999.1.5.2");
    /// PDF signing, Adobe "authentic documents trust".
    pub const PDF_SIGNING: ObjectIdentifier = oid("1.2.840.113583.1.1.5");
}

/// The arc under which the installation's own extensions live.
///
/// The default, `1.3.6.1.4.1.99999.1`, is a placeholder: an operator replaces it by an arc of
/// their own enterprise number before issuing the first certificate. Issuers and validators must
/// use the same arc.
///
/// | arc | meaning | where |
/// |---|---|---|
/// | `.1` | `lvl`, INTEGER 0..4 | leaf certificates |
/// | `.2` | user id, UTF8String | leaf certificates |
/// | `.3` | kind of authority, UTF8String `users`, `devices` or `services` | issuing CAs |
/// | `.4` | security policy of the clearance values (RFC 5913 `policyId`) | in clearances |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionArc {
    pub level: ObjectIdentifier,
    /// The user id extension.
    pub user_id: ObjectIdentifier,
    /// The extension that says what an issuing CA issues.
    pub ca_kind: ObjectIdentifier,
    /// The security policy that clearances refer to.
    pub security_policy: ObjectIdentifier,
}

impl ExtensionArc {
    /// Places the identifiers under `arc`.
    ///
    /// # Errors
    /// An arc too long to be extended.
    pub fn under(arc: ObjectIdentifier) -> Result<Self, const_oid::Error> {
        Ok(Self {
            level: arc.push_arc(1)?,
            user_id: arc.push_arc(2)?,
            ca_kind: arc.push_arc(3)?,
            security_policy: arc.push_arc(4)?,
        })
    }
}

impl Default for ExtensionArc {
    fn default() -> Self {
        Self {
            level: oid("1.3.6.1.4.1.99999.1.1"),
            user_id: oid("1.3.6.1.4.1.99999.1.2"),
            ca_kind: oid("1.3.6.1.4.1.99999.1.3"),
            security_policy: oid("1.3.6.1.4.1.99999.1.4"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_arc_is_the_documented_one() {
        let arc = ExtensionArc::under(oid("1.3.6.1.4.1.99999.1")).unwrap();
        assert_eq!(arc, ExtensionArc::default());
    }
}
