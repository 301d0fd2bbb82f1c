//! Services in the directory's database.
//!
//! The access rules read these records as they read the entries of people. The log follows the rows of this database, so a
//! record that another program changes stops the site.

use std::collections::BTreeSet;

use audit::{Actor, Event};
use aws_lc_rs::digest::{SHA256, digest};
use event_catalogue::Recorded as _;
use event_catalogue::service::{ServiceChange, ServiceChanged};
use services::{Client, MAX_SERVICES, RecordError, Service, ServiceError};
use store::sqlx;
use time::OffsetDateTime;

use crate::rows::Writing;
use crate::{Directory, DirectoryError};

/// A stored service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    pub service: Service,
    /// Grows with every change, from 1.
    pub revision: i64,
}

/// Why the registry of services refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceStoreError {
    #[error("there is no service {0}")]
    Unknown(String),
    #[error("there is a service {0} already")]
    Taken(String),
    /// The record was changed after the caller had read it.
    #[error("the service {id} has revision {found}, not {seen}")]
    Stale { id: String, seen: i64, found: i64 },
    #[error("the site has {MAX_SERVICES} services, which is the most")]
    Full,
    #[error(transparent)]
    Invalid(#[from] ServiceError),
    #[error("the stored record of the service {id} cannot be read")]
    Damaged {
        id: String,
        #[source]
        source: RecordError,
    },
    #[error("the record of the service {id} cannot be written")]
    Record {
        id: String,
        #[source]
        source: RecordError,
    },
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

impl From<sqlx::Error> for ServiceStoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Directory(error.into())
    }
}

type Row = (String, String, i64);

impl Directory {
    /// All services, by identifier.
    ///
    /// # Errors
    /// [`ServiceStoreError::Damaged`], or the database's.
    pub async fn services(&self) -> Result<Vec<Registered>, ServiceStoreError> {
        let query = "SELECT id, record, revision FROM services ORDER BY id";
        let rows: Vec<Row> = sqlx::query_as(query).fetch_all(self.sql.read()).await?;
        rows.into_iter().map(from_row).collect()
    }

    /// The service `id`.
    ///
    /// # Errors
    /// As [`Self::services`].
    pub async fn service(&self, id: &str) -> Result<Option<Registered>, ServiceStoreError> {
        let query = "SELECT id, record, revision FROM services WHERE id = ?";
        let row: Option<Row> = sqlx::query_as(query)
            .bind(id)
            .fetch_optional(self.sql.read())
            .await?;
        row.map(from_row).transpose()
    }

