//! Which receipt is whose: by the log, whatever the index says.

use evidence::digest::Sha256Digest;

use super::error::SettleError;
use super::index::{Known, Settled};
use super::upload::Outcome;
use super::verify::OTHER_SENDER;
use super::{Intake, index};
use crate::device::Device;
use crate::ledger;
use crate::problem::Problem;

impl Intake {
    /// What became of a settled upload: which block, the index says; what of the block, the log.
    pub(super) async fn settled_outcome(
        &self,
        id: &str,
        device: &Device,
    ) -> Result<Option<Outcome>, SettleError> {
        let Some(outcome) = index::outcome(&self.inner.sql, id, &device.0).await? else {
            return Ok(None);
        };
        if let Some(reason) = outcome.strip_prefix('!') {
            return Ok(Some(Outcome::Discarded(reason.to_owned())));
        }
        let known = outcome.parse().ok();
        let known = known.and_then(|block| self.inner.audit.ledger.block(&block));
        let Some(known) = known else {
            return Ok(Some(Outcome::Pending));
        };
        if *known.device != *device.0 {
            return Ok(Some(Outcome::Discarded(OTHER_SENDER.to_owned())));
        }
        let receipt = stored_receipt(self, &known).await?;
        Ok(Some(receipt.map_or(Outcome::Pending, Outcome::Receipt)))
    }

    /// The receipt of a block this device brought, if it is settled.
    pub(crate) async fn receipt_of_block(
        &self,
        block: &str,
        device: &Device,
    ) -> Result<Option<Vec<u8>>, Problem> {
        let known = block.parse().ok();
        let known = known.and_then(|block| self.inner.audit.ledger.block(&block));
        let Some(known) = known.filter(|known| *known.device == *device.0) else {
            return Ok(None);
        };
        let receipt = stored_receipt(self, &known).await;
        match receipt.map_err(|e| Problem::internal(&e))? {
            Some(cms) => self.current(cms, device).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) async fn has_receipt(&self, settled: &Settled) -> Result<bool, SettleError> {
        match self.inner.audit.ledger.block(&settled.block) {
            Some(known) => Ok(index::receipt(&self.inner.sql, &known).await?.is_some()),
            None => Ok(false),
        }
    }
}

/// The receipt of a block, if it says what the log says. Another one, or none, is repaired.
async fn stored_receipt(
    intake: &Intake,
    known: &ledger::Known,
) -> Result<Option<Vec<u8>>, SettleError> {
    let receipt = index::receipt(&intake.inner.sql, known).await?;
    if receipt.is_none() && !intake.is_settling(&known.block) {
        intake.inner.repairs.note(known.block);
    }
    Ok(receipt)
}

/// The block as the log has it, also if the recording of its event was reported as failed.
pub(super) async fn settled_before(
    intake: &Intake,
    block: &Sha256Digest,
) -> Result<Option<Known>, SettleError> {
    let audit = intake.inner.audit.clone();
    intake.inner.pool.run(move || audit.catch_up()).await??;
    match intake.inner.audit.ledger.block(block) {
        Some(known) => Ok(Some(index::find(intake.inner.sql.read(), &known).await?)),
        None => Ok(None),
    }
}
