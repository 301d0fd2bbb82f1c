//! Blocks that a crash left without a receipt: what the log knows of them, and whether they are what the index says.

use std::sync::Arc;

use evidence::digest::Sha256Digest;
use evidence::manifest::Manifest;
use store::ObjectId;
use time::OffsetDateTime;

use super::around::Ends;
use super::error::SettleError;
use super::index::{Placed, Settled};
use super::verify::Exceptions;
use super::{Inner, Intake, hash_file};
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
        let known = self.inner.audit.ledger.block(&settled.block);
        let inner = Arc::clone(&self.inner);
        let of = settled.clone();
        if !settled.reason.is_empty() {
            return self.inner.pool.run(move || is_whole(&inner, &of)).await?;
        }
        let is_released = known.as_ref().is_some_and(|known| known.is_released);
        // What was in quarantine leaves it by a person only.
        if known.is_some() && !is_released {
            return Ok(false);
        }
        let verify = move || verify_archived(&inner, &of, is_released);
        match self.inner.pool.run(verify).await?? {
            Some(manifest) => self.is_in_place(settled, &manifest, is_released).await,
            None => Ok(false),
        }
    }

    /// Tells if a block has its place in the epoch that its row names.
    async fn is_in_place(
        &self,
        settled: &Settled,
        manifest: &Manifest,
        is_released: bool,
    ) -> Result<bool, SettleError> {
        let ends = match is_released {
            true => Ends::Lifted,
            false => Ends::AtHead,
        };
        let (around, hash) = (self.inner.around(), settled.manifest_sha256);
        let hash = hash.unwrap_or_default();
        let mut tx = self.inner.sql.read().begin().await?;
        let placed = around.place(&mut tx, manifest, &hash, &settled.block, ends);
        let placement = placed.await?;
        tx.rollback().await?;
        let is_same = placement.epoch == settled.epoch;
        let contradiction = Placed::of(&placement, manifest).into_contradiction();
        Ok(is_same && contradiction.is_none())
    }
}

/// Tells if the file of a block has the bytes that its row names. Blocks.
fn is_whole(inner: &Inner, settled: &Settled) -> Result<bool, SettleError> {
    let object = ObjectId(*settled.block.as_bytes());
    let path = match settled.reason.is_empty() {
        true => inner.archive.path(&object),
        false => inner.quarantine.path(&object),
    };
    Ok(hash_file(&path)? == settled.block && path.metadata()?.len() == settled.size)
}

/// Verifies a block of the archive again; returns its manifest if that is the one that the row names. Blocks.
fn verify_archived(
    inner: &Inner,
    settled: &Settled,
    is_released: bool,
) -> Result<Option<Manifest>, SettleError> {
    if !is_whole(inner, settled)? {
        return Ok(None);
    }
    let mut exceptions = Exceptions::default();
    if is_released {
        let all = RELEASABLE.map(str::to_owned);
        exceptions = Exceptions::new(&all).unwrap_or_default();
    }
    let exceptions = exceptions.arrived(settled.received_at);
    let path = inner.archive.path(&ObjectId(*settled.block.as_bytes()));
    let now = OffsetDateTime::now_utc();
    let verified = inner
        .verifier
        .verify(&path, &settled.device, now, &exceptions)?;
    Ok(verified.ok().and_then(|verified| {
        let hash = Sha256Digest::of(&verified.manifest_bytes);
        let is_same = settled.manifest_sha256 == Some(hash)
            && settled.sequence == Some(verified.manifest.sequence);
        is_same.then_some(verified.manifest)
    }))
}
