use super::*;
use crate::event::{Actor, Outcome};
use crate::leaf::Leaf;
use crate::verify::Verifier;
use durable::testing::{LUCK, Op, RecordingDisk, Simulated, Tree};
use durable::{Disk, DiskFile, Listed, RealDisk};
use std::collections::BTreeSet;
use std::{fs, io};
use time::macros::datetime;

mod forged;
mod full_disk;

fn key() -> LogKey {
    LogKey::from_seed("audit.example.org/log", &[7; 32]).unwrap()
}

fn event(name: &str) -> Event {
    Event::new(
        datetime!(2026-11-21 10:00 UTC),
        Actor::service("test"),
        "test.write",
        name,
        Outcome::Ok,
    )
}

fn resources(log: &SharedLog) -> Vec<String> {
    let view = log.view().unwrap();
    (0..view.size())
        .map(|i| {
            Leaf::decode(&view.entry(i).unwrap())
                .unwrap()
                .event
                .resource
        })
        .collect()
}

fn prove(log: &SharedLog) -> crate::verify::Report {
    Verifier::new(&log.verifier().to_string())
        .unwrap()
        .with_journals(&log.journal_dir())
        .verify(&log.log_dir())
        .unwrap()
}

#[test]
fn roles_share_the_log_and_keep_their_own_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap();
    let (centre, portal) = (log.role("centre").unwrap(), log.role("portal").unwrap());
    assert_eq!(centre.record(event("a")).unwrap().leaf_index, 0);
    assert_eq!(portal.record(event("b")).unwrap().leaf_index, 1);
    let both = centre.record_all(vec![event("c"), event("d")]).unwrap();
    assert_eq!(both[1].leaf_index, 3);
    assert_eq!(
        both[1].leaf_hash,
        leaf_hash(&log.view().unwrap().entry(3).unwrap())
    );
    // Each role reads its own events.
    assert_eq!(centre.event(3).unwrap().unwrap().resource, "d");
    assert!(centre.event(1).unwrap().is_none() && portal.event(1).unwrap().is_some());
    assert!(centre.event(4).unwrap().is_none() && centre.event(u64::MAX).unwrap().is_none());
    let report = prove(&log);
    let roles = [("centre".to_owned(), 3), ("portal".to_owned(), 1)];
    assert_eq!(report.roles, roles.into());
    assert_eq!(report.journal_records, 4);
    assert!(report.extra_files.is_empty(), "{report:?}");
}

#[test]
fn many_threads_share_syncs_and_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // Every operation takes its time, as on a disk: in memory one event is recorded before the next thread comes.
    let disk = Arc::new(RecordingDisk::looking(|| {
        std::thread::sleep(std::time::Duration::from_micros(100));
        Tree::default()
    }));
    let log = SharedLog::open_on(disk.clone(), folder.path(), key()).unwrap();
    let before = disk.ops().len();
    let indexes: BTreeSet<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..16)
            .map(|t| {
                let role = log.role(["centre", "portal"][t % 2]).unwrap();
                scope.spawn(move || {
                    (0..25)
                        .map(|i| role.record(event(&format!("{t}/{i}"))).unwrap().leaf_index)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    assert_eq!(indexes, (0..400).collect());
    assert_eq!(prove(&log).size, 400);
    let ops = disk.ops();
    let checkpoints = ops[before..]
        .iter()
        .filter(|op| matches!(op, Op::Rename(_, to) if to.ends_with("checkpoint")))
        .count();
    assert!(
        checkpoints < 100,
        "{checkpoints} checkpoints for 400 events"
    );
}

#[test]
fn an_unsuitable_event_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap();
    let role = log.role("centre").unwrap();
    let refused = role.record(event("x").with_reason("x".repeat(20_000)));
    assert!(matches!(refused, Err(AuditError::Event(_))));
    role.record(event("y")).unwrap();
    assert!(matches!(log.role("No"), Err(AuditError::RoleName(_))));
    assert_eq!(resources(&log), ["y"]);
}

#[test]
fn after_a_failed_write_nothing_is_recorded_until_the_obstacle_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap();
    let role = log.role("centre").unwrap();
    role.record(event("a")).unwrap();
    let obstacle = folder.path().join("log/tile/entries/000.p/2");
    fs::create_dir(&obstacle).unwrap();
    assert!(matches!(role.record(event("b")), Err(AuditError::Log(_))));
    assert!(matches!(role.record(event("c")), Err(AuditError::Log(_))));
    fs::remove_dir(&obstacle).unwrap();
    role.record(event("d")).unwrap();
    // "b" was journalled before the failure, so it is shipped now; "c" never was anywhere.
    assert_eq!(resources(&log), ["a", "b", "d"]);
    prove(&log);
}

/// Works until it is told to panic.
#[derive(Debug, Default)]
struct PanickingDisk {
    panic: std::sync::atomic::AtomicBool,
}

impl Disk for PanickingDisk {
    fn create(&self, path: &Path, mode: u32) -> io::Result<DiskFile> {
        assert!(!self.panic.load(std::sync::atomic::Ordering::SeqCst));
        RealDisk.create(path, mode)
    }
    fn create_unnamed(&self, folder: &Path, mode: u32) -> io::Result<Option<DiskFile>> {
        RealDisk.create_unnamed(folder, mode)
    }
    fn name(&self, file: &DiskFile, path: &Path) -> io::Result<()> {
        RealDisk.name(file, path)
    }
    fn open(&self, path: &Path) -> io::Result<DiskFile> {
        RealDisk.open(path)
    }
    fn open_append(&self, path: &Path) -> io::Result<DiskFile> {
        RealDisk.open_append(path)
    }
    fn read(&self, file: &DiskFile, buffer: &mut [u8]) -> io::Result<usize> {
        RealDisk.read(file, buffer)
    }
    fn write(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<usize> {
        RealDisk.write(file, bytes)
    }
    fn set_len(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        RealDisk.set_len(file, len)
    }
    fn sync(&self, file: &DiskFile) -> io::Result<()> {
        RealDisk.sync(file)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir_all(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        RealDisk.list(folder)
    }
}

#[test]
fn a_leader_that_panics_leaves_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(PanickingDisk::default());
    let log = SharedLog::open_on(disk.clone(), folder.path(), key()).unwrap();
    let role = log.role("centre").unwrap();
    role.record(event("a")).unwrap();
    disk.panic.store(true, std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| role.record(event("b"))))
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        let panics = ends.iter().filter(|end| end.is_err()).count();
        assert_eq!(panics, 1);
        assert!(ends.iter().flatten().all(Result::is_err));
    });
    assert!(matches!(role.record(event("c")), Err(AuditError::Stopped)));
}

