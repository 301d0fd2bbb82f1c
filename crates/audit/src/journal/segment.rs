//! One segment file: making, recovering and reading it.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use durable::Disk;

use super::{JournalError, at};
use crate::FILE_MODE;
use crate::authenticator::Authenticator;
use crate::event::EventError;
use crate::hash::{Hash, sha256};
use crate::leaf::{Leaf, MAX_LEAF_BYTES, chain_hash};

/// Begins a segment without a key, and one with a key.
const MAGIC: &[u8; 8] = b"CORDONJ1";
const KEYED_MAGIC: &[u8; 8] = b"CORDONJ2";
/// Magic, first number, previous hash.
const HEADER_BYTES: usize = 8 + 8 + 32;
const HASH_BYTES: usize = 32;

/// Evidence that a record is the journal's own.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    authenticator: Option<Authenticator>,
    /// Records up to this number are in the log, and held against it: of them, those without an authenticator count as well.
    in_log: u64,
}

impl Proof {
    pub(super) fn new(authenticator: Option<Authenticator>, in_log: u64) -> Self {
        Self {
            authenticator,
            in_log,
        }
    }

    fn magic(&self) -> &'static [u8; 8] {
        match self.authenticator {
            Some(_) => KEYED_MAGIC,
            None => MAGIC,
        }
    }
}

/// State of a segment after making or recovering it.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) last_seq: u64,
    pub(super) head: Hash,
    /// It is of the kind that the journal writes.
    pub(super) is_current: bool,
}

/// One record of a journal, checked against its checksum and its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number within the role.
    pub seq: u64,
    /// The leaf's bytes.
    pub leaf: Vec<u8>,
}

pub(super) fn segment_path(dir: &Path, first_seq: u64) -> PathBuf {
    dir.join(format!("{first_seq:020}.journal"))
}

pub(super) fn push_record(bytes: &mut Vec<u8>, leaf: &[u8], proof: &Proof) {
    let len = u32::try_from(leaf.len()).expect("a leaf is bounded far below 4 GiB");
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(leaf);
    if let Some(authenticator) = &proof.authenticator {
        let tag = authenticator.tag(leaf);
        bytes.extend_from_slice(&tag);
        bytes.extend_from_slice(&sha256(&[leaf, &tag]));
    } else {
        bytes.extend_from_slice(&sha256(&[leaf]));
    }
}

/// The first numbers of the segments in `dir`, ascending.
pub(super) fn list(dir: &Path) -> Result<Vec<u64>, JournalError> {
    let mut firsts = Vec::new();
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let path = entry.map_err(at(dir))?.path();
        if path.extension().is_none_or(|e| e != "journal") {
            continue;
        }
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let first = stem
            .filter(|stem| stem.len() == 20)
            .and_then(|stem| stem.parse().ok());
        firsts.push(first.ok_or_else(|| JournalError::Foreign {
            path: path.clone(),
            reason: "the name is not 20 digits",
        })?);
    }
    firsts.sort_unstable();
    Ok(firsts)
}

/// Tells whether the segment says that its records have authenticators.
pub(super) fn is_keyed(dir: &Path, first_seq: u64) -> Result<bool, JournalError> {
    let path = segment_path(dir, first_seq);
    let mut file = File::open(&path).map_err(at(&path))?;
    let magic = read_up_to(&mut file, KEYED_MAGIC.len()).map_err(at(&path))?;
    Ok(magic == KEYED_MAGIC)
}

impl Segment {
    /// Makes the segment whose first record will be `first_seq`; appears whole or not at all.
    pub(super) fn create(
        disk: &dyn Disk,
        dir: &Path,
        first_seq: u64,
        prev: &Hash,
        proof: &Proof,
    ) -> Result<Self, JournalError> {
        let path = segment_path(dir, first_seq);
        let mut header = proof.magic().to_vec();
        header.extend_from_slice(&first_seq.to_be_bytes());
        header.extend_from_slice(prev);
        disk.replace_by(&path.with_extension("tmp"), &path, &header, FILE_MODE)
            .map_err(at(&path))?;
        Ok(Self {
            path,
            len: header.len() as u64,
            last_seq: first_seq - 1,
            head: *prev,
            is_current: true,
        })
    }

