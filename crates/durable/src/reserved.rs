//! Files whose content comes from an act that cannot be repeated.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::disk::temporary_beside;
use crate::{sync_parent, unlinked};

/// A new file that has its place before there is anything to write: whatever would keep it from being written fails
/// first, and what is asked for next is not lost by it. Nothing is left of one that is dropped.
#[derive(Debug)]
pub struct Reserved {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    kept: bool,
}

impl Reserved {
    /// Makes room for `room` bytes that will be the file `path`, which must not be there yet, not even as a link to
    /// nothing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken, else any I/O error.
    pub fn new(path: &Path, mode: u32, room: usize) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let temporary = temporary_beside(path);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode);
        let mut reserved = Self {
            path: path.to_owned(),
            file: file.open(&temporary)?,
            temporary,
            kept: false,
        };
        make_room(&mut reserved.file, room)?;
        // Whatever would keep it from getting its name without replacing anything fails now.
        let probe = temporary_beside(path);
        unlinked::name_new(&reserved.temporary, &probe)?;
        fs::rename(&probe, &reserved.temporary)?;
        Ok(reserved)
    }

    /// Writes the file, which is durable on return.
    ///
    /// # Errors
    /// Any I/O error. What was written stays in the [temporary file](LeftBehind::file) then: there is no other copy.
    pub fn write(mut self, bytes: &[u8]) -> Result<(), LeftBehind> {
        self.kept = true;
        match self.fill(bytes) {
            Ok(()) => self.name(),
            Err(source) => Err(self.left_behind(source)),
        }
    }

    /// Gives the file, which [`Self::fill`] has written, its name: for files that appear together, once all of them are
    /// written. It is durable on return.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn name(mut self) -> Result<(), LeftBehind> {
        self.kept = true;
        let named =
            unlinked::name_new(&self.temporary, &self.path).and_then(|()| sync_parent(&self.path));
        named.map_err(|source| self.left_behind(source))
    }

    fn left_behind(&self, source: io::Error) -> LeftBehind {
        LeftBehind {
            file: self.temporary.clone(),
            source,
        }
    }

    /// The file that it will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the content, which is durable on return, under no name yet.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn fill(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(bytes)?;
        self.file
            .set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        self.file.sync_all()
    }
}

/// Takes the blocks for `room` bytes.
fn make_room(file: &mut File, room: usize) -> io::Result<()> {
    let len = u64::try_from(room).unwrap_or(u64::MAX).max(1);
    match fallocate(&*file, FallocateFlags::KEEP_SIZE, 0, len) {
        Ok(()) => file.sync_all(),
        // Not every file system can promise it: then that there is room now has to do.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            file.write_all(&vec![0; room])?;
            file.sync_all()
        }
        Err(error) => Err(error.into()),
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.kept {
            // Whatever it was dropped for matters more.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// A file that did not get its name.
#[derive(Debug)]
pub struct LeftBehind {
    /// Where its content is, as far as it could be written.
    pub file: PathBuf,
    pub source: io::Error,
}

impl std::fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "what was written is in {}", self.file.display())
    }
}

impl std::error::Error for LeftBehind {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn reserved_file_gets_its_content_and_mode_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("code");
        let reserved = Reserved::new(&path, 0o600, 4096).unwrap();
        assert!(!path.exists());
        reserved.write(b"secret\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"secret\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["code"]);
        drop(Reserved::new(&folder.path().join("other"), 0o600, 1).unwrap());
        assert_eq!(names(folder.path()), ["code"]);
    }

    #[test]
    fn files_that_appear_together_are_written_before_any_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["key", "certificate"].map(|name| folder.path().join(name));
        let new = |path: &PathBuf| Reserved::new(path, 0o600, 64).unwrap();
        let mut all: Vec<Reserved> = paths.iter().map(new).collect();
        for reserved in &mut all {
            reserved.fill(b"content").unwrap();
        }
        assert!(paths.iter().all(|path| !path.exists()));
        for reserved in all {
            reserved.name().unwrap();
        }
        assert!(
            paths
                .iter()
                .all(|path| fs::read(path).unwrap() == b"content")
        );
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn what_could_not_be_written_later_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "x").unwrap();
        symlink("/nowhere/at/all", at("dangling")).unwrap();
        for taken in ["file", "dangling"] {
            let refused = Reserved::new(&at(taken), 0o600, 16).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{taken}");
        }
        assert!(Reserved::new(&at("missing/file"), 0o600, 16).is_err());
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn content_is_kept_where_the_name_was_taken_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("code");
        let reserved = Reserved::new(&path, 0o600, 64).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        let left = reserved.write(b"secret").unwrap_err();
        assert_eq!(fs::read(&left.file).unwrap(), b"secret");
        assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
    }
}
