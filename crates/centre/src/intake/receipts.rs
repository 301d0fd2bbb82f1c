//! Which receipt is whose: by the log, whatever the index says.

use evidence::digest::Sha256Digest;

use super::error::SettleError;
use super::index::{Known, Settled, Stored};
use super::renew::renewed;
use super::upload::Outcome;
use super::{Intake, index};
use crate::device::Device;
use crate::ledger;
use crate::problem::Problem;
use crate::reasons::OTHER_SENDER;

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
        let receipt = receipt(self, &known, device).await?;
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
        let receipt = receipt(self, &known, device).await;
        receipt.map_err(|e| Problem::internal(&e))
    }

    pub(super) async fn has_receipt(&self, settled: &Settled) -> Result<bool, SettleError> {
        match self.inner.audit.ledger.block(&settled.block) {
            Some(known) => {
                let (sql, receipts) = (self.inner.sql.read(), &self.inner.receipts);
                let stored = index::receipt(sql, receipts, &known).await?;
                Ok(matches!(stored, Stored::Fits(_)))
            }
            None => Ok(false),
        }
    }
}

/// The receipt of a block as `device` accepts it. One that is missing, or is not the site's, is repaired meanwhile.
async fn receipt(
    intake: &Intake,
    known: &ledger::Known,
    device: &Device,
) -> Result<Option<Vec<u8>>, SettleError> {
    let inner = &intake.inner;
    match index::receipt(inner.sql.read(), &inner.receipts, known).await? {
        Stored::Fits(stored) => renewed(intake, known, stored, device).await.map(Some),
        Stored::Missing | Stored::Foreign => {
            if !intake.is_settling(&known.block) {
                inner.repairs.note(known.block);
            }
            Ok(None)
        }
    }
}

/// The block as the log has it, also if the recording of its event was reported as failed.
pub(super) async fn settled_before(
    intake: &Intake,
    block: &Sha256Digest,
) -> Result<Option<Known>, SettleError> {
    let audit = intake.inner.audit.clone();
    intake.inner.pool.run(move || audit.catch_up()).await??;
    match intake.inner.audit.ledger.block(block) {
        Some(known) => {
            let inner = &intake.inner;
            let found = index::find(inner.sql.read(), &inner.receipts, &known).await?;
            Ok(Some(found))
        }
        None => Ok(None),
    }
}
