//! The roles' journals, read beside the log.
//!
//! A segment is `"CORDONJ1" | u64 first number | 32 bytes`, then records of
//! `u32 length | leaf | SHA-256(leaf)`; numbers are big endian. With `"CORDONJ2"`, 32 bytes of an authenticator stand behind
//! the leaf, and the SHA-256 is over both. Only the log's key could tell whether that is right: here a record counts by being
//! equal to the log's.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::chain::Leaf;
use super::finding::{Finding, FindingKind, Readable};
use super::tree::hash_chain;

const HEADER_BYTES: usize = 48;
const TAG_BYTES: usize = 32;
/// Longer than any leaf can be.
const MAX_LEAF_BYTES: usize = 1 << 16;

/// How a journal and a leaf of the log compare.
pub(super) enum Comparison {
    /// Equal, or this journal does not reach back so far, or there is none.
    Fits { compared: bool },
    /// The journal has something else under the same number.
    Differs { record: Vec<u8>, path: PathBuf },
    /// The journal ends, or leaves the number out.
    Lacks { path: PathBuf },
}

/// What was in the journals at one moment: role, folder, and the length of each segment.
///
/// Taken before the checkpoint is read: these records must be in the log. What a running writer
/// adds later is compared as far as the log has it.
#[derive(Clone, Debug)]
pub(super) struct Snapshot(Vec<(String, PathBuf, Lengths)>);

type Lengths = BTreeMap<PathBuf, u64>;

/// All journals of a snapshot, being read.
#[derive(Debug)]
pub(super) struct Journals(BTreeMap<String, Journal>);

#[derive(Debug)]
struct Journal {
    role: String,
    dir: PathBuf,
    lengths: Lengths,
    /// Segments still to read.
    segments: VecDeque<PathBuf>,
    current: Option<Segment>,
    newest: PathBuf,
    pending: Option<Record>,
    started: bool,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    input: BufReader<File>,
    /// Bytes of the authenticator behind each leaf.
    tag: usize,
    /// Bytes read so far.
    at: u64,
}

#[derive(Debug)]
struct Record {
    seq: u64,
    leaf: Vec<u8>,
    /// Whether the snapshot has it.
    in_snapshot: bool,
}

impl Snapshot {
    /// Finds the journals below `dir`.
    pub(super) fn take(dir: &Path) -> Result<Self, Finding> {
        let mut found = Vec::new();
        for folder in list(dir)? {
            if let Some(role) = folder.file_name().and_then(|name| name.to_str())
                && fs::metadata(&folder)
                    .map_err(|e| unreadable(&folder, &e))?
                    .is_dir()
            {
                found.push((role.to_owned(), folder.clone(), lengths(&folder)?));
            }
        }
        Ok(Self(found))
    }

    /// Starts to read the journals from their beginning.
    pub(super) fn read(&self) -> Journals {
        let journals = self.0.iter().map(|(role, dir, lengths)| {
            let journal = Journal {
                role: role.clone(),
                dir: dir.clone(),
                segments: lengths.keys().cloned().collect(),
                lengths: lengths.clone(),
                current: None,
                newest: PathBuf::new(),
                pending: None,
                started: false,
            };
            (role.clone(), journal)
        });
        Journals(journals.collect())
    }
}

/// The segments of a journal, oldest first, as their names sort.
fn lengths(dir: &Path) -> Result<Lengths, Finding> {
    let mut lengths = Lengths::new();
    for path in list(dir)? {
        if path.extension().is_some_and(|e| e == "journal") {
            let metadata = fs::metadata(&path).map_err(|e| unreadable(&path, &e))?;
            lengths.insert(path, metadata.len());
        }
    }
    Ok(lengths)
}

impl Journals {
    /// Compares the leaf `seq` of `role` with its journal's next record.
    pub(super) fn compare(
        &mut self,
        role: &str,
        seq: u64,
        leaf: &[u8],
    ) -> Result<Comparison, Finding> {
        let Some(journal) = self.0.get_mut(role) else {
            return Ok(Comparison::Fits { compared: false });
        };
        let path = journal.dir.clone();
        let Some(record) = journal.peek()?.take() else {
            return Ok(Comparison::Lacks { path });
        };
        if record.seq > seq {
            // Older segments may have been archived elsewhere, later ones may not be left out.
            let comparison = if journal.started {
                Comparison::Lacks { path }
            } else {
                Comparison::Fits { compared: false }
            };
            journal.pending = Some(record);
            return Ok(comparison);
        }
        journal.started = true;
        Ok(if record.seq == seq && record.leaf == leaf {
            Comparison::Fits { compared: true }
        } else {
            let record = record.leaf;
            Comparison::Differs { record, path }
        })
    }

