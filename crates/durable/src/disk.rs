//! The file operations that a crash can separate, behind a trait.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::unlinked;

/// A disk that several users share.
pub type SharedDisk = Arc<dyn Disk>;

/// An open file of a [`Disk`]; all operations on it are the disk's.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    id: u64,
}

impl DiskFile {
    /// Wraps a file that a disk has opened.
    #[must_use]
    pub fn new(file: File) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { file, id }
    }

    /// The file of the operating system.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The number of this opening, which no other of the process has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// Name and size of what is in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: OsString,
    /// Bytes of a file; of no meaning for a folder.
    pub len: u64,
}

/// File operations, each one a step before and after which a crash can come.
///
/// Written bytes survive a power cut after [`Self::sync`], names after [`Self::sync_dir`] of the folder that holds
/// them. What is made of several steps stands beside the trait (`impl dyn Disk`), the same for every disk.
pub trait Disk: Send + Sync + Debug {
    /// Creates the file `path`, which must not be there, with the permission bits `mode`.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken.
    fn create(&self, path: &Path, mode: u32) -> io::Result<DiskFile>;
    /// Creates a file in `folder` that has no name until [`Self::name`] gives it one, and that is gone with its
    /// last user; `None` where the file system has no such files.
    ///
    /// # Errors
    /// Any error of creating it.
    fn create_unnamed(&self, folder: &Path, mode: u32) -> io::Result<Option<DiskFile>>;
    /// Gives a file of [`Self::create_unnamed`] its name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken.
    fn name(&self, file: &DiskFile, path: &Path) -> io::Result<()>;
    /// Opens the file `path` for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn open(&self, path: &Path) -> io::Result<DiskFile>;
    /// Opens the file `path`, which is there, for writing at its end.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn open_append(&self, path: &Path) -> io::Result<DiskFile>;
    /// Fills `buffer` as far as the file goes; the result is the number of bytes.
    ///
    /// # Errors
    /// Any error of reading.
    fn read(&self, file: &DiskFile, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes at the end of the file; the result is how many of the bytes were taken.
    ///
    /// # Errors
    /// Any error of writing.
    fn write(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts the file to `len` bytes.
    ///
    /// # Errors
    /// Any error of cutting.
    fn set_len(&self, file: &DiskFile, len: u64) -> io::Result<()>;
    /// Makes the file's bytes and length durable.
    ///
    /// # Errors
    /// Any error of syncing. What was written since the last sync may then be lost, whatever a second call says.
    fn sync(&self, file: &DiskFile) -> io::Result<()>;
    /// Gives the file `from` a second name on the same file system.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name `to` is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Moves the file `from` to the name `to`, which must not be taken, on a file system without hard links (FAT, exFAT).
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken; [`io::ErrorKind::Unsupported`] of a disk that has links.
    fn move_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Renames a file or a folder; a file `to` is replaced.
    ///
    /// # Errors
    /// Any error of renaming.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; a missing one is no error.
    ///
    /// # Errors
    /// Any other error of removing.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder; a missing one is no error.
    ///
    /// # Errors
    /// Any other error of removing.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder and all that is in it, never through a symbolic link; a missing one is no error.
    ///
    /// # Errors
    /// Any other error of removing; some of it may then be gone.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Creates one folder; an existing one is no error.
    ///
    /// # Errors
    /// Any other error of creating.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes names that were created, changed or removed in the folder durable.
    ///
    /// # Errors
    /// Any error of opening or syncing it.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Names and sizes of what is in a folder; an error of any one is an error of the whole, for what is not seen must
    /// not look as if it were not there.
    ///
    /// # Errors
    /// Any error of reading the folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>>;
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// The real file system, to share.
#[must_use]
pub fn real() -> SharedDisk {
    Arc::new(RealDisk)
}

impl Disk for RealDisk {
    fn create(&self, path: &Path, mode: u32) -> io::Result<DiskFile> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(mode);
        options.open(path).map(DiskFile::new)
    }

    fn create_unnamed(&self, folder: &Path, mode: u32) -> io::Result<Option<DiskFile>> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => Ok(Some(DiskFile::new(File::from(file)))),
            // NFS has none.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn name(&self, file: &DiskFile, path: &Path) -> io::Result<()> {
        // The way that needs no capability (open(2), O_TMPFILE).
        let source = format!("/proc/self/fd/{}", file.file().as_raw_fd());
        rustix::fs::linkat(CWD, &source, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<DiskFile> {
        File::open(path).map(DiskFile::new)
    }

    fn open_append(&self, path: &Path) -> io::Result<DiskFile> {
        let opened = OpenOptions::new().append(true).open(path);
        opened.map(DiskFile::new)
    }

    fn read(&self, file: &DiskFile, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.file().read(rest) {
                Ok(0) => break,
                Ok(n) => filled = filled.saturating_add(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    fn write(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<usize> {
        file.file().write(bytes)
    }

    fn set_len(&self, file: &DiskFile, len: u64) -> io::Result<()> {
        file.file().set_len(len)
    }

    fn sync(&self, file: &DiskFile) -> io::Result<()> {
        // The length is among the data; only times and rights are not.
        file.file().sync_data()
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn move_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        unlinked::move_new(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_dir(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_dir_all(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let mut found = Vec::new();
        for item in fs::read_dir(folder)? {
            let item = item?;
            let (name, len) = (item.file_name(), item.metadata()?.len());
            found.push(Listed { name, len });
        }
        Ok(found)
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The folder that holds `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl dyn Disk + '_ {
    /// Writes all `bytes` at the end of the file; not durable before [`Disk::sync`].
    ///
    /// # Errors
    /// Any error of writing; some of the bytes may then be there.
    pub fn write_all(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write(file, rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The end of the file as a writer; its bytes are not durable before [`Disk::sync`].
    pub fn writer<'a>(&'a self, file: &'a DiskFile) -> impl io::Write + 'a {
        Writer { disk: self, file }
    }

    /// Writes all `bytes` at the end of the file and makes them durable.
    ///
    /// # Errors
    /// Any error of writing or syncing; what is there then is unknown.
    pub fn append(&self, file: &DiskFile, bytes: &[u8]) -> io::Result<()> {
        self.write_all(file, bytes)?;
        self.sync(file)
    }

    /// Cuts the file `path` to `len` bytes, durably.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let file = self.open_append(path)?;
        self.set_len(&file, len)?;
        self.sync(&file)
    }

    /// Writes the file `path` anew and syncs it, not its folder; what a crash leaves may be part of it.
    ///
    /// # Errors
    /// Any I/O error; some of the bytes may then be there.
    pub fn write_file(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let file = self.emptied(path, mode)?;
        self.append(&file, bytes)
    }

    /// Writes the file `path` anew and syncs nothing: a power cut may leave any part of it.
    ///
    /// # Errors
    /// Any I/O error; some of the bytes may then be there.
    pub fn write_unsynced(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let file = self.emptied(path, mode)?;
        self.write_all(&file, bytes)
    }

    /// The file `path`, created or emptied, for writing.
    fn emptied(&self, path: &Path, mode: u32) -> io::Result<DiskFile> {
        match self.create(path, mode) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let file = self.open_append(path)?;
                self.set_len(&file, 0)?;
                Ok(file)
            }
            other => other,
        }
    }

    /// The whole file `path`.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] if it has more than `max` bytes, else any I/O error.
    pub fn load(&self, path: &Path, max: usize) -> io::Result<Vec<u8>> {
        const PIECE: usize = 64 * 1024;
        let file = self.open(path)?;
        let mut bytes = Vec::new();
        loop {
            let start = bytes.len();
            bytes.resize(start.saturating_add(PIECE), 0);
            let n = self.read(&file, bytes.get_mut(start..).unwrap_or_default())?;
            bytes.truncate(start.saturating_add(n));
            if bytes.len() > max {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if n < PIECE {
                return Ok(bytes);
            }
        }
    }

    /// Creates `path` and its missing parents, each one durable.
    ///
    /// # Errors
    /// Any error of creating or syncing a folder.
    pub fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let parent = parent(path);
        if path.is_dir() {
            // An earlier call may have ended between the two lines below. Where this account cannot even read the
            // parent, somebody else made the entry.
            return match self.sync_dir(parent) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                other => other,
            };
        }
        self.create_dir_all(parent)?;
        self.create_dir(path)?;
        self.sync_dir(parent)
    }

    /// Syncs the folder that holds `path`.
    ///
    /// # Errors
    /// As [`Disk::sync_dir`].
    pub fn sync_parent(&self, path: &Path) -> io::Result<()> {
        self.sync_dir(parent(path))
    }

    /// Replaces `path` at once, by way of the file `temporary` beside it: a crash leaves the old content or the new,
    /// and perhaps `temporary`, which the next call removes.
    ///
    /// # Errors
    /// Any I/O error; the old file is untouched unless only syncing the folder failed.
    pub fn replace_by(
        &self,
        temporary: &Path,
        path: &Path,
        bytes: &[u8],
        mode: u32,
    ) -> io::Result<()> {
        self.remove_file(temporary)?;
        let written = self
            .write_new_file(temporary, bytes, mode)
            .and_then(|()| self.rename(temporary, path));
        if let Err(e) = written {
            // The original error matters more than whether the clean-up worked.
            let _ = self.remove_file(temporary);
            return Err(e);
        }
        self.sync_parent(path)
    }

    /// Replaces `path` by `bytes` at once: readers and crashes see the old file or the new one.
    ///
    /// The new file has the given Unix `mode` (for instance `0o600` for keys).
    ///
    /// # Errors
    /// As [`Self::replace_by`].
    pub fn write_atomic(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.replace_by(&temporary_beside(path), path, bytes, mode)
    }

    /// Writes the file `path`, which must not be there yet: nothing is ever replaced, whatever a look at it said
    /// before.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken, else any I/O error; no temporary file is left behind.
    pub fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let temporary = temporary_beside(path);
        let written = self
            .write_new_file(&temporary, bytes, mode)
            // A link, not a rename: that would replace.
            .and_then(|()| match self.link(&temporary, path) {
                Err(error) if unlinked::has_no_links(&error) => self.move_new(&temporary, path),
                linked => linked,
            });
        // What happened before matters more than whether the clean-up worked.
        let _ = self.remove_file(&temporary);
        written?;
        self.sync_parent(path)
    }

    pub(crate) fn write_new_file(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let file = self.create(path, mode)?;
        self.append(&file, bytes)
    }
}

struct Writer<'a> {
    disk: &'a (dyn Disk + 'a),
    file: &'a DiskFile,
}

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.write(self.file, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A name beside `path` that no other call of this process is using.
pub(crate) fn temporary_beside(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let n = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{n}.tmp", std::process::id()))
}
