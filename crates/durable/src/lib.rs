#![forbid(unsafe_code)]
//! File operations whose effect is on disk when they return.
//!
//! A rename is durable only after the *directory* is synced as well; forgetting that is the usual
//! way to lose an acknowledged file on power loss.
//!
//! [`Disk`] is the one set of file operations of whatever must survive a crash, [`RealDisk`] the file system;
//! [`testing`] has disks that record what is done, to rebuild what a crash at any step leaves, or that fail. The
//! functions here work on the real disk.

mod disk;
mod lock;
mod reserved;
pub mod testing;
mod unlinked;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::Path;

use rustix::fs::OFlags;

pub use disk::{Disk, DiskFile, Listed, RealDisk, SharedDisk, real};
pub use lock::FileLock;
pub use reserved::{LeftBehind, Reserved};

const REAL: &dyn Disk = &RealDisk;

/// Opens a regular file to read it, without waiting: whoever puts a pipe or a device in its place would otherwise have the
/// reader wait for ever, or read without end.
///
/// # Errors
/// Any error of opening; [`io::ErrorKind::InvalidInput`] of what is no regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let metadata = file.metadata()?;
    match metadata.file_type().is_file() {
        true => Ok((file, metadata)),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is no regular file",
        )),
    }
}

/// Syncs the directory that holds `path`.
///
/// # Errors
/// Any error of opening or syncing the directory.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    REAL.sync_parent(path)
}

/// Creates `path` and all its missing parents, each one durable.
///
/// # Errors
/// Any error of creating or syncing a directory.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    REAL.create_dir_all(path)
}

/// Replaces `path` by `bytes` at once: readers and crashes see the old file or the new one.
///
/// The new file has the given Unix `mode` (for instance `0o600` for keys).
///
/// # Errors
/// Any I/O error. No temporary file is left behind, and the old file is untouched, unless only syncing the
/// directory failed.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    REAL.write_atomic(path, bytes, mode)
}

/// Replaces the content of the file `path`, which is there, at once: as [`write_atomic`], but the new file has the
/// owner, the group and the mode of the former, and a symbolic link stays one.
///
/// # Errors
/// As [`write_atomic`], and where the file cannot be given to its former owner.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let former = fs::metadata(&path)?;
    let temporary = disk::temporary_beside(&path);
    let written = REAL
        .write_new_file(&temporary, bytes, 0o600)
        .and_then(|()| chown(&temporary, Some(former.uid()), Some(former.gid())))
        // After the owner: whom it belonged to until then must not have more.
        .and_then(|()| fs::set_permissions(&temporary, former.permissions()))
        .and_then(|()| fs::rename(&temporary, &path));
    if let Err(e) = written {
        let _ = fs::remove_file(&temporary);
        return Err(e);
    }
    sync_parent(&path)
}

/// Writes the file `path`, which must not be there yet: nothing is ever replaced, whatever a look at it
/// said before.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if the name is taken, else any I/O error; no temporary file is left
/// behind.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    REAL.write_new(path, bytes, mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn replaces_content_and_sets_the_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        write_atomic(&path, b"one", 0o600).unwrap();
        write_atomic(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn new_file_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        write_new(&path, b"one", 0o600).unwrap();
        let taken = write_new(&path, b"two", 0o600).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        // A directory in the way makes the rename fail after the temporary file was written.
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        assert!(write_atomic(&path, b"x", 0o644).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn creates_nested_directories_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        create_dir_all(&path).unwrap();
        create_dir_all(&path).unwrap();
        assert!(path.is_dir());
    }
}
