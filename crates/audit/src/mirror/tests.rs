use super::*;
use crate::{Actor, AuditSink as _, Event, LogKey, Outcome, SharedLog};
use time::OffsetDateTime;

fn event(number: u64) -> Event {
    let at = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(1_795_000_000);
    let resource = format!("evidence/{number}");
    Event::new(
        at,
        Actor::device("camera-17"),
        "evidence.receive",
        resource,
        Outcome::Ok,
    )
}

/// A log with this many events; `salt` makes other events.
fn log_with(folder: &Path, events: u64, salt: u64) -> SharedLog {
    let key = LogKey::from_seed("police.example.org/log", &[7; 32]).unwrap();
    let log = SharedLog::open(folder, key).unwrap();
    let role = log.role("centre").unwrap();
    let numbers = (0..events).map(|number| event(number + salt));
    role.record_all(numbers.collect()).unwrap();
    log
}

struct World {
    _folder: tempfile::TempDir,
    dir: std::path::PathBuf,
    log: SharedLog,
    mirror: Mirror,
}

fn world(events: u64) -> World {
    let folder = tempfile::tempdir().unwrap();
    let log = log_with(&folder.path().join("site"), events, 0);
    let dir = folder.path().join("mirror");
    let first = log.empty_checkpoint().unwrap();
    let mirror = Mirror::open(&dir, log.verifier(), Some(&first)).unwrap();
    World {
        _folder: folder,
        dir,
        log,
        mirror,
    }
}

impl World {
    /// Copies until the mirror has all; gives the number of batches.
    fn catch_up(&mut self) -> usize {
        let mut batches = 0;
        loop {
            let batch = self
                .log
                .batch(self.mirror.size(), MAX_MIRROR_BYTES)
                .unwrap();
            let bytes = batch.encode().unwrap();
            let batch = Batch::decode(&bytes).unwrap();
            let is_last = batch.note == self.log.checkpoint();
            self.mirror.append(&batch).unwrap();
            batches += 1;
            if is_last {
                return batches;
            }
        }
    }
}

#[test]
fn mirror_has_the_same_tree_under_the_same_checkpoint_and_verifies_alone() {
    // More than a batch, so that a checkpoint between is signed as well.
    let mut world = world(MAX_BATCH as u64 + 700);
    assert_eq!(world.catch_up(), 2);
    assert_eq!(world.mirror.checkpoint(), world.log.checkpoint());
    let key = world.log.verifier().to_string();
    let report = crate::verify::verify_dir(&world.dir, &key, None).unwrap();
    assert_eq!(report.size, world.log.view().unwrap().size());
    // It goes on after it was opened again, and needs no first checkpoint then.
    drop(world.mirror);
    world.mirror = Mirror::open(&world.dir, world.log.verifier(), None).unwrap();
    world.log.role("portal").unwrap().record(event(9)).unwrap();
    world.catch_up();
    assert_eq!(world.mirror.checkpoint(), world.log.checkpoint());
}

#[test]
fn batches_that_came_before_and_those_that_overlap_are_taken_once() {
    let mut world = world(300);
    let early = world.log.batch(0, MAX_MIRROR_BYTES).unwrap();
    world.catch_up();
    let size = world.mirror.size();
    world.log.role("portal").unwrap().record(event(9)).unwrap();
    assert_eq!(world.mirror.append(&early).unwrap(), size);
    let overlapping = world.log.batch(250, MAX_MIRROR_BYTES).unwrap();
    assert_eq!(world.mirror.append(&overlapping).unwrap(), size + 1);
    assert_eq!(world.mirror.checkpoint(), world.log.checkpoint());
}

#[test]
fn gap_or_wrong_number_is_refused_and_nothing_is_taken() {
    let mut world = world(20);
    let whole = world.log.batch(0, MAX_MIRROR_BYTES).unwrap();
    let later = Batch {
        first: 5,
        entries: whole.entries.get(5..).unwrap().to_vec(),
        ..whole.clone()
    };
    assert!(matches!(
        world.mirror.append(&later),
        Err(MirrorError::Gap { first: 5, size: 0 })
    ));
    let short = Batch {
        entries: whole.entries.get(..5).unwrap().to_vec(),
        ..whole.clone()
    };
    assert!(matches!(
        world.mirror.append(&short),
        Err(MirrorError::WrongCount { .. })
    ));
    let mut changed = whole.clone();
    changed.entries.first_mut().unwrap().push(b' ');
    assert!(matches!(
        world.mirror.append(&changed),
        Err(MirrorError::Forked { .. })
    ));
    assert_eq!(world.mirror.size(), 0);
    assert_eq!(
        world.mirror.append(&whole).unwrap(),
        whole.entries.len() as u64
    );
}

#[test]
fn checkpoint_of_another_key_or_log_is_refused() {
    let mut world = world(3);
    let batch = world.log.batch(0, MAX_MIRROR_BYTES).unwrap();
    for (name, seed) in [("police.example.org/log", 8), ("other.example.org/log", 7)] {
        let other = tempfile::tempdir().unwrap();
        let key = LogKey::from_seed(name, &[seed; 32]).unwrap();
        let log = SharedLog::open(other.path(), key).unwrap();
        let foreign = Batch {
            note: log.checkpoint(),
            first: 0,
            entries: Vec::new(),
        };
        assert!(matches!(
            world.mirror.append(&foreign),
            Err(MirrorError::Note(_))
        ));
    }
    assert_eq!(
        world.mirror.append(&batch).unwrap(),
        batch.entries.len() as u64
    );
}

