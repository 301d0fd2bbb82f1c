//! Events of an endpoint, its requests to the caller, and the caller's responses.

use std::net::{IpAddr, SocketAddr};

use offload::{KeyMaterial, Suite};

use crate::auth::Scheme;
use crate::authorization::Authorization;
use crate::config::Mode;
use crate::diagnosis::{AuthenticationFailure, Difference};
use crate::eap::{NtHash, TlsStep};
use crate::puzzle::{Puzzle, Solution};
use crate::select::NegotiationFailure;
use crate::types::{IkeId, Path, Transport};
use crate::wire::{Identification, NotifyType, TrafficSelector};

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Our address; the port says through which socket.
    pub local: SocketAddr,
    /// Destination.
    pub remote: SocketAddr,
    /// Whether it is a datagram, or goes over the TCP connection between these.
    pub transport: Transport,
    /// UDP payload or content of a TCP frame, with the non-ESP marker where it belongs.
    pub payload: Vec<u8>,
}

impl Transmit {
    /// Addresses and transport.
    pub const fn path(&self) -> Path {
        Path {
            local: self.local,
            remote: self.remote,
            transport: self.transport,
        }
    }
}

/// Identifies a request to the caller until its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

/// A request to the caller, not to the peer. One without response ends with the handshake's time.
#[derive(Clone, Debug)]
pub enum Request {
    /// Sign `message` with the key of connection `connection`.
    Sign {
        /// Name of the connection.
        connection: String,
        /// The credential's number.
        credential: usize,
        /// Algorithm and encoding.
        scheme: Scheme,
        /// The whole message, not its hash.
        message: Vec<u8>,
    },
    /// Validate a chain and that its first certificate speaks for `id`.
    VerifyPeer {
        /// Name of the connection.
        connection: String,
        /// The IKE SA that comes up if the response is good.
        ike: IkeId,
        /// DER, the peer's own first, then what else it sent. Nothing of it is trusted yet.
        chain: Vec<Vec<u8>>,
        /// Identity that the peer claims.
        id: Identification,
        /// OCSP responses that the peer sent along (DER, RFC 4806). Not trusted either.
        ocsp: Vec<Vec<u8>>,
    },
    /// Say whether a peer that resumes a session (RFC 5723) is still welcome, before it is asked what it may
    /// have. It has proved that it is who it was; certificate and revocation are looked at again.
    ReviewPeer {
        /// Name of the connection.
        connection: String,
        /// The IKE SA that comes up if the response is good.
        ike: IkeId,
        /// Identity of the peer.
        id: Identification,
        /// State that [`crate::Authorization::with_resumption`] was given.
        state: Vec<u8>,
    },
    /// Give the password of a user for EAP-MSCHAPv2: as initiator our own, as responder the client's.
    /// For a user that does not exist or may not come in, refuse: it looks like a wrong password.
    Password {
        /// Name of the connection.
        connection: String,
        /// The user.
        user: String,
    },
    /// Run the step, on a thread that nobody waits for: TLS signs and verifies certificates there.
    Tls(TlsStep),
    /// Solve a puzzle, on a thread that nobody waits for ([`Puzzle::solve`]): the responder has many first messages.
    Solve(Puzzle),
    /// Say what a peer may have that has proved who it is. Without a response there is no IKE SA.
    /// Addresses that are given are free again with [`Event::IkeDown`] of this IKE SA or its last
    /// successor.
    Authorize {
        /// Name of the connection.
        connection: String,
        /// The IKE SA.
        ike: IkeId,
        /// Identity of the peer.
        id: Identification,
        /// Whether it asks for an IPv4 address, and may on this connection.
        v4: bool,
        /// Whether it asks for an IPv6 address, and may on this connection.
        v6: bool,
        /// Addresses inside the tunnel that it gives us, of those that we asked for.
        given: Vec<IpAddr>,
    },
}

impl Reason {
    /// The peer's refusal, if it was one.
    pub const fn refusal(&self) -> Option<NotifyType> {
        match self {
            Self::Refused(notify) | Self::RefusedOffer(notify, _) => Some(*notify),
            _ => None,
        }
    }
}

