//! Alarms: raised by the host, closed by people. Both are events of the host's own log, from which a start reads them.

use std::collections::BTreeMap;

use audit::{Actor, AuditError, AuditSink, Event};
use event_catalogue::audit_host::{AlarmClosed, AlarmRaised};
use event_catalogue::{Recorded as _, action_text};
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
    /// `silent`, `set-back`, `forked`, or the action of the event that raised it.
    pub kind: String,
    pub about: String,
    /// Number of the event in the source's log, if an event raised the alarm.
    pub entry: Option<u64>,
    /// How often the same happened at this source while the alarm was open; counted since the host was started.
    pub repeated: u64,
    /// None while it is open.
    pub closed: Option<Closed>,
}

/// Who closed an alarm.
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

/// All alarms, by number.
#[derive(Default)]
pub(crate) struct Alarms {
    all: BTreeMap<u64, Alarm>,
}

impl Alarms {
    /// Reads them from the host's own log.
    pub(crate) fn read(sink: &dyn AuditSink) -> Result<Self, AuditError> {
        let mut alarms = Self::default();
        let texts = [AlarmRaised::ACTION, AlarmClosed::ACTION].map(action_text);
        let wanted = |text: &str| texts.iter().any(|action| text.contains(action));
        sink.read_on(0, &wanted, &mut |logged| {
            if logged.is_own {
                alarms.replay(logged.index, &logged.event);
            }
        })?;
        Ok(alarms)
    }

    fn replay(&mut self, index: u64, event: &Event) {
        if let Some(raised) = AlarmRaised::from_event(event) {
            let source = event.resource.strip_prefix("source/").unwrap_or_default();
            self.all
                .insert(index, open(index, event.at, source, &raised));
        }
        if let Some(AlarmClosed { alarm }) = AlarmClosed::from_event(event)
            && let Some(alarm) = self.all.get_mut(&alarm)
        {
            alarm.closed = Some(closed(event));
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
        let is_same = |open: &&mut Alarm| {
            open.closed.is_none() && open.source == source && open.kind == alarm.kind
        };
        if let Some(open) = self.all.values_mut().rev().find(is_same) {
            open.repeated = open.repeated.saturating_add(1);
            return Ok(());
        }
        let actor = Actor::service(crate::ROLE);
        let event = alarm
            .clone()
            .into_event(at, actor, format!("source/{source}"));
        // As the log has it, to the millisecond.
        let at = event.at;
        let number = sink.record(event)?.leaf_index;
        tracing::error!(
            alarm = number,
            source,
            kind = alarm.kind,
            about = alarm.about,
            "alarm"
        );
        self.all.insert(number, open(number, at, source, &alarm));
        Ok(())
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
        let event = AlarmClosed { alarm: number }
            .into_event(at, actor, format!("alarm/{number}"))
            .with_reason(reason.trim());
        sink.record(event.clone())?;
        alarm.closed = Some(closed(&event));
        Ok(alarm.clone())
    }

    /// The largest number of a source's event that raised an alarm.
    pub(crate) fn newest_entry(&self, source: &str) -> Option<u64> {
        let of_source = self.all.values().filter(|alarm| alarm.source == source);
        of_source.filter_map(|alarm| alarm.entry).max()
    }

    /// All of them, the newest first.
    pub(crate) fn all(&self) -> Vec<Alarm> {
        self.all.values().rev().cloned().collect()
    }

    /// Number of those that are open.
    pub(crate) fn open(&self) -> usize {
        let open = |alarm: &&Alarm| alarm.closed.is_none();
        self.all.values().filter(open).count()
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
