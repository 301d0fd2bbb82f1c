use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{LUCK, Simulated, Tree};
use crate::{Disk, DiskFile, Listed, RealDisk};

/// One operation, as it reached the disk; files that are open go by the number of their opening.
#[derive(Clone, Debug)]
pub enum Op {
    Create { path: PathBuf, file: u64, mode: u32 },
    CreateUnnamed { file: u64, mode: u32 },
    Name { file: u64, path: PathBuf },
    OpenAppend { path: PathBuf, file: u64 },
    Write { file: u64, bytes: Vec<u8> },
    SetLen { file: u64, len: u64 },
    Sync { file: u64 },
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    RemoveFile(PathBuf),
    RemoveDir(PathBuf),
    CreateDir(PathBuf),
    SyncDir(PathBuf),
}

impl Op {
    /// The same operation cut short after `keep` of its bytes; `None` for those that are done or not done.
    pub fn torn(&self, keep: impl Fn(usize) -> usize) -> Option<Self> {
        match self {
            Self::Write { file, bytes } => {
                let kept = bytes.get(..keep(bytes.len())).unwrap_or(bytes);
                let bytes = kept.to_owned();
                Some(Self::Write { file: *file, bytes })
            }
            _ => None,
        }
    }
}

/// Works on the real file system and keeps a list of all operations that succeeded.
///
/// What writes by itself, as SQLite does, is looked at before and after each operation.
#[derive(Default)]
pub struct RecordingDisk {
    ops: Mutex<Vec<Op>>,
    look: Option<Look>,
    looks: Mutex<Vec<Tree>>,
}

/// Reads the files that are written without the disk.
type Look = Box<dyn Fn() -> Tree + Send + Sync>;

/// A state that a crash leaves.
#[derive(Clone, Debug)]
pub struct Crash {
    /// Kind and place of the crash.
    pub what: String,
    /// Operations that were done and whose callers may have gone on.
    pub done: usize,
    /// What is on the disk.
    pub tree: Tree,
}

impl fmt::Debug for RecordingDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingDisk").finish_non_exhaustive()
    }
}

impl RecordingDisk {
    /// All operations so far.
    pub fn ops(&self) -> MutexGuard<'_, Vec<Op>> {
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records, and calls `look` before and after each operation for files that are written without the disk; these
    /// count as written at once and durably.
    pub fn looking(look: impl Fn() -> Tree + Send + Sync + 'static) -> Self {
        Self {
            look: Some(Box::new(look)),
            ..Self::default()
        }
    }

    fn take_look(&self) {
        if let Some(look) = &self.look {
            let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            let tree = look();
            // Equal ones share their bytes.
            let again = looks.last().filter(|last| **last == tree).cloned();
            looks.push(again.unwrap_or(tree));
        }
    }

    /// Does one operation, with a look before and after it if it succeeds.
    fn looked<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.take_look();
        let done = work();
        match &done {
            Ok(_) => self.take_look(),
            // Not among the operations, so neither is its look.
            Err(_) => drop(
                self.looks
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop(),
            ),
        }
        done
    }

    /// All states that a crash leaves in the folder `root`, in which `there` was at the beginning: `kill -9` between
    /// any two operations or within one, and a power cut; each state once for every number of operations done.
    pub fn crashes(&self, root: &Path, there: &Tree) -> Vec<Crash> {
        // The end is a place for a crash as well.
        self.take_look();
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let ops = self.ops();
        let mut disk = Simulated::new(root, there);
        let (mut seen, mut crashes) = (HashSet::new(), Vec::new());
        let mut add = |what: String, done: usize, mut tree: Tree, look: Option<&Tree>| {
            tree.0
                .extend(look.into_iter().flat_map(|look| look.0.clone()));
            if seen.insert((tree.fingerprint(), done)) {
                crashes.push(Crash { what, done, tree });
            }
        };
        for i in 0..=ops.len() {
            // After the operation before, and before this one: something else may have been written between them.
            let after = i.checked_sub(1).and_then(|k| looks.get(k * 2 + 1));
            let places = [
                after.map(|look| (i.saturating_sub(1), Some(look))),
                Some((i, looks.get(i * 2))),
            ];
            for (done, look) in places.into_iter().flatten() {
                add(format!("killed before {i}"), done, disk.after_kill(), look);
                for luck in LUCK {
                    let what = format!("power cut before {i}, luck {luck:x}");
                    add(what, done, disk.after_power_cut(luck), look);
                }
            }
            let Some(op) = ops.get(i) else { break };
            let keeps: [fn(usize) -> usize; 3] =
                [|len| len.min(3), |len| len / 2, |len| len.saturating_sub(1)];
            for keep in keeps {
                if let Some(torn) = op.torn(keep) {
                    let mut cut = disk.clone();
                    cut.apply(&torn);
                    let look = looks.get(i * 2);
                    add(format!("killed within {i}"), i, cut.after_kill(), look);
                }
            }
            disk.apply(op);
        }
        crashes
    }

    /// Does one operation and records it; one after the other, so that the list has their order.
    fn step<T>(
        &self,
        work: impl FnOnce() -> io::Result<T>,
        op: impl FnOnce(&T) -> Op,
    ) -> io::Result<T> {
        let mut ops = self.ops();
        let done = self.looked(work)?;
        ops.push(op(&done));
        Ok(done)
    }
}

