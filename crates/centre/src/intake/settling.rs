//! Work on a block that goes on until it succeeds, once at a time, whoever waits for it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use error_report::Report;
use tokio::sync::{Notify, watch};

use super::error::SettleError;
use super::upload::UploadError;
use crate::metrics::Metrics;
use crate::problem::disk_full;

/// First pause before a block is tried again that could not be settled; each next one doubles.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// Longest such pause: a scanner or disk that comes back is noticed within half a minute.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Pause before a block is looked at again that the quarantine has no room for.
const QUARANTINE_RETRY: Duration = Duration::from_secs(600);

/// Work under way: the channel closes at its end, and brings the receipt before if that is new.
pub(crate) type UnderWay = watch::Receiver<Option<Fresh>>;

/// A receipt that was signed just now. It need not be read back, nor held against what has become of its signer since.
#[derive(Clone, Debug)]
pub(crate) struct Fresh {
    pub(super) device: String,
    pub(super) cms: Vec<u8>,
}

/// Work under way by its key: the name of an upload, or the hash of a block that gets its receipt. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Settling {
    under_way: Arc<Mutex<HashMap<String, UnderWay>>>,
    /// Woken when a block has left the quarantine.
    quarantine_room: Arc<Notify>,
    /// Uploads for whose blocks the quarantine had no room.
    without_room: Arc<Mutex<HashSet<String>>>,
    metrics: Metrics,
}

impl Settling {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            under_way: Arc::default(),
            quarantine_room: Arc::default(),
            without_room: Arc::default(),
            metrics,
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, UnderWay>> {
        let entries = self.under_way.lock();
        entries.unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of `key`, if it is under way.
    pub(super) fn find(&self, key: &str) -> Option<UnderWay> {
        self.entries().get(key).cloned()
    }

    /// Notes that the quarantine had no room for an upload's block.
    pub(super) fn note_without_room(&self, upload: &str) {
        self.waiting_for_room().insert(upload.to_owned());
    }

    /// Tells whether the quarantine had no room for an upload's block when it was looked at.
    pub(super) fn is_without_room(&self, upload: &str) -> bool {
        self.waiting_for_room().contains(upload)
    }

    /// Forgets an upload that is settled.
    pub(super) fn forget(&self, upload: &str) {
        self.waiting_for_room().remove(upload);
    }

    fn waiting_for_room(&self) -> MutexGuard<'_, HashSet<String>> {
        let waiting = self.without_room.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    /// Has blocks tried again that the quarantine had no room for.
    pub(super) fn quarantine_has_room(&self) {
        self.quarantine_room.notify_waiters();
    }

    /// Keeps others from beginning the work of `key`.
    ///
    /// # Errors
    /// The work, if it is reserved or under way.
    pub(super) fn reserve(&self, key: String) -> Result<Reserved, UnderWay> {
        let (done, waiting) = watch::channel(None);
        let mut entries = self.entries();
        if let Some(under_way) = entries.get(&key) {
            return Err(under_way.clone());
        }
        entries.insert(key.clone(), waiting);
        Ok(Reserved {
            settling: self.clone(),
            key,
            done,
        })
    }

    /// Runs `work` until it succeeds, once per `key` at a time; it is given the number of attempts before.
    pub(super) fn once<F, W>(&self, key: String, work: W) -> UnderWay
    where
        W: Fn(u32) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<Fresh>, SettleError>> + Send,
    {
        match self.reserve(key) {
            Ok(reserved) => reserved.run(work),
            Err(under_way) => under_way,
        }
    }

    async fn until_done<F, W>(&self, work: W) -> Option<Fresh>
    where
        W: Fn(u32) -> F + Send + Sync,
        F: Future<Output = Result<Option<Fresh>, SettleError>> + Send,
    {
        let mut pause = FIRST_RETRY;
        for attempt in 0.. {
            let error = match work(attempt).await {
                Ok(fresh) => return fresh,
                Err(error) => error,
            };
            if matches!(&error, SettleError::Upload(UploadError::Unknown)) {
                return None;
            }
            self.metrics.settle_retries.inc();
            if disk_full(&error) {
                tracing::error!("disk full: blocks wait until there is room");
            } else {
                tracing::warn!(error = %Report(&error), "block waits, trying again soon");
            }
            if matches!(&error, SettleError::QuarantineFull { .. }) {
                // For nothing until a person decides.
                let room = self.quarantine_room.notified();
                let _ = tokio::time::timeout(QUARANTINE_RETRY, room).await;
                continue;
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(LAST_RETRY);
        }
        None
    }
}

/// The right to do the work of a key, which ends on drop, also when the work panics.
pub(super) struct Reserved {
    settling: Settling,
    key: String,
    /// Closed after the entry is gone.
    done: watch::Sender<Option<Fresh>>,
}

impl Reserved {
    /// Runs `work` until it succeeds; it is given the number of attempts before.
    pub(super) fn run<F, W>(self, work: W) -> UnderWay
    where
        W: Fn(u32) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<Fresh>, SettleError>> + Send,
    {
        let waiting = self.done.subscribe();
        tokio::spawn(async move {
            let fresh = self.settling.until_done(work).await;
            if fresh.is_some() {
                self.done.send_replace(fresh);
            }
        });
        waiting
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.settling.entries().remove(&self.key);
    }
}
