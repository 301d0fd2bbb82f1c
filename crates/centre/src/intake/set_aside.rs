//! What cameras report about sources that they could not seal.
//!
//! The report is an event of the camera's journal ([`super::journal`]); the newest one is kept for people and alarms. A
//! camera says it of itself: it can hide what it set aside, and claim what it did not, and changes nothing else by it.

use audit::Event;
use event_catalogue::Recorded as _;
use event_catalogue::camera::SetAside;
use store::sqlx::{self, SqliteConnection};
use store::{Sql, StoreError};
use time::OffsetDateTime;

use crate::clock::{from_millis, millis};

/// Longest reason that is kept, in bytes: cameras send 512.
const MAX_REASON: usize = 1024;
/// Cameras in one list of warnings; the first line says how many there are.
const MAX_WARNINGS: i64 = 20;
/// Age at which a report is no warning any more. Cameras repeat it every day, so this one is out of contact or gone.
const STALE: time::Duration = time::Duration::days(7);

/// The state of one camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    count: i64,
    since: Option<i64>,
    reason: String,
}

impl Report {
    /// Reads the report out of an event; none if it is another event, or has no count.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let report = SetAside::from_event(event)?;
        let count = i64::try_from(report.count).ok()?;
        let since = report.since;
        let since = since.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
        let mut reason = event.reason.clone().unwrap_or_default();
        while reason.len() > MAX_REASON {
            reason.pop();
        }
        Some(Self {
            count,
            since: since.map(millis),
            reason,
        })
    }

    /// Keeps the report as the newest of `device`.
    pub(super) async fn keep(
        &self,
        device: &str,
        now: OffsetDateTime,
        connection: &mut SqliteConnection,
    ) -> Result<(), StoreError> {
        sqlx::query("INSERT OR REPLACE INTO camera_set_aside VALUES (?, ?, ?, ?, ?)")
            .bind(device)
            .bind(self.count)
            .bind(self.since)
            .bind(&self.reason)
            .bind(millis(now))
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// One line about each camera that has sources set aside, as far as that is known to be so.
pub(super) async fn warnings(sql: &Sql, now: OffsetDateTime) -> Result<Vec<String>, StoreError> {
    let since = millis(now - STALE);
    let cameras: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM camera_set_aside WHERE count > 0 AND reported_at >= ?",
    )
    .bind(since)
    .fetch_one(sql.read())
    .await?;
    let rows: Vec<(String, i64, Option<i64>, String)> = sqlx::query_as(
        "SELECT device, count, since, reason FROM camera_set_aside
         WHERE count > 0 AND reported_at >= ? ORDER BY device LIMIT ?",
    )
    .bind(since)
    .bind(MAX_WARNINGS)
    .fetch_all(sql.read())
    .await?;
    let mut lines = Vec::new();
    if cameras > MAX_WARNINGS {
        lines.push(format!("{cameras} cameras have set sources aside"));
    }
    lines.extend(rows.into_iter().map(|(device, count, since, reason)| {
        let age = since.map_or(String::new(), |since| {
            let days = (now - from_millis(since)).whole_days();
            format!(", the oldest {days} days ago")
        });
        format!("{device} has set {count} sources aside (rejected){age}: {reason}")
    }));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit::{Actor, Outcome};
    use event_catalogue::camera::Started;

    fn event(action: &str) -> Event {
        let at = OffsetDateTime::UNIX_EPOCH;
        Event::new(at, Actor::device("c"), action, "camera/c", Outcome::Fail)
    }

    #[test]
    fn only_a_report_with_a_count_is_one() {
        let right = event(SetAside::ACTION)
            .with_detail("count", 3)
            .with_detail("since", 5);
        let report = Report::of(&right.with_reason("no time")).unwrap();
        assert_eq!((report.count, report.since), (3, Some(5_000)));
        assert_eq!(report.reason, "no time");
        assert_eq!(
            Report::of(&event(Started::ACTION).with_detail("count", 3)),
            None
        );
        assert_eq!(Report::of(&event(SetAside::ACTION)), None);
        assert_eq!(
            Report::of(&event(SetAside::ACTION).with_detail("count", -1)),
            None
        );
        assert_eq!(
            Report::of(&event(SetAside::ACTION).with_detail("count", "3")),
            None
        );
        let odd = event(SetAside::ACTION)
            .with_detail("count", 1)
            .with_detail("since", i64::MAX);
        assert_eq!(Report::of(&odd).unwrap().since, None);
    }
}
