//! What a connection demands of its peers' certificates, besides that they are valid and speak for the peer.
//!
//! This is a typed requirement rather than a policy of the crate `access`: it decides which connection a
//! certificate opens, before there is a principal, a directory or an action, and the file that names the
//! connection names the demand. What it reads are four facts of the path; a rule language would add
//! nothing but a second place to look.

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use const_oid::db::rfc5912::ID_CE_SUBJECT_ALT_NAME;
use der::{Decode as _, Encode as _};
use ikev2::wire::{IdType, Identification};
use pki::name::Subject;
use pki::path::ValidatedChain;
use pki::profile::CaKind;
use serde::{Deserialize, Deserializer};
use x509_cert::Certificate;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Why a certificate does not open a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unmet {
    /// Not of the authorities that the connection names.
    #[error("none of the authorities of this connection issued it")]
    Authority,
    /// For others than this connection is for.
    #[error("its authority certifies {found}, and this connection is for {wanted}")]
    Kind {
        /// Kind of the authority.
        found: String,
        /// Kind that the connection demands.
        wanted: CaKind,
    },
    #[error("it has no name under {suffix}")]
    Name {
        /// Suffix that names must have.
        suffix: String,
    },
    /// Not cleared far enough.
    #[error("its clearance is {found}, and this connection takes {wanted} or more")]
    Clearance {
        /// Clearance of the certificate.
        found: u8,
        /// Clearance that the connection demands.
        wanted: u8,
    },
    #[error("its unit is not {wanted}")]
    Unit { wanted: String },
    /// Another key than those that the connection names.
    #[error("SHA-256 of its public key is {found}, which is not among `pinned_keys`")]
    Key { found: String },
}

impl Unmet {
    /// The demand, for the operator.
    pub(super) fn demand(&self) -> String {
        match self {
            Self::Authority => "`peer.authorities`".to_owned(),
            Self::Kind { wanted, .. } => format!("`peer.kind` {wanted}"),
            Self::Name { suffix } => format!("`peer.domain` {suffix}"),
            Self::Clearance { wanted, .. } => format!("`peer.min_clearance` {wanted}"),
            Self::Unit { wanted } => format!("`peer.unit` {wanted}"),
            Self::Key { .. } => "`peer.pinned_keys`".to_owned(),
        }
    }
}

/// SHA-256 of a SubjectPublicKeyInfo (DER).
pub(super) type KeyPin = [u8; SHA256_OUTPUT_LEN];

/// The demands; none of them unless set.
#[derive(Clone, Debug, Default)]
pub(super) struct Requirement {
    /// Authorities, of which one must be in the path.
    pub(super) authorities: Vec<Certificate>,
    /// Whom the issuing authority certifies.
    pub(super) kind: Option<CaKind>,
    /// A domain that a name in subjectAltName is in.
    pub(super) suffix: Option<String>,
    pub(super) clearance: Option<u8>,
    /// Organisational unit of the subject.
    pub(super) unit: Option<String>,
    /// Keys, of which the certificate must have one; any unless there are some.
    pub(super) pinned_keys: Vec<KeyPin>,
    /// Whether the key is enough, whoever issued the certificate.
    pub(super) without_chain: bool,
}

impl Requirement {
    /// Whether nothing is demanded.
    pub(super) fn is_none(&self) -> bool {
        self.authorities.is_empty()
            && self.kind.is_none()
            && self.suffix.is_none()
            && self.clearance.is_none()
            && self.unit.is_none()
            && self.pinned_keys.is_empty()
            && !self.without_chain
    }

