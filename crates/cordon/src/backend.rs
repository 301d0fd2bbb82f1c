//! The portal's view of the other services.

use std::net::IpAddr;
use std::sync::Arc;

use access::{Action, Context, Principal, Resource};
use audit::{Actor, Event, Leaf};
use axum::body::Body;
use centre::ReviewError;
use centre_api::{Asked, Camera, Decision, Details, Filter, Overview, Page, Summary};
use pki::tls::PeerCertificates;
use portal::{
    ApplicantView, ApplicationForm, ApplicationStep, AuditPage, AuditRow, Backend, BackendError,
    Download, Epoch, PackageDownload, Refused, RequestForm, RequestPage, RequestPlace,
    RequestQuery, RequestStep, RequestView, StepError, SubjectView,
};
use time::OffsetDateTime;

use crate::applicant::Applicant;
use crate::gate::{Gate, at_address};
use crate::registration_officer::RegistrationOfficer;
use crate::rights;
use crate::site::Site;

/// Audit events on one page.
const AUDIT_PAGE: u64 = 100;

/// Everything that the portal asks for.
pub(crate) struct PortalBackend {
    pub(crate) site: Site,
    pub(crate) gate: Arc<Gate>,
}

impl PortalBackend {
    /// The epoch of somebody's rights, of before a decision that rests on them.
    async fn epoch(&self, who: &Principal) -> Result<Epoch, BackendError> {
        let epoch = self.gate.epoch(who.uid()).await;
        epoch.map_err(|refused| BackendError::Failed(refused.message))
    }

    fn while_rights_last(&self, who: &Principal, epoch: Epoch, body: Body) -> Body {
        rights::while_they_last(self.gate.clone(), who.uid(), epoch, body)
    }
}

impl Backend for PortalBackend {
    type RegistrationOfficer = RegistrationOfficer;
    type Applicant = Applicant;

    async fn by_certificate(
        &self,
        peer: &PeerCertificates,
        from: Option<IpAddr>,
    ) -> Result<Principal, Refused> {
        self.gate.person(peer, from).await
    }

