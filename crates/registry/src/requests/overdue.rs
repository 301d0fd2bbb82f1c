//! Emergencies whose second approval does not come.

use std::sync::atomic::Ordering;

use audit::Actor;
use event_catalogue::Recorded as _;
use event_catalogue::request::Overdue;
use store::sqlx;
use time::OffsetDateTime;

use super::error::RequestError;
use crate::Registry;

impl Registry {
    /// Number of emergencies whose second approval is overdue.
    ///
    /// # Errors
    /// The database's.
    pub async fn overdue_requests(&self, now: OffsetDateTime) -> Result<i64, RequestError> {
        Ok(
            sqlx::query_scalar("SELECT count(*) FROM requests WHERE confirm_by < ?")
                .bind(now.unix_timestamp())
                .fetch_one(self.inner.people.read())
                .await?,
        )
    }

    /// The same number as [`Self::alert_overdue`] last found it, for metrics.
    #[must_use]
    pub fn overdue_last_counted(&self) -> i64 {
        self.inner.overdue.load(Ordering::Relaxed)
    }

    /// Raises the alarm for emergencies that became overdue: an event and a line in the log for each, once.
    ///
    /// # Errors
    /// The database's or the log's; those not reached come next time.
    pub async fn alert_overdue(&self, now: OffsetDateTime) -> Result<(), RequestError> {
        let overdue = self.overdue_requests(now).await?;
        self.inner.overdue.store(overdue, Ordering::Relaxed);
        let due: Vec<(String, String, String)> = sqlx::query_as(
            "SELECT id, act, subject FROM requests WHERE confirm_by < ? AND alerted = 0",
        )
        .bind(now.unix_timestamp())
        .fetch_all(self.inner.people.read())
        .await?;
        for (id, act, subject) in due {
            let (actor, resource) = (Actor::service("registry"), format!("request/{id}"));
            let overdue = Overdue {
                act: act.clone(),
                subject: subject.clone(),
            };
            let event = overdue
                .into_event(now, actor, resource)
                .with_reason("an emergency was not approved by a second person in time");
            let mut tx = self.write(now).await?;
            sqlx::query("UPDATE requests SET alerted = 1 WHERE id = ?")
                .bind(&id)
                .execute(&mut **tx)
                .await?;
            tx.record(vec![event]).await?;
            tx.commit().await?;
            tracing::error!(
                request = id,
                act,
                subject,
                "an emergency was not approved by a second person in time"
            );
        }
        Ok(())
    }
}
