//! One change at a time to what lies on the disk, while the centre runs or is stopped: each ends in a refused start, a repair or an
//! alarm.
//!
//! `CORDON_WITHSTAND=10000` sets the number of changes and `CORDON_WITHSTAND_SEED=N` repeats a run; a run prints what it tried.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use centre::Decision;
use evidence::manifest::{DropReason, Dropped};
use pki::clearance::Clearance;
use store::sqlx::sqlite::SqliteConnectOptions;
use store::sqlx::{AssertSqlSafe, Connection as _, SqliteConnection, query, query_scalar};

use crate::forged::scene;
use crate::site::{Options, Site, setup};
use crate::world::{CAMERA, Shot};

/// Changes of a normal run: some seconds.
const CHANGES: u64 = 40;
/// Our choice: a normal run tries the same changes each time, but for values that SQLite picks.
const SEED: u64 = 1_795_860_046_000;

/// Tables with their keys, and the rows that something refers to.
const TABLES: [(&str, &str, &str); 11] = [
    ("blocks", "block_sha256", "true"),
    ("chain", "device, sequence", "true"),
    ("dropped", "device, sequence", "true"),
    ("violations", "position", "true"),
    ("reviews", "rowid", "true"),
    ("custody", "violation, log_index", "true"),
    ("cameras", "device", "true"),
    ("gaps", "device, first", "true"),
    ("violation_groups", "id", "count > 0"),
    (
        "audiences",
        "id",
        "id IN (SELECT audience FROM violation_groups WHERE count > 0)",
    ),
    ("arrivals", "step, audience", "true"),
];

/// Columns that nobody is shown and that decide nothing, and times that the log has less exactly than the index.
const UNUSED: [(&str, &str); 7] = [
    ("blocks", "address"),
    ("blocks", "received_at"),
    // Of blocks that were set apart.
    ("blocks", "sequence"),
    ("blocks", "manifest_sha256"),
    ("blocks", "log_index"),
    ("custody", "count"),
    ("custody", "at"),
];

struct Random(u64);

impl Random {
    /// A number below `end` (xorshift).
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }

    fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

async fn open_index(folder: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("centre.sqlite"))
        .foreign_keys(false);
    SqliteConnection::connect_with(&options).await.unwrap()
}

/// Changes or removes one row; `None` if nothing changed.
async fn change_row(folder: &Path, random: &mut Random) -> Option<String> {
    let (table, key, used) = *random.one(&TABLES);
    let mut index = open_index(folder).await;
    let columns: Vec<String> = query_scalar("SELECT name FROM pragma_table_info(?)")
        .bind(table)
        .fetch_all(&mut index)
        .await
        .unwrap();
    let quoted: Vec<String> = columns
        .iter()
        .map(|name| format!("quote({name})"))
        .collect();
    let quoted = quoted.join(", ");
    let all =
        format!("SELECT CAST(group_concat(concat_ws('|', {quoted}), '#') AS BLOB) FROM {table}");
    let rows = async |index: &mut SqliteConnection| -> Option<Vec<u8>> {
        let all = query_scalar(AssertSqlSafe(all.clone()));
        all.fetch_one(index).await.unwrap()
    };
    let count = format!("SELECT count(*) FROM {table} WHERE {used}");
    let count: i64 = query_scalar(AssertSqlSafe(count))
        .fetch_one(&mut index)
        .await
        .unwrap();
    let row = random.below(count.unsigned_abs());
    let row = format!("({key}) IN (SELECT {key} FROM {table} WHERE {used} LIMIT 1 OFFSET {row})");
    let (what, statement) = match random.below(4) {
        0 => (
            format!("{table}: row removed"),
            format!("DELETE FROM {table} WHERE {row}"),
        ),
        kind => {
            let column = random.one(&columns).clone();
            if UNUSED.contains(&(table, column.as_str()))
                || (table, column.as_str()) == ("cameras", "last_seen")
            {
                return None;
            }
            let value = match kind {
                1 => "'x'".to_owned(),
                2 => "7".to_owned(),
                _ => format!("(SELECT {column} FROM {table} ORDER BY random() LIMIT 1)"),
            };
            (
                format!("{table}.{column}: changed"),
                format!("UPDATE OR REPLACE {table} SET {column} = {value} WHERE {row}"),
            )
        }
    };
    let before = rows(&mut index).await;
    let done = query(AssertSqlSafe(statement)).execute(&mut index).await;
    let after = rows(&mut index).await;
    index.close().await.unwrap();
    // A constraint of the schema keeps the change out.
    (done.is_ok() && before != after).then_some(what)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Removes, cuts, changes or exchanges an object.
fn change_object(folder: &Path, random: &mut Random) -> Option<String> {
    let store = *random.one(&["archive", "quarantine"]);
    let all = files(&folder.join(store));
    let file = random.one(&all);
    let mut bytes = std::fs::read(file).unwrap();
    std::fs::remove_file(file).unwrap();
    let what = match random.below(4) {
        0 => return Some(format!("{store}: object removed")),
        1 => {
            bytes.truncate(bytes.len() / 2);
            "cut"
        }
        2 => {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1;
            "changed"
        }
        _ => {
            bytes = std::fs::read(all.iter().find(|other| *other != file)?).unwrap();
            "exchanged"
        }
    };
    std::fs::write(file, bytes).unwrap();
    Some(format!("{store}: object {what}"))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(std::fs::copy(&path, to).unwrap()),
        }
    }
}

