//! Rows that somebody else changed, added, removed or put back, while the site was stopped or while it ran.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use audit::{Actor, AuditSink as _, Event, MemorySink, Outcome};
use pki::clearance::Clearance;
use pki::crl::RevocationReason;
use pki::profile::CaKind;
use registry::{Contradiction, HolderChange, Registry, RegistryError, Step};
use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use store::sqlx::{self, Connection as _};

use crate::fixture::{NOW, SECRETS, World, an_order, config, key, world};
use crate::generations_kept::meddle;
use crate::profiles::PATROL;
use crate::staff::{Staff, directory, issue, order};

/// Opens the site once more with the same log.
async fn reopened(world: &World) -> Result<Registry, RegistryError> {
    let (folder, secret) = (world.folder.path(), &SECRETS.issuing);
    let opened = Registry::open(folder, config(), secret, world.audit.clone(), NOW).await;
    opened.map(|registry| registry.with_people(directory()))
}

fn contradiction<T>(outcome: Result<T, RegistryError>, why: &str) -> Contradiction {
    match outcome {
        Err(RegistryError::Contradiction(found)) => found,
        Err(other) => panic!("{why}: {other:?}"),
        Ok(_) => panic!("{why}: not noticed"),
    }
}

/// The files of a database.
const FILES: [&str; 3] = [
    "registry.sqlite",
    "registry.sqlite-wal",
    "registry.sqlite-shm",
];

fn copy(folder: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let read = |file| Some((file, std::fs::read(folder.join(file)).ok()?));
    FILES.into_iter().filter_map(read).collect()
}

