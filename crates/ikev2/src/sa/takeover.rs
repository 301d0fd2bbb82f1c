//! Several IKE SAs of one peer: how one shows that the peer has it, sends for all, and is told that it goes.

use std::collections::BTreeSet;

use super::core::Core;
use super::intent::Intent;
use super::sessions::{Seen, Standing};
use super::state::{EventName, WrongState};
use super::{IkeSa, State};
use crate::event::Event;
use crate::time::Timestamp;

impl IkeSa {
    /// This IKE SA as [`super::sessions::Sessions`] notes it.
    pub(crate) fn seen(&self) -> Seen<'_> {
        let standing = match (self.is_live(), self.is_established()) {
            (true, _) => Standing::Live,
            (false, true) => Standing::Passing,
            (false, false) => Standing::Over,
        };
        Seen {
            id: self.id(),
            peer: self.peer(),
            connection: &self.connection().name,
            standing,
            remote: self.path().remote.ip(),
            origin: self.origin(),
        }
    }

    /// Asks the peer whether it has this IKE SA, which takes the place of others ([`Transfer::Confirmed`]).
    pub(crate) fn confirm_takeover(
        &mut self,
        core: &mut Core,
        not_before: Timestamp,
    ) -> Result<(), WrongState> {
        self.live_do(core, EventName::Command, |established, sa, core| {
            established.enqueue(core, Intent::Confirm, not_before);
            established.pump(sa, core);
        })
    }

    /// Sends by this IKE SA what others of the peer could send as well. One that the peer may not have sends nothing.
    pub(crate) fn send_with_all(&mut self, core: &mut Core) -> Result<(), WrongState> {
        self.live_do(core, EventName::Command, |established, sa, core| {
            // Those that wait for the peer are not known there yet.
            let confirmed = established.confirmed;
            let live = established.children.values();
            let live = live.filter(|child| confirmed && child.is_live() && child.sending);
            for (spi_in, spi_out) in live.map(|child| (child.spi_in, child.spi_out)) {
                core.event(Event::ChildOutbound {
                    ike: sa.id,
                    spi_in,
                    spi_out,
                });
            }
        })
    }

    /// The peer has no other IKE SA any more by which it could wait for our response.
    pub(crate) fn send_with_held(&mut self, core: &mut Core) -> Result<(), WrongState> {
        self.live_do(core, EventName::Command, |established, sa, core| {
            established.send_with_held(sa, core);
        })
    }

    /// Places in the configuration of the Child SAs that are in use.
    pub(crate) fn configured_children(&self) -> BTreeSet<usize> {
        let children = self.established().map(|established| &established.children);
        let children = children.into_iter().flat_map(|children| children.values());
        // A replaced one and its successor have the same place.
        let live = children.filter(|child| child.is_live());
        live.map(|child| child.config).collect()
    }

    /// Moment of the peer's last request ([`Core::moment`]).
    pub(crate) const fn last_asked(&self) -> u64 {
        self.common.channel.last_asked
    }

    /// Whether another IKE SA of the peer takes the place of this one.
    pub(crate) fn is_superseded(&self) -> bool {
        self.established()
            .is_some_and(|established| established.superseded)
    }

    /// Notes whether another IKE SA of the peer takes the place of this one.
    pub(crate) fn set_superseded(&mut self, superseded: bool) {
        if let State::Established(established) = &mut self.state {
            established.superseded = superseded;
        }
    }
}
