//! What initiator and responder have in common until both have proved who they are.

use std::collections::VecDeque;

use zeroize::Zeroizing;

use super::IkeId;
use super::child::Offer;
use super::core::Core;
use super::eap_initiator::ClientRun;
use super::eap_responder::ServerRun;
use crate::auth::{
    AuthorizedPeer, HASHES, IntermediateAuth, OurProof, PeerVerified, Scheme, SignedOctets,
};
use crate::config::{Connection, Credential, LocalAuth, Ppk, Psk, RemoteAuth};
use crate::crypto::{Group, IkeKeys, Inputs, Pending, Unmixed};
use crate::event::{Ask, AskId};
use crate::select::IkeSuite;
use crate::wire::{
    CertEncoding, CertRequest, Certificate, HashId, Identification, Notify, NotifyType, Payload,
};

/// Where a handshake stands, with what is needed to go on.
pub(crate) enum Step {
    /// Initiator: an IKE_INTERMEDIATE request is out.
    IntermediateSent {
        pending: Box<Pending>,
        request: Zeroizing<Vec<u8>>,
    },
    /// Initiator: the caller signs, `fallback` what is for a responder without our post-quantum key.
    Signing {
        ask: AskId,
        scheme: Scheme,
        fallback: bool,
    },
    /// Initiator: IKE_AUTH is out.
    AuthSent { ours: OurProof },
    /// Initiator: the caller validates the peer's certificates.
    VerifyingResponder {
        ask: AskId,
        ours: OurProof,
        response: Vec<Payload>,
    },
    /// Initiator with EAP: the first IKE_AUTH is out.
    EapStarted(Box<ClientRun>),
    /// Initiator with EAP: the caller validates the peer's certificates.
    EapVerifying {
        ask: AskId,
        run: Box<ClientRun>,
        response: Vec<Payload>,
    },
    /// Initiator with EAP: the caller fetches the password, or has TLS work.
    EapAsked { ask: AskId, run: Box<ClientRun> },
    /// Initiator with EAP: an EAP response is out.
    EapSent(Box<ClientRun>),
    /// Initiator with EAP: our proof with the session key is out.
    EapProved {
        run: Box<ClientRun>,
        ours: OurProof,
        key: Psk,
    },
    /// Responder: the next request is to come.
    Expecting,
    /// Responder with EAP: the caller signs.
    EapSigning {
        ask: AskId,
        scheme: Scheme,
        run: Box<ServerRun>,
        first: Vec<u8>,
    },
    /// Responder with EAP: the client's turn.
    EapExpecting(Box<ServerRun>),
    /// Responder with EAP: the caller looks for the password, has TLS work, or validates certificates.
    EapAsking { ask: AskId, run: Box<ServerRun> },
    /// Responder with EAP: the peer's proof with the session key is to come.
    EapSucceeded {
        run: Box<ServerRun>,
        key: Psk,
        who: Identification,
    },
    /// Responder: the caller validates the peer's certificates.
    VerifyingInitiator { ask: AskId, request: Vec<Payload> },
    /// Initiator: the caller says what the peer may have.
    AuthorizingResponder {
        ask: AskId,
        peer: PeerVerified,
        ours: OurProof,
        response: Vec<Payload>,
    },
    /// Responder: the caller says what the peer may have.
    AuthorizingInitiator {
        ask: AskId,
        peer: PeerVerified,
        request: Vec<Payload>,
    },
    /// Responder: the caller signs.
    SigningResponse {
        ask: AskId,
        scheme: Scheme,
        peer: AuthorizedPeer,
        request: Vec<Payload>,
    },
    /// Between steps.
    Moving,
}

