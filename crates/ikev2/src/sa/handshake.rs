//! What initiator and responder have in common until both have proved who they are.

use std::collections::{BTreeSet, VecDeque};

use super::channel::Channel;
use crate::auth::{AuthError, HASHES, IntermediateAuth, Scheme, SignedOctets};
use crate::config::{Connection, Credential, LocalAuth, Ppk, RemoteAuth};
use crate::crypto::{Group, IkeKeys, Unmixed};
use crate::diagnosis::{AuthenticationFailure, Difference, Setting, proof_name};
use crate::event::{Reason, Request};
use crate::select::IkeSuite;
use crate::ticket::TicketId;
use crate::types::{IkeId, Nonces, SpiPair};
use crate::wire::{
    Authentication, CertEncoding, CertRequest, Certificate, HashId, Identification, Notify,
    NotifyType, Payload,
};

/// The session that a handshake resumes.
pub(crate) struct Resumed {
    /// Identity that the peer had.
    pub(super) peer: Identification,
    /// State from which the caller decides anew.
    pub(super) state: Vec<u8>,
    /// Responder: the ticket.
    pub(super) ticket: Option<TicketId>,
}

/// Request and response of IKE_SA_INIT as they were on the wire: each side signs its own.
pub(crate) struct FirstMessages {
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
}

/// An IKE SA with keys but without proof.
pub(crate) struct Handshake {
    pub(crate) suite: IkeSuite,
    pub(crate) keys: IkeKeys,
    pub(crate) spis: SpiPair,
    pub(crate) nonces: Nonces,
    pub(crate) first: FirstMessages,
    pub(crate) peer_hashes: Option<Vec<HashId>>,
    pub(crate) additional: VecDeque<Group>,
    pub(crate) intermediate: IntermediateAuth,
    /// Number of the first IKE_AUTH request, once there are several.
    pub(crate) auth_id: Option<u32>,
    /// Authorities that the peer asks for, 20 bytes each, and whether it asks for OCSP responses.
    pub(crate) wanted: RequestedCertificates,
    /// Index of the credential with which we prove ourselves.
    pub(crate) credential: usize,
    /// Whether both sides use the post-quantum preshared key, as far as is known.
    pub(crate) ppk: bool,
    /// The session that is resumed, instead of certificates and key exchange.
    pub(crate) resumed: Option<Resumed>,
}

/// Certificates that the peer asks of us (RFC 7296 §3.7, RFC 4806).
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestedCertificates {
    authorities: Vec<u8>,
    ocsp: bool,
}

impl RequestedCertificates {
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
        // Whoever names no authority takes any, and we may not know under which we are (§3.7).
        asked.is_empty()
            || credential.authorities.is_empty()
            || asked.iter().any(|one| credential.authorities.contains(one))
    }
}

impl Handshake {
    /// Chooses one of our certificates for this peer: the scheme of its signature, and the question for
    /// it. None where the peer can check none of them.
    pub(crate) fn ask_signature(
        &mut self,
        connection: &Connection,
        ours: &[Credential],
        octets: &SignedOctets,
    ) -> Option<(Scheme, Request)> {
        let scheme = self.choose_credential(ours)?;
        let question = Request::Sign {
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
        // A peer's wish is a hint (§3.7): one that it did not ask for may do as well, none would surely not.
        let wanted = usable.iter().find(|(_, _, wanted)| *wanted);
        let (index, scheme, _) = *wanted.or_else(|| usable.first())?;
        self.credential = index;
        Some(scheme)
    }

    /// Mixes the post-quantum preshared key in; gives the keys for a peer that turns out not to have it.
    pub(crate) fn mix(&mut self, ppk: &Ppk) -> Unmixed {
        self.ppk = true;
        self.keys.mix(&ppk.secret.0)
    }

    /// Derives the keys anew after an additional key exchange (RFC 9370 §2.2.2).
    pub(super) fn update_keys(&mut self, channel: &mut Channel, shared: &[u8]) -> bool {
        let updated = self
            .keys
            .updated(&self.suite, shared, &self.nonces, self.spis);
        let Some(keys) = updated else {
            return false;
        };
        self.keys = keys;
        channel.set_keys(&self.suite, &self.keys)
    }

    /// Octets that the initiator signs. `message_id` is that of the first IKE_AUTH request, where
    /// [`Self::auth_id`] does not know it.
    pub(crate) fn octets_i(&self, id: &Identification, message_id: u32) -> SignedOctets {
        let extra = self.intermediate.octets(self.auth_id.unwrap_or(message_id));
        let (prf, sk_p) = (self.keys.prf, &self.keys.sk_pi);
        SignedOctets::new(
            prf,
            sk_p,
            &self.first.request,
            &self.nonces.responder,
            id,
            extra.as_deref(),
        )
    }

    /// Octets that the responder signs.
    pub(crate) fn octets_r(&self, id: &Identification, message_id: u32) -> SignedOctets {
        let extra = self.intermediate.octets(self.auth_id.unwrap_or(message_id));
        let (prf, sk_p) = (self.keys.prf, &self.keys.sk_pr);
        SignedOctets::new(
            prf,
            sk_p,
            &self.first.response,
            &self.nonces.initiator,
            id,
            extra.as_deref(),
        )
    }
}

/// Why a peer without our key is refused.
pub(crate) const NO_PPK: &str = "peer does not use the post-quantum preshared key";

/// Explains a proof that does not convince.
pub(crate) fn wrong_proof(
    connection: &Connection,
    error: AuthError,
    proof: &Authentication,
) -> AuthenticationFailure {
    let (name, wanted) = (&connection.name, proof_name(&connection.remote_auth));
    let difference = match (error, &connection.remote_auth) {
        (AuthError::Method(method), _) => Difference::new(Setting::PeerProof, method, wanted),
        (AuthError::Proof, RemoteAuth::Psk(_)) if connection.ppk.is_some() => {
            let ours = format!("`psk_file` and `ppk` of connection {name:?}");
            Difference::new(
                Setting::Secret,
                "made with another secret, or another PPK",
                ours,
            )
        }
        (AuthError::Proof, RemoteAuth::Psk(_)) => {
            let ours = format!("`psk_file` of connection {name:?}");
            Difference::new(Setting::Secret, "made with another secret", ours)
        }
        (AuthError::Proof, _) => {
            let theirs = format!("{}, made with another key", proof.method);
            Difference::new(
                Setting::PeerProof,
                theirs,
                "the key of the peer's certificate",
            )
        }
    };
    AuthenticationFailure::new(error.to_string(), difference)
}

/// Name of the post-quantum preshared key that an initiator uses.
pub(crate) fn named_ppk(request: &[Payload]) -> Option<&[u8]> {
    request.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::PPK_IDENTITY => notify.data.get(1..),
        _ => None,
    })
}

