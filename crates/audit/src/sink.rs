//! Where services hand in their events.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use crate::event::{Event, EventError};
use crate::hash::Hash;
use crate::journal::JournalError;
use crate::leaf::{Leaf, chain_hash};
use crate::log::LogError;
use crate::log::merkle::leaf_hash;

/// Place of an event in the central log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Index in the log, from 0.
    pub leaf_index: u64,
    /// RFC 6962 hash of the leaf.
    pub leaf_hash: Hash,
}

/// Takes events and makes them durable.
///
/// Services depend on this trait only. Calls block for a disk sync: from async code, call them
/// on a thread meant for blocking work.
pub trait AuditSink: Send + Sync {
    /// Records `events` in order; all are durable on return.
    ///
    /// # Errors
    /// [`AuditError`]; the caller must then refuse the action that the events describe. An event
    /// whose recording failed may still appear in the log later.
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError>;

    /// Records one event; durable on return.
    ///
    /// # Errors
    /// As [`Self::record_all`].
    fn record(&self, event: Event) -> Result<Recorded, AuditError> {
        let recorded = self.record_all(vec![event])?;
        recorded.into_iter().next().ok_or(AuditError::Stopped)
    }

    /// Reads an event that was recorded by this sink's role; `None` if there is none of this index.
    ///
    /// # Errors
    /// [`AuditError::NotKept`] of a sink that cannot be read, and failures of reading.
    fn event(&self, leaf_index: u64) -> Result<Option<Event>, AuditError> {
        Err(AuditError::NotKept(leaf_index))
    }

    /// Goes back through the log, all roles' entries, newest first: of those whose canonical JSON `wanted` accepts, `each`
    /// gets the event, until it breaks. Canonical JSON has one spelling, so that a look for a part of it misses nothing.
    ///
    /// # Errors
    /// [`AuditError::Unreadable`] of a sink that cannot be read, and failures of reading.
    fn look_back(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        let _ = (wanted, each);
        Err(AuditError::Unreadable)
    }

    /// Reads the log forwards from entry `from`, all roles' entries: of those whose canonical JSON `wanted` accepts, `each`
    /// gets the event. Whatever it gives is checked against the signed root, as by [`Self::look_back`]. Returns the number
    /// of entries that the log had.
    ///
    /// # Errors
    /// As [`Self::look_back`].
    fn read_on(
        &self,
        from: u64,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged),
    ) -> Result<u64, AuditError> {
        let _ = (from, wanted, each);
        Err(AuditError::Unreadable)
    }
}

/// An event of the log, found by [`AuditSink::look_back`] or [`AuditSink::read_on`].
#[derive(Clone, Debug)]
pub struct Logged {
    pub event: Event,
    /// Its index in the log.
    pub index: u64,
    /// Recorded by the role of the sink that was asked.
    pub is_own: bool,
}

/// Why events were not recorded, or a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The event itself cannot be recorded; nothing was written.
    #[error("event cannot be recorded")]
    Event(#[from] EventError),
    /// The role's journal failed.
    #[error("journal of role {role:?} failed")]
    Journal { role: String, source: JournalError },
    /// The central log failed.
    #[error("central log failed")]
    Log(#[from] LogError),
    /// The journal and the central log contradict one another.
    #[error("role {role:?}: {reason} (journal ends with {journal}, central log with {central})")]
    Diverged {
        role: String,
        reason: &'static str,
        /// Last number in the journal.
        journal: u64,
        /// Last number in the central log.
        central: u64,
    },
    /// A leaf of the central log cannot be read.
    #[error("leaf {index} of the central log is malformed")]
    Leaf { index: u64, source: EventError },
    /// The sink keeps no events.
    #[error("event {0} cannot be read here")]
    NotKept(u64),
    /// The sink cannot be read at all.
    #[error("the log cannot be read here")]
    Unreadable,
    /// Not a role name: 1 to 32 lower-case letters, digits and hyphens.
    #[error("{0:?} is not a role name")]
    RoleName(String),
    /// The events shared a write with those of another caller, and it failed.
    #[error("audit write failed")]
    Together(#[source] Arc<Self>),
    /// The thread that wrote for others panicked; nothing is recorded before a restart.
    #[error("audit stopped after a panic")]
    Stopped,
}

/// Keeps events in memory: for tests of services.
///
/// It numbers and hashes like the real log but keeps nothing beyond the process.
#[derive(Debug, Default)]
pub struct MemorySink {
    events: Mutex<Vec<Event>>,
}

impl MemorySink {
    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.clone()
    }
}

impl AuditSink for MemorySink {
    fn record_all(&self, new: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut recorded = Vec::new();
        for event in new {
            let leaf_index = events.len() as u64;
            let prev = chain_hash(&event.to_canonical()?);
            let leaf = Leaf::encode("memory", leaf_index + 1, &prev, event.clone())?;
            events.push(event);
            recorded.push(Recorded {
                leaf_index,
                leaf_hash: leaf_hash(&leaf),
            });
        }
        Ok(recorded)
    }

    fn event(&self, leaf_index: u64) -> Result<Option<Event>, AuditError> {
        let index = usize::try_from(leaf_index).unwrap_or(usize::MAX);
        Ok(self.events().get(index).cloned())
    }

    fn look_back(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        for (index, event) in self.events().into_iter().enumerate().rev() {
            let (text, index) = (event.to_canonical()?, index as u64);
            if wanted(&String::from_utf8_lossy(&text)) && each(own(event, index)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_on(
        &self,
        from: u64,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged),
    ) -> Result<u64, AuditError> {
        let events = self.events();
        let count = events.len() as u64;
        for (event, index) in events.into_iter().zip(0..) {
            let text = event.to_canonical()?;
            if index >= from && wanted(&String::from_utf8_lossy(&text)) {
                each(own(event, index));
            }
        }
        Ok(count)
    }
}

/// An event of the only role that a sink in memory has.
const fn own(event: Event, index: u64) -> Logged {
    Logged {
        event,
        index,
        is_own: true,
    }
}
