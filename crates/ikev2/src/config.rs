//! What the caller wants.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use zeroize::Zeroizing;

pub use crate::identity::{IdPattern, PeerId};
use crate::select::{EspProposal, IkeProposal};
use crate::wire::{Identification, TrafficSelector};

/// A shared secret for authentication.
#[derive(Clone)]
pub struct Psk(pub(crate) Zeroizing<Vec<u8>>);

impl Psk {
    /// Copies the secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(Zeroizing::new(secret.to_vec()))
    }
}

/// A post-quantum preshared key (RFC 8784).
#[derive(Clone)]
pub struct Ppk {
    /// Its name on the wire (type PPK_ID_FIXED).
    pub id: Vec<u8>,
    /// The secret, at least 32 bytes of randomness.
    pub secret: Psk,
    /// Whether a peer without it is refused. Else it is used where the peer has it too, which protects
    /// nobody from an attacker who can break the key exchange while it happens.
    pub required: bool,
}

/// Kinds of keys that sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA of 2048 bits or more.
    Rsa,
    /// ECDSA on P-256.
    EcdsaP256,
    /// ECDSA on P-384.
    EcdsaP384,
    /// Ed25519.
    Ed25519,
}

/// A certificate of ours; its key stays with the caller ([`crate::Ask::Sign`]).
#[derive(Clone)]
pub struct Credential {
    /// DER, our own first, then the issuers up to, but without, the anchor.
    pub chain: Vec<Vec<u8>>,
    /// The kind of our key.
    pub key: KeyKind,
    /// SHA-1 of the public keys of the authorities above it, the anchor's too, by which a peer asks for
    /// it (RFC 7296 §3.7). Without any it is taken for what every peer asks for.
    pub authorities: Vec<[u8; 20]>,
    /// OCSP response about it (DER), for peers that ask (RFC 4806).
    pub ocsp: Option<Vec<u8>>,
}

/// Proof of our identity.
#[derive(Clone)]
pub enum LocalAuth {
    /// With a shared secret.
    Psk(Psk),
    /// With one of these certificates, preferred first: one whose authority the peer asks for and whose
    /// signatures it can check. If it asks for none of ours, the first that it can check.
    Certificates(Vec<Credential>),
    /// With EAP; only as initiator, and only towards a responder with certificate or shared secret.
    Eap {
        /// The name under which we log in.
        identity: String,
        /// EAP method.
        method: ClientMethod,
    },
}

/// A method with which we log in as client of EAP.
#[derive(Clone)]
pub enum ClientMethod {
    /// Name and password ([`crate::Ask::Password`]).
    MsChapV2,
    /// A certificate. Its key and the check of the server's certificate are in the configuration; TLS
    /// takes its random bytes from the crypto library, and the time from the configuration.
    Tls {
        /// TLS 1.2 or 1.3.
        config: Arc<ClientConfig>,
        /// The name that the server's certificate must have.
        server: ServerName<'static>,
    },
}

/// A method that we offer as server of EAP.
#[derive(Clone)]
pub enum ServerMethod {
    /// Name and password ([`crate::Ask::Password`]).
    MsChapV2,
    /// A certificate. The configuration must demand one; besides what it checks, the caller validates
    /// the chain ([`crate::Ask::VerifyPeer`], with the name that the client gave as identity).
    Tls(Arc<ServerConfig>),
}

/// Proof that the peer has to give.
#[derive(Clone)]
pub enum RemoteAuth {
    /// With the shared secret.
    Psk(Psk),
    /// With a certificate; the caller validates it ([`crate::Ask::VerifyPeer`]).
    Certificate {
        /// SHA-1 of the public keys (SubjectPublicKeyInfo) of the authorities that we trust, for the
        /// certificate request (RFC 7296 §3.7).
        authorities: Vec<[u8; 20]>,
        /// Whether to ask for what an OCSP responder says (RFC 4806). It comes with the question; to
        /// insist on it is the caller's policy.
        ocsp: bool,
    },
    /// With EAP; only as responder. The identity in IKE proves nothing then: who the peer is comes out
    /// of EAP. [`PeerId::Exactly`] wants both to be that name; clients that put an address into IKE
    /// need [`PeerId::Any`].
    Eap {
        /// Preferred first.
        methods: Vec<ServerMethod>,
    },
}

/// Encapsulation mode of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whole packets inside ESP.
    Tunnel,
    /// Payloads inside ESP, between the two hosts themselves. The peer may refuse it; then the
    /// Child SA comes up in tunnel mode (RFC 7296 §1.3.1).
    Transport,
}

/// A Child SA to be had.
#[derive(Clone, Debug)]
pub struct ChildConfig {
    /// Its name in events.
    pub name: String,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Traffic on our side.
    pub local: Vec<TrafficSelector>,
    /// Traffic on the peer's side.
    pub remote: Vec<TrafficSelector>,
    /// Algorithms, preferred first.
    pub esp: Vec<EspProposal>,
    /// Age at which it is replaced; never if none.
    pub rekey_after: Option<Duration>,
}