    /// Reads the newest segment through and cuts an unfinished record that was never acknowledged.
    pub(super) fn recover(
        disk: &dyn Disk,
        dir: &Path,
        first_seq: u64,
        role: &str,
        acknowledged: u64,
        proof: &Proof,
    ) -> Result<Self, JournalError> {
        let mut reader = SegmentReader::open(dir, first_seq, role, proof)?;
        let torn = loop {
            match reader.next()? {
                Next::Record(_) => {}
                Next::End => break false,
                Next::Torn => break true,
            }
        };
        let (path, len, last_seq) = (reader.path.clone(), reader.end, reader.next_seq - 1);
        if torn {
            if last_seq < acknowledged {
                return Err(reader.damaged("it was acknowledged but is incomplete"));
            }
            disk.truncate(&path, len).map_err(at(&path))?;
        }
        Ok(Self {
            path,
            len,
            last_seq,
            head: reader.head,
            is_current: reader.is_current(),
        })
    }
}

/// Next thing in a segment.
enum Next {
    Record(Record),
    /// The segment ends here.
    End,
    /// An unfinished write: cut short, or zeros that were never filled.
    Torn,
}

struct SegmentReader {
    path: PathBuf,
    input: BufReader<File>,
    role: String,
    proof: Proof,
    /// Its records have authenticators.
    is_keyed: bool,
    next_seq: u64,
    head: Hash,
    /// End of the last whole record, in bytes from the beginning of the file.
    end: u64,
}

impl SegmentReader {
    fn open(dir: &Path, first_seq: u64, role: &str, proof: &Proof) -> Result<Self, JournalError> {
        let path = segment_path(dir, first_seq);
        let mut input = BufReader::new(File::open(&path).map_err(at(&path))?);
        let header = read_up_to(&mut input, HEADER_BYTES).map_err(at(&path))?;
        let foreign = |reason| JournalError::Foreign {
            path: path.clone(),
            reason,
        };
        let (is_keyed, rest) = match header.split_first_chunk::<8>() {
            Some((MAGIC, rest)) => (false, rest),
            Some((KEYED_MAGIC, rest)) => (true, rest),
            _ => return Err(foreign("no header")),
        };
        if is_keyed && proof.authenticator.is_none() {
            return Err(foreign("its records need the key of an audit log"));
        }
        let (first, prev) = rest
            .split_first_chunk::<8>()
            .ok_or(foreign("short header"))?;
        let head = prev.try_into().map_err(|_| foreign("short header"))?;
        if u64::from_be_bytes(*first) != first_seq || first_seq == 0 {
            return Err(foreign("header and name differ"));
        }
        Ok(Self {
            path,
            input,
            role: role.to_owned(),
            proof: proof.clone(),
            is_keyed,
            next_seq: first_seq,
            head,
            end: HEADER_BYTES as u64,
        })
    }

    /// Tells that it is of the kind that the journal writes.
    fn is_current(&self) -> bool {
        self.is_keyed == self.proof.authenticator.is_some()
    }

    fn next(&mut self) -> Result<Next, JournalError> {
        let length = self.read(4)?;
        if length.is_empty() {
            return Ok(Next::End);
        }
        let Ok(length) = <[u8; 4]>::try_from(length) else {
            return Ok(Next::Torn);
        };
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 {
            return self.expect_zeros();
        }
        if length > MAX_LEAF_BYTES {
            return Err(self.damaged("impossible length"));
        }
        let trailer = if self.is_keyed { 2 } else { 1 } * HASH_BYTES;
        let mut leaf = self.read(length + trailer)?;
        if leaf.len() < length + trailer {
            return Ok(Next::Torn);
        }
        let checksum = leaf.split_off(leaf.len() - HASH_BYTES);
        if checksum != sha256(&[&leaf]) {
            return Err(self.damaged("wrong checksum"));
        }
        let tag = leaf.split_off(length);
        self.check_proof(&leaf, &tag)?;
        self.check_place(&leaf)?;
        let record = Record {
            seq: self.next_seq,
            leaf,
        };
        self.next_seq += 1;
        self.head = chain_hash(&record.leaf);
        self.end += (4 + length + trailer) as u64;
        Ok(Next::Record(record))
    }

    /// After a power cut a file can be longer than what was written to it, filled with zeros.
    fn expect_zeros(&mut self) -> Result<Next, JournalError> {
        loop {
            let block = self.read(4096)?;
            if block.is_empty() {
                return Ok(Next::Torn);
            }
            if block.iter().any(|byte| *byte != 0) {
                return Err(self.damaged("impossible length"));
            }
        }
    }

