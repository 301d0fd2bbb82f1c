//! Cameras' journals: what was done to a camera, taken over into the audit log under the camera's name.
//!
//! A camera sends the records of its own hash-chained journal in order. Their events are recorded first and their
//! hashes are written down then, so that a record that comes twice is one event, unless a crash fell between
//! the two; no gap or fork is lost by one. A record whose number was taken by another one, or that
//! does not name the one before it, is a fork; numbers that the camera no longer has are a gap. Both are
//! events, and the camera goes on from there: what it says now is still worth keeping. A record whose content the log does not
//! take becomes a `journal.refused` event with its number and hash, so that none can block those behind it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use audit::{Actor, AuditSink as _, Event};
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use event_catalogue::camera::{JournalFork, JournalGap};
use event_catalogue::context::{Origin, Shipped};
use event_catalogue::{Details as _, Recorded as _};
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use store::sqlx;
use store::{Sql, StoreError};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Intake;
use super::error::SettleError;
use super::set_aside::Report;
use crate::device::Device;
use crate::problem::Problem;
use crate::silence::{self, SilenceError, SilentJournal};

mod record;

use record::{MAX_RECORDS, Record, parse};

/// Where cameras send records, one canonical leaf a line.
const PATH: &str = "/intake/v1/journal";
/// Said by a camera that no longer has the records in between.
const LOST: &str = "cordon-journal-lost";
/// Bytes of one request.
const MAX_BYTES: usize = 256 * 1024;
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
    /// Journals that do not move, as last looked for.
    silent: Mutex<Vec<SilentJournal>>,
}

