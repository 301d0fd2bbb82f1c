//! Successors of IKE SAs: how one is put together, and takes over.

use super::channel::Channel;
use super::common::Common;
use super::core::{Core, end_time, rekey_time};
use super::established::{Established, EstablishedState};
use super::intent::Intent;
use super::state::{EventName, WrongState};
use super::successor::{InheritedState, Successor};
use super::{IkeSa, State};
use crate::event::Event;
use crate::types::IkeId;

impl IkeSa {
    /// The successor as an IKE SA, whose collision is pending until it inherits.
    pub(crate) fn succeed(core: &Core, made: Successor) -> Self {
        // Message IDs begin at zero again (RFC 7296 §2.2), so nothing of the old channel's window is taken along.
        let mut channel =
            Channel::new(core, &made.connection, made.path, made.spis, made.initiator);
        channel.fragmentation = made.fragmentation;
        channel.use_keys(made.protection);
        let mut established = Established::successor_of(made.auth, made.keys, made.mobility);
        established.crash_token = made.crash_token;
        Self {
            common: Common {
                id: made.id,
                connection: made.connection,
                channel,
                nat: made.nat,
                begun: made.begun,
                deadline: Some(made.deadline),
            },
            state: State::Established(Box::new(established)),
        }
    }

    /// Takes over what belongs to a replaced IKE SA.
    pub(crate) fn inherit(
        &mut self,
        core: &mut Core,
        old: IkeId,
        inherited: InheritedState,
    ) -> Result<(), WrongState> {
        let sa = &mut self.common;
        // Drawn in any case: what others do with the same random numbers must not depend on this.
        let rekey_at = rekey_time(core, sa.connection.rekey_after);
        let ends_at = end_time(core, sa.connection.rekey_after);
        let State::Established(established) = &mut self.state else {
            // The successor is gone already; so are the Child SAs.
            inherited.release(core, old);
            return Err(self.wrong_state(EventName::Inherit));
        };
        established.state = EstablishedState::Live;
        (established.origin, established.superseded) = (inherited.origin, inherited.superseded);
        established.mobility = inherited.mobility;
        sa.channel.path = inherited.path;
        sa.nat = inherited.nat;
        // Its age counts from the start of its duty.
        established.rekey_at = rekey_at;
        established.ends_at = ends_at;
        sa.deadline = None;
        established.children.extend(inherited.children);
        established.queue.extend(inherited.queue);
        established.asks_for = inherited.asks_for;
        established.want_all_resources(core);
        // In our own request the peer's SPI was not known yet (RFC 6290 §4.1).
        if core.crash_secret.is_some() && sa.channel.initiator {
            established.enqueue(core, Intent::SendCrashToken, core.now);
        }
        core.event(Event::IkeRekeyed { old, new: sa.id });
        self.pump(core);
        Ok(())
    }
}
