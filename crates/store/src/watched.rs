//! Tables whose every change is followed, so that a hash of all their rows is at hand at any time.
//!
//! The connection that writes has triggers of its own (they are temporary, not of the file), which note each row before and
//! after its change in a temporary table. That table belongs to the transaction: what is rolled back, to a savepoint too, was
//! not noted. Whoever writes takes the notes before the commit ([`Sql::take_changes`]).
//!
//! A row counts as the text of its columns. One that has nothing or its default is left out, so that a later version may add
//! columns without changing the hash of what is there.

use std::collections::BTreeSet;

use futures_util::TryStreamExt as _;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Sqlite, Transaction};

use crate::SetHash;
use crate::sql::{Migration, Sql, StoreError, migrate};

/// A table whose rows are followed.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    pub table: &'static str,
    /// Columns that may change unnoticed.
    pub without: &'static [&'static str],
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
        let mut hash = SetHash::default();
        for watched in self.watched() {
            let columns = columns(tx, watched).await?;
            let row = row_text(watched.table, &columns, "");
            let query = format!("SELECT {row} FROM main.{}", watched.table);
            let mut rows =
                sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(query)).fetch(&mut **tx);
            while let Some(row) = rows.try_next().await? {
                hash.add(row.as_bytes()).map_err(|_| StoreError::Hash)?;
            }
        }
        Ok(hash)
    }
}

/// The rows of the watched tables as a process has committed them.
#[derive(Debug, Default)]
pub struct FollowedRows {
    /// `None` where that is not known.
    rows: Option<SetHash>,
    /// By which SQLite tells that somebody else wrote to the file.
    version: Option<i64>,
}

impl FollowedRows {
    /// The hash of the rows at the beginning of a transaction. Reads them all the first time, and when somebody else wrote to the
    /// file meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Changed`] if somebody else changed them, [`StoreError::Unfollowed`], or the database's.
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
        if self.version == Some(version)
            && let Some(rows) = &self.rows
        {
            return Ok(rows.clone());
        }
        let found = sql.hash_rows(tx).await?;
        match &self.rows {
            Some(known) if *known != found => Err(StoreError::Changed {
                found: found.sha256(),
                known: known.sha256(),
            }),
            _ => {
                self.version = Some(version);
                self.rows = Some(found.clone());
                Ok(found)
            }
        }
    }

    /// The rows, where they are known.
    #[must_use]
    pub const fn known(&self) -> Option<&SetHash> {
        self.rows.as_ref()
    }

    /// To be called before a commit: whether one that fails took effect is not known.
    pub fn forget(&mut self) {
        self.rows = None;
    }

    /// To be called after a commit, with what it made of the rows.
    pub fn committed(&mut self, rows: SetHash) {
        self.rows = Some(rows);
    }
}

