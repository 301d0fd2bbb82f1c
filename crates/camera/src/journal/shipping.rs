//! The way of the journal to the site.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use audit::MAX_SHIPPED_BYTES;
use audit::journal::{Journal, JournalError, Shipped};
use error_report::Report;
use event_catalogue::camera::JournalDamaged;
use http::{Method, Request, StatusCode};
use serde::Deserialize;
use time::OffsetDateTime;
use untrusted_text::UntrustedText;

use super::{CameraJournal, Inner, Stall};
use crate::transport::{Connection, TransportError, body};

/// Path at which the site takes records.
const PATH: &str = "/intake/v1/journal";
/// Says that what is missing is not there any more.
const LOST: &str = "cordon-journal-lost";
/// Records and bytes of one request; the site takes 128 and 256 KiB.
const MAX_RECORDS: usize = 128;
const MAX_BYTES: usize = 128 * 1024;
/// Requests of one contact: pictures wait for it.
const MAX_REQUESTS: usize = 4;

/// Number of the last record that the site has.
#[derive(Deserialize)]
struct Answer {
    seq: u64,
    #[serde(default)]
    leaf_index: u64,
}

/// Reason of a refusal.
#[derive(Deserialize)]
struct Problem {
    code: String,
    message: String,
}

/// A request's worth of records.
pub(super) struct Batch {
    pub(super) first: u64,
    pub(super) last: u64,
    body: Vec<u8>,
}

