//! The registry of services for the portal's pages.

use std::sync::Arc;

use access::{Action, Context, Decision, Principal};
use directory::ServiceStoreError;
use error_report::Report;
use portal::PageError;
use portal_services::Services;
use services::Service;
use time::OffsetDateTime;

use super::openid::state::OpenIdState;
use crate::gate::Gate;
use crate::parts::Site;

/// The registry of services of a site.
pub(crate) struct SiteServices {
    pub(crate) site: Site,
    pub(crate) gate: Arc<Gate>,
    pub(crate) openid: Arc<OpenIdState>,
}

impl SiteServices {
    pub(crate) fn decide(&self, who: &Principal, service: &Service) -> Decision {
        let (resource, context) = (service.resource(), Context::default());
        let access = &self.site.access;
        access.decide(who, Action::ServiceOpen, &resource, &context)
    }
}

impl Services for SiteServices {
    async fn open_to(&self, who: &Principal) -> Result<Vec<Service>, PageError> {
        let all = self.site.directory.services().await.map_err(failed)?;
        let mut open: Vec<Service> = all
            .into_iter()
            .map(|one| one.service)
            .filter(|service| self.decide(who, service).allowed)
            .collect();
        open.sort_by_cached_key(|service| (service.name.to_lowercase(), service.id.clone()));
        Ok(open)
    }

    async fn open(&self, who: &Principal, id: &str) -> Result<Service, PageError> {
        let found = self.site.directory.service(id).await.map_err(failed)?;
        let service = found.ok_or(PageError::NotFound)?.service;
        let decision = self.decide(who, &service);
        let (now, resource) = (OffsetDateTime::now_utc(), service.resource());
        let event = decision.event(now, who, Action::ServiceOpen, &resource);
        if !self.gate.note(event).await {
            let message = "the audit log cannot be written".to_owned();
            return Err(PageError::Failed(message));
        }
        match decision.allowed {
            true => Ok(service),
            false => Err(PageError::Denied {
                reasons: decision.reasons,
                policies: decision.determining,
            }),
        }
    }
}

pub(crate) fn failed(error: ServiceStoreError) -> PageError {
    tracing::error!(error = %Report(&error), "cannot read the registry of services");
    PageError::Failed("the registry of services cannot be read".to_owned())
}
