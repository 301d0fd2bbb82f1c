//! Receipts whose signer was revoked after it signed: cameras refuse them, so that the centre says
//! the same again with the certificate that it has now.

use audit::{Actor, Event};
use evidence::cms;
use evidence::receipt::{Receipt, ReceiptError};
use time::OffsetDateTime;

use super::{Intake, SettleError, index};
use crate::device::Device;
use crate::problem::Problem;

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
        if status.revoked_count() == 0 {
            return Ok(stored);
        }
        let verified = cms::parse_signed_data(&stored)
            .and_then(|message| message.verify())
            .map_err(ReceiptError::Signature)?;
        let signer = verified.signer_chain.leaf();
        let ours = inner.keys.signer();
        // With a certificate that is revoked too, another signature would say nothing new.
        if status.is_revoked(signer, now).is_none()
            || status.is_revoked(ours.chain.leaf(), now).is_some()
        {
            return Ok(stored);
        }
        let receipt = Receipt::parse(&verified.content)?;
        let block = receipt.block_sha256;
        let event = Event::new(
            now,
            Actor::device(&device.0),
            "intake.receipt-again",
            format!("block/{block}"),
            audit::Outcome::Ok,
        )
        .with_reason("the certificate that signed the receipt was revoked");
        self.record(event).await?;
        let cms = receipt.sign_at(&ours.key, &ours.chain, now)?;
        index::replace_receipt(&inner.sql, &block, &device.0, &cms).await?;
        Ok(cms)
    }
}
