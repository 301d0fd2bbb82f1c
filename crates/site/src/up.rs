//! All roles of a site in one process, until a stop is asked for.

use std::net::SocketAddr;
use std::sync::Arc;

use service_kit::{Doors, Place, Process, Role, Status};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::gate::Gate;
use crate::notices::Notices;
use crate::parts::Site;
use crate::portal_services::Pages;
use crate::roles::centre::CentreRole;
use crate::roles::directory::DirectoryRole;
use crate::roles::host::HostRole;
use crate::roles::portal::PortalRole;
use crate::roles::registry::RegistryRole;

pub struct Running {
    pub portal: SocketAddr,
    pub intake: SocketAddr,
    pub enrolment: SocketAddr,
    pub metrics: SocketAddr,
    /// The directory over LDAP, if it is open.
    pub ldap: Option<SocketAddr>,
    process: Process,
}

impl Running {
    /// Binds every listener and starts serving.
    pub async fn start(site: &Site) -> Outcome<Self> {
        if site.config.hosts.is_some() {
            // Cameras would be sent to a centre that this process is not.
            let error =
                anyhow::anyhow!("the configuration has [hosts]: the centre is on another host");
            let hint = "start `cordon run registry directory`, or remove [hosts]";
            return Err(Failure::new(error, hint));
        }
        let doors = Doors::new();
        let parts = site.centre_parts();
        let (audit, audit_pool) = (site.portal_audit.clone(), site.audit_pool.clone());
        let gate = Arc::new(Gate::new(Arc::clone(&parts.admission), audit, audit_pool));
        let pages = Pages::Here(Box::new(site.clone()));
        let portal = Arc::new(PortalRole::new(&parts, pages, &doors, &gate));
        let centre = Arc::new(CentreRole::new(&parts, &doors, &gate));
        let notices = Notices::new(site, Arc::clone(&portal.address));
        let registry = Arc::new(RegistryRole::new(site, &doors, notices));
        let directory = Arc::new(DirectoryRole::new(site, &doors, &gate)?);
        // They are closed in the other direction: the log last, after all its writers.
        let mut roles: Vec<Arc<dyn Role>> = vec![
            Arc::new(HostRole::of_site(site)),
            directory.clone(),
            registry.clone(),
            centre.clone(),
            portal.clone(),
        ];
        let place = Place::new("listen.metrics", site.config.listen.metrics);
        let status = Arc::new(Status::new(place, &doors, roles.clone()));
        roles.push(status.clone());
        let process = Process::start(roles).await?;
        Ok(Self {
            portal: portal.address.address(),
            intake: centre.intake.address(),
            enrolment: registry.enrolment.address(),
            metrics: status.place().address(),
            ldap: directory.ldap(),
            process,
        })
    }

    /// The portal's address for people.
    pub fn portal_url(&self, site: &Site) -> String {
        site.portal_url(self.portal)
    }

    /// A token that stops the site when it is cancelled.
    pub fn stop_token(&self) -> CancellationToken {
        self.process.stop_token()
    }

    /// Waits until a stop is asked for or a task ends by itself, then lets everything end.
    pub async fn until_stopped(self) -> Outcome {
        self.process.until_stopped().await
    }
}
