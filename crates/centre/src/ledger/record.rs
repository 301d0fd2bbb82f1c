//! A violation's custody record: its head, and a hash of everything in it.

use audit::{Event, Outcome};
use event_catalogue::context::{Block, Custody};
use event_catalogue::evidence::{Received, Reviewed};
use event_catalogue::{Details as _, Recorded as _};
use evidence::digest::Sha256Digest;

use crate::clock::millis;

/// State of a violation by its newest decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Open,
    Accepted,
    Rejected,
}

impl State {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }
}

/// An event of the record as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Milliseconds since the Unix epoch.
    pub(crate) at: i64,
    pub(crate) actor: String,
    pub(crate) action: String,
    pub(crate) log_index: u64,
    /// Missing in events of earlier versions.
    pub(crate) count: Option<u64>,
}

impl Step {
    pub(crate) fn of_receipt(log_index: u64, device: &str, at: i64) -> Self {
        Self {
            at,
            actor: device.to_owned(),
            action: Received::ACTION.to_owned(),
            log_index,
            count: Some(1),
        }
    }

    pub(crate) fn of(index: u64, event: &Event) -> Self {
        let actor = event.actor.name.as_ref().unwrap_or(&event.actor.id);
        let action = match event.outcome {
            Outcome::Deny => format!("{} refused", event.action),
            _ => event.action.clone(),
        };
        Self {
            at: match Received::is(event) {
                true => received_at(event),
                false => millis(event.at),
            },
            actor: actor.clone(),
            action,
            log_index: index,
            count: custody_count(event),
        }
    }
}

/// A decision as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    /// Milliseconds since the Unix epoch.
    pub(crate) at: i64,
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) decision: String,
    pub(crate) reason: String,
}

impl Decided {
    /// The decision that an event tells of, if it does.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let reviewed = Reviewed::from_event(event).filter(|_| event.outcome == Outcome::Ok)?;
        Some(Self {
            at: millis(event.at),
            uid: event.actor.id.clone(),
            name: event.actor.name.clone().unwrap_or_default(),
            decision: reviewed.decision,
            reason: event.reason.clone().unwrap_or_default(),
        })
    }

    fn state(&self) -> State {
        match self.decision.as_str() {
            "accepted" => State::Accepted,
            "rejected" => State::Rejected,
            _ => State::Open,
        }
    }
}

/// Bytes kept of a running hash. Our choice: it is compared with what an attacker without a way into the log prepares, who has to
/// meet a given value.
const HASH: usize = 16;

/// A hash of a list that grows, of steps or of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Running([u8; HASH]);

impl Running {
    /// The time is left out of the first step, which earlier versions of the index have more exactly than the log.
    pub(crate) fn add_step(&mut self, step: &Step, is_first: bool) {
        let at = if is_first { 0 } else { step.at };
        let numbers = [at.to_be_bytes(), step.log_index.to_be_bytes()].concat();
        self.add(&[&numbers, step.actor.as_bytes(), step.action.as_bytes()]);
    }

    pub(crate) fn add_decision(&mut self, one: &Decided) {
        self.add(&[
            &one.at.to_be_bytes(),
            one.uid.as_bytes(),
            one.name.as_bytes(),
            one.decision.as_bytes(),
            one.reason.as_bytes(),
        ]);
    }

    fn add(&mut self, parts: &[&[u8]]) {
        let mut bytes = self.0.to_vec();
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        let hash = Sha256Digest::of(&bytes);
        for (to, from) in self.0.iter_mut().zip(hash.as_bytes()) {
            *to = *from;
        }
    }
}

/// What the log fixes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    /// Index of the newest event.
    pub(crate) log_index: u64,
    /// Events.
    pub(crate) count: u64,
    /// The newest event has a number.
    pub(crate) is_numbered: bool,
    pub(crate) state: State,
    /// Time of the decision that made the state.
    decided_at: i64,
    pub(crate) steps: Running,
    pub(crate) decisions: Running,
}

