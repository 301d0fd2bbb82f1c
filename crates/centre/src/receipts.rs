//! Stored receipts compared with the log, and their signers with the site's trust.
//!
//! An attacker with write access to the disk can replace a stored receipt. Its signature alone proves nothing: the attacker signs
//! with a key of their own, the camera refuses such a receipt, and asks again for ever. So a receipt counts if one of the site's
//! receipt signers made it and it says what the log says.

use error_report::Report;
use evidence::receipt::{self, Receipt, ReceiptError, Verdict as Given, VerifiedReceipt};
use pki::crl::RevocationReason;
use pki::path::{PathError, Purpose, TrustStore};
use time::OffsetDateTime;

use crate::clock::millis;
use crate::keys::Signer;
use crate::ledger::{Known, Verdict};

/// Distance by which the signing time of a receipt may be ahead of the clock; cameras accept more.
const AHEAD: time::Duration = time::Duration::minutes(1);
/// Largest difference between a block's time of arrival in its row or receipt and in the log. Events of earlier versions have
/// their own time instead, which is later by the seconds that a block waited, or by a repetition after a crash.
const LATE_EVENT: u64 = 24 * 3600 * 1000;

/// Why cameras refuse a receipt that the site signed.
pub(crate) struct Outdated {
    pub(crate) reason: String,
    /// The signer's key, or an authority's, was in other hands: another person may have signed it.
    pub(crate) is_compromised: bool,
}

/// Verifies stored receipts; clones share the trust.
#[derive(Clone)]
pub(crate) struct Receipts {
    trust: TrustStore,
}

impl Receipts {
    pub(crate) const fn new(trust: TrustStore) -> Self {
        Self { trust }
    }

    /// Verifies the signature of a receipt, and that its signer was a receipt signer of the site.
    ///
    /// The path is validated at the time of signing. A time outside the certificate's validity is that of a wrong clock, and moved
    /// into it: see [`Self::outdated`]. Revocations do not count here, as a list that came later says nothing of the site's
    /// own former receipts.
    pub(crate) fn read(&self, stored: &[u8]) -> Result<VerifiedReceipt, ReceiptError> {
        receipt::verify(stored, |chain, signed| {
            let at = within(chain.leaf(), signed);
            let purpose = Purpose::ServiceSigner;
            let path = self
                .trust
                .validate_ignoring_revocation(chain.ders(), purpose, at);
            path.map(drop)
        })
    }

    /// Verifies a receipt that nothing but its signature confirms: its signer is not revoked either, unless it was superseded
    /// after it signed.
    pub(crate) fn read_unconfirmed(
        &self,
        stored: &[u8],
        now: OffsetDateTime,
    ) -> Result<VerifiedReceipt, ReceiptError> {
        receipt::verify(stored, |chain, signed| {
            let purpose = Purpose::ServiceSigner;
            let signer = self
                .trust
                .validate_signer(chain.ders(), purpose, signed, signed, now);
            signer.map(drop)
        })
    }

    /// Checks that a stored receipt is the site's and says of `known` what the log says.
    pub(crate) fn fits(&self, stored: &[u8], known: &Known) -> bool {
        match self.read(stored) {
            Ok(verified) => says(verified.receipt(), known),
            Err(error) => {
                let (block, error) = (known.block, Report(&error));
                tracing::warn!(%block, %error, "stored receipt is not one of this site");
                false
            }
        }
    }

    /// Says why cameras refuse a receipt of the site, or `None` if they accept it.
    pub(crate) fn outdated(&self, read: &VerifiedReceipt, now: OffsetDateTime) -> Option<Outdated> {
        let (chain, signed) = (read.signer_chain(), read.signing_time());
        let (start, end) = validity(chain.leaf());
        let purpose = Purpose::ServiceSigner;
        let at = within(chain.leaf(), signed);
        let path = self
            .trust
            .validate_ignoring_revocation(chain.ders(), purpose, at);
        let revoked = path.and_then(|path| self.trust.check_revoked(&path, now));
        let (reason, is_compromised) = match revoked {
            Err(PathError::Revoked { reason, .. }) => {
                use RevocationReason::{CaCompromise, KeyCompromise};
                let text = format!("the certificate that signed the receipt was revoked: {reason}");
                (text, matches!(reason, KeyCompromise | CaCompromise))
            }
            _ if signed < start || signed > end => {
                let text =
                    "the receipt was signed outside the validity of its signer's certificate";
                (text.to_owned(), false)
            }
            _ if signed > now + AHEAD => ("the receipt was signed in the future".to_owned(), false),
            _ => return None,
        };
        Some(Outdated {
            reason,
            is_compromised,
        })
    }

    /// Tells if cameras accept what `signer` signs now.
    pub(crate) fn is_usable(&self, signer: &Signer, now: OffsetDateTime) -> bool {
        let (chain, purpose) = (signer.chain.ders(), Purpose::ServiceSigner);
        self.trust.validate(chain, purpose, now).is_ok()
    }
}

/// Tells if a receipt says what the log says.
fn says(receipt: &Receipt, known: &Known) -> bool {
    let is_of_block = receipt.block_sha256 == known.block
        && receipt.size == known.size
        && *receipt.device == *known.device
        && is_time_of(millis(receipt.received_at), known);
    let says_verdict = match known.verdict {
        Verdict::Accepted => {
            receipt.verdict == Given::Accepted
                && receipt.manifest_sha256 == known.manifest
                && (known.sequence.is_none() || receipt.sequence == known.sequence)
                && receipt.log_index == known.log_index
        }
        // A rejected or kept block has the receipt that it had in quarantine.
        Verdict::Quarantined | Verdict::Kept | Verdict::Rejected => {
            receipt.verdict == Given::Quarantined
                && receipt.reason.as_deref() == Some(&*known.reason)
        }
    };
    is_of_block && says_verdict
}

/// Tells if a time of arrival is that of the log.
pub(crate) fn is_time_of(received_at: i64, known: &Known) -> bool {
    received_at.abs_diff(known.received_at) <= LATE_EVENT
}

fn validity(certificate: &pki::cert::Certificate) -> (OffsetDateTime, OffsetDateTime) {
    let validity = &certificate.tbs_certificate.validity;
    let (start, end) = (validity.not_before, validity.not_after);
    (start.to_system_time().into(), end.to_system_time().into())
}

/// The instant of the certificate's validity that is nearest to `at`.
fn within(certificate: &pki::cert::Certificate, at: OffsetDateTime) -> OffsetDateTime {
    let (start, end) = validity(certificate);
    at.min(end).max(start)
}
