//! Tables whose every change is followed, so that a hash of all their rows is at hand at any time.
//!
//! The connection that writes has triggers of its own (they are temporary, not of the file), which note each row before and
//! after its change in a temporary table. That table belongs to the transaction: what is rolled back, to a savepoint too, was
//! not noted. Whoever writes takes the notes before the commit ([`Sql::take_changes`]).
//!
//! A row counts as the text of its columns. A column with its default is left out, so that a later version may add columns without
//! changing the hash of what is there.
//!
//! The hash is of tables. Queries go by indexes as well, and somebody who writes to the file could have these say something else,
//! or have a trigger change rows as if the program did: whenever all rows are read, the schema is compared with that of the
//! program, and SQLite compares each index with its table.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Sqlite, Transaction};

use crate::SetHash;
use crate::sql::{Migration, Sql, StoreError, migrate};

/// A table whose rows are followed.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    pub table: &'static str,
    /// Columns that may change unnoticed.
    pub without: &'static [&'static str],
    /// The order in which rows came decides of something: their numbers count as well. No row of such a table is ever deleted,
    /// so that SQLite has no reason to number them anew.
    pub ordered: bool,
}

/// What a database that is followed is compared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Followed {
    pub(crate) tables: &'static [Watched],
    /// Names of all objects with the statements that made them.
    pub(crate) schema: Arc<BTreeSet<(String, String)>>,
    /// The file that was opened.
    pub(crate) place: Option<Arc<Place>>,
    /// Connections so far that write: what SQLite tells one of them of others' changes is no answer to another one.
    pub(crate) connections: Arc<AtomicU64>,
}

/// A file by its name and by what the name led to: connections that are opened later go by the name.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    file: FileId,
    /// Beside the file itself, wherever a link to it may be.
    journal: PathBuf,
    /// The shared index of the journal.
    shared: PathBuf,
}

/// Device and number of a file.
type FileId = (u64, u64);

/// The journal of a file and its shared index.
pub(crate) type Journal = (FileId, FileId);

fn file_id(path: &Path) -> std::io::Result<FileId> {
    let file = std::fs::metadata(path)?;
    Ok((file.dev(), file.ino()))
}

impl Place {
    /// The place of a file that is there.
    pub(crate) fn of(path: &Path) -> Result<Self, sqlx::Error> {
        let mut journal = std::fs::canonicalize(path)?.into_os_string();
        let mut shared = journal.clone();
        journal.push("-wal");
        shared.push("-shm");
        Ok(Self {
            path: path.to_owned(),
            file: file_id(path)?,
            journal: journal.into(),
            shared: shared.into(),
        })
    }

    /// Refuses another file in the place; gives its journal, which SQLite keeps as long as a connection is open.
    pub(crate) fn journal(&self) -> Result<Journal, StoreError> {
        let is_same = file_id(&self.path).is_ok_and(|file| file == self.file);
        let ids = || Some((file_id(&self.journal).ok()?, file_id(&self.shared).ok()?));
        is_same.then(ids).flatten().ok_or_else(|| self.replaced())
    }

    pub(crate) fn replaced(&self) -> StoreError {
        StoreError::Replaced(self.path.clone())
    }
}

impl Sql {
    /// Takes what this connection's transactions changed in watched tables since this was last asked, into `hash`; tells
    /// whether there was anything. Belongs to the transaction.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn take_changes(
        tx: &mut Transaction<'static, Sqlite>,
        hash: &mut SetHash,
    ) -> Result<bool, StoreError> {
        let query = "DELETE FROM temp.watched_changes RETURNING added, row";
        let mut rows = sqlx::query_as::<_, (bool, String)>(query).fetch(&mut **tx);
        let mut any = false;
        while let Some((added, row)) = rows.try_next().await? {
            any = true;
            match added {
                true => hash.add(row.as_bytes()),
                false => hash.remove(row.as_bytes()),
            }
            .map_err(|_| StoreError::Hash)?;
        }
        Ok(any)
    }

    /// The hash of all rows of the watched tables, as this transaction sees them. Reads them all.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn hash_rows(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
    ) -> Result<SetHash, StoreError> {
        hash_rows(tx, self.followed().tables).await
    }

    /// Refuses another schema than the program's, and indexes that do not say what their tables say.
    async fn check_whole(&self, tx: &mut Transaction<'static, Sqlite>) -> Result<(), StoreError> {
        check_schema(tx, &self.followed().schema).await?;
        check_indexes(tx).await
    }

    /// Commits nothing: after a commit that failed, what SQLite had written of it is not taken for committed any more, also not by
    /// a start after a crash.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn settle(&self) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let version: i64 = sqlx::query_scalar("PRAGMA user_version")
            .fetch_one(&mut *tx)
            .await?;
        // The same number: the page that has it is written all the same.
        let same = format!("PRAGMA user_version = {version}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(same))
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }
}

