//! Lists of requests. Each reads one index from where it begins, so that a page costs the same however many there are.

use store::sqlx;
use time::OffsetDateTime;

use super::error::RequestError;
use super::records::{MAX_LISTED, RequestCursor, RequestFilter, RequestPage, RequestSummary};
use crate::Registry;
use crate::records::instant;

/// Requests on one page.
const PAGE: usize = 50;

type ListRow = (
    String,
    i64,
    String,
    String,
    String,
    String,
    i64,
    Option<i64>,
);

const SELECT: &str =
    "SELECT id, version, requester, act, subject, state, changed_at, confirm_by FROM requests";
const BEFORE: &str = "(changed_at, id) < (?1, ?2) ORDER BY changed_at DESC, id DESC LIMIT ?3";

impl RequestFilter {
    /// The condition with its index, and what `?4` of it stands for.
    fn condition(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Waiting => ("INDEXED BY requests_open WHERE open = 1 AND", None),
            Self::State(state) => (
                "INDEXED BY requests_by_state WHERE state = ?4 AND",
                Some(state),
            ),
            Self::Subject(subject) => (
                "INDEXED BY requests_by_subject WHERE subject = ?4 AND",
                Some(subject),
            ),
            Self::Requester(uid) => (
                "INDEXED BY requests_by_own WHERE requester = ?4 AND",
                Some(uid),
            ),
            Self::All => ("INDEXED BY requests_by_change WHERE", None),
        }
    }
}

impl Registry {
    /// Requests, the latest change first, at most 1000; only those that wait for somebody if `open`.
    ///
    /// # Errors
    /// The database's.
    pub async fn requests(
        &self,
        open: bool,
        now: OffsetDateTime,
    ) -> Result<Vec<RequestSummary>, RequestError> {
        let filter = if open {
            RequestFilter::Waiting
        } else {
            RequestFilter::All
        };
        self.listed(&filter, None, MAX_LISTED, now).await
    }

    /// A page of requests, the latest change first, from `before` on.
    ///
    /// # Errors
    /// The database's.
    pub async fn request_page(
        &self,
        filter: &RequestFilter,
        before: Option<&RequestCursor>,
        now: OffsetDateTime,
    ) -> Result<RequestPage, RequestError> {
        let mut rows = self.listed(filter, before, PAGE + 1, now).await?;
        let more = rows.len() > PAGE;
        rows.truncate(PAGE);
        let older = rows.last().filter(|_| more).map(|last| RequestCursor {
            changed_at: last.changed_at.unix_timestamp(),
            id: last.id.clone(),
        });
        Ok(RequestPage { rows, older })
    }

    async fn listed(
        &self,
        filter: &RequestFilter,
        before: Option<&RequestCursor>,
        most: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<RequestSummary>, RequestError> {
        let (condition, value) = filter.condition();
        let query = format!("{SELECT} {condition} {BEFORE}");
        let query = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(before.map_or(i64::MAX, |cursor| cursor.changed_at))
            .bind(before.map_or("", |cursor| &cursor.id))
            .bind(i64::try_from(most).unwrap_or(i64::MAX));
        let query = match value {
            Some(value) => query.bind(value),
            None => query,
        };
        let rows: Vec<ListRow> = query.fetch_all(self.inner.people.read()).await?;
        let summary =
            |(id, version, requester, act, subject, state, changed_at, confirm_by): ListRow| {
                Ok(RequestSummary {
                    id,
                    version,
                    requester,
                    act,
                    subject,
                    state,
                    changed_at: instant(changed_at)?,
                    overdue: confirm_by.is_some_and(|by| by < now.unix_timestamp()),
                })
            };
        rows.into_iter().map(summary).collect()
    }
}
