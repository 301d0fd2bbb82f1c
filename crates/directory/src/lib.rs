//! The directory: people with their clearance, roles and units, password verifiers for
//! logins without a certificate, and the services that people may open.
//!
//! A person's entry bounds what their certificate gives: lowering it here takes effect on the next
//! request, without revoking anything. Passwords are kept as Argon2id verifiers and guarded by a
//! lock-out. It is not an LDAP server; one may stand in front of it.
//!
//! Every change is an event with old and new values before it takes effect; what cannot be recorded
//! does not happen. An entry has an *epoch* that grows when the password changes or rights are
//! taken away: a session that began in another epoch has ended.
//!
//! Start with [`Directory::open`].
#![forbid(unsafe_code)]

mod attempts;
mod change;
mod import;
mod password;
mod person;
mod rows;
mod services;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use audit::{Actor, AuditError, AuditSink};
use pool::{Pool, Share};
use store::sqlx::{self, Sqlite, Transaction};
use store::{Migration, Sql, StoreError};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::attempts::Attempts;
use crate::rows::WriteTurn;

pub use import::{ImportError, Imported};
pub use password::{LoginError, PasswordPolicyError};
pub use person::{Person, PersonError};
pub use services::{Registered, ServiceStoreError};

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        sql: V1,
    },
    Migration {
        version: 2,
        sql: V2,
    },
    Migration {
        version: 3,
        sql: V3,
    },
    Migration {
        version: 4,
        sql: V4,
    },
    Migration {
        version: 5,
        sql: V5,
    },
];

const V1: &str = "
CREATE TABLE people (
    uid          TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    given_name   TEXT NOT NULL,
    surname      TEXT NOT NULL,
    email        TEXT NOT NULL,
    organisation TEXT NOT NULL,
    clearance    INTEGER NOT NULL,
    roles        TEXT NOT NULL,        -- JSON array
    units        TEXT NOT NULL,        -- JSON array
    active       INTEGER NOT NULL
) STRICT;
CREATE TABLE passwords (
    uid         TEXT PRIMARY KEY REFERENCES people ON DELETE CASCADE,
    verifier    TEXT NOT NULL,         -- PHC string, Argon2id
    failures    INTEGER NOT NULL,
    locked_till INTEGER NOT NULL       -- seconds since the epoch
) STRICT;
";

/// Grows with every change that ends sessions.
const V2: &str = "ALTER TABLE people ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;";

/// Country of a person's organisation.
const V3: &str = "ALTER TABLE people ADD COLUMN country TEXT NOT NULL DEFAULT '';";

/// The follower of disabled people asks every few seconds.
const V4: &str = "CREATE INDEX people_disabled ON people (uid) WHERE active = 0;";

/// Foreign applications; the record is JSON with a version.
const V5: &str = "
CREATE TABLE services (
    id       TEXT PRIMARY KEY,
    record   TEXT NOT NULL,
    revision INTEGER NOT NULL
) STRICT;
";

