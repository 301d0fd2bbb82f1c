//! Clients that make tunnels by IKEv2 (RFC 7296) and close them again, as fast as the server lets them.
//!
//! They use our own protocol core on sockets of their own, whoever the server is, so that servers are
//! compared by the same clients. Each has an address of its own, like as many hosts. No packets go
//! through the tunnels.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use ikev2::auth::Scheme;
use ikev2::config::{Addresses, Credential, KeyKind, LocalAuth, Mode, PeerId, RemoteAuth};
use ikev2::crypto::{Group, Prf};
use ikev2::select::{EspProposal, IkeProposal};
use ikev2::wire::{Identification, TrafficSelector};
use ikev2::{
    Authorization, ChildConfig, Connection, Endpoint, Event, Holder, Limits, Random, Request,
    Response, Timestamp,
};
use offload::Encryption;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde::{Deserialize, Serialize};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::LabError;
use crate::tool::SERVER_NAME;

/// No handshake takes longer.
const LIMIT: Duration = Duration::from_secs(10);
pub(crate) const PORTS: [u16; 2] = [500, 4500];

/// The clients' orders.
#[derive(Debug, Serialize, Deserialize)]
pub struct Dialling {
    pub server: Ipv4Addr,
    /// One client for each of these addresses of ours, and what is behind it inside the tunnel.
    pub clients: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Address behind the server.
    pub inside: Ipv4Addr,
    /// Trusted root, PEM.
    pub root: String,
    /// The clients' certificate, PEM. It names `client-0` and so on.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
    /// With ML-KEM-768 on top of X25519.
    pub hybrid: bool,
    /// Connections of each client, or as many as go until `seconds` are over.
    pub count: Option<u32>,
    /// Duration without `count`, in seconds.
    pub seconds: f64,
}

/// Result of the clients.
#[derive(Debug, Serialize, Deserialize)]
pub struct Dialled {
    /// Connections that were made and closed.
    pub count: u32,
    /// Whole duration in seconds.
    pub seconds: f64,
    /// For each the seconds from the first message to the tunnel.
    pub times: Vec<f64>,
}

/// Dials: the description comes from standard input, the result goes to standard output.
///
/// # Errors
/// The description makes no sense, or any connection failed.
pub fn dial() -> Result<(), LabError> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(LabError::io("the description"))?;
    let dialling: Dialling = serde_json::from_str(&text).map_err(unexpected)?;
    let result = serde_json::to_string(&all(&dialling)?).map_err(unexpected)?;
    writeln!(std::io::stdout().lock(), "{result}").map_err(LabError::io("the result"))
}

pub(crate) fn unexpected(error: impl std::fmt::Display) -> LabError {
    LabError::Unexpected(error.to_string())
}

fn all(dialling: &Dialling) -> Result<Dialled, LabError> {
    let identity = Identity::read(dialling)?;
    let began = Instant::now();
    let until = Duration::from_secs_f64(dialling.seconds);
    let work = |number: usize| -> Result<Vec<f64>, LabError> {
        let mut client = Client::new(dialling, &identity, number)?;
        let mut times = Vec::new();
        loop {
            let enough = match dialling.count {
                Some(count) => times.len() >= count as usize,
                None => began.elapsed() >= until,
            };
            if enough {
                return Ok(times);
            }
            times.push(client.connect()?);
        }
    };
    let times = std::thread::scope(|scope| {
        let work = &work;
        let clients: Vec<_> = (0..dialling.clients.len())
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        let mut times = Vec::new();
        for client in clients {
            times.extend(client.join().map_err(|_| unexpected("a client died"))??);
        }
        Ok::<_, LabError>(times)
    })?;
    Ok(Dialled {
        count: u32::try_from(times.len()).unwrap_or(u32::MAX),
        seconds: began.elapsed().as_secs_f64(),
        times,
    })
}

/// The clients' certificate and key, and whom they trust.
pub(crate) struct Identity {
    chain: Vec<Vec<u8>>,
    key: Signer,
    root: CertificateDer<'static>,
}

enum Signer {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Identity {
    pub(crate) fn read(dialling: &Dialling) -> Result<Self, LabError> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(dialling.certificate.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(dialling.key.as_bytes()).map_err(unexpected)?;
        let der = key.secret_der();
        let encoding = &signature::ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = if let Ok(key) = Ed25519KeyPair::from_pkcs8(der) {
            Signer::Ed25519(key)
        } else if let Ok(key) = RsaKeyPair::from_pkcs8(der) {
            Signer::Rsa(key)
        } else {
            Signer::Ecdsa(EcdsaKeyPair::from_pkcs8(encoding, der).map_err(unexpected)?)
        };
        Ok(Self {
            chain: chain
                .map_err(unexpected)?
                .iter()
                .map(|der| der.to_vec())
                .collect(),
            key,
            root: CertificateDer::from_pem_slice(dialling.root.as_bytes()).map_err(unexpected)?,
        })
    }

    const fn kind(&self) -> KeyKind {
        match self.key {
            Signer::Rsa(_) => KeyKind::Rsa,
            Signer::Ecdsa(_) => KeyKind::EcdsaP256,
            Signer::Ed25519(_) => KeyKind::Ed25519,
        }
    }

