//! The file operations of the spool, one method for each step that a crash can separate.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Performs file operations; in tests it can stop before any of them, as `kill -9` would.
#[derive(Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) steps_left: std::sync::Mutex<Option<u32>>,
}

impl Disk {
    #[cfg(test)]
    pub(super) fn step(&self) -> io::Result<()> {
        let mut left = self.steps_left.lock().unwrap();
        match left.as_mut() {
            None => Ok(()),
            Some(0) => Err(io::Error::other("simulated crash")),
            Some(n) => {
                *n -= 1;
                Ok(())
            }
        }
    }

    #[cfg(not(test))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "fails in tests only"
    )]
    pub(super) fn step(&self) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        OpenOptions::new().write(true).create_new(true).open(path)
    }

    pub(super) fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        self.step()?;
        file.write(bytes)
    }

    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        self.step()?;
        file.sync_all()
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        fs::rename(from, to)
    }

    /// Removes a file; one that is gone already is no error.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        match fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    pub(super) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        File::open(path)?.sync_all()
    }

    /// Replaces `folder/name` by `bytes`: after a crash it has the old or the new content.
    pub(super) fn replace(&self, folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = folder.join(format!("{name}{}", super::TEMPORARY));
        let target = folder.join(name);
        // A crash may have left one behind.
        self.remove(&temporary)?;
        let written = self.write_new(&temporary, bytes);
        if let Err(e) = written {
            let _ = self.remove(&temporary);
            return Err(e);
        }
        self.rename(&temporary, &target)?;
        self.sync_dir(folder)
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create(path)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = self.write(&mut file, rest)?;
            rest = rest.get(n..).unwrap_or_default();
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.sync(&file)
    }
}
