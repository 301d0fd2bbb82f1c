use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::{Disk, DiskFile, Listed, RealDisk};

/// Operations that fail, and their errors.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Operations that succeed first.
    pub after: u32,
    /// Operations that fail then; with [`u32::MAX`] nothing works any more, as after `kill -9`.
    pub times: u32,
    /// Error number of the system.
    pub errno: i32,
}

/// The real file system, of which any operation can fail, once, for a while or for good.
#[derive(Debug, Default)]
pub struct FailingDisk {
    fault: Mutex<Option<Fault>>,
}

impl FailingDisk {
    /// Lets operations fail from now on.
    pub fn fail(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    /// The fault, with the operations that are left until it comes and ends.
    pub fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self) -> io::Result<()> {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(fault) = fault.as_mut() else {
            return Ok(());
        };
        if fault.after > 0 {
            fault.after = fault.after.saturating_sub(1);
        } else if fault.times > 0 {
            fault.times = fault.times.saturating_sub(1);
            return Err(io::Error::from_raw_os_error(fault.errno));
        }
        Ok(())
    }
}

impl Disk for FailingDisk {
    fn create(&self, path: &Path, mode: u32) -> io::Result<DiskFile> {
        self.step()?;
        RealDisk.create(path, mode)
    }
    fn create_unnamed(&self, folder: &Path, mode: u32) -> io::Result<Option<DiskFile>> {
        self.step()?;
        RealDisk.create_unnamed(folder, mode)
    }
    fn name(&self, file: &DiskFile, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.name(file, path)
    }
    fn open(&self, path: &Path) -> io::Result<DiskFile> {
        self.step()?;
        RealDisk.open(path)
    }
    fn open_append(&self, path: &Path) -> io::Result<DiskFile> {
        self.step()?;
        RealDisk.open_append(path)
    }
    fn read(&self, file: &DiskFile, buffer: &mut [u8]) -> io::Result<usize> {
        self.step()?;
        RealDisk.read(file, buffer)
    }
    fn write(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<usize> {
        self.step()?;
        RealDisk.write(file, bytes)
    }
    fn set_len(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        self.step()?;
        RealDisk.set_len(file, len)
    }
    fn sync(&self, file: &DiskFile) -> io::Result<()> {
        self.step()?;
        RealDisk.sync(file)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.remove_dir(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.remove_dir_all(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.sync_dir(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        self.step()?;
        let found = RealDisk.list(folder)?;
        // Each of them is looked at.
        for _ in &found {
            self.step()?;
        }
        Ok(found)
    }
}
