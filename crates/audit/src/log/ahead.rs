//! The write-ahead file: entries that are durable before their tiles are.
//!
//! ```text
//! "CORDONW1"
//! length (u32), body, SHA-256 of the body     first record: the base; all that its checkpoint covers is synced
//! length (u32), body, SHA-256 of the body     then one record for each commit since
//!   body: length (u32) and bytes of the signed checkpoint, then entries as in a bundle
//! ```
//!
//! Numbers are big endian. A commit syncs its record alone; tiles and checkpoint are written without, and synced together
//! before the file begins anew. A record that is not whole ends the file: only the last one can be so, and nobody was
//! told of its entries.

use std::io;
use std::path::{Path, PathBuf};

use durable::{Disk, DiskFile};

use super::tiles::{HASH_BYTES, push_entry, split_bundle};
use super::{LogError, MAX_BATCH, MAX_ENTRY_BYTES, at};
use crate::FILE_MODE;
use crate::hash::sha256;

const MAGIC: &[u8; 8] = b"CORDONW1";
/// Commits after which tiles are synced (our choice): what one sync of all costs is a hundredth of theirs then, and a
/// start after a crash reads a megabyte or so.
const MAX_COMMITS: u64 = 256;
/// Bytes after which they are (our choice).
const MAX_BYTES: usize = 4 << 20;
/// Bytes of the longest file that is read: those, and one commit of the longest entries.
const MAX_FILE_BYTES: usize = MAX_BYTES + MAX_BATCH * (MAX_ENTRY_BYTES + 2) + 65536;

/// The write-ahead file of a log that is open.
pub(super) struct Ahead {
    path: PathBuf,
    file: DiskFile,
    commits: u64,
    bytes: usize,
}

/// One commit, as it was made durable.
pub(super) struct Commit {
    /// The signed checkpoint after it.
    pub(super) checkpoint: Vec<u8>,
    pub(super) entries: Vec<Vec<u8>>,
}

/// Contents of a write-ahead file.
pub(super) struct Contents {
    /// The signed checkpoint of which everything is synced.
    pub(super) base: Vec<u8>,
    /// Commits since, in order.
    pub(super) commits: Vec<Commit>,
    /// True where something follows them that is not a whole record.
    is_torn: bool,
}

impl Contents {
    /// Tells that the file says nothing but that all is synced.
    pub(super) fn is_settled(&self) -> bool {
        self.commits.is_empty() && !self.is_torn
    }
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("ahead")
}

impl Ahead {
    /// Begins anew at the signed checkpoint `base`; durable on return.
    pub(super) fn begin(disk: &dyn Disk, dir: &Path, base: &str) -> Result<Self, LogError> {
        let path = path(dir);
        let mut bytes = MAGIC.to_vec();
        push_record(&mut bytes, base, &[] as &[&[u8]]).ok_or_else(|| too_long(&path))?;
        disk.replace_by(&path.with_extension("tmp"), &path, &bytes, FILE_MODE)
            .map_err(at(&path))?;
        Self::resume(disk, dir)
    }

    /// Goes on with a file that has no commits.
    pub(super) fn resume(disk: &dyn Disk, dir: &Path) -> Result<Self, LogError> {
        let path = path(dir);
        Ok(Self {
            file: disk.open_append(&path).map_err(at(&path))?,
            path,
            commits: 0,
            bytes: 0,
        })
    }

    /// Adds a commit; durable on return.
    pub(super) fn append<E: AsRef<[u8]>>(
        &mut self,
        disk: &dyn Disk,
        checkpoint: &str,
        entries: &[E],
    ) -> Result<(), LogError> {
        let mut bytes = Vec::new();
        push_record(&mut bytes, checkpoint, entries).ok_or_else(|| too_long(&self.path))?;
        disk.append(&self.file, &bytes).map_err(at(&self.path))?;
        self.commits += 1;
        self.bytes += bytes.len();
        Ok(())
    }

    /// Tells that tiles are to be synced, so that it can begin anew.
    pub(super) fn is_due(&self) -> bool {
        self.commits >= MAX_COMMITS || self.bytes >= MAX_BYTES
    }

