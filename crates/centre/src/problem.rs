//! The one shape of an error answer: a status and JSON that says what was wrong and what to do.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::response::{IntoResponse, Response};
use error_report::Report;
use http::StatusCode;
use serde::Serialize;

/// Pause between two lines of the log that say that the disk is full.
const TELL_PAUSE: Duration = Duration::from_secs(10);

/// An error answer of the HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Problem {
    #[serde(skip)]
    status: StatusCode,
    #[serde(skip)]
    retry_after: Option<u64>,
    /// A stable name of the reason, in kebab case.
    pub code: String,
    /// The problem, for people.
    pub message: String,
    /// Advice for people.
    pub hint: String,
}

impl Problem {
    /// An answer with this status.
    #[must_use]
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>, hint: &str) -> Self {
        Self {
            status,
            retry_after: None,
            code: code.to_owned(),
            message: message.into(),
            hint: hint.to_owned(),
        }
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Says after how many seconds to come back.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// 404 without saying more.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not-found",
            format!("no such {what}"),
            "check the address; it may have expired",
        )
    }

    /// A failure on our side; the cause goes to the log, not to the peer.
    #[must_use]
    pub fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        if disk_full(error) {
            tell_disk_full(error);
            return Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "disk-full",
                "the centre's disk is full",
                "keep the data and try again later",
            );
        }
        tracing::error!(error = %Report(error), "request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the centre could not complete the request",
            "keep the data and try again later",
        )
    }
}

/// Tells the operator, though not as often as a camera asks again.
pub(crate) fn tell_disk_full(error: &(dyn std::error::Error + 'static)) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|at| at.elapsed() >= TELL_PAUSE) {
        *last = Some(Instant::now());
        tracing::error!(
            error = %Report(error),
            "disk full: requests are refused until there is room"
        );
    }
}

/// Whether any cause of `error` is a full disk, seen by us or by SQLite.
#[must_use]
pub fn disk_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(e) = cause {
        if let Some(io) = e.downcast_ref::<std::io::Error>()
            && matches!(
                io.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            )
        {
            return true;
        }
        // SQLite names no cause of type io::Error; SQLITE_FULL is result code 13.
        if let Some(store::sqlx::Error::Database(d)) = e.downcast_ref::<store::sqlx::Error>()
            && d.code().as_deref() == Some("13")
        {
            return true;
        }
        cause = e.source();
    }
    false
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after;
        let mut answer = (self.status, Json(self)).into_response();
        if let Some(seconds) = retry_after {
            answer
                .headers_mut()
                .insert(http::header::RETRY_AFTER, seconds.into());
        }
        answer
    }
}
