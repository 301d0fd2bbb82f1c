//! The portal's view of the other services.

use std::net::IpAddr;
use std::sync::Arc;

use access::{Action, Context, Principal, Resource};
use audit::{Actor, Event, Leaf};
use axum::body::Body;
use centre::{Decision, ReviewError};
use pki::tls::PeerCertificates;
use portal::{
    AuditPage, AuditRow, Backend, BackendError, CameraRow, CustodyRow, Download, Epoch, Filter,
    MediumRow, Overview, PackageDownload, Page, Proofs, Refused, ReviewChoice, ReviewRow,
    Violation, ViolationRow,
};
use time::OffsetDateTime;

use crate::gate::{Gate, at_address};
use crate::site::Site;

/// Audit events on one page.
const AUDIT_PAGE: u64 = 100;

/// Everything that the portal asks for.
pub(crate) struct PortalBackend {
    pub(crate) site: Site,
    pub(crate) gate: Arc<Gate>,
}

impl Backend for PortalBackend {
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
        let overview = match overview {
            // An auditor has an overview of no evidence.
            Err(ReviewError::Denied { .. }) => return Ok(Overview::default()),
            other => other.map_err(problem)?,
        };
        Ok(Overview {
            open: overview.open,
            today: overview.today,
            cameras: overview.cameras,
            cameras_with_gaps: overview.cameras_with_gaps,
        })
    }

    async fn violations(
        &self,
        who: &Principal,
        filter: &Filter,
    ) -> Result<Page<ViolationRow>, BackendError> {
        let filter = centre::Filter {
            from: filter.from,
            to: filter.to,
            place: filter.place.clone(),
            device: filter.device.clone(),
            plate: filter.plate.clone(),
            min_speed: filter.min_speed,
            state: filter.state.clone(),
            before: filter.before.map(centre::Cursor),
            after: filter.after.map(centre::Cursor),
        };
        let page = self
            .site
            .centre
            .review()
            .list(who, &filter)
            .await
            .map_err(problem)?;
        Ok(Page {
            rows: page.rows.into_iter().map(row).collect(),
            older: page.older.map(|at| at.0),
            newer: page.newer.map(|at| at.0),
            hidden: page.hidden,
        })
    }

    async fn violation(&self, who: &Principal, id: &str) -> Result<Violation, BackendError> {
        let details = self
            .site
            .centre
            .review()
            .get(who, id)
            .await
            .map_err(problem)?;
        Ok(violation(details))
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
    ) -> Result<Download, BackendError> {
        let medium = self
            .site
            .centre
            .review()
            .medium_stream(who, id, index)
            .await
            .map_err(problem)?;
        Ok(Download {
            media_type: medium.media_type,
            name: medium.name,
            size: medium.size,
            body: Body::from_stream(medium.pieces),
        })
    }

    async fn review(
        &self,
        who: &Principal,
        id: &str,
        choice: ReviewChoice,
        reason: &str,
    ) -> Result<(), BackendError> {
        let decision = match choice {
            ReviewChoice::Accept => Decision::Accepted,
            ReviewChoice::Reject => Decision::Rejected,
        };
        self.site
            .centre
            .review()
            .decide(who, id, decision, reason)
            .await
            .map_err(problem)
    }

    async fn export(&self, who: &Principal, id: &str) -> Result<PackageDownload, BackendError> {
        let context = crate::export::context(&self.site).map_err(|error| {
            tracing::error!(error = %error.message(), "export failed");
            BackendError::Failed("the package could not be made".to_owned())
        })?;
        let review = self.site.centre.review();
        let export = review.export(who, id, context).await.map_err(problem)?;
        Ok(PackageDownload {
            name: format!("{id}.zip"),
            body: crate::export::stream(export, id.to_owned()),
        })
    }

    async fn cameras(&self, who: &Principal) -> Result<Vec<CameraRow>, BackendError> {
        let cameras = self
            .site
            .centre
            .review()
            .cameras(who)
            .await
            .map_err(problem)?;
        let row = |camera: centre::Camera| CameraRow {
            device: camera.device,
            unit: camera.unit,
            last_seen: camera.last_seen,
            blocks: camera.blocks,
            quarantined: camera.quarantined,
            head: camera.head,
            gaps: camera.gaps,
            dropped: camera.dropped,
            forks: camera.forks,
        };
        Ok(cameras.into_iter().map(row).collect())
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
            Some(before) => event.with_detail("before", before),
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
        ReviewError::TooMany(_) => BackendError::Busy(error.to_string()),
        ReviewError::NotAPicture => BackendError::Invalid(error.to_string()),
        other => {
            let message = other.to_string();
            let error: &(dyn std::error::Error + 'static) = &other;
            tracing::error!(error, "a request failed");
            BackendError::Failed(message)
        }
    }
}

fn row(summary: centre::Summary) -> ViolationRow {
    ViolationRow {
        id: summary.id,
        captured_at: summary.captured_at,
        kind: summary.kind,
        place: summary.place,
        device: summary.device,
        plate: summary.plate,
        speed_kmh: summary.speed_kmh,
        limit_kmh: summary.limit_kmh,
        classification: summary.classification,
        state: summary.state,
        disputed: summary.disputed,
    }
}

fn violation(details: centre::Details) -> Violation {
    Violation {
        unit: details.summary.unit.clone(),
        row: row(details.summary),
        latitude_microdeg: details.latitude_microdeg,
        longitude_microdeg: details.longitude_microdeg,
        lane: details.lane,
        media: details
            .media
            .into_iter()
            .map(|m| MediumRow {
                name: m.name,
                media_type: m.media_type,
                size: m.size,
                sha256: m.sha256,
            })
            .collect(),
        reviews: details
            .reviews
            .into_iter()
            .map(|r| ReviewRow {
                at: r.at,
                name: r.name,
                decision: r.decision,
                reason: r.reason,
            })
            .collect(),
        custody: details
            .custody
            .into_iter()
            .map(|c| CustodyRow {
                at: c.at,
                actor: c.actor,
                action: c.action,
                log_index: c.log_index,
            })
            .collect(),
        proofs: Proofs {
            block_sha256: details.block_sha256,
            block_size: details.block_size,
            manifest_sha256: details.manifest_sha256,
            sequence: details.sequence,
            received_at: details.received_at,
            log_index: details.log_index,
            log_origin: details.log_origin,
        },
        disputed_by: details
            .disputed_by
            .into_iter()
            .map(|other| other.block_sha256)
            .collect(),
        may_review: details.may_review,
        may_export: details.may_export,
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
