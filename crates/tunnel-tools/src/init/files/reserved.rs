//! Files that are sure to be written: their folders and their room are there before what goes into them is made.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use commandline::{Failure, OrHint as _, Outcome};

use super::Files;

/// Bytes of a file whose content comes later at most: a key with a chain of certificates, or an archive with them.
const LATER: usize = 64 * 1024;
/// It is for its owner alone.
const MODE: u32 = 0o600;

/// Files under other names, with room for their content. What was not written is removed again, and so are folders made for it.
#[derive(Default)]
pub(crate) struct Reserved {
    files: Vec<(String, durable::Reserved)>,
    /// Each before those in it.
    folders: Vec<PathBuf>,
}

impl Reserved {
    /// Makes the folder of a file and those above it, where they are missing: for this user alone, with any umask.
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
    pub(super) fn file(&mut self, name: &str, path: &Path, len: Option<usize>) -> Outcome {
        let what = || format!("cannot write {}", path.display());
        let reserved =
            durable::Reserved::new(path, MODE, len.unwrap_or(LATER)).map_err(|error| {
                let hint = match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on the disk",
                    ErrorKind::AlreadyExists => TAKEN,
                    _ => "check the folder's rights",
                };
                Failure::new(anyhow::Error::new(error).context(what()), hint)
            })?;
        self.files.push((name.to_owned(), reserved));
        Ok(())
    }

    /// Writes what was reserved, and gives each file its name.
    pub(crate) fn write(mut self, files: &Files) -> Outcome {
        for (name, reserved) in &mut self.files {
            let what = format!("cannot write {}", reserved.path().display());
            let Some(bytes) = files.content(name) else {
                let error = anyhow::anyhow!("{} has no content", reserved.path().display());
                return Err(Failure::new(error, "report this"));
            };
            reserved
                .fill(bytes)
                .or_hint(what, "make room on the disk")?;
        }
        let mut named = Vec::new();
        for (_, reserved) in std::mem::take(&mut self.files) {
            let path = reserved.path().to_owned();
            if let Err(left) = reserved.name() {
                // All of them or none: what is said of a key that could not be stored is true then.
                for file in named.iter().chain([&left.file]) {
                    let _ = std::fs::remove_file::<&PathBuf>(file);
                }
                let hint = match left.source.kind() {
                    ErrorKind::AlreadyExists => TAKEN,
                    _ => "check the folder's rights and its disk",
                };
                return Err(left.source).or_hint(format!("cannot write {}", path.display()), hint);
            }
            named.push(path);
        }
        Ok(())
    }
}

const TAKEN: &str = "another process created a file there meanwhile";

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
