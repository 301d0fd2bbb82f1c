//! A disk that remembers what was done to it, to rebuild what a crash would have left.
#![expect(clippy::cast_possible_truncation, reason = "sizes in tests are small")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use super::*;

/// One operation, as it reached the disk.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Truncate(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    RemoveFile(PathBuf),
    RemoveDir(PathBuf),
    CreateDir(PathBuf),
    SyncDir(PathBuf),
}

/// Works on the real file system and keeps a list of all operations.
#[derive(Debug, Default)]
pub(crate) struct RecordingDisk {
    ops: Mutex<Vec<Op>>,
}

impl RecordingDisk {
    /// All operations so far.
    pub(crate) fn ops(&self) -> MutexGuard<'_, Vec<Op>> {
        self.ops.lock().unwrap()
    }

    fn note(&self, op: Op) {
        self.ops().push(op);
    }
}

impl Disk for RecordingDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.note(Op::Write(path.into(), bytes.into()));
        RealDisk.write(path, bytes)
    }

    fn append(&self, file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.note(Op::Append(path.into(), bytes.into()));
        RealDisk.append(file, path, bytes)
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.note(Op::Truncate(path.into(), len));
        RealDisk.truncate(path, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(Op::Rename(from.into(), to.into()));
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.note(Op::RemoveFile(path.into()));
        RealDisk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Op::RemoveDir(path.into()));
        RealDisk.remove_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Op::CreateDir(path.into()));
        RealDisk.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Op::SyncDir(path.into()));
        RealDisk.sync_dir(path)
    }
}

/// What is under each path; `None` is a directory.
type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The disk's content in a simulation.
///
/// After `kill -9` everything done is there. After a power cut, changes of directory entries that
/// were not followed by a sync of the directory may be there or not.
#[derive(Clone, Default)]
pub(crate) struct Simulated {
    /// What running programs see.
    seen: Tree,
    /// What survives a power cut for certain.
    durable: Tree,
    /// Changes of directory entries since, oldest first.
    pending: Vec<Op>,
}

impl Simulated {
    pub(crate) fn apply(&mut self, op: &Op) {
        apply(&mut self.seen, op);
        match op {
            Op::SyncDir(dir) => {
                let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
                    .into_iter()
                    .partition(|op| parent_of(op) == dir);
                self.pending = later;
                for op in &now {
                    apply(&mut self.durable, op);
                }
            }
            // The content of a known file is synced by the operation itself.
            Op::Write(path, _) | Op::Append(path, _) | Op::Truncate(path, _)
                if self.durable.contains_key(path) =>
            {
                apply(&mut self.durable, op);
            }
            _ => self.pending.push(op.clone()),
        }
    }

    /// The content after `kill -9`.
    pub(crate) fn after_kill(&self) -> &Tree {
        &self.seen
    }

    /// The content after a power cut; bit `i` of `luck` says whether pending change `i` made it.
    pub(crate) fn after_power_cut(&self, luck: u64) -> Tree {
        let mut tree = self.durable.clone();
        for (i, op) in self.pending.iter().enumerate() {
            if luck >> (i % 64) & 1 == 1 {
                apply(&mut tree, op);
            }
        }
        // What lies in a directory that is not there is not there either.
        let reachable = |path: &PathBuf| {
            let mut above = path.ancestors().skip(1);
            // Directories that were there before the recording are in neither tree.
            above.all(|dir| tree.contains_key(dir) || !self.seen.contains_key(dir))
        };
        let lost: Vec<PathBuf> = tree.keys().filter(|p| !reachable(p)).cloned().collect();
        tree.retain(|path, _| !lost.contains(path));
        tree
    }
}

fn parent_of(op: &Op) -> &Path {
    let path = match op {
        Op::Write(path, _)
        | Op::Append(path, _)
        | Op::Truncate(path, _)
        | Op::Rename(_, path)
        | Op::RemoveFile(path)
        | Op::RemoveDir(path)
        | Op::CreateDir(path) => path,
        Op::SyncDir(_) => Path::new(""),
    };
    path.parent().unwrap_or(Path::new(""))
}

fn apply(tree: &mut Tree, op: &Op) {
    match op {
        Op::Write(path, bytes) => {
            tree.insert(path.clone(), Some(bytes.clone()));
        }
        Op::Append(path, bytes) => {
            if let Some(Some(content)) = tree.get_mut(path) {
                content.extend_from_slice(bytes);
            }
        }
        Op::Truncate(path, len) => {
            if let Some(Some(content)) = tree.get_mut(path) {
                content.truncate(*len as usize);
            }
        }
        Op::Rename(from, to) => {
            if let Some(content) = tree.remove(from) {
                tree.insert(to.clone(), content);
            }
        }
        Op::RemoveFile(path) | Op::RemoveDir(path) => {
            tree.remove(path);
        }
        Op::CreateDir(path) => {
            tree.insert(path.clone(), None);
        }
        Op::SyncDir(_) => {}
    }
}

/// The same operation cut short after `keep` bytes; `None` for those that cannot be.
pub(crate) fn torn(op: &Op, keep: impl Fn(usize) -> usize) -> Option<Op> {
    match op {
        Op::Write(path, bytes) => Some(Op::Write(path.clone(), bytes[..keep(bytes.len())].into())),
        Op::Append(path, bytes) => {
            Some(Op::Append(path.clone(), bytes[..keep(bytes.len())].into()))
        }
        _ => None,
    }
}

/// Puts a tree that was recorded below `from` into the folder `to`.
pub(crate) fn materialise(tree: &Tree, from: &Path, to: &Path) {
    for (path, content) in tree {
        let path = to.join(path.strip_prefix(from).unwrap());
        match content {
            None => fs::create_dir_all(path).unwrap(),
            Some(bytes) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
        }
    }
}
