//! The newest of many small records, durable at the price of one sync each.
//!
//! Replacing a file takes two syncs, a new file and a rename; on a camera's flash card that weighs more than the
//! record. So records are added to the end of the file, and the last whole one counts:
//!
//! ```text
//! length in decimal ' ' first 16 hexadecimal digits of SHA-256 '\n' record '\n'
//! ```
//!
//! A file without any such record is one of an earlier version, and is the record.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use evidence::digest::Sha256Digest;
use pki::file;

/// Bytes of a file after which it is written anew.
const FULL: usize = 256 * 1024;
const MODE: u32 = 0o600;

/// A file of records of which the newest counts.
pub(crate) struct Register {
    path: PathBuf,
    /// Open at its end; none if it is to be written anew: what it ends with is not known.
    file: Option<File>,
    len: usize,
}

impl Register {
    /// A register at `path`, which need not be there.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            len: 0,
        }
    }

    /// Makes `record` the newest; durable on return.
    pub(crate) fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let bytes = encoded(record);
        self.len = self.len.saturating_add(bytes.len());
        match self.file.take().filter(|_| self.len <= FULL) {
            Some(mut file) => {
                file.write_all(&bytes)?;
                file.sync_data()?;
                // Kept only now: after a failure nobody knows how the file ends.
                self.file = Some(file);
            }
            None => {
                file::write_atomic(&self.path, &bytes, MODE).map_err(io::Error::other)?;
                self.len = bytes.len();
                let file = OpenOptions::new().append(true).open(&self.path);
                self.file = file.ok();
            }
        }
        Ok(())
    }

    /// Removes the file.
    pub(crate) fn remove(&mut self) {
        self.file = None;
        let _ = fs::remove_file(&self.path);
    }
}

/// The newest record of the register at `path`, if there is one.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut rest = bytes.as_slice();
    let mut newest = None;
    while !rest.is_empty() {
        rest = match next(rest) {
            Some((record, after)) => {
                newest = Some(record.to_vec());
                after
            }
            // A damaged record does not hide those after it, wherever the next one begins.
            None => rest.get(1..).unwrap_or_default(),
        };
    }
    Ok(newest.or(Some(bytes)))
}

fn encoded(record: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{} {}\n", record.len(), checksum(record)).into_bytes();
    bytes.extend_from_slice(record);
    bytes.push(b'\n');
    bytes
}

fn checksum(record: &[u8]) -> String {
    let digest = Sha256Digest::of(record).to_string();
    digest.get(..16).unwrap_or_default().to_owned()
}

/// The first record of `bytes` and what follows it; none if it is not whole.
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().take(40).position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at_checked(end)?;
    let (length, sum) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let (record, after) = rest.get(1..)?.split_at_checked(length.parse().ok()?)?;
    let after = after.strip_prefix(b"\n")?;
    (checksum(record) == sum).then_some((record, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_whole_record_counts_wherever_the_file_was_torn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("register");
        assert_eq!(read(&path).unwrap(), None);
        let mut register = Register::new(path.clone());
        let records: [&[u8]; 4] = [b"one", b"", b"three\nlines\n", b"four"];
        let mut ends = Vec::new();
        for record in records {
            register.write(record).unwrap();
            assert_eq!(read(&path).unwrap().unwrap(), record);
            ends.push(fs::metadata(&path).unwrap().len());
        }
        let whole = fs::read(&path).unwrap();
        let first = usize::try_from(ends[0]).unwrap();
        for end in first..=whole.len() {
            // A crash leaves what follows as it likes.
            for tail in [&b""[..], b"\0\0\0\0\0\0\0\0", b"9 "] {
                let mut torn = whole[..end].to_vec();
                torn.extend_from_slice(tail);
                fs::write(&path, &torn).unwrap();
                let complete = ends.iter().filter(|e| **e <= end as u64).count();
                assert_eq!(read(&path).unwrap().unwrap(), records[complete - 1]);
            }
        }
        // A damaged record hides neither those before nor those after it.
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let read = read(&path).unwrap().unwrap();
            let last = usize::try_from(ends[2]).unwrap();
            let expected = if at < last { records[3] } else { records[2] };
            assert_eq!(read, expected, "byte {at}");
        }
        // Whoever comes next does not write behind the torn end.
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let mut register = Register::new(path.clone());
        register.write(b"five").unwrap();
        register.write(b"six").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"six");
        register.remove();
        assert_eq!(read(&path).unwrap(), None);
    }

    #[test]
    fn file_of_an_earlier_version_is_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("register");
        for earlier in [&b"{\"sequence\":7}"[..], b"log.example.org\n7\nroot\n", b""] {
            fs::write(&path, earlier).unwrap();
            assert_eq!(read(&path).unwrap().unwrap(), earlier);
        }
    }

    #[test]
    fn file_stays_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("register");
        let mut register = Register::new(path.clone());
        let record = vec![7; 10_000];
        for _ in 0..100 {
            register.write(&record).unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= FULL as u64);
        }
        assert_eq!(read(&path).unwrap().unwrap(), record);
    }
}
