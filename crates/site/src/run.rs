//! Some roles of a site in this process, the others in another one.

use std::sync::Arc;

use service_kit::{Doors, Place, Process, Role, Status};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::gate::Gate;
use crate::notices::Notices;
use crate::parts::Site;
use crate::parts::centre_host::CentreHost;
use crate::portal_services::Pages;
use crate::roles::centre::CentreRole;
use crate::roles::directory::DirectoryRole;
use crate::roles::host::HostRole;
use crate::roles::hosts::HostsRole;
use crate::roles::portal::PortalRole;
use crate::roles::registry::RegistryRole;
use crate::roles::registry_host::RegistryHostRole;
use commandline::SiteArgs;

/// Starts registry and directory, which answer the hosts that the configuration names.
pub async fn registry_and_directory(site: &Site) -> Outcome<Process> {
    let Some(hosts) = &site.config.hosts else {
        let error = anyhow::anyhow!("the configuration names no other hosts of the site");
        let hint = "add [hosts], or start the whole site with `cordon up`";
        return Err(Failure::new(error, hint));
    };
    let doors = Doors::new();
    let portal = Arc::new(Place::new("listen.portal", site.config.listen.portal));
    let notices = Notices::new(site, portal);
    let (audit, audit_pool) = (site.portal_audit.clone(), site.audit_pool.clone());
    let gate = Gate::new(site.admission(), audit, audit_pool);
    let directory = DirectoryRole::new(site, &doors, &gate)?;
    let roles: Vec<Arc<dyn Role>> = vec![
        Arc::new(HostRole::of_site(site)),
        Arc::new(directory),
        Arc::new(RegistryRole::new(site, &doors, notices)),
        Arc::new(HostsRole::new(site, hosts, &doors)?),
    ];
    start(&doors, site.config.listen.metrics, roles).await
}

/// Starts centre and portal once the registry's host answers. None when `stop` comes before that.
pub async fn centre_and_portal(
    args: &SiteArgs,
    stop: &CancellationToken,
) -> Outcome<Option<Process>> {
    let Some(host) = CentreHost::open(args, stop).await? else {
        return Ok(None);
    };
    let (doors, parts) = (Doors::new(), &host.parts);
    let (audit, audit_pool) = (parts.portal_audit.clone(), parts.audit_pool.clone());
    let gate = Arc::new(Gate::new(Arc::clone(&parts.admission), audit, audit_pool));
    let pages = Pages::There(host.issuing.peer());
    let registry_host = RegistryHostRole {
        issuing: host.issuing.clone(),
        credentials: Arc::clone(&parts.credentials),
        clock: host.clock.clone(),
    };
    let roles: Vec<Arc<dyn Role>> = vec![
        Arc::new(HostRole::of_centre(&host)),
        Arc::new(registry_host),
        Arc::new(CentreRole::new(parts, &doors, &gate)),
        Arc::new(PortalRole::new(parts, pages, &doors, &gate)),
    ];
    start(&doors, parts.config.listen.metrics, roles)
        .await
        .map(Some)
}

async fn start(
    doors: &Doors,
    metrics: std::net::SocketAddr,
    mut roles: Vec<Arc<dyn Role>>,
) -> Outcome<Process> {
    let place = Place::new("listen.metrics", metrics);
    roles.push(Arc::new(Status::new(place, doors, roles.clone())));
    Process::start(roles).await
}
