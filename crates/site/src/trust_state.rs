//! What others must know to trust this site's certificates: authorities, revocation lists and the trust bundle.

use std::sync::Arc;

use axum::body::Bytes;
use pki::profile::CaKind;
use registry::{AuthorityRecord, CrlName, PublishedList, Registry};
use time::OffsetDateTime;

use crate::credentials::Credentials;
use crate::failure::{OrHint as _, Outcome};
use crate::trust_bundle::{Bundles, Content};

/// The authorities and lists of a site, read from its registry each time; cheap to clone.
#[derive(Clone)]
pub struct TrustState {
    registry: Registry,
    credentials: Arc<Credentials>,
    bundles: Arc<Bundles>,
    log_key: String,
}

impl TrustState {
    pub fn new(
        registry: Registry,
        credentials: Arc<Credentials>,
        bundles: Bundles,
        log_key: String,
    ) -> Self {
        Self {
            registry,
            credentials,
            bundles: Arc::new(bundles),
            log_key,
        }
    }

    /// The trust bundle for cameras, signed, and its number.
    pub async fn bundle(&self, now: OffsetDateTime) -> Outcome<(u64, Bytes)> {
        let content = Content {
            recipients: self.credentials.recipients(&self.registry, now),
            authorities: CaKind::ALL
                .into_iter()
                // Authorities that will issue soon are among them: a camera knows them before it meets their certificates.
                .flat_map(|kind| self.registry.told_to_cameras(kind, now))
                .map(|record| record.certificate)
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
        let known = self.registry.told_to_cameras(CaKind::Services, now);
        let known = known.iter().map(|one| pki::cert::to_der(&one.certificate));
        known.filter_map(Result::ok).collect()
    }

    /// OCSP responses about the certificates that cameras see.
    pub async fn ocsp_responses(&self) -> Vec<Arc<[u8]>> {
        let now = OffsetDateTime::now_utc();
        self.credentials.ocsp_responses(&self.registry, now).await
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
        // Generations that have ended are among them: old signatures are verified with their lists.
        let records = self.registry.authority_records(OffsetDateTime::now_utc());
        let issuing = records.iter().map(|record| record.id);
        let issuing = issuing.filter(|id| id.kind() != CaKind::Users);
        std::iter::once(CrlName::Root)
            .chain(issuing.map(CrlName::Issuing))
            .filter_map(|name| self.registry.published(name))
            .collect()
    }

    /// The root's list and those of the services that cameras know: the authorities whose certificates a camera meets. The
    /// devices' lists would grow with the fleet.
    pub fn lists_for_cameras(&self) -> Vec<Arc<[u8]>> {
        let now = OffsetDateTime::now_utc();
        let of_services = self.registry.told_to_cameras(CaKind::Services, now);
        let of_services = of_services.iter().map(|one| CrlName::Issuing(one.id));
        std::iter::once(CrlName::Root)
            .chain(of_services)
            .filter_map(|name| self.registry.crl(name))
            .collect()
    }

    /// The generations of a kind whose certificates are in use.
    fn authorities_of_kind(&self, kind: CaKind) -> Vec<AuthorityRecord> {
        let records = self.registry.authority_records(OffsetDateTime::now_utc());
        let of_kind = records.into_iter();
        of_kind
            .filter(|record| record.is_needed && record.id.kind() == kind)
            .collect()
    }

    /// The issuing authorities, in PEM.
    pub fn authorities_pem(&self) -> Outcome<String> {
        let authorities = self.registry.authorities();
        let pem = authorities
            .iter()
            .skip(1)
            .map(pki::cert::to_pem)
            .collect::<Result<String, _>>();
        pem.or_hint("cannot write the authorities", "check the folder pki")
    }

    /// All generations of an issuing authority, in PEM.
    pub fn authorities_of_kind_pem(&self, kind: CaKind) -> Outcome<String> {
        let of_kind = self.authorities_of_kind(kind);
        let pem = of_kind
            .iter()
            .map(|one| pki::cert::to_pem(&one.certificate));
        let pem = pem.collect::<Result<String, _>>();
        pem.or_hint("cannot write an authority", "check the folder pki")
    }

    /// The authority that issued a certificate, in PEM.
    pub fn issuer_pem(&self, issued: &registry::IssuedRecord) -> Outcome<String> {
        const HINT: &str = "check the folder pki";
        let id = issued.issuer().or_hint("an authority", HINT)?;
        let records = self.registry.authority_records(OffsetDateTime::now_utc());
        let issuer = records.iter().find(|record| record.id == id);
        let pem = issuer.map(|record| pki::cert::to_pem(&record.certificate));
        let pem = pem.transpose().or_hint("cannot write an authority", HINT)?;
        Ok(pem.unwrap_or_default())
    }

    /// The root certificate, in PEM.
    pub fn root_pem(&self) -> Outcome<String> {
        pki::cert::to_pem(self.registry.root())
            .or_hint("cannot write the root", "check pki/root.pem")
    }
}
