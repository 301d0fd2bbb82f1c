//! IKE_SA_INIT and IKE_INTERMEDIATE as responder (RFC 7296 §1.2, RFC 9242).
//!
//! ```text
//! HDR, SAi1, KEi, Ni  -->
//!                     <--  HDR, SAr1, KEr, Nr [, CERTREQ]
//! HDR, SK {KEi(n)}    -->                                     IKE_INTERMEDIATE, for each additional key exchange
//!                     <--  HDR, SK {KEr(n)}
//! ```

use std::sync::Arc;

use super::candidates::{choose_suite, offers};
use super::channel::Channel;
use super::child::{invalid_ke, respond_key_exchange};
use super::common::Common;
use super::core::Core;
use super::handshake::{
    FirstMessages, Handshake, RequestedCertificates, announced_hashes, capabilities,
};
use super::nat::{self, Nat};
use super::payloads::{find, has_notify};
use super::state::{Failure, StateName};
use crate::auth::{AuthorizedPeer, IntermediateAuth, PeerVerified, Scheme};
use crate::config::{Connection, Psk};
use crate::crypto::{IkeKeys, respond};
use crate::diagnosis::{AuthenticationFailure, Difference, Setting};
use crate::eap::Server;
use crate::event::{Reason, RequestId};
use crate::select::NegotiationFailure;
use crate::types::{Nonces, Path, SpiPair};
use crate::wire::{
    Authentication, Datagram, ExchangeType, Flags, Header, Identification, KeyExchange, Notify,
    NotifyType, Payload, PayloadType, encode_clear,
};

/// A first request that gets no IKE SA.
pub(crate) enum Refused {
    /// Not worth an answer.
    Silently,
    /// Answered with this notification, for this reason.
    With(Notify, Option<Box<NegotiationFailure>>),
}

/// An IKE SA with keys but without proof, as responder.
pub(crate) struct Responder {
    pub(super) handshake: Handshake,
    /// Connections for the peer's address, whatever their algorithms.
    pub(super) known: Vec<Arc<Connection>>,
    /// Those that the peer may turn out to mean.
    pub(super) candidates: Vec<Arc<Connection>>,
    /// Sets of authorities to which the peer's chain does not lead.
    pub(super) searches: u8,
    /// Key with which we prove ourselves after EAP.
    pub(super) eap_key: Option<Psk>,
}

/// EAP under way as server.
pub(crate) struct ServerRun {
    pub(super) server: Server,
    /// The first IKE_AUTH request: identity, SA, traffic selectors, configuration.
    pub(super) request: Vec<Payload>,
}

/// Step of a handshake as responder, with what is needed to go on.
pub(crate) enum ResponderStep {
    /// The first request is answered, the next is to come.
    InitAnswered,
    /// The caller validates the peer's certificates.
    Verifying {
        pending: RequestId,
        request: Vec<Payload>,
    },
    /// The caller says whether the peer is still welcome.
    Reviewing {
        pending: RequestId,
        peer: PeerVerified,
        request: Vec<Payload>,
    },
    /// The caller says what the peer may have.
    Authorizing {
        pending: RequestId,
        peer: PeerVerified,
        request: Vec<Payload>,
    },
    /// The caller signs.
    Signing {
        pending: RequestId,
        scheme: Scheme,
        peer: AuthorizedPeer,
        request: Vec<Payload>,
    },
    /// EAP: the caller signs.
    EapSigning {
        pending: RequestId,
        scheme: Scheme,
        run: Box<ServerRun>,
        first: Vec<u8>,
    },
    /// EAP: the client's turn.
    EapExpecting(Box<ServerRun>),
    /// EAP: the caller looks for the password, has TLS work, or validates certificates.
    EapAsking {
        pending: RequestId,
        run: Box<ServerRun>,
    },
    /// EAP: the peer's proof with the session key is to come.
    EapSucceeded {
        run: Box<ServerRun>,
        key: Psk,
        who: Identification,
    },
}

impl ResponderStep {
    pub(super) const fn name(&self) -> StateName {
        match self {
            Self::InitAnswered => StateName::InitAnswered,
            Self::Verifying { .. } => StateName::VerifyingInitiator,
            Self::Reviewing { .. } => StateName::ReviewingInitiator,
            Self::Authorizing { .. } => StateName::AuthorizingInitiator,
            Self::Signing { .. } => StateName::SigningResponse,
            Self::EapSigning { .. } => StateName::EapSigning,
            Self::EapExpecting(_) => StateName::EapExpecting,
            Self::EapAsking { .. } => StateName::EapAsking,
            Self::EapSucceeded { .. } => StateName::EapSucceeded,
        }
    }

