//! Cameras' journals: what was done to a camera, taken over into the audit log under the camera's name.
//!
//! A camera sends the records of its own hash-chained journal in order. Their events are recorded first and their
//! hashes are written down then, so that a record that comes twice is one event, unless a crash fell between
//! the two; no gap or fork is lost by one. A record whose number was taken by another one, or that
//! does not name the one before it, is a fork; numbers that the camera no longer has are a gap. Both are
//! events, and the camera goes on from there: what it says now is still worth keeping.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use audit::{Actor, AuditSink as _, Event, Leaf};
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use evidence::digest::Sha256Digest;
use evidence::manifest::is_unsafe_char;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use store::sqlx;
use store::{Sql, StoreError};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Intake;
use super::error::SettleError;
use crate::device::Device;
use crate::problem::Problem;

/// Where cameras send records, one canonical leaf a line.
const PATH: &str = "/intake/v1/journal";
/// Said by a camera that no longer has the records in between.
const LOST: &str = "cordon-journal-lost";
/// The role's name in a camera's journal.
const ROLE: &str = "camera";
/// Records and bytes of one request.
const MAX_RECORDS: usize = 128;
const MAX_BYTES: usize = 256 * 1024;
/// Bytes of one record: an event of the audit log takes more, as it gets details of ours.
const MAX_RECORD: usize = 8 * 1024;
/// Numbers of records: beyond, JSON's numbers are not exact.
const MAX_SEQ: u64 = 1 << 53;
/// Records of one camera in a day. Whoever has a camera's key must not fill the log with them.
const MAX_PER_DAY: u32 = 5_000;

/// Code of the refusal beyond it.
const FULL: &str = "journal-full";

/// Cameras' use of today's bound.
#[derive(Default)]
pub(crate) struct Journals {
    /// Day and records by device; devices are as many as are enrolled.
    used: Mutex<HashMap<String, (i64, u32)>>,
    /// One batch at a time: numbers are compared and then written.
    turn: tokio::sync::Mutex<()>,
}

impl Journals {
    /// Counts `records` of `device`, or gives the seconds until tomorrow.
    fn count(&self, device: &str, records: usize, now: OffsetDateTime) -> Result<(), i64> {
        const DAY: i64 = 86_400;
        let day = now.unix_timestamp().div_euclid(DAY);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, count) = used.entry(device.to_owned()).or_default();
        if *of != day {
            (*of, *count) = (day, 0);
        }
        let more = count.saturating_add(u32::try_from(records).unwrap_or(u32::MAX));
        if more > MAX_PER_DAY {
            return Err(DAY - now.unix_timestamp().rem_euclid(DAY));
        }
        *count = more;
        Ok(())
    }
}

/// A record as it came.
struct Record {
    leaf: Leaf,
    hash: Sha256Digest,
}

/// Records of a camera's journal that were taken before.
#[derive(Default)]
struct Known {
    /// The largest number before the batch.
    last: u64,
    /// Hashes from the batch's predecessor on.
    hashes: HashMap<u64, String>,
}

