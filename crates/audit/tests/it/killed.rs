//! A writer that is killed while it writes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use audit::verify::Verifier;
use audit::{AuditSink, SharedLog};

use crate::support::{event, key};

const DIR_VARIABLE: &str = "AUDIT_TEST_WRITER_DIR";

/// Not a test of its own: the writer that [`a_killed_writer_loses_nothing_acknowledged`] kills.
#[test]
#[ignore = "started as a child process by the test below"]
fn writer() {
    let Ok(dir) = std::env::var(DIR_VARIABLE) else {
        return;
    };
    let log = SharedLog::open(Path::new(&dir), key()).unwrap();
    std::thread::scope(|scope| {
        for role in ["centre", "portal", "registry"] {
            let role = log.role(role).unwrap();
            scope.spawn(move || {
                for n in 0.. {
                    let recorded = role.record(event(n)).unwrap();
                    println!(
                        "acknowledged {} {}",
                        recorded.leaf_index,
                        hex::encode(recorded.leaf_hash)
                    );
                }
            });
        }
    });
}

#[test]
fn a_killed_writer_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<(u64, String)> = Vec::new();
    for round in 0..6_u64 {
        acknowledged.extend(run_and_kill(
            folder.path(),
            Duration::from_millis(60 + 37 * round),
        ));
        let log = SharedLog::open(folder.path(), key()).unwrap();
        let report = Verifier::new(&log.verifier().to_string())
            .unwrap()
            .with_journals(&log.journal_dir())
            .verify(&log.log_dir())
            .unwrap();
        assert_eq!(report.journal_records, report.size, "round {round}");
        let view = log.view().unwrap();
        for (index, hash) in &acknowledged {
            let leaf = view.entry(*index).unwrap();
            let found = audit::log::merkle::leaf_hash(&leaf);
            assert_eq!(hex::encode(found), *hash, "round {round}, event {index}");
        }
    }
    assert!(acknowledged.len() > 20, "{} events", acknowledged.len());
}

fn run_and_kill(dir: &Path, after: Duration) -> Vec<(u64, String)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::writer", "--ignored", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (begun, first) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        output
            .lines()
            .map_while(Result::ok)
            .inspect(|line| {
                if line.contains("acknowledged ") {
                    // Nobody listens any more after the first.
                    let _ = begun.send(());
                }
            })
            .filter_map(|line| {
                let (_, rest) = line.split_once("acknowledged ")?;
                let (index, hash) = rest.split_once(' ')?;
                // The kill can cut the last line.
                (hash.len() == 64).then(|| (index.parse().unwrap(), hash.to_owned()))
            })
            .collect()
    });
    // From the first event on: a machine that has much to do may need long for the start.
    first.recv_timeout(Duration::from_secs(60)).unwrap();
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}