    async fn by_password(
        &self,
        uid: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<(Principal, Epoch), Refused> {
        self.gate.password(uid, password, from).await
    }

    async fn by_session(
        &self,
        uid: &str,
        epoch: Epoch,
        from: Option<IpAddr>,
    ) -> Result<Principal, Refused> {
        self.gate.session(uid, epoch, from).await
    }

    async fn overview(&self, who: &Principal) -> Result<Overview, BackendError> {
        let overview = self
            .site
            .centre
            .review()
            .overview(who, OffsetDateTime::now_utc())
            .await;
        match overview {
            // An auditor has an overview of no evidence.
            Err(ReviewError::Denied { .. }) => Ok(Overview::default()),
            other => other.map_err(problem),
        }
    }

    async fn violations(
        &self,
        who: &Principal,
        filter: &Filter,
    ) -> Result<Page<Summary>, BackendError> {
        let review = self.site.centre.review();
        review.list(who, filter).await.map_err(problem)
    }

    async fn violation(&self, who: &Principal, id: &str) -> Result<Details, BackendError> {
        let review = self.site.centre.review();
        review.get(who, id).await.map_err(problem)
    }

    async fn thumbnail(&self, who: &Principal, id: &str) -> Result<Vec<u8>, BackendError> {
        self.site
            .centre
            .review()
            .thumbnail(who, id)
            .await
            .map_err(problem)
    }

    async fn medium(
        &self,
        who: &Principal,
        id: &str,
        index: usize,
        asked: &Asked,
    ) -> Result<Download, BackendError> {
        let epoch = self.epoch(who).await?;
        let review = self.site.centre.review();
        let medium = review.medium_stream(who, id, index, asked).await;
        let medium = medium.map_err(problem)?;
        Ok(Download {
            media_type: medium.media_type,
            name: medium.name,
            served: medium.served,
            body: self.while_rights_last(who, epoch, Body::from_stream(medium.pieces)),
        })
    }

    async fn review(
        &self,
        who: &Principal,
        id: &str,
        decision: Decision,
        reason: &str,
        seen: u64,
    ) -> Result<(), BackendError> {
        self.site
            .centre
            .review()
            .decide(who, id, decision, reason, seen)
            .await
            .map_err(problem)
    }

    async fn export(&self, who: &Principal, id: &str) -> Result<PackageDownload, BackendError> {
        let context = crate::export::context(&self.site).map_err(|error| {
            tracing::error!(error = %error.message(), "export failed");
            BackendError::Failed("the package could not be made".to_owned())
        })?;
        let epoch = self.epoch(who).await?;
        let review = self.site.centre.review();
        let export = review.export(who, id, context).await.map_err(problem)?;
        let body = crate::export::stream(export, id.to_owned());
        Ok(PackageDownload {
            name: format!("{id}.zip"),
            body: self.while_rights_last(who, epoch, body),
        })
    }

    async fn cameras(&self, who: &Principal) -> Result<Vec<Camera>, BackendError> {
        let review = self.site.centre.review();
        review.cameras(who).await.map_err(problem)
    }

    async fn audit(&self, who: &Principal, before: Option<u64>) -> Result<AuditPage, BackendError> {
        let resource = Resource::system();
        let decision =
            self.site
                .access
                .decide(who, Action::AuditRead, &resource, &Context::default());
        let now = OffsetDateTime::now_utc();
        let event = decision.event(now, who, Action::AuditRead, &resource);
        let event = match before {
            // As text: an event's numbers end where those of JSON do.
            Some(before) => event.with_detail("before", before.to_string()),
            None => event,
        };
        if !self.gate.note(event).await {
            let message = "the audit log cannot be written".to_owned();
            return Err(BackendError::Failed(message));
        }
        if !decision.allowed {
            let (reasons, policies) = (decision.reasons, decision.determining);
            return Err(BackendError::Denied { reasons, policies });
        }
        let audit = self.site.audit.clone();
        let page = self
            .site
            .audit_pool
            .run(move || audit_page(&audit, before))
            .await;
        match page {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot read the audit log");
                Err(BackendError::Failed(
                    "the audit log cannot be read".to_owned(),
                ))
            }
            Err(_) => Err(BackendError::Failed(
                "the audit log cannot be read".to_owned(),
            )),
        }
    }

