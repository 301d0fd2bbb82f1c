//! The services behind the portal's applications, each over the site's roles.

mod applicant;
mod evidence;
mod foreign;
mod identity;
mod log;
pub(crate) mod openid;
mod registration_officer;

use std::sync::Arc;

use access::Principal;
use portal::{Application, PageError, SessionLimits, Sessions, Shell};
use portal_audit::AuditLog;
use portal_evidence::{Cameras, Violations};
use portal_requests::{CertificateRequests, Desk, MyCertificates};
use portal_services::ForeignServices;

use applicant::Applicant;
use evidence::SiteEvidence;
use identity::GateIdentity;
use log::SiteLog;
use openid::OpenIdState;
use registration_officer::RegistrationOfficer;

use crate::failure::{OrHint as _, Outcome};
use crate::gate::Gate;
use crate::parts::Site;

/// The registration authority for the portal's pages.
struct SiteDesk {
    site: Site,
    gate: Arc<Gate>,
}

impl Desk for SiteDesk {
    type Officer = RegistrationOfficer;
    type Applicant = Applicant;

    async fn officer(
        &self,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<RegistrationOfficer, PageError> {
        RegistrationOfficer::open(&self.site, &self.gate, who, certificate, page).await
    }

    async fn applicant(
        &self,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> Result<Applicant, PageError> {
        Applicant::open(&self.site, &self.gate, who, certificate, page).await
    }
}

/// The portal with its applications, in the order of its menu.
pub(crate) fn shell(site: &Site, gate: &Arc<Gate>, openid: &Arc<OpenIdState>) -> Outcome<Shell> {
    let evidence = Arc::new(SiteEvidence {
        site: site.clone(),
        gate: gate.clone(),
    });
    let desk = Arc::new(SiteDesk {
        site: site.clone(),
        gate: gate.clone(),
    });
    let log = Arc::new(SiteLog {
        site: site.clone(),
        gate: gate.clone(),
    });
    let foreign = Arc::new(openid::services(site, gate, openid));
    let applications: Vec<Arc<dyn Application>> = vec![
        Arc::new(Violations(evidence.clone())),
        Arc::new(Cameras(evidence)),
        Arc::new(ForeignServices(foreign)),
        Arc::new(MyCertificates(desk.clone())),
        Arc::new(CertificateRequests(desk)),
        Arc::new(AuditLog(log)),
    ];
    let sessions =
        Sessions::new(SessionLimits::default()).or_hint("sessions", "check the kernel")?;
    let identity = Arc::new(GateIdentity(gate.clone()));
    Shell::new(identity, sessions, applications)
        .or_hint("cannot use the texts of the portal", "report this")
}
