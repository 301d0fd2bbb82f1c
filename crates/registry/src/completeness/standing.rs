//! States of holders by their events, compared with the registry's book.

use std::collections::{BTreeMap, BTreeSet};

use audit::Event;
use event_catalogue::Recorded as _;
use event_catalogue::registry::{HolderChange, HolderChanged};
use pki::profile::CaKind;

use super::tracked::transaction_of;
use crate::holders::HolderState;

/// Authority and name.
type Holder = (String, String);

/// A state as one event leaves it.
#[derive(Clone)]
struct Seen {
    transaction: u64,
    entry: u64,
    /// By orders.
    state: String,
    /// The directory has the person disabled.
    is_disabled: bool,
}

/// States of holders; see the [module](self).
#[derive(Default)]
pub(super) struct Standings {
    seen: BTreeMap<Holder, Vec<Seen>>,
    /// Those that the book has.
    in_book: BTreeSet<Holder>,
    /// A part of the log was lost: what is in no event may have been there.
    is_lost: bool,
}

impl Standings {
    /// Takes an event; false if it is about no holder's state.
    pub(super) fn changed(&mut self, entry: u64, event: &Event) -> bool {
        let Some(changed) = HolderChanged::from_event(event) else {
            return false;
        };
        let Some((noun, name)) = event.resource.split_once('/') else {
            return false;
        };
        let authority = match noun {
            "person" => CaKind::Users,
            "device" => CaKind::Devices,
            _ => CaKind::Services,
        };
        let states = self
            .seen
            .entry((authority.name().to_owned(), name.to_owned()));
        let states = states.or_default();
        let last = states.last();
        let was_disabled = last.is_some_and(|last| last.is_disabled);
        let (state, is_disabled) = match changed.kind {
            HolderChange::PersonHold | HolderChange::PersonRelease => {
                // A person who got a certificate is enrolled, and no event of a state says so.
                let ordered = last.map_or(HolderState::Enrolled.name(), |last| &last.state);
                (ordered.to_owned(), changed.kind == HolderChange::PersonHold)
            }
            _ => (changed.new, was_disabled),
        };
        states.push(Seen {
            transaction: transaction_of(event),
            entry,
            state,
            is_disabled,
        });
        true
    }

    /// Tells whether a holder is enrolled by the events so far.
    pub(super) fn is_enrolled(&self, authority: &str, holder: &str) -> bool {
        let states = self.seen.get(&(authority.to_owned(), holder.to_owned()));
        states
            .and_then(|states| states.last())
            .is_none_or(|last| last.state == HolderState::Enrolled.name() && !last.is_disabled)
    }

    /// Transactions after `committed` had no effect.
    pub(super) fn opened(&mut self, committed: u64) {
        for states in self.seen.values_mut() {
            states.retain(|seen| seen.transaction <= committed);
        }
        self.seen.retain(|_, states| !states.is_empty());
    }

    /// The database counts from here on, not the log before it.
    pub(super) fn opened_anew(&mut self) {
        self.seen.clear();
        self.is_lost = true;
    }

    /// Compares a row of the book; gives the event that it contradicts, if there is one, and how.
    pub(super) fn compare(
        &mut self,
        (authority, holder): (&str, &str),
        state: &str,
        is_disabled: bool,
    ) -> Option<(Option<u64>, String)> {
        let key = (authority.to_owned(), holder.to_owned());
        let seen = self.seen.get(&key).and_then(|states| states.last());
        let found = shown(state, is_disabled);
        let gap = match seen {
            Some(seen) if seen.state == state && seen.is_disabled == is_disabled => None,
            Some(seen) => Some((Some(seen.entry), shown(&seen.state, seen.is_disabled))),
            None if self.is_lost => None,
            // Versions before this one took holders for revoked whose certificates were, without an event.
            None if [HolderState::Enrolled, HolderState::Revoked]
                .iter()
                .any(|known| known.name() == state)
                && !is_disabled =>
            {
                None
            }
            None => Some((None, HolderState::Enrolled.name().to_owned())),
        };
        self.in_book.insert(key);
        let what =
            |log| format!("{holder} is {found} in the registry's book, and {log} by the log");
        gap.map(|(entry, log)| (entry, what(log)))
    }

    /// Holders with an event that the book lacks.
    pub(super) fn missing(&self) -> impl Iterator<Item = (u64, String)> {
        let missing = self.seen.iter();
        let missing = missing.filter(|(holder, _)| !self.in_book.contains(*holder));
        missing.filter_map(|((_, name), states)| {
            let last = states.last()?;
            let state = shown(&last.state, last.is_disabled);
            let what = format!("{name} is {state} by the log, and not in the registry's book");
            Some((last.entry, what))
        })
    }
}

fn shown(state: &str, is_disabled: bool) -> String {
    match is_disabled {
        true => format!("{state} (disabled in the directory)"),
        false => state.to_owned(),
    }
}