impl Disk for RecordingDisk {
    fn create(&self, path: &Path, mode: u32) -> io::Result<DiskFile> {
        let op = |file: &DiskFile| Op::Create {
            path: path.into(),
            file: file.id(),
            mode,
        };
        self.step(|| RealDisk.create(path, mode), op)
    }

    fn create_unnamed(&self, folder: &Path, mode: u32) -> io::Result<Option<DiskFile>> {
        let mut ops = self.ops();
        let none = || io::Error::from(io::ErrorKind::Unsupported);
        let created = self.looked(|| RealDisk.create_unnamed(folder, mode)?.ok_or_else(none));
        match created {
            Ok(file) => {
                let id = file.id();
                ops.push(Op::CreateUnnamed { file: id, mode });
                Ok(Some(file))
            }
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn name(&self, file: &DiskFile, path: &Path) -> io::Result<()> {
        let op = |&(): &()| Op::Name {
            file: file.id(),
            path: path.into(),
        };
        self.step(|| RealDisk.name(file, path), op)
    }

    fn open(&self, path: &Path) -> io::Result<DiskFile> {
        RealDisk.open(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<DiskFile> {
        let op = |file: &DiskFile| Op::OpenAppend {
            path: path.into(),
            file: file.id(),
        };
        self.step(|| RealDisk.open_append(path), op)
    }

    fn read(&self, file: &DiskFile, buffer: &mut [u8]) -> io::Result<usize> {
        RealDisk.read(file, buffer)
    }

    fn write(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<usize> {
        let op = |n: &usize| Op::Write {
            file: file.id(),
            bytes: bytes.get(..*n).unwrap_or(bytes).to_owned(),
        };
        self.step(|| RealDisk.write(file, bytes), op)
    }

    fn set_len(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        let id = file.id();
        let op = |&(): &()| Op::SetLen { file: id, len };
        self.step(|| RealDisk.set_len(file, len), op)
    }

    fn sync(&self, file: &DiskFile) -> io::Result<()> {
        let op = |&(): &()| Op::Sync { file: file.id() };
        self.step(|| RealDisk.sync(file), op)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let op = |&(): &()| Op::Link(from.into(), to.into());
        self.step(|| RealDisk.link(from, to), op)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let op = |&(): &()| Op::Rename(from.into(), to.into());
        self.step(|| RealDisk.rename(from, to), op)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let op = |&(): &()| Op::RemoveFile(path.into());
        self.step(|| RealDisk.remove_file(path), op)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let op = |&(): &()| Op::RemoveDir(path.into());
        self.step(|| RealDisk.remove_dir(path), op)
    }

    /// Removes one after the other, for a crash can come between any two.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let listed = match self.list(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for item in listed {
            let inner = path.join(item.name);
            if std::fs::symlink_metadata(&inner)?.is_dir() {
                self.remove_dir_all(&inner)?;
            } else {
                self.remove_file(&inner)?;
            }
        }
        self.remove_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let op = |&(): &()| Op::CreateDir(path.into());
        self.step(|| RealDisk.create_dir(path), op)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let op = |&(): &()| Op::SyncDir(path.into());
        self.step(|| RealDisk.sync_dir(path), op)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        RealDisk.list(folder)
    }
}