/// The rows of a file as they were at one moment, by a connection that never saw it before: what SQLite keeps in memory of the
/// file says nothing of bytes that were changed without it.
#[derive(Debug)]
pub struct Snapshot(SqliteConnection);

impl Snapshot {
    /// Takes it; the file is only read, and may be in use.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn of(path: &Path) -> Result<Self, StoreError> {
        let file = SqliteConnectOptions::new().filename(path).read_only(true);
        let mut connection = SqliteConnection::connect_with(&file).await?;
        // Reading begins with the first statement.
        sqlx::raw_sql("BEGIN; SELECT count(*) FROM sqlite_schema")
            .execute(&mut connection)
            .await?;
        Ok(Self(connection))
    }

    pub(crate) fn into_connection(self) -> SqliteConnection {
        self.0
    }

    /// The hash of its rows. Reads all of them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn hash_rows(mut self, watched: &[Watched]) -> Result<SetHash, StoreError> {
        hash_rows(&mut self.0, watched).await
    }

    /// Refuses other rows than `known`, and indexes that do not say what their tables say.
    ///
    /// # Errors
    /// [`StoreError::Changed`], [`StoreError::Inconsistent`], or the database's.
    pub async fn compare(mut self, watched: &[Watched], known: &SetHash) -> Result<(), StoreError> {
        check_indexes(&mut self.0).await?;
        let found = self.hash_rows(watched).await?;
        match found == *known {
            true => Ok(()),
            false => Err(StoreError::Changed {
                found: found.sha256(),
                known: known.sha256(),
            }),
        }
    }
}

pub(crate) async fn check_indexes(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let faults: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(1)")
        .fetch_all(connection)
        .await?;
    match faults.into_iter().find(|fault| fault != "ok") {
        None => Ok(()),
        Some(fault) => Err(StoreError::Inconsistent(fault)),
    }
}

async fn hash_rows(
    connection: &mut SqliteConnection,
    watched: &[Watched],
) -> Result<SetHash, StoreError> {
    let mut hash = SetHash::default();
    for watched in watched {
        let columns = columns(connection, watched).await?;
        let row = row_text(watched, &columns, "");
        let query = format!("SELECT {row} FROM main.{}", watched.table);
        let query = sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(query));
        let mut rows = query.fetch(&mut *connection);
        while let Some(row) = rows.try_next().await? {
            hash.add(row.as_bytes()).map_err(|_| StoreError::Hash)?;
        }
    }
    Ok(hash)
}

/// The rows of the watched tables as a process has committed them.
#[derive(Debug, Default)]
pub struct FollowedRows {
    rows: Known,
    /// By which SQLite tells that somebody else wrote to the file, and the connection that it told.
    version: Option<(u64, i64)>,
    /// The journal of the file, by the connection that has it open.
    journal: Option<(u64, Journal)>,
    /// Somebody else wrote, and the rows were the same.
    is_foreign: bool,
}

#[derive(Debug, Default)]
enum Known {
    /// No look was taken yet.
    #[default]
    Nothing,
    Rows(SetHash),
    /// A commit failed: whether it took effect is not known.
    Either(SetHash, SetHash),
}