/// The caller's response to a [`Request`].
#[derive(Clone, Debug)]
pub enum Response {
    /// The signature.
    Signature(Vec<u8>),
    /// The chain is good; here is the public key of its first certificate as DER
    /// SubjectPublicKeyInfo.
    PeerKey(Vec<u8>),
    /// The peer that resumes a session is still welcome.
    Welcome,
    /// The password, hashed.
    Password(NtHash),
    /// The solution of the puzzle.
    Solved(Solution),
    /// The step has run.
    Tls,
    /// The peer's rights.
    Authorized(Box<Authorization>),
    /// The chain is good, but not for this connection. Another one that fits the peer is tried, if there
    /// is one; each asks for itself.
    OtherConnection(AuthenticationFailure),
    /// The chain leads to none of the connection's authorities. A connection with others is tried, if one fits the
    /// peer.
    OtherAuthorities(AuthenticationFailure),
    /// It cannot or must not be; the reason is for the log and never for the peer.
    Refused(AuthenticationFailure),
}

impl Response {
    /// Its kind, for counters.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Signature(_) => "signature",
            Self::PeerKey(_) => "peer key",
            Self::Welcome => "welcome",
            Self::Password(_) => "password",
            Self::Solved(_) => "solution",
            Self::Tls => "TLS step",
            Self::Authorized(_) => "authorization",
            Self::OtherConnection(_) => "other connection",
            Self::OtherAuthorities(_) => "other authorities",
            Self::Refused(_) => "refusal",
        }
    }
}

/// Why an IKE SA or Child SA ended or never came up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The caller wanted it.
    #[error("closed by us")]
    Local,
    /// The peer closed it.
    #[error("closed by the peer")]
    Peer,
    /// It was replaced, and its successor carries the traffic.
    #[error("replaced")]
    Replaced,
    /// It could not be replaced in time ([`crate::Limits::overdue`]).
    #[error("not replaced in time")]
    Overdue,
    /// Both sides replaced it at once; this is the surplus successor.
    #[error("surplus after simultaneous rekeying")]
    Redundant,
    /// The peer does not answer.
    #[error("peer does not answer")]
    Timeout,
    /// The peer does not answer a message of so many bytes, which it does not take in fragments of IKE (RFC 7383): in
    /// IP fragments, firewalls may drop it.
    #[error("peer does not answer a message of {0} bytes, which goes in IP fragments")]
    TimeoutOfLarge(usize),
    /// The peer refused.
    #[error("peer refused with {0}")]
    Refused(NotifyType),
    /// The peer refused what we offered; a difference has what that was.
    #[error("peer refused with {0}")]
    RefusedOffer(NotifyType, Box<Difference>),
    /// The peer speaks another version of IKE (RFC 7296 §2.5).
    #[error("the peer speaks IKEv{0}, and here is only IKEv2")]
    Version(u8),
    /// No algorithms in common.
    #[error(transparent)]
    Negotiation(NegotiationFailure),
    /// No traffic in common.
    #[error("no traffic selectors in common: theirs {theirs}, ours {ours}")]
    Selectors {
        /// The peer's.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// The peer is not who it says, or not somebody we know, or we could not prove ourselves.
    #[error("authentication failed: {0}")]
    Authentication(AuthenticationFailure),
    /// The peer broke the protocol.
    #[error("peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// The peer started anew (INITIAL_CONTACT) and has forgotten this one.
    #[error("peer started anew")]
    InitialContact,
    /// Another peer holds an inner address that this one wants to have.
    #[error("another peer has {0}")]
    Held(TrafficSelector),
    /// The peer may not have this traffic.
    #[error("the peer may not have {0}")]
    Unauthorized(String),
    /// The peer's Child SAs would cover more networks than it may have.
    #[error("more networks than the peer may have")]
    Networks,
    /// The peer asked for no address inside the tunnel, or there is none for it.
    #[error("no address inside the tunnel for the peer")]
    NoAddress(Box<Difference>),
    /// The peer had not proved who it is, and too many handshakes were going on.
    #[error("made room for another handshake")]
    Displaced,
    /// The peer has shown that it has lost this IKE SA (RFC 6290).
    #[error("the peer has crashed and started anew")]
    PeerCrashed,
    /// The peer demands a puzzle that takes more than we spend.
    #[error(
        "the peer has too many first messages and demands a puzzle of {0} bits, more than we solve"
    )]
    Puzzle(u8),
    /// The peer did not resume the session; a whole handshake may do.
    #[error("session not resumed: {0}")]
    NotResumed(String),
    /// A fault of ours; this IKE SA is given up, and no other.
    #[error("a fault of this program")]
    Fault,
    /// A peer of the same identity has as many IKE SAs as it may have; this is the oldest.
    #[error("the peer has newer IKE SAs, as many as it may have")]
    Crowded,
    /// Too many are open.
    #[error("too many Child SAs")]
    Limit,
}

