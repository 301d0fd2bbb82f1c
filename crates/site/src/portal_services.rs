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
use peering::Peer;
use portal::{Application, Linked, PageError, SessionLimits, Sessions, Shell};
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

use crate::config::Approvals;
use crate::failure::{OrHint as _, Outcome};
use crate::forwarding::Forwarded;
use crate::gate::Gate;
use crate::parts::Site;
use crate::parts::centre_parts::CentreParts;

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

/// Where the pages about certificates are made.
#[derive(Clone)]
pub(crate) enum Pages {
    /// Here, over this site's registry.
    Here(Box<Site>),
    /// On the registry's host.
    There(Arc<Peer>),
}

/// The portal with its applications, in the order of its menu.
pub(crate) fn shell(
    parts: &CentreParts,
    pages: &Pages,
    openid: Option<&Arc<OpenIdState>>,
    gate: &Arc<Gate>,
) -> Outcome<Shell> {
    let evidence = Arc::new(SiteEvidence {
        parts: parts.clone(),
        gate: gate.clone(),
    });
    let log = Arc::new(SiteLog {
        parts: parts.clone(),
        gate: gate.clone(),
    });
    let mut applications: Vec<Arc<dyn Application>> = vec![
        Arc::new(Violations(evidence.clone())),
        Arc::new(Cameras(evidence)),
    ];
    let approvals = match pages {
        Pages::Here(site) => {
            if let Some(openid) = openid {
                let foreign = openid::services(site, gate, openid);
                applications.push(Arc::new(ForeignServices(Arc::new(foreign))));
            }
            applications.extend(about_certificates(site, gate));
            Some(site.config.registration.approvals)
        }
        Pages::There(peer) => {
            for outline in [portal_requests::MINE, portal_requests::REQUESTS] {
                let peer = Arc::clone(peer);
                applications.push(Arc::new(Forwarded { outline, peer }));
            }
            None
        }
    };
    applications.push(Arc::new(AuditLog(log)));
    with(applications, approvals, gate)
}

/// The pages about certificates alone, for the portal of another host, which has the others.
pub(crate) fn pages_for_others(site: &Site, gate: &Arc<Gate>) -> Outcome<Shell> {
    let linked = |outline| Arc::new(Linked(outline)) as Arc<dyn Application>;
    let mut applications = vec![
        linked(portal_evidence::VIOLATIONS),
        linked(portal_evidence::CAMERAS),
    ];
    applications.extend(about_certificates(site, gate));
    applications.push(linked(portal_audit::AUDIT_LOG));
    with(applications, Some(site.config.registration.approvals), gate)
}

fn about_certificates(site: &Site, gate: &Arc<Gate>) -> [Arc<dyn Application>; 2] {
    let desk = Arc::new(SiteDesk {
        site: site.clone(),
        gate: gate.clone(),
    });
    [
        Arc::new(MyCertificates(desk.clone())),
        Arc::new(CertificateRequests(desk)),
    ]
}

/// The shell over these applications; a portal without registry does not know how its `approvals` are set.
fn with(
    applications: Vec<Arc<dyn Application>>,
    approvals: Option<Approvals>,
    gate: &Arc<Gate>,
) -> Outcome<Shell> {
    let sessions =
        Sessions::new(SessionLimits::default()).or_hint("sessions", "check the kernel")?;
    let identity = Arc::new(GateIdentity(gate.clone()));
    let is_direct = approvals == Some(Approvals::Direct);
    let notice = is_direct.then_some("frame-direct");
    Shell::new(identity, sessions, applications, notice)
        .or_hint("cannot use the texts of the portal", "report this")
}
