//! Compares the rows of the directory with a hash of them in the log ([`audit::rows`]).
//!
//! Roles and clearance decide about everything: a row that another program changed, added, removed or restored stops the start, and
//! every change by a running site.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use audit::rows::{LoggedRows, RowsByLog};
use audit::{Actor, Event};
use event_catalogue::context::Rows;
use event_catalogue::directory::{ForeignWrite, Settled, State};
use event_catalogue::{Details as _, Recorded as _};
use store::sqlx::{Sqlite, Transaction};
use store::{FollowedRows, SetHash, Snapshot, Sql, StoreError, Watched};
use time::OffsetDateTime;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::{Directory, DirectoryError};

pub(crate) const WATCHED: &[Watched] = &[
    Watched {
        table: "people",
        without: &[],
        ordered: false,
    },
    Watched {
        table: "passwords",
        without: &[],
        ordered: false,
    },
    // A directory of before has none, and an empty table does not change the hash.
    Watched {
        table: "services",
        without: &[],
        ordered: false,
    },
];

/// What hashes begin with. To be counted up with whatever changes the hash of rows that are there.
const VERSION: &str = "1:";

fn hash(rows: &SetHash) -> String {
    format!("{VERSION}{}", rows.sha256())
}

/// The turn to write: whoever has it is the only one between two commits.
#[derive(Clone, Default)]
pub(crate) struct WriteTurn(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    rows: FollowedRows,
    /// The newest event with rows has not taken effect, or it is not known whether it has.
    is_unsettled: bool,
    /// Anything was written since the start.
    is_open: bool,
}

/// A transaction; ends without effect unless it is [finished](Directory::finish).
pub(crate) struct Writing {
    // Before the turn, which ends last.
    tx: Transaction<'static, Sqlite>,
    rows: SetHash,
    turn: OwnedMutexGuard<Written>,
}

impl Deref for Writing {
    type Target = Transaction<'static, Sqlite>;

    fn deref(&self) -> &Self::Target {
        &self.tx
    }
}

impl DerefMut for Writing {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tx
    }
}

impl Directory {
    pub(crate) async fn begin(&self) -> Result<Writing, DirectoryError> {
        let mut turn = Arc::clone(&self.turn.0).lock_owned().await;
        if turn.is_unsettled {
            // Before the log says that it has no effect, nothing of it may come to light at a later start.
            self.sql.settle().await?;
        }
        let mut tx = self.sql.write().await?;
        let rows = turn.rows.at_begin(&self.sql, &mut tx).await?;
        Ok(Writing { tx, rows, turn })
    }

    /// Records `events` of what was changed, then lets it take effect.
    pub(crate) async fn finish(
        &self,
        writing: Writing,
        mut events: Vec<Event>,
    ) -> Result<(), DirectoryError> {
        let Writing {
            mut tx,
            rows: before,
            mut turn,
        } = writing;
        let mut rows = before.clone();
        Sql::take_changes(&mut tx, &mut rows).await?;
        let Some(last) = events.pop() else {
            return match rows == before {
                true => Ok(()),
                false => Err(StoreError::Unfollowed.into()),
            };
        };
        let now = last.at;
        let rows_sha256 = Some(hash(&rows));
        events.push(Rows { rows_sha256 }.add_to(last));
        if turn.is_unsettled {
            events.insert(0, settled(State::Open, &before, now));
        }
        turn.is_unsettled = true;
        turn.is_open = true;
        let audit = Arc::clone(&self.audit);
        // A thread that records for somebody who has gone keeps the turn until it is through.
        let recorded = self.pool.run(move || (audit.record_all(events), turn));
        let (recorded, mut turn) = recorded.await?;
        recorded?;
        turn.rows.committing(rows);
        tx.commit().await?;
        turn.rows.committed();
        turn.is_unsettled = false;
        drop(turn);
        self.changed();
        Ok(())
    }

    /// Holds the rows against the log, before anything else.
    pub(crate) async fn check_rows(&self, now: OffsetDateTime) -> Result<(), DirectoryError> {
        let Writing { rows, tx, turn } = self.begin().await?;
        drop(tx);
        let audit = Arc::clone(&self.audit);
        let read = move || LoggedRows::read(&*audit, VERSION, &is_settled);
        let found = hash(&rows);
        match self.pool.run(read).await??.compare(&found) {
            RowsByLog::Settled => Ok(()),
            RowsByLog::Unsettled => {
                self.sql.settle().await?;
                self.settle(turn, State::Open, &rows, now).await
            }
            RowsByLog::Others(known) => Err(StoreError::Changed { found, known }.into()),
        }
    }

