//! Files that are sure to be written: their folders and their room are there before what goes into them is made.

use std::fs::DirBuilder;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::Files;
use crate::failure::{Failure, OrHint as _, Outcome};

/// Bytes of a file whose content comes later at most: a key with a chain of certificates, or an archive with them.
const LATER: usize = 64 * 1024;

/// Files under other names, with room for their content. What was not written is removed again, and so are folders made for it.
#[derive(Default)]
pub(in crate::commands) struct Reserved {
    files: Vec<(String, PathBuf, NamedTempFile)>,
    /// Each before those in it.
    folders: Vec<PathBuf>,
}

impl Reserved {
    /// Makes the folder of a file and those above it, where they are missing: for this user alone, whatever the umask is.
    pub(super) fn folder_of(&mut self, path: &Path) -> Outcome {
        let Some(folder) = path.parent() else {
            return Ok(());
        };
        let above = folder
            .ancestors()
            .take_while(|at| !at.as_os_str().is_empty());
        let mut missing: Vec<&Path> = above.take_while(|at| !is_there(at)).collect();
        missing.reverse();
        for folder in missing {
            let what = || format!("cannot make {}", folder.display());
            let made = DirBuilder::new().mode(0o700).create(folder);
            made.or_hint(what(), "check the parent folder")?;
            self.folders.push(folder.to_owned());
            durable::sync_parent(folder).or_hint(what(), "check the parent folder")?;
        }
        Ok(())
    }

    /// Makes a file that becomes `path`, with room for `len` bytes, or for what comes later.
    pub(super) fn file(&mut self, name: &str, path: PathBuf, len: Option<usize>) -> Outcome {
        let what = || format!("cannot write {}", path.display());
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        // It is for its owner alone.
        let made = tempfile::Builder::new()
            .prefix(".cordon-")
            .tempfile_in(folder.unwrap_or(Path::new(".")));
        let file = made.or_hint(what(), "check the folder's rights")?;
        let len = len.unwrap_or(LATER);
        make_room(&file, len).or_hint(what(), "make room on the disk")?;
        self.files.push((name.to_owned(), path, file));
        Ok(())
    }

    /// Writes what was reserved, and gives each file its name.
    pub(in crate::commands) fn write(mut self, files: &Files) -> Outcome {
        for (name, path, file) in &mut self.files {
            let what = || format!("cannot write {}", path.display());
            let Some(bytes) = files.content(name) else {
                let error = anyhow::anyhow!("{} has no content", path.display());
                return Err(Failure::new(error, "report this"));
            };
            let file = file.as_file_mut();
            let written = file
                .write_all(bytes)
                // Room that is not needed.
                .and_then(|()| file.set_len(bytes.len() as u64))
                .and_then(|()| file.sync_all());
            written.or_hint(what(), "make room on the disk")?;
        }
        let mut named = Vec::new();
        for (_, path, file) in std::mem::take(&mut self.files) {
            if let Err(failure) = give_name(file, &path) {
                // All of them or none: what is said of a key that could not be stored is true then.
                for path in named {
                    let _ = std::fs::remove_file::<PathBuf>(path);
                }
                return Err(failure);
            }
            named.push(path);
        }
        Ok(())
    }
}

/// Gives a file its name, which nobody else may have taken meanwhile.
fn give_name(file: NamedTempFile, path: &Path) -> Outcome {
    let what = || format!("cannot write {}", path.display());
    if let Err(error) = file.persist_noclobber(path) {
        let hint = match error.error.kind() {
            ErrorKind::AlreadyExists => "somebody has put a file there meanwhile",
            _ => "check the folder's rights",
        };
        return Err(error.error).or_hint(what(), hint);
    }
    durable::sync_parent(path).or_hint(what(), "check the disk")
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.files.clear();
        for folder in self.folders.iter().rev() {
            // One in which there is something stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Whether a name is taken, be it by a link to nothing.
fn is_there(path: &Path) -> bool {
    !matches!(std::fs::symlink_metadata(path), Err(error) if error.kind() == ErrorKind::NotFound)
}

fn make_room(file: &NamedTempFile, len: usize) -> std::io::Result<()> {
    let file = file.as_file();
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, len.max(1) as u64) {
        Ok(()) => Ok(()),
        // Not every file system can promise it: then that there is room now has to do.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let mut file = file;
            file.write_all(&vec![0; len])?;
            file.sync_all()?;
            file.set_len(0)?;
            std::io::Seek::rewind(&mut file)
        }
        Err(error) => Err(error.into()),
    }
}
