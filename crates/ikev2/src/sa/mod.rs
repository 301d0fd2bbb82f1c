//! One IKE SA with its Child SAs.
//!
//! ```text
//! initiator   InitSent ◄─► SolvingPuzzle
//!                 └─► Initiator: [IntermediateSent]* ─ SigningRequest ─ AuthSent ─ VerifyingResponder ─┐
//! responder       ► Responder: InitAnswered ─ VerifyingInitiator ─ AuthorizingInitiator ─ Signing ─────┤
//!                          (both: with EAP in between, see `eap_initiator`)                            │
//!                                                                                                      ▼
//!             successor of a rekeyed one: CollisionPending ─────────────────────────────► Established: Live
//!                                                            Established: Replaced, Redundant ◄────────┤
//!                                    anything that ends it ──► Closed (answers repetitions) ─► Gone ◄──┘
//! ```
//!
//! A state owns what is valid in it, and an event takes the state and gives the next one. What has no place in a
//! state is a [`WrongState`]: counted by the endpoint, and answered where RFC 7296 §2.21 wants an answer. Within
//! `Established`, `schedule.rs` decides what runs and what waits; the table of what happens when both sides
//! start something at once is there.

mod addresses;
mod candidates;
mod channel;
mod child;
mod child_sa;
mod common;
mod connection;
mod core;
mod create_child;
mod create_child_responder;
mod dispatch;
mod eap_initiator;
mod eap_responder;
mod established;
mod exchange;
mod followup;
mod fragment_budget;
mod fragments;
mod handshake;
mod informational;
mod inheritance;
mod init;
mod initiator;
mod initiator_auth;
mod intent;
mod mobility;
mod nat;
mod paths;
mod payloads;
mod refusal;
mod rekey_ike;
mod rekey_ike_responder;
mod resources;
mod responder;
mod responder_auth;
mod resumption;
mod schedule;
mod sessions;
mod siblings;
mod state;
mod successor;
mod takeover;
#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]
mod tests;

use std::sync::Arc;

pub(crate) use self::core::{Core, Transfer};
use channel::Tick;
use common::Common;
use established::Established;
use init::InitSent;
use initiator::{Initiator, InitiatorStep};
pub(crate) use intent::Intent;
pub(crate) use responder::{Refused, init_notifies, init_notify};
use responder::{Responder, ResponderStep};
pub(crate) use sessions::{Origin, PeerKey};
pub use state::{EventName, StateName, WrongState};

use crate::config::Connection;
use crate::event::{Event, Reason, RequestId};
use crate::time::Timestamp;
pub use crate::types::IkeId;
use crate::types::Path;
use crate::wire::Datagram;

/// State of an IKE SA, with what belongs to it.
enum State {
    InitSent(Box<InitSent>),
    SolvingPuzzle(Box<InitSent>, RequestId),
    Initiator(Box<Initiator>, InitiatorStep),
    Responder(Box<Responder>, ResponderStep),
    Established(Box<Established>),
    /// Ended; repetitions of the last request get its answer.
    Closed,
    /// The table may forget it.
    Gone,
    /// An event is being handled. Nobody else sees it.
    Moving,
}

impl State {
    const fn name(&self) -> StateName {
        match self {
            Self::InitSent(_) => StateName::InitSent,
            Self::SolvingPuzzle(..) => StateName::SolvingPuzzle,
            Self::Initiator(_, step) => step.name(),
            Self::Responder(_, step) => step.name(),
            Self::Established(established) => established.state.name(),
            Self::Closed | Self::Gone | Self::Moving => StateName::Closed,
        }
    }
}

/// An IKE SA: what it has in every state, and its state.
pub(crate) struct IkeSa {
    pub(crate) common: Common,
    state: State,
}

impl IkeSa {
    /// Starts an IKE SA; none if the connection has no usable proposal.
    pub(crate) fn initiate(
        core: &mut Core,
        connection: Arc<Connection>,
        path: Path,
    ) -> Option<Self> {
        let (common, init) = InitSent::begin(core, connection, path)?;
        let state = State::InitSent(init);
        Some(Self { common, state })
    }