impl Journals {
    pub(super) fn set_silent(&self, journals: Vec<SilentJournal>) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = journals;
    }

    pub(super) fn silent(&self) -> Vec<SilentJournal> {
        let silent = self.silent.lock();
        silent.unwrap_or_else(PoisonError::into_inner).clone()
    }

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
        let hint = "send records of the role camera in order, at most 128";
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
            let seq = records.last().map_or(0, |record| record.seq);
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
    let before = first.seq.saturating_sub(1);
    let same = |record: &Record| {
        let hash = known.hashes.get(&record.seq);
        hash.is_some_and(|hash| *hash == record.hash.to_string())
    };
    // What was sent before needs no predecessor; what is new does, whatever larger numbers were seen.
    if before > 0 && !known.hashes.contains_key(&before) && !same(first) {
        if !lost {
            return Err(known.last);
        }
        plan.gap = Some((known.last.saturating_add(1), before));
    } else if let Some(hash) = known.hashes.get(&before)
        && *hash != first.prev
    {
        plan.fork = Some(Fork {
            sequence: before,
            known: hash.clone(),
            found: first.prev.clone(),
        });
    }
    for (index, record) in records.iter().enumerate() {
        let found = record.hash.to_string();
        match known.hashes.get(&record.seq) {
            Some(hash) if *hash == found && plan.fork.is_none() => {}
            Some(hash) if plan.fork.is_none() => {
                plan.fork = Some(Fork {
                    sequence: record.seq,
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
        let first = records.first().map_or(0, |record| record.seq);
        let known = known(&self.inner.sql, device, first.saturating_sub(1)).await?;
        let plan = match compare(&known, records, lost) {
            Ok(plan) => plan,
            Err(last) => return Ok(Taken::Missing(last)),
        };
        let last = records.last().map_or(0, |record| record.seq);
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
        // Findings about the batch come first.
        let findings = recorded.len().saturating_sub(plan.new.len());
        let places = recorded.iter().skip(findings).map(|one| one.leaf_index);
        let mut tx = self.inner.sql.write().await?;
        if let Some(fork) = &plan.fork {
            sqlx::query("DELETE FROM camera_journal WHERE device = ? AND seq >= ?")
                .bind(device)
                .bind(fork.sequence.cast_signed())
                .execute(&mut *tx)
                .await?;
        }
        let new = plan.new.iter().zip(places);
        let new = new.filter_map(|(index, place)| Some((records.get(*index)?, place)));
        for (record, place) in new {
            sqlx::query("INSERT OR REPLACE INTO camera_journal VALUES (?, ?, ?, ?)")
                .bind(device)
                .bind(record.seq.cast_signed())
                .bind(record.hash.to_string())
                .bind(place.cast_signed())
                .execute(&mut *tx)
                .await?;
        }
        silence::moved(&mut tx, &silence::of_camera(device), now).await?;
        let newest = plan
            .new
            .iter()
            .rev()
            .filter_map(|index| records.get(*index));
        let mut reports = newest.filter_map(|record| Report::of(record.content.as_ref().ok()?));
        if let Some(report) = reports.next() {
            report.keep(device, now, &mut tx).await?;
        }
        tx.commit().await.map_err(StoreError::from)?;
        Ok(Taken::Place(place))
    }

    /// Notes that a record of `source` came.
    ///
    /// # Errors
    /// Failures of the index.
    pub async fn journal_moved(&self, source: &str, now: OffsetDateTime) -> Result<(), StoreError> {
        let mut tx = self.inner.sql.write().await?;
        silence::moved(&mut tx, source, now).await?;
        tx.commit().await.map_err(StoreError::from)
    }

    /// Finds journals whose newest record came before `before`.
    ///
    /// # Errors
    /// Failures of the index.
    pub async fn silent_journals(
        &self,
        before: OffsetDateTime,
    ) -> Result<Vec<SilentJournal>, StoreError> {
        silence::silent(&self.inner.sql, before).await
    }

    /// Records new silences in the audit log, and keeps the list for [`Self::known_silent_journals`] and the metrics.
    ///
    /// # Errors
    /// Failures of index and audit log.
    pub async fn record_silence(
        &self,
        journals: Vec<SilentJournal>,
        now: OffsetDateTime,
    ) -> Result<(), SilenceError> {
        let inner = &self.inner;
        silence::record(&journals, (&inner.sql, &inner.audit, &inner.pool), now).await?;
        let count = i64::try_from(journals.len()).unwrap_or(i64::MAX);
        inner.metrics.silent_journals.set(count);
        inner.journals.set_silent(journals);
        Ok(())
    }

    /// The silent journals as last looked for.
    #[must_use]
    pub fn known_silent_journals(&self) -> Vec<SilentJournal> {
        self.inner.journals.silent()
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
    let (object, actor) = (format!("camera/{device}"), Actor::device(device));
    let origin = |event: Event| {
        let address = address.map(str::to_owned);
        Origin { address }.add_to(event)
    };
    let mut events = Vec::new();
    if let Some((missing_from, missing_to)) = plan.gap {
        let gap = JournalGap {
            missing_from,
            missing_to,
        };
        let gap = gap.into_event(now, actor.clone(), &object);
        events.push(origin(
            gap.with_reason("the camera no longer has records that never came"),
        ));
    }
    if let Some(fork) = &plan.fork {
        let fork = JournalFork {
            sequence: fork.sequence,
            known_sha256: fork.known.clone(),
            found_sha256: fork.found.clone(),
        };
        let fork = fork.into_event(now, actor.clone(), &object);
        events.push(origin(
            fork.with_reason("the camera's journal is not the one that it was"),
        ));
    }
    for index in &plan.new {
        let Some(record) = records.get(*index) else {
            continue;
        };
        let content = match &record.content {
            Ok(content) => content,
            Err(refused) => {
                let marked = refused.clone().into_event(now, actor.clone(), &object);
                events.push(origin(marked));
                continue;
            }
        };
        // A later version may know actions that this one does not: the event stays as the camera wrote it.
        let (action, outcome) = (&content.action, content.outcome);
        let mut told = origin(Event::new(now, actor.clone(), action, &object, outcome));
        told.reason.clone_from(&content.reason);
        for (name, value) in &content.details {
            told.details
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
        let shipped = Shipped {
            journal_seq: Some(record.seq.into()),
            journal_sha256: Some(record.hash.to_string()),
            // The log's times are the site's; the camera's clock is a claim.
            camera_at: Some(content.at.format(&Rfc3339).unwrap_or_default()),
        };
        events.push(shipped.add_to(told));
    }
    events
}

#[cfg(test)]
mod tests;
