//! Names of states and events, and the error of an event that has no place in a state.

use std::fmt;

use crate::event::Reason;
use crate::wire::ExchangeType;

/// State of an IKE SA, without what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StateName {
    /// Initiator: the first request is out.
    InitSent,
    /// Initiator: the caller solves the responder's puzzle.
    SolvingPuzzle,
    /// Initiator: an IKE_INTERMEDIATE request is out.
    IntermediateSent,
    /// Initiator: the caller signs.
    SigningRequest,
    /// Initiator: IKE_AUTH is out.
    AuthSent,
    /// Initiator: the caller validates the responder's certificates.
    VerifyingResponder,
    /// Initiator: the caller says whether a resumed responder is still welcome.
    ReviewingResponder,
    /// Initiator: the caller says what the responder may have.
    AuthorizingResponder,
    /// Initiator: the first IKE_AUTH of EAP is out.
    EapStarted,
    /// Initiator: the caller validates the responder's certificates before EAP.
    EapVerifyingResponder,
    /// Initiator: the caller gives the password or has TLS work.
    EapWorking,
    /// Initiator: an EAP response is out.
    EapSent,
    /// Initiator: our proof with the session key is out.
    EapProofSent,
    /// Responder: the first request is answered, the next is to come.
    InitAnswered,
    /// Responder: the caller validates the initiator's certificates.
    VerifyingInitiator,
    /// Responder: the caller says whether a resumed initiator is still welcome.
    ReviewingInitiator,
    /// Responder: the caller says what the initiator may have.
    AuthorizingInitiator,
    /// Responder: the caller signs.
    SigningResponse,
    /// Responder: the caller signs before EAP.
    EapSigning,
    /// Responder: the next EAP response is to come.
    EapExpecting,
    /// Responder: the caller gives the password, has TLS work or validates certificates.
    EapAsking,
    /// Responder: the initiator's proof with the session key is to come.
    EapSucceeded,
    /// It carries the Child SAs.
    Live,
    /// Made by the peer while we were rekeying too: not decided yet.
    CollisionPending,
    /// Replaced; whoever replaced it deletes it.
    Replaced,
    /// Ours lost against the peer's; we delete it.
    Redundant,
    /// Ended; answers repetitions.
    Closed,
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Event of an IKE SA, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventName {
    /// First request once more.
    InitRequest,
    /// Response to the first request.
    InitResponse,
    /// Message without protection where there should be some.
    Unprotected,
    /// Authenticated request of the peer.
    Request(ExchangeType),
    /// Authenticated response of the peer.
    Response(ExchangeType),
    /// Answer of the caller, by its kind.
    CallerResponse(&'static str),
    /// Wish of the caller: a Child SA, new keys, a probe, a deletion.
    Command,
    /// Other addresses of ours, or other paths.
    ChangePath,
    /// Packets of the peer from elsewhere.
    PeerMoved,
    /// Packets with an SPI that is not in use.
    UnknownSpi,
    /// First packets through a Child SA.
    Inbound,
    /// Child SAs of a replaced IKE SA.
    Inherit,
    /// Loss against the peer's successor.
    Discard,
    /// Another path of the successor.
    FollowPath,
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(exchange) => write!(f, "{exchange} request"),
            Self::Response(exchange) => write!(f, "{exchange} response"),
            Self::CallerResponse(kind) => write!(f, "answer {kind}"),
            other => fmt::Debug::fmt(other, f),
        }
    }
}

/// An event that has no place in the state of its IKE SA. The endpoint counts them
/// ([`crate::endpoint::Counters::wrong_state`], [`crate::Endpoint::wrong_states`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[error("{event} has no place in state {state}")]
pub struct WrongState {
    /// State of the IKE SA.
    pub state: StateName,
    /// Event that came.
    pub event: EventName,
}

/// End of an IKE SA by an event.
pub(crate) struct Failure {
    pub(crate) reason: Box<Reason>,
    pub(crate) kind: FailureKind,
}

/// Consequence of a failure besides the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The peer may repeat what was answered: the IKE SA lingers.
    Lingers,
    /// Nobody asks again: nothing is kept.
    Gone,
    /// The event had no place in the state; else as [`Self::Lingers`].
    WrongState,
}

impl Failure {
    /// Ends an IKE SA of which nothing need be kept.
    pub(crate) fn gone(reason: Reason) -> Self {
        Self {
            reason: Box::new(reason),
            kind: FailureKind::Gone,
        }
    }

    /// Ends an IKE SA by an event without a place.
    pub(crate) fn wrong_state(reason: Reason) -> Self {
        Self {
            reason: Box::new(reason),
            kind: FailureKind::WrongState,
        }
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self {
            reason: Box::new(reason),
            kind: FailureKind::Lingers,
        }
    }
}
