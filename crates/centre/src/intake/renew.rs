//! Receipts that cameras refuse, so that the centre says the same again: those whose signer was revoked after
//! it signed, and those that were signed under a wrong clock which has been put right since.

use audit::Actor;
use event_catalogue::Recorded as _;
use event_catalogue::evidence::ReceiptReissued;
use evidence::cms;
use evidence::receipt::{Receipt, ReceiptError};
use time::OffsetDateTime;

use super::error::SettleError;
use super::{Intake, index};
use crate::device::Device;
use crate::problem::Problem;

/// How far ahead of the clock a receipt may have been signed; cameras allow more.
const AHEAD: time::Duration = time::Duration::minutes(1);

impl Intake {
    /// A stored receipt as it can be given to `device`.
    pub(super) async fn current(&self, cms: Vec<u8>, device: &Device) -> Result<Vec<u8>, Problem> {
        self.renewed(cms, device)
            .await
            .map_err(|e| Problem::internal(&e))
    }

    async fn renewed(&self, stored: Vec<u8>, device: &Device) -> Result<Vec<u8>, SettleError> {
        let inner = &self.inner;
        let now = OffsetDateTime::now_utc();
        let status = inner.verifier.trust.status();
        let verified = cms::parse_signed_data(&stored)
            .and_then(|message| message.verify())
            .map_err(ReceiptError::Signature)?;
        let signer = verified.signer_chain.leaf();
        let ours = inner.keys.signer();
        let start = signer.tbs_certificate.validity.not_before.to_system_time();
        let reason = if verified.signing_time < OffsetDateTime::from(start) {
            "the receipt was signed before its signer's certificate was valid"
        } else if verified.signing_time > now + AHEAD {
            "the receipt was signed in the future"
        } else if status.is_revoked(signer, now).is_some() {
            "the certificate that signed the receipt was revoked"
        } else {
            return Ok(stored);
        };
        // With a certificate that is revoked too, another signature would say nothing new.
        if status.is_revoked(ours.chain.leaf(), now).is_some() {
            return Ok(stored);
        }
        let receipt = Receipt::parse(&verified.content)?;
        let block = receipt.block_sha256;
        let event = ReceiptReissued {}
            .into_event(now, Actor::device(&device.0), format!("block/{block}"))
            .with_reason(reason);
        self.record(event).await?;
        let cms = receipt.sign_at(&ours.key, &ours.chain, now)?;
        index::replace_receipt(&inner.sql, &block, &device.0, &cms).await?;
        Ok(cms)
    }
}