/// A new Child SA with its keys.
#[derive(Clone)]
pub struct ChildUp {
    /// Its IKE SA.
    pub ike: IkeId,
    /// Name of the connection.
    pub connection: String,
    /// Name of the child's configuration.
    pub child: String,
    /// SPI at which we receive.
    pub spi_in: u32,
    /// SPI to which we send.
    pub spi_out: u32,
    /// Algorithms.
    pub suite: Suite,
    /// 64-bit sequence numbers.
    pub extended_sequence: bool,
    /// Keys with which we receive.
    pub inbound: KeyMaterial,
    /// Keys with which we send.
    pub outbound: KeyMaterial,
    /// Traffic on our side.
    pub local: Vec<TrafficSelector>,
    /// Traffic on the peer's side.
    pub remote: Vec<TrafficSelector>,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Whether packets to the peer may have traffic-flow padding (RFC 4303 §2.7): in tunnel mode, unless it said
    /// that it takes none. The peer's may have it in tunnel mode.
    pub tfc_padding: bool,
    /// Addresses, and ports where ESP goes inside UDP.
    pub path: Path,
    /// Whether ESP goes inside UDP (RFC 3948).
    pub udp_encapsulation: bool,
    /// The Child SA (by its `spi_in`) that this one replaces.
    pub replaces: Option<u32>,
    /// A Child SA with the same traffic, beside which this one is for another resource (RFC 9611): which one each is
    /// for, its `spi_in` says ([`crate::Limits::resources`]).
    pub beside: Option<u32>,
    /// Whether to send with it now. Else receive at once, and wait for [`Event::ChildOutbound`].
    pub send_now: bool,
}

/// An event.
#[derive(Clone)]
pub enum Event {
    /// A request; respond with [`crate::Endpoint::respond`].
    Request(RequestId, Request),
    /// Both sides have proved who they are.
    IkeUp {
        /// The IKE SA.
        ike: IkeId,
        /// Name of the connection.
        connection: String,
        /// Identity of the peer.
        peer: Identification,
        /// Algorithms, for people.
        suite: String,
        /// Whether a session was resumed, without certificates and key exchange.
        resumed: bool,
        /// Addresses inside the tunnel that the initiator got.
        addresses: Vec<IpAddr>,
        /// Name servers that it got.
        dns: Vec<IpAddr>,
    },
    /// An IKE SA has a successor, to which all its Child SAs have moved.
    IkeRekeyed {
        /// The old one.
        old: IkeId,
        /// The new one.
        new: IkeId,
    },
    /// An IKE SA is gone, or never came up.
    IkeDown {
        /// The IKE SA.
        ike: IkeId,
        /// Name of the connection, where one was found.
        connection: Option<String>,
        /// Why.
        reason: Reason,
    },
    /// A Child SA is there.
    ChildUp(Box<ChildUp>),
    /// Send with this Child SA from now on, instead of the one that it replaces.
    ChildOutbound {
        /// Its IKE SA.
        ike: IkeId,
        /// SPI at which we receive.
        spi_in: u32,
        /// SPI to which we send.
        spi_out: u32,
    },
    /// A Child SA is gone: stop sending with it. With [`Reason::Replaced`] keep receiving for some
    /// seconds, since packets may still be on their way.
    ChildDown {
        /// Its IKE SA.
        ike: IkeId,
        /// SPI at which we received.
        spi_in: u32,
        /// SPI to which we sent.
        spi_out: u32,
        /// Why.
        reason: Reason,
    },
    /// A Child SA was not made or not replaced; a Child SA that was to be replaced lives on.
    ChildFailed {
        /// Its IKE SA.
        ike: IkeId,
        /// Name of the child's configuration, where one was found.
        child: Option<String>,
        /// Why.
        reason: Reason,
    },
    /// The IKE SA could not be replaced and lives on.
    IkeRekeyFailed {
        /// The IKE SA.
        ike: IkeId,
        /// Why.
        reason: Reason,
    },
    /// There is a new path: send there, for the IKE SA and its Child SAs.
    PathChanged {
        /// The IKE SA.
        ike: IkeId,
        /// Our address.
        local: SocketAddr,
        /// The peer's new address.
        remote: SocketAddr,
        /// Transport of IKE and ESP from now on.
        transport: Transport,
        /// Whether ESP goes inside UDP from now on.
        udp_encapsulation: bool,
    },
    /// The peer does not take the new path; the old one is to be used again, or another.
    PathRefused {
        /// The IKE SA.
        ike: IkeId,
        /// Why.
        reason: Reason,
    },
}
