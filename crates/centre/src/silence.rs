//! Journals that do not move: of every camera and gateway that has ever brought a record, when the newest one came.
//!
//! A journal has a record each day, also where nothing happens ([`ALIVE`]). So one without a record for longer does not move,
//! whatever the reason: its owner is away, or what it sends is not taken. The second is worse, as it looks like quiet.

use std::sync::Arc;

use audit::{Actor, AuditSink, Event};
use event_catalogue::Recorded as _;
use event_catalogue::evidence::JournalSilent;
use pool::Pool;
use store::sqlx::{self, SqliteConnection};
use store::{Sql, StoreError};
use time::{Duration, OffsetDateTime};

use crate::clock::{from_millis, millis};
use crate::ledger::FollowedLog;

/// Source of the tunnel daemon's journal.
pub const GATEWAY: &str = "tunnel/journal";
/// Prefix of a camera's source.
const CAMERA: &str = "camera/";
/// Interval at which a journal has a record at least, with the time that a contact takes.
const ALIVE: Duration = Duration::hours(25);

/// Why a silence was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum SilenceError {
    #[error("the index failed")]
    Store(#[from] StoreError),
    #[error("the index failed")]
    Sql(#[from] sqlx::Error),
    #[error("the audit log failed")]
    Audit(#[from] audit::AuditError),
    #[error("a background task panicked")]
    Worker(#[from] tokio::task::JoinError),
}

/// A journal without a record for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentJournal {
    /// `camera/NAME`, or [`GATEWAY`].
    pub source: String,
    /// When its newest record came.
    pub since: OffsetDateTime,
    /// Newest block of the camera, if the camera was in contact while its journal should have moved.
    pub contact: Option<OffsetDateTime>,
    /// Whether its silence is in the audit log.
    pub is_recorded: bool,
}

impl SilentJournal {
    /// The camera's name, if it is a camera's.
    #[must_use]
    pub fn camera(&self) -> Option<&str> {
        self.source.strip_prefix(CAMERA)
    }
}

/// The source of a camera's journal.
pub(crate) fn of_camera(device: &str) -> String {
    format!("{CAMERA}{device}")
}

/// Notes that a record came.
pub(crate) async fn moved(
    sql: &mut SqliteConnection,
    source: &str,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO journals VALUES (?, ?, NULL)
         ON CONFLICT DO UPDATE SET moved_at = max(moved_at, excluded.moved_at), silent_at = NULL",
    )
    .bind(source)
    .bind(millis(now))
    .execute(sql)
    .await?;
    Ok(())
}

type Row = (String, i64, bool, Option<i64>);

pub(crate) async fn silent(
    sql: &Sql,
    before: OffsetDateTime,
) -> Result<Vec<SilentJournal>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT source, moved_at, silent_at IS NOT NULL,
            (SELECT last_seen FROM cameras WHERE 'camera/' || device = source)
         FROM journals WHERE moved_at < ? ORDER BY source",
    )
    .bind(millis(before))
    .fetch_all(sql.read())
    .await?;
    let journal = |(source, moved, is_recorded, seen): Row| {
        let since = from_millis(moved);
        let seen = seen.map(from_millis);
        SilentJournal {
            source,
            since,
            contact: seen.filter(|seen| *seen > since.saturating_add(ALIVE)),
            is_recorded,
        }
    };
    Ok(rows.into_iter().map(journal).collect())
}

/// Records in the audit log those whose silence is not there yet, once each until they move.
pub(crate) async fn record(
    journals: &[SilentJournal],
    (sql, audit, pool): (&Sql, &Arc<FollowedLog>, &Pool),
    now: OffsetDateTime,
) -> Result<(), SilenceError> {
    let new: Vec<&SilentJournal> = journals.iter().filter(|one| !one.is_recorded).collect();
    let events: Vec<Event> = new.iter().map(|journal| event(journal, now)).collect();
    if events.is_empty() {
        return Ok(());
    }
    let audit = Arc::clone(audit);
    pool.run(move || audit.record_all(events)).await??;
    let mut tx = sql.write().await?;
    for journal in new {
        sqlx::query("UPDATE journals SET silent_at = ? WHERE source = ? AND moved_at = ?")
            .bind(millis(now))
            .bind(&journal.source)
            .bind(millis(journal.since))
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}

fn event(journal: &SilentJournal, now: OffsetDateTime) -> Event {
    let actor = match journal.camera() {
        Some(device) => Actor::device(device),
        None => Actor::service("gateway"),
    };
    let silent = JournalSilent {
        since: journal.since.unix_timestamp(),
        contact: journal.contact.map(OffsetDateTime::unix_timestamp),
    };
    let event = silent.into_event(now, actor, &*journal.source);
    event.with_reason("no record of the journal came for longer than it may take")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::MIGRATIONS;

    fn at(hours: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::hours(hours)
    }

    async fn note(sql: &Sql, source: &str, hours: i64) {
        let mut tx = sql.write().await.unwrap();
        moved(&mut tx, source, at(hours)).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn camera_seen(sql: &Sql, device: &str, hours: i64) {
        let mut tx = sql.write().await.unwrap();
        sqlx::query("INSERT INTO cameras (device, last_seen) VALUES (?, ?)")
            .bind(device)
            .bind(millis(at(hours)))
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn journal_is_silent_after_its_time_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(&folder.path().join("index"), MIGRATIONS)
            .await
            .unwrap();
        note(&sql, "camera/a", 0).await;
        note(&sql, "camera/b", 10).await;
        note(&sql, GATEWAY, 0).await;
        // An older time does not turn a journal back.
        note(&sql, "camera/b", 5).await;
        assert_eq!(silent(&sql, at(0)).await.unwrap(), []);
        let found = silent(&sql, at(10)).await.unwrap();
        let sources: Vec<_> = found.iter().map(|one| one.source.as_str()).collect();
        assert_eq!(sources, ["camera/a", GATEWAY]);
        assert_eq!((found[0].camera(), found[1].camera()), (Some("a"), None));
        assert_eq!(found[0].since, at(0));
        note(&sql, "camera/a", 20).await;
        assert_eq!(silent(&sql, at(11)).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn camera_is_in_contact_only_if_its_journal_should_have_moved() {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(&folder.path().join("index"), MIGRATIONS)
            .await
            .unwrap();
        for (device, seen) in [("a", 24), ("b", 26)] {
            note(&sql, &of_camera(device), 0).await;
            camera_seen(&sql, device, seen).await;
        }
        note(&sql, "camera/never-seen", 0).await;
        let found = silent(&sql, at(72)).await.unwrap();
        let contacts: Vec<_> = found.iter().map(|one| one.contact).collect();
        assert_eq!(contacts, [None, Some(at(26)), None]);
    }

    #[test]
    fn event_names_who_is_silent_since_when() {
        let journal = SilentJournal {
            source: "camera/a".to_owned(),
            since: at(0),
            contact: Some(at(26)),
            is_recorded: false,
        };
        let recorded = event(&journal, at(72));
        assert_eq!(
            (recorded.actor.id.as_str(), recorded.resource.as_str()),
            ("a", "camera/a")
        );
        assert_eq!(recorded.outcome, audit::Outcome::Fail);
        assert_eq!(recorded.details["since"], at(0).unix_timestamp());
        assert_eq!(recorded.details["contact"], at(26).unix_timestamp());
    }
}
