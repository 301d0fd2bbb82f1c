//! Description of an event, for documentation and checks.

use audit::{Event, Outcome};

use crate::detail::Kind;
use crate::ocsf::Activity;

/// A part of Cordon and its events.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub name: &'static str,
    pub about: &'static str,
    pub events: &'static [&'static [Entry]],
}

/// One event: an action with the outcomes that it can have.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub action: &'static str,
    /// Lines of documentation.
    pub about: &'static [&'static str],
    /// Beginnings of the object's name, or the whole name if it does not end with `/`.
    pub objects: &'static [&'static str],
    pub outcomes: &'static [Outcome],
    pub severity: Severity,
    pub ocsf: Activity,
    pub fields: &'static [Field],
    /// Details that other parts add.
    pub contexts: &'static [Context],
    pub(crate) rewrite: fn(&Event, Event) -> Option<Event>,
}

/// A detail of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in `details`.
    pub key: &'static str,
    pub kind: Kind,
    /// It may be absent, or earlier versions did not write it.
    pub is_optional: bool,
    /// It is about a person. Version 2 of the encoding can erase it; see `docs/formats.md`.
    pub is_personal: bool,
    /// Lines of documentation.
    pub about: &'static [&'static str],
}

/// Details that several events share.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub fields: &'static [Field],
    pub(crate) rewrite: fn(&Event, Event) -> Option<Event>,
}

/// Attention that an event needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Ordinary operation.
    Routine,
    /// A change of rights, keys or rules, or a refusal: a reviewer reads it.
    Review,
    /// Damage, loss or contradiction: an administrator acts.
    Alert,
}

impl Severity {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Routine => "routine",
            Self::Review => "review",
            Self::Alert => "alert",
        }
    }

    /// The `severity_id` of OCSF: informational, low, high.
    #[must_use]
    pub const fn ocsf(self) -> u32 {
        match self {
            Self::Routine => 1,
            Self::Review => 2,
            Self::Alert => 4,
        }
    }
}

impl Entry {
    /// All fields, those of contexts included.
    pub fn all_fields(&self) -> impl Iterator<Item = &'static Field> {
        let contexts = self.contexts.iter().flat_map(|context| context.fields);
        self.fields.iter().chain(contexts)
    }

    /// Reads the details of `event` by type and writes them again into an event with the same head. `None` if a detail that
    /// must be there is missing. What the catalogue does not describe is absent in the result.
    #[must_use]
    pub fn rewritten(&self, event: &Event) -> Option<Event> {
        let mut head = event.clone();
        head.details.clear();
        let typed = (self.rewrite)(event, head);
        self.contexts
            .iter()
            .fold(typed, |written, context| (context.rewrite)(event, written?))
    }

    /// Tells whether the catalogue describes all of `event`.
    #[must_use]
    pub fn describes(&self, event: &Event) -> bool {
        let mut objects = self.objects.iter();
        self.action == event.action
            && self.outcomes.contains(&event.outcome)
            && objects.any(|object| match object.ends_with('/') {
                true => event.resource.starts_with(object),
                false => event.resource == *object,
            })
            && self.rewritten(event).as_ref() == Some(event)
    }
}
