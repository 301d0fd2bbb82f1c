//! Sources that could not be sealed are set aside with the reason.
//!
//! The folder `watch.rejected` has the files of each group beside `STEM.reason.txt`. The reason is on disk before the first
//! file moves, so that no crash leaves files without one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use pki::file;
use rustix::fs::{CWD, RenameFlags};
/// Ends the name of the file with the reason.
const REASON: &str = ".reason.txt";
/// Sources are evidence; the folder says who may read them.
const FILE_MODE: u32 = 0o666;

/// Moves files into `folder` under a free name, after writing why.
pub(crate) fn set_aside(
    watched: &Path,
    folder: &Path,
    stem: &str,
    names: &[&str],
    reason: &str,
) -> io::Result<()> {
    let note = format!("{stem}{REASON}");
    let prefix = free_prefix(folder, names.iter().copied().chain([note.as_str()]))?;
    let path = folder.join(format!("{prefix}{note}"));
    let text = format!("{reason}\n");
    file::write_atomic(&path, text.as_bytes(), FILE_MODE).map_err(io::Error::other)?;
    for name in names {
        let to = folder.join(format!("{prefix}{name}"));
        if let Err(error) = move_to(&watched.join(name), &to) {
            // Without any file the reason is about nothing.
            if names.first() == Some(name) {
                fs::remove_file(&path)?;
            }
            return Err(error);
        }
    }
    Ok(())
}

/// A prefix with which none of the names is taken in `folder`: none, or `1-`, `2-`, …
pub(crate) fn free_prefix<'a>(
    folder: &Path,
    names: impl IntoIterator<Item = &'a str> + Clone,
) -> io::Result<String> {
    let mut prefix = String::new();
    let mut n: u64 = 0;
    loop {
        let mut taken = false;
        for name in names.clone() {
            taken |= exists(&folder.join(format!("{prefix}{name}")))?;
        }
        if !taken {
            return Ok(prefix);
        }
        n = n.saturating_add(1);
        prefix = format!("{n}-");
    }
}

/// Moves a file into `folder` under a free name.
pub(crate) fn move_into(from: &Path, folder: &Path, name: &str) -> io::Result<PathBuf> {
    let to = folder.join(format!("{}{name}", free_prefix(folder, [name])?));
    move_to(from, &to)?;
    Ok(to)
}

/// Moves a file, by copying if the folder is on another file system; nothing is overwritten.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    match rename(from, to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            let copied = copy(from, to);
            if copied.is_err() {
                // Half of a file, which would take the name.
                let _ = fs::remove_file(to);
            }
            copied?;
            fs::remove_file(from)
        }
        other => other,
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut target = File::create_new(to)?;
    io::copy(&mut File::open(from)?, &mut target)?;
    target.sync_all()?;
    match to.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Renames a file, and replaces none.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot promise it (NFS, some of FUSE).
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if exists(to)? {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        other => Ok(other?),
    }
}

/// Returns whether the name is taken, also by a symbolic link to nothing.
pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
