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
    ordered: false,
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
    let mut rows = FollowedRows::default();
    let mut hash = rows.at_begin(&sql, &mut tx).await.unwrap();
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

/// As somebody else who has the file.
async fn meddle(world: &World, statements: &str) {
    let file = SqliteConnectOptions::new().filename(world.folder.path().join("db"));
    let mut other = SqliteConnection::connect_with(&file).await.unwrap();
    let statements = sqlx::AssertSqlSafe(statements.to_owned());
    sqlx::raw_sql(statements).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
}

async fn at_begin(world: &World, rows: &mut FollowedRows) -> Result<SetHash, StoreError> {
    let mut tx = world.sql.write().await.unwrap();
    rows.at_begin(&world.sql, &mut tx).await
}

#[tokio::test]
async fn index_that_does_not_say_what_its_table_says_is_refused() {
    let mut world = World::new().await;
    world
        .run("INSERT INTO a (id, name) VALUES (1, 'x'), (2, 'y')")
        .await;
    let mut rows = FollowedRows::default();
    at_begin(&world, &mut rows).await.unwrap();
    // Without its row in the schema the index is not written; with it again, nothing shows that it was away.
    meddle(
            &world,
            "PRAGMA writable_schema = ON;
             CREATE TABLE kept AS SELECT * FROM sqlite_schema WHERE name IN ('sqlite_autoindex_a_1', 'a');
             DELETE FROM sqlite_schema WHERE name = 'sqlite_autoindex_a_1';
             UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL UNIQUE', 'NOT NULL') WHERE name = 'a'",
        )
        .await;
    meddle(&world, "UPDATE a SET name = 'z' WHERE id = 1").await;
    meddle(
            &world,
            "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = (SELECT sql FROM kept WHERE name = 'a') WHERE name = 'a';
             INSERT INTO sqlite_schema SELECT * FROM kept WHERE name <> 'a'",
        )
        .await;
    meddle(&world, "DROP TABLE kept").await;
    meddle(&world, "UPDATE b SET n = n").await;
    let refused = at_begin(&world, &mut rows).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Inconsistent(_)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn null_in_a_column_with_a_default_is_no_default() {
    let mut world = World::new().await;
    world.run("INSERT INTO a (id, name) VALUES (1, 'x')").await;
    let mut rows = FollowedRows::default();
    at_begin(&world, &mut rows).await.unwrap();
    let table = "sqlite_schema WHERE name = 'a'";
    meddle(
            &world,
            &format!("PRAGMA writable_schema = ON; CREATE TEMP TABLE s AS SELECT sql FROM {table};
                UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL DEFAULT', 'DEFAULT') WHERE name = 'a'"),
        )
        .await;
    meddle(
            &world,
            "UPDATE a SET state = NULL; PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(sql, 'TEXT DEFAULT', 'TEXT NOT NULL DEFAULT') WHERE name = 'a'",
        )
        .await;
    let mut tx = world.sql.write().await.unwrap();
    let found = world.sql.hash_rows(&mut tx).await.unwrap();
    assert_ne!(found, world.followed);
    drop(tx);
    let refused = at_begin(&world, &mut rows).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Inconsistent(_)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn after_a_commit_that_failed_rows_are_those_of_before_or_after_and_no_others() {
    let mut world = World::new().await;
    world.run("INSERT INTO a (id, name) VALUES (1, 'x')").await;
    let mut rows = FollowedRows::default();
    let before = at_begin(&world, &mut rows).await.unwrap();
    let after = {
        let mut other = before.clone();
        other.add(b"a row").unwrap();
        other
    };
    rows.committing(after.clone());
    assert!(rows.known().is_none());
    meddle(&world, "UPDATE a SET name = 'y'").await;
    let refused = at_begin(&world, &mut rows).await.unwrap_err();
    assert!(matches!(refused, StoreError::Changed { .. }), "{refused:?}");
    assert!(!rows.take_foreign());
    meddle(&world, "UPDATE a SET name = 'x'").await;
    assert_eq!(at_begin(&world, &mut rows).await.unwrap(), before);
    assert!(rows.take_foreign() && !rows.take_foreign());
    rows.committing(after.clone());
    rows.committed();
    assert_eq!(rows.known(), Some(&after));
}

#[tokio::test]
async fn new_connection_does_not_take_what_changed_before_it_for_seen() {
    let mut world = World::new().await;
    world.run("INSERT INTO a (id, name) VALUES (1, 'x')").await;
    let mut rows = FollowedRows::default();
    at_begin(&world, &mut rows).await.unwrap();
    let writer = world.sql.write().await.unwrap();
    drop(writer);
    world.sql.give_up_writer().await;
    meddle(&world, "UPDATE a SET name = 'y'").await;
    let refused = at_begin(&world, &mut rows).await.unwrap_err();
    assert!(matches!(refused, StoreError::Changed { .. }), "{refused:?}");
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
        let mut running = FollowedRows::default();
        at_begin(&world, &mut running).await.unwrap();
        meddle(&world, change).await;
        for rows in [&mut running, &mut FollowedRows::default()] {
            let refused = at_begin(&world, rows).await;
            assert!(
                matches!(&refused, Err(StoreError::Schema(name)) if name == named),
                "{refused:?}"
            );
        }
    }
    let other = "CREATE TABLE t (n INTEGER, -- other\n\n  s TEXT DEFAULT '--  x' )";
    assert_eq!(
        plain(other),
        "CREATE TABLE t (n INTEGER, s TEXT DEFAULT '--  x' )"
    );
}

/// Opens a database, has `meddle` do something to it by its path, and gives what the next transaction finds.
async fn found_after(meddle: impl AsyncFnOnce(&Path)) -> Result<SetHash, StoreError> {
    let world = World::new().await;
    let mut rows = FollowedRows::default();
    let mut tx = world.sql.write().await.unwrap();
    rows.at_begin(&world.sql, &mut tx).await.unwrap();
    tx.commit().await.unwrap();
    meddle(&world.folder.path().join("db")).await;
    let mut tx = world.sql.write().await.unwrap();
    rows.at_begin(&world.sql, &mut tx).await
}

#[tokio::test]
async fn another_file_under_the_name_is_refused_and_so_is_one_without_its_journal() {
    assert!(found_after(async |_: &Path| ()).await.is_ok());
    let renamed = async |path: &Path| {
        let other = path.with_file_name("other");
        std::fs::copy(path, &other).unwrap();
        std::fs::rename(other, path).unwrap();
    };
    let gone = async |path: &Path| std::fs::remove_file(path).unwrap();
    let journal = async |path: &Path| std::fs::remove_file(path.with_file_name("db-wal")).unwrap();
    let another_journal = async |path: &Path| {
        let journal = path.with_file_name("db-wal");
        std::fs::remove_file(&journal).unwrap();
        std::fs::write(journal, []).unwrap();
    };
    for found in [
        found_after(renamed).await,
        found_after(another_journal).await,
        found_after(gone).await,
        found_after(journal).await,
    ] {
        let refused = found.unwrap_err();
        assert!(matches!(refused, StoreError::Replaced(_)), "{refused:?}");
        assert!(refused.is_foreign());
    }
}

#[tokio::test]
async fn file_may_be_where_a_link_says() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, file) = (here.path().join("db"), there.path().join("file"));
    std::fs::write(&file, []).unwrap();
    std::os::unix::fs::symlink(&file, &path).unwrap();
    let sql = Sql::open_watched(&path, TABLES, WATCHED).await.unwrap();
    let mut rows = FollowedRows::default();
    for _ in 0..2 {
        let mut tx = sql.write().await.unwrap();
        rows.at_begin(&sql, &mut tx).await.unwrap();
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::copy(&file, &path).unwrap();
    let mut tx = sql.write().await.unwrap();
    let refused = rows.at_begin(&sql, &mut tx).await.unwrap_err();
    assert!(matches!(refused, StoreError::Replaced(_)), "{refused:?}");
}

#[tokio::test]
async fn schema_that_is_no_text_is_another_one() {
    for value in ["CAST(X'ff' AS TEXT)", "NULL", "7"] {
        let found = found_after(async |path: &Path| {
            let file = SqliteConnectOptions::new().filename(path);
            let mut other = SqliteConnection::connect_with(&file).await.unwrap();
            let statement = format!(
                "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET type = {value} WHERE name = 'b'"
            );
            let statement = sqlx::AssertSqlSafe(statement);
            sqlx::raw_sql(statement).execute(&mut other).await.unwrap();
            other.close().await.unwrap();
        });
        let refused = found.await.unwrap_err();
        assert!(refused.is_foreign(), "{value}: {refused:?}");
    }
}

#[tokio::test]
async fn table_whose_rows_may_be_equal_cannot_be_followed() {
    const KEYLESS: &[Watched] = &[Watched {
        table: "b",
        without: &[],
        ordered: false,
    }];
    let folder = tempfile::tempdir().unwrap();
    let refused = Sql::open_watched(&folder.path().join("db"), TABLES, KEYLESS).await;
    assert!(matches!(refused, Err(StoreError::Keyless("b"))));
}
