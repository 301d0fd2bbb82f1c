//! The evidence for the portal's pages: what the centre gives, within the person's rights.

use std::sync::Arc;

use access::Principal;
use axum::body::Body;
use centre::ReviewError;
use centre_api::{Asked, Camera, Decision, Details, Filter, Overview, Page, Summary};
use portal::{Epoch, PageError};
use portal_evidence::{Download, Evidence, PackageDownload};
use time::OffsetDateTime;

use crate::gate::Gate;
use crate::parts::centre_parts::CentreParts;
use crate::rights;

/// The evidence of a site.
pub(crate) struct SiteEvidence {
    pub(crate) parts: CentreParts,
    pub(crate) gate: Arc<Gate>,
}

impl SiteEvidence {
    /// The epoch of a person's rights, taken before a decision that rests on them.
    async fn epoch(&self, who: &Principal) -> Result<Epoch, PageError> {
        let epoch = self.gate.epoch(who.uid()).await;
        epoch.map_err(|refused| PageError::Failed(refused.message))
    }

    fn while_rights_last(&self, who: &Principal, epoch: Epoch, body: Body) -> Body {
        rights::while_they_last(self.gate.clone(), who.uid(), epoch, body)
    }
}

impl Evidence for SiteEvidence {
    async fn overview(&self, who: &Principal) -> Result<Overview, PageError> {
        let overview = self
            .parts
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
    ) -> Result<Page<Summary>, PageError> {
        let review = self.parts.centre.review();
        review.list(who, filter).await.map_err(problem)
    }

    async fn violation(&self, who: &Principal, id: &str) -> Result<Details, PageError> {
        let review = self.parts.centre.review();
        review.get(who, id).await.map_err(problem)
    }

    async fn thumbnail(&self, who: &Principal, id: &str) -> Result<Vec<u8>, PageError> {
        self.parts
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
    ) -> Result<Download, PageError> {
        let epoch = self.epoch(who).await?;
        let review = self.parts.centre.review();
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
    ) -> Result<(), PageError> {
        self.parts
            .centre
            .review()
            .decide(who, id, decision, reason, seen)
            .await
            .map_err(problem)
    }

    async fn export(&self, who: &Principal, id: &str) -> Result<PackageDownload, PageError> {
        let context =
            crate::export::context(&self.parts.audit, &self.parts.trust).map_err(|error| {
                tracing::error!(error = %error.message(), "export failed");
                PageError::Failed("the package could not be made".to_owned())
            })?;
        let epoch = self.epoch(who).await?;
        let review = self.parts.centre.review();
        let export = review.export(who, id, context).await.map_err(problem)?;
        let body = crate::export::stream(export, id.to_owned());
        Ok(PackageDownload {
            name: format!("{id}.zip"),
            body: self.while_rights_last(who, epoch, body),
        })
    }

    async fn cameras(&self, who: &Principal) -> Result<Vec<Camera>, PageError> {
        let review = self.parts.centre.review();
        review.cameras(who).await.map_err(problem)
    }
}

fn problem(error: ReviewError) -> PageError {
    match error {
        ReviewError::Denied { reasons, policies } => PageError::Denied { reasons, policies },
        ReviewError::NotFound(_) => PageError::NotFound,
        ReviewError::TooMany(_) | ReviewError::Exporting => PageError::Busy(error.to_string()),
        ReviewError::Stale { .. } | ReviewError::Unseen { .. } => {
            PageError::Stale(error.to_string())
        }
        ReviewError::Range { size } => PageError::Range { size },
        ReviewError::NotAPicture => PageError::Invalid(error.to_string()),
        other => {
            let message = other.to_string();
            let error: &(dyn std::error::Error + 'static) = &other;
            tracing::error!(error, "a request failed");
            PageError::Failed(message)
        }
    }
}
