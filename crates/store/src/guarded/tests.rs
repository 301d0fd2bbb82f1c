use std::path::Path;

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::*;
use crate::sql::Migration;

const TABLES: &[Migration] = &[Migration {
    version: 1,
    sql: "CREATE TABLE a (n INTEGER NOT NULL UNIQUE, s TEXT) STRICT",
}];

async fn run(sql: &Sql, statements: &'static str) {
    let mut tx = sql.write().await.unwrap();
    sqlx::raw_sql(statements).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// Changes the file as another program would.
async fn meddle(path: &Path, statements: &'static str) {
    let file = SqliteConnectOptions::new().filename(path);
    let mut other = SqliteConnection::connect_with(&file).await.unwrap();
    sqlx::raw_sql(statements).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
}

/// Opens a database and looks at it before and after `change`; gives what the second look found.
async fn found_after(change: impl AsyncFnOnce(&Path)) -> Result<(), StoreError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let sql = Sql::open_guarded(&path, TABLES).await.unwrap();
    let mut guard = Guard::new(&sql, path.clone());
    guard.look_whole().await.unwrap();
    run(
        &sql,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000)
         INSERT INTO a SELECT i, hex(randomblob(20)) FROM n",
    )
    .await;
    sqlx::query("PRAGMA wal_checkpoint(FULL)")
        .execute(&mut *sql.write().await.unwrap())
        .await
        .ok();
    meddle(&path, "PRAGMA wal_checkpoint(PASSIVE)").await;
    guard.look_whole().await.unwrap();
    change(&path).await;
    guard.look_whole().await
}

#[tokio::test]
async fn rows_of_another_program_do_not_count() {
    found_after(async |_: &Path| ()).await.unwrap();
    let row = async |path: &Path| meddle(path, "INSERT INTO a VALUES (0, 'x')").await;
    found_after(row).await.unwrap();
}

#[tokio::test]
async fn replaced_unlinked_and_cut_files_are_refused() {
    let renamed = async |path: &Path| {
        let other = path.with_file_name("other");
        std::fs::copy(path, &other).unwrap();
        std::fs::rename(other, path).unwrap();
    };
    let gone = async |path: &Path| std::fs::remove_file(path).unwrap();
    let journal = async |path: &Path| std::fs::remove_file(path.with_file_name("db-wal")).unwrap();
    let shared = async |path: &Path| std::fs::remove_file(path.with_file_name("db-shm")).unwrap();
    for found in [
        found_after(renamed).await,
        found_after(gone).await,
        found_after(journal).await,
        found_after(shared).await,
    ] {
        let refused = found.unwrap_err();
        assert!(matches!(refused, StoreError::Replaced(_)), "{refused:?}");
        assert!(refused.is_foreign());
    }
    for left in [0, 4096, 10_000] {
        let cut = async |path: &Path| {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(left).unwrap();
        };
        let refused = found_after(cut).await.unwrap_err();
        assert!(matches!(refused, StoreError::Shorter { found, .. } if found == left));
        assert!(refused.is_foreign());
    }
}

#[tokio::test]
async fn overwritten_pages_are_refused() {
    for (from, named) in [(0, "start"), (8192, "middle")] {
        let overwrite = async |path: &Path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes[from..].fill(0x5a);
            std::fs::write(path, bytes).unwrap();
        };
        let refused = found_after(overwrite).await.unwrap_err();
        assert!(refused.is_foreign(), "{named}: {refused:?}");
    }
}

#[tokio::test]
async fn foreign_objects_of_the_schema_are_refused() {
    for change in [
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM a; END",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TABLE kept AS SELECT * FROM a",
        "CREATE INDEX i ON a (s)",
        "ALTER TABLE a ADD COLUMN more TEXT",
        "DROP TABLE a",
    ] {
        let refused = found_after(async |path: &Path| meddle(path, change).await).await;
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, StoreError::Schema(_)),
            "{change}: {refused:?}"
        );
        // A start refuses it as well.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        Sql::open_guarded(&path, TABLES)
            .await
            .unwrap()
            .close()
            .await;
        Sql::open_guarded(&path, TABLES)
            .await
            .unwrap()
            .close()
            .await;
        meddle(&path, change).await;
        let refused = Sql::open_guarded(&path, TABLES).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::Schema(_)),
            "{change}: {refused:?}"
        );
    }
}
