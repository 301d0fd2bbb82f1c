//! The two transactions of a settlement.

use std::path::PathBuf;

use evidence::digest::Sha256Digest;
use futures_util::future::BoxFuture;
use store::ObjectId;

use super::Intake;
use super::around::Ends;
use super::commits::Job;
use super::error::SettleError;
use super::index::{self, Known, Placed, Settled, Settlement, Tx};
use super::neighbourhood::Place;

/// The first one: the block gets its place in its camera's chain and in the index, or in quarantine.
pub(super) struct Filing {
    pub(super) intake: Intake,
    pub(super) settlement: Settlement,
    /// File with the block's bytes.
    pub(super) path: PathBuf,
}

/// Outcome of the first one.
pub(super) enum Filed {
    /// The block is written down; `displaced` where another device had brought it, and was refused.
    New { settled: Settled, displaced: bool },
    /// Another upload of the same device was quicker.
    Known(Known),
    /// The block is another device's, and accepted; or it was refused, whoever's it is.
    OtherSender,
    /// [`SettleError::QuarantineFull`]. Nothing was changed, so that it is no failure of those that share the transaction: a
    /// camera whose blocks are refused would have all others pay for it.
    NoRoom(SettleError),
}

impl Filed {
    /// Tells whether the block belongs into the archive, if it passed every check but its place in the chain.
    pub(super) fn in_archive(&self) -> bool {
        match self {
            Self::New { settled, .. } => settled.reason.is_empty(),
            Self::Known(known) => known.accepted(),
            Self::OtherSender => true,
            Self::NoRoom(_) => false,
        }
    }
}

impl Job for Filing {
    type Output = Filed;

    fn run<'a>(&'a self, tx: &'a mut Tx) -> BoxFuture<'a, Result<Filed, SettleError>> {
        Box::pin(self.file(tx))
    }
}

impl Filing {
    async fn file(&self, tx: &mut Tx) -> Result<Filed, SettleError> {
        let settlement = &self.settlement;
        let inner = &self.intake.inner;
        let known = inner.audit.ledger.block(&settlement.block);
        let known = match &known {
            Some(known) => Some(index::find(&mut **tx, &inner.receipts, known).await?),
            None => {
                // No other upload settles it now: the row is forged, or a crash left it and this transaction writes it again.
                if index::remove_unconfirmed(tx, &settlement.block).await? {
                    let block = settlement.block.to_string();
                    inner.repairs.note_foreign("blocks", block);
                }
                None
            }
        };
        let displaced = match known {
            Some(known) if known.is_of(&settlement.upload) => return Ok(Filed::Known(known)),
            Some(known) if known.accepted() || !settlement.outranks(&known) => {
                return Ok(Filed::OtherSender);
            }
            Some(_) => true,
            None => false,
        };
        let placed = match &settlement.verification {
            Ok(verified) => {
                let (manifest, block) = (&verified.manifest, &settlement.block);
                let hash = Sha256Digest::of(&verified.manifest_bytes);
                let around = inner.around();
                let placement = around
                    .place(tx, manifest, &hash, block, Ends::AtHead)
                    .await?;
                let ledger = &inner.audit.ledger;
                let in_quarantine = ledger.in_quarantine(&manifest.device, placement.epoch);
                Placed::of(&placement, manifest).without(&in_quarantine)
            }
            Err(_) => Placed::default(),
        };
        // What passed has its place in the archive already.
        let set_apart = settlement.refusal(&placed).is_some();
        if set_apart {
            match self
                .intake
                .check_quarantine(&mut *tx, &settlement.upload)
                .await
            {
                Err(full @ SettleError::QuarantineFull { .. }) => return Ok(Filed::NoRoom(full)),
                checked => checked?,
            }
        }
        if displaced {
            // It must not keep out the camera that sealed the block.
            index::forget_refused(tx, &settlement.block).await?;
        }
        if set_apart {
            let (quarantine, path) = (inner.quarantine.clone(), self.path.clone());
            let id = ObjectId(*settlement.block.as_bytes());
            let linked = inner.pool.run(move || quarantine.link(&id, &path));
            linked.await??;
        }
        let settled = settlement.insert(tx, &inner.units, &placed).await?;
        if let (Ok(verified), Some(hash)) = (&settlement.verification, settled.manifest_sha256) {
            let place = Place::of(&verified.manifest, hash, settled.epoch);
            inner.unlogged.note(settlement.block, place);
        }
        Ok(Filed::New { settled, displaced })
    }
}

/// The second one: the receipt, and where it stands in the audit log.
pub(super) struct Receipted {
    pub(super) settled: Settled,
    pub(super) leaf: u64,
    pub(super) cms: Vec<u8>,
}

impl Job for Receipted {
    type Output = ();

    fn run<'a>(&'a self, tx: &'a mut Tx) -> BoxFuture<'a, Result<(), SettleError>> {
        Box::pin(async move {
            let stored = index::store_receipt(tx, &self.settled, self.leaf, &self.cms);
            Ok(stored.await?)
        })
    }
}