/// What a batch comes to.
struct Plan {
    /// Records that are to be recorded, by their places in the batch.
    new: Vec<usize>,
    /// Numbers from which on another journal was known.
    fork: Option<Fork>,
    /// First and last number that never came.
    gap: Option<(u64, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Fork {
    sequence: u64,
    known: String,
    found: String,
}

pub(crate) fn router(intake: Intake) -> Router {
    Router::new()
        .route(PATH, post(take))
        .layer(DefaultBodyLimit::max(MAX_BYTES))
        .with_state(intake)
}

async fn take(
    State(intake): State<Intake>,
    device: Device,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let records = parse(&body).map_err(|reason| {
        let hint = "send canonical records of the role camera in order, at most 128";
        Problem::new(
            StatusCode::BAD_REQUEST,
            "journal-malformed",
            reason.to_owned(),
            hint,
        )
    })?;
    let address = from.map(|from| from.0.0.ip().to_string());
    let lost = headers.contains_key(LOST);
    let _turn = intake.inner.journals.turn.lock().await;
    let taken = intake.take_over(&device.0, &records, lost, address).await;
    match taken.map_err(|error| Problem::internal(&error))? {
        Taken::Place(leaf_index) => {
            let seq = records.last().map_or(0, |record| record.leaf.seq);
            Ok(Json(json!({ "seq": seq, "leaf_index": leaf_index })).into_response())
        }
        // The camera has more to send first, or says that it no longer can.
        Taken::Missing(last) => {
            Ok((StatusCode::CONFLICT, Json(json!({ "seq": last }))).into_response())
        }
        Taken::Full(seconds) => {
            let problem = Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                FULL,
                format!("more than {MAX_PER_DAY} records of one day"),
                "send the rest tomorrow",
            );
            Ok(([(RETRY_AFTER, seconds.to_string())], problem).into_response())
        }
    }
}

/// What became of a batch.
enum Taken {
    /// It is recorded; the last record's place in the audit log.
    Place(u64),
    /// Records after this number are missing.
    Missing(u64),
    /// The camera's records of this day are used up; seconds until the next.
    Full(i64),
}

/// Reads a batch that is a chain in itself.
fn parse(body: &[u8]) -> Result<Vec<Record>, &'static str> {
    let mut records: Vec<Record> = Vec::new();
    for line in body
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        if records.len() == MAX_RECORDS {
            return Err("too many records");
        }
        if line.len() > MAX_RECORD {
            return Err("a record is too long");
        }
        let leaf = Leaf::decode(line).map_err(|_| "a line is no canonical record")?;
        if leaf.role != ROLE || !is_of_a_camera(&leaf.event.action) || leaf.seq == 0 {
            return Err("a record is not of a camera");
        }
        if leaf.seq >= MAX_SEQ {
            return Err("a number is too large");
        }
        if !is_plain(&leaf.event) {
            return Err("a text has a control or direction character");
        }
        if let Some(before) = records.last()
            && (before.leaf.seq.checked_add(1) != Some(leaf.seq)
                || before.hash.to_string() != leaf.prev)
        {
            return Err("the records are not in order");
        }
        let hash = Sha256Digest::of(line);
        records.push(Record { leaf, hash });
    }
    if records.is_empty() {
        return Err("there is no record");
    }
    Ok(records)
}

/// Whether an action is one that cameras report; what the site itself finds has names of its own.
fn is_of_a_camera(action: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c == '-';
    let name = action.strip_prefix("camera.");
    name.is_some_and(|name| {
        name.chars().all(word) && !matches!(name, "" | "journal-gap" | "journal-fork")
    })
}

/// Whether no text of an event can move a reader's cursor or turn the direction of a line.
fn is_plain(event: &Event) -> bool {
    fn plain(value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::String(text) => text_is_plain(text),
            serde_json::Value::Array(values) => values.iter().all(plain),
            serde_json::Value::Object(fields) => fields
                .iter()
                .all(|(name, value)| text_is_plain(name) && plain(value)),
            _ => true,
        }
    }
    event.reason.as_deref().is_none_or(text_is_plain)
        && event
            .details
            .iter()
            .all(|(name, value)| text_is_plain(name) && plain(value))
}

fn text_is_plain(text: &str) -> bool {
    !text.chars().any(is_unsafe_char)
}

