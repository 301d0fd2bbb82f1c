//! Limits of associations: found without looking at all associations after every batch.
//!
//! Limits of time lie in an ordered set; an association that a batch brought to a limit of volume is
//! put on a list. So the cost follows what happens, not how many associations there are.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{DataPlane, Event, SaIndex};
use crate::lifetime::Usage;
use crate::sa::SaHandle;

/// Names an association within the data plane. Outbound ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Outbound(SaIndex),
    Inbound(SaIndex),
}

/// Associations with a limit ahead, and those that reached one.
#[derive(Default)]
pub(super) struct Limits {
    /// Every association that has a limit of time before it, once, by [`Usage::deadline`].
    deadlines: BTreeSet<(Instant, Party)>,
    /// At a limit of volume since the last poll; each once, as [`Usage::take_volume_due`] says.
    due: Vec<Party>,
}

impl Limits {
    /// An association was installed.
    pub(super) fn add(&mut self, party: Party, usage: &Usage) {
        if let Some(deadline) = usage.deadline() {
            self.deadlines.insert((deadline, party));
        }
    }

    /// An association was removed.
    pub(super) fn remove(&mut self, party: Party, usage: &Usage) {
        if let Some(deadline) = usage.deadline() {
            self.deadlines.remove(&(deadline, party));
        }
        self.due.retain(|due| *due != party);
    }

    /// An association carried packets.
    pub(super) fn carried(&mut self, party: Party, usage: &mut Usage) {
        if usage.take_volume_due() {
            self.due.push(party);
        }
    }
}

impl DataPlane {
    /// Limits that were reached since the last call; to be called after batches and at
    /// [`poll_timeout`](Self::poll_timeout).
    pub fn poll_expiries(&mut self, now: Instant, events: &mut Vec<Event>) {
        while let Some((deadline, party)) = self.limits.deadlines.first().copied()
            && deadline <= now
        {
            self.limits.deadlines.pop_first();
            self.limits.due.push(party);
        }
        if self.limits.due.is_empty() {
            return;
        }
        let mut due = std::mem::take(&mut self.limits.due);
        due.sort_unstable();
        due.dedup();
        for party in due.drain(..) {
            let found = match party {
                Party::Outbound(index) => {
                    let sa = self.outbound.get_mut(index).and_then(Option::as_mut);
                    sa.map(|sa| (sa.handle(), &mut sa.usage))
                }
                Party::Inbound(index) => {
                    let sa = self.inbound.get_mut(index).and_then(Option::as_mut);
                    sa.map(|sa| (sa.spi.into(), &mut sa.usage))
                }
            };
            let Some((name, usage)): Option<(SaHandle, &mut Usage)> = found else {
                continue;
            };
            if let Some(deadline) = usage.deadline() {
                self.limits.deadlines.remove(&(deadline, party));
            }
            if let Some(expiry) = usage.poll(now) {
                events.push(match party {
                    Party::Outbound(_) => Event::OutboundExpired(name, expiry),
                    Party::Inbound(_) => Event::InboundExpired(name.spi(), expiry),
                });
            }
            if let Some(deadline) = usage.deadline() {
                self.limits.deadlines.insert((deadline, party));
            }
        }
        self.limits.due = due;
    }

    /// When [`poll_expiries`](Self::poll_expiries) has something to say next, if nothing is sent.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.limits.deadlines.first().map(|(deadline, _)| *deadline)
    }
}