fn bring_back(folder: &Path, copy: &[(&'static str, Vec<u8>)]) {
    for file in FILES {
        let _ = std::fs::remove_file(folder.join(file));
    }
    for (file, bytes) in copy {
        std::fs::write(folder.join(file), bytes).unwrap();
    }
}

async fn give(registry: &Registry, device: &str) -> String {
    let order = order(device, &key(), Clearance::Restricted);
    registry.issue(order, an_order(), NOW).await.unwrap().serial
}

/// What the database says itself, or lists otherwise: it decides of nothing alone.
const NOT_WATCHED: [&str; 6] = [
    "acme_orders",
    "cmp_transactions",
    "crl_bases",
    "crl_numbers",
    "request_steps",
    "sqlite_sequence",
];
const COLUMNS_NOT_WATCHED: [(&str, &str); 2] = [("invitations", "sealed"), ("profiles", "entry")];

/// A row in each table that the acts below do not fill.
const MORE: &str = "
INSERT INTO acme_accounts VALUES ('a', 'i', 'web.example', '{}', 't', 's', 'valid', 1);
INSERT INTO invitations (id, authority, holder_id, verifier, profile, subject, clearance, renewals, expires_at)
VALUES ('i', 'services', 'web.example', x'01', 'server', x'02', 0, 0, 1);
INSERT INTO archived_keys SELECT authority, serial, x'03' FROM issued LIMIT 1;
";

#[tokio::test]
async fn each_column_of_each_row_is_held_against_the_log() {
    let first = world().await;
    let folder = first.folder.path();
    give(&first.registry, "camera-1").await;
    let serial = give(&first.registry, "camera-2").await;
    let cause = RevocationReason::KeyCompromise;
    let revoked = first
        .registry
        .revoke(CaKind::Devices, &serial, cause, an_order(), NOW);
    revoked.await.unwrap();
    let suspend = HolderChange::Suspend;
    let device = CaKind::Devices;
    let done = first
        .registry
        .change_holder(device, "camera-1", suspend, an_order(), NOW);
    done.await.unwrap();
    first.code("camera-3").await;
    let profile = first.registry.change_profile(PATROL, an_order(), NOW);
    profile.await.unwrap();
    let staff = Staff::new(&first.registry).await;
    let wanted = issue("camera-4", &key(), Clearance::Restricted);
    staff.approved(wanted, &["registrar-2"]).await;
    first.registry.close(NOW).await;
    meddle(folder, MORE).await;
    // A log that knows nothing of rows has the database count, as that of an earlier version has.
    let sink = Arc::new(MemorySink::default());
    let registry = Registry::open(folder, config(), &SECRETS.issuing, sink, NOW)
        .await
        .unwrap();
    let file = SqliteConnectOptions::new()
        .filename(folder.join("registry.sqlite"))
        .foreign_keys(false);
    let mut other = SqliteConnection::connect_with(&file).await.unwrap();
    let free = "PRAGMA ignore_check_constraints = ON";
    sqlx::raw_sql(free).execute(&mut other).await.unwrap();
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT t.name, c.name, c.type FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'",
    )
    .fetch_all(&mut other)
    .await
    .unwrap();
    let (mut tables, mut noticed) = (BTreeSet::new(), 0);
    for (table, column, kind) in &columns {
        if NOT_WATCHED.contains(&table.as_str()) {
            continue;
        }
        let new = match kind.as_str() {
            "INTEGER" => format!("coalesce({column}, 0) + 7"),
            "TEXT" => format!("coalesce({column}, '') || 'x'"),
            _ => format!("CAST(coalesce({column}, x'') || x'78' AS BLOB)"),
        };
        let whole = format!("SELECT count(*) FROM {table}");
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(whole))
            .fetch_one(&mut other)
            .await
            .unwrap();
        assert!(rows > 0, "{table} has no row");
        let mut changes = vec![format!(
            "UPDATE {table} SET {column} = {new} WHERE rowid = (SELECT max(rowid) FROM {table})"
        )];
        if tables.insert(table) {
            changes.push(format!(
                "DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})"
            ));
        }
        for change in changes {
            let statement = format!(
                "CREATE TEMP TABLE kept AS SELECT rowid AS old_rowid, * FROM {table}; {change}"
            );
            let statement = sqlx::AssertSqlSafe(statement);
            sqlx::raw_sql(statement).execute(&mut other).await.unwrap();
            let outcome = registry.check_alone(NOW).await;
            let counts = !COLUMNS_NOT_WATCHED.contains(&(table, column));
            if counts || change.starts_with("DELETE") {
                // Some break a rule of the schema as well, which SQLite notices first.
                match outcome.expect_err(&change) {
                    RegistryError::Contradiction(Contradiction::Rows { .. }) => {}
                    RegistryError::Store(error) if error.is_foreign() => {}
                    other => panic!("{change}: {other:?}"),
                }
                noticed += 1;
            } else {
                outcome.unwrap();
            }
            let names: Vec<&str> = columns
                .iter()
                .filter(|(of, _, _)| of == table)
                .map(|(_, name, _)| name.as_str())
                .collect();
            let names = names.join(", ");
            let back = format!(
                "DELETE FROM {table}; INSERT INTO {table} (rowid, {names}) SELECT old_rowid, {names} FROM temp.kept;
                 DROP TABLE temp.kept"
            );
            let back = sqlx::AssertSqlSafe(back);
            sqlx::raw_sql(back).execute(&mut other).await.unwrap();
            // As it was: somebody else wrote, and the rows are the same.
            registry.check_alone(NOW).await.unwrap();
        }
    }
    assert!(tables.len() >= 14 && noticed > 90, "{tables:?} {noticed}");
    give(&registry, "camera-5").await;
}

#[tokio::test]
async fn changed_row_stops_the_start_and_whatever_a_running_site_would_do() {
    let world = world().await;
    let folder = world.folder.path();
    give(&world.registry, "camera-1").await;
    let add = "INSERT INTO one_time_codes (device, verifier, clearance, expires_at)
               VALUES ('camera-9', x'00', 3, 9999999999)";
    let remove = "DELETE FROM one_time_codes WHERE device = 'camera-9'";
    meddle(folder, add).await;
    let order = order("camera-2", &key(), Clearance::Restricted);
    let issued = world.registry.issue(order, an_order(), NOW).await;
    contradiction(issued, "issued beside a row that was added");
    world.registry.close(NOW).await;
    let found = contradiction(reopened(&world).await, "started with it");
    assert!(matches!(found, Contradiction::Rows { .. }), "{found}");
    meddle(folder, remove).await;
    let registry = reopened(&world).await.unwrap();
    give(&registry, "camera-2").await;
    // Who writes and takes it back leaves a trace.
    meddle(folder, add).await;
    meddle(folder, remove).await;
    registry.check_alone(NOW).await.unwrap();
    let told = world.audit.events().pop().unwrap();
    assert_eq!(told.action, "registry.foreign-write");
}