/// Compares a batch with what is known; the error is the number of the last record that is there, if
/// others are missing before the batch.
fn compare(known: &Known, records: &[Record], lost: bool) -> Result<Plan, u64> {
    let mut plan = Plan {
        new: Vec::new(),
        fork: None,
        gap: None,
    };
    let Some(first) = records.first() else {
        return Ok(plan);
    };
    let before = first.leaf.seq.saturating_sub(1);
    let same = |record: &Record| {
        let hash = known.hashes.get(&record.leaf.seq);
        hash.is_some_and(|hash| *hash == record.hash.to_string())
    };
    // What was sent before needs no predecessor; what is new does, whatever larger numbers were seen.
    if before > 0 && !known.hashes.contains_key(&before) && !same(first) {
        if !lost {
            return Err(known.last);
        }
        plan.gap = Some((known.last.saturating_add(1), before));
    } else if let Some(hash) = known.hashes.get(&before)
        && *hash != first.leaf.prev
    {
        plan.fork = Some(Fork {
            sequence: before,
            known: hash.clone(),
            found: first.leaf.prev.clone(),
        });
    }
    for (index, record) in records.iter().enumerate() {
        let found = record.hash.to_string();
        match known.hashes.get(&record.leaf.seq) {
            Some(hash) if *hash == found && plan.fork.is_none() => {}
            Some(hash) if plan.fork.is_none() => {
                plan.fork = Some(Fork {
                    sequence: record.leaf.seq,
                    known: hash.clone(),
                    found,
                });
                plan.new.push(index);
            }
            _ => plan.new.push(index),
        }
    }
    Ok(plan)
}

