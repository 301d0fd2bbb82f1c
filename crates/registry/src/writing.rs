//! Transactions whose events are recorded before they are committed.
//!
//! ```text
//! begin ─► change rows ─► record the events, which name the transaction ─► commit with its number
//! ```
//!
//! An end between the last two leaves events without effect. They are found without a note before each: every event
//! carries the number of its transaction, and the database has that of the last one that was committed. Whoever writes next
//! records it (`registry.open`): of what stands before that event in the log, transactions with higher numbers have no
//! effect. One event after an interruption says so of everything, whatever it was.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use audit::{Actor, Event, Recorded};
use event_catalogue::registry::{AuthoritiesIssuing, ForeignWrite, Settled, State};
use event_catalogue::{Details as _, Recorded as _, context};
use store::sqlx::{self, Sqlite, Transaction};
use store::{FollowedRows, SetHash, Snapshot, Sql, StoreError};
use time::OffsetDateTime;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::contradiction::Contradiction;
use crate::rows_log::{self, WATCHED};
use crate::{FILE, Registry, RegistryError};

const FOREIGN: &str = "something else wrote to the database; its rows are as they were";

/// Tells that an event was recorded while no transaction was under way: what it says of the database is so.
pub(crate) fn is_settled(event: &Event) -> bool {
    Settled::is(event) || AuthoritiesIssuing::is(event)
}

/// The turn to write: whoever has it is the only one between two commits.
#[derive(Clone, Default)]
pub(crate) struct WriteTurn(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    /// Something was written since the start.
    is_open: bool,
    /// The newest transaction with events was not committed, or it is not known whether it was.
    is_unsettled: bool,
    rows: FollowedRows,
}

/// The right to begin a transaction.
pub(crate) struct Turn(OwnedMutexGuard<Written>);

impl WriteTurn {
    pub(crate) async fn wait(&self) -> Turn {
        Turn(Arc::clone(&self.0).lock_owned().await)
    }
}

/// A transaction with its events; ends without effect unless it is committed.
pub(crate) struct Writing {
    // Before the turn, which ends last.
    tx: Transaction<'static, Sqlite>,
    number: i64,
    /// Events name this transaction. Its number alone does not say so: that of one that failed is used again.
    has_events: bool,
    /// The rows with what the events tell of.
    rows: SetHash,
    /// Says that the transaction before this one failed after its events; to be recorded before those of this one.
    failed: Option<Event>,
    /// Away while events are recorded: a thread that records for somebody who has gone keeps it until it is through.
    turn: Option<Turn>,
    registry: Registry,
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

impl Writing {
    /// Records events of what this transaction has changed, in their order; they are durable on return. Gives their places in
    /// the log. Nothing more is changed after the last events.
    pub(crate) async fn record(
        &mut self,
        events: Vec<Event>,
    ) -> Result<Vec<Recorded>, RegistryError> {
        let events = self.registry.told(events);
        self.record_told(events).await
    }

    /// Records events to which [`Registry::told`] has added what it knows.
    pub(crate) async fn record_told(
        &mut self,
        events: Vec<Event>,
    ) -> Result<Vec<Recorded>, RegistryError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        sqlx::query("UPDATE writing SET committed = ?")
            .bind(self.number)
            .execute(&mut *self.tx)
            .await?;
        Sql::take_changes(&mut self.tx, &mut self.rows).await?;
        let rows = rows_log::hash(&self.rows);
        let mut turn = self.turn.take().ok_or(RegistryError::Interrupted)?;
        (turn.0.is_open, turn.0.is_unsettled) = (true, true);
        self.has_events = true;
        let number = self.number;
        let numbered = |event| in_transaction(number, None).add_to(event);
        let mut numbered: Vec<Event> = events.into_iter().map(numbered).collect();
        if let Some(last) = numbered.pop() {
            numbered.push(in_transaction(number, Some(rows)).add_to(last));
        }
        let failed = self.failed.take();
        let before = usize::from(failed.is_some());
        let events = failed.into_iter().chain(numbered).collect();
        let (turn, mut recorded) = self.registry.record_in_turn(turn, events).await?;
        self.turn = Some(turn);
        recorded.drain(..before.min(recorded.len()));
        Ok(recorded)
    }

    /// Commits; durable on return.
    pub(crate) async fn commit(self) -> Result<(), RegistryError> {
        self.commit_then(|| ()).await
    }

    /// Commits, and does `then` before anybody else may write.
    pub(crate) async fn commit_then(mut self, then: impl FnOnce()) -> Result<(), RegistryError> {
        let mut turn = self.turn.take().ok_or(RegistryError::Interrupted)?;
        if Sql::take_changes(&mut self.tx, &mut self.rows).await? {
            return Err(StoreError::Unfollowed.into());
        }
        turn.0.rows.committing(self.rows);
        self.tx.commit().await?;
        turn.0.rows.committed();
        turn.0.is_unsettled &= !self.has_events;
        then();
        Ok(())
    }
}

impl Registry {
    /// Begins a transaction whose events are recorded before it is committed.
    pub(crate) async fn write(&self, now: OffsetDateTime) -> Result<Writing, RegistryError> {
        let turn = self.inner.turn.wait().await;
        self.write_in(turn, now).await
    }