    /// Adds a service.
    ///
    /// # Errors
    /// [`ServiceStoreError::Taken`], [`ServiceStoreError::Full`], [`ServiceStoreError::Invalid`], or the database's.
    pub async fn add_service(
        &self,
        service: &Service,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<(), ServiceStoreError> {
        service.check()?;
        let mut tx = self.begin().await?;
        if stored(&mut tx, &service.id).await?.is_some() {
            return Err(ServiceStoreError::Taken(service.id.clone()));
        }
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM services")
            .fetch_one(&mut **tx)
            .await?;
        if usize::try_from(count).unwrap_or(usize::MAX) >= MAX_SERVICES {
            return Err(ServiceStoreError::Full);
        }
        sqlx::query("INSERT INTO services (id, record, revision) VALUES (?, ?, 1)")
            .bind(&service.id)
            .bind(record(service)?)
            .execute(&mut **tx)
            .await?;
        let event = event(&service.id, None, Some(service), 1, &actor, now);
        Ok(self.finish(tx, vec![event]).await?)
    }

    /// Replaces the record of a service that the caller has read as revision `seen`.
    ///
    /// # Errors
    /// [`ServiceStoreError::Unknown`], [`ServiceStoreError::Stale`], [`ServiceStoreError::Invalid`], or the database's.
    pub async fn change_service(
        &self,
        service: &Service,
        seen: i64,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<(), ServiceStoreError> {
        service.check()?;
        let mut tx = self.begin().await?;
        let old = seen_as(stored(&mut tx, &service.id).await?, &service.id, seen)?;
        if old == *service {
            return Ok(());
        }
        let revision = seen.saturating_add(1);
        sqlx::query("UPDATE services SET record = ?, revision = ? WHERE id = ?")
            .bind(record(service)?)
            .bind(revision)
            .bind(&service.id)
            .execute(&mut **tx)
            .await?;
        let event = event(
            &service.id,
            Some(&old),
            Some(service),
            revision,
            &actor,
            now,
        );
        Ok(self.finish(tx, vec![event]).await?)
    }

    /// Removes a service that the caller has read as revision `seen`.
    ///
    /// # Errors
    /// [`ServiceStoreError::Unknown`], [`ServiceStoreError::Stale`], or the database's.
    pub async fn remove_service(
        &self,
        id: &str,
        seen: i64,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<(), ServiceStoreError> {
        let mut tx = self.begin().await?;
        let old = seen_as(stored(&mut tx, id).await?, id, seen)?;
        sqlx::query("DELETE FROM services WHERE id = ?")
            .bind(id)
            .execute(&mut **tx)
            .await?;
        let event = event(id, Some(&old), None, seen, &actor, now);
        Ok(self.finish(tx, vec![event]).await?)
    }
}

async fn stored(tx: &mut Writing, id: &str) -> Result<Option<Registered>, ServiceStoreError> {
    let query = "SELECT id, record, revision FROM services WHERE id = ?";
    let row: Option<Row> = sqlx::query_as(query)
        .bind(id)
        .fetch_optional(&mut ***tx)
        .await?;
    row.map(from_row).transpose()
}

/// The record, if it is still the one that the caller has read.
fn seen_as(found: Option<Registered>, id: &str, seen: i64) -> Result<Service, ServiceStoreError> {
    let id = id.to_owned();
    match found {
        None => Err(ServiceStoreError::Unknown(id)),
        Some(found) if found.revision != seen => {
            let found = found.revision;
            Err(ServiceStoreError::Stale { id, seen, found })
        }
        Some(found) => Ok(found.service),
    }
}

fn from_row((id, record, revision): Row) -> Result<Registered, ServiceStoreError> {
    match Service::from_record(&record) {
        Ok(service) if service.id == id => Ok(Registered { service, revision }),
        Ok(_) => {
            let problem = "is not that of its row";
            let source = ServiceError {
                field: "id",
                problem,
            }
            .into();
            Err(ServiceStoreError::Damaged { id, source })
        }
        Err(source) => Err(ServiceStoreError::Damaged { id, source }),
    }
}

fn record(service: &Service) -> Result<String, ServiceStoreError> {
    service
        .to_record()
        .map_err(|source| ServiceStoreError::Record {
            id: service.id.clone(),
            source,
        })
}

fn event(
    id: &str,
    old: Option<&Service>,
    new: Option<&Service>,
    revision: i64,
    actor: &Actor,
    now: OffsetDateTime,
) -> Event {
    let kind = match (old, new) {
        (None, _) => ServiceChange::Add,
        (Some(_), Some(_)) => ServiceChange::Change,
        (Some(_), None) => ServiceChange::Remove,
    };
    // Both values, only where they differ.
    let values = |of: &dyn Fn(&Service) -> Option<String>| {
        let (before, after) = (old.and_then(of), new.and_then(of));
        match before == after {
            true => (None, None),
            false => (before, after),
        }
    };
    let of_client = |of: &dyn Fn(&Client) -> Option<String>| {
        values(&|service: &Service| service.client().and_then(of))
    };
    let (old_name, new_name) = values(&|s| Some(s.name.clone()));
    let (old_address, new_address) = values(&|s| Some(s.address.clone()));
    let (old_icon, new_icon) = values(&|s| Some(s.icon.name().to_owned()));
    let (old_owner, new_owner) = values(&|s| Some(s.owner.clone()));
    let (old_level, new_level) = values(&|s| Some(s.level.level().to_string()));
    let (old_roles, new_roles) = values(&|s| Some(list(s.roles.iter().map(|r| r.name()))));
    let (old_units, new_units) = values(&|s| Some(list(s.units.iter().map(String::as_str))));
    let (old_connection, new_connection) = values(&|s| Some(s.connection.name().to_owned()));
    let (old_redirects, new_redirects) = of_client(&|c| Some(c.redirects.join(" ")));
    let (old_key, new_key) = of_client(&|c| Some(c.key.fingerprint()));
    let (old_logout, new_logout) = of_client(&|c| c.logout.clone());
    let hashed = |text: &String| hex::encode(digest(&SHA256, text.as_bytes()));
    let (old_logout_trust, new_logout_trust) = of_client(&|c| c.logout_trust.as_ref().map(hashed));
    let changed = ServiceChanged {
        kind,
        revision: u64::try_from(revision).unwrap_or_default(),
        old_name,
        new_name,
        old_address,
        new_address,
        old_icon,
        new_icon,
        old_owner,
        new_owner,
        old_level,
        new_level,
        old_roles,
        new_roles,
        old_units,
        new_units,
        old_connection,
        new_connection,
        old_redirects,
        new_redirects,
        old_key,
        new_key,
        old_logout,
        new_logout,
        old_logout_trust,
        new_logout_trust,
    };
    changed.into_event(now, actor.clone(), format!("service/{id}"))
}

/// Words in their order, with commas between.
fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: BTreeSet<&str> = words.collect();
    words.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use access::Role;
    use audit::MemorySink;
    use pki::clearance::Clearance;
    use pool::{Pool, Share};
    use services::{Connection, Icon};
    use store::StoreError;
    use store::sqlx::Connection as _;
    use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn wiki() -> Service {
        Service {
            id: "wiki".into(),
            name: "Wiki".into(),
            address: "https://wiki.example.org/".into(),
            icon: Icon::Document,
            owner: "IT".into(),
            level: Clearance::Secret,
            roles: BTreeSet::from([Role::Officer]),
            units: BTreeSet::from(["traffic".to_owned()]),
            connection: Connection::Link,
        }
    }

    fn by() -> Actor {
        Actor::service("x")
    }

    async fn open(folder: &Path, audit: &Arc<MemorySink>) -> Result<Directory, DirectoryError> {
        let file = folder.join("d.sqlite");
        Directory::open(&file, audit.clone(), Pool::new(Share::Audit), NOW).await
    }

    #[tokio::test]
    async fn change_is_recorded_with_old_and_new_values() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Arc::new(MemorySink::default());
        let directory = open(folder.path(), &audit).await.unwrap();
        directory.add_service(&wiki(), by(), NOW).await.unwrap();
        let lower = Service {
            level: Clearance::Restricted,
            ..wiki()
        };
        directory
            .change_service(&lower, 1, by(), NOW)
            .await
            .unwrap();
        let event = audit.events().pop().unwrap();
        assert_eq!(event.action, "service.change");
        assert_eq!(event.details["level.old"], "3");
        assert_eq!(event.details["level.new"], "1");
        assert!(!event.details.contains_key("roles.old"));
        let found = directory.service("wiki").await.unwrap().unwrap();
        assert_eq!((found.service, found.revision), (lower, 2));
        directory
            .remove_service("wiki", 2, by(), NOW)
            .await
            .unwrap();
        assert_eq!(audit.events().pop().unwrap().action, "service.remove");
        assert_eq!(directory.services().await.unwrap(), []);
    }

    #[tokio::test]
    async fn unknown_taken_stale_and_invalid_records_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Arc::new(MemorySink::default());
        let directory = open(folder.path(), &audit).await.unwrap();
        let change = |seen| directory.change_service_owned(wiki(), seen);
        assert!(matches!(
            change(1).await,
            Err(ServiceStoreError::Unknown(_))
        ));
        directory.add_service(&wiki(), by(), NOW).await.unwrap();
        let again = directory.add_service(&wiki(), by(), NOW).await;
        assert!(matches!(again, Err(ServiceStoreError::Taken(_))));
        assert!(matches!(
            change(2).await,
            Err(ServiceStoreError::Stale { .. })
        ));
        let removed = directory.remove_service("wiki", 2, by(), NOW).await;
        assert!(matches!(removed, Err(ServiceStoreError::Stale { .. })));
        let nobody = Service {
            roles: BTreeSet::new(),
            ..wiki()
        };
        let changed = directory.change_service(&nobody, 1, by(), NOW).await;
        assert!(matches!(changed, Err(ServiceStoreError::Invalid(_))));
        assert_eq!(audit.events().len(), 2, "opened and added");
    }

