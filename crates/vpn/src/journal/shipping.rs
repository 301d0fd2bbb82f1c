//! The way of the journal into the central log: in order, and past records that cannot be read.

use audit::journal::{JournalError, Shipped};
use audit::{Actor, Event, Leaf, unreadable_records};
use time::OffsetDateTime;

use super::{Audit, BATCH, ROLE};

/// Records that go to the central log together.
struct Batch {
    events: Vec<Event>,
    /// Number of the last record that they stand for.
    last: u64,
}

/// Tells that records are not what was written, or gone: reading them again will not help. A disk that fails is no such case.
fn is_damage(error: &JournalError) -> bool {
    matches!(
        error,
        JournalError::Damaged { .. } | JournalError::Missing { .. } | JournalError::Foreign { .. }
    )
}

impl Audit {
    /// Has the central log take over what it lacks. After a crash between its answer and our note of it
    /// some come twice, with the same numbers.
    pub(super) fn ship(&mut self) -> Result<(), String> {
        if self.central.is_none() {
            self.behind = false;
            return Ok(());
        }
        loop {
            let shipped = self.journal.shipped().map_err(|e| e.to_string())?;
            let from = shipped.map_or(0, |shipped| shipped.seq).saturating_add(1);
            if from > self.journal.last_seq() {
                self.behind = false;
                self.progress.shipped(from.saturating_sub(1));
                return Ok(());
            }
            let batch = self.read(from).map_err(|e| e.to_string())?;
            let Some(central) = &mut self.central else {
                return Ok(());
            };
            let leaf_index = central(from, batch.events)?;
            let shipped = Shipped {
                seq: batch.last,
                leaf_index,
            };
            let noted = self.journal.mark_shipped(shipped);
            noted.map_err(|e| e.to_string())?;
            self.progress.shipped(batch.last);
        }
    }

    /// Reads the next records; of those that cannot be read one event remains, with their numbers.
    fn read(&mut self, from: u64) -> Result<Batch, JournalError> {
        let oldest = self.journal.first_seq()?;
        if from < oldest {
            return Ok(lost(from, oldest - 1, "the records are no longer there"));
        }
        let mut events = Vec::new();
        let damage = match self.read_into(from, &mut events) {
            Ok(()) if !events.is_empty() => None,
            Ok(()) => Some("the records end too early".to_owned()),
            Err(error) if is_damage(&error) => Some(error_report::Report(&error).to_string()),
            Err(error) => return Err(error),
        };
        match damage {
            // What is before the damage goes first, and the next call finds the damage at its beginning.
            Some(why) if events.is_empty() => {
                tracing::error!(from, why, "records of the audit journal cannot be read");
                let next = self.journal.resume_after(from)?;
                Ok(lost(from, next.saturating_sub(1), &why))
            }
            _ => Ok(Batch {
                last: from.saturating_add(events.len() as u64).saturating_sub(1),
                events,
            }),
        }
    }

    fn read_into(&self, from: u64, events: &mut Vec<Event>) -> Result<(), JournalError> {
        for record in self.journal.read_from(from)?.take(BATCH) {
            // Records are decoded as they are read: one that does not decode is damage.
            events.push(Leaf::decode(&record?.leaf)?.event);
        }
        Ok(())
    }
}

/// The event that stands for records `from` to `to`.
fn lost(from: u64, to: u64, why: &str) -> Batch {
    let now = OffsetDateTime::now_utc();
    let actor = Actor::service(ROLE);
    Batch {
        events: vec![unreadable_records(
            (from, to),
            why,
            now,
            actor,
            "tunnel/journal",
        )],
        last: to,
    }
}
