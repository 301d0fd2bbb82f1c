//! A role's own journal: hash-chained records in append-only segment files.
//!
//! ```text
//! <first seq, 20 digits>.journal
//!   "CORDONJ1" | u64 first seq | 32 bytes prev         header of a segment without a key
//!   u32 length | leaf | 32 bytes SHA-256(leaf)         one record, numbers big endian
//! <first seq, 20 digits>.journal
//!   "CORDONJ2" | u64 first seq | 32 bytes prev         header of a segment with a key
//!   u32 length | leaf | 32 bytes authenticator | 32 bytes SHA-256(leaf | authenticator)
//! shipped                                              "seq leaf_index", how far it was shipped
//! lock                                                 held by the one writer
//! ```
//!
//! The leaf (see [`Leaf`]) names its role and number and the SHA-256 of the leaf before it, so the records are a chain.
//! The checksum tells damage. The authenticator ([`Authenticator`], purpose `journal/<role>`) tells that the record was written
//! by a process with the log's key: the journals of a log have one, as what they have and the log lacks is shipped and
//! signed. Those of cameras and tunnels have no key; whoever writes to their disk writes their records.
//!
//! Of a segment without a key, a journal with one believes the records that the log is known to have: earlier versions
//! wrote them. The next record begins a new segment then.
//!
//! A crash can leave an unfinished record at the end of the newest segment. [`Journal::open`] cuts
//! it only if it was never acknowledged; every other defect is an error that names the record.

use std::io;
use std::path::{Path, PathBuf};

use durable::{DiskFile, FileLock, SharedDisk};

use crate::FILE_MODE;
use crate::authenticator::Authenticator;
use crate::event::{Event, EventError};
use crate::hash::Hash;
use crate::leaf::{Leaf, chain_hash, is_role_name};

mod segment;

use segment::{Proof, Segment, push_record, segment_path};
pub use segment::{Record, Records};

/// Size at which a new segment is started, in bytes (our choice: read in well under a second).
pub const SEGMENT_BYTES: u64 = 32 << 20;

/// What can go wrong with a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system failed.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// Another process writes to this journal.
    #[error("journal {} is in use by another writer", .0.display())]
    Locked(PathBuf),
    /// A record is not what was written.
    #[error("record {seq} in {} is damaged: {reason}", path.display())]
    Damaged {
        path: PathBuf,
        /// Number of the first damaged record.
        seq: u64,
        reason: &'static str,
    },
    /// A record that was acknowledged is missing.
    #[error("record {missing} is missing from {}", path.display())]
    Missing {
        path: PathBuf,
        /// Number of the first missing record.
        missing: u64,
    },
    /// A record was not written by a process that has the log's key.
    #[error("record {seq} in {}, from byte {offset}, was not written with the log's key", path.display())]
    NotAuthentic {
        path: PathBuf,
        /// Number of the first such record.
        seq: u64,
        /// Its beginning, in bytes from that of the file.
        offset: u64,
    },
    /// A record of a segment without a key is not known to be in the log.
    #[error(
        "record {seq} in {} is of an earlier version, which anybody with the disk could write, and not in the log",
        path.display()
    )]
    Unproven {
        path: PathBuf,
        /// Number of the first such record.
        seq: u64,
    },
    /// A file of the journal has the wrong form.
    #[error("{} is not a file of this journal: {reason}", path.display())]
    Foreign { path: PathBuf, reason: &'static str },
    /// Not a role name.
    #[error("{0:?} is not a role name")]
    RoleName(String),
    /// The event cannot be recorded; nothing was written.
    #[error("event cannot be recorded")]
    Event(#[from] EventError),
    /// An earlier write failed, so what is on disk is unknown until [`Journal::reopen`].
    #[error("journal stopped after a failed write")]
    Stopped,
}

/// How to open a journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// Size at which a new segment is started, in bytes.
    pub segment_bytes: u64,
    /// Records up to this number are known to have been acknowledged, so none of them may be
    /// missing or unfinished.
    pub acknowledged: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            acknowledged: 0,
        }
    }
}

/// How far a journal was shipped to the central log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Number of the last shipped record.
    pub seq: u64,
    /// Where it is in the central log.
    pub leaf_index: u64,
}

/// The only writer of a role's journal.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    role: String,
    disk: SharedDisk,
    proof: Proof,
    _lock: FileLock,
    segment_bytes: u64,
    file: DiskFile,
    path: PathBuf,
    len: u64,
    /// Records may be added to the newest segment: it is of the kind that this journal writes.
    is_current: bool,
    last_seq: u64,
    head: Hash,
    stopped: bool,
}

impl Journal {
    /// Opens the journal of `role` in `dir`, or starts an empty one there. It has no key: its records have a checksum, and
    /// whoever can write to the disk can write records.
    ///
    /// # Errors
    /// [`JournalError::Locked`] while another writer runs, and the variants that say what is
    /// damaged or missing.
    pub fn open(dir: &Path, role: &str, options: JournalOptions) -> Result<Self, JournalError> {
        Self::open_on(durable::real(), dir, role, options, None)
    }

