//! The directory: people with their clearance, roles and units, and password verifiers for
//! logins without a certificate.
//!
//! A person's entry bounds what their certificate gives: lowering it here takes effect on the next
//! request, without revoking anything. Passwords are kept as Argon2id verifiers and guarded by a
//! lock-out. It is not an LDAP server; one may stand in front of it.
//!
//! Start with [`Directory::open`].
#![forbid(unsafe_code)]

mod import;
mod password;
mod person;

use std::path::Path;
use std::sync::Arc;

use store::sqlx;
use store::{Migration, Sql, StoreError};
use time::OffsetDateTime;
use tokio::sync::{Semaphore, watch};

pub use import::{ImportError, ImportLine};
pub use password::{LoginError, PasswordPolicyError};
pub use person::{Person, PersonError};

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    sql: "
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
",
}];

/// Passwords verified at the same time: each takes 19 MiB and some 20 ms.
const VERIFIERS: usize = 4;

/// Why the directory could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Nobody has this user id.
    #[error("nobody has the user id {0}")]
    Unknown(String),
    /// Somebody has this user id already.
    #[error("the user id {0} is taken")]
    Taken(String),
    /// The entry breaks a rule.
    #[error(transparent)]
    Person(#[from] PersonError),
    /// The password breaks a rule.
    #[error(transparent)]
    Policy(#[from] PasswordPolicyError),
    /// The database failed.
    #[error("the directory's database failed")]
    Store(#[from] StoreError),
    /// A stored entry cannot be read.
    #[error("the stored entry of {0} is damaged")]
    Damaged(String),
    /// The verifier of a password could not be made.
    #[error("cannot hash the password: {0}")]
    Hash(argon2::password_hash::Error),
    /// A worker died.
    #[error("a worker died")]
    Worker(#[from] tokio::task::JoinError),
}

impl From<sqlx::Error> for DirectoryError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The directory; cheap to clone.
#[derive(Clone, Debug)]
pub struct Directory {
    sql: Sql,
    verifiers: Arc<Semaphore>,
    changes: watch::Sender<u64>,
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
);

impl Directory {
    /// Opens the directory's database, making it when it is missing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(file: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            sql: Sql::open(file, MIGRATIONS).await?,
            verifiers: Arc::new(Semaphore::new(VERIFIERS)),
            changes: watch::Sender::new(0),
        })
    }

    /// A counter that grows with every change, for caches and sessions.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Adds a person.
    ///
    /// # Errors
    /// [`DirectoryError::Taken`], [`DirectoryError::Person`], or the database's.
    pub async fn add(&self, person: &Person) -> Result<(), DirectoryError> {
        person.check()?;
        let mut tx = self.sql.write().await?;
        let added = bind(
            sqlx::query(
                "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            ),
            person,
        )
        .execute(&mut *tx)
        .await?;
        if added.rows_affected() == 0 {
            return Err(DirectoryError::Taken(person.uid.clone()));
        }
        tx.commit().await?;
        self.changed();
        Ok(())
    }

    /// Replaces a person's entry; the password stays.
    ///
    /// # Errors
    /// [`DirectoryError::Unknown`], [`DirectoryError::Person`], or the database's.
    pub async fn update(&self, person: &Person) -> Result<(), DirectoryError> {
        person.check()?;
        let mut tx = self.sql.write().await?;
        let updated = bind(
            sqlx::query(
                "UPDATE people SET name = ?2, given_name = ?3, surname = ?4, email = ?5,
                organisation = ?6, clearance = ?7, roles = ?8, units = ?9, active = ?10
             WHERE uid = ?1",
            ),
            person,
        )
        .execute(&mut *tx)
        .await?;
        if updated.rows_affected() == 0 {
            return Err(DirectoryError::Unknown(person.uid.clone()));
        }
        tx.commit().await?;
        self.changed();
        Ok(())
    }

    /// The person with this user id.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`], or the database's.
    pub async fn get(&self, uid: &str) -> Result<Option<Person>, DirectoryError> {
        let row: Option<Row> = sqlx::query_as("SELECT * FROM people WHERE uid = ?")
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
        let rows: Vec<Row> = sqlx::query_as("SELECT * FROM people ORDER BY uid")
            .fetch_all(self.sql.read())
            .await?;
        rows.into_iter().map(from_row).collect()
    }

    /// Sets or replaces a person's password, and lifts a lock-out.
    ///
    /// # Errors
    /// [`DirectoryError::Unknown`], [`DirectoryError::Policy`], or the database's.
    pub async fn set_password(&self, uid: &str, password: &str) -> Result<(), DirectoryError> {
        password::check_policy(uid, password)?;
        if self.get(uid).await?.is_none() {
            return Err(DirectoryError::Unknown(uid.to_owned()));
        }
        let password = zeroize::Zeroizing::new(password.to_owned());
        let verifier = tokio::task::spawn_blocking(move || password::hash(&password))
            .await?
            .map_err(DirectoryError::Hash)?;
        let mut tx = self.sql.write().await?;
        sqlx::query("INSERT OR REPLACE INTO passwords VALUES (?, ?, 0, 0)")
            .bind(uid)
            .bind(verifier)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        self.changed();
        Ok(())
    }

    /// Checks a name and password and gives the person.
    ///
    /// Takes the same time whether the name exists or not, as far as hashing dominates.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn login(
        &self,
        uid: &str,
        password: &str,
        now: OffsetDateTime,
    ) -> Result<Person, LoginError> {
        password::login(self, uid, password, now).await
    }

    fn changed(&self) {
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }
}

fn bind<'q>(
    query: sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    person: &'q Person,
) -> sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    query
        .bind(&person.uid)
        .bind(&person.name)
        .bind(&person.given_name)
        .bind(&person.surname)
        .bind(&person.email)
        .bind(&person.organisation)
        .bind(i64::from(person.clearance.level()))
        .bind(serde_json::to_string(&person.roles).unwrap_or_default())
        .bind(serde_json::to_string(&person.units).unwrap_or_default())
        .bind(person.active)
}

fn from_row(row: Row) -> Result<Person, DirectoryError> {
    let (uid, name, given_name, surname, email, organisation, clearance, roles, units, active) =
        row;
    let damaged = || DirectoryError::Damaged(uid.clone());
    let level = u8::try_from(clearance).map_err(|_| damaged())?;
    Ok(Person {
        clearance: level.try_into().map_err(|_| damaged())?,
        roles: serde_json::from_str(&roles).map_err(|_| damaged())?,
        units: serde_json::from_str(&units).map_err(|_| damaged())?,
        uid,
        name,
        given_name,
        surname,
        email,
        organisation,
        active,
    })
}

#[cfg(test)]
mod tests;