    impl Directory {
        async fn change_service_owned(
            &self,
            service: Service,
            seen: i64,
        ) -> Result<(), ServiceStoreError> {
            self.change_service(&service, seen, by(), NOW).await
        }
    }

    #[tokio::test]
    async fn service_beyond_the_most_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Arc::new(MemorySink::default());
        let directory = open(folder.path(), &audit).await.unwrap();
        for n in 0..MAX_SERVICES {
            let id = format!("s{n}");
            let service = Service { id, ..wiki() };
            directory.add_service(&service, by(), NOW).await.unwrap();
        }
        let full = directory.add_service(&wiki(), by(), NOW).await;
        assert!(matches!(full, Err(ServiceStoreError::Full)));
    }

    #[tokio::test]
    async fn record_that_another_program_changed_stops_changes_and_start() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Arc::new(MemorySink::default());
        let directory = open(folder.path(), &audit).await.unwrap();
        directory.add_service(&wiki(), by(), NOW).await.unwrap();
        let file = SqliteConnectOptions::new().filename(folder.path().join("d.sqlite"));
        let mut other = SqliteConnection::connect_with(&file).await.unwrap();
        let lower = r#"UPDATE services SET record = replace(record, '"level":3', '"level":0')"#;
        sqlx::raw_sql(lower).execute(&mut other).await.unwrap();
        other.close().await.unwrap();
        let is_changed = |outcome: Result<_, DirectoryError>| {
            matches!(
                outcome,
                Err(DirectoryError::Store(StoreError::Changed { .. }))
            )
        };
        assert!(is_changed(directory.check_alone(NOW).await));
        directory.close(NOW).await;
        assert!(is_changed(open(folder.path(), &audit).await.map(drop)));
    }
}
