//! Uploads: several workers bring blocks to the centre over whichever bearer is best.

pub(crate) mod queue;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use error_report::Report;
use evidence::cms::CmsError;
use evidence::receipt::{self, ReceiptError, Verdict, VerifiedReceipt};
use evidence::spool::{Checked, Entry, SpoolError};
use pki::path::PathError;
use time::OffsetDateTime;

use self::queue::IDLE;
use crate::agent::shared::Shared;
use crate::bearer::Choice;
use crate::events::CameraEvent;
use crate::log::CheckpointRefused;
use crate::metrics::count;
use crate::transport::{Connection, Dialer};
use crate::tus::{TusError, Upload};

/// Part that must have room in a bearer's budget, in bytes; parts on bearers with a budget are no longer.
const LEAST_PART: u64 = 256 * 1024;
/// Set aside for connection and requests around the first part of a block.
const OVERHEAD: u64 = 64 * 1024;
/// Distance by which the centre's clock may be ahead of ours.
const CLOCK_SKEW: time::Duration = time::Duration::minutes(5);

/// Why a receipt did not end a block's life.
#[derive(Debug, thiserror::Error)]
enum ConfirmError {
    #[error("receipt is not acceptable")]
    Receipt(#[from] ReceiptError),
    #[error("receipt does not fit, or the spool failed")]
    Spool(#[from] SpoolError),
    #[error("receipt's checkpoint is not acceptable")]
    Checkpoint(#[from] CheckpointRefused),
    #[error("a worker died")]
    Worker(#[from] tokio::task::JoinError),
}

/// One of the uploading tasks.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    /// Its number among the uploading tasks, from 0.
    index: usize,
    connection: Option<Connection>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            shared,
            index,
            connection: None,
        }
    }

    /// Uploads until aborted; an abort at any point loses nothing.
    pub(crate) async fn run(mut self) {
        loop {
            self.shared.bearers.turn(self.index).await;
            let next = {
                let spool = self.shared.spool();
                self.shared.queue().take(spool.entries())
            };
            let Some(entry) = next else {
                let idle = self.shared.queue().idle_time();
                let _ = tokio::time::timeout(idle, self.shared.work.notified()).await;
                continue;
            };
            // Another worker may find the next one.
            self.shared.work.notify_one();
            self.attempt(&entry).await;
            self.shared.update_waiting();
        }
    }

    async fn attempt(&mut self, entry: &Entry) {
        let mut guard = InFlight {
            shared: Arc::clone(&self.shared),
            sequence: Some(entry.sequence),
        };
        let need = entry.size.min(LEAST_PART).saturating_add(OVERHEAD);
        let bearer = match self.shared.bearers.choose(self.shared.clock.now(), need) {
            Choice::Use(bearer) => bearer,
            Choice::Wait(until) => {
                self.connection = None;
                self.report_exhausted(need);
                drop(guard);
                let pause = until.saturating_duration_since(Instant::now()).min(IDLE);
                tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
                return;
            }
        };
        let dialer: Dialer = self.shared.dialer();
        let usable = self
            .connection
            .as_ref()
            .is_some_and(|c| c.bearer.index == bearer.index && c.is_usable(&dialer));
        if !usable {
            self.connection = None;
            match dialer.connect(Arc::clone(&bearer)).await {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    self.shared.transport_failed(&bearer, &error);
                    return;
                }
            }
        }
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        if let Err(error) = self.shared.contact(&mut connection).await {
            self.shared.transport_failed(&bearer, &error);
            return;
        }
        let outcome = self.upload(entry, &mut connection).await;
        match outcome {
            Err(TusError::Transport(error)) => {
                self.shared.transport_failed(&bearer, &error);
            }
            outcome => {
                bearer.succeeded();
                self.connection = Some(connection);
                guard.sequence = None;
                self.answered(entry, outcome).await;
            }
        }
    }

    async fn upload(
        &self,
        entry: &Entry,
        connection: &mut Connection,
    ) -> Result<Vec<u8>, TusError> {
        let block = self.shared.spool().block_path(entry);
        let upload = Upload {
            entry,
            device: &self.shared.config.identity.device,
            block: &block,
            memory: self.memory(entry.sequence),
            collection: &self.shared.config.centre.path,
            chunk_len: self.shared.config.uplink.chunk_bytes,
            bearers: &self.shared.bearers,
            at_once: &self.shared.at_once,
        };
        let uploaded = &self.shared.metrics.uploaded;
        upload.run(connection, || count(uploaded)).await
    }

    fn memory(&self, sequence: u64) -> PathBuf {
        self.shared
            .uploads_folder()
            .join(format!("{sequence:016}.upload"))
    }

