//! What is to be done at an IKE SA, and when.

use crate::event::Reason;
use crate::time::Timestamp;

/// Something to be done when its turn comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Make a Child SA by its index in the configuration.
    CreateChild(usize),
    /// Make another Child SA with the traffic of those that have this index.
    CreateResource(usize),
    /// Replace the Child SA with this inbound SPI.
    RekeyChild(u32),
    /// Delete the Child SA with this inbound SPI.
    DeleteChild(u32, Reason),
    /// Delete at the peer what it made for this SPI of ours and we could not accept.
    DeleteUnaccepted(u32),
    /// Replace the IKE SA.
    RekeyIke,
    /// Close the IKE SA.
    DeleteIke(Reason),
    /// Tell the peer where we are.
    UpdateAddresses,
    /// See whether the peer receives at its new address.
    CheckPath,
    /// Tell the peer where else it can reach us.
    AnnounceAddresses,
    /// Tell the peer that it sends with this SPI, which we do not know.
    NotifyInvalidSpi(u32),
    /// Give the peer the token of an IKE SA whose SPIs it chose last.
    SendCrashToken,
    /// See whether the peer lives.
    Liveness,
    /// See whether the peer has this IKE SA, which takes the place of others.
    Confirm,
}

/// An intention, and when it may start.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(super) intent: Intent,
    pub(super) not_before: Timestamp,
}

impl Queued {
    pub(super) fn at_once(intent: Intent) -> Self {
        Self {
            intent,
            not_before: Timestamp::default(),
        }
    }
}