    /// Does the same on another disk, and with a key.
    pub(crate) fn open_on(
        disk: SharedDisk,
        dir: &Path,
        role: &str,
        options: JournalOptions,
        authenticator: Option<Authenticator>,
    ) -> Result<Self, JournalError> {
        if !is_role_name(role) {
            return Err(JournalError::RoleName(role.to_owned()));
        }
        disk.create_dir_all(dir).map_err(at(dir))?;
        let lock = FileLock::take(&dir.join("lock"), FILE_MODE).map_err(at(dir))?;
        let lock = lock.ok_or_else(|| JournalError::Locked(dir.to_owned()))?;
        let proof = Proof::new(authenticator, options.acknowledged);
        let acknowledged = read_shipped(dir)?
            .map_or(0, |shipped| shipped.seq)
            .max(options.acknowledged);
        // A segment whose renaming was cut short is seen, but a power cut could still undo it.
        disk.sync_dir(dir).map_err(at(dir))?;
        let newest = match segment::list(dir)?.pop() {
            Some(first) => Segment::recover(&*disk, dir, first, role, acknowledged, &proof)?,
            None => Segment::create(&*disk, dir, 1, &[0; 32], &proof)?,
        };
        if newest.last_seq < acknowledged {
            return Err(JournalError::Missing {
                path: dir.to_owned(),
                missing: newest.last_seq + 1,
            });
        }
        Ok(Self {
            dir: dir.to_owned(),
            role: role.to_owned(),
            _lock: lock,
            segment_bytes: options.segment_bytes,
            file: disk.open_append(&newest.path).map_err(at(&newest.path))?,
            disk,
            proof,
            path: newest.path,
            len: newest.len,
            is_current: newest.is_current,
            last_seq: newest.last_seq,
            head: newest.head,
            stopped: false,
        })
    }

    /// Takes the state from the disk again if a write failed; keeps the lock meanwhile.
    ///
    /// What the failed write left is cut off, even if it looks whole: a record whose sync failed
    /// can be read now and be gone after a power cut.
    ///
    /// # Errors
    /// As [`Self::open`]; the journal then stays stopped.
    pub fn reopen(&mut self) -> Result<(), JournalError> {
        if !self.stopped {
            return Ok(());
        }
        let path = &self.path;
        if std::fs::metadata(path).map_err(at(path))?.len() > self.len {
            self.disk.truncate(path, self.len).map_err(at(path))?;
        }
        let (dir, disk) = (&self.dir, &*self.disk);
        disk.sync_dir(dir).map_err(at(dir))?;
        let newest = segment::list(dir)?.pop().unwrap_or(1);
        let newest = Segment::recover(disk, dir, newest, &self.role, self.last_seq, &self.proof)?;
        if (newest.last_seq, newest.head) != (self.last_seq, self.head) {
            return Err(JournalError::Damaged {
                path: newest.path,
                seq: newest.last_seq + 1,
                reason: "changed while the journal was stopped",
            });
        }
        self.file = disk.open_append(&newest.path).map_err(at(&newest.path))?;
        (self.path, self.len, self.is_current) = (newest.path, newest.len, newest.is_current);
        self.stopped = false;
        Ok(())
    }

    /// Number of the newest record; 0 when there is none.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The hash that the next record will carry as `prev`.
    #[must_use]
    pub fn head(&self) -> Hash {
        self.head
    }

    /// The role whose journal this is.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Appends one event; durable on return. Gives its number.
    ///
    /// # Errors
    /// As [`Self::append_batch`].
    pub fn append(&mut self, event: Event) -> Result<u64, JournalError> {
        self.append_batch(vec![event])?;
        Ok(self.last_seq)
    }

    /// Appends `events` in order with a single sync; durable on return. Gives their leaves.
    ///
    /// After a failed write the journal refuses all work until [`Self::reopen`], because it
    /// cannot know what reached the disk.
    ///
    /// # Errors
    /// [`JournalError::Event`] (nothing was written), [`JournalError::Io`] or
    /// [`JournalError::Stopped`].
    pub fn append_batch(&mut self, events: Vec<Event>) -> Result<Vec<Vec<u8>>, JournalError> {
        if self.stopped {
            return Err(JournalError::Stopped);
        }
        let (mut seq, mut head) = (self.last_seq, self.head);
        let mut bytes = Vec::new();
        let mut leaves = Vec::with_capacity(events.len());
        for event in events {
            seq += 1;
            let leaf = Leaf::encode(&self.role, seq, &head, event)?;
            head = chain_hash(&leaf);
            push_record(&mut bytes, &leaf, &self.proof);
            leaves.push(leaf);
        }
        self.stopped = true;
        if !self.is_current || self.len + bytes.len() as u64 > self.segment_bytes {
            self.rotate()?;
        }
        let path = &self.path;
        self.disk.append(&self.file, &bytes).map_err(at(path))?;
        self.len += bytes.len() as u64;
        (self.last_seq, self.head, self.stopped) = (seq, head, false);
        Ok(leaves)
    }