/// Why the directory could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Nobody has this user id.
    #[error("nobody has the user id {0}")]
    Unknown(String),
    /// Somebody has this user id already.
    #[error("the user id {0} is taken")]
    Taken(String),
    /// Rights of this person would change without the approvals that they need.
    #[error("rights of {0} change on an approved request only; somebody new has none")]
    Rights(String),
    /// The entry breaks a rule.
    #[error(transparent)]
    Person(#[from] PersonError),
    /// The password breaks a rule.
    #[error(transparent)]
    Policy(#[from] PasswordPolicyError),
    #[error("the directory's database failed")]
    Store(#[from] StoreError),
    /// A stored entry cannot be read.
    #[error("the stored entry of {0} is damaged")]
    Damaged(String),
    /// The verifier of a password could not be made.
    #[error("cannot hash the password: {0}")]
    Hash(argon2::password_hash::Error),
    /// The log failed: a change that cannot be recorded is not made.
    #[error("the audit log failed, hence nothing was done")]
    Audit(#[from] AuditError),
    #[error("a worker died")]
    Worker(#[from] tokio::task::JoinError),
}

impl From<sqlx::Error> for DirectoryError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The directory; cheap to clone.
#[derive(Clone)]
pub struct Directory {
    file: PathBuf,
    sql: Sql,
    turn: WriteTurn,
    passwords: Pool,
    attempts: Arc<Attempts>,
    changes: watch::Sender<u64>,
    audit: Arc<dyn AuditSink>,
    pool: Pool,
}

/// An entry with the epoch that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub person: Person,
    /// Grows with every change that ends sessions.
    pub epoch: i64,
}

type Row = (
    String,
    String,
    String,
    String,
    String,
    String,
    i64,
    String,
    String,
    bool,
    i64,
    String,
);

const SELECT: &str = "SELECT uid, name, given_name, surname, email, organisation, clearance,
    roles, units, active, epoch, country FROM people ";

impl Directory {
    /// Opens the directory's database, making it when it is missing. Changes are recorded in
    /// `audit`, on threads of `pool`, and its rows must be those of the newest one.
    ///
    /// # Errors
    /// [`DirectoryError::Store`], [`DirectoryError::Audit`].
    pub async fn open(
        file: &Path,
        audit: Arc<dyn AuditSink>,
        pool: Pool,
        now: OffsetDateTime,
    ) -> Result<Self, DirectoryError> {
        let directory = Self {
            file: file.to_owned(),
            sql: Sql::open_watched(file, MIGRATIONS, rows::WATCHED).await?,
            turn: WriteTurn::default(),
            passwords: Pool::new(Share::Passwords),
            attempts: Arc::default(),
            changes: watch::Sender::new(0),
            audit,
            pool,
        };
        directory.check_rows(now).await?;
        Ok(directory)
    }

    /// Tells whether a directory in `file` has people; it need not be open.
    ///
    /// # Errors
    /// [`DirectoryError::Store`].
    pub async fn has_people(file: &Path) -> Result<bool, DirectoryError> {
        Ok(store::has_rows(file, "people").await?)
    }

    /// A counter that grows with every change, for caches.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Adds a person.
    ///
    /// # Errors
    /// [`DirectoryError::Taken`], [`DirectoryError::Person`], [`DirectoryError::Audit`], or the
    /// database's.
    pub async fn add(
        &self,
        person: &Person,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<(), DirectoryError> {
        person.check()?;
        let mut tx = self.begin().await?;
        if entry_in(&mut tx, &person.uid).await?.is_some() {
            return Err(DirectoryError::Taken(person.uid.clone()));
        }
        let event = change::put(&mut tx, None, person, &actor, now).await?;
        self.finish(tx, event.into_iter().collect()).await
    }

    /// Replaces a person's entry; the password stays.
    ///
    /// # Errors
    /// [`DirectoryError::Unknown`], [`DirectoryError::Person`], [`DirectoryError::Audit`], or the
    /// database's.
    pub async fn update(
        &self,
        person: &Person,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<(), DirectoryError> {
        person.check()?;
        let mut tx = self.begin().await?;
        let old = known(entry_in(&mut tx, &person.uid).await?, &person.uid)?;
        let event = change::put(&mut tx, Some(&old), person, &actor, now).await?;
        self.finish(tx, event.into_iter().collect()).await
    }

    /// Disables or enables a person.
    ///
    /// # Errors
    /// [`DirectoryError::Unknown`], [`DirectoryError::Audit`], or the database's.
    pub async fn set_active(
        &self,
        uid: &str,
        active: bool,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<(), DirectoryError> {
        let mut tx = self.begin().await?;
        let old = known(entry_in(&mut tx, uid).await?, uid)?;
        let person = Person {
            active,
            ..old.clone()
        };
        let event = change::put(&mut tx, Some(&old), &person, &actor, now).await?;
        self.finish(tx, event.into_iter().collect()).await
    }

    /// The person with this user id.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`], or the database's.
    pub async fn get(&self, uid: &str) -> Result<Option<Person>, DirectoryError> {
        Ok(self.entry(uid).await?.map(|entry| entry.person))
    }

    /// The entry with this user id.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`], or the database's.
    pub async fn entry(&self, uid: &str) -> Result<Option<Entry>, DirectoryError> {
        let query = format!("{SELECT} WHERE uid = ?");
        let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(uid)
            .fetch_optional(self.sql.read())
            .await?;
        row.map(from_row).transpose()
    }

    /// Everybody, by user id.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`], or the database's.
    pub async fn list(&self) -> Result<Vec<Person>, DirectoryError> {
        let query = format!("{SELECT} ORDER BY uid");
        let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .fetch_all(self.sql.read())
            .await?;
        rows.into_iter()
            .map(|row| from_row(row).map(|entry| entry.person))
            .collect()
    }

    /// User ids of the people who are disabled.
    ///
    /// # Errors
    /// The database's.
    pub async fn disabled(&self) -> Result<Vec<String>, DirectoryError> {
        let query = "SELECT uid FROM people WHERE active = 0 ORDER BY uid";
        Ok(sqlx::query_scalar(query).fetch_all(self.sql.read()).await?)
    }

    /// Entries of earlier versions that break a rule of today, with the first one. They stay as they are, give no
    /// certificate, and the next change has to mend them.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn flawed(&self) -> Result<Vec<(String, PersonError)>, DirectoryError> {
        let everybody = self.list().await?.into_iter();
        let flawed = everybody.filter_map(|person| Some((person.check().err()?, person.uid)));
        Ok(flawed.map(|(error, uid)| (uid, error)).collect())
    }

    /// Sets or replaces a person's password, lifts a lock-out and ends the person's sessions.
    ///
    /// # Errors
    /// [`DirectoryError::Unknown`], [`DirectoryError::Policy`], [`DirectoryError::Audit`], or the
    /// database's.
    pub async fn set_password(
        &self,
        uid: &str,
        password: &str,
        actor: Actor,
        now: OffsetDateTime,
    ) -> Result<(), DirectoryError> {
        let verifier = self.hashed(uid, password).await?;
        let mut tx = self.begin().await?;
        known(entry_in(&mut tx, uid).await?, uid)?;
        let event = change::put_password(&mut tx, uid, &verifier, &actor, now).await?;
        self.finish(tx, vec![event]).await
    }

    /// The verifier of an acceptable password.
    async fn hashed(&self, uid: &str, password: &str) -> Result<String, DirectoryError> {
        password::check_policy(uid, password)?;
        let password = zeroize::Zeroizing::new(password.to_owned());
        let hash = move || password::hash(&password);
        self.passwords
            .run(hash)
            .await?
            .map_err(DirectoryError::Hash)
    }

    /// Checks a name and password and gives the entry. Its epoch is that in which the password was
    /// looked up: one that is changed meanwhile opens no session.
    ///
    /// Answers alike, and as fast, whether the name exists or not; `from` is where the attempt
    /// comes from.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn login(
        &self,
        uid: &str,
        password: &str,
        from: Option<IpAddr>,
        now: OffsetDateTime,
    ) -> Result<Entry, LoginError> {
        password::login(self, uid, password, from, now).await
    }

    fn changed(&self) {
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }
}

async fn entry_in(
    tx: &mut Transaction<'static, Sqlite>,
    uid: &str,
) -> Result<Option<Person>, DirectoryError> {
    let query = format!("{SELECT} WHERE uid = ?");
    let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(uid)
        .fetch_optional(&mut **tx)
        .await?;
    Ok(row.map(from_row).transpose()?.map(|entry| entry.person))
}

fn known(person: Option<Person>, uid: &str) -> Result<Person, DirectoryError> {
    person.ok_or_else(|| DirectoryError::Unknown(uid.to_owned()))
}

fn from_row(row: Row) -> Result<Entry, DirectoryError> {
    let (
        uid,
        name,
        given_name,
        surname,
        email,
        organisation,
        clearance,
        roles,
        units,
        active,
        epoch,
        country,
    ) = row;
    let damaged = || DirectoryError::Damaged(uid.clone());
    let level = u8::try_from(clearance).map_err(|_| damaged())?;
    let person = Person {
        clearance: level.try_into().map_err(|_| damaged())?,
        roles: serde_json::from_str(&roles).map_err(|_| damaged())?,
        units: serde_json::from_str(&units).map_err(|_| damaged())?,
        uid,
        name,
        given_name,
        surname,
        email,
        organisation,
        country,
        active,
    };
    Ok(Entry { person, epoch })
}

#[cfg(test)]
mod tests;
