//! Alarms: raised by the host, closed by people. Both are events of the host's own log, from which a start reads them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use audit::{Actor, AuditError, AuditSink, Event};
use event_catalogue::Recorded as _;
use event_catalogue::audit_host::{AlarmClosed, AlarmRaised, AlarmRepeated};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Characters of a reason at least, so that it says something (our choice).
const SHORTEST_REASON: usize = 4;
/// Characters of a reason at most (our choice).
const LONGEST_REASON: usize = 2000;

/// Something that a person has to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Index of its event in the host's own log.
    pub number: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Name of the source.
    pub source: String,
    /// One of those about sources, such as `silent`, or the action of the event that raised it.
    pub kind: String,
    pub about: String,
    /// Number of the event in the source's log, if an event raised the alarm.
    pub entry: Option<u64>,
    /// Number of repetitions at this source while the alarm was open. Recorded once a minute and with the alarm's end.
    pub repeated: u64,
    /// Text of the last repetition, if there was one.
    pub latest: Option<String>,
    /// None while it is open.
    pub closed: Option<Closed>,
}

/// The end of an alarm: the person who closed it, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub by: String,
    pub reason: String,
}

/// Why an alarm is not closed.
#[derive(Debug, thiserror::Error)]
pub enum AlarmError {
    #[error("there is no alarm {0}")]
    Unknown(u64),
    #[error("alarm {number} is closed already, by {by}")]
    Closed { number: u64, by: String },
    #[error("the reason has {found} characters; it needs {SHORTEST_REASON} to {LONGEST_REASON}")]
    Reason { found: usize },
    #[error("the alarm's end is not recorded")]
    Audit(#[from] AuditError),
}

/// Kinds of alarms that are about a source itself; `/healthz` names them first.
pub(crate) const OF_SOURCES: [&str; 6] = [
    "forked",
    "set-back",
    "foreign-checkpoint",
    "mirror",
    "silent",
    "stalled",
];

/// Interval between two records of how often an open alarm was repeated.
const REPEATS: Duration = Duration::from_secs(60);

/// All alarms, by number.
#[derive(Default)]
pub(crate) struct Alarms {
    all: BTreeMap<u64, Alarm>,
    /// Numbers of those that are open, by source and kind.
    open: BTreeMap<(String, String), u64>,
    /// For each source the largest number of an event that raised or repeated an alarm.
    newest: BTreeMap<String, u64>,
    /// When a repetition was recorded last.
    repeats: BTreeMap<u64, Instant>,
    /// Alarms that could not be recorded yet, with their source.
    waiting: Vec<(String, AlarmRaised, OffsetDateTime)>,
}

impl Alarms {
    /// Takes one event of the host's own log over; the events come in their order.
    pub(crate) fn replay(&mut self, index: u64, event: &Event) {
        if let Some(raised) = AlarmRaised::from_event(event) {
            let source = event.resource.strip_prefix("source/").unwrap_or_default();
            self.insert(open(index, event.at, source, &raised));
        }
        if let Some(again) = AlarmRepeated::from_event(event)
            && let Some(alarm) = self.all.get_mut(&again.alarm)
        {
            alarm.repeated = again.repeated;
            alarm.latest = Some(again.about);
            let source = alarm.source.clone();
            self.note_entry(&source, again.entry);
        }
        if let Some(ended) = AlarmClosed::from_event(event)
            && let Some(alarm) = self.all.get_mut(&ended.alarm)
        {
            alarm.repeated = ended.repeated.unwrap_or_default();
            alarm.closed = Some(closed(event));
            self.open
                .remove(&(alarm.source.clone(), alarm.kind.clone()));
        }
    }

    fn insert(&mut self, alarm: Alarm) {
        self.note_entry(&alarm.source.clone(), alarm.entry);
        let key = (alarm.source.clone(), alarm.kind.clone());
        self.open.insert(key, alarm.number);
        self.all.insert(alarm.number, alarm);
    }

    fn note_entry(&mut self, source: &str, entry: Option<u64>) {
        if let Some(entry) = entry {
            let newest = self.newest.entry(source.to_owned()).or_default();
            *newest = entry.max(*newest);
        }
    }

    /// Raises an alarm, unless the same one is open at this source: then that counts it.
    pub(crate) fn raise(
        &mut self,
        sink: &dyn AuditSink,
        source: &str,
        alarm: AlarmRaised,
        at: OffsetDateTime,
    ) -> Result<(), AuditError> {
        let key = (source.to_owned(), alarm.kind.clone());
        if let Some(number) = self.open.get(&key).copied() {
            return self.repeat(sink, number, alarm, at);
        }
        let actor = Actor::service(crate::ROLE);
        let event = alarm.into_event(at, actor, format!("source/{source}"));
        let number = sink.record(event.clone())?.leaf_index;
        // As the log has it: to the millisecond, and with text of others escaped.
        let raised = AlarmRaised::from_event(&event).unwrap_or_default();
        let (kind, about) = (&raised.kind, &raised.about);
        tracing::error!(alarm = number, source, kind, about, "alarm");
        self.insert(open(number, event.at, source, &raised));
        Ok(())
    }

