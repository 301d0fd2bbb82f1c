//! Stored receipts compared with the log.

use evidence::cms;
use evidence::receipt::{Receipt, Verdict as Given};

use crate::ledger::{Known, Verdict};

/// Tells if a stored receipt is signed and says of `known` what the log says.
pub(crate) fn is_receipt_of(stored: &[u8], known: &Known) -> bool {
    let verified = cms::parse_signed_data(stored).and_then(|message| message.verify());
    let receipt = verified
        .ok()
        .and_then(|verified| Receipt::parse(&verified.content).ok());
    let Some(receipt) = receipt else {
        return false;
    };
    let is_of_block = receipt.block_sha256 == known.block
        && receipt.size == known.size
        && *receipt.device == *known.device;
    let says_verdict = match known.verdict {
        Verdict::Accepted => {
            receipt.verdict == Given::Accepted
                && receipt.manifest_sha256 == known.manifest
                && receipt.log_index == known.log_index
        }
        // A rejected block keeps the receipt that it had in quarantine.
        Verdict::Quarantined | Verdict::Rejected => {
            receipt.verdict == Given::Quarantined
                && receipt.reason.as_deref() == Some(&*known.reason)
        }
    };
    is_of_block && says_verdict
}