    pub(super) fn waits_for(&self, id: RequestId) -> bool {
        match self {
            Self::Verifying { pending, .. }
            | Self::Reviewing { pending, .. }
            | Self::Authorizing { pending, .. }
            | Self::Signing { pending, .. }
            | Self::EapSigning { pending, .. }
            | Self::EapAsking { pending, .. } => *pending == id,
            Self::InitAnswered | Self::EapExpecting(_) | Self::EapSucceeded { .. } => false,
        }
    }
}

/// Continuation of a handshake as responder.
pub(crate) enum ResponderNext {
    Wait(ResponderStep),
    /// Both sides have proved who they are; ours is still to be sent.
    Finish(ResponderFinish),
}

/// Everything that the last step of a responder needs. `request` is the first IKE_AUTH request.
pub(crate) struct ResponderFinish {
    pub(super) peer: AuthorizedPeer,
    pub(super) request: Vec<Payload>,
    pub(super) proof: Authentication,
}

impl Responder {
    /// Why the peer may have gone after our first answer: it wants a post-quantum preshared key (RFC 8784 §3), and none of
    /// the connections that it may mean has one.
    pub(super) fn unmet(&self) -> Option<Reason> {
        let request = Datagram::parse(&self.handshake.first.request).ok()?;
        let wants = has_notify(&request.clear, NotifyType::USE_PPK);
        let has = self.candidates.iter().any(|one| one.ppk.is_some());
        let difference = Difference::new(Setting::Ppk, "wants one", "none");
        let failure = AuthenticationFailure::new("peer went without a proof", difference);
        (wants && !has).then_some(Reason::Authentication(failure))
    }

