//! Changes of all requests in the order in which they were written, for whoever has others told of them.

use store::sqlx;
use time::OffsetDateTime;

use super::error::RequestError;
use crate::Registry;
use crate::records::instant;

/// A change of some request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedChange {
    /// Place among all changes; ascending.
    pub number: i64,
    /// Number of the request.
    pub request: String,
    pub at: OffsetDateTime,
    /// Name of the step, as in events.
    pub step: String,
    /// State after it.
    pub state: String,
    /// User id of its author.
    pub by: String,
}

impl Registry {
    /// Changes after the one of number `after` that say something to others than their author, oldest first, at most `most`.
    ///
    /// What somebody does with drafts is left out: anybody may have as many of them as the bounds of requests allow.
    ///
    /// # Errors
    /// The database's.
    pub async fn request_changes(
        &self,
        after: i64,
        most: u32,
    ) -> Result<Vec<NumberedChange>, RequestError> {
        // No change is ever removed, so rows keep their numbers, also when the file is compacted.
        let rows: Vec<(i64, String, i64, String, String, String)> = sqlx::query_as(
            "SELECT rowid, request, at, step, state, author FROM request_history
             WHERE rowid > ?
               AND CASE state
                   WHEN 'submitted' THEN step IN ('submit', 'edit')
                   WHEN 'returned' THEN step = 'return'
                   WHEN 'refused' THEN step = 'refuse'
                   WHEN 'approved' THEN step = 'approve'
                   WHEN 'issued' THEN step <> 'approve'
                   ELSE 0 END
             ORDER BY rowid LIMIT ?",
        )
        .bind(after)
        .bind(most)
        .fetch_all(self.inner.people.read())
        .await?;
        let change = |(number, request, at, step, state, by)| {
            Ok(NumberedChange {
                number,
                request,
                at: instant(at)?,
                step,
                state,
                by,
            })
        };
        rows.into_iter().map(change).collect()
    }

    /// Number of the newest change; 0 when there is none.
    ///
    /// # Errors
    /// The database's.
    pub async fn newest_request_change(&self) -> Result<i64, RequestError> {
        let query = "SELECT coalesce(max(rowid), 0) FROM request_history";
        Ok(sqlx::query_scalar(query)
            .fetch_one(self.inner.people.read())
            .await?)
    }

    /// Number of the newest change before `at`; 0 when there is none.
    ///
    /// # Errors
    /// The database's.
    pub async fn newest_request_change_before(
        &self,
        at: OffsetDateTime,
    ) -> Result<i64, RequestError> {
        let query = "SELECT coalesce(max(rowid), 0) FROM request_history WHERE at < ?";
        Ok(sqlx::query_scalar(query)
            .bind(at.unix_timestamp())
            .fetch_one(self.inner.people.read())
            .await?)
    }
}
