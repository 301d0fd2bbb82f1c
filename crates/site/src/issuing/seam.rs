//! What a site's services ask of its authorities.

use std::sync::Arc;

use pkcs8::spki::SubjectPublicKeyInfoOwned;
use pki::cert::{Certificate, CertificateChain};
use pki::name::{AltName, Subject};
use pki::profile::{CaKind, Profile};
use portal::Coming;
use registry::{AuthorityId, Order, PublishedList};
use time::OffsetDateTime;

use crate::failure::Outcome;

/// A certificate of the site's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Server,
    Receipts,
    TrustBundle,
    /// The key with this number, which blocks are sealed to.
    Sealing(u32),
    Cmp,
    Scep,
}

impl Own {
    /// The certificate to order for a key; `names` are those of the server.
    pub(crate) fn order(
        self,
        spki: SubjectPublicKeyInfoOwned,
        names: Vec<AltName>,
        first: &str,
    ) -> Order {
        let (profile, subject) = match self {
            Self::Server => (Profile::Server, Subject::new(first)),
            Self::Receipts => (Profile::ServiceSigner, Subject::new("Acquisition Centre")),
            Self::TrustBundle => (
                Profile::TrustBundleSigner,
                Subject::new(evidence::bundle::SIGNER),
            ),
            Self::Sealing(number) => (
                Profile::ServiceRecipient,
                Subject::new(format!("Acquisition Centre sealing {number}")),
            ),
            Self::Cmp => (Profile::CmpSigner, Subject::new("CMP responder")),
            Self::Scep => (
                Profile::ScepAuthority,
                Subject::new("SCEP registration authority"),
            ),
        };
        Order::new(profile, subject, spki).with_alt_names(names)
    }
}

/// Authorities, their lists, and what they issue to the site itself.
pub(crate) trait Issuing: Send + Sync {
    fn root(&self) -> Certificate;

    /// The generations of a kind that cameras know.
    fn told_to_cameras(&self, kind: CaKind, now: OffsetDateTime)
    -> Vec<(AuthorityId, Certificate)>;

    /// The lists of the root and of all generations but those for people.
    fn lists(&self, now: OffsetDateTime) -> Vec<(Option<AuthorityId>, PublishedList)>;

    /// An OCSP response about a certificate of the site's own.
    fn ocsp_response<'a>(
        &'a self,
        certificate: &'a Certificate,
        now: OffsetDateTime,
    ) -> Coming<'a, Option<Arc<[u8]>>>;

    fn is_revoked(&self, certificate: &Certificate, now: OffsetDateTime) -> bool;

    /// Whether another certificate is to take the place of this one because of its authority.
    fn is_replaced(&self, certificate: &Certificate, now: OffsetDateTime) -> bool;

    /// Whether certificates may be issued by the clock.
    fn is_clock_right(&self, now: OffsetDateTime) -> bool;

    /// Whether the services' authority issues now.
    fn issues(&self, now: OffsetDateTime) -> bool;

    /// Issues a certificate for a key of the site.
    fn issue<'a>(
        &'a self,
        own: Own,
        spki: SubjectPublicKeyInfoOwned,
        names: &'a [String],
        now: OffsetDateTime,
    ) -> Coming<'a, Outcome<CertificateChain>>;
}

/// The names of a server as a certificate has them.
pub(crate) fn alt_names(names: &[String]) -> Vec<AltName> {
    let alt = |name: &String| {
        name.parse()
            .map_or_else(|_| AltName::Dns(name.clone()), AltName::Ip)
    };
    names.iter().map(alt).collect()
}
