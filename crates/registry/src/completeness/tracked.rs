//! Requests by their events.

use std::collections::BTreeMap;

use approval::Act;
use audit::Event;
use audit::rows::TRANSACTION;
use serde_json::Value;
use time::OffsetDateTime;

/// A request by its events.
#[derive(Default)]
pub(super) struct Tracked {
    pub(super) approvals: BTreeMap<String, Act>,
    pub(super) carried_out: Option<CarriedOut>,
    /// The version that the last step made, and the approvals before it.
    pub(super) last: (u64, BTreeMap<String, Act>),
}

impl Tracked {
    pub(super) fn approvals_of(&self, act: &Act) -> usize {
        self.approvals
            .values()
            .filter(|other| *other == act)
            .count()
    }
}

pub(super) struct CarriedOut {
    pub(super) entry: u64,
    pub(super) version: u64,
    pub(super) act: Act,
    pub(super) result: String,
    pub(super) at: OffsetDateTime,
    pub(super) enough: bool,
}

/// An archived key.
pub(super) struct Archived {
    pub(super) entry: u64,
    pub(super) transaction: u64,
    /// Of the message that it is in.
    pub(super) digest: String,
    /// It was found in the registry's book, as it is or another one.
    pub(super) in_book: bool,
}

/// The registry's transaction that an event was recorded with; 0 where it names none.
pub(super) fn transaction_of(event: &Event) -> u64 {
    let number = event.details.get(TRANSACTION).and_then(Value::as_u64);
    number.unwrap_or_default()
}