fn alarms(site: &Site) -> usize {
    let events = site.sink.events();
    let is_alarm =
        |action: &str| action.starts_with("evidence.index-") || action == "evidence.archive-damage";
    events
        .iter()
        .filter(|event| is_alarm(&event.action))
        .count()
}

/// A site with a decision, a look, a fork, a gap, and a number declared lost.
async fn history() -> Site {
    let (site, public, secret) = scene().await;
    let (camera, who) = (
        site.world.camera(CAMERA),
        site.world.reviewer(Clearance::Secret),
    );
    let review = site.centre.review();
    review.medium(&who, &public.violation(), 0).await.unwrap();
    let decided = secret.violation();
    let decided = review.decide(&who, &decided, Decision::Accepted, "clear", 0);
    decided.await.unwrap();
    let fork = |plate: &str| {
        camera.seal(&Shot {
            plate: plate.into(),
            ..Shot::after(&public)
        })
    };
    for plate in ["XX 1", "XX 2"] {
        assert!(site.deliver(CAMERA, &fork(plate)).await.reason.is_some());
    }
    let unsent = camera.seal(&Shot::after(&secret));
    let notice = camera.seal(&Shot {
        sequence: 6,
        dropped: Some(vec![Dropped {
            sequence: 3,
            manifest_sha256: unsent.sealed.manifest_sha256,
            reason: DropReason::SpoolFull,
        }]),
        ..Shot::after(&unsent)
    });
    assert_eq!(site.deliver(CAMERA, &notice).await.reason, None);
    site
}

/// What becomes of one change; `None` if there was none.
async fn outcome(site: &Site, random: &mut Random) -> Option<(String, &'static str)> {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    copy(site.folder.path(), folder.path());
    let is_running = random.below(2) == 0;
    let options = || Options {
        audit: Some(site.sink.clone() as Arc<dyn audit::AuditSink>),
        ..Options::default()
    };
    let open = || centre::Centre::open(setup(&site.world, &folder, options()));
    let running = match is_running {
        true => Some(open().await.unwrap()),
        false => None,
    };
    let before = alarms(site);
    let what = match random.below(4) {
        0 => change_object(folder.path(), random)?,
        _ => change_row(folder.path(), random).await?,
    };
    let what = format!("{what}, {}", if is_running { "running" } else { "stopped" });
    let centre = match running {
        Some(centre) => centre,
        None => match open().await {
            Ok(centre) => centre,
            Err(_) => return Some((what, "start refused")),
        },
    };
    for _ in 0..4 {
        centre.scrub().step().await;
    }
    match alarms(site) > before {
        true => Some((what, "repaired or reported")),
        false => Some((what, "silent")),
    }
}

#[tokio::test]
#[expect(
    clippy::print_stdout,
    reason = "the seed and the table of what was tried"
)]
async fn every_change_of_the_disk_is_refused_repaired_or_reported() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("CORDON_WITHSTAND_SEED").unwrap_or(SEED);
    let changes = number("CORDON_WITHSTAND").unwrap_or(CHANGES);
    println!("CORDON_WITHSTAND_SEED={seed} CORDON_WITHSTAND={changes}");
    let mut random = Random(seed | 1);
    let site = history().await;
    // What the copy is made of is whole: nothing is in the journal only.
    let mut index = open_index(site.folder.path()).await;
    query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(&mut index)
        .await
        .unwrap();
    index.close().await.unwrap();
    let mut tried: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut done = 0;
    while done < changes {
        if let Some(found) = outcome(&site, &mut random).await {
            *tried.entry(found).or_default() += 1;
            done += 1;
        }
    }
    for ((what, outcome), count) in &tried {
        println!("{count:6}  {outcome:22}{what}");
    }
    let silent: Vec<_> = tried
        .keys()
        .filter(|(_, outcome)| *outcome == "silent")
        .collect();
    assert!(silent.is_empty(), "{silent:#?}");
}
