//! IKE SAs in every state, as far as possible by the messages that lead there.

use std::net::SocketAddr;
use std::sync::Arc;

use offload::Encryption;
use zeroize::Zeroizing;

use super::super::core::Core;
use super::super::established::EstablishedState;
use super::super::initiator::InitiatorStep;
use super::super::responder::ResponderStep;
use super::super::{IkeSa, State, StateName};
use crate::auth::{AuthorizedPeer, OurProof, PeerVerified, Scheme, verify_shared_key};
use crate::authorization::{Authorization, Holder};
use crate::config::{
    Addresses, ChildConfig, ClientMethod, Connection, Limits, LocalAuth, Mode, PeerId, Psk,
    RemoteAuth, ServerMethod,
};
use crate::crypto::{Group, Pending, Prf};
use crate::event::{Event, Reason, Request, RequestId, Response};
use crate::select::{EspProposal, IkeProposal};
use crate::time::Timestamp;
use crate::types::Path;
use crate::wire::{Datagram, Identification, TrafficSelector};

/// Random bytes that repeat from run to run.
struct Repeating(u64);

impl crate::Random for Repeating {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

pub(super) fn path(side: usize) -> Path {
    let end = |side: usize| SocketAddr::from(([192, 0, 2, side as u8 + 1], 500));
    Path::udp(end(side), end(1 - side))
}

fn secret() -> Psk {
    Psk::new(b"a secret for this test")
}

pub(super) fn connection(side: usize, eap: bool) -> Connection {
    let name =
        |side: usize| Identification::fqdn(["camera.example.org", "gateway.example.org"][side]);
    let net = |side: u8| vec![TrafficSelector::network([10, side, 0, 0].into(), 16).unwrap()];
    let (mut local_auth, mut remote_auth) = (LocalAuth::Psk(secret()), RemoteAuth::Psk(secret()));
    if eap && side == 0 {
        local_auth = LocalAuth::Eap {
            identity: "somebody".into(),
            method: ClientMethod::MsChapV2,
        };
    }
    if eap && side == 1 {
        remote_auth = RemoteAuth::Eap {
            methods: vec![ServerMethod::MsChapV2],
        };
    }
    Connection {
        name: "tunnel".into(),
        remote_address: None,
        local_id: name(side),
        remote_id: PeerId::Any,
        local_auth,
        remote_auth,
        ppk: None,
        mobility: true,
        further_addresses: vec![],
        addresses: Addresses::None,
        ike: vec![IkeProposal {
            encryption: vec![Encryption::AesGcm128],
            integrity: vec![],
            prf: vec![Prf::HmacSha256],
            groups: vec![Group::X25519],
            additional: vec![],
        }],
        children: vec![ChildConfig {
            name: "net".into(),
            mode: Mode::Tunnel,
            local: net(side as u8),
            remote: net(1 - side as u8),
            esp: vec![EspProposal {
                encryption: vec![Encryption::AesGcm128],
                integrity: vec![],
                groups: vec![],
                additional: vec![],
                without_group: true,
                extended_sequence: vec![true],
            }],
            rekey_after: None,
        }],
        rekey_after: None,
        liveness: None,
        retransmission: None,
        unique: crate::config::Unique::Replace,
    }
}

/// Two IKE SAs of one another, with what their endpoints would have.
struct Pair {
    cores: [Core; 2],
    sas: [Option<IkeSa>; 2],
}

impl Pair {
    /// The initiator's first request is out.
    fn new(eap: bool) -> Self {
        let mut cores = [1, 2].map(|seed| {
            Core::new(
                Limits::default(),
                Box::new(Repeating(seed)),
                Timestamp::default(),
            )
        });
        let connection = Arc::new(connection(0, eap));
        let sa = IkeSa::initiate(&mut cores[0], connection, path(0));
        Self {
            cores,
            sas: [sa, None],
        }
    }