#[test]
fn log_that_was_forked_or_set_back_is_named() {
    let mut world = world(600);
    world.catch_up();
    let mirrored = world.mirror.size();
    let older = tempfile::tempdir().unwrap();
    let set_back = log_with(older.path(), 100, 0)
        .batch(0, MAX_MIRROR_BYTES)
        .unwrap();
    let found = world.mirror.append(&set_back);
    let Err(MirrorError::SetBack {
        found,
        mirrored: known,
    }) = found
    else {
        panic!("{found:?}");
    };
    assert!(found < mirrored && known == mirrored);
    let forked = tempfile::tempdir().unwrap();
    let forked = log_with(forked.path(), 700, 1_000);
    for first in [0, mirrored] {
        let batch = forked.batch(first, MAX_MIRROR_BYTES).unwrap();
        assert!(matches!(
            world.mirror.append(&batch),
            Err(MirrorError::Forked { .. })
        ));
    }
    assert_eq!(world.mirror.size(), mirrored);
}

#[test]
fn mirror_begins_with_the_empty_tree_and_not_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let log = log_with(&folder.path().join("site"), 5, 0);
    let dir = folder.path().join("mirror");
    let middle = log.checkpoint();
    let begun = Mirror::open(&dir, log.verifier(), Some(&middle));
    assert!(matches!(begun, Err(MirrorError::WrongCount { .. })));
    assert!(Mirror::open(&dir, log.verifier(), None).is_err());
}

#[test]
fn batch_is_as_short_as_asked_for_and_has_one_entry_at_least() {
    let mut world = world(300);
    let mut batches = 0;
    while world.mirror.checkpoint() != world.log.checkpoint() {
        let batch = world.log.batch(world.mirror.size(), 4096).unwrap();
        assert!(batch.entries.len() == 1 || batch.encode().unwrap().len() <= 4096);
        world.mirror.append(&batch).unwrap();
        batches += 1;
    }
    assert!(batches > 5, "{batches}");
    assert_eq!(world.log.batch(7, 0).unwrap().entries.len(), 1);
}

#[test]
fn batch_with_more_entries_than_a_commit_is_refused() {
    let batch = Batch {
        first: 0,
        note: String::new(),
        entries: vec![Vec::new(); MAX_BATCH],
    };
    let mut bytes = batch.encode().unwrap();
    assert_eq!(Batch::decode(&bytes), Some(batch));
    bytes.extend_from_slice(&[0, 0]);
    assert_eq!(Batch::decode(&bytes), None);
}

#[test]
fn batch_decodes_only_what_was_encoded() {
    let world = world(4);
    let batch = world.log.batch(1, MAX_MIRROR_BYTES).unwrap();
    let bytes = batch.encode().unwrap();
    assert_eq!(Batch::decode(&bytes), Some(batch));
    for cut in 0..bytes.len() {
        // A cut between two entries leaves fewer; the checkpoint tells.
        let found = Batch::decode(bytes.get(..cut).unwrap());
        assert!(found.is_none_or(|found| found.entries.len() < 4));
    }
}

#[test]
fn crash_at_any_write_loses_no_acknowledged_entry_and_the_mirror_goes_on() {
    let source = tempfile::tempdir().unwrap();
    let log = log_with(source.path(), 20, 0);
    let first = log.empty_checkpoint().unwrap();
    let early = log.batch(0, MAX_MIRROR_BYTES).unwrap();
    let numbers = (0..245).map(|number| event(number + 500));
    log.role("portal")
        .unwrap()
        .record_all(numbers.collect())
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let disk = std::sync::Arc::new(durable::testing::RecordingDisk::default());
    let dir = folder.path().join("mirror");
    let mut mirror = Mirror::open_on(disk.clone(), &dir, log.verifier(), Some(&first)).unwrap();
    let mut acknowledged = Vec::new();
    for batch in [early, log.batch(15, MAX_MIRROR_BYTES).unwrap()] {
        let size = mirror.append(&batch).unwrap();
        acknowledged.push((disk.ops().len(), size));
    }
    mirror.sync().unwrap();
    drop(mirror);
    let crashes = disk.crashes(folder.path(), &durable::testing::Tree::default());
    assert!(crashes.len() > 50, "{}", crashes.len());
    let mut seen = std::collections::HashSet::new();
    for crash in crashes.iter().filter(|crash| {
        seen.insert((
            crash.tree.fingerprint(),
            crash.done >= acknowledged[0].0,
            crash.done >= acknowledged[1].0,
        ))
    }) {
        let left = tempfile::tempdir().unwrap();
        crash.tree.write(left.path()).unwrap();
        let dir = left.path().join("mirror");
        let mut mirror = Mirror::open(&dir, log.verifier(), Some(&first))
            .unwrap_or_else(|error| panic!("{}: {error:?}", crash.what));
        let least = acknowledged.iter().filter(|(done, _)| *done <= crash.done);
        let least = least.map(|(_, size)| *size).max().unwrap_or_default();
        assert!(
            mirror.size() >= least,
            "{}: {} of {least}",
            crash.what,
            mirror.size()
        );
        mirror
            .append(&log.batch(mirror.size(), MAX_MIRROR_BYTES).unwrap())
            .unwrap();
        assert_eq!(mirror.checkpoint(), log.checkpoint(), "{}", crash.what);
    }
}
