//! Locks that keep files for one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A lock on a file that lasts until it is dropped or the process dies.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Takes the lock on the file at `path`, which is made with `mode` if it is missing; `None` while another has it.
    ///
    /// # Errors
    /// Any error of making, opening or locking the file.
    pub fn take(path: &Path, mode: u32) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(mode);
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    /// Unlocks. Closing alone would leave the lock with a child between its fork and its exec, which has the file open as well.
    fn drop(&mut self) {
        // Nothing is left to do when it fails: closing unlocks.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_free_once_dropped_also_while_a_child_has_the_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = FileLock::take(&path, 0o600).unwrap().unwrap();
        assert!(FileLock::take(&path, 0o600).unwrap().is_none());
        // Shares the open file as a child does after its fork.
        let child = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(FileLock::take(&path, 0o600).unwrap().is_some());
        drop(child);
    }

    #[test]
    fn file_that_cannot_be_made_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = FileLock::take(&folder.path().join("none/lock"), 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