    /// Refuses a database to which somebody else wrote since this process opened it, unless the rows are the same, which is
    /// recorded. Cheap while nobody did.
    ///
    /// # Errors
    /// [`DirectoryError::Store`], [`DirectoryError::Audit`].
    pub async fn check_alone(&self, now: OffsetDateTime) -> Result<(), DirectoryError> {
        let Writing { tx, mut turn, .. } = self.begin().await?;
        drop(tx);
        if turn.rows.take_foreign() {
            let actor = Actor::service("directory");
            let event = ForeignWrite {}.into_event(now, actor, "directory");
            let reason = "something else wrote to the database; its rows are as they were";
            self.record(turn, event.with_reason(reason)).await?;
        }
        Ok(())
    }

    /// Refuses a file with other rows than this process has committed, also where it was changed without SQLite. Reads all rows,
    /// while others write.
    ///
    /// # Errors
    /// [`DirectoryError::Store`].
    pub async fn check_file(&self) -> Result<(), DirectoryError> {
        let turn = Arc::clone(&self.turn.0).lock_owned().await;
        let Some(known) = turn.rows.known().cloned() else {
            return Ok(());
        };
        let snapshot = Snapshot::of(&self.file).await?;
        drop(turn);
        Ok(snapshot.compare(WATCHED, &known).await?)
    }

    /// Ends all use of the database.
    pub async fn close(&self, now: OffsetDateTime) {
        if let Ok(Writing { rows, tx, turn }) = self.begin().await {
            drop(tx);
            if turn.is_open && !turn.is_unsettled {
                // Without it the next start takes the newest change for one that may not have been committed.
                let _ = self.settle(turn, State::Close, &rows, now).await;
            }
        }
        self.sql.close().await;
    }

    async fn settle(
        &self,
        turn: OwnedMutexGuard<Written>,
        kind: State,
        rows: &SetHash,
        now: OffsetDateTime,
    ) -> Result<(), DirectoryError> {
        self.record(turn, settled(kind, rows, now)).await
    }

    async fn record(
        &self,
        turn: OwnedMutexGuard<Written>,
        event: Event,
    ) -> Result<(), DirectoryError> {
        let audit = Arc::clone(&self.audit);
        let recorded = self.pool.run(move || (audit.record(event), turn));
        recorded.await?.0?;
        Ok(())
    }
}

fn is_settled(event: &Event) -> bool {
    Settled::is(event)
}

