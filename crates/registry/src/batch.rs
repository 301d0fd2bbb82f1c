//! Orders that are recorded together.
//!
//! A certificate costs several syncs of the disk, of its events and of the database. Where many are ordered at once, whoever
//! waits for a transaction shares the next one: its events are recorded together, then it is committed. Each order has its own
//! checks, and one that is refused leaves no trace in what the others have.

use std::sync::{Mutex, PoisonError};

use audit::{Actor, Event};
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;
use tokio::sync::oneshot;

use crate::issue::{Issued, Order};
use crate::origin::Origin;
use crate::signing::Signing;
use crate::{Registry, RegistryError};

/// Orders of one transaction at most. Our choice: beyond that their own work, not the syncs, takes the time for which
/// everybody else waits.
const TOGETHER: usize = 64;

/// Orders that wait for their transaction.
#[derive(Default)]
pub(crate) struct Batches {
    waiting: Mutex<Vec<Waiting>>,
    /// Held while there is a transaction of theirs.
    turn: tokio::sync::Mutex<()>,
}

struct Waiting {
    /// With whatever its events are to say.
    registry: Registry,
    order: Order,
    actor: Actor,
    signing: Signing,
    now: OffsetDateTime,
    answer: oneshot::Sender<Outcome>,
}

/// An issued certificate, or what is to be signed before it can be.
pub(crate) enum Joined {
    Issued(Issued),
    Unsigned(Box<Signing>),
}

type Outcome = Result<Joined, RegistryError>;

impl Registry {
    /// Issues on a direct order, in a transaction with others that are waiting.
    pub(crate) async fn issue_together(
        &self,
        order: Order,
        actor: Actor,
        signing: Signing,
        now: OffsetDateTime,
    ) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        let waiting = Waiting {
            registry: self.clone(),
            order,
            actor,
            signing,
            now,
            answer,
        };
        let queue = self.inner.batches.waiting.lock();
        queue.unwrap_or_else(PoisonError::into_inner).push(waiting);
        // A task of its own: whoever ordered may go away, and the others must have their answers.
        let registry = self.clone();
        tokio::spawn(async move { registry.issue_waiting().await });
        outcome.await.map_err(|_| RegistryError::Interrupted)?
    }

    /// Serves those who wait, if somebody else has not done so.
    async fn issue_waiting(&self) {
        let batches = &self.inner.batches;
        let _turn = batches.turn.lock().await;
        let batch: Vec<Waiting> = {
            let queue = batches.waiting.lock();
            let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
            let count = queue.len().min(TOGETHER);
            queue.drain(..count).collect()
        };
        if batch.is_empty() {
            return;
        }
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut failed = self.issue_batch(batch, &mut outcomes).await.err();
        let why = failed
            .as_ref()
            .map(|error| error_report::Report(error).to_string());
        for (answer, outcome) in outcomes {
            let outcome = match (outcome, &why) {
                // One has the error itself, which cannot be had twice.
                (Ok(Joined::Issued(_)), Some(why)) => Err(failed
                    .take()
                    .unwrap_or_else(|| RegistryError::Together(why.clone()))),
                (outcome, _) => outcome,
            };
            // Whoever does not wait any more has a certificate that the registry knows.
            let _ = answer.send(outcome);
        }
    }

    /// Collects the outcome of each order, which counts if this succeeds.
    async fn issue_batch(
        &self,
        batch: Vec<Waiting>,
        outcomes: &mut Vec<(oneshot::Sender<Outcome>, Outcome)>,
    ) -> Result<(), RegistryError> {
        let mut tx = self.inner.sql.write().await?;
        let mut events = Vec::new();
        for one in batch {
            let outcome =
                one.registry
                    .issue_one(&mut tx, one.order, one.actor, one.signing, one.now);
            let outcome = outcome.await.map(|(joined, own)| {
                events.extend(own);
                joined
            });
            outcomes.push((one.answer, outcome));
        }
        self.record_told(events).await?;
        Ok(tx.commit().await?)
    }

    /// Issues within a savepoint.
    async fn issue_one(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        order: Order,
        actor: Actor,
        mut signing: Signing,
        now: OffsetDateTime,
    ) -> Result<(Joined, Vec<Event>), RegistryError> {
        sqlx::query("SAVEPOINT one").execute(&mut **tx).await?;
        let origin = Origin::Order { request: None };
        let prepared = self.prepare_in(tx, &order, &origin, &actor, &mut signing, now);
        let prepared = prepared.await;
        if !matches!(prepared, Ok(Some(_))) {
            sqlx::query("ROLLBACK TO one").execute(&mut **tx).await?;
        }
        sqlx::query("RELEASE one").execute(&mut **tx).await?;
        Ok(match prepared? {
            Some((issued, events)) => (Joined::Issued(issued), self.told(events)),
            None => (Joined::Unsigned(Box::new(signing)), Vec::new()),
        })
    }
}
