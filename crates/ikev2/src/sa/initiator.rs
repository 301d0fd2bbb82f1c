//! A handshake as initiator once there are keys: steps, and IKE_INTERMEDIATE (RFC 9242).
//!
//! ```text
//! HDR, SK {KEi(n)}    -->                                     IKE_INTERMEDIATE, for each additional key exchange
//!                     <--  HDR, SK {KEr(n)}
//! ```

use zeroize::Zeroizing;

use super::child::Offer;
use super::common::Common;
use super::core::Core;
use super::handshake::{Handshake, error_notify};
use super::payloads::find;
use super::state::{Failure, StateName};
use crate::auth::{AuthorizedPeer, OurProof, PeerVerified, Scheme};
use crate::config::Psk;
use crate::crypto::{Pending, Unmixed};
use crate::eap::Client;
use crate::event::{Reason, RequestId};
use crate::wire::{ExchangeType, Identification, KeyExchange, Notify, NotifyType, Payload};

/// An IKE SA with keys but without proof, as initiator.
pub(crate) struct Initiator {
    pub(super) handshake: Handshake,
    /// What we offer for the first Child SA.
    pub(super) offer: Option<Offer>,
    /// Whether the peer takes an IKE_AUTH without Child SA.
    pub(super) childless: bool,
    /// Keys and proof for a responder that turns out not to have our post-quantum preshared key.
    pub(super) unmixed: Option<Unmixed>,
    pub(super) fallback: Option<Vec<u8>>,
}

/// EAP under way as client.
pub(crate) struct ClientRun {
    pub(super) client: Client,
    /// The responder, once it has proved itself.
    pub(super) responder: Option<(PeerVerified, Identification)>,
}

/// Step of a handshake as initiator, with what is needed to go on.
pub(crate) enum InitiatorStep {
    /// An IKE_INTERMEDIATE request is out.
    IntermediateSent {
        pending: Box<Pending>,
        request: Zeroizing<Vec<u8>>,
    },
    /// The caller signs, `fallback` what is for a responder without our post-quantum key.
    Signing {
        pending: RequestId,
        scheme: Scheme,
        fallback: bool,
    },
    /// IKE_AUTH is out.
    AuthSent { ours: OurProof },
    /// The caller validates the peer's certificates.
    Verifying {
        pending: RequestId,
        ours: OurProof,
        response: Vec<Payload>,
    },
    /// The caller says whether the peer is still welcome.
    Reviewing {
        pending: RequestId,
        peer: PeerVerified,
        ours: OurProof,
        response: Vec<Payload>,
    },
    /// The caller says what the peer may have.
    Authorizing {
        pending: RequestId,
        peer: PeerVerified,
        ours: OurProof,
        response: Vec<Payload>,
    },
    /// EAP: the first IKE_AUTH is out.
    EapStarted(Box<ClientRun>),
    /// EAP: the caller validates the peer's certificates.
    EapVerifying {
        pending: RequestId,
        run: Box<ClientRun>,
        response: Vec<Payload>,
    },
    /// EAP: the caller fetches the password, or has TLS work.
    EapWorking {
        pending: RequestId,
        run: Box<ClientRun>,
    },
    /// EAP: a response is out.
    EapSent(Box<ClientRun>),
    /// EAP: our proof with the session key is out.
    EapProofSent {
        run: Box<ClientRun>,
        ours: OurProof,
        key: Psk,
    },
}

impl InitiatorStep {
    pub(super) const fn name(&self) -> StateName {
        match self {
            Self::IntermediateSent { .. } => StateName::IntermediateSent,
            Self::Signing { .. } => StateName::SigningRequest,
            Self::AuthSent { .. } => StateName::AuthSent,
            Self::Verifying { .. } => StateName::VerifyingResponder,
            Self::Reviewing { .. } => StateName::ReviewingResponder,
            Self::Authorizing { .. } => StateName::AuthorizingResponder,
            Self::EapStarted(_) => StateName::EapStarted,
            Self::EapVerifying { .. } => StateName::EapVerifyingResponder,
            Self::EapWorking { .. } => StateName::EapWorking,
            Self::EapSent(_) => StateName::EapSent,
            Self::EapProofSent { .. } => StateName::EapProofSent,
        }
    }

    /// Tells whether the responder has what makes the IKE SA up for it, or is about to have it.
    pub(super) const fn proof_is_out(&self) -> bool {
        matches!(
            self,
            Self::AuthSent { .. }
                | Self::Verifying { .. }
                | Self::Reviewing { .. }
                | Self::Authorizing { .. }
                | Self::EapProofSent { .. }
        )
    }

    pub(super) fn waits_for(&self, id: RequestId) -> bool {
        match self {
            Self::Signing { pending, .. }
            | Self::Verifying { pending, .. }
            | Self::Reviewing { pending, .. }
            | Self::Authorizing { pending, .. }
            | Self::EapVerifying { pending, .. }
            | Self::EapWorking { pending, .. } => *pending == id,
            Self::IntermediateSent { .. }
            | Self::AuthSent { .. }
            | Self::EapStarted(_)
            | Self::EapSent(_)
            | Self::EapProofSent { .. } => false,
        }
    }
}