    pub(crate) fn sign(&self, scheme: Scheme, message: &[u8]) -> Result<Response, String> {
        let random = SystemRandom::new();
        let refused = |error: aws_lc_rs::error::Unspecified| error.to_string();
        let signature = match (&self.key, scheme) {
            (Signer::Ed25519(key), Scheme::Ed25519) => key.sign(message).as_ref().to_vec(),
            (Signer::Ecdsa(key), Scheme::EcdsaP256) => key
                .sign(&random, message)
                .map_err(refused)?
                .as_ref()
                .to_vec(),
            (Signer::Rsa(key), Scheme::RsaPssSha256 | Scheme::RsaPkcs1Sha256) => {
                let padding: &dyn signature::RsaEncoding = match scheme {
                    Scheme::RsaPssSha256 => &signature::RSA_PSS_SHA256,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut out = vec![0; key.public_modulus_len()];
                key.sign(padding, &random, message, &mut out)
                    .map_err(refused)?;
                out
            }
            _ => return Err(format!("the client does not sign with {scheme:?}")),
        };
        Ok(Response::Signature(signature))
    }

    /// The chain leads to the root and the certificate is the server's.
    pub(crate) fn verify(&self, chain: &[Vec<u8>]) -> Result<Response, String> {
        let text = |error: webpki::Error| error.to_string();
        let certificates: Vec<_> = chain
            .iter()
            .map(|der| CertificateDer::from(der.as_slice()))
            .collect();
        let (leaf, rest) = certificates.split_first().ok_or("no certificate")?;
        let leaf = EndEntityCert::try_from(leaf).map_err(text)?;
        let anchor = anchor_from_trusted_cert(&self.root).map_err(text)?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = UnixTime::since_unix_epoch(since.unwrap_or_default());
        let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::server_auth());
        leaf.verify_for_usage(algorithms, &[anchor], rest, now, usage, None, None)
            .map_err(text)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(|error| error.to_string())?;
        leaf.verify_is_valid_for_subject_name(&name).map_err(text)?;
        Ok(Response::PeerKey(leaf.subject_public_key_info().to_vec()))
    }
}

pub(crate) struct System;

impl Random for System {
    fn fill(&mut self, out: &mut [u8]) {
        // Without random numbers nothing must go on.
        aws_lc_rs::rand::fill(out).unwrap_or_else(|_| std::process::abort());
    }
}

/// One client with its sockets.
struct Client<'a> {
    identity: &'a Identity,
    endpoint: Endpoint,
    may: Authorization,
    sockets: Vec<(SocketAddr, UdpSocket)>,
    server: SocketAddr,
    start: Instant,
    buffer: Vec<u8>,
}

/// State of a connection.
#[derive(Default)]
struct Way {
    /// When the tunnel was there, after so long.
    up: Option<Duration>,
    closed: bool,
}