    /// Tells that there are no commits in it.
    pub(super) fn is_empty(&self) -> bool {
        self.commits == 0
    }
}

fn too_long(path: &Path) -> LogError {
    at(path)(io::ErrorKind::FileTooLarge.into())
}

/// Adds a record to `bytes`; `None` where something is too long for its field.
fn push_record<E: AsRef<[u8]>>(bytes: &mut Vec<u8>, checkpoint: &str, entries: &[E]) -> Option<()> {
    let mut body = u32::try_from(checkpoint.len()).ok()?.to_be_bytes().to_vec();
    body.extend_from_slice(checkpoint.as_bytes());
    for entry in entries {
        push_entry(&mut body, entry.as_ref())?;
    }
    bytes.extend_from_slice(&u32::try_from(body.len()).ok()?.to_be_bytes());
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(&sha256(&[&body]));
    Some(())
}

/// Takes a whole record off the beginning of `bytes`.
fn split_record(bytes: &[u8]) -> Option<(Commit, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (body, rest) = rest.split_at_checked(length)?;
    let (hash, rest) = rest.split_first_chunk::<HASH_BYTES>()?;
    if sha256(&[body]) != *hash {
        return None;
    }
    let (length, body) = body.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (checkpoint, entries) = body.split_at_checked(length)?;
    let entries = split_bundle(entries)?;
    let commit = Commit {
        checkpoint: checkpoint.to_vec(),
        entries: entries.into_iter().map(<[u8]>::to_vec).collect(),
    };
    Some((commit, rest))
}

/// Reads the write-ahead file of the log in `dir`; `None` where there is none, as in logs of earlier versions.
///
/// # Errors
/// [`LogError::Io`], and [`LogError::Damaged`] if it does not even say where it begins.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Contents>, LogError> {
    let path = path(dir);
    let bytes = match disk.load(&path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(&path)(e)),
    };
    let first = bytes.strip_prefix(MAGIC).and_then(split_record);
    let Some((base, mut rest)) = first else {
        let reason = "no beginning";
        return Err(LogError::Damaged { path, reason });
    };
    let mut commits = Vec::new();
    while let Some((commit, after)) = split_record(rest) {
        commits.push(commit);
        rest = after;
    }
    Ok(Some(Contents {
        base: base.checkpoint,
        commits,
        is_torn: !rest.is_empty(),
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_record_that_is_not_whole_ends_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let disk = durable::real();
        let mut ahead = Ahead::begin(&*disk, folder.path(), "base").unwrap();
        ahead.append(&*disk, "one", &[b"a", b"b"]).unwrap();
        let whole = fs::read(path(folder.path())).unwrap().len();
        ahead.append(&*disk, "two", &[b"c"]).unwrap();
        let bytes = fs::read(path(folder.path())).unwrap();
        for cut in whole..bytes.len() {
            let mut torn = bytes.get(..cut).unwrap().to_vec();
            for zeros in [0, 100] {
                torn.resize(cut + zeros, 0);
                fs::write(path(folder.path()), &torn).unwrap();
                let found = read(&*durable::real(), folder.path()).unwrap().unwrap();
                assert_eq!(found.base, b"base");
                let [one] = &found.commits[..] else {
                    panic!("{cut} {zeros}");
                };
                assert_eq!(one.entries, [b"a", b"b"]);
                assert_eq!(one.checkpoint, b"one");
            }
        }
        fs::write(path(folder.path()), &bytes).unwrap();
        assert_eq!(
            read(&*durable::real(), folder.path())
                .unwrap()
                .unwrap()
                .commits
                .len(),
            2
        );
    }

    #[test]
    fn a_file_without_a_beginning_is_damaged_and_none_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(&*durable::real(), folder.path()).unwrap().is_none());
        for bytes in [&b""[..], MAGIC, b"CORDONW1\0\0\0\0", b"something else"] {
            fs::write(path(folder.path()), bytes).unwrap();
            assert!(matches!(
                read(&*durable::real(), folder.path()),
                Err(LogError::Damaged { .. })
            ));
        }
    }
}
