//! The way of the journal to the site.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use audit::journal::{JournalError, Shipped};
use error_report::Report;
use http::{Method, Request, StatusCode};
use serde::Deserialize;

use super::{CameraJournal, Inner};
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

/// A request's worth of records.
struct Batch {
    first: u64,
    last: u64,
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

/// Sends what the site lacks; a site that does not take it is asked again on the next contact.
///
/// # Errors
/// [`TransportError`] if the connection failed.
pub(crate) async fn ship(
    journal: &CameraJournal,
    connection: &mut Connection,
) -> Result<(), TransportError> {
    let mut from = journal
        .shared
        .shipped
        .load(Ordering::Relaxed)
        .saturating_add(1);
    let mut lost = false;
    for _ in 0..MAX_REQUESTS {
        let batch = match read(&journal.shared, from).await {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::error!(error = %Report(&error), "the journal is not sent");
                return Ok(());
            }
        };
        lost |= batch.first > from;
        let Some((status, answer)) = send(connection, &batch, lost).await? else {
            return Ok(());
        };
        match status {
            StatusCode::OK if answer.seq == batch.last => {
                from = batch.last.saturating_add(1);
                lost = false;
                if let Err(error) = done(&journal.shared, &answer).await {
                    tracing::warn!(error = %Report(&error), "sent events are not noted");
                }
            }
            // The site has less than we thought: another site, or one from a backup.
            StatusCode::CONFLICT if answer.seq < batch.first => {
                from = answer.seq.saturating_add(1);
            }
            status => {
                tracing::warn!(%status, "the site does not take the journal");
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn send(
    connection: &mut Connection,
    batch: &Batch,
    lost: bool,
) -> Result<Option<(StatusCode, Answer)>, TransportError> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(PATH)
        .header(http::header::CONTENT_TYPE, "application/x-ndjson");
    if lost {
        request = request.header(LOST, "yes");
    }
    let Ok(request) = request.body(body::in_memory(batch.body.clone())) else {
        return Ok(None);
    };
    let len = batch.body.len() as u64;
    let answer = connection.request(request, len).await?;
    let status = answer.status();
    // A site of an earlier version takes none.
    if status == StatusCode::NOT_FOUND || status == StatusCode::METHOD_NOT_ALLOWED {
        return Ok(None);
    }
    let content = serde_json::from_slice(answer.body());
    Ok(Some((
        status,
        content.unwrap_or(Answer {
            seq: u64::MAX,
            leaf_index: 0,
        }),
    )))
}

/// The records from `from` on, or from the oldest that is there.
async fn read(inner: &Arc<Inner>, from: u64) -> Result<Option<Batch>, ShippingError> {
    let inner = Arc::clone(inner);
    let read = tokio::task::spawn_blocking(move || -> Result<Option<Batch>, JournalError> {
        let records = {
            let journal = inner.journal();
            let from = from.max(journal.first_seq()?);
            if from > journal.last_seq() {
                return Ok(None);
            }
            journal.read_from(from)?
        };
        let mut batch: Option<Batch> = None;
        for record in records.take(MAX_RECORDS) {
            let record = record?;
            let batch = batch.get_or_insert(Batch {
                first: record.seq,
                last: record.seq,
                body: Vec::new(),
            });
            if !batch.body.is_empty()
                && batch.body.len().saturating_add(record.leaf.len()) > MAX_BYTES
            {
                break;
            }
            batch.last = record.seq;
            batch.body.extend_from_slice(&record.leaf);
            batch.body.push(b'\n');
        }
        Ok(batch)
    });
    Ok(read.await??)
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
