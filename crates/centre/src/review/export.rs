//! Custody packages: permitted and recorded first, written afterwards.

use std::io::{BufReader, Write};
use std::sync::Arc;

use access::{Action, Principal};
use evidence::export::{self, MAX_EVENTS, Package, Target};
use time::OffsetDateTime;
use tokio::sync::OwnedSemaphorePermit;

use super::error::ReviewError;
use super::media::{damaged, object};
use super::shares::Exporting;
use super::{ExportContext, Parts, Review, query};
use crate::ledger::Known;

/// Packages written at the same time; each holds a thread for as long as its reader takes. Who
/// comes later waits.
pub(super) const EXPORTS: usize = 4;

/// An export that was permitted and is in the audit log, ready to be written.
pub struct Export {
    parts: Arc<Parts>,
    context: ExportContext,
    violation: String,
    purpose: String,
    known: Known,
    receipt: Vec<u8>,
    /// Indices of the custody record, which ends with this export.
    indices: Vec<u64>,
    /// Index of the event that began the epoch of the camera's chain.
    epoch: Option<u64>,
    _exporting: Exporting,
    _permit: OwnedSemaphorePermit,
}

impl Review {
    /// Asks the rules for the custody package of a violation and records the answer.
    ///
    /// # Errors
    /// [`ReviewError`]; [`ReviewError::NotFound`] also while the receipt is not signed yet.
    pub async fn export(
        &self,
        who: &Principal,
        id: &str,
        context: ExportContext,
    ) -> Result<Export, ReviewError> {
        let resource = self.resource(id).await?;
        let exporting = self.shares.export(who.uid())?;
        let event = self
            .permit(who, Action::EvidenceExport, &resource, Some(id))
            .await?;
        let purpose = format!("{} for {} ({})", id, who.name(), who.uid());
        self.prepare(id, event, &purpose, context, exporting).await
    }

    async fn prepare(
        &self,
        id: &str,
        event: u64,
        purpose: &str,
        context: ExportContext,
        exporting: Exporting,
    ) -> Result<Export, ReviewError> {
        let known = self.ledger().violation(id);
        let known = known.ok_or(ReviewError::NotFound("violation"))?;
        let receipt = query::receipt(&self.parts.sql, &known.block).await?;
        let fits = |receipt: &Vec<u8>| self.parts.receipts.fits(receipt, &known);
        let Some(receipt) = receipt.filter(fits) else {
            // The scrub repairs it, unless the intake is about to sign it.
            self.parts.repairs.note(known.block);
            return Err(ReviewError::NotFound("receipt"));
        };
        if known.head.count > MAX_EVENTS as u64 {
            return Err(ReviewError::TooManyEvents);
        }
        let epoch = self.ledger().epoch_event(&known.device, known.epoch);
        if known.epoch > 0 && epoch.is_none() {
            return Err(ReviewError::NotFound("event of the epoch"));
        }
        let steps = self.history(&known).await?.steps.into_iter();
        // Others may have looked since: the package ends with the event of its export.
        let indices = steps.map(|step| step.log_index).filter(|at| *at <= event);
        let permit = Arc::clone(&self.exports).acquire_owned().await;
        Ok(Export {
            parts: Arc::clone(&self.parts),
            context,
            violation: id.to_owned(),
            purpose: one_line(purpose),
            known,
            receipt,
            indices: indices.collect(),
            epoch,
            _exporting: exporting,
            // The semaphore lives as long as `self` and is never closed.
            _permit: permit.map_err(|_| ReviewError::NotFound("centre"))?,
        })
    }
}

impl Export {
    /// Writes the package in bounded memory; call it on a thread that may block.
    ///
    /// # Errors
    /// [`ReviewError`]; what the target has by then is no package.
    pub fn write(self, target: &mut dyn Target) -> Result<(), ReviewError> {
        let parts = &self.parts;
        let object = object(&self.known.block);
        let file = BufReader::new(parts.archive.get(&object)?);
        let mut opened = parts.keys.opener().open(file).map_err(damaged)?;
        if self.known.manifest != Some(opened.manifest_sha256) {
            return Err(ReviewError::Exchanged(self.known.block));
        }
        // All proofs lead to one checkpoint, and indices ascend: the epoch began before the block came.
        let indices: Vec<u64> = self.epoch.iter().chain(&self.indices).copied().collect();
        let mut log = (self.context.prove)(&indices).map_err(ReviewError::Proof)?;
        let epoch = match self.epoch.is_some() && !log.events.is_empty() {
            true => Some(log.events.remove(0)),
            false => None,
        };
        let signed_manifest = opened.signed_data_der.clone();
        let camera_chain = opened.signer_chain.clone();
        let signer = parts.keys.signer();
        let package = Package {
            violation: &self.violation,
            block: &parts.archive.path(&object),
            signed_manifest: &signed_manifest,
            camera_chain: &camera_chain,
            receipt: &self.receipt,
            centre_chain: &signer.chain,
            centre_key: &signer.key,
            root_pem: &self.context.root_pem,
            crls_pem: &self.context.crls_pem,
            log: &log,
            epoch: epoch.as_ref(),
            purpose: &self.purpose,
            now: OffsetDateTime::now_utc(),
        };
        let mut read = |index: usize, out: &mut dyn Write| opened.read_medium(index, out);
        Ok(export::write(&package, &mut read, target)?)
    }
}

/// `text` without what could end the line that it stands in: the package's README is Markdown.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() || c == '`' { ' ' } else { c };
    text.chars().map(plain).collect()
}