#[derive(Debug)]
pub(super) struct Record {
    head: RecordHead,
    /// The head before the newest event, whose place another copy of it may take.
    before: Option<Box<RecordHead>>,
    /// It begins with a receipt whose event was lost, and has no event yet.
    is_adopted: bool,
}

/// How an event continues a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continues {
    /// It is the next one.
    Next,
    /// It takes the place of the newest one.
    Again,
    /// It does not.
    Not,
}

impl Record {
    /// The record that begins with an event of receipt.
    pub(super) fn begin(index: u64, event: &Event) -> Self {
        let mut steps = Running::default();
        steps.add_step(&Step::of(index, event), true);
        Self {
            head: RecordHead {
                log_index: index,
                count: 1,
                is_numbered: custody_count(event).is_some(),
                state: State::Open,
                decided_at: i64::MIN,
                steps,
                decisions: Running::default(),
            },
            before: None,
            is_adopted: false,
        }
    }

    /// The record that begins with a receipt whose event was lost. The first event says which came before, as after those of
    /// earlier versions.
    pub(super) fn adopted(index: u64, device: &str, received_at: i64) -> Self {
        let mut steps = Running::default();
        steps.add_step(&Step::of_receipt(index, device, received_at), true);
        Self {
            head: RecordHead {
                log_index: index,
                count: 1,
                is_numbered: false,
                state: State::Open,
                decided_at: i64::MIN,
                steps,
                decisions: Running::default(),
            },
            before: None,
            is_adopted: true,
        }
    }

    /// Tells if the log's entry `index` was added, or is older than the record.
    pub(super) const fn has(&self, index: u64) -> bool {
        !self.is_adopted && index <= self.head.log_index
    }

    pub(super) const fn head(&self) -> RecordHead {
        self.head
    }

    /// Adds an event; false if it does not belong to the record.
    pub(super) fn add(&mut self, index: u64, event: &Event) -> bool {
        match self.continues(event) {
            Continues::Next => self.before = Some(Box::new(self.head)),
            Continues::Again => {
                if let Some(before) = &self.before {
                    self.head = **before;
                }
            }
            Continues::Not => return false,
        }
        self.is_adopted = false;
        let head = &mut self.head;
        head.log_index = index;
        head.is_numbered = custody_count(event).is_some();
        head.count = custody_count(event).unwrap_or(head.count.saturating_add(1));
        head.steps.add_step(&Step::of(index, event), false);
        if let Some(decided) = Decided::of(event) {
            head.decisions.add_decision(&decided);
            // By time, as the index counts: a clock that went back makes no older decision of a newer one.
            if decided.at >= head.decided_at {
                head.state = decided.state();
                head.decided_at = decided.at;
            }
        }
        true
    }

    /// How `event` continues the record.
    pub(super) fn continues(&self, event: &Event) -> Continues {
        let Some(custody) = Custody::of(event) else {
            return Continues::Not;
        };
        let follows = |head: &RecordHead, count: u64| {
            let is_next = count == head.count.saturating_add(1);
            // The first one with a number names those of earlier versions, and counts only what was in their index.
            let is_numbered = head.is_numbered && is_next;
            custody.previous == Some(head.log_index)
                && (is_numbered || custody.earlier_sha256.is_some())
        };
        match custody.count {
            None => Continues::Next,
            Some(count) if follows(&self.head, count) => Continues::Next,
            Some(count) => match &self.before {
                Some(before) if follows(before, count) => Continues::Again,
                _ => Continues::Not,
            },
        }
    }
}

/// Arrival of an event's block, in milliseconds since the Unix epoch.
pub(super) fn received_at(event: &Event) -> i64 {
    let at = Block::of(event).and_then(|block| block.received_at);
    at.unwrap_or_else(|| millis(event.at))
}

fn custody_count(event: &Event) -> Option<u64> {
    Custody::of(event)?.count
}
