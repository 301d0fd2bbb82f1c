//! Every event of the audit log as a type.
//!
//! A writer fills a struct and calls [`Recorded::into_event`]; a reader calls [`Recorded::from_event`]. Both use the same names
//! of actions and details, which exist only here. The rendered bytes are version 1 of the log's encoding: the names and forms of
//! recorded events never change, and a field that earlier versions did not write is an `Option`.
//!
//! What surrounds an event in several places (the address of a client, the custody record, the transaction of the registry) is
//! a [`Details`] of its own, in [`context`].
//!
//! [`SUBJECTS`] lists all events with their documentation; `docs/events.md` is made from it.
//!
//! This crate does not record anything and does not interpret values: a state or a reason is text here.
#![forbid(unsafe_code)]

pub mod audit_host;
pub mod camera;
pub mod context;
pub mod decision;
pub mod detail;
pub mod directory;
mod entry;
pub mod evidence;
mod macros;
pub mod ocsf;
pub mod registry;
pub mod request;
pub mod service;
pub mod site;
pub mod tunnel;

use audit::{Actor, Event, Outcome};
use time::OffsetDateTime;

pub use entry::{Context, Entry, Field, Severity, Subject};

/// All events, by subject.
pub static SUBJECTS: &[Subject] = &[
    decision::SUBJECT,
    evidence::SUBJECT,
    camera::SUBJECT,
    registry::SUBJECT,
    request::SUBJECT,
    directory::SUBJECT,
    service::SUBJECT,
    site::SUBJECT,
    tunnel::SUBJECT,
    audit_host::SUBJECT,
];

/// All entries of the catalogue.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    SUBJECTS
        .iter()
        .flat_map(|subject| subject.events)
        .flat_map(|entries| entries.iter())
}

/// The entry that describes `event`; `None` if the catalogue has none for its action and outcome.
#[must_use]
pub fn entry_of(event: &Event) -> Option<&'static Entry> {
    entries().find(|entry| entry.action == event.action && entry.outcomes.contains(&event.outcome))
}

/// The text that a canonical event with this action contains. Canonical JSON has one spelling, so a reader that looks for it misses
/// no event.
#[must_use]
pub fn action_text(action: &str) -> String {
    format!("\"action\":\"{action}\"")
}

/// Details that several events share.
pub trait Details: Sized {
    const FIELDS: &'static [Field];

    /// Adds the details to `event`.
    #[must_use]
    fn add_to(self, event: Event) -> Event;

    /// Reads the details; `None` if one that must be there is missing or of another type.
    fn of(event: &Event) -> Option<Self>;
}

/// One event, or several with the same fields.
pub trait Recorded: Sized {
    const ENTRIES: &'static [Entry];
    const FIELDS: &'static [Field];
    /// Outcome of [`Self::into_event`].
    const OUTCOME: Outcome;

    fn action(&self) -> &'static str;

    /// Adds the details to `event`.
    #[must_use]
    fn add_to(self, event: Event) -> Event;

    /// Reads an event of this type, whatever its outcome is; `None` if it is another one, or a detail that must be there is
    /// missing or of another type.
    fn from_event(event: &Event) -> Option<Self>;

    /// The event of `actor` about `object` with the outcome [`Self::OUTCOME`].
    fn into_event(self, at: OffsetDateTime, actor: Actor, object: impl Into<String>) -> Event {
        self.ended(Self::OUTCOME, at, actor, object)
    }

    /// The event with an outcome of its own.
    fn ended(
        self,
        outcome: Outcome,
        at: OffsetDateTime,
        actor: Actor,
        object: impl Into<String>,
    ) -> Event {
        let event = Event::new(at, actor, self.action(), object, outcome);
        self.add_to(event)
    }

    /// Turns the event of a permission into this event: who, what, why and the details stay.
    #[must_use]
    fn by_permission(self, mut permission: Event) -> Event {
        self.action().clone_into(&mut permission.action);
        self.add_to(permission)
    }

    /// Tells whether the action of `event` is one of this type.
    fn is(event: &Event) -> bool {
        Self::ENTRIES
            .iter()
            .any(|entry| entry.action == event.action)
    }
}
