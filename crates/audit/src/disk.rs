//! The file operations whose order makes the log durable, behind a trait, so that tests can
//! record them and rebuild the disk as it was after any of them.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// Audit data are for the service's account only.
const FILE_MODE: u32 = 0o600;

/// Durable file operations.
pub(crate) trait Disk: Send + Sync + Debug {
    /// Creates or replaces the content of `path` and syncs the file, not its directory.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Appends to `file`, which is open on `path`, and syncs the data.
    fn append(&self, file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Cuts `path` to `len` bytes and syncs it.
    fn truncate(&self, path: &Path, len: u64) -> io::Result<()>;
    /// Renames within one directory; durable after [`Self::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; a missing file is no error.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory; a missing one is no error.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates one directory; an existing one is no error.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the directory's entries durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// The real file system.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn append(&self, file: &mut File, _path: &Path, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)?;
        file.sync_data()
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(len)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_dir(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A shared disk.
pub(crate) type SharedDisk = Arc<dyn Disk>;

/// The real file system, to share.
pub(crate) fn real() -> SharedDisk {
    Arc::new(RealDisk)
}

/// Creates `path` and its missing parents, each one durable.
pub(crate) fn create_dir_all(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.is_dir() {
        // An earlier call may have ended between the two lines below. Where this account cannot
        // even read the parent, somebody else made the entry.
        return match disk.sync_dir(parent) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        };
    }
    create_dir_all(disk, parent)?;
    disk.create_dir(path)?;
    disk.sync_dir(parent)
}

/// Replaces `path` at once: a crash leaves the old content or the new.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    disk.write(&temporary, bytes)?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(path.parent().unwrap_or_else(|| Path::new(".")))
}

/// Holds `dir/lock` for this process until dropped; the kernel frees it when the process dies.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock; `None` when another holder has it.
    pub(crate) fn take(dir: &Path) -> io::Result<Option<Self>> {
        use rustix::fs::{FlockOperation, flock};
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(dir.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
pub(crate) mod recording;