impl<'a> Client<'a> {
    fn new(dialling: &Dialling, identity: &'a Identity, number: usize) -> Result<Self, LabError> {
        let (address, inside) = *dialling
            .clients
            .get(number)
            .ok_or_else(|| unexpected("a client without address"))?;
        let failed = || LabError::io(format!("a client's port on {address}"));
        let mut sockets = Vec::new();
        for port in PORTS {
            let local = SocketAddr::new(address.into(), port);
            let socket = UdpSocket::bind(local).map_err(failed())?;
            socket.set_nonblocking(true).map_err(failed())?;
            sockets.push((local, socket));
        }
        let start = Instant::now();
        let mut endpoint = Endpoint::new(Limits::default(), Box::new(System), Timestamp::default());
        let connection = connection(dialling, (&identity.chain, identity), number, inside)?;
        let may = Authorization::of_connection(&connection, Holder::new(SERVER_NAME.as_bytes()));
        endpoint.add_connection(connection);
        Ok(Self {
            identity,
            endpoint,
            may,
            sockets,
            server: SocketAddr::new(dialling.server.into(), 500),
            start,
            buffer: vec![0; 65_536],
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::new(self.start.elapsed())
    }

    /// Makes a tunnel, notes how long that took in seconds, and closes it.
    fn connect(&mut self) -> Result<f64, LabError> {
        let began = Instant::now();
        let local = self
            .sockets
            .first()
            .map_or(self.server, |(local, _)| *local);
        let now = self.now();
        self.endpoint
            .initiate(now, "server", local, self.server)
            .map_err(unexpected)?;
        let mut way = Way::default();
        while !way.closed {
            self.flush(began, &mut way)?;
            if way.closed {
                break;
            }
            if began.elapsed() > LIMIT {
                return Err(unexpected("a handshake took too long"));
            }
            self.receive()?;
            let now = self.now();
            self.endpoint.handle_timeout(now);
        }
        let up = way
            .up
            .ok_or_else(|| unexpected("a handshake ended without a tunnel"))?;
        Ok(up.as_secs_f64())
    }

    /// Sends what there is to send and answers what is asked.
    fn flush(&mut self, began: Instant, way: &mut Way) -> Result<(), LabError> {
        loop {
            if let Some(event) = self.endpoint.poll_event() {
                self.event(event, began, way)?;
                continue;
            }
            let Some(transmit) = self.endpoint.poll_transmit() else {
                return Ok(());
            };
            let socket = self
                .sockets
                .iter()
                .find(|(local, _)| *local == transmit.local);
            if let Some((_, socket)) = socket {
                // What does not go out is repeated like what gets lost.
                let _ = socket.send_to(&transmit.payload, transmit.remote);
            }
        }
    }

    fn event(&mut self, event: Event, began: Instant, way: &mut Way) -> Result<(), LabError> {
        let now = self.now();
        match event {
            Event::Request(id, request) => {
                let answer = match request {
                    Request::Sign {
                        scheme, message, ..
                    } => self.identity.sign(scheme, &message),
                    Request::VerifyPeer { chain, .. } => self.identity.verify(&chain),
                    Request::Authorize { .. } => {
                        Ok(Response::Authorized(Box::new(self.may.clone())))
                    }
                    Request::Solve(puzzle) => {
                        let solution = puzzle.solve().map(Response::Solved);
                        solution.ok_or_else(|| "no solution".to_owned())
                    }
                    Request::Password { .. } | Request::Tls(_) | Request::ReviewPeer { .. } => {
                        Err("not here".to_owned())
                    }
                };
                let answer = answer.unwrap_or_else(|why| Response::Refused(why.into()));
                self.endpoint.respond(now, id, answer);
            }
            Event::ChildUp(up) => {
                way.up = Some(began.elapsed());
                self.endpoint.close(now, up.ike).map_err(unexpected)?;
            }
            Event::ChildFailed { reason, .. } => {
                return Err(LabError::Unexpected(format!("no tunnel: {reason}")));
            }
            Event::IkeDown { reason, .. } => {
                if way.up.is_none() {
                    return Err(LabError::Unexpected(format!(
                        "a handshake failed: {reason}"
                    )));
                }
                way.closed = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for datagrams, or until something has to be repeated.
    fn receive(&mut self) -> Result<(), LabError> {
        let failed = || LabError::io("a client's sockets");
        let now = self.now();
        let wait = self
            .endpoint
            .poll_timeout()
            .map_or(LIMIT, |at| at.since(now));
        let wait = Timespec::try_from(wait.min(LIMIT)).map_err(unexpected)?;
        {
            let mut fds: Vec<_> = self
                .sockets
                .iter()
                .map(|(_, socket)| PollFd::new(socket, PollFlags::IN))
                .collect();
            match poll(&mut fds, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed()(error.into())),
            }
        }
        let now = self.now();
        for (local, socket) in &self.sockets {
            while let Ok((count, remote)) = socket.recv_from(&mut self.buffer) {
                let bytes = self.buffer.get(..count).unwrap_or_default();
                self.endpoint.handle_datagram(now, *local, remote, bytes);
            }
        }
        Ok(())
    }
}

pub(crate) fn connection(
    dialling: &Dialling,
    (chain, identity): (&[Vec<u8>], &Identity),
    number: usize,
    inside: Ipv4Addr,
) -> Result<Connection, LabError> {
    let host = |address: Ipv4Addr| {
        TrafficSelector::network(IpAddr::V4(address), 32).ok_or_else(|| unexpected("an address"))
    };
    Ok(Connection {
        name: "server".into(),
        remote_address: None,
        local_id: Identification::fqdn(&client_name(number)),
        remote_id: PeerId::Exactly(Identification::fqdn(SERVER_NAME)),
        local_auth: LocalAuth::Certificates(vec![Credential {
            chain: chain.to_vec(),
            key: identity.kind(),
            authorities: vec![],
            ocsp: None,
        }]),
        remote_auth: RemoteAuth::Certificate {
            authorities: vec![],
            ocsp: false,
        },
        ppk: None,
        mobility: false,
        further_addresses: vec![],
        addresses: Addresses::None,
        ike: vec![IkeProposal {
            encryption: vec![Encryption::AesGcm128],
            integrity: vec![],
            prf: vec![Prf::HmacSha256],
            groups: vec![Group::X25519],
            additional: match dialling.hybrid {
                true => vec![vec![Group::MlKem768]],
                false => vec![],
            },
        }],
        children: vec![ChildConfig {
            name: "net".into(),
            mode: Mode::Tunnel,
            local: vec![host(inside)?],
            remote: vec![host(dialling.inside)?],
            esp: vec![EspProposal {
                encryption: vec![Encryption::AesGcm128],
                integrity: vec![],
                groups: vec![Group::X25519],
                additional: vec![],
                without_group: false,
                extended_sequence: vec![false],
            }],
            rekey_after: None,
        }],
        rekey_after: None,
        liveness: None,
        retransmission: None,
        // Many clients in one process, each with a name of its own.
        unique: ikev2::Unique::Never,
    })
}

/// The name of a client, which stands in the certificate.
pub(crate) fn client_name(number: usize) -> String {
    format!("client-{number}.example.org")
}