/// An IKE SA with keys but without proof.
pub(crate) struct Handshake {
    pub(crate) suite: IkeSuite,
    pub(crate) keys: IkeKeys,
    pub(crate) spis: (u64, u64),
    pub(crate) nonces: (Vec<u8>, Vec<u8>),
    /// Request and response of IKE_SA_INIT as they were on the wire.
    pub(crate) first: (Vec<u8>, Vec<u8>),
    pub(crate) peer_hashes: Option<Vec<HashId>>,
    pub(crate) additional: VecDeque<Group>,
    pub(crate) intermediate: IntermediateAuth,
    pub(crate) step: Step,
    /// Initiator: what we offer for the first Child SA.
    pub(crate) offer: Option<Offer>,
    /// Whether the peer takes an IKE_AUTH without Child SA.
    pub(crate) childless: bool,
    /// Responder: connections that the peer may turn out to mean.
    pub(crate) candidates: Vec<std::sync::Arc<Connection>>,
    /// Number of the first IKE_AUTH request, once there are several.
    pub(crate) auth_id: Option<u32>,
    /// Responder: with what we prove ourselves after EAP.
    pub(crate) eap_key: Option<Psk>,
    /// Authorities that the peer asks for, 20 bytes each, and whether it asks for OCSP responses.
    pub(crate) wanted: Wanted,
    /// Index of the credential with which we prove ourselves.
    pub(crate) credential: usize,
    /// Whether both sides use the post-quantum preshared key, as far as is known.
    pub(crate) ppk: bool,
    /// Initiator: keys and proof for a responder that turns out not to have it.
    pub(crate) unmixed: Option<Unmixed>,
    pub(crate) fallback: Option<Vec<u8>>,
}

/// What the peer wants of our certificates (RFC 7296 §3.7, RFC 4806).
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    authorities: Vec<u8>,
    ocsp: bool,
}

impl Wanted {
    /// Reads the certificate requests of a message.
    pub(crate) fn by(payloads: &[Payload]) -> Self {
        let mut out = Self::default();
        for payload in payloads {
            match payload {
                Payload::CertReq(request) if request.encoding == CertEncoding::X509_SIGNATURE => {
                    out.authorities.extend(&request.authorities);
                }
                Payload::CertReq(request) if request.encoding == CertEncoding::OCSP_CONTENT => {
                    out.ocsp = true;
                }
                _ => {}
            }
        }
        out
    }

    fn includes(&self, credential: &Credential) -> bool {
        let (asked, _) = self.authorities.as_chunks::<20>();
        asked.is_empty()
            || credential.authorities.is_empty()
            || asked.iter().any(|one| credential.authorities.contains(one))
    }
}

impl Handshake {
    pub(crate) const fn waits_for(&self, id: AskId) -> bool {
        match &self.step {
            Step::Signing { ask, .. }
            | Step::VerifyingResponder { ask, .. }
            | Step::VerifyingInitiator { ask, .. }
            | Step::AuthorizingResponder { ask, .. }
            | Step::AuthorizingInitiator { ask, .. }
            | Step::EapVerifying { ask, .. }
            | Step::EapAsked { ask, .. }
            | Step::EapSigning { ask, .. }
            | Step::EapAsking { ask, .. }
            | Step::SigningResponse { ask, .. } => ask.0 == id.0,
            _ => false,
        }
    }

    /// Whether we wait for the client's next EAP message.
    pub(crate) const fn is_in_eap(&self) -> bool {
        matches!(self.step, Step::EapExpecting(_))
    }

    pub(crate) fn take_step(&mut self) -> Step {
        std::mem::replace(&mut self.step, Step::Moving)
    }

