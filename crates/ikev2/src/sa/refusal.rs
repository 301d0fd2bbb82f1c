//! Refusals of what the peer asks for: plain data.

use crate::event::Reason;
use crate::wire::{Notify, NotifyType};

/// Reason for which a Child SA is refused, on the wire and for people.
pub(crate) struct Refusal {
    pub(crate) notify: Notify,
    pub(crate) reason: Box<Reason>,
}

impl Refusal {
    pub(crate) fn new(kind: NotifyType, reason: Reason) -> Self {
        Self {
            notify: Notify::new(kind),
            reason: Box::new(reason),
        }
    }

    /// The notification that tells the peer of what it may not have.
    pub(crate) fn of(reason: Reason) -> Self {
        let kind = match reason {
            Reason::Limit => NotifyType::NO_ADDITIONAL_SAS,
            _ => NotifyType::TS_UNACCEPTABLE,
        };
        Self::new(kind, reason)
    }
}
