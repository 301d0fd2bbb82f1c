//! One file of the watched folder: which inode it is, whether it has a writer, what it contains.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use evidence::digest::{Sha256, Sha256Digest};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// Bytes read at a time for a hash.
const BUFFER_LEN: usize = 64 * 1024;

/// A file as it was seen; enough to recognise it after a restart.
///
/// Times are part of its identity only: they are compared for equality, and never with a clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) size: u64,
    /// Nanoseconds between 1970 and the last change of the content; may be negative.
    pub(crate) modified: i128,
    /// The same for the last change of the inode; 0 in records of earlier versions, like the inode.
    #[serde(skip)]
    pub(super) changed: i128,
    #[serde(default)]
    pub(super) inode: u64,
    #[serde(default)]
    pub(super) device: u64,
    /// Hash of the content that was sealed; none before that, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<Sha256Digest>,
}

impl Source {
    pub(crate) fn new(name: String, data: &Metadata) -> Self {
        // Within what JSON's integers are read back as; some file systems keep dates of year 3000.
        let nanos = |seconds: i64, nanos: i64| {
            let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            nanos.clamp(i128::from(i64::MIN), i128::from(u64::MAX))
        };
        Self {
            name,
            size: data.len(),
            modified: nanos(data.mtime(), data.mtime_nsec()),
            changed: nanos(data.ctime(), data.ctime_nsec()),
            inode: data.ino(),
            device: data.dev(),
            sha256: None,
        }
    }

    /// Returns whether both are one inode; true where that is not known.
    pub(crate) fn is_same_inode(&self, other: &Self) -> bool {
        let known = self.inode != 0 && other.inode != 0;
        !known || (self.inode, self.device) == (other.inode, other.device)
    }

    /// Returns whether size and time of the last change of the content are equal.
    pub(crate) fn has_same_times(&self, other: &Self) -> bool {
        (self.size, self.modified) == (other.size, other.modified)
    }

    /// Returns whether nothing was done to the file between the two looks.
    pub(crate) fn is_unchanged(&self, other: &Self) -> bool {
        self.is_same_inode(other) && self.has_same_times(other) && self.changed == other.changed
    }

    /// Returns the device of the file system, if it is known.
    pub(crate) fn device(&self) -> Option<u64> {
        (self.device != 0).then_some(self.device)
    }
}

/// What the kernel says about writers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// No process has it open for writing.
    None,
    Some,
    /// The file system has no leases, or the file is another user's and the agent has no `CAP_LEASE`.
    Unknown,
}

/// A file that is open for reading.
pub(crate) struct Opened {
    pub(crate) source: Source,
    file: File,
}

impl Opened {
    /// Opens `name` in `folder`. Waits for nothing, and follows no symbolic link: another file would be sealed and the link
    /// removed.
    pub(crate) fn open(folder: &Path, name: &str) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(folder.join(name), flags, Mode::empty())?);
        let source = Source::new(name.to_owned(), &file.metadata()?);
        Ok(Self { source, file })
    }

    pub(crate) fn writers(&self) -> Writers {
        match sys::lease::has_writer(&self.file) {
            Ok(true) => Writers::Some,
            Ok(false) => Writers::None,
            Err(_) => Writers::Unknown,
        }
    }

    /// Returns whether the file is as it was when it was opened.
    pub(crate) fn is_unchanged(&self) -> io::Result<bool> {
        let now = Source::new(self.source.name.clone(), &self.file.metadata()?);
        Ok(self.source.is_unchanged(&now))
    }

    /// Returns a reader of the content, from its first byte. All readers share one position.
    pub(crate) fn reader(&self) -> io::Result<&File> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }

    /// Hashes the content.
    pub(crate) fn hash(&self) -> io::Result<Sha256Digest> {
        let mut reader = self.reader()?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; BUFFER_LEN];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(hash.finish()),
                Ok(n) => hash.update(buffer.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