    pub(crate) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            nonce_i: &self.nonces.0,
            nonce_r: &self.nonces.1,
            spi_i: self.spis.0,
            spi_r: self.spis.1,
        }
    }

    /// Chooses one of our certificates for this peer: the scheme of its signature, and the question for
    /// it. None where the peer can check none of them.
    pub(crate) fn ask_signature(
        &mut self,
        connection: &Connection,
        ours: &[Credential],
        octets: &SignedOctets,
    ) -> Option<(Scheme, Ask)> {
        let scheme = self.choose_credential(ours)?;
        let question = Ask::Sign {
            connection: connection.name.clone(),
            credential: self.credential,
            scheme,
            message: octets.as_bytes().to_vec(),
        };
        Some((scheme, question))
    }

    /// Chooses one of our certificates, with the scheme in which it signs for this peer.
    fn choose_credential(&mut self, ours: &[Credential]) -> Option<Scheme> {
        let usable = |(index, one): (usize, &Credential)| {
            let scheme = Scheme::for_peer(one.key, self.peer_hashes.as_deref())?;
            Some((index, scheme, self.wanted.includes(one)))
        };
        let usable: Vec<_> = ours.iter().enumerate().filter_map(usable).collect();
        let wanted = usable.iter().find(|(_, _, wanted)| *wanted);
        let (index, scheme, _) = *wanted.or_else(|| usable.first())?;
        self.credential = index;
        Some(scheme)
    }

    /// Mixes the post-quantum preshared key in.
    pub(crate) fn mix(&mut self, ppk: &Ppk) {
        self.ppk = true;
        self.unmixed = Some(self.keys.mix(&ppk.secret.0));
    }

    /// Goes on without the post-quantum preshared key, which the peer has not.
    pub(crate) fn do_without_ppk(&mut self) {
        self.ppk = false;
        if let Some(unmixed) = self.unmixed.take() {
            self.keys.unmix(unmixed);
        }
    }

    /// What the initiator signs. `message_id` is that of the first IKE_AUTH request, where
    /// [`Self::auth_id`] does not know it.
    pub(crate) fn octets_i(&self, id: &Identification, message_id: u32) -> SignedOctets {
        let extra = self.intermediate.octets(self.auth_id.unwrap_or(message_id));
        let (prf, sk_p) = (self.keys.prf, &self.keys.sk_pi);
        SignedOctets::new(
            prf,
            sk_p,
            &self.first.0,
            &self.nonces.1,
            id,
            extra.as_deref(),
        )
    }

    /// What the responder signs.
    pub(crate) fn octets_r(&self, id: &Identification, message_id: u32) -> SignedOctets {
        let extra = self.intermediate.octets(self.auth_id.unwrap_or(message_id));
        let (prf, sk_p) = (self.keys.prf, &self.keys.sk_pr);
        SignedOctets::new(
            prf,
            sk_p,
            &self.first.1,
            &self.nonces.0,
            id,
            extra.as_deref(),
        )
    }

    pub(crate) fn release(self, core: &mut Core) {
        if let Some(offer) = self.offer {
            core.free_esp_spi(offer.spi_in);
        }
    }
}

/// Why a peer without our key is refused.
pub(crate) const NO_PPK: &str = "peer does not use the post-quantum preshared key";

/// PPK_ID_FIXED (RFC 8784 §5.1).
const PPK_ID_FIXED: u8 = 2;

/// Names our post-quantum preshared key.
pub(crate) fn ppk_identity(id: &[u8]) -> Payload {
    let data = [&[PPK_ID_FIXED], id].concat();
    Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY).with_data(data))
}

/// How an initiator and a connection get along about their post-quantum preshared keys (RFC 8784 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PpkUse {
    /// Both have the same.
    Mixed,
    /// The initiator names none, and need not.
    Plain,
    /// The initiator names one that we do not have, and can do without: its proof for that counts.
    Fallback,
}

/// How the initiator's request fits a connection; none if it does not.
pub(crate) fn ppk_use(connection: &Connection, request: &[Payload]) -> Option<PpkUse> {
    let ours = connection.ppk.as_ref();
    let required = ours.is_some_and(|ppk| ppk.required);
    let named = request.iter().find(|payload| {
        matches!(payload, Payload::Notify(notify) if notify.kind == NotifyType::PPK_IDENTITY)
    });
    let same = ours.is_some_and(|ppk| named == Some(&ppk_identity(&ppk.id)));
    match named {
        Some(_) if same => Some(PpkUse::Mixed),
        _ if required => None,
        Some(_) => fallback_proof(request).map(|_| PpkUse::Fallback),
        None => Some(PpkUse::Plain),
    }
}