    /// Demands that no journal of the snapshot has a record beyond the log of `size` events.
    pub(super) fn finish(&mut self, size: u64) -> Result<(), Finding> {
        for journal in self.0.values_mut() {
            if let Some(record) = journal.peek()?.take().filter(|record| record.in_snapshot) {
                let detail = "the log ends before it: it was cut, or its writer has not been \
                              started again since it was interrupted, or somebody else wrote the \
                              record, which only a start can tell, as it has the log's key";
                return Err(Finding::new(FindingKind::NotInLog, detail)
                    .at(size, Readable::of(&record.leaf))
                    .in_file(&journal.dir));
            }
        }
        Ok(())
    }
}

impl Journal {
    /// The next record; the caller takes it out when it is done with it.
    fn peek(&mut self) -> Result<&mut Option<Record>, Finding> {
        while self.pending.is_none() {
            let Some(segment) = &mut self.current else {
                let Some(path) = self.next_segment()? else {
                    break;
                };
                self.newest.clone_from(&path);
                self.current = Some(Segment::open(path)?);
                continue;
            };
            let Some((seq, leaf)) = segment.read_record(&self.role)? else {
                self.current = None;
                continue;
            };
            let length = self.lengths.get(&segment.path);
            self.pending = Some(Record {
                seq,
                leaf,
                in_snapshot: length.is_some_and(|length| segment.at <= *length),
            });
        }
        Ok(&mut self.pending)
    }

    /// The next segment of the snapshot, then those that a writer has started since.
    fn next_segment(&mut self) -> Result<Option<PathBuf>, Finding> {
        if self.segments.is_empty() {
            let newer = lengths(&self.dir)?.into_keys();
            self.segments = newer.filter(|path| *path > self.newest).collect();
        }
        Ok(self.segments.pop_front())
    }
}

impl Segment {
    fn open(path: PathBuf) -> Result<Self, Finding> {
        let file = File::open(&path).map_err(|e| unreadable(&path, &e))?;
        let mut segment = Self {
            input: BufReader::new(file),
            tag: 0,
            at: 0,
            path,
        };
        let header = segment.take(HEADER_BYTES)?;
        let stem = segment.path.file_stem().and_then(|stem| stem.to_str());
        let first = header.get(8..16).and_then(|bytes| bytes.try_into().ok());
        let first = first.map(|bytes| format!("{:020}", u64::from_be_bytes(bytes)));
        let complete = header.len() == HEADER_BYTES;
        let tag = match header.first_chunk::<8>() {
            Some(b"CORDONJ1") => Some(0),
            Some(b"CORDONJ2") => Some(TAG_BYTES),
            _ => None,
        };
        match tag {
            Some(tag) if first.as_deref() == stem && complete => segment.tag = tag,
            _ => {
                let finding = Finding::new(FindingKind::Journal, "a segment's header is wrong");
                return Err(finding.in_file(segment.path));
            }
        }
        Ok(segment)
    }

    /// Reads one record; `None` at the end and for an unfinished last one.
    fn read_record(&mut self, role: &str) -> Result<Option<(u64, Vec<u8>)>, Finding> {
        let Ok(length) = <[u8; 4]>::try_from(self.take(4)?) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > MAX_LEAF_BYTES {
            return Err(damaged("a record's length is impossible", &[], &self.path));
        }
        let trailer = self.tag + 32;
        let mut leaf = self.take(length + trailer)?;
        if leaf.len() < length + trailer {
            return Ok(None);
        }
        let checksum = leaf.split_off(length + self.tag);
        let is_whole = checksum == hash_chain(&leaf);
        leaf.truncate(length);
        if !is_whole {
            return Err(damaged("a record's checksum is wrong", &leaf, &self.path));
        }
        let parsed = Leaf::parse(&leaf).map_err(|e| damaged(&e, &leaf, &self.path))?;
        if parsed.role != role {
            let detail = "a record belongs to another role";
            return Err(damaged(detail, &leaf, &self.path));
        }
        let seq = parsed.seq;
        Ok(Some((seq, leaf)))
    }

    /// Reads `count` bytes, or fewer at the end.
    fn take(&mut self, count: usize) -> Result<Vec<u8>, Finding> {
        let mut bytes = Vec::new();
        let mut input = self.input.by_ref().take(count as u64);
        let read = input.read_to_end(&mut bytes);
        self.at += bytes.len() as u64;
        read.map_err(|e| unreadable(&self.path, &e))?;
        Ok(bytes)
    }
}

fn damaged(detail: &str, leaf: &[u8], path: &Path) -> Finding {
    let said = Readable::of(leaf);
    let number = said
        .seq
        .map_or(String::new(), |seq| format!(" (number {seq})"));
    Finding::new(FindingKind::Journal, format!("{detail}{number}")).in_file(path)
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, Finding> {
    let listing = fs::read_dir(dir).map_err(|e| unreadable(dir, &e))?;
    listing
        .map(|entry| Ok(entry.map_err(|e| unreadable(dir, &e))?.path()))
        .collect()
}

fn unreadable(path: &Path, e: &std::io::Error) -> Finding {
    Finding::new(FindingKind::Unreadable, e.to_string()).in_file(path)
}
