//! The registry of this host.

use std::sync::Arc;

use audit::Actor;
use pkcs8::spki::SubjectPublicKeyInfoOwned;
use pki::cert::{Certificate, CertificateChain};
use pki::profile::CaKind;
use portal::Coming;
use registry::{AuthorityId, CrlName, PublishedList, Registry};
use time::OffsetDateTime;

use super::seam::{Issuing, Own, alt_names};
use crate::failure::{OrHint as _, Outcome};

const HINT: &str = "check the data folder and the passphrase";

impl Issuing for Registry {
    fn root(&self) -> Certificate {
        self.root().clone()
    }

    fn told_to_cameras(
        &self,
        kind: CaKind,
        now: OffsetDateTime,
    ) -> Vec<(AuthorityId, Certificate)> {
        let told = self.told_to_cameras(kind, now).into_iter();
        told.map(|record| (record.id, record.certificate)).collect()
    }

    fn lists(&self, now: OffsetDateTime) -> Vec<(Option<AuthorityId>, PublishedList)> {
        // Generations that have ended are among them: old signatures are verified with their lists.
        let records = self.authority_records(now).into_iter();
        let issuing = records.map(|record| record.id);
        let issuing = issuing.filter(|id| id.kind() != CaKind::Users);
        std::iter::once(None)
            .chain(issuing.map(Some))
            .filter_map(|of| {
                let name = of.map_or(CrlName::Root, CrlName::Issuing);
                Some((of, self.published(name)?))
            })
            .collect()
    }

    fn ocsp_response<'a>(
        &'a self,
        certificate: &'a Certificate,
        now: OffsetDateTime,
    ) -> Coming<'a, Option<Arc<[u8]>>> {
        Box::pin(async move {
            let answer = self.ocsp_staple(certificate, now).await;
            answer.map(|answer| answer.der)
        })
    }

    fn is_revoked(&self, certificate: &Certificate, now: OffsetDateTime) -> bool {
        self.status().is_revoked(certificate, now).is_some()
    }

    fn is_replaced(&self, certificate: &Certificate, now: OffsetDateTime) -> bool {
        self.is_replaced(certificate, now)
    }

    fn is_clock_right(&self, now: OffsetDateTime) -> bool {
        self.is_clock_right(now)
    }

    fn issues(&self, now: OffsetDateTime) -> bool {
        self.issues_at(CaKind::Services, now)
    }

    fn issue<'a>(
        &'a self,
        own: Own,
        spki: SubjectPublicKeyInfoOwned,
        names: &'a [String],
        now: OffsetDateTime,
    ) -> Coming<'a, Outcome<CertificateChain>> {
        Box::pin(async move {
            let first = names.first().map_or("", String::as_str);
            let order = own.order(spki, alt_names(names), first);
            let issued = self.issue_own(order, Actor::service("cordon"), now).await;
            let issued = issued.or_hint("cannot issue a certificate of the site's own", HINT)?;
            Ok(issued.chain)
        })
    }
}