    /// Number of the oldest record that is still there; one more than [`Self::last_seq`] if there is none.
    ///
    /// # Errors
    /// An I/O error.
    pub fn first_seq(&self) -> Result<u64, JournalError> {
        let first = segment::list(&self.dir)?.first().copied();
        Ok(first.unwrap_or(self.last_seq + 1))
    }

    /// Removes the oldest segments until no more than `keep` are left, which bounds a journal whose
    /// records are kept elsewhere. Gives the number of the oldest record that is still there.
    ///
    /// # Errors
    /// An I/O error; segments may have been removed before it.
    pub fn keep_segments(&self, keep: usize) -> Result<u64, JournalError> {
        let firsts = segment::list(&self.dir)?;
        let excess = firsts.len().saturating_sub(keep.max(1));
        for &first in firsts.iter().take(excess) {
            let path = segment_path(&self.dir, first);
            self.disk.remove_file(&path).map_err(at(&path))?;
        }
        Ok(firsts.get(excess).copied().unwrap_or(self.last_seq + 1))
    }

    /// First number after `seq` at which the journal can be read again if the record `seq` cannot: where the next segment
    /// begins. If there is none, one begins for what is written from now on.
    ///
    /// # Errors
    /// An I/O error.
    pub fn resume_after(&mut self, seq: u64) -> Result<u64, JournalError> {
        let next = segment::list(&self.dir)?;
        if let Some(next) = next.into_iter().find(|first| *first > seq) {
            return Ok(next);
        }
        self.rotate()?;
        Ok(self.last_seq + 1)
    }

    /// Tells whether it has records that were written with a key.
    pub(crate) fn has_authenticated(&self) -> Result<bool, JournalError> {
        for first in segment::list(&self.dir)? {
            if first <= self.last_seq && segment::is_keyed(&self.dir, first)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The records from number `seq` on, oldest first, as they are when this is called.
    ///
    /// # Errors
    /// [`JournalError::Missing`] when older records were taken away, or an I/O error.
    pub fn read_from(&self, seq: u64) -> Result<Records, JournalError> {
        Records::open(&self.dir, &self.role, seq, self.last_seq, &self.proof)
    }

    /// How far the journal was shipped, as last noted.
    ///
    /// # Errors
    /// An I/O error, or [`JournalError::Foreign`] when the note is malformed.
    pub fn shipped(&self) -> Result<Option<Shipped>, JournalError> {
        read_shipped(&self.dir)
    }

    /// Notes durably how far the journal was shipped.
    ///
    /// # Errors
    /// An I/O error; the old note then stays.
    pub fn mark_shipped(&self, shipped: Shipped) -> Result<(), JournalError> {
        let path = self.dir.join("shipped");
        let text = format!("{} {}\n", shipped.seq, shipped.leaf_index);
        self.disk
            .replace_by(
                &path.with_extension("tmp"),
                &path,
                text.as_bytes(),
                FILE_MODE,
            )
            .map_err(at(&path))
    }

    /// Starts the next segment, unless the current one has no record yet and may have some.
    fn rotate(&mut self) -> Result<(), JournalError> {
        if self.is_current && self.path == segment_path(&self.dir, self.last_seq + 1) {
            return Ok(());
        }
        let next = Segment::create(
            &*self.disk,
            &self.dir,
            self.last_seq + 1,
            &self.head,
            &self.proof,
        )?;
        let file = self.disk.open_append(&next.path);
        self.file = file.map_err(at(&next.path))?;
        self.path = next.path;
        self.len = next.len;
        self.is_current = next.is_current;
        Ok(())
    }
}

/// The roles that have a journal below `dir`, sorted.
pub(crate) fn roles(dir: &Path) -> Result<Vec<String>, JournalError> {
    let mut roles = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let name = entry.file_name();
        if let Some(name) = name.to_str().filter(|name| is_role_name(name))
            && entry.file_type().map_err(at(dir))?.is_dir()
        {
            roles.push(name.to_owned());
        }
    }
    roles.sort();
    Ok(roles)
}

pub(crate) fn read_shipped(dir: &Path) -> Result<Option<Shipped>, JournalError> {
    let path = dir.join("shipped");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(&path)(e)),
    };
    let numbers = text.trim_end().split_once(' ');
    let parsed = numbers.and_then(|(seq, leaf_index)| {
        Some(Shipped {
            seq: seq.parse().ok()?,
            leaf_index: leaf_index.parse().ok()?,
        })
    });
    let malformed = || JournalError::Foreign {
        path,
        reason: "not two numbers",
    };
    parsed.ok_or_else(malformed).map(Some)
}

/// Names the file in an I/O error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> JournalError + '_ {
    |source| JournalError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
