//! What happens to an IKE SA, and how many a holder has.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Endpoint;
use crate::authorization::Holder;
use crate::event::{Event, Reason};
use crate::sa::{Core, IkeId, IkeSa, Transfer, WrongState};

/// IKE SAs of one holder that are closed or replaced, and still answer repetitions: as many as a peer can
/// have made in the time that they linger, without having the answer to each.
const REMEMBERED: usize = 8;

impl Endpoint {
    /// Lets something happen to an IKE SA. Nothing that comes from outside should make this library panic;
    /// should something do it nevertheless, it costs the IKE SA that it came by, and no other.
    pub(super) fn run<T>(
        &mut self,
        mut sa: IkeSa,
        work: impl FnOnce(&mut IkeSa, &mut Core) -> Result<T, WrongState>,
    ) -> Option<T> {
        let (id, connection, children) = (sa.id(), Arc::clone(sa.connection()), sa.children());
        let core = &mut self.core;
        // What is half done goes with the IKE SA, or is taken back below.
        let work = AssertUnwindSafe(move || {
            let done = work(&mut sa, core);
            (sa, done)
        });
        if let Ok((sa, done)) = catch_unwind(work) {
            self.process(sa);
            return self.note_state(done);
        }
        self.core.spawned.clear();
        self.core.transfers.clear();
        self.forget(id);
        self.transfer_all();
        for (spi_in, spi_out) in children {
            self.core.free_esp_spi(spi_in);
            let (ike, reason) = (id, Reason::Fault);
            self.core.event(Event::ChildDown {
                ike,
                spi_in,
                spi_out,
                reason,
            });
        }
        self.core.event(Event::IkeDown {
            ike: id,
            connection: Some(connection.name.clone()),
            reason: Reason::Fault,
        });
        None
    }

    /// Counts an event that had no place in the state of its IKE SA.
    pub(super) fn note_state<T>(&mut self, outcome: Result<T, WrongState>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(wrong) => {
                let count = self.wrong_states.entry(wrong).or_default();
                *count = count.saturating_add(1);
                self.counters.wrong_state = self.counters.wrong_state.saturating_add(1);
                None
            }
        }
    }

    /// Nothing is left of an IKE SA but what it had with others.
    pub(super) fn forget(&mut self, id: IkeId) {
        if let Some(at) = self.armed.remove(&id) {
            self.timers.remove(&(at, id));
        }
        self.close_handshake(id);
        self.core.requests.retain(|_, owner| *owner != id);
        self.release(id);
    }

    /// An IKE SA counts against its holder no more.
    pub(super) fn release(&mut self, id: IkeId) {
        let ended = self.core.sessions.forget(id);
        self.core.transfers.extend(ended.map(Transfer::Ended));
        let Some(holder) = self.holders.remove(&id) else {
            return;
        };
        if let Some(all) = self.held.get_mut(&holder) {
            all.retain(|other| *other != id);
            if all.is_empty() {
                self.held.remove(&holder);
            }
        }
    }

    /// An IKE SA is up. Of one holder's, the oldest ends when there are more than may be, and of those that
    /// only answer repetitions any more, the oldest is forgotten beyond [`REMEMBERED`].
    pub(super) fn hold(&mut self, ike: IkeId, holder: Holder, most: usize) {
        // It may have come and gone in one call.
        if self.holders.contains_key(&ike) || !self.table.contains_key(&ike) {
            return;
        }
        self.holders.insert(ike, holder.clone());
        let all = self.held.entry(holder).or_default();
        all.push(ike);
        let carries = |id: &IkeId| self.table.get(id).is_some_and(IkeSa::is_live);
        // The one that has just come up counts though it may not carry anything yet.
        let (live, over): (Vec<IkeId>, Vec<IkeId>) =
            all.iter().partition(|id| **id == ike || carries(id));
        let surplus = live.len().saturating_sub(most.max(1));
        let forgotten = over.len().saturating_sub(REMEMBERED);
        for id in live.into_iter().take(surplus).filter(|id| *id != ike) {
            if let Some(mut sa) = self.table.remove(&id) {
                sa.down(&mut self.core, Reason::Crowded);
                self.put(sa);
            }
        }
        for id in over.into_iter().take(forgotten) {
            if let Some(mut sa) = self.table.remove(&id) {
                sa.down(&mut self.core, Reason::Crowded);
                self.forget(id);
            }
        }
    }
}
