//! The file operations of the spool, one method for each step that a crash can separate.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::path::Path;

/// Performs file operations; in tests any of them can fail, once, for a while or from then on as
/// after `kill -9`.
#[derive(Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) fault: std::sync::Mutex<Option<Fault>>,
}

/// Which operations fail in a test, and how.
#[cfg(test)]
pub(super) struct Fault {
    /// Operations that succeed first.
    pub(super) after: u32,
    /// Operations that fail then.
    pub(super) times: u32,
    /// Error number of the system.
    pub(super) errno: i32,
}

impl Disk {
    #[cfg(test)]
    pub(super) fn step(&self) -> io::Result<()> {
        let mut fault = self.fault.lock().unwrap();
        let Some(fault) = fault.as_mut() else {
            return Ok(());
        };
        if fault.after > 0 {
            fault.after -= 1;
        } else if fault.times > 0 {
            fault.times -= 1;
            return Err(io::Error::from_raw_os_error(fault.errno));
        }
        Ok(())
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

    /// Names and sizes of what is in a folder; an error of any one is an error of the whole, for
    /// what is not seen must not look as if it were not there.
    pub(super) fn list(&self, folder: &Path) -> io::Result<Vec<(OsString, u64)>> {
        self.step()?;
        let mut files = Vec::new();
        for item in fs::read_dir(folder)? {
            self.step()?;
            let item = item?;
            files.push((item.file_name(), item.metadata()?.len()));
        }
        Ok(files)
    }

    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        File::open(path)
    }

    pub(super) fn read(&self, file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
        self.step()?;
        crate::seal::read_full(file, buffer)
    }

    /// The whole file; `FileTooLarge` if it has more than `max` bytes.
    pub(super) fn load(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        self.step()?;
        let mut bytes = Vec::new();
        file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
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