/// Addresses inside the tunnel (RFC 7296 §3.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// None: each side has its own.
    None,
    /// As initiator ask the peer for one.
    Request {
        /// An IPv4 address.
        v4: bool,
        /// An IPv6 address.
        v6: bool,
    },
    /// As responder let the peer ask for addresses; the caller says which ([`crate::Ask::Authorize`]). A
    /// peer that asks for none gets no Child SA.
    Assign,
}

/// How many IKE SAs with one identity a connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unique {
    /// One: a new one takes the place of the one before, once it carries its Child SAs.
    #[default]
    Replace,
    /// One: while there is one, others from another address are refused. From the same address the peer
    /// authenticates anew, and with INITIAL_CONTACT it has lost the one before.
    Keep,
    /// As many as the peer makes, within its budget; INITIAL_CONTACT is neither sent nor believed.
    Never,
}

/// Times of a request that nobody answers (RFC 7296 §2.4 leaves them to the implementation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// Wait before the first retransmission.
    pub timeout: Duration,
    /// Hundredths: each further wait is as many times as long as the one before.
    pub factor: u32,
    /// Longest wait.
    pub limit: Duration,
    /// Transmissions, the first one counted, after which the peer counts as gone.
    pub transmissions: u32,
}

impl Retransmission {
    /// The wait that follows one of this length.
    pub(crate) fn after(&self, wait: Duration) -> Duration {
        let longer = wait.saturating_mul(self.factor).checked_div(100);
        longer.unwrap_or(self.limit).min(self.limit)
    }

    /// From the first transmission until the peer counts as gone.
    pub fn total(&self) -> Duration {
        let mut wait = self.timeout;
        (0..self.transmissions).fold(Duration::ZERO, |sum, _| {
            let sum = sum.saturating_add(wait);
            wait = self.after(wait);
            sum
        })
    }
}

/// A relation to a peer, or to a kind of peers.
#[derive(Clone)]
pub struct Connection {
    /// Its name in events.
    pub name: String,
    /// The peer's address, if it must have a certain one.
    pub remote_address: Option<IpAddr>,
    /// Our identity.
    pub local_id: Identification,
    /// Identities that the peer may have.
    pub remote_id: PeerId,
    /// Our proof.
    pub local_auth: LocalAuth,
    /// The peer's proof.
    pub remote_auth: RemoteAuth,
    /// A secret on top of the key exchanges, against those who record today and compute tomorrow.
    pub ppk: Option<Ppk>,
    /// As initiator: change addresses with MOBIKE, if the peer speaks it. As responder: follow a peer
    /// that does.
    pub mobility: bool,
    /// Addresses of ours besides the one in use, at which the peer can reach us as well. With MOBIKE it
    /// is told, and who decides tries them when the path fails.
    pub further_addresses: Vec<IpAddr>,
    /// Addresses inside the tunnel.
    pub addresses: Addresses,
    /// Algorithms, preferred first.
    pub ike: Vec<IkeProposal>,
    /// Child SAs. As initiator the first comes up with the IKE SA; without any the IKE SA comes up
    /// alone (RFC 6023).
    pub children: Vec<ChildConfig>,
    /// Age at which the IKE SA is replaced; never if none.
    pub rekey_after: Option<Duration>,
    /// Silence after which the peer is asked whether it lives; never if none.
    pub liveness: Option<Duration>,
    /// How many IKE SAs with one identity there are.
    pub unique: Unique,
    /// When requests are repeated, and how often; as the endpoint's [`Limits`] say if none.
    pub retransmission: Option<Retransmission>,
}

impl Connection {
    /// Networks that children are configured for on the peer's side. A peer that gets its addresses from
    /// us has none by configuration.
    pub fn peer_networks(&self) -> impl Iterator<Item = TrafficSelector> {
        let children = self.children.iter();
        let children = children.filter(|_| self.addresses != Addresses::Assign);
        children.flat_map(|child| child.remote.iter().copied())
    }
}