/// Continuation of a handshake as initiator.
pub(crate) enum InitiatorNext {
    Wait(InitiatorStep),
    /// Both sides have proved who they are.
    Finish(InitiatorFinish),
}

/// Everything that the last step of an initiator needs.
pub(crate) struct InitiatorFinish {
    pub(super) peer: AuthorizedPeer,
    pub(super) ours: OurProof,
    pub(super) response: Vec<Payload>,
}

impl Initiator {
    pub(super) const fn new(handshake: Handshake) -> Self {
        Self {
            handshake,
            offer: None,
            childless: true,
            unmixed: None,
            fallback: None,
        }
    }

    pub(super) fn release(self, core: &mut Core) {
        if let Some(offer) = self.offer {
            core.free_esp_spi(offer.spi_in);
        }
    }

    /// Handles an authenticated message: exchange, whether it is a response, payloads.
    pub(super) fn on_message(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        step: InitiatorStep,
        (exchange, response, payloads): (ExchangeType, bool, Vec<Payload>),
        logical: &[u8],
    ) -> Result<InitiatorNext, Failure> {
        match (exchange, response, step) {
            (
                ExchangeType::IKE_INTERMEDIATE,
                true,
                InitiatorStep::IntermediateSent { pending, request },
            ) => self.on_intermediate_response(
                sa,
                core,
                &pending,
                (request.as_slice(), logical),
                &payloads,
            ),
            (ExchangeType::IKE_INTERMEDIATE, response, _) => {
                Err(sa.out_of_place(core, exchange, response, "unexpected IKE_INTERMEDIATE"))
            }
            (ExchangeType::IKE_AUTH, true, step) => self.on_auth_response(sa, core, step, payloads),
            // Nobody authenticates with whom it has not started, and no failed proof is told from another (§2.21.2).
            (ExchangeType::IKE_AUTH, false, _) => {
                let notify = Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED));
                sa.channel.respond(core, exchange, &[notify]);
                let reason = Reason::Authentication("IKE_AUTH by the responder".into());
                Err(Failure::wrong_state(reason))
            }
            // The responder is further than we are: its IKE_AUTH response is still on its way.
            (_, false, step) => {
                sa.channel.leave_unanswered();
                Ok(InitiatorNext::Wait(step))
            }
            (_, true, _) => Err(sa.out_of_place(core, exchange, true, "exchange out of place")),
        }
    }

    /// Sends the next additional key exchange (RFC 9242 §3.2, RFC 9370 §2.2.2), or the proof.
    ///
    /// ```text
    /// HDR(IKE_INTERMEDIATE), SK {KEi(n)}  -->
    /// ```
    pub(super) fn next_step(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
    ) -> Result<InitiatorNext, Failure> {
        let Some(group) = self.handshake.additional.pop_front() else {
            return self.authenticate(sa, core);
        };
        let pending = Pending::start(group, &mut *core.random);
        let pending = pending.map_err(|_| Reason::Protocol("key exchange"))?;
        let (method, data) = (group.id(), pending.public().to_vec());
        let payloads = [Payload::Ke(KeyExchange { method, data })];
        let exchange = ExchangeType::IKE_INTERMEDIATE;
        let message_id = sa.channel.next_request();
        // As if it were not encrypted: this is what the proofs cover (RFC 9242 §3.3.2).
        let request = sa.channel.logical(exchange, false, message_id, &payloads);
        sa.channel.request(core, exchange, &payloads);
        Ok(InitiatorNext::Wait(InitiatorStep::IntermediateSent {
            pending: Box::new(pending),
            request,
        }))
    }

    /// Takes the response to IKE_INTERMEDIATE; `logical` are request and response as the proofs cover them.
    ///
    /// ```text
    ///   <--  HDR(IKE_INTERMEDIATE), SK {KEr(n)}
    /// ```
    fn on_intermediate_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        pending: &Pending,
        (request, response): (&[u8], &[u8]),
        payloads: &[Payload],
    ) -> Result<InitiatorNext, Failure> {
        let ke = find!(payloads, Payload::Ke).filter(|ke| ke.method == pending.group().id());
        let shared = ke.and_then(|ke| pending.finish(&ke.data).ok());
        let Some(shared) = shared else {
            let error = error_notify(payloads);
            let reason = error.map_or(Reason::Protocol("key exchange"), Reason::Refused);
            return Err(reason.into());
        };
        let handshake = &mut self.handshake;
        // With the keys that protected this exchange, before they change.
        handshake
            .intermediate
            .add(&handshake.keys, request, response);
        if !handshake.update_keys(&mut sa.channel, &shared) {
            return Err(Reason::Protocol("key material").into());
        }
        self.next_step(sa, core)
    }
}