impl Intake {
    /// Records a batch. One batch at a time: nothing else writes what is read here.
    async fn take_over(
        &self,
        device: &str,
        records: &[Record],
        lost: bool,
        address: Option<String>,
    ) -> Result<Taken, SettleError> {
        let first = records.first().map_or(0, |record| record.leaf.seq);
        let known = known(&self.inner.sql, device, first.saturating_sub(1)).await?;
        let plan = match compare(&known, records, lost) {
            Ok(plan) => plan,
            Err(last) => return Ok(Taken::Missing(last)),
        };
        let last = records.last().map_or(0, |record| record.leaf.seq);
        let events = events(device, records, &plan, address.as_deref());
        if events.is_empty() {
            return Ok(Taken::Place(self.journal_place(device, last).await?));
        }
        let now = OffsetDateTime::now_utc();
        if let Err(seconds) = self.inner.journals.count(device, plan.new.len(), now) {
            tracing::warn!(
                device,
                "the camera's journal has used up its records of today"
            );
            return Ok(Taken::Full(seconds));
        }
        let audit = self.inner.audit.clone();
        let recorded = self
            .inner
            .pool
            .run(move || audit.record_all(events))
            .await??;
        let place = recorded.last().map_or(0, |recorded| recorded.leaf_index);
        let mut tx = self.inner.sql.write().await?;
        if let Some(fork) = &plan.fork {
            sqlx::query("DELETE FROM camera_journal WHERE device = ? AND seq >= ?")
                .bind(device)
                .bind(fork.sequence.cast_signed())
                .execute(&mut *tx)
                .await?;
        }
        for record in plan.new.iter().filter_map(|index| records.get(*index)) {
            sqlx::query("INSERT OR REPLACE INTO camera_journal VALUES (?, ?, ?, ?)")
                .bind(device)
                .bind(record.leaf.seq.cast_signed())
                .bind(record.hash.to_string())
                .bind(place.cast_signed())
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await.map_err(StoreError::from)?;
        Ok(Taken::Place(place))
    }

    async fn journal_place(&self, device: &str, seq: u64) -> Result<u64, StoreError> {
        let place: Option<Option<i64>> =
            sqlx::query_scalar("SELECT log_index FROM camera_journal WHERE device = ? AND seq = ?")
                .bind(device)
                .bind(seq.cast_signed())
                .fetch_optional(self.inner.sql.read())
                .await?;
        Ok(place.flatten().unwrap_or_default().unsigned_abs())
    }
}

async fn known(sql: &Sql, device: &str, from: u64) -> Result<Known, StoreError> {
    let last: Option<i64> =
        sqlx::query_scalar("SELECT max(seq) FROM camera_journal WHERE device = ? AND seq <= ?")
            .bind(device)
            .bind(from.cast_signed())
            .fetch_one(sql.read())
            .await?;
    // As many as a batch has, and the one before it.
    let rows: Vec<(i64, String)> = sqlx::query_as(
        "SELECT seq, leaf_sha256 FROM camera_journal
         WHERE device = ? AND seq >= ? ORDER BY seq LIMIT ?",
    )
    .bind(device)
    .bind(from.cast_signed())
    .bind(
        i64::try_from(MAX_RECORDS)
            .unwrap_or(i64::MAX)
            .saturating_add(1),
    )
    .fetch_all(sql.read())
    .await?;
    let hashes = rows
        .into_iter()
        .map(|(seq, hash)| (seq.unsigned_abs(), hash));
    Ok(Known {
        last: last.unwrap_or_default().unsigned_abs(),
        hashes: hashes.collect(),
    })
}

/// The events of a batch: what is wrong with it first, then what the camera says.
fn events(device: &str, records: &[Record], plan: &Plan, address: Option<&str>) -> Vec<Event> {
    let now = OffsetDateTime::now_utc();
    let event = |action: &str, outcome| {
        let resource = format!("camera/{device}");
        let event = Event::new(now, Actor::device(device), action, resource, outcome);
        match address {
            Some(address) => event.with_detail("address", address),
            None => event,
        }
    };
    let mut events = Vec::new();
    if let Some((from, to)) = plan.gap {
        let gap = event("camera.journal-gap", audit::Outcome::Fail)
            .with_reason("the camera no longer has records that never came")
            .with_detail("missing_from", from)
            .with_detail("missing_to", to);
        events.push(gap);
    }
    if let Some(fork) = &plan.fork {
        let fork = event("camera.journal-fork", audit::Outcome::Fail)
            .with_reason("the camera's journal is not the one that it was")
            .with_detail("journal_seq", fork.sequence)
            .with_detail("known_sha256", fork.known.clone())
            .with_detail("found_sha256", fork.found.clone());
        events.push(fork);
    }
    for index in &plan.new {
        let Some(Record { leaf, hash }) = records.get(*index) else {
            continue;
        };
        let mut told = event(&leaf.event.action, leaf.event.outcome);
        told.reason.clone_from(&leaf.event.reason);
        for (name, value) in &leaf.event.details {
            told.details
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
        // The log's times are the site's; the camera's clock is a claim.
        let at = leaf.event.at.format(&Rfc3339).unwrap_or_default();
        told = told
            .with_detail("camera_at", at)
            .with_detail("journal_seq", leaf.seq)
            .with_detail("journal_sha256", hash.to_string());
        events.push(told);
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit::journal::{Journal, JournalOptions};

    fn journal(events: usize) -> Vec<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
        let at = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        let event = |n: usize| {
            let actor = Actor::device("camera-17");
            Event::new(
                at,
                actor,
                "camera.start",
                "camera/camera-17",
                audit::Outcome::Ok,
            )
            .with_detail("n", n)
        };
        journal
            .append_batch((0..events).map(event).collect())
            .unwrap()
    }

    fn records(leaves: &[Vec<u8>]) -> Vec<Record> {
        parse(&leaves.join(&b'\n')).unwrap()
    }

    fn known(records: &[Record]) -> Known {
        let hash = |r: &Record| (r.leaf.seq, r.hash.to_string());
        Known {
            last: records.last().unwrap().leaf.seq,
            hashes: records.iter().map(hash).collect(),
        }
    }

    #[test]
    fn batch_is_canonical_of_a_camera_and_a_chain() {
        let leaves = journal(3);
        assert_eq!(records(&leaves).len(), 3);
        let text = |leaf: &[u8]| String::from_utf8(leaf.to_vec()).unwrap();
        let refused = |body: String| parse(body.as_bytes()).err().unwrap();
        let (one, three) = (text(&leaves[0]), text(&leaves[2]));
        assert_eq!(
            refused(format!("{one}\n{three}")),
            "the records are not in order"
        );
        assert_eq!(
            refused(one.replace("camera.start", "evidence.view")),
            "a record is not of a camera"
        );
        assert_eq!(
            refused(one.replace("\"role\"", " \"role\"")),
            "a line is no canonical record"
        );
        assert_eq!(refused(String::new()), "there is no record");
        let many = journal(MAX_RECORDS + 1);
        assert_eq!(records(&many[..MAX_RECORDS]).len(), MAX_RECORDS);
        assert_eq!(parse(&many.join(&b'\n')).err(), Some("too many records"));
    }

    #[test]
    fn records_come_once() {
        let all = records(&journal(3));
        let nothing = compare(&known(&all), &all, false).unwrap();
        assert!(nothing.new.is_empty() && nothing.fork.is_none() && nothing.gap.is_none());
        let further = compare(&known(&all[..1]), &all, false).unwrap();
        assert_eq!(further.new, [1, 2]);
        let events = events("camera-17", &all, &further, Some("::1"));
        assert!(events.iter().all(|e| e.details["address"] == "::1"));
    }

    #[test]
    fn gap_is_asked_for_and_then_reported() {
        let all = records(&journal(5));
        let before = known(&all[..1]);
        assert_eq!(compare(&before, &all[3..], false).err(), Some(1));
        let plan = compare(&before, &all[3..], true).unwrap();
        assert_eq!((plan.gap, plan.new.len()), (Some((2, 3)), 2));
        let told = events("camera-17", &all[3..], &plan, None);
        assert_eq!(told[0].action, "camera.journal-gap");
    }

    #[test]
    fn numbers_far_ahead_hide_no_gap_below_them() {
        let all = records(&journal(6));
        // Known are the first record and the last, which came with a gap.
        let mut before = known(&all[..1]);
        before.hashes.insert(6, all[5].hash.to_string());
        assert_eq!(compare(&before, &all[3..5], false).err(), Some(1));
        let plan = compare(&before, &all[3..5], true).unwrap();
        assert_eq!((plan.gap, plan.new.len()), (Some((2, 3)), 2));
        // The one that was sent before may come again.
        assert!(compare(&before, &all[5..], false).unwrap().new.is_empty());
    }

    #[test]
    fn site_s_own_findings_large_numbers_and_control_characters_are_refused() {
        let leaf = String::from_utf8(journal(1).remove(0)).unwrap();
        let refused = |body: String| parse(body.as_bytes()).err().unwrap();
        let own = leaf.replace("camera.start", "camera.journal-gap");
        assert_eq!(refused(own), "a record is not of a camera");
        let large = leaf.replace("\"seq\":1", &format!("\"seq\":{MAX_SEQ}"));
        assert!(parse(large.as_bytes()).is_err());
        let escape = leaf.replace("\"n\":0", "\"n\":\"\\u001b[2K\"");
        assert_eq!(
            refused(escape),
            "a text has a control or direction character"
        );
    }

    #[test]
    fn other_journal_with_the_same_numbers_is_a_fork() {
        let mine = records(&journal(3));
        let at = |n: usize| journal(n + 1).split_off(n);
        // Another journal: its first record differs.
        let mut other = journal(2);
        let changed = String::from_utf8(other[0].clone())
            .unwrap()
            .replace("\"n\":0", "\"n\":9");
        other[0] = changed.into_bytes();
        let fork = compare(&known(&mine), &records(&other[..1]), false).unwrap();
        assert_eq!(fork.fork.as_ref().unwrap().sequence, 1);
        assert_eq!(fork.new, [0]);
        // A record that names another predecessor than the one that is known.
        let mut before = known(&mine[..1]);
        before.hashes.insert(1, "0".repeat(64));
        let plan = compare(&before, &records(&at(1)), false).unwrap();
        assert_eq!(plan.fork.unwrap().sequence, 1);
    }

    #[test]
    fn records_of_a_day_are_bounded() {
        let journals = Journals::default();
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        let all = usize::try_from(MAX_PER_DAY).unwrap();
        assert_eq!(journals.count("a", all, now), Ok(()));
        assert_eq!(journals.count("a", 1, now), Err(86_400));
        assert_eq!(journals.count("b", 1, now), Ok(()));
        assert_eq!(
            journals.count("a", 1, now + time::Duration::days(1)),
            Ok(())
        );
    }
}