impl FollowedRows {
    /// The hash of the rows at the beginning of a transaction. Reads them all the first time, after a commit that failed, and
    /// when somebody else wrote to the file meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Changed`], [`StoreError::Schema`], [`StoreError::Inconsistent`] or [`StoreError::Replaced`] if somebody else
    /// changed something,
    /// [`StoreError::Unfollowed`], or the database's.
    pub async fn at_begin(
        &mut self,
        sql: &Sql,
        tx: &mut Transaction<'static, Sqlite>,
    ) -> Result<SetHash, StoreError> {
        let (version, is_left): (i64, bool) = sqlx::query_as(
            "SELECT data_version, EXISTS (SELECT 1 FROM temp.watched_changes) FROM pragma_data_version",
        )
        .fetch_one(&mut **tx)
        .await?;
        if is_left {
            return Err(StoreError::Unfollowed);
        }
        let connection = sql.followed().connections.load(Ordering::SeqCst);
        if let Some(place) = &sql.followed().place {
            let journal = (connection, place.journal()?);
            let known = *self.journal.get_or_insert(journal);
            if known != journal && known.0 == connection {
                return Err(place.replaced());
            }
            self.journal = Some(journal);
        }
        let version = (connection, version);
        if self.version == Some(version)
            && let Known::Rows(rows) = &self.rows
        {
            return Ok(rows.clone());
        }
        sql.check_whole(tx).await?;
        let found = sql.hash_rows(tx).await?;
        let known = match &self.rows {
            Known::Nothing => &found,
            Known::Either(before, after) if *before == found || *after == found => &found,
            Known::Rows(rows) | Known::Either(rows, _) => rows,
        };
        if *known != found {
            return Err(StoreError::Changed {
                found: found.sha256(),
                known: known.sha256(),
            });
        }
        // A connection that is new says nothing of what was before it.
        if let Some((connection, seen)) = self.version
            && connection == version.0
            && seen != version.1
        {
            self.is_foreign = true;
        }
        self.version = Some(version);
        self.rows = Known::Rows(found.clone());
        Ok(found)
    }

    /// Tells whether somebody else wrote to the file since this was last asked, and left the rows, or made them again, as they were.
    pub fn take_foreign(&mut self) -> bool {
        std::mem::take(&mut self.is_foreign)
    }

    /// The rows, where they are known.
    #[must_use]
    pub const fn known(&self) -> Option<&SetHash> {
        match &self.rows {
            Known::Rows(rows) => Some(rows),
            Known::Nothing | Known::Either(..) => None,
        }
    }

    /// To be called before a commit, with what it makes of the rows.
    pub fn committing(&mut self, after: SetHash) {
        if let Known::Rows(before) = std::mem::take(&mut self.rows) {
            self.rows = Known::Either(before, after);
        }
    }

    /// To be called after a commit.
    pub fn committed(&mut self) {
        if let Known::Either(_, after) = std::mem::take(&mut self.rows) {
            self.rows = Known::Rows(after);
        }
    }
}

/// Has a connection note every change of the watched tables.
pub(crate) async fn watch(
    connection: &mut SqliteConnection,
    watched: &[Watched],
) -> Result<(), sqlx::Error> {
    if watched.is_empty() {
        return Ok(());
    }
    // Rows that `INSERT OR REPLACE` takes away are noted only with recursive triggers.
    let mut all = "PRAGMA temp_store = MEMORY; PRAGMA recursive_triggers = ON;
                   CREATE TEMP TABLE watched_changes (added INTEGER NOT NULL, row TEXT NOT NULL);"
        .to_owned();
    for one in watched {
        let table = one.table;
        let columns = columns(connection, one).await?;
        let (old, new) = (
            row_text(one, &columns, "OLD."),
            row_text(one, &columns, "NEW."),
        );
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(", ");
        all.push_str(&format!(
            "CREATE TEMP TRIGGER watched_{table}_insert AFTER INSERT ON main.{table}
             BEGIN INSERT INTO watched_changes VALUES (1, {new}); END;
             CREATE TEMP TRIGGER watched_{table}_delete AFTER DELETE ON main.{table}
             BEGIN INSERT INTO watched_changes VALUES (0, {old}); END;
             CREATE TEMP TRIGGER watched_{table}_update AFTER UPDATE OF {names} ON main.{table}
             BEGIN INSERT INTO watched_changes VALUES (0, {old}), (1, {new}); END;"
        ));
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(all))
        .execute(connection)
        .await?;
    Ok(())
}