    fn repeat(
        &mut self,
        sink: &dyn AuditSink,
        number: u64,
        again: AlarmRaised,
        at: OffsetDateTime,
    ) -> Result<(), AuditError> {
        let Some(alarm) = self.all.get_mut(&number) else {
            return Ok(());
        };
        alarm.repeated = alarm.repeated.saturating_add(1);
        let event = AlarmRepeated {
            alarm: number,
            repeated: alarm.repeated,
            about: again.about,
            entry: again.entry,
        };
        let actor = Actor::service(crate::ROLE);
        let event = event.into_event(at, actor, format!("alarm/{number}"));
        alarm.latest = AlarmRepeated::from_event(&event).map(|again| again.about);
        let source = alarm.source.clone();
        let is_due = |last: &Instant| last.elapsed() >= REPEATS;
        if self.repeats.get(&number).is_none_or(is_due) {
            sink.record(event)?;
            self.repeats.insert(number, Instant::now());
        }
        self.note_entry(&source, again.entry);
        Ok(())
    }

    /// Raises an alarm that must not be lost: where it cannot be recorded, it waits for [`Self::record_waiting`].
    pub(crate) fn raise_surely(
        &mut self,
        sink: &dyn AuditSink,
        source: &str,
        alarm: AlarmRaised,
        at: OffsetDateTime,
    ) {
        if let Err(error) = self.raise(sink, source, alarm.clone(), at) {
            tracing::error!(source, kind = alarm.kind, %error, "an alarm is not recorded yet");
            let is_same = |(of, other, _): &(String, AlarmRaised, _)| {
                of == source && other.kind == alarm.kind
            };
            if !self.waiting.iter().any(is_same) {
                self.waiting.push((source.to_owned(), alarm, at));
            }
        }
    }

    /// Records alarms that had to wait.
    pub(crate) fn record_waiting(&mut self, sink: &dyn AuditSink) {
        for (source, alarm, at) in std::mem::take(&mut self.waiting) {
            self.raise_surely(sink, &source, alarm, at);
        }
    }

    /// Closes an alarm.
    pub(crate) fn close(
        &mut self,
        sink: &dyn AuditSink,
        number: u64,
        reason: &str,
        actor: Actor,
        at: OffsetDateTime,
    ) -> Result<Alarm, AlarmError> {
        let alarm = self
            .all
            .get_mut(&number)
            .ok_or(AlarmError::Unknown(number))?;
        if let Some(closed) = &alarm.closed {
            let by = closed.by.clone();
            return Err(AlarmError::Closed { number, by });
        }
        let found = reason.trim().chars().count();
        if !(SHORTEST_REASON..=LONGEST_REASON).contains(&found) {
            return Err(AlarmError::Reason { found });
        }
        let repeated = (alarm.repeated > 0).then_some(alarm.repeated);
        let event = AlarmClosed {
            alarm: number,
            repeated,
        }
        .into_event(at, actor, format!("alarm/{number}"))
        .with_reason(reason.trim());
        sink.record(event.clone())?;
        alarm.closed = Some(closed(&event));
        self.open
            .remove(&(alarm.source.clone(), alarm.kind.clone()));
        self.repeats.remove(&number);
        Ok(alarm.clone())
    }

    /// The largest number of a source's event that raised or repeated an alarm.
    pub(crate) fn newest_entry(&self, source: &str) -> Option<u64> {
        self.newest.get(source).copied()
    }

    /// All of them, the newest first.
    pub(crate) fn all(&self) -> Vec<Alarm> {
        self.all.values().rev().cloned().collect()
    }

    /// Those that are open: about sources first, then the newest.
    pub(crate) fn open(&self) -> Vec<&Alarm> {
        let open = self.open.values().filter_map(|number| self.all.get(number));
        let mut open: Vec<&Alarm> = open.collect();
        open.sort_by_key(|alarm| {
            let is_of_source = OF_SOURCES.contains(&alarm.kind.as_str());
            (!is_of_source, std::cmp::Reverse(alarm.number))
        });
        open
    }

    /// Source, kind and text of those that could not be recorded yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&str, &AlarmRaised)> {
        let waiting = self.waiting.iter();
        waiting.map(|(source, alarm, _)| (source.as_str(), alarm))
    }
}

fn open(number: u64, at: OffsetDateTime, source: &str, raised: &AlarmRaised) -> Alarm {
    Alarm {
        number,
        at,
        source: source.to_owned(),
        kind: raised.kind.clone(),
        about: raised.about.clone(),
        entry: raised.entry,
        repeated: 0,
        latest: None,
        closed: None,
    }
}

fn closed(event: &Event) -> Closed {
    let name = event.actor.name.as_deref().filter(|name| !name.is_empty());
    let by = match name {
        Some(name) => format!("{} ({name})", event.actor.id),
        None => event.actor.id.clone(),
    };
    Closed {
        at: event.at,
        by,
        reason: event.reason.clone().unwrap_or_default(),
    }
}