/// The initiator's proof without its post-quantum preshared key. Its method is that of AUTH.
pub(crate) fn fallback_proof(request: &[Payload]) -> Option<&[u8]> {
    request.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::NO_PPK_AUTH => {
            Some(notify.data.as_slice())
        }
        _ => None,
    })
}

/// What we can do, said in both IKE_SA_INIT messages. IKE_INTERMEDIATE is only announced where it
/// will be used.
pub(crate) fn capabilities(intermediate: bool) -> Vec<Payload> {
    let hashes: Vec<u8> = HASHES
        .iter()
        .flat_map(|hash| hash.0.to_be_bytes())
        .collect();
    let mut out = vec![
        Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED),
        Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS).with_data(hashes),
    ];
    if intermediate {
        out.push(Notify::new(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED));
    }
    out.into_iter().map(Payload::Notify).collect()
}

/// The hashes that the peer announced.
pub(crate) fn announced_hashes(payloads: &[Payload]) -> Option<Vec<HashId>> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS => {
            let (pairs, _) = notify.data.as_chunks::<2>();
            Some(
                pairs
                    .iter()
                    .map(|pair| HashId(u16::from_be_bytes(*pair)))
                    .collect(),
            )
        }
        _ => None,
    })
}

impl Handshake {
    /// Our certificates, where we prove ourselves with one, and behind them the OCSP response that the
    /// peer asked for (RFC 4806 §3.2).
    pub(crate) fn own_certificates(&self, connection: &Connection) -> Vec<Payload> {
        let LocalAuth::Certificates(ours) = &connection.local_auth else {
            return Vec::new();
        };
        let Some(credential) = ours.get(self.credential) else {
            return Vec::new();
        };
        let cert = |encoding, data: &Vec<u8>| {
            let data = data.clone();
            Payload::Cert(Certificate { encoding, data })
        };
        let chain = credential.chain.iter();
        let ocsp = credential.ocsp.iter().filter(|_| self.wanted.ocsp);
        chain
            .map(|der| cert(CertEncoding::X509_SIGNATURE, der))
            .chain(ocsp.map(|der| cert(CertEncoding::OCSP_CONTENT, der)))
            .collect()
    }
}

/// What we want of the peer's certificates.
pub(crate) fn certificate_requests(connection: &Connection) -> Vec<Payload> {
    let RemoteAuth::Certificate { authorities, ocsp } = &connection.remote_auth else {
        return Vec::new();
    };
    let request = |encoding, authorities| {
        Payload::CertReq(CertRequest {
            encoding,
            authorities,
        })
    };
    let mut out = vec![request(CertEncoding::X509_SIGNATURE, authorities.concat())];
    if *ocsp {
        // No hashes: any responder that the peer has a response of.
        out.push(request(CertEncoding::OCSP_CONTENT, Vec::new()));
    }
    out
}

fn certificates_in(payloads: &[Payload], encoding: CertEncoding) -> Vec<Vec<u8>> {
    let data = |payload: &Payload| match payload {
        Payload::Cert(cert) if cert.encoding == encoding => Some(cert.data.clone()),
        _ => None,
    };
    payloads.iter().filter_map(data).collect()
}

/// The question about the peer's certificates in a message; none if there are none.
pub(crate) fn verification(
    ike: IkeId,
    connection: &Connection,
    id: &Identification,
    payloads: &[Payload],
) -> Option<Ask> {
    let chain = certificates_in(payloads, CertEncoding::X509_SIGNATURE);
    (!chain.is_empty()).then(|| Ask::VerifyPeer {
        connection: connection.name.clone(),
        ike,
        chain,
        id: id.clone(),
        ocsp: certificates_in(payloads, CertEncoding::OCSP_CONTENT),
    })
}

/// The first error among the notifications.
pub(crate) fn error_notify(payloads: &[Payload]) -> Option<NotifyType> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind.is_error() => Some(notify.kind),
        _ => None,
    })
}
