//! Blocks on their way into the spool.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use durable::{DiskFile, SharedDisk};

use super::error::SpoolError;

/// A block being written; removed when dropped without [`super::Spool::commit`].
pub struct SpoolWriter {
    file: DiskFile,
    path: PathBuf,
    written: u64,
    disk: SharedDisk,
}

impl SpoolWriter {
    pub(super) const fn new(file: DiskFile, path: PathBuf, disk: SharedDisk) -> Self {
        Self {
            file,
            path,
            written: 0,
            disk,
        }
    }

    /// Has the disk keep what was written. With a film that takes a second, and the spool is not needed for it: whoever
    /// shares the spool with others has it free meanwhile.
    ///
    /// # Errors
    /// [`SpoolError::NoSpace`] or [`SpoolError::Io`]; the block is removed then.
    pub fn finish(self) -> Result<WrittenBlock, SpoolError> {
        self.disk.sync(&self.file).map_err(SpoolError::from_io)?;
        Ok(WrittenBlock(self))
    }
}

impl Write for SpoolWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.disk.write(&self.file, bytes)?;
        self.written = self.written.saturating_add(n as u64);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        // After a commit the name is gone, and removing what is gone is no error.
        let _ = self.disk.remove_file(&self.path);
    }
}

/// A block whose bytes the disk keeps, under a name that no start takes for a block yet; removed when dropped without
/// [`super::Spool::commit`].
pub struct WrittenBlock(SpoolWriter);

impl WrittenBlock {
    /// Size in bytes.
    pub(super) const fn len(&self) -> u64 {
        self.0.written
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.path
    }
}