/// Both sides' post-quantum preshared keys, by their names.
pub(crate) fn ppk_difference(theirs: Option<&[u8]>, ours: Option<&Ppk>) -> Difference {
    let named = |id: &[u8]| format!("{:?}", id.escape_ascii().to_string());
    let theirs = theirs.map_or("none".to_owned(), named);
    let ours = ours.map_or("none".to_owned(), |ppk| named(&ppk.id));
    Difference::new(Setting::Ppk, theirs, ours)
}

/// PPK_ID_FIXED (RFC 8784 §5.1).
const PPK_ID_FIXED: u8 = 2;

/// Names our post-quantum preshared key.
pub(crate) fn ppk_identity(id: &[u8]) -> Payload {
    let data = [&[PPK_ID_FIXED], id].concat();
    Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY).with_data(data))
}

/// Agreement of an initiator and a connection about post-quantum preshared keys (RFC 8784 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PpkUse {
    /// Both have the same.
    Mixed,
    /// The initiator names none, and need not.
    Plain,
    /// The initiator names one that we do not have, and can do without: its proof for that counts.
    Fallback,
}

/// Compares the initiator's request with a connection; none if it does not fit.
pub(crate) fn ppk_use(connection: &Connection, request: &[Payload]) -> Option<PpkUse> {
    let ours = connection.ppk.as_ref();
    let required = ours.is_some_and(|ppk| ppk.required);
    let named = request.iter().find(|payload| {
        matches!(payload, Payload::Notify(notify) if notify.kind == NotifyType::PPK_IDENTITY)
    });
    let same = ours.is_some_and(|ppk| named == Some(&ppk_identity(&ppk.id)));
    match named {
        // Names are compared whole: another name is another key.
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

/// Announces our extensions, in both IKE_SA_INIT messages. IKE_INTERMEDIATE is only announced where it
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
        // Ours first, as the peer takes the first for the one that signs (§3.6).
        let chain = credential.chain.iter();
        let ocsp = credential.ocsp.iter().filter(|_| self.wanted.ocsp);
        chain
            .map(|der| cert(CertEncoding::X509_SIGNATURE, der))
            .chain(ocsp.map(|der| cert(CertEncoding::OCSP_CONTENT, der)))
            .collect()
    }
}

/// Authorities that certificate requests name at most; our choice. The first response goes to strangers, in one
/// datagram.
const REQUESTED_AUTHORITIES: usize = 32;

/// Builds the requests for the certificates of a peer that these connections may be for (RFC 7296 §3.7).
pub(crate) fn certificate_requests<'a>(
    connections: impl Iterator<Item = &'a Connection>,
) -> Vec<Payload> {
    let (mut all, mut wanted, mut responses): (Vec<[u8; 20]>, _, _) = (Vec::new(), false, false);
    for connection in connections {
        if let RemoteAuth::Certificate { authorities, ocsp } = &connection.remote_auth {
            all.extend(authorities);
            (wanted, responses) = (true, responses || *ocsp);
        }
    }
    if !wanted {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    all.retain(|authority| seen.insert(*authority));
    all.truncate(REQUESTED_AUTHORITIES);
    let request = |encoding, authorities| {
        Payload::CertReq(CertRequest {
            encoding,
            authorities,
        })
    };
    let mut out = vec![request(CertEncoding::X509_SIGNATURE, all.concat())];
    if responses {
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
) -> Option<Request> {
    let chain = certificates_in(payloads, CertEncoding::X509_SIGNATURE);
    (!chain.is_empty()).then(|| Request::VerifyPeer {
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

/// The peer's refusal of what we have shown it.
pub(super) fn proof_refused(connection: &Connection, error: NotifyType) -> Reason {
    let theirs = format!("refuses with {error}");
    let offered = Difference::new(Setting::OwnProof, theirs, own_proof(connection));
    Reason::RefusedOffer(error, Box::new(offered))
}

/// Who we say we are, towards whom, and how we prove it.
pub(super) fn own_proof(connection: &Connection) -> String {
    let by = match &connection.local_auth {
        LocalAuth::Psk(_) => "a shared secret".to_owned(),
        LocalAuth::Certificates(_) => "a certificate".to_owned(),
        LocalAuth::Eap { identity, .. } => format!("EAP as {identity:?}"),
    };
    let (ours, theirs) = (&connection.local_id, &connection.remote_id);
    format!("{ours} with {by}, towards {theirs}")
}
