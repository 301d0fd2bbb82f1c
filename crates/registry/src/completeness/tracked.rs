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
    pub(super) approvals: BTreeMap<String, Approved>,
    pub(super) carried_out: Option<CarriedOut>,
    /// The version that the last step made, and the approvals before it.
    pub(super) last: (u64, BTreeMap<String, Approved>),
}

/// What somebody approved, and the serial number of the certificate with which.
#[derive(Clone)]
pub(super) struct Approved {
    pub(super) act: Act,
    pub(super) serial: String,
}

impl Tracked {
    /// Number of the approvals of an act whose user id and serial number `stand`.
    pub(super) fn approvals_of(&self, act: &Act, stand: impl Fn(&str, &str) -> bool) -> usize {
        self.approvals
            .iter()
            .filter(|(uid, approved)| approved.act == *act && stand(uid, &approved.serial))
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

/// Identifier of an event's request.
pub(super) fn request_of(event: &Event) -> String {
    let id = event.resource.strip_prefix("request/");
    id.unwrap_or_default().to_owned()
}

/// Version of the request that an event's step makes.
pub(super) fn version_of(event: &Event) -> u64 {
    let version = event.details.get("version").and_then(Value::as_u64);
    version.unwrap_or_default()
}
