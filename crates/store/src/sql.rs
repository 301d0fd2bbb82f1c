//! SQLite with the settings that make a commit mean "on disk".

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteRow, SqliteSynchronous,
};
use sqlx::{Connection as _, Sqlite, Transaction};

use crate::watched::{Followed, Place, Watched, check_keys, check_schema, schema_of, watch};

/// One step of a schema: statements that bring version `version - 1` to `version`.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// The version reached; the first is 1, each next one higher by one.
    pub version: i64,
    /// One or several statements, run in one transaction.
    pub sql: &'static str,
}

/// Failures of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or failed an operation.
    #[error("database operation failed")]
    Database(#[from] sqlx::Error),
    /// The file was written by a newer version of this program.
    #[error("database has schema version {found}, this program knows only {known}")]
    TooNew {
        /// The version in the file.
        found: i64,
        /// The newest version this program can read.
        known: i64,
    },
    /// Somebody else changed the schema of a [watched](Sql::open_watched) file.
    #[error("{0} in the database is not what this program makes: its schema was changed")]
    Schema(String),
    /// Somebody else wrote to the file, or the disk is at fault: an index does not say what its table says, for instance.
    #[error("the database contradicts itself: {0}")]
    Inconsistent(String),
    /// Somebody else wrote to the file while this program had it open.
    #[error(
        "the database was changed by something else than this program: its rows have the SHA-256 {found}, and had {known}"
    )]
    Changed { found: String, known: String },
    /// Another file was put in the place of the one that this program has open.
    #[error("{} is not the file any more that this program has open", .0.display())]
    Replaced(PathBuf),
    /// The file has fewer bytes than before, though this program removes none.
    #[error("{} has {found} bytes, and had {known}: something else cut it", file.display())]
    Shorter {
        file: PathBuf,
        found: u64,
        known: u64,
    },
    /// An error of this program: equal rows cannot be told apart by a hash that follows their changes.
    #[error("the table {0} is followed, and its rows have no key")]
    Keyless(&'static str),
    /// Guards against an error of this program; nothing of the transaction took effect.
    #[error("rows of the database would change without an event that tells of it")]
    Unfollowed,
    /// The library for ciphers failed.
    #[error("rows cannot be hashed")]
    Hash,
}

impl StoreError {
    /// Tells that something else than this program changed the database, or the disk is at fault.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        matches!(
            self,
            Self::Changed { .. }
                | Self::Schema(_)
                | Self::Inconsistent(_)
                | Self::Replaced(_)
                | Self::Shorter { .. }
        )
    }
}

/// A SQLite database: one writer, several readers.
///
/// Journal mode is WAL with `synchronous = FULL`, so a committed transaction survives power loss.
/// All writes go through one connection: a second writer would wait for the lock anyway, and a
/// reader that upgrades to a writer would fail with `SQLITE_BUSY`.
#[derive(Clone, Debug)]
pub struct Sql {
    readers: SqlitePool,
    writer: SqlitePool,
    followed: Followed,
}

/// Enough for the pages of a portal; readers beyond it wait for their turn.
const READERS: u32 = 4;
/// Longest wait of a connection for the write lock, which only a foreign process can hold.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Broken connections replaced before a writer is told that writing fails.
const MAX_REPLACED: u32 = 16;

impl Sql {
    /// Opens the database file, creating it when missing, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::TooNew`] for a file of a later program; [`StoreError::Database`] otherwise.
    pub async fn open(path: &Path, migrations: &[Migration]) -> Result<Self, StoreError> {
        Self::open_watched(path, migrations, &[]).await
    }

    /// The same, where all changes of some tables are followed ([`FollowedRows`](crate::FollowedRows)).
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_watched(
        path: &Path,
        migrations: &[Migration],
        watched: &'static [Watched],
    ) -> Result<Self, StoreError> {
        Self::open_as(path, migrations, watched, !watched.is_empty()).await
    }

    /// The same for a file that a [`Guard`](crate::Guard) looks at: another schema than that of the migrations is refused.
    ///
    /// # Errors
    /// As [`Self::open`], and [`StoreError::Schema`].
    pub async fn open_guarded(path: &Path, migrations: &[Migration]) -> Result<Self, StoreError> {
        Self::open_as(path, migrations, &[], true).await
    }

