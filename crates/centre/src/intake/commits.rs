//! Transactions that several uploads and blocks share.
//!
//! A commit syncs the disk and writes every page that it changed, for the most part the same ones for each block. So whoever
//! has something to write down queues it, and one of them commits all that waits, while the next ones queue up. A failure
//! rolls all of it back, and each gets a transaction of its own: nobody fails for another's sake.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use store::Sql;
use tokio::sync::oneshot;

use super::error::SettleError;
use super::index::Tx;

/// Jobs of one transaction at most, so that the first of them does not wait for long (our choice).
const MOST: usize = 32;

/// Part of a transaction. It may be done again after one that was rolled back, so it changes nothing but the database, or what
/// may be changed twice.
pub(super) trait Job: Send + Sync + 'static {
    type Output: Send + 'static;

    /// Does the work in `tx`, which holds the work of others as well. After an error nothing of it stays.
    fn run<'a>(&'a self, tx: &'a mut Tx) -> BoxFuture<'a, Result<Self::Output, SettleError>>;
}

/// The jobs that wait, and the turn to commit them; cheap to clone.
#[derive(Clone)]
pub(crate) struct Commits {
    sql: Sql,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Vec<Box<dyn Step>>>,
    turn: tokio::sync::Mutex<()>,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Vec<Box<dyn Step>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job of whatever kind, with whoever waits for it.
trait Step: Send {
    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), SettleError>>;

    /// Reports that what was done is committed, or why it is not.
    fn end(self: Box<Self>, committed: Result<(), SettleError>);
}

struct Queued<J: Job> {
    job: J,
    output: Option<J::Output>,
    reply: oneshot::Sender<Result<J::Output, SettleError>>,
}

impl<J: Job> Step for Queued<J> {
    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), SettleError>> {
        Box::pin(async move {
            // Of an attempt that was rolled back; it may hold what this one needs.
            self.output = None;
            self.output = Some(self.job.run(tx).await?);
            Ok(())
        })
    }

    fn end(self: Box<Self>, committed: Result<(), SettleError>) {
        let Self { output, reply, .. } = *self;
        let done = committed.and_then(|()| output.ok_or(SettleError::Undone));
        // Whoever asked may be gone; what is committed counts all the same.
        let _ = reply.send(done);
    }
}

impl Commits {
    pub(crate) fn new(sql: Sql) -> Self {
        Self {
            sql,
            queue: Arc::default(),
        }
    }

    /// Has `job` done in one transaction with whatever else waits for one; durable on return. It is done also if nobody waits
    /// for the result any more.
    pub(super) async fn commit<J: Job>(&self, job: J) -> Result<J::Output, SettleError> {
        let (reply, done) = oneshot::channel();
        let queued = Queued {
            job,
            output: None,
            reply,
        };
        self.queue.waiting().push(Box::new(queued));
        let commits = self.clone();
        // A task of its own: this request may end with its connection, and others wait for the same commit.
        tokio::spawn(async move { commits.commit_waiting().await });
        done.await.unwrap_or(Err(SettleError::Undone))
    }

    async fn commit_waiting(&self) {
        let _turn = self.queue.turn.lock().await;
        let mut batch: Vec<_> = {
            let mut waiting = self.queue.waiting();
            let most = waiting.len().min(MOST);
            waiting.drain(..most).collect()
        };
        if batch.len() > 1 && self.transact(&mut batch).await.is_ok() {
            batch.into_iter().for_each(|step| step.end(Ok(())));
            return;
        }
        for mut step in batch {
            let committed = self.transact(std::slice::from_mut(&mut step)).await;
            step.end(committed);
        }
    }