    /// Begins a transaction in a turn.
    pub(crate) async fn write_in(
        &self,
        mut turn: Turn,
        now: OffsetDateTime,
    ) -> Result<Writing, RegistryError> {
        if turn.0.is_unsettled {
            // Before the log says that it has no effect, nothing of it may come to light at a later start.
            self.inner.sql.settle().await?;
        }
        let mut tx = self.inner.sql.write().await?;
        let rows = self.rows_at_begin(&mut tx, &mut turn).await?;
        let committed: i64 = sqlx::query_scalar("SELECT committed FROM writing")
            .fetch_one(&mut *tx)
            .await?;
        Ok(Writing {
            tx,
            number: committed.saturating_add(1),
            has_events: false,
            failed: (turn.0.is_unsettled).then(|| settled(State::Open, committed, &rows, now)),
            rows,
            turn: Some(turn),
            registry: self.clone(),
        })
    }

    /// Refuses a database to which somebody else wrote since this process opened it, unless the rows are the same, which is
    /// recorded. Cheap while nobody did.
    ///
    /// # Errors
    /// [`RegistryError::Contradiction`], [`RegistryError::Store`], or [`RegistryError::Audit`].
    pub async fn check_alone(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let mut turn = self.inner.turn.wait().await;
        self.committed(&mut turn).await?;
        if turn.0.rows.take_foreign() {
            let actor = Actor::service("registry");
            let event = ForeignWrite {}.into_event(now, actor, "registry");
            let event = event.with_reason(FOREIGN);
            self.record_in_turn(turn, vec![event]).await?;
        }
        Ok(())
    }

    /// Refuses a file with other rows than this process has committed, also where it was changed without SQLite. Reads all rows,
    /// while others write.
    ///
    /// # Errors
    /// [`RegistryError::Contradiction`] or [`RegistryError::Store`].
    pub async fn check_file(&self) -> Result<(), RegistryError> {
        let turn = self.inner.turn.wait().await;
        let Some(known) = turn.0.rows.known().cloned() else {
            return Ok(());
        };
        let file = self.inner.directory.join(FILE);
        let snapshot = Snapshot::of(&file).await?;
        drop(turn);
        Ok(snapshot.compare(WATCHED, &known).await?)
    }

    /// The number of the newest transaction with events that was committed, and the rows.
    pub(crate) async fn committed(&self, turn: &mut Turn) -> Result<(i64, SetHash), RegistryError> {
        let mut tx = self.inner.sql.write().await?;
        let rows = self.rows_at_begin(&mut tx, turn).await?;
        let committed = sqlx::query_scalar("SELECT committed FROM writing")
            .fetch_one(&mut *tx)
            .await?;
        Ok((committed, rows))
    }

    async fn rows_at_begin(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        turn: &mut Turn,
    ) -> Result<SetHash, RegistryError> {
        match turn.0.rows.at_begin(&self.inner.sql, tx).await {
            Err(StoreError::Changed { found, known }) => Err(Contradiction::Rows {
                database: found,
                log: known,
            }
            .into()),
            rows => Ok(rows?),
        }
    }

    /// Holds the rows against the log, and says which transactions of the run before took effect, unless it
    /// [ended](Self::close) in order.
    pub(crate) async fn settle_writing(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let mut turn = self.inner.turn.wait().await;
        let (committed, rows) = self.committed(&mut turn).await?;
        match self.check_rows(&rows).await {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(error) => {
                // A whole older copy is named as such.
                self.check_not_older(committed).await?;
                return Err(error);
            }
        }
        self.inner.sql.settle().await?;
        self.record(settled(State::Open, committed, &rows, now))
            .await
    }

    /// Notes that all that was recorded took effect, if it did; nobody writes any more.
    pub(crate) async fn end_writing(
        &self,
        mut turn: Turn,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        if !turn.0.is_open || turn.0.is_unsettled {
            return Ok(());
        }
        let (committed, rows) = self.committed(&mut turn).await?;
        let event = settled(State::Close, committed, &rows, now);
        self.record_in_turn(turn, vec![event]).await?;
        Ok(())
    }

    /// Records events on a thread that may block, and keeps the turn until that is done.
    pub(crate) async fn record_in_turn(
        &self,
        turn: Turn,
        events: Vec<Event>,
    ) -> Result<(Turn, Vec<Recorded>), RegistryError> {
        let audit = Arc::clone(&self.inner.audit);
        let recorded = self.inner.pool.run(move || {
            let outcome = audit.record_all(events);
            (turn, outcome)
        });
        let (turn, outcome) = recorded.await.map_err(|_| RegistryError::Interrupted)?;
        Ok((turn, outcome.map_err(RegistryError::Audit)?))
    }
}

/// An event that says which transactions took effect, and what rows there are.
fn settled(kind: State, committed: i64, rows: &SetHash, now: OffsetDateTime) -> Event {
    let actor = Actor::service("registry");
    let event = Settled { kind }
        .into_event(now, actor, "registry")
        .with_reason(
            "of what was recorded before, transactions with higher numbers have no effect",
        );
    in_transaction(committed, Some(rows_log::hash(rows))).add_to(event)
}

/// Number of a transaction, and the rows after it. Numbers begin with 0.
pub(crate) fn in_transaction(number: i64, rows_sha256: Option<String>) -> context::Registry {
    context::Registry {
        transaction: u64::try_from(number).ok(),
        rows_sha256,
        ..context::Registry::default()
    }
}
