#![forbid(unsafe_code)]
//! File operations whose effect is on disk when they return.
//!
//! A rename is durable only after the *directory* is synced as well; forgetting that is the usual
//! way to lose an acknowledged file on power loss.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Syncs the directory `path`, so that entries created, renamed or removed in it survive a crash.
///
/// # Errors
/// Any error of opening or syncing the directory.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Syncs the directory that holds `path`.
///
/// # Errors
/// As [`sync_dir`].
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => sync_dir(Path::new(".")),
    }
}

/// Creates `path` and all its missing parents, each one durable.
///
/// # Errors
/// Any error of creating or syncing a directory.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
    {
        create_dir_all(parent)?;
    }
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    sync_parent(path)
}

/// Replaces `path` by `bytes` at once: readers and crashes see the old file or the new one.
///
/// The new file has the given Unix `mode` (for instance `0o600` for keys).
///
/// # Errors
/// Any I/O error; the old file is then untouched and no temporary file is left behind.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = temporary_beside(path);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(e) = written {
        // The original error matters more than whether the clean-up worked.
        let _ = fs::remove_file(&temporary);
        return Err(e);
    }
    sync_parent(path)
}

/// A name beside `path` that no other call of this process is using.
fn temporary_beside(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let n = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{n}.tmp", std::process::id()))
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
