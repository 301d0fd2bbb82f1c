//! Blocks that a crash left without a receipt: what the log knows of them, and whether they are what the index says.

use std::sync::Arc;

use evidence::digest::Sha256Digest;
use store::ObjectId;
use time::OffsetDateTime;

use super::error::SettleError;
use super::index::Settled;
use super::verify::Exceptions;
use super::{Intake, hash_file};
use crate::ledger::{Known, Verdict};
use crate::reasons::RELEASABLE;

impl Intake {
    /// Tells if the block is being settled.
    pub(crate) fn is_settling(&self, block: &Sha256Digest) -> bool {
        self.inner.settling.find(&block.to_string()).is_some()
    }

    /// Index of the block's event, if it reached the log before a crash or a failure.
    pub(super) async fn logged(&self, settled: &Settled) -> Result<Option<u64>, SettleError> {
        let audit = self.inner.audit.clone();
        self.inner.pool.run(move || audit.catch_up()).await??;
        let known = self.inner.audit.ledger.block(&settled.block);
        let verdict = match settled.reason.is_empty() {
            true => Verdict::Accepted,
            false => Verdict::Quarantined,
        };
        let is_same = |known: &Known| {
            known.verdict == verdict
                && *known.device == *settled.device
                && known.size == settled.size
                && known.manifest == settled.manifest_sha256
        };
        Ok(known.filter(is_same).map(|known| known.log_index))
    }

    /// Tells if a block that is to get its receipt is what its row in the index says: anybody with the disk can write one.
    pub(super) async fn is_genuine(&self, settled: &Settled) -> Result<bool, SettleError> {
        if self.logged(settled).await?.is_some() {
            return Ok(true);
        }
        let inner = Arc::clone(&self.inner);
        let settled = settled.clone();
        let work = move || -> Result<bool, SettleError> {
            let is_accepted = settled.reason.is_empty();
            let object = ObjectId(*settled.block.as_bytes());
            let path = match is_accepted {
                true => inner.archive.path(&object),
                false => inner.quarantine.path(&object),
            };
            if hash_file(&path)? != settled.block || path.metadata()?.len() != settled.size {
                return Ok(false);
            }
            if !is_accepted {
                return Ok(true);
            }
            let known = inner.audit.ledger.block(&settled.block);
            let mut exceptions = Exceptions::default();
            if let Some(known) = known {
                // What was in quarantine leaves it by a person only.
                if !known.is_released {
                    return Ok(false);
                }
                let all = RELEASABLE.map(str::to_owned);
                exceptions = Exceptions::new(&all).unwrap_or_default();
            }
            let exceptions = exceptions.arrived(settled.received_at);
            let (device, now) = (&settled.device, OffsetDateTime::now_utc());
            let verified = inner.verifier.verify(&path, device, now, &exceptions)?;
            Ok(verified.is_ok_and(|verified| {
                let hash = Sha256Digest::of(&verified.manifest_bytes);
                settled.manifest_sha256 == Some(hash)
                    && settled.sequence == Some(verified.manifest.sequence)
            }))
        };
        self.inner.pool.run(work).await?
    }
}