/// Refuses tables whose rows may be equal: of so many as a sum of the hash has values, nothing would be left in it.
pub(crate) async fn check_keys(
    connection: &mut SqliteConnection,
    watched: &[Watched],
) -> Result<(), StoreError> {
    for one in watched.iter().filter(|one| !one.ordered) {
        let query = "SELECT count(*) FROM pragma_table_info(?) WHERE pk > 0";
        let keys: i64 = sqlx::query_scalar(query)
            .bind(one.table)
            .fetch_one(&mut *connection)
            .await?;
        if keys == 0 {
            return Err(StoreError::Keyless(one.table));
        }
    }
    Ok(())
}

/// Names and defaults of the columns that count.
async fn columns(
    connection: &mut SqliteConnection,
    watched: &Watched,
) -> Result<Vec<(String, Option<String>)>, sqlx::Error> {
    let query = "SELECT name, dflt_value FROM pragma_table_info(?)";
    let mut columns: Vec<(String, Option<String>)> = sqlx::query_as(query)
        .bind(watched.table)
        .fetch_all(connection)
        .await?;
    columns.retain(|(name, _)| !watched.without.contains(&name.as_str()));
    Ok(columns)
}

/// An expression for the text of a row. Hexadecimal has a text whole, with whatever characters.
fn row_text(watched: &Watched, columns: &[(String, Option<String>)], of: &str) -> String {
    let mut text = format!("'{}'", watched.table);
    if watched.ordered {
        text.push_str(&format!(" || ' ' || {of}rowid"));
    }
    for (name, default) in columns {
        let default = default.as_deref().unwrap_or("NULL");
        text.push_str(&format!(
            " || CASE WHEN {of}{name} IS ({default}) THEN '' ELSE ' {name}=' || typeof({of}{name}) || ':' || hex({of}{name}) END"
        ));
    }
    text
}

/// The schema that migrations make.
pub(crate) async fn schema_of(
    migrations: &[Migration],
) -> Result<BTreeSet<(String, String)>, StoreError> {
    let mut model = SqliteConnection::connect("sqlite::memory:").await?;
    migrate(&mut model, migrations).await?;
    schema(&mut model).await
}

/// Refuses a file with other tables, indexes or triggers than `wanted`: a default that somebody changed, or a trigger of his,
/// would have rows be something else than they were.
pub(crate) async fn check_schema(
    connection: &mut SqliteConnection,
    wanted: &BTreeSet<(String, String)>,
) -> Result<(), StoreError> {
    let found = schema(connection).await?;
    match found.symmetric_difference(wanted).next() {
        None => Ok(()),
        Some((name, _)) => Err(StoreError::Schema(name.clone())),
    }
}

/// Names of all objects with the statements that made them.
async fn schema(
    connection: &mut SqliteConnection,
) -> Result<BTreeSet<(String, String)>, StoreError> {
    // As bytes: what somebody else wrote there may be no text, or nothing.
    let query = "SELECT CAST(coalesce(type, '') || ' ' || coalesce(name, '') AS BLOB),
                        CAST(coalesce(sql, tbl_name, '') AS BLOB) FROM sqlite_schema";
    let rows: Vec<(Vec<u8>, Vec<u8>)> = sqlx::query_as(query).fetch_all(connection).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(rows
        .into_iter()
        .map(|(name, sql)| (text(&name), plain(&text(&sql))))
        .collect())
}

/// A statement without its comments, which later versions may put otherwise, and with single spaces.
fn plain(sql: &str) -> String {
    let mut plain = String::new();
    let mut quote = None;
    let mut rest = sql.chars().peekable();
    while let Some(c) = rest.next() {
        match quote {
            Some(end) => {
                plain.push(c);
                quote = (c != end).then_some(end);
            }
            None if c == '-' && rest.peek() == Some(&'-') => {
                while rest.next_if(|c| *c != '\n').is_some() {}
            }
            None if c.is_whitespace() => {
                if !plain.ends_with(' ') {
                    plain.push(' ');
                }
            }
            None => {
                plain.push(c);
                quote = matches!(c, '\'' | '"' | '`').then_some(c);
            }
        }
    }
    plain.trim_end().to_owned()
}

#[cfg(test)]
mod tests;
