//! A small log of two roles, and the file formats written down once more for tampering.

use std::fs;
use std::path::{Path, PathBuf};

use audit::verify::{Finding, Report, Verifier};
use audit::{Actor, AuditSink, Event, Hash, LogKey, Outcome, SharedLog};
use time::OffsetDateTime;

pub(crate) const ROLES: [&str; 2] = ["centre", "portal"];

pub(crate) struct Sample {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) vkey: String,
}

pub(crate) fn key() -> LogKey {
    LogKey::from_seed("audit.example.org/log", &[7; 32]).unwrap()
}

pub(crate) fn event(n: u64) -> Event {
    let at = OffsetDateTime::from_unix_timestamp(1_795_000_000 + n as i64).unwrap();
    Event::new(
        at,
        Actor::user("u4711", "Example Officer"),
        "evidence.open",
        format!("evidence/{n}"),
        Outcome::Ok,
    )
}

impl Sample {
    /// A log of `count` events, alternating between the roles, recorded one by one for the first
    /// few and in batches then.
    pub(crate) fn of(count: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sample = Self {
            vkey: key().verifier().to_string(),
            folder,
        };
        sample.grow(0, count);
        sample
    }

    pub(crate) fn grow(&self, from: u64, to: u64) {
        let log = SharedLog::open(self.folder.path(), key()).unwrap();
        let roles = ROLES.map(|role| log.role(role).unwrap());
        let mut n = from;
        while n < to {
            // Single events show the alternation; long logs need larger steps to be quick.
            let step = if to - n > 300 { 100 } else { 1 };
            let events = (n..n + step).map(event).collect();
            roles[(n % 2) as usize].record_all(events).unwrap();
            n += step;
        }
        log.note_shipped().unwrap();
    }

    /// The same files in another folder.
    pub(crate) fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for path in files(self.folder.path()) {
            let place = copy
                .path()
                .join(path.strip_prefix(self.folder.path()).unwrap());
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::copy(path, place).unwrap();
        }
        let ahead = self.file("ahead");
        fs::copy(ahead, copy.path().join("log/ahead")).unwrap();
        copy
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.log().join(name)
    }

    pub(crate) fn verify(&self) -> Result<Report, Finding> {
        audit::verify::verify_dir(&self.log(), &self.vkey, None)
    }

    pub(crate) fn finding(&self) -> Finding {
        self.verify().unwrap_err()
    }

    pub(crate) fn verify_with_journals(&self) -> Result<Report, Finding> {
        Verifier::new(&self.vkey)
            .unwrap()
            .with_journals(&self.journals())
            .verify(&self.log())
    }

    /// Changes a file by a function over its bytes.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        edit(&self.file(name), change);
    }

    /// Changes the entries of a bundle, leaving hashes alone.
    pub(crate) fn edit_entries(&self, name: &str, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        self.edit(name, |bytes| {
            let mut entries = split(bytes);
            change(&mut entries);
            *bytes = join(&entries);
        });
    }

    /// Changes the entries of the newest bundle of a log of up to 255 events and its hash tile as
    /// well; older partial versions are removed, as an attacker would.
    pub(crate) fn edit_entries_and_tile(
        &self,
        count: usize,
        change: impl FnOnce(&mut Vec<Vec<u8>>),
    ) {
        let read = |path: &Path| fs::read(path).unwrap();
        let entries_path = self.file(&format!("tile/entries/000.p/{count}"));
        let tile_path = self.file(&format!("tile/0/000.p/{count}"));
        let mut entries = split(&read(&entries_path));
        change(&mut entries);
        let hashes: Vec<u8> = entries.iter().flat_map(|entry| leaf_hash(entry)).collect();
        for dir in ["tile/entries/000.p", "tile/0/000.p"] {
            fs::remove_dir_all(self.file(dir)).unwrap();
            fs::create_dir(self.file(dir)).unwrap();
        }
        fs::write(entries_path, join(&entries)).unwrap();
        fs::write(tile_path, hashes).unwrap();
    }
}

pub(crate) fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

pub(crate) fn leaf_hash(leaf: &[u8]) -> Hash {
    audit::log::merkle::leaf_hash(leaf)
}

pub(crate) fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut entries = Vec::new();
    while let [high, low, rest @ ..] = bytes {
        let (entry, rest) = rest.split_at(usize::from(*high) * 256 + usize::from(*low));
        entries.push(entry.to_vec());
        bytes = rest;
    }
    entries
}

pub(crate) fn join(entries: &[Vec<u8>]) -> Vec<u8> {
    let one = |entry: &Vec<u8>| [&(entry.len() as u16).to_be_bytes()[..], entry].concat();
    entries.iter().flat_map(one).collect()
}

/// Makes "evidence/3" read "evidence/9", with the same length.
pub(crate) fn falsify(entry: &mut Vec<u8>) {
    let text = String::from_utf8(entry.clone()).unwrap();
    let changed = text.replace("evidence.open", "evidence.list");
    assert_ne!(text, changed);
    *entry = changed.into_bytes();
}

/// All files below `dir` but the write-ahead file, from which nobody proves anything; relative, sorted.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("ahead") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