    /// Checks a certificate that is valid and speaks for `id`.
    ///
    /// # Errors
    /// [`Unmet`].
    pub(super) fn check(&self, chain: &ValidatedChain, id: &Identification) -> Result<(), Unmet> {
        let is_named = |one: &Certificate| self.authorities.iter().any(|two| same(one, two));
        if !self.authorities.is_empty() && !chain.authorities().any(is_named) {
            return Err(Unmet::Authority);
        }
        if let Some(wanted) = self.kind
            && chain.kind() != Some(wanted)
        {
            let found = chain.kind().map_or("nobody in particular", CaKind::name);
            let found = found.to_owned();
            return Err(Unmet::Kind { found, wanted });
        }
        // A validated chain begins with the peer's own certificate.
        let Some(leaf) = chain.certificates().next() else {
            return Err(Unmet::Authority);
        };
        self.check_key(leaf)?;
        if let Some(suffix) = &self.suffix
            && !is_under(leaf, id, suffix)
        {
            let suffix = suffix.clone();
            return Err(Unmet::Name { suffix });
        }
        if let Some(wanted) = self.clearance {
            let found = chain.clearance().level();
            if found < wanted {
                return Err(Unmet::Clearance { found, wanted });
            }
        }
        let subject = Subject::from_name(&leaf.tbs_certificate.subject);
        match (&self.unit, subject.ok().and_then(|subject| subject.unit)) {
            (Some(wanted), found) if found.as_ref() != Some(wanted) => {
                let wanted = wanted.clone();
                Err(Unmet::Unit { wanted })
            }
            _ => Ok(()),
        }
    }
}

impl Requirement {
    /// Whether something is demanded that only a chain shows.
    pub(super) fn needs_chain(&self) -> bool {
        let rest = Self {
            pinned_keys: Vec::new(),
            without_chain: false,
            ..self.clone()
        };
        !rest.is_none()
    }

    /// Checks the key of the peer's own certificate: that of an authority above it is somebody else's.
    ///
    /// # Errors
    /// [`Unmet::Key`].
    pub(super) fn check_key(&self, leaf: &Certificate) -> Result<(), Unmet> {
        if self.pinned_keys.is_empty() {
            return Ok(());
        }
        let spki = leaf.tbs_certificate.subject_public_key_info.to_der();
        // What was parsed can be encoded; no key has the empty encoding.
        let found = digest(&SHA256, &spki.unwrap_or_default());
        let is_same = |pin: &KeyPin| pin.as_slice() == found.as_ref();
        match self.pinned_keys.iter().any(is_same) {
            true => Ok(()),
            false => Err(Unmet::Key {
                found: hex::encode(found.as_ref()),
            }),
        }
    }
}

/// The same authority: by its name and key, as it may have several certificates.
fn same(one: &Certificate, two: &Certificate) -> bool {
    let (one, two) = (&one.tbs_certificate, &two.tbs_certificate);
    one.subject == two.subject && one.subject_public_key_info == two.subject_public_key_info
}

fn extension(certificate: &Certificate, oid: der::asn1::ObjectIdentifier) -> Option<&[u8]> {
    let mut all = certificate.tbs_certificate.extensions.iter().flatten();
    let found = all.find(|extension| extension.extn_id == oid);
    found.map(|extension| extension.extn_value.as_bytes())
}

/// Whether the peer has a name in a domain: the one that it gives, or where that is its subject, one in its
/// certificate.
fn is_under(leaf: &Certificate, id: &Identification, suffix: &str) -> bool {
    let domain = |name: &str| {
        let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
        let rest = host.len().checked_sub(suffix.len());
        let Some((front, end)) = rest.and_then(|at| host.split_at_checked(at)) else {
            return false;
        };
        end.eq_ignore_ascii_case(suffix) && (front.is_empty() || front.ends_with('.'))
    };
    if id.kind != IdType::DER_ASN1_DN {
        return std::str::from_utf8(&id.data).is_ok_and(domain);
    }
    let names = extension(leaf, ID_CE_SUBJECT_ALT_NAME);
    let names = names.and_then(|der| SubjectAltName::from_der(der).ok());
    names
        .into_iter()
        .flat_map(|names| names.0)
        .any(|name| match name {
            GeneralName::DnsName(name) => domain(name.as_str()),
            GeneralName::Rfc822Name(name) => domain(name.as_str()),
            _ => false,
        })
}

/// `users`, `devices` or `services`.
pub(super) fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CaKind>, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map(Some).map_err(serde::de::Error::custom)
}