    async fn registration_officer(
        &self,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<RegistrationOfficer, BackendError> {
        RegistrationOfficer::open(&self.site, &self.gate, who, certificate, page).await
    }

    async fn requests(
        &self,
        officer: &RegistrationOfficer,
        query: &RequestQuery,
    ) -> Result<RequestPage, BackendError> {
        officer.requests(query).await
    }

    async fn request(
        &self,
        officer: &RegistrationOfficer,
        id: &str,
    ) -> Result<RequestView, BackendError> {
        officer.request(id).await
    }

    async fn subject(
        &self,
        officer: &RegistrationOfficer,
        name: &str,
        before: Option<RequestPlace>,
    ) -> Result<SubjectView, BackendError> {
        officer.subject(name, before).await
    }

    async fn begin_request(
        &self,
        officer: &RegistrationOfficer,
        form: &RequestForm,
        submit: bool,
    ) -> Result<String, StepError> {
        officer.begin(form, submit).await
    }

    async fn step_request(
        &self,
        officer: &RegistrationOfficer,
        id: &str,
        seen: u64,
        step: RequestStep,
    ) -> Result<(), StepError> {
        officer.step(id, seen, step).await
    }

    async fn request_statement(
        &self,
        officer: &RegistrationOfficer,
        id: &str,
        seen: u64,
    ) -> Result<Vec<u8>, StepError> {
        officer.statement(id, seen).await
    }

    async fn request_certificate(
        &self,
        officer: &RegistrationOfficer,
        id: &str,
    ) -> Result<String, BackendError> {
        officer.certificate(id).await
    }

    async fn applicant(
        &self,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<Applicant, BackendError> {
        Applicant::open(&self.site, &self.gate, who, certificate, page).await
    }

    async fn applications(
        &self,
        applicant: &Applicant,
        before: Option<RequestPlace>,
    ) -> Result<ApplicantView, BackendError> {
        applicant.view(before.as_ref()).await
    }

    async fn application(
        &self,
        applicant: &Applicant,
        id: &str,
    ) -> Result<RequestView, BackendError> {
        applicant.application(id).await
    }

    async fn begin_application(
        &self,
        applicant: &Applicant,
        form: &ApplicationForm,
        submit: bool,
    ) -> Result<String, StepError> {
        applicant.begin(form, submit).await
    }

    async fn step_application(
        &self,
        applicant: &Applicant,
        id: &str,
        seen: u64,
        step: ApplicationStep,
    ) -> Result<(), StepError> {
        applicant.step(id, seen, step).await
    }

    async fn application_certificate(
        &self,
        applicant: &Applicant,
        id: &str,
    ) -> Result<String, BackendError> {
        applicant.certificate(id).await
    }

    async fn note_session(
        &self,
        uid: &str,
        action: &'static str,
        from: Option<IpAddr>,
    ) -> Result<(), BackendError> {
        let now = OffsetDateTime::now_utc();
        let actor = Actor::user(uid, uid);
        let event = Event::new(now, actor, action, "portal", audit::Outcome::Ok);
        if self.gate.note(at_address(event, from)).await {
            return Ok(());
        }
        let message = "the audit log cannot be written".to_owned();
        Err(BackendError::Failed(message))
    }
}

fn problem(error: ReviewError) -> BackendError {
    match error {
        ReviewError::Denied { reasons, policies } => BackendError::Denied { reasons, policies },
        ReviewError::NotFound(_) => BackendError::NotFound,
        ReviewError::TooMany(_) | ReviewError::Exporting => BackendError::Busy(error.to_string()),
        ReviewError::Stale { .. } | ReviewError::Unseen { .. } => {
            BackendError::Stale(error.to_string())
        }
        ReviewError::Range { size } => BackendError::Range { size },
        ReviewError::NotAPicture => BackendError::Invalid(error.to_string()),
        other => {
            let message = other.to_string();
            let error: &(dyn std::error::Error + 'static) = &other;
            tracing::error!(error, "a request failed");
            BackendError::Failed(message)
        }
    }
}

fn audit_page(
    audit: &audit::SharedLog,
    before: Option<u64>,
) -> Result<AuditPage, Box<dyn std::error::Error + Send + Sync>> {
    let view = audit.view()?;
    let end = before.unwrap_or(u64::MAX).min(view.size());
    let start = end.saturating_sub(AUDIT_PAGE);
    let mut rows = Vec::new();
    for index in (start..end).rev() {
        rows.push(audit_row(index, &Leaf::decode(&view.entry(index)?)?));
    }
    Ok(AuditPage {
        rows,
        older: (start > 0).then_some(start),
        size: view.size(),
        checkpoint: view.note().to_owned(),
    })
}

fn audit_row(index: u64, leaf: &Leaf) -> AuditRow {
    let event = &leaf.event;
    let mut why = event.reason.clone().unwrap_or_default();
    if !event.policies.is_empty() {
        why = format!("{why} [{}]", event.policies.join(", "))
            .trim_start()
            .to_owned();
    }
    AuditRow {
        index,
        at: event
            .at
            .format(&time::format_description::well_known::Rfc3339)
            .unwrap_or_default(),
        role: leaf.role.clone(),
        actor: event
            .actor
            .name
            .clone()
            .unwrap_or_else(|| event.actor.id.clone()),
        action: event.action.clone(),
        resource: event.resource.clone(),
        outcome: event.outcome.to_string(),
        why,
    }
}