    async fn open_as(
        path: &Path,
        migrations: &[Migration],
        watched: &'static [Watched],
        is_guarded: bool,
    ) -> Result<Self, StoreError> {
        let options = options(path);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        migrate(&mut connection, migrations).await?;
        let mut followed = Followed::default();
        let mut pool = pool(1);
        if is_guarded {
            followed.tables = watched;
            followed.schema = Arc::new(schema_of(migrations).await?);
            followed.place = Some(Arc::new(Place::of(path)?));
            if watched.is_empty() {
                check_schema(&mut connection, &followed.schema).await?;
            }
            check_keys(&mut connection, watched).await?;
            let connections = Arc::clone(&followed.connections);
            // One that has followed the changes so far is not given up as long as it works.
            pool =
                pool.idle_timeout(None)
                    .max_lifetime(None)
                    .after_connect(move |connection, _| {
                        connections.fetch_add(1, Ordering::SeqCst);
                        Box::pin(watch(connection, watched))
                    });
        }
        let writer = pool.connect_with(options.clone()).await?;
        connection.close().await?;
        let readers = readers(options).await?;
        Ok(Self {
            readers,
            writer,
            followed,
        })
    }

    /// What the database is compared with.
    pub(crate) const fn followed(&self) -> &Followed {
        &self.followed
    }

    /// The same database with read-only connections of its own: whoever reads by these does not
    /// wait for those who read by others. The writer stays the only one.
    ///
    /// # Errors
    /// [`StoreError::Database`]. `path` is the file that was opened.
    pub async fn with_own_readers(&self, path: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            readers: readers(options(path)).await?,
            writer: self.writer.clone(),
            followed: self.followed.clone(),
        })
    }

    /// The pool of read-only connections.
    #[must_use]
    pub fn read(&self) -> &SqlitePool {
        &self.readers
    }

    /// Starts the only write transaction of this process; durable when its `commit` returns.
    ///
    /// When a disk is full, SQLite ends the transaction by itself, and the library's count of open
    /// transactions no longer fits the connection. Such a connection is replaced here, so that
    /// writing goes on once there is room.
    ///
    /// # Errors
    /// [`StoreError::Database`], for instance when the disk is full.
    pub async fn write(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        const BEGIN: &str = "BEGIN IMMEDIATE";
        // Several failed writers may each leave such a connection behind, one after the other.
        for _ in 0..MAX_REPLACED {
            match self.writer.begin_with(BEGIN).await {
                Err(sqlx::Error::InvalidSavePointStatement) => {
                    let broken = self.writer.acquire().await?;
                    // What closing says does not matter: the connection is given up either way.
                    let _ = broken.close().await;
                }
                begun => return Ok(begun?),
            }
        }
        Ok(self.writer.begin_with(BEGIN).await?)
    }

    /// Closes the connection that writes; the next one who does gets another.
    #[cfg(test)]
    pub(crate) async fn give_up_writer(&self) {
        self.writer.acquire().await.unwrap().close().await.unwrap();
    }

    /// Closes the connections that read, after their current statement: before the one that writes, which as the last one brings
    /// everything into the database's file.
    pub async fn close_readers(&self) {
        self.readers.close().await;
    }

    /// Closes all connections after their current statement.
    pub async fn close(&self) {
        self.close_readers().await;
        self.writer.close().await;
    }
}

/// Tells whether a table of the file has rows; a file or table that is not there has none. For a look before a database is opened,
/// which may write.
///
/// # Errors
/// [`StoreError::Database`].
pub async fn has_rows(path: &Path, table: &'static str) -> Result<bool, StoreError> {
    if !path.try_exists().map_err(sqlx::Error::Io)? {
        return Ok(false);
    }
    let file = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT);
    let mut connection = SqliteConnection::connect_with(&file).await?;
    let is_there: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?)")
            .bind(table)
            .fetch_one(&mut connection)
            .await?;
    let has_rows = match is_there {
        true => {
            let query = format!("SELECT EXISTS (SELECT 1 FROM {table})");
            let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query));
            query.fetch_one(&mut connection).await?
        }
        false => false,
    };
    connection.close().await?;
    Ok(has_rows)
}