    /// Carries one datagram to `side`; false if none is on its way.
    fn carry(&mut self, side: usize, eap: bool) -> bool {
        let Some(sent) = self.cores[1 - side].transmits.pop_front() else {
            return false;
        };
        // On the port for NAT traversal there is a marker.
        let nat_port = self.cores[side].limits.nat_port;
        let marker = if sent.local.port() == nat_port { 4 } else { 0 };
        let bytes = &sent.payload[marker..];
        let datagram = Datagram::parse(bytes).unwrap();
        let came = Path::udp(sent.remote, sent.local);
        let core = &mut self.cores[side];
        match &mut self.sas[side] {
            Some(sa) => sa.handle(core, came, &datagram, bytes).unwrap(),
            None => {
                let candidates = [Arc::new(connection(side, eap))];
                let sa = IkeSa::respond(core, &candidates, came, &datagram, bytes);
                self.sas[side] = Some(sa.unwrap_or_else(|_| panic!("a responder")));
            }
        }
        true
    }

    /// Answers the question what the peer may have.
    fn authorize(&mut self, side: usize) {
        let core = &mut self.cores[side];
        let asked = core.events.iter().find_map(|event| match event {
            Event::Request(pending, Request::Authorize { .. }) => Some(*pending),
            _ => None,
        });
        let pending = asked.expect("a question");
        let sa = self.sas[side].as_mut().unwrap();
        sa.on_caller_response(core, pending, Response::Authorized(Box::new(may(side))))
            .unwrap();
    }

