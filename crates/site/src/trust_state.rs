//! What others must know to trust this site's certificates: authorities, revocation lists and the trust bundle.

use std::sync::Arc;

use axum::body::Bytes;
use pki::profile::CaKind;
use registry::{AuthorityId, PublishedList};
use time::OffsetDateTime;

use crate::credentials::Credentials;
use crate::failure::{OrHint as _, Outcome};
use crate::issuing::Issuing;
use crate::trust_bundle::{Bundles, Content};

/// The authorities and lists of a site, asked for each time; cheap to clone.
#[derive(Clone)]
pub struct TrustState {
    issuing: Arc<dyn Issuing>,
    credentials: Arc<Credentials>,
    bundles: Arc<Bundles>,
    log_key: String,
}

impl TrustState {
    pub(crate) fn new(
        issuing: Arc<dyn Issuing>,
        credentials: Arc<Credentials>,
        bundles: Bundles,
        log_key: String,
    ) -> Self {
        Self {
            issuing,
            credentials,
            bundles: Arc::new(bundles),
            log_key,
        }
    }

    /// The trust bundle for cameras, signed, and its number.
    pub async fn bundle(&self, now: OffsetDateTime) -> Outcome<(u64, Bytes)> {
        let content = Content {
            recipients: self.credentials.recipients(now),
            authorities: CaKind::ALL
                .into_iter()
                // Authorities that will issue soon are among them: a camera knows them before it meets their certificates.
                .flat_map(|kind| self.issuing.told_to_cameras(kind, now))
                .map(|(_, certificate)| certificate)
                .collect(),
            lists: self.lists_for_cameras(),
            log_key: self.log_key.clone(),
        };
        self.bundles
            .current(content, self.credentials.bundle_signer(), now)
            .await
    }

    /// The certificates of the services' authorities that cameras know, in DER.
    pub fn authorities_for_cameras(&self) -> Vec<Vec<u8>> {
        let now = OffsetDateTime::now_utc();
        let known = self.issuing.told_to_cameras(CaKind::Services, now);
        let known = known.iter().map(|(_, one)| pki::cert::to_der(one));
        known.filter_map(Result::ok).collect()
    }

    /// OCSP responses about the certificates that cameras see.
    pub async fn ocsp_responses(&self) -> Vec<Arc<[u8]>> {
        let now = OffsetDateTime::now_utc();
        self.credentials.ocsp_responses(now).await
    }

    /// The current revocation lists for cameras and services, in PEM. A custody package has no person's certificate, so
    /// it needs no list of the users' authority.
    pub fn crls_pem(&self) -> Vec<String> {
        let lists = self.lists_for_services().into_iter();
        lists
            .filter_map(|list| {
                der::pem::encode_string("X509 CRL", der::pem::LineEnding::LF, &list.der).ok()
            })
            .collect()
    }

    /// A text that changes whenever one of [`Self::crls_pem`] changes.
    pub fn crls_mark(&self) -> String {
        let lists = self.lists_for_services();
        let tags: Vec<&str> = lists.iter().map(|list| &*list.tag).collect();
        tags.join(".")
    }

    fn lists_for_services(&self) -> Vec<PublishedList> {
        let lists = self.issuing.lists(OffsetDateTime::now_utc()).into_iter();
        lists.map(|(_, list)| list).collect()
    }

    /// The root's list and those of the services that cameras know: the authorities whose certificates a camera meets. The
    /// devices' lists would grow with the fleet.
    pub fn lists_for_cameras(&self) -> Vec<Arc<[u8]>> {
        let now = OffsetDateTime::now_utc();
        let told = self.issuing.told_to_cameras(CaKind::Services, now);
        let is_told = |of: &AuthorityId| told.iter().any(|(id, _)| id == of);
        let lists = self.issuing.lists(now).into_iter();
        lists
            .filter(|(of, _)| of.as_ref().is_none_or(is_told))
            .map(|(_, list)| list.der)
            .collect()
    }

    /// The root certificate, in PEM.
    pub fn root_pem(&self) -> Outcome<String> {
        pki::cert::to_pem(&self.issuing.root())
            .or_hint("cannot write the root", "check pki/root.pem")
    }

    /// The root's fingerprint, as trust files have it.
    pub(crate) fn root(&self) -> pki::cert::Certificate {
        self.issuing.root()
    }
}
