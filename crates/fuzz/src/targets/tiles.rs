//! The files of an audit log, one of them edited: the verifier never panics, and it accepts only
//! what was written.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::edit;
use audit::{Actor, AuditSink, Event, LogKey, Outcome, SharedLog};
use time::OffsetDateTime;

struct Sample {
    folder: tempfile::TempDir,
    key: String,
    files: Vec<(PathBuf, Vec<u8>)>,
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let key = LogKey::generate("example.org/log").unwrap();
        let text = key.verifier().to_string();
        let log = SharedLog::open(folder.path(), key).unwrap();
        let role = log.role("centre").unwrap();
        let events = (0..300).map(|n| {
            let at = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(n);
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

/// A checkpoint without its signatures: those of keys unknown to the reader count for nothing.
fn signed_text(note: &[u8]) -> &[u8] {
    let end = note.windows(2).position(|pair| pair == b"\n\n");
    &note[..end.unwrap_or(note.len())]
}