    fn take(mut self, side: usize) -> (Core, IkeSa) {
        let sa = self.sas[side].take().unwrap();
        let [first, second] = self.cores;
        (if side == 0 { first } else { second }, sa)
    }
}

pub(super) fn may(side: usize) -> Authorization {
    Authorization::of_connection(&connection(side, false), Holder::new(b"peer"))
}

/// Somebody whose proof was good.
fn verified() -> PeerVerified {
    let id = Identification::fqdn("peer.example.org");
    let octets = crate::auth::SignedOctets::new(Prf::HmacSha256, &[1; 32], b"", b"", &id, None);
    let proof = octets.shared_key(Prf::HmacSha256, &secret());
    verify_shared_key(Prf::HmacSha256, &secret(), &octets, &proof, &id).unwrap()
}

fn our_proof() -> OurProof {
    let id = Identification::fqdn("peer.example.org");
    let octets = crate::auth::SignedOctets::new(Prf::HmacSha256, &[1; 32], b"", b"", &id, None);
    OurProof::new(&octets.shared_key(Prf::HmacSha256, &secret()))
}

pub(super) const ASKED: RequestId = RequestId(77);

/// An IKE SA in this state.
pub(super) fn in_state(name: StateName) -> (Core, IkeSa) {
    use StateName as S;
    let eap = matches!(
        name,
        S::EapStarted
            | S::EapVerifyingResponder
            | S::EapWorking
            | S::EapSent
            | S::EapProofSent
            | S::EapSigning
            | S::EapExpecting
            | S::EapAsking
            | S::EapSucceeded
    );
    let mut pair = Pair::new(eap);
    if matches!(name, S::InitSent | S::SolvingPuzzle) {
        let (core, mut sa) = pair.take(0);
        if name == S::SolvingPuzzle {
            let state = std::mem::replace(&mut sa.state, State::Moving);
            let State::InitSent(init) = state else {
                panic!("the first request is out")
            };
            sa.common.channel.complete_request();
            sa.state = State::SolvingPuzzle(init, ASKED);
        }
        return (core, sa);
    }
    assert!(pair.carry(1, eap), "IKE_SA_INIT");
    let responder = matches!(
        name,
        S::InitAnswered
            | S::VerifyingInitiator
            | S::ReviewingInitiator
            | S::AuthorizingInitiator
            | S::SigningResponse
            | S::EapSigning
            | S::EapExpecting
            | S::EapAsking
            | S::EapSucceeded
    );
    if responder && eap {
        assert!(pair.carry(0, eap) && pair.carry(1, eap), "IKE_AUTH");
    }
    if responder {
        let (core, mut sa) = pair.take(1);
        let State::Responder(responder, step) = std::mem::replace(&mut sa.state, State::Moving)
        else {
            panic!("a responder")
        };
        sa.state = State::Responder(responder, responder_step(name, step));
        return (core, sa);
    }
    assert!(pair.carry(0, eap), "the response to IKE_SA_INIT");
    if matches!(
        name,
        S::Live | S::CollisionPending | S::Replaced | S::Redundant | S::Closed
    ) {
        assert!(pair.carry(1, eap), "IKE_AUTH");
        pair.authorize(1);
        assert!(pair.carry(0, eap), "the response to IKE_AUTH");
        pair.authorize(0);
        let (mut core, mut sa) = pair.take(0);
        match (&mut sa.state, name) {
            (State::Established(established), _) if name != S::Closed => {
                established.state = match name {
                    S::CollisionPending => EstablishedState::CollisionPending,
                    S::Replaced => EstablishedState::Replaced,
                    S::Redundant => EstablishedState::Redundant,
                    _ => EstablishedState::Live,
                };
            }
            _ => sa.down(&mut core, Reason::Local),
        }
        return (core, sa);
    }
    let (core, mut sa) = pair.take(0);
    let State::Initiator(initiator, step) = std::mem::replace(&mut sa.state, State::Moving) else {
        panic!("an initiator")
    };
    sa.state = State::Initiator(initiator, initiator_step(name, step));
    (core, sa)
}

fn scheme() -> Scheme {
    Scheme::for_peer(crate::config::KeyKind::EcdsaP256, None).unwrap()
}

fn initiator_step(name: StateName, step: InitiatorStep) -> InitiatorStep {
    use InitiatorStep as Step;
    let (pending, ours, response) = (ASKED, our_proof(), Vec::new());
    let peer = verified();
    let run = match step {
        Step::EapStarted(run) => Some(run),
        _ => None,
    };
    match (name, run) {
        (StateName::IntermediateSent, _) => Step::IntermediateSent {
            pending: Box::new(Pending::start(Group::P256, &mut Repeating(3)).unwrap()),
            request: Zeroizing::new(Vec::new()),
        },
        (StateName::SigningRequest, _) => Step::Signing {
            pending,
            scheme: scheme(),
            fallback: false,
        },
        (StateName::AuthSent, _) => Step::AuthSent { ours },
        (StateName::VerifyingResponder, _) => Step::Verifying {
            pending,
            ours,
            response,
        },
        (StateName::ReviewingResponder, _) => Step::Reviewing {
            pending,
            peer,
            ours,
            response,
        },
        (StateName::AuthorizingResponder, _) => Step::Authorizing {
            pending,
            peer,
            ours,
            response,
        },
        (StateName::EapStarted, Some(run)) => Step::EapStarted(run),
        (StateName::EapVerifyingResponder, Some(run)) => Step::EapVerifying {
            pending,
            run,
            response,
        },
        (StateName::EapWorking, Some(run)) => Step::EapWorking { pending, run },
        (StateName::EapSent, Some(run)) => Step::EapSent(run),
        (StateName::EapProofSent, Some(run)) => Step::EapProofSent {
            run,
            ours,
            key: secret(),
        },
        (name, _) => panic!("{name} is no state of an initiator"),
    }
}

fn responder_step(name: StateName, step: ResponderStep) -> ResponderStep {
    use ResponderStep as Step;
    let (pending, request) = (ASKED, Vec::new());
    let peer = verified();
    let run = match step {
        Step::EapExpecting(run) => Some(run),
        _ => None,
    };
    match (name, run) {
        (StateName::InitAnswered, _) => Step::InitAnswered,
        (StateName::VerifyingInitiator, _) => Step::Verifying { pending, request },
        (StateName::ReviewingInitiator, _) => Step::Reviewing {
            pending,
            peer,
            request,
        },
        (StateName::AuthorizingInitiator, _) => Step::Authorizing {
            pending,
            peer,
            request,
        },
        (StateName::SigningResponse, _) => Step::Signing {
            pending,
            scheme: scheme(),
            peer: AuthorizedPeer::new(peer, may(1)),
            request,
        },
        (StateName::EapSigning, Some(run)) => Step::EapSigning {
            pending,
            scheme: scheme(),
            run,
            first: Vec::new(),
        },
        (StateName::EapExpecting, Some(run)) => Step::EapExpecting(run),
        (StateName::EapAsking, Some(run)) => Step::EapAsking { pending, run },
        (StateName::EapSucceeded, Some(run)) => Step::EapSucceeded {
            run,
            key: secret(),
            who: Identification::fqdn("somebody"),
        },
        (name, _) => panic!("{name} is no state of a responder"),
    }
}