    /// Answers a first request with an IKE SA, or says why not (RFC 7296 §1.2).
    ///
    /// ```text
    /// HDR, SAi1, KEi, Ni  -->
    ///                     <--  HDR, SAr1, KEr, Nr [, CERTREQ] [, N(...)]
    /// ```
    pub(super) fn begin(
        core: &mut Core,
        candidates: &[Arc<Connection>],
        path: Path,
        datagram: &Datagram,
        bytes: &[u8],
    ) -> Result<(Common, Box<Self>), Refused> {
        let payloads = &datagram.clear;
        let (Some(offered), Some(ke), Some(nonce_i)) = (
            find!(payloads, Payload::Sa),
            find!(payloads, Payload::Ke),
            find!(payloads, Payload::Nonce),
        ) else {
            return Err(Refused::With(Notify::new(NotifyType::INVALID_SYNTAX), None));
        };
        // First all that costs nothing: the sender may be anybody, and has not paid for a key exchange either.
        let all = candidates.to_vec();
        let (suite, chosen, candidates) = choose_suite(candidates, offered, ke.method)?;
        // The initiator's guess was wrong; it tries again with the group that we name (§1.2).
        if ke.method != suite.group.id() {
            return Err(Refused::With(invalid_ke(suite.group.id()), None));
        }
        let connection = candidates.first().cloned().ok_or(Refused::Silently)?;
        let intermediate = has_notify(payloads, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED);
        // There would be no exchange to carry the additional key exchanges (RFC 9370 §2.2.2).
        if !suite.additional.is_empty() && !intermediate {
            return Err(Refused::With(
                Notify::new(NotifyType::NO_PROPOSAL_CHOSEN),
                None,
            ));
        }
        let (public, shared) = respond(suite.group, &ke.data, &mut *core.random)
            .map_err(|_| Refused::With(Notify::new(NotifyType::INVALID_SYNTAX), None))?;
        let spi_i = datagram.header.spi_i;
        let spis = SpiPair {
            initiator: spi_i,
            responder: core.ike_spi(),
        };
        let nonces = Nonces {
            initiator: nonce_i.clone(),
            responder: core.nonce(),
        };
        let keys = IkeKeys::initial(&suite, &shared, &nonces, spis).ok_or(Refused::Silently)?;
        let mut channel = Channel::new(core, &connection, path, spis, false);
        if !channel.set_keys(&suite, &keys) {
            return Err(Refused::Silently);
        }
        channel.fragmentation = has_notify(payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
        let mut reply = vec![
            Payload::Sa(vec![chosen]),
            Payload::Ke(KeyExchange {
                method: suite.group.id(),
                data: public,
            }),
            Payload::Nonce(nonces.responder.clone()),
        ];
        reply.extend(nat::notifies(core.limits.always_udp, spis, path));
        reply.extend(capabilities(!suite.additional.is_empty()));
        reply.extend(offers(&candidates, payloads));
        let response = encode_clear(init_header(ExchangeType::IKE_SA_INIT, spis), &reply);
        channel.respond_clear(core, bytes, response.clone());
        let handshake = Handshake {
            additional: suite.additional.clone().into(),
            suite,
            keys,
            spis,
            nonces,
            first: FirstMessages {
                request: bytes.to_vec(),
                response,
            },
            peer_hashes: announced_hashes(payloads),
            intermediate: IntermediateAuth::default(),
            auth_id: None,
            wanted: RequestedCertificates::default(),
            credential: 0,
            ppk: false,
            resumed: None,
        };
        // The initiator could not know our SPI yet.
        let known = SpiPair::of_initiator(spi_i);
        let nat = Nat::from_payloads(core.limits.always_udp, payloads, known, path);
        let responder = Self {
            handshake,
            known: all,
            candidates,
            searches: 0,
            eap_key: None,
        };
        let common = Common::half_open(core, connection, channel, nat);
        Ok((common, Box::new(responder)))
    }

    /// Handles an authenticated message: exchange, whether it is a response, payloads.
    pub(super) fn on_message(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        step: ResponderStep,
        (exchange, response, payloads): (ExchangeType, bool, Vec<Payload>),
        logical: &[u8],
    ) -> Result<ResponderNext, Failure> {
        match (exchange, response, step) {
            (ExchangeType::IKE_INTERMEDIATE, false, ResponderStep::InitAnswered) => {
                self.on_intermediate_request(sa, core, &payloads, logical)
            }
            (ExchangeType::IKE_INTERMEDIATE, false, _) => {
                Err(sa.out_of_place(core, exchange, false, "unexpected IKE_INTERMEDIATE"))
            }
            (ExchangeType::IKE_AUTH, false, step) => self.on_auth_request(sa, core, step, payloads),
            (ExchangeType::INFORMATIONAL, false, ResponderStep::EapExpecting(run)) => {
                Err(Self::on_eap_given_up(sa, core, *run, &payloads))
            }
            _ => Err(sa.out_of_place(core, exchange, response, "exchange out of place")),
        }
    }

    /// Answers an additional key exchange (RFC 9242 §3.2, RFC 9370 §2.2.2); `request` is the message as the proofs
    /// cover it.
    ///
    /// ```text
    /// HDR(IKE_INTERMEDIATE), SK {KEi(n)}  -->
    ///                                     <--  HDR(IKE_INTERMEDIATE), SK {KEr(n)}
    /// ```
    fn on_intermediate_request(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        payloads: &[Payload],
        request: &[u8],
    ) -> Result<ResponderNext, Failure> {
        let handshake = &mut self.handshake;
        let exchange = ExchangeType::IKE_INTERMEDIATE;
        let group = handshake.additional.pop_front();
        let answer = respond_key_exchange(core, group, find!(payloads, Payload::Ke));
        let Ok(Some((ke, shared))) = answer else {
            let notify = Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX));
            sa.channel.respond(core, exchange, &[notify]);
            return Err(Reason::Protocol("unexpected IKE_INTERMEDIATE").into());
        };
        let reply = [Payload::Ke(ke)];
        let message_id = sa.channel.next_expected();
        let response = sa.channel.logical(exchange, true, message_id, &reply);
        // Still with the keys of the request: the new ones are for what follows.
        sa.channel.respond(core, exchange, &reply);
        handshake
            .intermediate
            .add(&handshake.keys, request, &response);
        if !handshake.update_keys(&mut sa.channel, &shared) {
            return Err(Reason::Protocol("key material").into());
        }
        Ok(ResponderNext::Wait(ResponderStep::InitAnswered))
    }
}

pub(super) fn init_header(exchange: ExchangeType, spis: SpiPair) -> Header {
    Header {
        spi_i: spis.initiator,
        spi_r: spis.responder,
        first: PayloadType::NONE,
        exchange,
        flags: Flags {
            initiator: false,
            response: true,
        },
        message_id: 0,
    }
}

/// A response to a first request that gets no IKE SA.
pub(crate) fn init_notify(request: &Datagram, notify: Notify) -> Vec<u8> {
    init_notifies(request, &[Payload::Notify(notify)])
}

/// The same with several notifications.
pub(crate) fn init_notifies(request: &Datagram, payloads: &[Payload]) -> Vec<u8> {
    let spis = SpiPair::of_initiator(request.header.spi_i);
    encode_clear(init_header(request.header.exchange, spis), payloads)
}
