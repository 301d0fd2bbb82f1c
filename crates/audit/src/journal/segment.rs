//! One segment file: making, recovering and reading it.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use durable::Disk;

use super::{JournalError, at};
use crate::FILE_MODE;
use crate::event::EventError;
use crate::hash::Hash;
use crate::leaf::{Leaf, MAX_LEAF_BYTES, chain_hash};

const MAGIC: &[u8; 8] = b"CORDONJ1";
/// Magic, first number, previous hash.
const HEADER_BYTES: usize = 8 + 8 + 32;

/// State of a segment after making or recovering it.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) last_seq: u64,
    pub(super) head: Hash,
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

pub(super) fn push_record(bytes: &mut Vec<u8>, leaf: &[u8], hash: &Hash) {
    let len = u32::try_from(leaf.len()).expect("a leaf is bounded far below 4 GiB");
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(leaf);
    bytes.extend_from_slice(hash);
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

impl Segment {
    /// Makes the segment whose first record will be `first_seq`; appears whole or not at all.
    pub(super) fn create(
        disk: &dyn Disk,
        dir: &Path,
        first_seq: u64,
        prev: &Hash,
    ) -> Result<Self, JournalError> {
        let path = segment_path(dir, first_seq);
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&first_seq.to_be_bytes());
        header.extend_from_slice(prev);
        disk.replace_by(&path.with_extension("tmp"), &path, &header, FILE_MODE)
            .map_err(at(&path))?;
        Ok(Self {
            path,
            len: header.len() as u64,
            last_seq: first_seq - 1,
            head: *prev,
        })
    }

    /// Reads the newest segment through and cuts an unfinished record that was never acknowledged.
    pub(super) fn recover(
        disk: &dyn Disk,
        dir: &Path,
        first_seq: u64,
        role: &str,
        acknowledged: u64,
    ) -> Result<Self, JournalError> {
        let mut reader = SegmentReader::open(dir, first_seq, role)?;
        let mut len = HEADER_BYTES as u64;
        let torn = loop {
            match reader.next()? {
                Next::Record(record) => len += record.leaf.len() as u64 + 36,
                Next::End => break false,
                Next::Torn => break true,
            }
        };
        let (path, last_seq) = (reader.path.clone(), reader.next_seq - 1);
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
    next_seq: u64,
    head: Hash,
}

impl SegmentReader {
    fn open(dir: &Path, first_seq: u64, role: &str) -> Result<Self, JournalError> {
        let path = segment_path(dir, first_seq);
        let mut input = BufReader::new(File::open(&path).map_err(at(&path))?);
        let header = read_up_to(&mut input, HEADER_BYTES).map_err(at(&path))?;
        let foreign = |reason| JournalError::Foreign {
            path: path.clone(),
            reason,
        };
        let rest = header.strip_prefix(MAGIC).ok_or(foreign("no header"))?;
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
            next_seq: first_seq,
            head,
        })
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
        let mut leaf = self.read(length + 32)?;
        if leaf.len() < length + 32 {
            return Ok(Next::Torn);
        }
        let checksum = leaf.split_off(length);
        let hash = chain_hash(&leaf);
        if checksum != hash {
            return Err(self.damaged("wrong checksum"));
        }
        self.check_place(&leaf)?;
        let record = Record {
            seq: self.next_seq,
            leaf,
        };
        self.next_seq += 1;
        self.head = hash;
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
    pub(super) fn open(dir: &Path, role: &str, from: u64, last: u64) -> Result<Self, JournalError> {
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
        let reader = SegmentReader::open(&self.dir, first, &self.role)?;
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
