//! Rows of requests.

use approval::{Request, State};
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use super::error::RequestError;
use super::records::{RequestChange, RequestContent, RequestRecord};
use crate::records::instant;
use crate::{Registry, RegistryError};

/// What a step stores beside the request.
#[derive(Default)]
pub(super) struct Beside<'a> {
    /// A certification request that takes the place of the former one.
    pub(super) csr: Option<&'a [u8]>,
    /// The certificate of an approver.
    pub(super) certificate: Option<&'a [u8]>,
}

type HistoryRow = (i64, i64, String, String, String, String, Option<Vec<u8>>);

impl Registry {
    /// A request with its history.
    ///
    /// # Errors
    /// [`RequestError::Unknown`], or the database's.
    pub async fn request(&self, id: &str) -> Result<RequestRecord, RequestError> {
        let row: Option<(Vec<u8>, Option<Vec<u8>>)> =
            sqlx::query_as("SELECT content, csr FROM requests WHERE id = ?")
                .bind(id)
                .fetch_optional(self.inner.people.read())
                .await?;
        let (content, csr) = row.ok_or_else(|| RequestError::Unknown(id.to_owned()))?;
        let certificates =
            sqlx::query_scalar("SELECT certificate FROM request_certificates WHERE request = ?")
                .bind(id)
                .fetch_all(self.inner.people.read())
                .await?;
        Ok(RequestRecord {
            request: decode(&content)?,
            csr,
            history: self.request_history(id).await?,
            certificates,
        })
    }

    async fn request_history(&self, id: &str) -> Result<Vec<RequestChange>, RequestError> {
        let rows: Vec<HistoryRow> = sqlx::query_as(
            "SELECT version, at, author, step, state, reason, content FROM request_history
             WHERE request = ? ORDER BY version",
        )
        .bind(id)
        .fetch_all(self.inner.people.read())
        .await?;
        let change = |(version, at, by, step, state, reason, content): HistoryRow| {
            let content = content.map(|content| serde_json::from_slice(&content));
            let content = content.transpose();
            Ok(RequestChange {
                version,
                at: instant(at)?,
                by,
                step,
                state,
                reason,
                content: content.map_err(|_| RegistryError::Corrupt("history of a request"))?,
            })
        };
        rows.into_iter().map(change).collect()
    }
}

pub(super) fn decode(content: &[u8]) -> Result<Request, RequestError> {
    serde_json::from_slice(content).map_err(|_| RegistryError::Corrupt("request").into())
}

/// A request as it is stored.
fn encode(request: &Request) -> Result<Vec<u8>, RequestError> {
    Ok(serde_json::to_vec(request).map_err(approval::Refusal::from)?)
}

/// The request in the transaction of a step.
pub(super) async fn request_in(
    tx: &mut Transaction<'static, Sqlite>,
    id: &str,
) -> Result<Request, RequestError> {
    let content: Option<Vec<u8>> = sqlx::query_scalar("SELECT content FROM requests WHERE id = ?")
        .bind(id)
        .fetch_optional(&mut **tx)
        .await?;
    decode(&content.ok_or_else(|| RequestError::Unknown(id.to_owned()))?)
}

/// Refuses a step whose author saw another version, and says who changed what.
pub(super) async fn check_version(
    tx: &mut Transaction<'static, Sqlite>,
    request: &Request,
    shown: u64,
) -> Result<(), RequestError> {
    let current = request.version();
    if shown == current {
        return Ok(());
    }
    let id = request.id().0.clone();
    let (by, step, at): (String, String, i64) = sqlx::query_as(
        "SELECT author, step, at FROM request_history WHERE request = ? ORDER BY version DESC LIMIT 1",
    )
    .bind(&id)
    .fetch_one(&mut **tx)
    .await?;
    let at = instant(at)?;
    Err(RequestError::Changed {
        id,
        shown,
        current,
        by,
        step,
        at,
    })
}

/// Writes `next`, whose event is recorded, and forgets that its step was under way.
pub(super) async fn write(
    tx: &mut Transaction<'static, Sqlite>,
    next: &Request,
    step: &str,
    author: &str,
    beside: Beside<'_>,
    now: OffsetDateTime,
) -> Result<(), RequestError> {
    let state = next.state();
    let (is_open, confirm_by) = match state {
        State::Draft
        | State::Submitted { .. }
        | State::Returned { .. }
        | State::Approved { .. } => (true, None),
        State::Issued { confirm_by, .. } => (confirm_by.is_some(), *confirm_by),
        State::Refused { .. } | State::Withdrawn | State::Delivered { .. } => (false, None),
    };
    let id = &next.id().0;
    let version = i64::try_from(next.version())
        .map_err(|_| RegistryError::Corrupt("version of a request"))?;
    let at = now.unix_timestamp();
    sqlx::query(
        "INSERT INTO requests (id, version, requester, act, subject, state, open, confirm_by,
             begun_at, changed_at, content, csr)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11)
         ON CONFLICT (id) DO UPDATE SET version = excluded.version, act = excluded.act,
             subject = excluded.subject, state = excluded.state, open = excluded.open,
             confirm_by = excluded.confirm_by, changed_at = excluded.changed_at,
             content = excluded.content, csr = COALESCE(excluded.csr, csr)",
    )
    .bind(id)
    .bind(version)
    .bind(next.requester())
    .bind(next.act().name())
    .bind(next.act().subject().unwrap_or_default())
    .bind(state.name())
    .bind(is_open)
    .bind(confirm_by.map(OffsetDateTime::unix_timestamp))
    .bind(at)
    .bind(encode(next)?)
    .bind(beside.csr)
    .execute(&mut **tx)
    .await?;
    let reason = match state {
        State::Returned { reason } | State::Refused { reason } => reason,
        _ => next.reason(),
    };
    // Other steps leave the content as it is.
    let content = matches!(step, "draft" | "edit").then(|| {
        serde_json::to_vec(&RequestContent {
            act: next.act().clone(),
            reason: next.reason().to_owned(),
        })
    });
    sqlx::query(
        "INSERT INTO request_history (request, version, at, author, step, state, reason, content)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(id)
    .bind(version)
    .bind(at)
    .bind(author)
    .bind(step)
    .bind(state.name())
    .bind(reason)
    .bind(content.transpose().map_err(approval::Refusal::from)?)
    .execute(&mut **tx)
    .await?;
    if let Some(certificate) = beside.certificate {
        sqlx::query(
            "INSERT OR IGNORE INTO request_certificates (request, certificate) VALUES (?, ?)",
        )
        .bind(id)
        .bind(certificate)
        .execute(&mut **tx)
        .await?;
    }
    sqlx::query("DELETE FROM request_steps WHERE request = ?")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
