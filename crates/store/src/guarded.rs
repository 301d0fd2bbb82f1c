//! Checks that a database is still the file that the program opened, with the schema that its migrations make.
//!
//! For databases whose rows are compared by other means. The check reads through a connection of its own: what SQLite keeps in
//! memory of a file proves nothing about the file.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sqlx::SqliteConnection;

use crate::sql::{Sql, StoreError};
use crate::watched::{Journal, Snapshot, check_indexes, check_schema};

/// SQLite's result codes for a file with impossible bytes: `SQLITE_CORRUPT` and `SQLITE_NOTADB`.
const DAMAGED: [i64; 2] = [11, 26];

/// The state of a database file between two looks.
#[derive(Debug)]
pub struct Guard {
    sql: Sql,
    path: PathBuf,
    /// The journal of the file, by the connection that has it open.
    journal: Option<(u64, Journal)>,
    /// Largest length of the file so far. It never shrinks: this program deletes no pages.
    length: u64,
}

impl Guard {
    /// Guards a database that [`Sql::open_guarded`] opened.
    #[must_use]
    pub fn new(sql: &Sql, path: PathBuf) -> Self {
        Self {
            sql: sql.clone(),
            path,
            journal: None,
            length: 0,
        }
    }

    /// Looks at the file and its schema; costs one connection and a short transaction.
    ///
    /// # Errors
    /// [`StoreError::Replaced`], [`StoreError::Shorter`], [`StoreError::Schema`] or [`StoreError::Inconsistent`] if another program
    /// changed the file, or the database's error.
    pub async fn look(&mut self) -> Result<(), StoreError> {
        self.look_at_file()?;
        let mut connection = self.connection().await?;
        let checked = check_schema(&mut connection, &self.sql.followed().schema).await;
        checked.map_err(damaged)
    }

    /// Also reads the whole file, and compares each index of a table with the table.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub async fn look_whole(&mut self) -> Result<(), StoreError> {
        self.look().await?;
        let mut connection = self.connection().await?;
        check_indexes(&mut connection).await.map_err(damaged)
    }

    fn look_at_file(&mut self) -> Result<(), StoreError> {
        let Some(place) = self.sql.followed().place.as_ref().map(Arc::clone) else {
            return Ok(());
        };
        let connection = self.sql.followed().connections.load(Ordering::SeqCst);
        let journal = (connection, place.journal()?);
        let known = *self.journal.get_or_insert(journal);
        // A new connection may have made a new journal.
        if known != journal && known.0 == connection {
            return Err(place.replaced());
        }
        self.journal = Some(journal);
        let length = std::fs::metadata(&self.path).map_err(sqlx::Error::Io)?;
        let length = length.len();
        if length < self.length {
            return Err(StoreError::Shorter {
                file: self.path.clone(),
                found: length,
                known: self.length,
            });
        }
        self.length = length;
        Ok(())
    }

    async fn connection(&self) -> Result<SqliteConnection, StoreError> {
        let snapshot = Snapshot::of(&self.path).await.map_err(damaged)?;
        Ok(snapshot.into_connection())
    }
}

/// Tells a damaged file from a database that cannot be read for another reason.
fn damaged(error: StoreError) -> StoreError {
    let code = match &error {
        StoreError::Database(sqlx::Error::Database(error)) => error.code(),
        _ => None,
    };
    // The low byte is the primary code.
    let code = code
        .and_then(|code| code.parse::<i64>().ok())
        .map(|code| code & 0xff);
    match code {
        Some(code) if DAMAGED.contains(&code) => StoreError::Inconsistent(error_text(&error)),
        _ => error,
    }
}

fn error_text(error: &StoreError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests;
