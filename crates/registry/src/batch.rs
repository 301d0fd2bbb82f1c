//! Certificates that are recorded together.
//!
//! A certificate costs several syncs of the disk, of its events and of the database. Where many are asked for at once, whoever
//! waits for a transaction shares the next one, by whatever way they came: its events are recorded together, then it is
//! committed. Each has its own checks, inside of that transaction, and one that is refused leaves no trace in what the others
//! have.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use audit::{Actor, Event};
use pki::profile::CaKind;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;
use tokio::sync::oneshot;

use crate::issue::Issued;
use crate::signing::Signing;
use crate::writing::Writing;
use crate::{Registry, RegistryError};

/// Certificates of one transaction at most. Our choice: beyond that their own work, not the syncs, takes the time for which
/// everybody else waits.
const TOGETHER: usize = 64;

/// A certificate that somebody asks for, in one of the ways to get one.
pub(crate) trait Issuance: Send + 'static {
    type Error: From<RegistryError> + From<sqlx::Error> + Send + 'static;

    /// Decides, inside of the transaction that issues: everything that has to hold is read in it. What this changes in the
    /// database counts if the outcome is [`Decision::Issued`], and is undone otherwise.
    fn decide(
        &mut self,
        registry: &Registry,
        tx: &mut Transaction<'static, Sqlite>,
        signing: &mut Signing,
    ) -> impl Future<Output = Result<Decision, Self::Error>> + Send;
}

/// Outcome for somebody who asked.
pub(crate) enum Decision {
    /// A certificate, with the events that are to be recorded before it is committed.
    Issued(Box<Issued>, Vec<Event>),
    /// The certificate with this serial number, which the same was given before.
    Before(CaKind, String),
    /// The certificate is to be [signed](Registry::sign_outside) first, outside of the transaction, and decided anew.
    Unsigned,
}

/// Those who wait for the next transaction.
#[derive(Default)]
pub(crate) struct Batches(Mutex<Vec<Box<dyn InBatch>>>);

impl Batches {
    fn push(&self, waiting: Box<dyn InBatch>) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push(waiting);
    }

    fn next(&self) -> Vec<Box<dyn InBatch>> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = queue.len().min(TOGETHER);
        queue.drain(..count).collect()
    }
}

struct Waiting<I: Issuance> {
    /// With whatever its events are to say.
    registry: Registry,
    issuance: I,
    signing: Signing,
    /// None until it is decided.
    outcome: Option<Result<Decision, I::Error>>,
    answer: oneshot::Sender<Answer<I>>,
}

/// The decision; the rest for deciding anew.
type Answer<I> = (Result<Decision, <I as Issuance>::Error>, I, Signing);

/// A [`Waiting`], whatever its way.
trait InBatch: Send {
    /// Decides within a savepoint; gives the events to record. Fails if the transaction has ended by itself, as SQLite has it
    /// on a full disk: whoever came next would begin another one, and commit it without its events.
    fn decide<'t>(&'t mut self, tx: &'t mut Transaction<'static, Sqlite>) -> Deciding<'t>;

    /// Tells that the outcome is the same if the transaction fails.
    fn stands(&self) -> bool;

    /// Answers with the outcome, or that it `failed`.
    fn answer(self: Box<Self>, failed: Option<RegistryError>);
}

type Deciding<'t> = Pin<Box<dyn Future<Output = Result<Vec<Event>, RegistryError>> + Send + 't>>;

impl<I: Issuance> InBatch for Waiting<I> {
    fn decide<'t>(&'t mut self, tx: &'t mut Transaction<'static, Sqlite>) -> Deciding<'t> {
        Box::pin(async move {
            sqlx::query("SAVEPOINT one").execute(&mut **tx).await?;
            let decision = self.issuance.decide(&self.registry, tx, &mut self.signing);
            let mut decision = decision.await;
            let events = match &mut decision {
                Ok(Decision::Issued(_, events)) => self.registry.told(std::mem::take(events)),
                _ => {
                    sqlx::query("ROLLBACK TO one").execute(&mut **tx).await?;
                    Vec::new()
                }
            };
            sqlx::query("RELEASE one").execute(&mut **tx).await?;
            self.outcome = Some(decision);
            Ok(events)
        })
    }

    fn stands(&self) -> bool {
        matches!(self.outcome, Some(Err(_) | Ok(Decision::Unsigned)))
    }

    fn answer(self: Box<Self>, failed: Option<RegistryError>) {
        let outcome = match (failed, self.outcome) {
            (Some(error), _) => Err(error.into()),
            (None, Some(outcome)) => outcome,
            (None, None) => Err(RegistryError::Interrupted.into()),
        };
        // Whoever does not wait any more has a certificate that the registry knows.
        let _ = self.answer.send((outcome, self.issuance, self.signing));
    }
}

impl Registry {
    /// Issues a certificate in a transaction with others that are waiting; recorded and committed when this returns.
    /// `actor` stands in the event of a signature that failed.
    pub(crate) async fn issue_together<I: Issuance>(
        &self,
        mut issuance: I,
        mut signing: Signing,
        actor: &Actor,
        now: OffsetDateTime,
    ) -> Result<Issued, I::Error> {
        loop {
            let (answer, decided) = oneshot::channel();
            self.inner.batches.push(Box::new(Waiting {
                registry: self.clone(),
                issuance,
                signing,
                outcome: None,
                answer,
            }));
            // A task of its own: whoever asked may go away, and the others must have their answers.
            let registry = self.clone();
            tokio::spawn(async move { registry.issue_waiting(now).await });
            let outcome;
            (outcome, issuance, signing) = decided.await.map_err(|_| RegistryError::Interrupted)?;
            match outcome? {
                Decision::Issued(issued, _) => return Ok(*issued),
                Decision::Before(kind, serial) => {
                    return Ok(self.issued(kind, &serial).await?.into_issued(self)?);
                }
                Decision::Unsigned => self.sign_outside(&mut signing, actor, now).await?,
            }
        }
    }

    /// Serves those who wait, if somebody else has not done so.
    async fn issue_waiting(&self, now: OffsetDateTime) {
        let turn = self.inner.turn.wait().await;
        let mut batch = self.inner.batches.next();
        if batch.is_empty() {
            return;
        }
        let failed = match self.write_in(turn, now).await {
            Ok(writing) => issue_batch(writing, &mut batch).await.err(),
            Err(error) => Some(error),
        };
        let why = failed
            .as_ref()
            .map(|error| error_report::Report(error).to_string());
        let mut failed = failed;
        for one in batch {
            let error = match (&why, one.stands()) {
                (None, _) | (_, true) => None,
                // One has the error itself, which cannot be had twice.
                (Some(why), false) => Some(
                    failed
                        .take()
                        .unwrap_or_else(|| RegistryError::Together(why.clone())),
                ),
            };
            one.answer(error);
        }
    }
}

/// Decides of each; what is issued counts if this succeeds.
async fn issue_batch(
    mut writing: Writing,
    batch: &mut [Box<dyn InBatch>],
) -> Result<(), RegistryError> {
    let mut events = Vec::new();
    for one in batch {
        events.extend(one.decide(&mut writing).await?);
    }
    writing.record_told(events).await?;
    writing.commit().await
}
