//! Receipts of the site that cameras refuse: the signer was revoked after it signed, or signed by a wrong clock. The centre signs
//! the same statement again.

use audit::Actor;
use event_catalogue::Recorded as _;
use event_catalogue::evidence::{ReceiptCompromised, ReceiptReissued};
use evidence::receipt::{Receipt, SCHEMA};
use time::OffsetDateTime;

use super::error::SettleError;
use super::{Intake, index};
use crate::device::Device;
use crate::ledger::Known;

/// A stored receipt that says of `known` what the log says, as it can be given to `device`.
pub(super) async fn renewed(
    intake: &Intake,
    known: &Known,
    stored: Vec<u8>,
    device: &Device,
) -> Result<Vec<u8>, SettleError> {
    let inner = &intake.inner;
    let now = OffsetDateTime::now_utc();
    let read = inner.receipts.read(&stored)?;
    let Some(outdated) = inner.receipts.outdated(&read, now) else {
        return Ok(stored);
    };
    let signer = inner.keys.signer();
    // Cameras refuse the present signer as well: another signature by it changes nothing.
    if !inner.receipts.is_usable(&signer, now) {
        return Ok(stored);
    }
    let (block, reason) = (known.block, &outdated.reason);
    let resource = format!("block/{block}");
    if outdated.is_compromised {
        tracing::warn!(%block, reason, "receipt has a compromised signer: signing it again");
        let centre = Actor::service("centre");
        let finding = ReceiptCompromised {}.into_event(now, centre, &resource);
        intake.record(finding.with_reason(reason)).await?;
    }
    let event = ReceiptReissued {}.into_event(now, Actor::device(&device.0), &resource);
    intake.record(event.with_reason(reason)).await?;
    let mut receipt = read.receipt().clone();
    if outdated.is_compromised {
        // The log confirms the rest, but the holder of the key chose these. Every camera understands receipts without a checkpoint.
        receipt = Receipt {
            schema: SCHEMA.to_owned(),
            checkpoint: None,
            log_origin: inner.log_origin.clone(),
            log_index: known.log_index,
            ..receipt
        };
    }
    let cms = receipt.sign_at(&signer.key, &signer.chain, now)?;
    index::replace_receipt(&inner.sql, &known.block, &device.0, &cms).await?;
    Ok(cms)
}