    /// Answers a first request with an IKE SA, or says why not.
    pub(crate) fn respond(
        core: &mut Core,
        candidates: &[Arc<Connection>],
        path: Path,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> Result<Self, Refused> {
        let (common, responder) = Responder::begin(core, candidates, path, datagram, bytes)?;
        Ok(Self::half_open(common, responder))
    }

    /// An IKE SA whose first request is answered.
    fn half_open(common: Common, responder: Box<Responder>) -> Self {
        let state = State::Responder(responder, ResponderStep::InitAnswered);
        Self { common, state }
    }

    /// Whether the table may forget this IKE SA.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    /// Tells whether this IKE SA has ended and its peer has yet to hear so.
    pub(crate) const fn owes_notice(&self) -> bool {
        matches!(self.state, State::Closed) && !self.common.channel.is_idle()
    }

    /// Whether the peer has not proved who it is and we did not start it.
    pub(crate) const fn is_half_open(&self) -> bool {
        matches!(self.state, State::Responder(..))
    }

    pub(crate) const fn is_established(&self) -> bool {
        matches!(self.state, State::Established(_))
    }

    /// Whether this IKE SA carries Child SAs or may.
    pub(crate) fn is_live(&self) -> bool {
        self.established().is_some_and(Established::is_live)
    }

    const fn established(&self) -> Option<&Established> {
        match &self.state {
            State::Established(established) => Some(established),
            _ => None,
        }
    }

    pub(crate) const fn id(&self) -> IkeId {
        self.common.id
    }

    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.common.connection
    }

    pub(crate) const fn path(&self) -> Path {
        self.common.channel.path
    }