/// Has a connection note every change of the watched tables.
pub(crate) async fn watch(
    connection: &mut SqliteConnection,
    watched: &[Watched],
) -> Result<(), sqlx::Error> {
    // Rows that `INSERT OR REPLACE` takes away are noted only with recursive triggers.
    let mut all = "PRAGMA temp_store = MEMORY; PRAGMA recursive_triggers = ON;
                   CREATE TEMP TABLE watched_changes (added INTEGER NOT NULL, row TEXT NOT NULL);"
        .to_owned();
    for one in watched {
        let table = one.table;
        let columns = columns(connection, one).await?;
        let (old, new) = (
            row_text(table, &columns, "OLD."),
            row_text(table, &columns, "NEW."),
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
fn row_text(table: &str, columns: &[(String, Option<String>)], of: &str) -> String {
    let mut text = format!("'{table}'");
    for (name, default) in columns {
        let default = match default {
            Some(default) => format!(" OR {of}{name} IS ({default})"),
            None => String::new(),
        };
        text.push_str(&format!(
            " || CASE WHEN {of}{name} IS NULL{default} THEN '' ELSE ' {name}=' || typeof({of}{name}) || ':' || hex({of}{name}) END"
        ));
    }
    text
}

/// Refuses a file with other tables, indexes or triggers than the migrations make: a default that somebody changed, or a trigger
/// of his, would have rows be something else than they were.
pub(crate) async fn check_schema(
    connection: &mut SqliteConnection,
    migrations: &[Migration],
) -> Result<(), StoreError> {
    let mut model = SqliteConnection::connect("sqlite::memory:").await?;
    migrate(&mut model, migrations).await?;
    let (found, wanted) = (schema(connection).await?, schema(&mut model).await?);
    match found.symmetric_difference(&wanted).next() {
        None => Ok(()),
        Some((name, _)) => Err(StoreError::Schema(name.clone())),
    }
}

/// Names of all objects with the statements that made them.
async fn schema(
    connection: &mut SqliteConnection,
) -> Result<BTreeSet<(String, String)>, StoreError> {
    let query = "SELECT type || ' ' || name, coalesce(sql, tbl_name) FROM sqlite_schema";
    let rows: Vec<(String, String)> = sqlx::query_as(query).fetch_all(connection).await?;
    Ok(rows
        .into_iter()
        .map(|(name, sql)| (name, plain(&sql)))
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
mod tests {
    use super::*;

    const TABLES: &[Migration] = &[Migration {
        version: 1,
        sql: "
CREATE TABLE a (
    id      INTEGER PRIMARY KEY, -- comment
    name    TEXT NOT NULL UNIQUE,
    bytes   BLOB,
    seen_at INTEGER,
    state   TEXT NOT NULL DEFAULT 'new'
) STRICT;
CREATE TABLE b (n INTEGER) STRICT;
",
    }];
    const WATCHED: &[Watched] = &[Watched {
        table: "a",
        without: &["seen_at"],
    }];

    struct World {
        folder: tempfile::TempDir,
        sql: Sql,
        /// By the changes alone.
        followed: SetHash,
    }

    impl World {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("db");
            let sql = Sql::open_watched(&path, TABLES, WATCHED).await;
            Self {
                sql: sql.unwrap(),
                folder,
                followed: SetHash::default(),
            }
        }

        /// Runs statements in a transaction; tells whether they changed anything that is followed.
        async fn run(&mut self, statements: &'static str) -> bool {
            let mut tx = self.sql.write().await.unwrap();
            sqlx::raw_sql(statements).execute(&mut *tx).await.unwrap();
            let changed = Sql::take_changes(&mut tx, &mut self.followed)
                .await
                .unwrap();
            assert_eq!(
                self.sql.hash_rows(&mut tx).await.unwrap(),
                self.followed,
                "{statements}"
            );
            tx.commit().await.unwrap();
            changed
        }
    }

    #[tokio::test]
    async fn changes_add_up_to_the_rows_whatever_changes_them() {
        let mut world = World::new().await;
        for statements in [
            "INSERT INTO a (name) VALUES ('x'), ('y'), ('z')",
            "UPDATE a SET bytes = X'00ff' WHERE name = 'x'",
            "UPDATE a SET name = name || char(0) || '2', state = 'old'",
            "INSERT OR REPLACE INTO a (id, name) VALUES (2, 'w')",
            "INSERT OR REPLACE INTO a (name, bytes) VALUES ('w', X'01')",
            "INSERT INTO a (name) VALUES ('w') ON CONFLICT (name) DO UPDATE SET bytes = X'02'",
            "REPLACE INTO a (id, name) SELECT id, 'all' || id FROM a",
            "SAVEPOINT s; DELETE FROM a; ROLLBACK TO s; INSERT INTO a (name) VALUES ('v'); RELEASE s",
            "DELETE FROM a WHERE id = 1",
            "DELETE FROM a",
        ] {
            assert!(world.run(statements).await, "{statements}");
        }
        assert_eq!(world.followed, SetHash::default());
        for statements in [
            "INSERT INTO b VALUES (1)",
            "UPDATE a SET seen_at = 7",
            "SAVEPOINT s; INSERT INTO a (name) VALUES ('v'); ROLLBACK TO s; RELEASE s",
        ] {
            assert!(!world.run(statements).await, "{statements}");
        }
    }

    #[tokio::test]
    async fn what_is_rolled_back_was_no_change() {
        let mut world = World::new().await;
        let mut tx = world.sql.write().await.unwrap();
        let insert = sqlx::query("INSERT INTO a (name) VALUES ('x')");
        insert.execute(&mut *tx).await.unwrap();
        drop(tx);
        assert!(!world.run("SELECT 1").await);
    }

    #[tokio::test]
    async fn text_after_a_zero_character_counts() {
        let mut world = World::new().await;
        world.run("INSERT INTO a (id, name) VALUES (1, 'x')").await;
        let before = world.followed.sha256();
        world.run("UPDATE a SET name = 'x' || char(0) || 'y'").await;
        assert_ne!(world.followed.sha256(), before);
    }

    #[tokio::test]
    async fn column_that_a_later_version_adds_changes_no_hash() {
        let mut world = World::new().await;
        world.run("INSERT INTO a (name) VALUES ('x'), ('y')").await;
        world.sql.close().await;
        let second = Migration {
            version: 2,
            sql: "ALTER TABLE a ADD COLUMN more TEXT; ALTER TABLE a ADD COLUMN n INTEGER NOT NULL DEFAULT 5",
        };
        let path = world.folder.path().join("db");
        let both = [TABLES[0], second];
        let later = Sql::open_watched(&path, &both, WATCHED).await.unwrap();
        let mut tx = later.write().await.unwrap();
        assert_eq!(later.hash_rows(&mut tx).await.unwrap(), world.followed);
    }

    /// Shown with --nocapture.
    #[tokio::test]
    #[ignore = "a figure: cargo test --release -p store -- --ignored --nocapture cost_of"]
    async fn cost_of_hashing_a_million_rows_and_of_one_change() {
        const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000)
                            INSERT INTO a (name, bytes) SELECT 'name ' || i, randomblob(1024) FROM n";
        let world = World::new().await;
        let path = world.folder.path().join("db");
        world.sql.close().await;
        let plain = Sql::open(&path, TABLES).await.unwrap();
        let mut tx = plain.write().await.unwrap();
        sqlx::raw_sql(FILL).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        plain.close().await;
        let start = std::time::Instant::now();
        let sql = Sql::open_watched(&path, TABLES, WATCHED).await.unwrap();
        let mut tx = sql.write().await.unwrap();
        let mut hash = sql.hash_rows(&mut tx).await.unwrap();
        drop(tx);
        eprintln!("a million rows of 1 KiB: {:?}", start.elapsed());
        let mut changes = std::time::Duration::ZERO;
        for _ in 0..1000 {
            let mut tx = sql.write().await.unwrap();
            let one = sqlx::query("UPDATE a SET state = 'old' WHERE id = 7");
            one.execute(&mut *tx).await.unwrap();
            let start = std::time::Instant::now();
            assert!(Sql::take_changes(&mut tx, &mut hash).await.unwrap());
            changes += start.elapsed();
        }
        eprintln!("a changed row: {:?}", changes / 1000);
    }

    #[tokio::test]
    async fn schema_that_was_changed_is_refused_and_comments_do_not_count() {
        for (change, named) in [
            (
                "CREATE TRIGGER t AFTER INSERT ON b BEGIN DELETE FROM a; END",
                "trigger t",
            ),
            ("CREATE INDEX i ON b (n)", "index i"),
            ("ALTER TABLE b ADD COLUMN m TEXT DEFAULT 'x'", "table b"),
            ("DROP TABLE b", "table b"),
            ("CREATE VIEW v AS SELECT 1", "view v"),
        ] {
            let world = World::new().await;
            let mut tx = world.sql.write().await.unwrap();
            sqlx::raw_sql(change).execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
            world.sql.close().await;
            let path = world.folder.path().join("db");
            let opened = Sql::open_watched(&path, TABLES, WATCHED).await;
            assert!(
                matches!(&opened, Err(StoreError::Schema(name)) if name == named),
                "{opened:?}"
            );
        }
        let other = "CREATE TABLE t (n INTEGER, -- other\n\n  s TEXT DEFAULT '--  x' )";
        assert_eq!(
            plain(other),
            "CREATE TABLE t (n INTEGER, s TEXT DEFAULT '--  x' )"
        );
    }
}