#[test]
fn a_live_log_can_be_proven_with_its_journals() {
    let folder = tempfile::tempdir().unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap();
    std::thread::scope(|scope| {
        for role in ["centre", "portal"] {
            let role = log.role(role).unwrap();
            scope.spawn(move || {
                for _ in 0..150 {
                    role.record(event("x")).unwrap();
                }
            });
        }
        let verifier = Verifier::new(&log.verifier().to_string())
            .unwrap()
            .with_journals(&log.journal_dir());
        let (mut proven, mut proofs) = (0, 0);
        while proven < 250 {
            match verifier.verify(&log.log_dir()) {
                Ok(report) => (proven, proofs) = (report.size, proofs + 1),
                // Journalled, and its commit to the log is still under way.
                Err(e) if e.kind == crate::verify::FindingKind::NotInLog => {}
                Err(e) => panic!("{e}"),
            }
        }
        assert!(proofs > 1, "{proofs}");
    });
    prove(&log);
}

#[test]
fn a_journal_that_was_set_back_or_removed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap();
    let role = log.role("centre").unwrap();
    role.record(event("a")).unwrap();
    let segment = folder
        .path()
        .join("journal/centre/00000000000000000001.journal");
    let old = fs::read(&segment).unwrap();
    role.record(event("b")).unwrap();
    drop((log, role));
    fs::write(&segment, old).unwrap();
    assert!(matches!(
        SharedLog::open(folder.path(), key()).err().unwrap(),
        AuditError::Journal {
            source: JournalError::Missing { missing: 2, .. },
            ..
        }
    ));
    fs::remove_dir_all(folder.path().join("journal/centre")).unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap();
    assert!(matches!(
        log.role("centre").err().unwrap(),
        AuditError::Journal {
            source: JournalError::Missing { missing: 1, .. },
            ..
        }
    ));
}

#[test]
fn a_central_log_that_was_replaced_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap();
    let role = log.role("centre").unwrap();
    role.record(event("a")).unwrap();
    log.note_shipped().unwrap();
    drop((log, role));
    fs::remove_dir_all(folder.path().join("log")).unwrap();
    assert!(matches!(
        SharedLog::open(folder.path(), key()).err().unwrap(),
        AuditError::Diverged { .. }
    ));
    // Another event under the same number.
    let other = tempfile::tempdir().unwrap();
    let log = SharedLog::open(other.path(), key()).unwrap();
    log.role("centre").unwrap().record(event("z")).unwrap();
    drop(log);
    fs::remove_dir_all(folder.path().join("log")).unwrap();
    fs::rename(other.path().join("log"), folder.path().join("log")).unwrap();
    assert!(matches!(
        SharedLog::open(folder.path(), key()).err().unwrap(),
        AuditError::Diverged {
            reason: "the same number has two contents",
            ..
        }
    ));
}