/// Bounds and timers of an endpoint. All are our choice unless a section is named.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Local UDP port on which messages carry the non-ESP marker (RFC 3948 §2.2).
    pub nat_port: u16,
    /// Tells peers of a NAT in front of us even where there is none, so that both sides use the port
    /// for NAT traversal and ESP goes in UDP (RFC 7296 §2.23 leaves the way of finding one open).
    pub always_udp: bool,
    /// Largest UDP payload that we send before we fragment. The default fits an IPv6 packet of 1280
    /// bytes (RFC 7383 §2.5.1).
    pub datagram_bytes: usize,
    /// Most fragments of one message that we put together.
    pub fragments: u16,
    /// Longest wait of fragments for the others.
    pub fragment_wait: Duration,
    /// The same of a peer that has not proved who it is.
    pub stranger_fragment_wait: Duration,
    /// Bytes of fragments of all peers that have not proved who they are; one network has an eighth of it.
    /// Beyond it fragments are dropped, and the oldest handshake of the network with most makes room.
    pub stranger_fragments: usize,
    /// IKE SAs that are not authenticated yet, of all peers. With one more, the oldest one of the branch of
    /// the address space that has most ends, or one that has had three seconds. A quarter is kept for networks from which somebody authenticated before.
    pub half_open: usize,
    /// The same from one network (/24 or /56).
    pub half_open_per_network: usize,
    /// Half-open IKE SAs from which on peers must return a cookie.
    pub cookie_threshold: usize,
    /// Half-open IKE SAs from which on strangers must solve a puzzle too (RFC 8019). Those that cannot have a quarter
    /// of the places.
    pub puzzle_threshold: usize,
    /// Zero bits of the easiest puzzle; there is one more each time the load doubles, and each time the sender's
    /// network has twice as many handshakes.
    pub puzzle_bits: u8,
    /// Zero bits of the hardest.
    pub puzzle_bits_max: u8,
    /// Life of a cookie secret; the previous one is accepted as well.
    pub cookie_life: Duration,
    /// Longest handshake.
    pub handshake_time: Duration,
    /// First wait for an answer; it doubles up to [`Self::retransmit_max`].
    pub retransmit_first: Duration,
    /// Longest wait for an answer.
    pub retransmit_max: Duration,
    /// Transmissions of a request after which the peer counts as gone.
    pub transmissions: u32,
    /// The same for one path, while there are others to be tried (MOBIKE).
    pub path_transmissions: u32,
    /// Pause after TEMPORARY_FAILURE, to which up to as much again is added at random.
    pub retry_pause: Duration,
    /// Time for which we leave a Child SA alone that we made in a response, unless the peer shows before
    /// that it has the response: it would not know what we talk about.
    pub unconfirmed: Duration,
    /// Time for the peer's next one of several key exchanges (RFC 9370 §2.2.4), before what
    /// it has begun is forgotten.
    pub followup: Duration,
    /// Age at which the keys of a resumed session are replaced, and up to as much more at random.
    pub renew_resumed: Duration,
    /// Time by which an SA may outlive the moment at which it was to be replaced, before it is deleted; it lives
    /// on if none. Replacing takes a few seconds, or as long as the peer refuses.
    pub overdue: Option<Duration>,
    /// Time for the peer to delete a Child SA that it has replaced, or that its rekeying made in
    /// vain, before we do (RFC 7296 §2.8 leaves it to the peer; not every peer comes to it).
    pub superseded: Duration,
    /// Time for the peer to end the surplus one of two IKE SAs with it, where that is its part, before we do.
    pub settle: Duration,
    /// Time for which an IKE SA that was closed or replaced still answers.
    pub linger: Duration,
    /// Pause between keepalives behind a NAT (RFC 3948 §4).
    pub keepalive: Duration,
    /// Child SAs of one IKE SA.
    pub children: usize,
    /// Resources, as cores, each of which is to have a Child SA of its own with the same traffic, where the peer makes
    /// several (RFC 9611); 16 have at most. The remainder of an SPI of ours by this says for which one it is. One
    /// makes a single Child SA.
    pub resources: usize,
    /// Intentions that wait for their turn in one IKE SA.
    pub queue: usize,
}

impl Limits {
    /// Times of connections without ones of their own.
    pub const fn retransmission(&self) -> Retransmission {
        Retransmission {
            timeout: self.retransmit_first,
            factor: 200,
            limit: self.retransmit_max,
            transmissions: self.transmissions,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            nat_port: 4500,
            always_udp: false,
            datagram_bytes: 1232,
            fragments: 255,
            fragment_wait: Duration::from_secs(30),
            stranger_fragment_wait: Duration::from_secs(5),
            stranger_fragments: 8 << 20,
            half_open: 10_000,
            half_open_per_network: 200,
            cookie_threshold: 100,
            puzzle_threshold: 2000,
            puzzle_bits: 11,
            puzzle_bits_max: 16,
            cookie_life: Duration::from_secs(60),
            handshake_time: Duration::from_secs(30),
            retransmit_first: Duration::from_millis(500),
            retransmit_max: Duration::from_secs(16),
            transmissions: 9,
            path_transmissions: 4,
            retry_pause: Duration::from_secs(1),
            unconfirmed: Duration::from_secs(60),
            followup: Duration::from_secs(60),
            renew_resumed: Duration::from_secs(60),
            overdue: None,
            superseded: Duration::from_secs(30),
            settle: Duration::from_secs(10),
            linger: Duration::from_secs(30),
            keepalive: Duration::from_secs(20),
            children: 64,
            resources: 1,
            queue: 256,
        }
    }
}