    /// Whether the first request is out and has no answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(&self.state, State::InitSent(init) if init.fails_at().is_none())
    }

    /// The peer, if it is authenticated.
    pub(crate) fn peer(&self) -> Option<&crate::wire::Identification> {
        Some(self.established()?.auth.peer())
    }

    /// Beginning of the session, if the peer is authenticated.
    pub(crate) fn origin(&self) -> Option<Origin> {
        Some(self.established()?.origin)
    }

    /// Inbound and outbound SPIs of the Child SAs.
    pub(crate) fn children(&self) -> Vec<(u32, u32)> {
        let children = self.established().map(|established| &established.children);
        let children = children.into_iter().flat_map(|children| children.values());
        children
            .map(|child| (child.spi_in, child.spi_out))
            .collect()
    }

    fn wrong_state(&self, event: EventName) -> WrongState {
        WrongState {
            state: self.state.name(),
            event,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        let established = self.established();
        let established = established.and_then(|established| established.timeout(&self.common));
        let failure = match &self.state {
            State::InitSent(init) => init.fails_at(),
            _ => None,
        };
        let common = &self.common;
        let repeats = common.channel.next_timeout();
        [repeats, common.deadline, established, failure]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due.
    pub(crate) fn on_timeout(&mut self, core: &mut Core) {
        if let State::InitSent(init) = &mut self.state
            && let Some(reason) = init.take_failure(core.now)
        {
            self.down(core, reason);
            self.state = State::Gone;
            return;
        }
        let due = |deadline: Timestamp| deadline <= core.now;
        if self.common.deadline.is_some_and(due) {
            self.common.deadline = None;
            // A handshake, or the wait for a successor's fate or for the peer to delete what was replaced.
            let silence = self.common.channel.silence(core.limits.datagram_bytes);
            let unmet = match &self.state {
                State::Responder(responder, ResponderStep::InitAnswered) => responder.unmet(),
                _ => None,
            };
            self.down(core, unmet.unwrap_or(silence));
            self.state = State::Gone;
            return;
        }
        if let State::InitSent(init) = &mut self.state
            && init.resumption_is_unanswered(&self.common)
        {
            return self.abandon_resumption(core);
        }
        let common = &mut self.common;
        let most = match &self.state {
            State::Established(established) => established.transmissions(common, core),
            _ => common.channel.transmissions(),
        };
        if let Tick::PeerGone = common.channel.tick(core, most) {
            return self.on_peer_gone(core);
        }
        if let State::Established(established) = &mut self.state {
            established.tick(common, core);
        }
        self.pump(core);
    }

    fn abandon_resumption(&mut self, core: &mut Core) {
        // Nobody sent anything, so there is no event that could be in the wrong state.
        let wrong = self.wrong_state(EventName::InitResponse);
        if let State::InitSent(mut init) = std::mem::replace(&mut self.state, State::Moving) {
            let next = init.abandon_resumption(&mut self.common, core);
            let outcome = self.after_init(init, core, Ok(next));
            let _ = self.conclude(core, outcome, wrong);
        }
    }

    /// The request was repeated as often as it may be. Another path may work; else the peer is gone.
    fn on_peer_gone(&mut self, core: &mut Core) {
        if let State::Established(established) = &mut self.state {
            if established.try_another_path(&mut self.common, core) {
                return;
            }
            // A successor that the peer has made may yet be reached: it is not for us to end the Child SAs.
            established.hand_over_to_pending(&mut self.common, core);
        }
        let reason = self.common.channel.silence(core.limits.datagram_bytes);
        self.common.channel.complete_request();
        self.down(core, reason);
        self.state = State::Gone;
    }

    /// Starts what waits, if nothing is out.
    fn pump(&mut self, core: &mut Core) {
        if let State::Established(established) = &mut self.state {
            established.pump(&mut self.common, core);
        }
    }

    /// Ends this IKE SA and its Child SAs. It answers repetitions for a while.
    pub(crate) fn down(&mut self, core: &mut Core, reason: Reason) {
        let state = std::mem::replace(&mut self.state, State::Closed);
        // The peer may not have our last answer yet (§2.1), and we may not have its last word.
        self.common.deadline = Some(core.now.after(core.limits.linger));
        match state {
            State::Closed => return,
            State::Gone => {
                self.state = State::Gone;
                return;
            }
            State::Established(established) => {
                // Of one that was replaced or is surplus nobody was told that it is up.
                let quiet = !established.is_live();
                established.release(core, self.common.id, &reason);
                if quiet {
                    return;
                }
            }
            State::Initiator(initiator, _) => initiator.release(core),
            State::InitSent(_) | State::SolvingPuzzle(..) | State::Responder(..) => {}
            // What it had was released where it failed.
            State::Moving => {}
        }
        // Whoever ended a session on purpose does not want it resumed. One that ended for another has left its ticket
        // to that one.
        let lost = matches!(
            reason,
            Reason::Timeout | Reason::TimeoutOfLarge(_) | Reason::PeerCrashed
        );
        let followed = matches!(
            reason,
            Reason::Crowded | Reason::InitialContact | Reason::Redundant | Reason::Replaced
        );
        let name = &self.common.connection.name;
        if !lost && !followed {
            core.held_tickets.forget(name);
        }
        core.event(Event::IkeDown {
            ike: self.common.id,
            connection: Some(name.clone()),
            reason,
        });
    }

    /// Adds an intention of the caller, which only the IKE SA that carries the Child SAs can carry out.
    pub(crate) fn want(&mut self, core: &mut Core, intent: Intent) -> Result<(), WrongState> {
        match &mut self.state {
            State::Established(established) if established.is_live() => {
                established.enqueue(core, intent, core.now);
                self.pump(core);
                Ok(())
            }
            State::Initiator(_, step)
                if step.proof_is_out() && matches!(intent, Intent::DeleteIke(_)) =>
            {
                let answered = self.common.channel.is_idle();
                self.down(core, Reason::Local);
                if answered {
                    self.tell_deletion(core);
                }
                Ok(())
            }
            State::InitSent(_)
            | State::SolvingPuzzle(..)
            | State::Initiator(..)
            | State::Responder(..)
                if matches!(intent, Intent::DeleteIke(_)) =>
            {
                self.down(core, Reason::Local);
                self.state = State::Gone;
                Ok(())
            }
            _ => Err(self.wrong_state(EventName::Command)),
        }
    }

    /// Lets the IKE SA that carries the Child SAs do something: others have a successor that does.
    fn live_do<T>(
        &mut self,
        core: &mut Core,
        event: EventName,
        work: impl FnOnce(&mut Established, &mut Common, &mut Core) -> T,
    ) -> Result<T, WrongState> {
        match self.is_live() {
            true => self.established_do(core, event, work),
            false => Err(self.wrong_state(event)),
        }
    }

    /// Lets an established IKE SA do something.
    fn established_do<T>(
        &mut self,
        core: &mut Core,
        event: EventName,
        work: impl FnOnce(&mut Established, &mut Common, &mut Core) -> T,
    ) -> Result<T, WrongState> {
        let State::Established(established) = &mut self.state else {
            return Err(self.wrong_state(event));
        };
        Ok(work(established, &mut self.common, core))
    }
}
