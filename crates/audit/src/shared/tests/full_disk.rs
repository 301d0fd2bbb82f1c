//! Disks that fail for a while: recording goes on afterwards, and nothing acknowledged is lost.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::log::LogError;

/// Failure of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing new fits; the first half of the bytes does.
    Full,
    /// Nothing new fits, not a byte.
    FullAtOnce,
    Dead,
    /// Everything is done, and an error is reported all the same.
    Liar,
}

const FAULTS: [Fault; 4] = [Fault::Full, Fault::FullAtOnce, Fault::Dead, Fault::Liar];

/// Fails from a certain operation on, until repaired. Syncs are left out: no power is cut here.
#[derive(Debug)]
struct FailingDisk {
    fault: Fault,
    /// Operations that still work; counts down.
    left: AtomicU64,
}

impl FailingDisk {
    fn new(fault: Fault) -> Arc<Self> {
        let left = AtomicU64::new(u64::MAX);
        Arc::new(Self { fault, left })
    }

    fn fail_after(&self, operations: u64) {
        self.left.store(operations, Ordering::SeqCst);
    }

    fn repair(&self) {
        self.fail_after(u64::MAX);
    }

    fn failed(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    /// Does `whole`, or `part` when the disk fails.
    fn operation(
        &self,
        whole: impl FnOnce() -> io::Result<()>,
        part: impl FnOnce(),
    ) -> io::Result<()> {
        let down = |left: u64| Some(left.saturating_sub(1));
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, down);
        if left.unwrap() > 0 {
            return whole();
        }
        match self.fault {
            Fault::Liar => whole()?,
            Fault::Full => part(),
            Fault::FullAtOnce | Fault::Dead => {}
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// The same for what a full disk still allows.
    fn frees(&self, whole: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.fault {
            Fault::Full | Fault::FullAtOnce => whole(),
            Fault::Dead | Fault::Liar => self.operation(whole, || {}),
        }
    }
}

impl Disk for FailingDisk {
    fn create(&self, path: &Path, mode: u32) -> io::Result<DiskFile> {
        let mut file = None;
        let create = || {
            RealDisk
                .create(path, mode)
                .map(|created| file = Some(created))
        };
        self.operation(create, || {})?;
        Ok(file.unwrap())
    }
    fn create_unnamed(&self, _: &Path, _: u32) -> io::Result<Option<DiskFile>> {
        unreachable!("a log has no unnamed files")
    }
    fn name(&self, _: &DiskFile, _: &Path) -> io::Result<()> {
        unreachable!("a log has no unnamed files")
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
        let write = |bytes: &[u8]| (&RealDisk as &dyn Disk).write_all(file, bytes);
        let part = || write(&bytes[..bytes.len() / 2]).unwrap();
        self.operation(|| write(bytes), part)?;
        Ok(bytes.len())
    }
    fn set_len(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        self.frees(|| RealDisk.set_len(file, len))
    }
    fn sync(&self, _: &DiskFile) -> io::Result<()> {
        Ok(())
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operation(|| RealDisk.link(from, to), || {})
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operation(|| RealDisk.rename(from, to), || {})
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.frees(|| RealDisk.remove_file(path))
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.frees(|| RealDisk.remove_dir(path))
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.frees(|| RealDisk.remove_dir_all(path))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.operation(|| RealDisk.create_dir(path), || {})
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.frees(|| fs::metadata(path).map(|_| ()))
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        RealDisk.list(folder)
    }
}

/// Two roles with a log of `size` events, and what was acknowledged so far.
struct Site {
    folder: tempfile::TempDir,
    disk: Arc<FailingDisk>,
    log: SharedLog,
    acknowledged: BTreeMap<u64, String>,
}

impl Site {
    fn new(fault: Fault, size: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = FailingDisk::new(fault);
        let log = SharedLog::open_on(disk.clone(), folder.path(), key()).unwrap();
        let acknowledged = BTreeMap::new();
        let mut site = Self {
            folder,
            disk,
            log,
            acknowledged,
        };
        site.log.role("portal").unwrap();
        site.log.role("centre").unwrap();
        if size > 0 {
            site.commit("before/0", 1).unwrap();
            site.commit("before/1", size / 2 - 1).unwrap();
        }
        site
    }

    /// Commits `count` events for each of the roles at once.
    fn commit(&mut self, name: &str, count: usize) -> Result<(), AuditError> {
        let roles = ["centre", "portal"];
        let names = |role: &str| -> Vec<String> {
            (0..count).map(|i| format!("{role}/{name}/{i}")).collect()
        };
        let request = |(ticket, role): (usize, &&str)| Request {
            ticket: ticket as u64,
            role: (*role).to_owned(),
            events: names(role).iter().map(|name| event(name)).collect(),
        };
        let batch = roles.iter().enumerate().map(request).collect();
        let results = lock(&self.log.inner.writer).guarded(|writer| writer.commit(batch))?;
        for ((_, recorded), role) in results.into_iter().zip(roles) {
            let places = recorded.iter().map(|recorded| recorded.leaf_index);
            for (index, name) in places.zip(names(role)) {
                let other = self.acknowledged.insert(index, name);
                assert_eq!(other, None, "index {index} acknowledged twice");
            }
        }
        Ok(())
    }

    /// Checks that what was acknowledged is where it was said to be, nothing is there twice, all is proven.
    fn check(&self, what: &str) {
        let found = resources(&self.log);
        let unique: BTreeSet<&String> = found.iter().collect();
        assert_eq!(unique.len(), found.len(), "{what}: an event is there twice");
        for (index, name) in &self.acknowledged {
            let index = usize::try_from(*index).unwrap();
            assert_eq!(found.get(index), Some(name), "{what}");
        }
        let report = prove(&self.log);
        assert_eq!(report.size, found.len() as u64, "{what}");
        assert_eq!(report.journal_records, report.size, "{what}");
    }
}

/// Lets the disk fail from each operation of a commit on; gives the number of positions.
fn fail_everywhere(fault: Fault, size: usize, count: usize) -> u64 {
    for position in 0.. {
        let what = format!("{fault:?} after {position} operations on {size} events");
        let mut site = Site::new(fault, size);
        site.disk.fail_after(position);
        let first = site.commit("first", count);
        if !site.disk.failed() {
            site.disk.repair();
            first.unwrap();
            return position;
        }
        let error = first.err();
        // Still broken: refused again, with the same clear cause.
        let again = site.commit("again", 1).expect_err(&what);
        for e in [error, Some(again)].into_iter().flatten() {
            assert!(is_full(&e), "{what}: {e:?}");
        }
        site.disk.repair();
        site.commit("after", 2)
            .unwrap_or_else(|e| panic!("{what}: {e:?}"));
        site.check(&what);
        // What memory holds is what a restart finds.
        let Site {
            folder, disk, log, ..
        } = site;
        let before = resources(&log);
        drop(log);
        let log = SharedLog::open_on(disk, folder.path(), key());
        let log = log.unwrap_or_else(|e| panic!("{what}: {e:?}"));
        assert_eq!(resources(&log), before, "{what}");
    }
    unreachable!("a commit has a limited number of operations")
}

fn is_full(error: &AuditError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = cause {
        if let Some(e) = e.downcast_ref::<io::Error>() {
            return e.kind() == io::ErrorKind::StorageFull;
        }
        cause = e.source();
    }
    false
}

#[test]
fn after_a_failure_at_any_operation_recording_goes_on_once_the_disk_works() {
    for fault in FAULTS {
        // Within a tile, and the first tile of all.
        for (size, count) in [(8, 2), (0, 1)] {
            let positions = fail_everywhere(fault, size, count);
            assert!(positions > 5, "{fault:?}: {positions}");
        }
    }
    // From within one tile into the next.
    for fault in [Fault::Full, Fault::Liar] {
        assert!(fail_everywhere(fault, 252, 3) > 10);
    }
}

#[test]
fn a_disk_that_fails_again_while_healing_is_healed_later() {
    for fault in [Fault::Full, Fault::Liar] {
        for position in (0..30).step_by(2) {
            let what = format!("{fault:?}, again after {position} operations");
            let mut site = Site::new(fault, 252);
            // The bytes of the log's first file: both journals have their records by then.
            site.disk
                .fail_after(if fault == Fault::Liar { 1 } else { 3 });
            site.commit("first", 3).expect_err(&what);
            site.disk.fail_after(position);
            let healed = site.commit("second", 3);
            site.disk.repair();
            site.commit("after", 2)
                .unwrap_or_else(|e| panic!("{what}: {e:?} after {healed:?}"));
            site.check(&what);
        }
    }
}

#[test]
fn all_callers_of_a_failed_batch_learn_the_cause_and_are_served_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FailingDisk::new(Fault::Full);
    let log = SharedLog::open_on(disk.clone(), folder.path(), key()).unwrap();
    let role = log.role("centre").unwrap();
    disk.fail_after(0);
    std::thread::scope(|scope| {
        for i in 0..8 {
            let role = &role;
            scope.spawn(move || {
                for n in 0..5 {
                    let refused = role.record(event(&format!("{i}/{n}"))).unwrap_err();
                    assert!(is_full(&refused), "{refused:?}");
                }
            });
        }
    });
    disk.repair();
    role.record(event("after")).unwrap();
    assert_eq!(resources(&log), ["after"]);
    prove(&log);
}

#[test]
fn a_role_that_is_opened_on_a_full_disk_can_be_opened_later() {
    for position in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let disk = FailingDisk::new(Fault::Full);
        let log = SharedLog::open_on(disk.clone(), folder.path(), key()).unwrap();
        let centre = log.role("centre").unwrap();
        centre.record(event("a")).unwrap();
        disk.fail_after(position);
        let opened = log.role("portal").map(|_| ());
        disk.repair();
        centre.record(event("b")).unwrap();
        let portal = log.role("portal").unwrap();
        portal.record(event("c")).unwrap();
        assert_eq!(resources(&log), ["a", "b", "c"], "{position}: {opened:?}");
        prove(&log);
    }
}

#[test]
fn a_log_that_was_set_back_while_stopped_is_not_continued() {
    let mut site = Site::new(Fault::Full, 8);
    let tiles = site.log.log_dir();
    let old = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &Path| {
        let status = std::process::Command::new("cp")
            .args(["-a", "-T"])
            .args([from, to])
            .status();
        assert!(status.unwrap().success());
    };
    copy(&tiles, old.path());
    site.commit("more", 1).unwrap();
    site.disk.fail_after(0);
    site.commit("refused", 1).unwrap_err();
    site.disk.repair();
    fs::remove_dir_all(&tiles).unwrap();
    copy(old.path(), &tiles);
    let refused = site.commit("after", 1).unwrap_err();
    assert!(
        matches!(refused, AuditError::Log(LogError::OutOfRange { .. })),
        "{refused:?}"
    );
}
