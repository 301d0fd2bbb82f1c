//! A list that was verified.

use time::OffsetDateTime;

use super::revocation::{Revocation, RevocationReason};
use super::scope::CrlScope;
use crate::issuer_id::{AnchorId, IssuerId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedEntry {
    /// Serial number, unsigned big-endian.
    pub serial: Vec<u8>,
    pub revocation: Revocation,
}

/// A CRL whose signature and dates have been checked.
#[derive(Clone, Debug)]
pub struct VerifiedCrl {
    pub issuer: IssuerId,
    pub window: CrlWindow,
    pub entries: Vec<RevokedEntry>,
    /// Which certificates it speaks for.
    pub scope: CrlScope,
    /// Of a delta CRL, the number of the complete one from which on it counts.
    pub(crate) base: Option<Vec<u8>>,
    /// Serial numbers that a delta CRL takes from hold.
    pub(crate) released: Vec<Vec<u8>>,
    /// The path of the signer's certificate, if this crate established it.
    pub(crate) signer: Option<CrlSigner>,
}

impl VerifiedCrl {
    /// The same list without the certificates that are on hold.
    pub(crate) fn without_holds(mut self) -> Self {
        let is_hold =
            |entry: &RevokedEntry| entry.revocation.reason == RevocationReason::CertificateHold;
        self.entries.retain(|entry| !is_hold(entry));
        self
    }

    /// Whether it speaks for all certificates of its issuer, and needs no other CRL for that.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is_delta() && self.scope.is_complete()
    }

    /// Whether it only adds to a complete CRL.
    #[must_use]
    pub const fn is_delta(&self) -> bool {
        self.base.is_some()
    }
}

/// What is known about the newest CRL of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlWindow {
    /// CRL number, unsigned big-endian without leading zeros.
    pub number: Vec<u8>,
    /// When it was issued.
    pub this_update: OffsetDateTime,
    /// When the next one is due; after that instant this one is stale.
    pub next_update: OffsetDateTime,
}

/// Who signed a CRL: what must still hold for the CRL to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrlSigner {
    /// The anchor of its path.
    pub(crate) anchor: AnchorId,
    /// Issuer and serial number of every certificate of its path below the anchor.
    pub(crate) path: Vec<(IssuerId, Vec<u8>)>,
}
