//! Parts that an IKE SA has in every state.

use std::sync::Arc;

use super::channel::Channel;
use super::core::Core;
use super::nat::Nat;
use super::state::Failure;
use crate::config::Connection;
use crate::event::Reason;
use crate::time::Timestamp;
use crate::types::IkeId;
use crate::wire::{ExchangeType, Notify, NotifyType, Payload};

/// Parts that an IKE SA has in every state.
pub(crate) struct Common {
    pub(crate) id: IkeId,
    pub(crate) connection: Arc<Connection>,
    pub(super) channel: Channel,
    pub(super) nat: Nat,
    /// When its first message was sent or came ([`Core::moment`]).
    pub(super) begun: u64,
    /// End of the handshake, of lingering, or of waiting for a successor's fate.
    pub(super) deadline: Option<Timestamp>,
}

impl Common {
    /// Of an IKE SA whose first request is answered.
    pub(super) fn half_open(
        core: &mut Core,
        connection: Arc<Connection>,
        channel: Channel,
        nat: Nat,
    ) -> Self {
        Self {
            id: IkeId(channel.spis.responder),
            connection,
            channel,
            nat,
            begun: core.moment(),
            deadline: Some(core.now.after(core.limits.handshake_time)),
        }
    }

    /// Takes it that the IKE SA is of this connection: the peer has said who it is.
    pub(super) fn belongs_to(&mut self, core: &Core, connection: Arc<Connection>) {
        self.channel.retransmit_as(core, &connection);
        self.connection = connection;
    }

    /// Answers a request that has no place in the state as RFC 7296 §2.21.3 asks for; a response is not
    /// answered. Either ends the IKE SA.
    pub(super) fn out_of_place(
        &mut self,
        core: &mut Core,
        exchange: ExchangeType,
        response: bool,
        reason: &'static str,
    ) -> Failure {
        if !response {
            let notify = Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX));
            self.channel.respond(core, exchange, &[notify]);
        }
        Failure::wrong_state(Reason::Protocol(reason))
    }
}