    async fn transact(&self, batch: &mut [Box<dyn Step>]) -> Result<(), SettleError> {
        let work = async {
            let mut tx = self.sql.write().await?;
            for step in batch {
                step.run(&mut tx).await?;
            }
            Ok(tx.commit().await?)
        };
        // A panic is the failure of one job, not of those that share its transaction. What it leaves is rolled back, and a
        // step that is run again begins anew.
        let done = AssertUnwindSafe(work).catch_unwind().await;
        done.unwrap_or(Err(SettleError::Undone))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use store::Migration;
    use store::sqlx;

    use super::*;

    const TABLE: Migration = Migration {
        version: 1,
        sql: "CREATE TABLE a (n INTEGER NOT NULL UNIQUE) STRICT",
    };

    /// Writes its number down, and then fails or panics if it is to.
    struct Number {
        n: i64,
        ending: Ending,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Ending {
        Done,
        Error,
        Panic,
    }

    impl Job for Number {
        type Output = i64;

        fn run<'a>(&'a self, tx: &'a mut Tx) -> BoxFuture<'a, Result<i64, SettleError>> {
            Box::pin(async move {
                let insert = sqlx::query("INSERT INTO a VALUES (?)").bind(self.n);
                insert.execute(&mut **tx).await?;
                match self.ending {
                    Ending::Done => Ok(self.n),
                    Ending::Error => Err(SettleError::Undone),
                    Ending::Panic => panic!("as it is to"),
                }
            })
        }
    }

    async fn commits() -> (tempfile::TempDir, Commits) {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(&folder.path().join("db.sqlite"), &[TABLE]).await;
        (folder, Commits::new(sql.unwrap()))
    }

    async fn numbers(commits: &Commits) -> Vec<i64> {
        let all = sqlx::query_scalar("SELECT n FROM a ORDER BY n");
        all.fetch_all(commits.sql.read()).await.unwrap()
    }

    /// Queues `endings` before the first of them can be committed.
    async fn commit_together(commits: &Commits, endings: &[Ending]) -> Vec<bool> {
        let turn = commits.queue.turn.lock().await;
        let numbered = endings.iter().zip(0..);
        let jobs: Vec<_> = numbered
            .map(|(&ending, n)| {
                let commits = commits.clone();
                tokio::spawn(async move { commits.commit(Number { n, ending }).await })
            })
            .collect();
        while commits.queue.waiting().len() < endings.len() {
            tokio::task::yield_now().await;
        }
        drop(turn);
        let ended = join_all(jobs).await;
        ended.into_iter().map(|end| end.unwrap().is_ok()).collect()
    }

    #[tokio::test]
    async fn failed_and_panicking_jobs_fail_alone() {
        let (_folder, commits) = commits().await;
        let mut endings = [Ending::Done; 9];
        (endings[2], endings[5]) = (Ending::Error, Ending::Panic);
        let done = commit_together(&commits, &endings).await;
        let expected: Vec<bool> = endings.iter().map(|&e| e == Ending::Done).collect();
        assert_eq!(done, expected);
        assert_eq!(numbers(&commits).await, [0, 1, 3, 4, 6, 7, 8]);
    }

    #[tokio::test]
    async fn jobs_beyond_one_transaction_get_the_next() {
        let (_folder, commits) = commits().await;
        let count = MOST * 2 + 1;
        // The last one fails: it must not be in the transaction of the first ones, which would be done again.
        let mut endings = vec![Ending::Done; count];
        endings[count - 1] = Ending::Error;
        let done = commit_together(&commits, &endings).await;
        assert_eq!(done.iter().filter(|done| **done).count(), count - 1);
        assert_eq!(numbers(&commits).await.len(), count - 1);
        assert!(commits.queue.waiting().is_empty());
    }

    #[tokio::test]
    async fn job_is_done_though_nobody_waits_for_it() {
        let (_folder, commits) = commits().await;
        let turn = commits.queue.turn.lock().await;
        let job = Number {
            n: 7,
            ending: Ending::Done,
        };
        let asked = commits.commit(job);
        assert!(asked.now_or_never().is_none());
        drop(turn);
        let next = Number {
            n: 8,
            ending: Ending::Done,
        };
        assert_eq!(commits.commit(next).await.unwrap(), 8);
        assert_eq!(numbers(&commits).await, [7, 8]);
    }
}
