//! Reads records as a camera sends them.
//!
//! A record is an envelope (role, number, hash of the record before) around an event. The envelope decides whether the batch is
//! a journal at all; the event only decides what the log has in the record's place. So the chain moves on whatever a record says.

use audit::{Event, JOURNAL_REFUSED, Leaf, RefusedRecord};
use event_catalogue::camera::PREFIX;
use evidence::digest::Sha256Digest;
use serde::Deserialize;

/// The role's name in a camera's journal.
pub(super) const ROLE: &str = "camera";
/// Records of one request.
pub(super) const MAX_RECORDS: usize = 128;
/// Bytes of a record whose event is taken: an event of the audit log takes more, as it gets details of ours.
const MAX_RECORD: usize = 8 * 1024;
/// Numbers of records: beyond, JSON's numbers are not exact.
const MAX_SEQ: u64 = 1 << 53;

/// A record as it came.
pub(super) struct Record {
    /// Number in the camera's journal.
    pub(super) seq: u64,
    /// Hash of the record before it, in hexadecimal.
    pub(super) prev: String,
    /// Hash of its bytes.
    pub(super) hash: Sha256Digest,
    /// Its event, or what the log has in its place.
    pub(super) content: Result<Event, RefusedRecord>,
}

/// What every version of the format has around an event.
#[derive(Deserialize)]
struct Envelope {
    prev: Sha256Digest,
    role: String,
    seq: u64,
}

/// Reads a batch that is a chain in itself.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Record>, &'static str> {
    let mut records: Vec<Record> = Vec::new();
    for line in body
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        if records.len() == MAX_RECORDS {
            return Err("too many records");
        }
        let envelope: Envelope =
            serde_json::from_slice(line).map_err(|_| "a line is no record of a journal")?;
        if envelope.role != ROLE || envelope.seq == 0 {
            return Err("a record is not of a camera");
        }
        if envelope.seq >= MAX_SEQ {
            return Err("a number is too large");
        }
        let hash = Sha256Digest::of(line);
        if let Some(before) = records.last()
            && (before.seq.checked_add(1) != Some(envelope.seq) || before.hash != envelope.prev)
        {
            return Err("the records are not in order");
        }
        let content = content(line).map_err(|why| RefusedRecord::new(envelope.seq, line, why));
        records.push(Record {
            seq: envelope.seq,
            prev: envelope.prev.to_string(),
            hash,
            content,
        });
    }
    if records.is_empty() {
        return Err("there is no record");
    }
    Ok(records)
}

/// The event of a record, or why the log does not take it.
fn content(line: &[u8]) -> Result<Event, String> {
    if line.len() > MAX_RECORD {
        return Err(format!(
            "record has {} bytes, more than {MAX_RECORD}",
            line.len()
        ));
    }
    let leaf = Leaf::decode(line).map_err(|error| error_report::Report(&error).to_string())?;
    let event = leaf.event;
    if !is_of_a_camera(&event.action) {
        return Err("action is not one of a camera".to_owned());
    }
    // Cameras of earlier versions wrote names of files as they were.
    if event.has_invisible_text() {
        return Err("text has a control or format character".to_owned());
    }
    Ok(event)
}

/// Tells whether an action is one that cameras report; what the site itself finds has names of its own.
fn is_of_a_camera(action: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c == '-';
    let name = action.strip_prefix(PREFIX);
    let own = name.is_some_and(|name| {
        name.chars().all(word) && !matches!(name, "" | "journal-gap" | "journal-fork")
    });
    own || action == JOURNAL_REFUSED
}
