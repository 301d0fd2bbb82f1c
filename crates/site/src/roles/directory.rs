//! The directory's role: the people of the site, and their entries over LDAP.

use std::sync::Arc;

use directory::Directory;
use futures_util::future::BoxFuture;
use ldap::Ldap;
use listener::Deadlines;
use service_kit::{Doors, Opened, Place, Role, Task, every};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{HOUSEKEEPING, tls_for_people};
use crate::databases::watch_directory;
use crate::failure::{OrHint as _, Outcome};
use crate::gate::Gate;
use crate::ldap_services::LdapServices;
use crate::parts::Site;

/// Programs keep connections to a directory open for their next search.
const PROGRAMS: Deadlines = Deadlines {
    idle: std::time::Duration::from_mins(5),
    ..listener::PEOPLE
};

pub(crate) struct DirectoryRole {
    site: Site,
    directory: Directory,
    doors: Doors,
    ldap: Option<(Arc<Place>, LdapServices)>,
}

impl DirectoryRole {
    pub(crate) fn new(site: &Site, doors: &Doors, gate: &Gate) -> Outcome<Self> {
        let ldap = match site.config.listen.ldap {
            Some(address) => {
                let services = LdapServices::new(site, gate.for_door("ldap"))
                    .or_hint("directory.base_dn", "set a distinguished name")?;
                Some((Arc::new(Place::new("listen.ldap", address)), services))
            }
            None => None,
        };
        Ok(Self {
            site: site.clone(),
            directory: site.directory.clone(),
            doors: doors.clone(),
            ldap,
        })
    }

    /// Where LDAP is, if it is.
    pub(crate) fn ldap(&self) -> Option<std::net::SocketAddr> {
        self.ldap.as_ref().map(|(place, _)| place.address())
    }
}

impl Role for DirectoryRole {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn open(&self, stop: &CancellationToken) -> BoxFuture<'_, Outcome<Opened>> {
        let stop = stop.clone();
        Box::pin(async move {
            let watch = watch_directory(self.directory.clone(), stop.clone());
            let mut opened = Opened {
                listeners: Vec::new(),
                tasks: vec![Task::new("directory.sqlite", watch)],
            };
            if let Some((place, services)) = &self.ldap {
                let (credentials, trust) = (&self.site.credentials, self.site.registry.trust());
                let tls = tls_for_people(credentials, trust, &[])?;
                let socket = place.bind().await?;
                let ldap = Ldap::new(services.clone());
                let door = self.doors.secure("ldap", socket, tls, PROGRAMS, ldap);
                opened.listeners.push(door);
                let services = services.clone();
                let keeping =
                    async move { every(HOUSEKEEPING, stop, || services.record_counted()).await };
                opened.tasks.push(Task::new("ldap", keeping));
            }
            Ok(opened)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.directory.close(OffsetDateTime::now_utc()))
    }
}
