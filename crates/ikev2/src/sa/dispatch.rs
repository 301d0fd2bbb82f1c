//! Messages and answers at an IKE SA: an event takes the state, and gives the next one.

use super::channel::Received;
use super::core::Core;
use super::init::{InitNext, InitSent};
use super::initiator::{Initiator, InitiatorNext};
use super::payloads::find;
use super::responder::{Responder, ResponderNext};
use super::state::{EventName, Failure, FailureKind, WrongState};
use super::{IkeSa, State};
use crate::event::{Reason, RequestId, Response};
use crate::types::Path;
use crate::wire::{Datagram, DecodeError, ExchangeType, Notify, NotifyType, Payload};

impl IkeSa {
    /// Handles a message whose SPIs name this IKE SA.
    pub(crate) fn handle(
        &mut self,
        core: &mut Core,
        path: Path,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> Result<(), WrongState> {
        let header = datagram.header;
        if header.exchange.is_first() {
            if header.flags.response && !header.flags.initiator {
                return self.on_init_response(core, datagram, bytes);
            }
            // Only the same bytes get the answer again: another first request is not for an IKE SA that is there.
            if header.flags.initiator {
                let message_id = header.message_id;
                self.common
                    .channel
                    .repeat_answer(core, path, message_id, bytes);
            }
            return Ok(());
        }
        // One of the two SPIs found this IKE SA; who has not the other is not its peer.
        if header.spis() != self.common.channel.spis {
            return Ok(());
        }
        if datagram.encrypted.is_none() {
            return self.on_unprotected(core, datagram);
        }
        let reply_path = self.reply_path(path);
        let stranger = self.is_half_open();
        let channel = &mut self.common.channel;
        let Some(received) = channel.receive(core, reply_path, datagram, bytes, stranger) else {
            return Ok(());
        };
        // Before anything is made of it: even what is refused came over this path.
        if let State::Established(established) = &mut self.state {
            established.path_works();
        }
        self.follow(core, path);
        let outcome = self.on_message(core, path, received);
        self.pump(core);
        outcome
    }

    /// Handles a response to the first request. It is not authenticated, and a late repetition of it is no rare
    /// thing: apart from where it is expected it changes nothing.
    fn on_init_response(
        &mut self,
        core: &mut Core,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> Result<(), WrongState> {
        let wrong = self.wrong_state(EventName::InitResponse);
        match std::mem::replace(&mut self.state, State::Moving) {
            State::InitSent(mut init) => {
                let next = init.on_response(&mut self.common, core, datagram, bytes);
                let outcome = self.after_init(init, core, next);
                self.conclude(core, outcome, wrong)
            }
            other => {
                self.state = other;
                Err(wrong)
            }
        }
    }

    /// Handles an unprotected message. It says nothing, unless it shows that the peer has lost this IKE SA
    /// (RFC 6290).
    fn on_unprotected(&mut self, core: &mut Core, datagram: &Datagram) -> Result<(), WrongState> {
        let State::Established(established) = &self.state else {
            return Err(self.wrong_state(EventName::Unprotected));
        };
        let token = established.crash_token.as_ref();
        if datagram.header.flags.response && token.is_some_and(|t| t.is_shown_by(&datagram.clear)) {
            self.down(core, Reason::PeerCrashed);
            self.state = State::Gone;
        }
        Ok(())
    }

    /// Handles a message that authenticates.
    pub(super) fn on_message(
        &mut self,
        core: &mut Core,
        path: Path,
        received: Received,
    ) -> Result<(), WrongState> {
        let Received {
            exchange,
            response,
            payloads,
            logical,
        } = received;
        let event = match response {
            true => EventName::Response(exchange),
            false => EventName::Request(exchange),
        };
        let wrong = self.wrong_state(event);
        if response {
            self.common.channel.complete_request();
        }
        let payloads = match payloads {
            Ok(payloads) => payloads,
            Err(error) => {
                self.on_malformed(core, exchange, response, error);
                return Ok(());
            }
        };
        let common = &mut self.common;
        let outcome = match std::mem::replace(&mut self.state, State::Moving) {
            State::Established(mut established) => {
                let message = (exchange, response, payloads.as_slice());
                let outcome = established.on_message(common, core, path, message);
                self.state = State::Established(established);
                outcome
            }
            State::Initiator(mut initiator, step) => {
                let message = (exchange, response, payloads);
                let next = initiator.on_message(common, core, step, message, &logical);
                self.after_initiator(initiator, core, next)
            }
            State::Responder(mut responder, step) => {
                let message = (exchange, response, payloads);
                let next = responder.on_message(common, core, step, message, &logical);
                self.after_responder(responder, core, next)
            }
            // The handshake was given up while its last response was on its way.
            State::Closed
                if (exchange, response) == (ExchangeType::IKE_AUTH, true)
                    && find!(payloads, Payload::Auth).is_some() =>
            {
                self.state = State::Closed;
                self.tell_deletion(core);
                Ok(())
            }
            // The response to what we said last: that was all this one was kept for.
            State::Closed | State::Gone if response => {
                self.state = State::Gone;
                Ok(())
            }
            state @ (State::Closed | State::Gone) => {
                self.state = state;
                self.common.channel.leave_unanswered();
                Ok(())
            }
            // Before there are keys nothing authenticates, so this is never seen.
            state @ (State::InitSent(_) | State::SolvingPuzzle(..) | State::Moving) => {
                self.state = state;
                Err(common.out_of_place(core, exchange, response, "exchange out of place"))
            }
        };
        self.conclude(core, outcome, wrong)
    }

    /// Ends the IKE SA if an event has failed; gives the error if it had no place.
    pub(super) fn conclude(
        &mut self,
        core: &mut Core,
        outcome: Result<(), Failure>,
        wrong: WrongState,
    ) -> Result<(), WrongState> {
        let Err(failure) = outcome else {
            return Ok(());
        };
        self.down(core, *failure.reason);
        match failure.kind {
            FailureKind::Lingers => Ok(()),
            FailureKind::Gone => {
                self.state = State::Gone;
                Ok(())
            }
            FailureKind::WrongState => Err(wrong),
        }
    }

    pub(super) fn after_init(
        &mut self,
        init: Box<InitSent>,
        core: &mut Core,
        next: Result<InitNext, Failure>,
    ) -> Result<(), Failure> {
        match next? {
            InitNext::Wait => self.state = State::InitSent(init),
            InitNext::Solve(pending) => self.state = State::SolvingPuzzle(init, pending),
            InitNext::Keyed(initiator, next) => {
                return self.after_initiator(initiator, core, next);
            }
        }
        Ok(())
    }

    fn after_initiator(
        &mut self,
        initiator: Box<Initiator>,
        core: &mut Core,
        next: Result<InitiatorNext, Failure>,
    ) -> Result<(), Failure> {
        match next {
            Ok(InitiatorNext::Wait(step)) => self.state = State::Initiator(initiator, step),
            Ok(InitiatorNext::Finish(finish)) => {
                let established = initiator.finish(&self.common, core, finish);
                self.state = State::Established(Box::new(established));
                self.common.deadline = None;
            }
            Err(failure) => {
                initiator.release(core);
                return Err(failure);
            }
        }
        Ok(())
    }

    fn after_responder(
        &mut self,
        responder: Box<Responder>,
        core: &mut Core,
        next: Result<ResponderNext, Failure>,
    ) -> Result<(), Failure> {
        match next? {
            ResponderNext::Wait(step) => self.state = State::Responder(responder, step),
            ResponderNext::Finish(finish) => {
                let established = responder.finish(&mut self.common, core, finish);
                self.state = State::Established(Box::new(established));
                self.common.deadline = None;
            }
        }
        Ok(())
    }

    /// Ends the IKE SA by a message that authenticates but is malformed (RFC 7296 §2.21.3), apart from
    /// an unknown critical payload, which only fails its exchange (§2.5).
    fn on_malformed(
        &mut self,
        core: &mut Core,
        exchange: ExchangeType,
        response: bool,
        error: DecodeError,
    ) {
        let notify = match error.reason {
            crate::wire::Reason::UnknownCritical(kind) => {
                Notify::new(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD).with_data([kind])
            }
            _ => Notify::new(NotifyType::INVALID_SYNTAX),
        };
        if response {
            self.down(core, Reason::Protocol("malformed response"));
            return;
        }
        let kind = notify.kind;
        let channel = &mut self.common.channel;
        channel.respond(core, exchange, &[Payload::Notify(notify)]);
        // A handshake has no exchange that could fail alone.
        if kind == NotifyType::INVALID_SYNTAX || !self.is_established() {
            self.down(core, Reason::Protocol("malformed request"));
        }
    }

    /// Sends answers where the authenticated message came from, if the peer sits behind a NAT (RFC 7296
    /// §2.23) or has opened another TCP connection. Other peers change their address by MOBIKE or not at all.
    fn follow(&mut self, core: &mut Core, path: Path) {
        let (used, nat) = (self.common.channel.path, self.common.nat);
        // The initiator moves to the port for NAT traversal after IKE_SA_INIT.
        let floats = self.is_half_open();
        // Behind a NAT of our own the peer's address is what we were told, not what a mapping shows.
        let rebound = nat.theirs && !nat.ours && path.local == used.local;
        let rebound = rebound && path.transport == used.transport;
        let reconnected = self.follows_connection(path);
        let channel = &mut self.common.channel;
        let same = path == used && !(reconnected && channel.disconnected);
        if same || !(floats || rebound || reconnected) {
            return;
        }
        channel.path = path;
        channel.disconnected = false;
        if reconnected {
            // What is out went over the former connection.
            channel.retransmit_now(core);
        }
        if self.is_established() {
            self.common.announce_path(core);
        }
    }

    /// Path of the answer to what came over `path`: back (RFC 7296 §2.11), but not from an address that we
    /// have left.
    fn reply_path(&self, path: Path) -> Path {
        match self.established() {
            Some(established) if established.mobility.decides && !path.is_tcp() => Path {
                local: self.common.channel.path.local,
                ..path
            },
            _ => path,
        }
    }

    /// Handles the caller's answer to a question of this IKE SA.
    pub(crate) fn on_caller_response(
        &mut self,
        core: &mut Core,
        pending: RequestId,
        answer: Response,
    ) -> Result<(), WrongState> {
        let wrong = self.wrong_state(EventName::CallerResponse(answer.kind()));
        let common = &mut self.common;
        let outcome = match std::mem::replace(&mut self.state, State::Moving) {
            State::SolvingPuzzle(mut init, solving) if solving == pending => {
                let next = init.on_solved(common, core, answer);
                let outcome = self.after_init(init, core, next);
                return self.conclude(core, outcome, wrong);
            }
            State::Initiator(mut initiator, step) if step.waits_for(pending) => {
                let next = initiator.on_caller_response(common, core, step, answer);
                self.after_initiator(initiator, core, next)
            }
            State::Responder(mut responder, step) if step.waits_for(pending) => {
                let next = responder.on_caller_response(common, core, step, answer);
                self.after_responder(responder, core, next)
            }
            other => {
                self.state = other;
                return Err(wrong);
            }
        };
        let outcome = self.conclude(core, outcome, wrong);
        // The first thing that an IKE SA does that has just come up may wait already.
        self.pump(core);
        outcome
    }

    /// Packets came through a Child SA: the peer sends with it, so we may too.
    pub(crate) fn note_inbound(&mut self, core: &mut Core, spi_in: u32) -> Result<(), WrongState> {
        self.established_do(core, EventName::Inbound, |established, sa, core| {
            established.confirmed = true;
            if let Some(child) = established.children.get_mut(&spi_in) {
                (child.unconfirmed, child.held, child.further) = (None, false, false);
                if child.is_live() && !child.sending {
                    established.send_with(sa, core, spi_in);
                }
            }
        })
    }

    /// The peer's packets are as good a sign of life as its messages.
    pub(crate) const fn note_alive(&mut self, core: &Core) {
        self.common.channel.last_heard = core.now;
    }
}
