//! Bounded shares of the threads for blocking work, so that no kind of work can take another's.
//!
//! The runtime has some five hundred threads for work that blocks, for everybody. Whoever may start
//! any number of such works, a person with many requests for instance, could take all of them, and
//! nothing would be received or recorded any more. So every kind of work has a [`Pool`], and the
//! sizes of all pools together stay below what the runtime has.
//!
//! Work that anybody may ask for and that costs processor time runs on threads of its own, which give
//! way to all others: whoever guesses passwords slows down guessers, not cameras.
//!
//! It knows nothing of the work.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().build().unwrap().block_on(async {
//! let pool = pool::Pool::new(pool::Share::Media);
//! assert_eq!(pool.run(|| 6 * 7).await.unwrap(), 42);
//! # });
//! ```
#![forbid(unsafe_code)]

use std::sync::Arc;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// Threads for blocking work that a runtime of tokio has by default.
const RUNTIME: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Receiving evidence: writing, hashing, verifying, recording its events.
    Intake,
    /// Enrolment, renewal and revocation, with their events.
    Registry,
    /// Signatures of one issuing authority, whose key may be on a token that does not answer; or of those that issue no more.
    Signing,
    /// Events about people, refusals by the listeners, and orders from the command line.
    Audit,
    /// Media, thumbnails and packages for people.
    Media,
    /// Checking and hashing passwords.
    Passwords,
}

impl Share {
    /// Signing once for each authority that issues, and once for all that do no more.
    const ALL: [Self; 9] = [
        Self::Intake,
        Self::Registry,
        Self::Signing,
        Self::Signing,
        Self::Signing,
        Self::Signing,
        Self::Audit,
        Self::Media,
        Self::Passwords,
    ];

    /// Threads that this kind of work takes at most. Our choice: waiting for the disk is what most
    /// of them do, and commits of the log are shared by all who wait for one. Media cost processor
    /// time, of which there is less than this.
    #[must_use]
    pub const fn threads(self) -> usize {
        match self {
            Self::Intake => 96,
            Self::Registry | Self::Audit => 64,
            Self::Media => 16,
            // Each takes 19 MiB and some 20 ms of processor time.
            Self::Passwords => 4,
            // A token signs one after the other.
            Self::Signing => 3,
        }
    }

    /// Whether it gives way to all other work where processors are short.
    const fn gives_way(self) -> bool {
        matches!(self, Self::Media | Self::Passwords)
    }
}

/// The nice value of work that gives way: it gets a tenth of what other work gets beside it (sched(7)),
/// so that it slows down and never stands still.
const NICE: i32 = 10;

// The rest is for the libraries, which ask nobody.
const _: () = {
    let mut sum = 0;
    let mut at = 0;
    while at < Share::ALL.len() {
        #[allow(clippy::indexing_slicing, reason = "checked when compiling")]
        let share = Share::ALL[at];
        sum += share.threads();
        at += 1;
    }
    assert!(sum <= RUNTIME / 2);
};

/// A bounded share of the threads for blocking work; clones are the same share.
#[derive(Clone, Debug)]
pub struct Pool {
    permits: Arc<Semaphore>,
    own: Option<Arc<Own>>,
}

impl Pool {
    /// A pool with the threads of `share`. Make one for each kind of work, and pass clones on.
    ///
    /// Work of a share that gives way falls back to the runtime's threads where none of its own can be had.
    #[must_use]
    pub fn new(share: Share) -> Self {
        let own = share.gives_way().then(|| Own::new(share.threads()));
        Self {
            permits: Arc::new(Semaphore::new(share.threads())),
            own: own.flatten().map(Arc::new),
        }
    }

    /// Runs `work` where it may block. Waits, in order of arrival, while the share is used up.
    ///
    /// A caller that goes away leaves work that has begun to end by itself; until then the work
    /// keeps its thread.
    ///
    /// # Errors
    /// [`JoinError`] if the work panics, or the runtime ends before it began.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // The semaphore lives as long as `self` and is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let work = move || {
            let result = work();
            drop(permit);
            result
        };
        match self.own.as_ref().and_then(|own| own.runtime.as_ref()) {
            Some(runtime) => runtime.spawn_blocking(work).await,
            None => spawn_blocking(work).await,
        }
    }
}

/// Threads of a pool's own, for blocking work only; a thread that is idle for some seconds ends.
#[derive(Debug)]
struct Own {
    runtime: Option<Runtime>,
}

impl Own {
    fn new(threads: usize) -> Option<Self> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(threads)
            .thread_name("gives-way")
            .on_thread_start(give_way)
            .build();
        runtime.ok().map(|runtime| Self {
            runtime: Some(runtime),
        })
    }
}

/// Lowers the priority of the calling thread: on Linux the call without a process means it alone. Refused, the
/// thread works like any other.
fn give_way() {
    let now = getpriority_process(None).unwrap_or_default();
    // A refusal is no reason not to work.
    let _ = setpriority_process(None, now.max(NICE));
}

impl Drop for Own {
    fn drop(&mut self) {
        // The last clone may go inside of another runtime, where nothing may wait for threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn full_pool_leaves_other_pools_their_threads() {
        let (media, intake) = (Pool::new(Share::Media), Pool::new(Share::Intake));
        let (end, held) = mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let mut stuck = tokio::task::JoinSet::new();
        // More works than the runtime has threads.
        for _ in 0..RUNTIME * 2 {
            let (media, held) = (media.clone(), Arc::clone(&held));
            stuck.spawn(async move {
                let wait = move || drop(held.lock().map(|held| held.recv()));
                media.run(wait).await
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let answer = tokio::time::timeout(Duration::from_secs(1), intake.run(|| 1)).await;
        assert_eq!(answer.unwrap().unwrap(), 1);
        drop(end);
        while stuck.join_next().await.is_some() {}
    }

    #[tokio::test]
    async fn caller_that_goes_away_does_not_free_the_thread_it_uses() {
        let pool = Pool {
            permits: Arc::new(Semaphore::new(1)),
            own: None,
        };
        let (end, held) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(move || held.recv().is_ok()).await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.abort();
        let _ = first.await;
        let second = pool.run(|| ());
        assert!(
            tokio::time::timeout(Duration::from_millis(100), second)
                .await
                .is_err()
        );
        drop(end);
        pool.run(|| ()).await.unwrap();
    }

    #[tokio::test]
    async fn work_that_gives_way_has_a_lower_priority_and_others_keep_theirs() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        for share in Share::ALL {
            let found = Pool::new(share).run(nice).await.unwrap();
            let wanted = if share.gives_way() {
                before.max(NICE)
            } else {
                before
            };
            assert_eq!(found, wanted, "{share:?}");
        }
        assert_eq!(nice(), before);
    }
}