/// Records a run of commits and gives, for each operation, which events were acknowledged before. The log is synced after
/// the first `syncs` of them.
fn recorded_run(dir: &Path, syncs: usize) -> (Vec<Op>, Vec<(usize, String)>) {
    let disk = Arc::new(RecordingDisk::default());
    let mut acknowledged = Vec::new();
    let log = SharedLog::open_on(disk.clone(), dir, key()).unwrap();
    let roles = [log.role("centre").unwrap(), log.role("portal").unwrap()];
    // Batches that stay within a tile, fill it, and go beyond.
    for (i, count) in [1, 252, 2, 3].into_iter().enumerate() {
        let names: Vec<String> = (0..count).map(|n| format!("{i}/{n}")).collect();
        let events = names.iter().map(|name| event(name)).collect();
        roles[i % 2].record_all(events).unwrap();
        if i < syncs {
            log.note_shipped().unwrap();
        }
        let done = disk.ops().len();
        acknowledged.extend(names.into_iter().map(|name| (done, name)));
    }
    let ops = disk.ops().clone();
    (ops, acknowledged)
}

fn check_recovery(tree: &Tree, acknowledged: &[&String], what: &str) {
    let folder = tempfile::tempdir().unwrap();
    tree.write(folder.path()).unwrap();
    let log = SharedLog::open(folder.path(), key()).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    let found = resources(&log);
    let unique: BTreeSet<&String> = found.iter().collect();
    assert_eq!(unique.len(), found.len(), "{what}: an event is there twice");
    for name in acknowledged {
        assert!(unique.contains(name), "{what}: {name} was lost");
    }
    // It goes on working, and the result can be proven.
    log.role("centre").unwrap().record(event("more")).unwrap();
    let report = prove(&log);
    assert_eq!(report.size, found.len() as u64 + 1, "{what}");
}

#[test]
fn a_crash_between_or_within_any_two_operations_loses_nothing_acknowledged() {
    crash_everywhere(usize::MAX);
}

#[test]
fn a_crash_before_tiles_are_synced_loses_nothing_acknowledged() {
    crash_everywhere(0);
}

fn crash_everywhere(syncs: usize) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let (ops, acknowledged) = recorded_run(dir, syncs);
    assert!(ops.len() > 60);
    let mut disk = Simulated::new(dir, &Tree::default());
    let mut checked = BTreeSet::new();
    for (i, op) in ops.iter().enumerate() {
        let before: Vec<&String> = acknowledged
            .iter()
            .filter(|(done, _)| *done <= i)
            .map(|(_, name)| name)
            .collect();
        let mut states = vec![(format!("killed before {i}"), disk.after_kill())];
        // Nothing, a little, half, all but one byte.
        for keep in [|_| 0, |len: usize| len.min(3), |len| len / 2, |len| len - 1] {
            if let Some(op) = op.torn(keep) {
                let mut cut = disk.clone();
                cut.apply(&op);
                states.push((format!("killed within {i}"), cut.after_kill()));
            }
        }
        for luck in LUCK {
            let what = format!("power cut before {i}, luck {luck:x}");
            states.push((what, disk.after_power_cut(luck)));
        }
        for (what, tree) in states {
            // The same files with the same promises need no second look.
            if checked.insert((tree.fingerprint(), before.len())) {
                check_recovery(&tree, &before, &what);
            }
        }
        disk.apply(op);
    }
}

/// Lets the opening that recovers what a crash left crash itself, at any of its operations.
#[test]
fn a_crash_while_recovering_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    // The first commit is what recovery begins with, and its tile is full in the end.
    let (ops, acknowledged) = recorded_run(folder.path(), 1);
    let names: Vec<&String> = acknowledged.iter().map(|(_, name)| name).collect();
    let mut disk = Simulated::new(folder.path(), &Tree::default());
    ops.iter().for_each(|op| disk.apply(op));
    let mut states = vec![disk.after_kill()];
    states.extend(LUCK.map(|luck| disk.after_power_cut(luck)));
    let mut checked = BTreeSet::new();
    for (state, left) in states.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        left.write(folder.path()).unwrap();
        let disk = Arc::new(RecordingDisk::default());
        drop(SharedLog::open_on(disk.clone(), folder.path(), key()).unwrap());
        let crashes = disk.crashes(folder.path(), left);
        assert!(crashes.len() > 10, "{}", crashes.len());
        for crash in crashes {
            if checked.insert(crash.tree.fingerprint()) {
                let what = format!("state {state}, {}", crash.what);
                check_recovery(&crash.tree, &names, &what);
            }
        }
    }
}