#[tokio::test]
async fn request_that_was_refused_does_not_come_back_approved() {
    let world = world().await;
    let folder = world.folder.path();
    let staff = Staff::new(&world.registry).await;
    let wanted = issue("camera-17", &key(), Clearance::Restricted);
    let request = staff.approved(wanted, &["registrar-2"]).await;
    world.registry.close(NOW).await;
    let approved = copy(folder);
    let registry = reopened(&world).await.unwrap();
    let staff = Staff::of(&registry, staff.members);
    let reason = "another camera".to_owned();
    let refused = staff.step(&request, Step::Refuse { reason }, "registrar-3");
    refused.await.unwrap();
    registry.close(NOW).await;
    bring_back(folder, &approved);
    contradiction(reopened(&world).await, "the copy of before");
    // It may say of itself whatever it likes.
    meddle(folder, "UPDATE writing SET committed = committed + 1").await;
    let found = contradiction(reopened(&world).await, "the copy with the number of after");
    assert!(matches!(found, Contradiction::Rows { .. }), "{found}");
}

#[tokio::test]
async fn older_copy_of_the_database_stops_the_start_until_somebody_accepts_the_loss() {
    let world = world().await;
    let folder = world.folder.path();
    give(&world.registry, "camera-1").await;
    world.registry.close(NOW).await;
    let older = copy(folder);
    let registry = reopened(&world).await.unwrap();
    give(&registry, "camera-2").await;
    // Killed between the events and the commit, a database looks the same: the log has what had no effect.
    drop(registry);
    bring_back(folder, &older);
    let registry = reopened(&world).await.unwrap();
    give(&registry, "camera-3").await;
    registry.close(NOW).await;
    // After an orderly end nothing was under way.
    bring_back(folder, &older);
    let found = contradiction(reopened(&world).await, "one transaction back");
    assert!(
        matches!(found, Contradiction::Older { database, log } if log > database),
        "{found}"
    );
    meddle(folder, "UPDATE writing SET committed = 0").await;
    contradiction(reopened(&world).await, "with another number");
    let mut loss = Event::new(
        NOW,
        Actor::service("cordon"),
        "audit.accept-loss",
        "audit/log",
        Outcome::Ok,
    );
    world.audit.record(loss.clone()).unwrap();
    contradiction(reopened(&world).await, "another role's event");
    "site".clone_into(&mut loss.role);
    world.audit.record(loss).unwrap();
    let registry = reopened(&world).await.unwrap();
    registry.close(NOW).await;
    // From then on what is there counts.
    meddle(folder, "DELETE FROM holders").await;
    contradiction(reopened(&world).await, "changed since");
}

#[tokio::test]
async fn schema_that_was_changed_stops_the_start() {
    let world = world().await;
    world.registry.close(NOW).await;
    let trigger =
        "CREATE TRIGGER t AFTER INSERT ON issued BEGIN UPDATE holders SET state = 'enrolled'; END";
    meddle(world.folder.path(), trigger).await;
    let error = reopened(&world).await.err().unwrap();
    let text = error_report::Report(&error).to_string();
    assert!(text.contains("trigger t in the database"), "{text}");
}

#[tokio::test]
async fn bytes_that_were_changed_without_sqlite_are_noticed_when_all_rows_are_read() {
    let world = world().await;
    let folder = world.folder.path();
    let registry = &world.registry;
    give(registry, "camera-1").await;
    registry.check_file().await.unwrap();
    meddle(folder, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    registry.check_alone(NOW).await.unwrap();
    let file = folder.join("registry.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    // The state of a holder, in the table and wherever else it may stand.
    let mut changed = 0;
    for at in 0..bytes.len() - 8 {
        if &bytes[at..at + 8] == b"enrolled" {
            bytes[at..at + 8].copy_from_slice(b"enroller");
            changed += 1;
        }
    }
    assert!(changed > 0);
    std::fs::write(&file, bytes).unwrap();
    registry.check_alone(NOW).await.unwrap();
    let refused = registry.check_file().await.unwrap_err();
    assert!(
        matches!(&refused, RegistryError::Store(error) if error.is_foreign()),
        "{refused:?}"
    );
}