    /// Refuses a record that anybody could have written.
    fn check_proof(&self, leaf: &[u8], tag: &[u8]) -> Result<(), JournalError> {
        let (path, seq) = (self.path.clone(), self.next_seq);
        match &self.proof.authenticator {
            Some(authenticator) if self.is_keyed && !authenticator.holds(leaf, tag) => {
                let offset = self.end;
                Err(JournalError::NotAuthentic { path, seq, offset })
            }
            Some(_) if !self.is_keyed && seq > self.proof.in_log => {
                Err(JournalError::Unproven { path, seq })
            }
            _ => Ok(()),
        }
    }

    fn check_place(&self, leaf: &[u8]) -> Result<(), JournalError> {
        let leaf = Leaf::decode(leaf).map_err(|e| {
            self.damaged(match e {
                EventError::UnknownVersion(_) => "event version is not known",
                _ => "not a leaf",
            })
        })?;
        if leaf.role != self.role {
            return Err(self.damaged("belongs to another role"));
        }
        if leaf.seq != self.next_seq {
            return Err(self.damaged("wrong number"));
        }
        if leaf.prev_hash() != Some(self.head) {
            return Err(self.damaged("does not follow the record before"));
        }
        Ok(())
    }

    fn read(&mut self, count: usize) -> Result<Vec<u8>, JournalError> {
        read_up_to(&mut self.input, count).map_err(at(&self.path))
    }

    fn damaged(&self, reason: &'static str) -> JournalError {
        JournalError::Damaged {
            path: self.path.clone(),
            seq: self.next_seq,
            reason,
        }
    }
}

/// Reads `count` bytes, or fewer at the end of the file.
fn read_up_to(input: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    input.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Iterator over the records of a journal; each is checked as it is read.
pub struct Records {
    dir: PathBuf,
    role: String,
    proof: Proof,
    /// Segments still to read, newest first.
    segments: Vec<u64>,
    current: Option<SegmentReader>,
    from: u64,
    last: u64,
    /// Number and chain position reached; the next segment must continue there.
    reached: Option<(u64, Hash)>,
    done: bool,
}

impl Records {
    pub(super) fn open(
        dir: &Path,
        role: &str,
        from: u64,
        last: u64,
        proof: &Proof,
    ) -> Result<Self, JournalError> {
        let mut segments = list(dir)?;
        // Start with the segment that holds `from`.
        let start = segments
            .partition_point(|first| *first <= from)
            .saturating_sub(1);
        segments.drain(..start);
        if let Some(oldest) = segments.first()
            && *oldest > from.max(1)
        {
            return Err(JournalError::Missing {
                path: dir.to_owned(),
                missing: from.max(1),
            });
        }
        segments.reverse();
        Ok(Self {
            dir: dir.to_owned(),
            role: role.to_owned(),
            proof: proof.clone(),
            segments,
            current: None,
            from,
            last,
            reached: None,
            done: false,
        })
    }

    fn advance(&mut self) -> Result<Option<Record>, JournalError> {
        loop {
            if self.reached.is_some_and(|(seq, _)| seq >= self.last) {
                return Ok(None);
            }
            let Some(reader) = &mut self.current else {
                let Some(first) = self.segments.pop() else {
                    return Ok(None);
                };
                self.current = Some(self.open_segment(first)?);
                continue;
            };
            match reader.next()? {
                Next::Record(record) => {
                    self.reached = Some((record.seq, reader.head));
                    if record.seq >= self.from {
                        return Ok(Some(record));
                    }
                }
                Next::End => self.current = None,
                Next::Torn => return Err(reader.damaged("incomplete")),
            }
        }
    }

    fn open_segment(&self, first: u64) -> Result<SegmentReader, JournalError> {
        let reader = SegmentReader::open(&self.dir, first, &self.role, &self.proof)?;
        match self.reached {
            Some((seq, _)) if seq + 1 != first => Err(JournalError::Missing {
                path: self.dir.clone(),
                missing: seq + 1,
            }),
            Some((_, head)) if head != reader.head => {
                Err(reader.damaged("does not follow the record before"))
            }
            _ => Ok(reader),
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.advance().transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}