    /// Deals with an answer of the centre, good or bad.
    async fn answered(&self, entry: &Entry, outcome: Result<Vec<u8>, TusError>) {
        let sequence = entry.sequence;
        let error = match outcome {
            Ok(der) => match self.confirm(entry, der).await {
                Ok(()) => {
                    let _ = std::fs::remove_file(self.memory(sequence));
                    self.done(sequence);
                    return;
                }
                Err(error) => {
                    count(&self.shared.metrics.receipts_refused);
                    self.shared.emit(CameraEvent::ReceiptRefused {
                        sequence,
                        reason: Report(&error).to_string(),
                    });
                    self.postpone(sequence, None);
                    return;
                }
            },
            Err(error) => error,
        };
        tracing::warn!(sequence, error = %Report(&error), "upload failed");
        match &error {
            TusError::Discarded { .. } | TusError::Block(_) => self.check_block(sequence).await,
            TusError::Status { retry_after, .. } => self.postpone(sequence, *retry_after),
            _ => self.postpone(sequence, None),
        }
    }

    /// The block is gone from the spool.
    fn done(&self, sequence: u64) {
        self.shared.queue().done(sequence);
        self.shared.at_once.done(sequence);
    }

    fn postpone(&self, sequence: u64, at_least: Option<Duration>) {
        count(&self.shared.metrics.failures);
        let uplink = &self.shared.config.uplink;
        self.shared.queue().pause(
            sequence,
            Duration::from_millis(uplink.backoff_min_ms),
            Duration::from_millis(uplink.backoff_max_ms),
            at_least,
        );
    }

    /// The centre or the disk says the block is not what it was: look, and set it aside if so.
    ///
    /// A disk that cannot be read says nothing about the block; only bytes that were read do.
    async fn check_block(&self, sequence: u64) {
        let shared = Arc::clone(&self.shared);
        let checked =
            tokio::task::spawn_blocking(move || shared.spool().check_block(sequence)).await;
        match checked {
            Ok(Ok(Checked::SetAside(dropped))) => {
                let _ = std::fs::remove_file(self.memory(sequence));
                self.done(sequence);
                self.shared.report_dropped(vec![dropped]);
            }
            // Evicted while it was being sent.
            Ok(Err(SpoolError::NotFound { .. })) => self.done(sequence),
            Ok(Err(error)) => {
                count(&self.shared.metrics.read_errors);
                self.shared.emit(CameraEvent::Unreadable {
                    sequence,
                    reason: Report(&error).to_string(),
                });
                self.postpone(sequence, None);
            }
            Ok(Ok(Checked::Sound)) | Err(_) => self.postpone(sequence, None),
        }
    }

    async fn confirm(&self, entry: &Entry, der: Vec<u8>) -> Result<(), ConfirmError> {
        let receipt = self.verify(&der)?;
        let sequence = entry.sequence;
        let said = receipt.receipt().clone();
        let shared = Arc::clone(&self.shared);
        let now = shared.clock.now();
        let confirmed = tokio::task::spawn_blocking(move || -> Result<(), ConfirmError> {
            // Remembered before the block goes: the receipt's promise rests on this log.
            if let Some(contradiction) = shared.log.receipt(receipt.receipt(), now)? {
                shared.report_log(contradiction);
            }
            Ok(shared.spool().confirm(sequence, &receipt).map(drop)?)
        });
        confirmed.await??;
        count(&self.shared.metrics.receipted);
        if said.verdict == Verdict::Quarantined {
            count(&self.shared.metrics.quarantined);
        }
        self.shared.emit(CameraEvent::Receipted {
            sequence,
            verdict: said.verdict,
            reason: said.reason,
        });
        Ok(())
    }

    /// The signer must have been one of our services when it signed, not in the future, and be known
    /// not to be revoked now.
    fn verify(&self, der: &[u8]) -> Result<VerifiedReceipt, ReceiptError> {
        let now = self.shared.clock.now();
        let strict = self.shared.trust.state().strict.clone();
        receipt::verify(der, |chain, signed_at: OffsetDateTime| {
            if signed_at > now + CLOCK_SKEW {
                return Err(Box::<dyn std::error::Error + Send + Sync>::from(
                    CmsError::Time,
                ));
            }
            self.shared
                .revocation
                .signer(&strict, chain.ders(), signed_at, now)
                .map_err(|e: PathError| e.into())
        })
    }

    fn report_exhausted(&self, need: u64) {
        for bearer in self
            .shared
            .bearers
            .without_room(self.shared.clock.now(), need)
        {
            if bearer.first_exhaustion() {
                self.shared.emit(CameraEvent::BudgetExhausted {
                    bearer: bearer.settings.name.clone(),
                });
            }
        }
    }
}

/// Gives a block back to the queue, also when the task is aborted.
struct InFlight {
    shared: Arc<Shared>,
    sequence: Option<u64>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence {
            let mut queue = self
                .shared
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            queue.release(sequence);
        }
    }
}
