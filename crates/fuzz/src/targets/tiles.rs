//! The files of an audit log, one of them edited: the verifier never panics, and it accepts only
//! what was written. An edited write-ahead file, which it does not read, is refused by the writer or changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::edit;
use audit::{Actor, AuditSink, Event, LogKey, Outcome, SharedLog};
use time::OffsetDateTime;

/// Events of the log.
const EVENTS: u64 = 300;

struct Sample {
    folder: tempfile::TempDir,
    key: String,
    files: Vec<(PathBuf, Vec<u8>)>,
}

fn log_key() -> LogKey {
    LogKey::from_seed("example.org/log", &[7; 32]).unwrap()
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let key = log_key();
        let text = key.verifier().to_string();
        let log = SharedLog::open(folder.path(), key).unwrap();
        let role = log.role("centre").unwrap();
        let events = (0..EVENTS).map(|n| {
            let at = OffsetDateTime::UNIX_EPOCH + std::time::Duration::from_secs(n);
            Event::new(at, Actor::device("camera-17"), "a.b", "c", Outcome::Ok)
        });
        // At once, so that no partial tiles of smaller trees stay behind, which prove nothing.
        role.record_all(events.collect()).unwrap();
        let mut files = Vec::new();
        collect(&log.log_dir(), &mut files);
        Sample {
            folder,
            key: text,
            files,
        }
    })
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, files);
        } else if path.file_name().is_some_and(|name| name != "lock") {
            let bytes = fs::read(&path).unwrap();
            files.push((path, bytes));
        }
    }
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let [which, mode, rest @ ..] = data else {
        return;
    };
    let sample = sample();
    let (path, original) = &sample.files[usize::from(*which) % sample.files.len()];
    let bytes = if mode % 4 == 0 {
        rest.to_vec()
    } else {
        edit(original, rest)
    };
    if path.ends_with("ahead") {
        open_with(sample, &bytes);
        return;
    }
    fs::write(path, &bytes).unwrap();
    let verdict = audit::verify::verify_dir(&sample.folder.path().join("log"), &sample.key, None);
    fs::write(path, original).unwrap();
    let same = if path.ends_with("checkpoint") {
        signed_text(&bytes) == signed_text(original)
    } else {
        bytes == *original
    };
    assert!(
        verdict.is_err() || same,
        "{} altered unnoticed",
        path.display()
    );
}

/// Opens a copy of the log with another write-ahead file.
fn open_with(sample: &Sample, ahead: &[u8]) {
    let copy = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    collect(sample.folder.path(), &mut files);
    for (path, bytes) in files {
        let place = copy
            .path()
            .join(path.strip_prefix(sample.folder.path()).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        let bytes = if path.ends_with("log/ahead") {
            ahead
        } else {
            &bytes[..]
        };
        fs::write(place, bytes).unwrap();
    }
    let Ok(log) = SharedLog::open(copy.path(), log_key()) else {
        return;
    };
    let report = audit::verify::verify_dir(&log.log_dir(), &sample.key, None).unwrap();
    assert_eq!(report.size, EVENTS);
}

/// A checkpoint without its signatures: those of keys unknown to the reader count for nothing.
fn signed_text(note: &[u8]) -> &[u8] {
    let end = note.windows(2).position(|pair| pair == b"\n\n");
    &note[..end.unwrap_or(note.len())]
}