/// A row whose values can be read, or none. For databases that are compared with something else: a value that another program
/// made unreadable, a text that is no UTF-8 for instance, is a missing row rather than a failure.
///
/// # Errors
/// Any other one.
pub fn readable<T>(found: Result<Option<T>, sqlx::Error>) -> Result<Option<T>, sqlx::Error> {
    match found {
        Err(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => Ok(None),
        found => found,
    }
}

/// The rows that can be read, and the others.
#[must_use]
pub fn readable_rows<T>(rows: Vec<SqliteRow>) -> (Vec<T>, Vec<SqliteRow>)
where
    T: for<'row> sqlx::FromRow<'row, SqliteRow>,
{
    let (mut readable, mut others) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match T::from_row(&row) {
            Ok(row) => readable.push(row),
            Err(_) => others.push(row),
        }
    }
    (readable, others)
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
}

async fn readers(options: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    pool(READERS).connect_with(options.read_only(true)).await
}

/// A pool whose connections are given out as they are: to ask each first whether it lives costs two changes of thread
/// for every query, and there is no network between us and a file.
fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
}

pub(crate) async fn migrate(
    connection: &mut SqliteConnection,
    migrations: &[Migration],
) -> Result<(), StoreError> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *tx)
        .await?;
    let known = migrations.last().map_or(0, |m| m.version);
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    for migration in migrations.iter().filter(|m| m.version > found) {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        // PRAGMA takes no bound parameters; the value is an integer of our own.
        let pragma = format!("PRAGMA user_version = {}", migration.version);
        sqlx::raw_sql(sqlx::AssertSqlSafe(pragma))
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Migration = Migration {
        version: 1,
        sql: "CREATE TABLE a (n INTEGER) STRICT",
    };
    const TWO: Migration = Migration {
        version: 2,
        sql: "CREATE TABLE b (n INTEGER) STRICT",
    };

    #[tokio::test]
    async fn migrates_step_by_step_and_refuses_a_newer_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db.sqlite");
        Sql::open(&path, &[ONE]).await.unwrap().close().await;
        let sql = Sql::open(&path, &[ONE, TWO]).await.unwrap();
        sqlx::query("SELECT n FROM b")
            .fetch_all(sql.read())
            .await
            .unwrap();
        sql.close().await;
        let refused = Sql::open(&path, &[ONE]).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::TooNew { found: 2, known: 1 }),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn a_failed_migration_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db.sqlite");
        let broken = Migration {
            version: 2,
            sql: "CREATE TABLE b (n INTEGER) STRICT; nonsense",
        };
        Sql::open(&path, &[ONE, broken]).await.unwrap_err();
        Sql::open(&path, &[ONE, TWO]).await.unwrap();
    }

    #[tokio::test]
    async fn writing_goes_on_after_the_disk_was_full() {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(&folder.path().join("db.sqlite"), &[ONE])
            .await
            .unwrap();
        let limit = |pages: u32| sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
        // A database that may not grow fails as one on a full disk does: SQLITE_FULL.
        let mut tx = sql.write().await.unwrap();
        sqlx::raw_sql(limit(4)).execute(&mut *tx).await.unwrap();
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000)
                    INSERT INTO a SELECT i FROM n";
        let full = sqlx::query(fill).execute(&mut *tx).await.unwrap_err();
        assert_eq!(
            full.as_database_error().unwrap().code().as_deref(),
            Some("13"),
            "{full}"
        );
        drop(tx);
        for _ in 0..3 {
            let mut tx = sql.write().await.unwrap();
            sqlx::query("INSERT INTO a VALUES (1)")
                .execute(&mut *tx)
                .await
                .unwrap();
            tx.commit().await.unwrap();
        }
        let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM a");
        assert_eq!(count.fetch_one(sql.read()).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn readers_cannot_write_and_see_only_commits() {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(&folder.path().join("db.sqlite"), &[ONE])
            .await
            .unwrap();
        sqlx::query("INSERT INTO a VALUES (1)")
            .execute(sql.read())
            .await
            .unwrap_err();
        let mut tx = sql.write().await.unwrap();
        sqlx::query("INSERT INTO a VALUES (1)")
            .execute(&mut *tx)
            .await
            .unwrap();
        let count = || sqlx::query_scalar::<_, i64>("SELECT count(*) FROM a");
        assert_eq!(count().fetch_one(sql.read()).await.unwrap(), 0);
        tx.commit().await.unwrap();
        assert_eq!(count().fetch_one(sql.read()).await.unwrap(), 1);
    }
}