/// Why records could not be read or noted.
#[derive(Debug, thiserror::Error)]
enum ShippingError {
    #[error("cannot read the camera's journal")]
    Journal(#[from] JournalError),
    #[error("a worker died")]
    Worker(#[from] tokio::task::JoinError),
}

/// What a contact came to.
#[derive(Default)]
struct Progress {
    /// Records were taken.
    moved: bool,
    /// Why others were not.
    refusal: Option<String>,
}

/// Sends what the site lacks; a site that does not take it is asked again on the next contact.
///
/// # Errors
/// [`TransportError`] if the connection failed.
pub(crate) async fn ship(
    journal: &CameraJournal,
    connection: &mut Connection,
) -> Result<(), TransportError> {
    let progress = send_all(journal, connection).await?;
    if let Some(reason) = &progress.refusal {
        tracing::error!(reason, "the journal does not move");
    }
    let inner = Arc::clone(&journal.shared);
    let noted = tokio::task::spawn_blocking(move || {
        let now = OffsetDateTime::now_utc();
        Stall::note(&inner.folder, progress.refusal, progress.moved, now)
    });
    if let Ok(Err(error)) = noted.await {
        tracing::warn!(%error, "whether the journal moves is not noted");
    }
    Ok(())
}

async fn send_all(
    journal: &CameraJournal,
    connection: &mut Connection,
) -> Result<Progress, TransportError> {
    let mut progress = Progress::default();
    let mut from = journal
        .shared
        .shipped
        .load(Ordering::Relaxed)
        .saturating_add(1);
    let mut lost = false;
    for _ in 0..MAX_REQUESTS {
        let batch = match read(journal, from).await {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(progress),
            Err(error) => {
                progress.refusal = Some(Report(&error).to_string());
                return Ok(progress);
            }
        };
        lost |= batch.first > from;
        let answer = match send(connection, &batch, lost).await? {
            Ok(answer) => answer,
            Err(why) => {
                progress.refusal = Some(why);
                return Ok(progress);
            }
        };
        match answer {
            // A site of an earlier version takes none: nothing to see to on the camera.
            Taken::Nowhere => return Ok(progress),
            Taken::Through(answer) if answer.seq == batch.last => {
                from = batch.last.saturating_add(1);
                (lost, progress.moved) = (false, true);
                if let Err(error) = done(&journal.shared, &answer).await {
                    tracing::warn!(error = %Report(&error), "sent events are not noted");
                }
            }
            // The site has less than we thought: another site, or one from a backup.
            Taken::Lacks(seq) if seq < batch.first => from = seq.saturating_add(1),
            Taken::Through(Answer { seq, .. }) | Taken::Lacks(seq) => {
                let (first, last) = (batch.first, batch.last);
                let why = format!("the site answers number {seq} to records {first} to {last}");
                progress.refusal = Some(why);
                return Ok(progress);
            }
        }
    }
    Ok(progress)
}

/// The site's answer to records.
enum Taken {
    /// It has all up to this one.
    Through(Answer),
    /// It lacks what comes after this number.
    Lacks(u64),
    /// It has no place for journals.
    Nowhere,
}

/// Sends a batch. The inner error says why the site does not take it.
async fn send(
    connection: &mut Connection,
    batch: &Batch,
    lost: bool,
) -> Result<Result<Taken, String>, TransportError> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(PATH)
        .header(http::header::CONTENT_TYPE, "application/x-ndjson");
    if lost {
        request = request.header(LOST, "yes");
    }
    let request = match request.body(body::in_memory(batch.body.clone())) {
        Ok(request) => request,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let len = batch.body.len() as u64;
    let answer = connection.request(request, len).await?;
    let content: Option<Answer> = serde_json::from_slice(answer.body()).ok();
    Ok(match (answer.status(), content) {
        (StatusCode::OK, Some(content)) => Ok(Taken::Through(content)),
        (StatusCode::CONFLICT, Some(content)) => Ok(Taken::Lacks(content.seq)),
        (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => Ok(Taken::Nowhere),
        (status, _) => Err(why(status, answer.body())),
    })
}

/// The reason of an answer that is not one of those that move the journal.
fn why(status: StatusCode, body: &[u8]) -> String {
    let problem: Option<Problem> = serde_json::from_slice(body).ok();
    match problem {
        Some(problem) => {
            let (code, message) = (
                UntrustedText::new(&problem.code),
                UntrustedText::new(&problem.message),
            );
            format!("the site answers {status}, {code}: {message}")
        }
        None => format!("the site answers {status}"),
    }
}

/// The records from `from` on, or from the oldest that can be read.
async fn read(journal: &CameraJournal, from: u64) -> Result<Option<Batch>, ShippingError> {
    let (inner, device) = (Arc::clone(&journal.shared), journal.device.clone());
    Ok(tokio::task::spawn_blocking(move || read_now(&inner, &device, from)).await??)
}

/// Does the same; blocks.
pub(super) fn read_now(
    inner: &Inner,
    device: &str,
    from: u64,
) -> Result<Option<Batch>, JournalError> {
    let mut journal = inner.journal();
    let from = from.max(journal.first_seq()?);
    if from > journal.last_seq() {
        return Ok(None);
    }
    let damage = match batch(&journal, from) {
        Ok(batch) if batch.is_some() => return Ok(batch),
        Ok(_) => "the records end too early".to_owned(),
        Err(error) if is_damage(&error) => Report(&error).to_string(),
        Err(error) => return Err(error),
    };
    // What cannot be read is lost, and the site sees which numbers are missing. The journal goes on after it.
    let next = journal.resume_after(from)?;
    tracing::error!(from, next, damage, "records of the journal cannot be read");
    if next > journal.last_seq() {
        let now = OffsetDateTime::now_utc();
        let damaged = JournalDamaged {
            missing_from: Some(from),
            missing_to: Some(next.saturating_sub(1)),
        };
        let event = super::about(device, damaged, now).with_reason(damage);
        journal.append(event.fitted(MAX_SHIPPED_BYTES))?;
        inner.last.store(journal.last_seq(), Ordering::Relaxed);
    }
    batch(&journal, next)
}

/// Tells that records are not what was written, or gone: reading them again will not help. A disk that fails is no such case.
fn is_damage(error: &JournalError) -> bool {
    matches!(
        error,
        JournalError::Damaged { .. } | JournalError::Missing { .. } | JournalError::Foreign { .. }
    )
}

/// The records from `from` on, up to damage or to what one request takes.
fn batch(journal: &Journal, from: u64) -> Result<Option<Batch>, JournalError> {
    let mut batch: Option<Batch> = None;
    for record in journal.read_from(from)?.take(MAX_RECORDS) {
        let record = match record {
            Ok(record) => record,
            // What is before the damage goes first.
            Err(error) if batch.is_some() && is_damage(&error) => break,
            Err(error) => return Err(error),
        };
        let batch = batch.get_or_insert(Batch {
            first: record.seq,
            last: record.seq,
            body: Vec::new(),
        });
        if !batch.body.is_empty() && batch.body.len().saturating_add(record.leaf.len()) > MAX_BYTES
        {
            break;
        }
        batch.last = record.seq;
        batch.body.extend_from_slice(&record.leaf);
        batch.body.push(b'\n');
    }
    Ok(batch)
}

async fn done(inner: &Arc<Inner>, answer: &Answer) -> Result<(), ShippingError> {
    inner.shipped.store(answer.seq, Ordering::Relaxed);
    let shipped = Shipped {
        seq: answer.seq,
        leaf_index: answer.leaf_index,
    };
    let inner = Arc::clone(inner);
    let noted = tokio::task::spawn_blocking(move || inner.journal().mark_shipped(shipped));
    Ok(noted.await??)
}