fn settled(kind: State, rows: &SetHash, now: OffsetDateTime) -> Event {
    let actor = Actor::service("directory");
    let settled = Settled {
        kind,
        rows_sha256: hash(rows),
    };
    settled.into_event(now, actor, "directory").with_reason(
        "these rows are there; what was recorded before and is not in them has no effect",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use access::Role;
    use audit::{AuditError, AuditSink, Logged, MemorySink, Recorded};
    use pki::clearance::Clearance;
    use pool::{Pool, Share};
    use store::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
    use store::sqlx::{self, Connection as _};

    use super::*;
    use crate::Person;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn person(uid: &str) -> Person {
        Person {
            uid: uid.to_owned(),
            name: "A. Officer".into(),
            given_name: "A.".into(),
            surname: "Officer".into(),
            email: "a.officer@lea.example".into(),
            organisation: "LEA-EU".into(),
            country: String::new(),
            clearance: Clearance::Restricted,
            roles: BTreeSet::from([Role::Officer]),
            units: BTreeSet::new(),
            active: true,
        }
    }

    async fn open(folder: &Path, audit: Arc<dyn AuditSink>) -> Result<Directory, DirectoryError> {
        Directory::open(
            &folder.join("d.sqlite"),
            audit,
            Pool::new(Share::Audit),
            NOW,
        )
        .await
    }

    async fn add(directory: &Directory, uid: &str) -> Result<(), DirectoryError> {
        directory.add(&person(uid), Actor::service("x"), NOW).await
    }

    async fn meddle(folder: &Path, statement: &'static str) {
        let file = SqliteConnectOptions::new().filename(folder.join("d.sqlite"));
        let mut other = SqliteConnection::connect_with(&file).await.unwrap();
        sqlx::raw_sql(statement).execute(&mut other).await.unwrap();
        other.close().await.unwrap();
    }

    fn is_changed<T>(outcome: Result<T, DirectoryError>) -> bool {
        matches!(
            outcome,
            Err(DirectoryError::Store(StoreError::Changed { .. }))
        )
    }

    const HIGHER: &str = "UPDATE people SET clearance = clearance + 1 WHERE uid = 'officer-1'";
    const BACK: &str = "UPDATE people SET clearance = clearance - 1 WHERE uid = 'officer-1'";

    #[tokio::test]
    async fn rights_that_somebody_wrote_into_the_database_stop_start_and_changes() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Arc::new(MemorySink::default());
        let directory = open(folder.path(), audit.clone()).await.unwrap();
        add(&directory, "officer-1").await.unwrap();
        meddle(folder.path(), HIGHER).await;
        assert!(is_changed(add(&directory, "officer-2").await));
        assert!(is_changed(directory.check_alone(NOW).await));
        directory.close(NOW).await;
        for change in [
            "SELECT 1",
            "UPDATE people SET active = 0",
            "INSERT INTO passwords VALUES ('officer-1', 'x', 0, 0)",
        ] {
            meddle(folder.path(), change).await;
            assert!(
                is_changed(open(folder.path(), audit.clone()).await),
                "{change}"
            );
        }
        // A person may have the database count.
        let mut loss = Event::new(
            NOW,
            Actor::service("x"),
            audit::rows::LOSS,
            "x",
            audit::Outcome::Ok,
        );
        "site".clone_into(&mut loss.role);
        audit.record(loss).unwrap();
        open(folder.path(), audit.clone()).await.unwrap();
        let again = open(folder.path(), audit.clone()).await.unwrap();
        meddle(folder.path(), HIGHER).await;
        meddle(folder.path(), BACK).await;
        again.check_alone(NOW).await.unwrap();
        let told = audit.events().pop().unwrap();
        assert_eq!(told.action, "directory.foreign-write");
        add(&again, "officer-3").await.unwrap();
    }

    #[tokio::test]
    async fn older_copy_is_refused_after_an_orderly_end_and_told_of_after_another() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Arc::new(MemorySink::default());
        let directory = open(folder.path(), audit.clone()).await.unwrap();
        add(&directory, "officer-1").await.unwrap();
        let none = "DELETE FROM people";
        // As if it had been killed before the commit.
        drop(directory);
        meddle(folder.path(), none).await;
        let directory = open(folder.path(), audit.clone()).await.unwrap();
        let told = audit.events().pop().unwrap();
        assert_eq!(told.action, "directory.open");
        add(&directory, "officer-1").await.unwrap();
        directory.close(NOW).await;
        assert_eq!(audit.events().pop().unwrap().action, "directory.close");
        meddle(folder.path(), none).await;
        assert!(is_changed(open(folder.path(), audit.clone()).await));
    }

    /// Records everything, and says of what comes second that it failed.
    #[derive(Default)]
    struct Failing(MemorySink);

    impl AuditSink for Failing {
        fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
            let fails = self.0.events().len() == 1;
            let recorded = self.0.record_all(events)?;
            match fails {
                true => Err(AuditError::Stopped),
                false => Ok(recorded),
            }
        }

        fn look_back(
            &self,
            wanted: &dyn Fn(&str) -> bool,
            each: &mut dyn FnMut(Logged) -> std::ops::ControlFlow<()>,
        ) -> Result<(), AuditError> {
            self.0.look_back(wanted, each)
        }
    }

    #[tokio::test]
    async fn event_whose_recording_failed_does_not_confuse_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Arc::new(Failing::default());
        let directory = open(folder.path(), audit.clone()).await.unwrap();
        add(&directory, "officer-1").await.unwrap_err();
        add(&directory, "officer-2").await.unwrap();
        let events = audit.0.events();
        let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
        assert_eq!(
            actions,
            [
                "directory.open",
                "directory.add",
                "directory.open",
                "directory.add"
            ]
        );
        // Neither does an end before the commit after that.
        drop(directory);
        meddle(folder.path(), "DELETE FROM people").await;
        open(folder.path(), audit.clone()).await.unwrap();
    }
}
