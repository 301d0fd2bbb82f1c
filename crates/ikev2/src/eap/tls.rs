//! EAP-TLS (RFC 5216, with TLS 1.3 RFC 9190): TLS records in fragments, and the session key.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ProtocolVersion, ServerConfig};
use rustls::{Error, ServerConnection};
use zeroize::Zeroizing;

use super::error::EapError;
use super::packet::TLS;
use super::session_key::SessionKey;
use crate::wire::Reader;

const LENGTH_INCLUDED: u8 = 0x80;
const MORE: u8 = 0x40;
const START: u8 = 0x20;

/// Bytes of TLS in one packet. Old clients take no more than about 1400.
const FRAGMENT: usize = 1024;
/// Most bytes of one message of the peer: a chain of large RSA certificates has some ten thousand.
const MAX_MESSAGE: usize = 65_536;

/// The data of the packet that starts the method.
pub(super) const fn start() -> [u8; 1] {
    [START]
}

/// One side's TLS connection with the fragments around it.
pub(super) struct Tunnel {
    connection: Connection,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// The first fragment of an outgoing message names its length.
    whole: Option<usize>,
    /// Server, TLS 1.3: the byte that says that nothing of the handshake follows (RFC 9190 §2.5).
    committed: bool,
    begun: bool,
    spoken: bool,
    /// Result of TLS for the last message, until it is asked for.
    turned: Option<Result<Progress, EapError>>,
    /// Whether a message waits for TLS.
    waits: bool,
}

/// A message that TLS has to work on. That takes signatures, perhaps of a slow token, and verifying
/// certificates, so it is done where it holds nobody up: the caller [runs](Self::run) it on a thread of its
/// choice, and answers.
#[derive(Clone)]
pub struct TlsStep(Arc<Mutex<Tunnel>>);

impl TlsStep {
    pub(super) fn new(tunnel: Tunnel) -> Self {
        Self(Arc::new(Mutex::new(tunnel)))
    }

    /// Has TLS work. Another call, or one that nobody asked for, does nothing.
    pub fn run(&self) {
        let mut tunnel = self.tunnel();
        if std::mem::take(&mut tunnel.waits) {
            let turned = tunnel.turn();
            tunnel.turned = Some(turned);
        }
    }

    /// The tunnel. One whose turn ended in a panic has no outcome, so it is as good as refused.
    pub(super) fn tunnel(&self) -> MutexGuard<'_, Tunnel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for TlsStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsStep")
    }
}

/// Progress after a message of the peer.
pub(super) enum Progress {
    /// The message is complete: TLS is to work on it.
    Work,
    /// There is something to send: TLS, or an acknowledgement.
    Send(Vec<u8>),
    /// The handshake is over on our side, and nothing is left to send.
    Idle,
}

impl Tunnel {
    pub(super) fn client(
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, EapError> {
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(failed)?;
        Ok(Self::new(connection.into()))
    }

    pub(super) fn server(config: &Arc<ServerConfig>) -> Result<Self, EapError> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(failed)?;
        Ok(Self::new(connection.into()))
    }

    const fn new(connection: Connection) -> Self {
        Self {
            connection,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            whole: None,
            committed: false,
            begun: false,
            spoken: false,
            turned: None,
            waits: false,
        }
    }

    /// Whether the peer has not said anything yet.
    pub(super) const fn is_fresh(&self) -> bool {
        !self.begun
    }

    /// Whether we have said anything.
    pub(super) const fn has_spoken(&self) -> bool {
        self.spoken
    }

    /// Takes the data of a packet.
    pub(super) fn handle(&mut self, data: &[u8]) -> Result<Progress, EapError> {
        let broken = |_| EapError::Protocol("EAP-TLS");
        self.begun = true;
        let mut reader = Reader::new(data, 0);
        let flags = reader.u8("flags").map_err(broken)?;
        if flags & LENGTH_INCLUDED != 0 {
            let whole = usize::try_from(reader.u32("length").map_err(broken)?);
            if whole.is_ok_and(|whole| whole > MAX_MESSAGE) {
                return Err(EapError::Protocol("EAP-TLS message too long"));
            }
        }
        let content = reader.rest();
        if !self.outgoing.is_empty() {
            // Only the acknowledgement of our fragment has a place here.
            let acknowledged = content.is_empty() && flags & MORE == 0;
            return acknowledged
                .then(|| Progress::Send(self.fragment()))
                .ok_or(EapError::Protocol("EAP-TLS acknowledgement"));
        }
        if self.incoming.len().saturating_add(content.len()) > MAX_MESSAGE {
            return Err(EapError::Protocol("EAP-TLS message too long"));
        }
        self.incoming.extend(content);
        if flags & MORE != 0 {
            // A fragment without content would go on for ever.
            return (!content.is_empty())
                .then(|| Progress::Send(vec![0]))
                .ok_or(EapError::Protocol("empty fragment"));
        }
        self.waits = true;
        Ok(Progress::Work)
    }

    /// Takes TLS's result for the message.
    pub(super) fn take_turn(&mut self) -> Result<Progress, EapError> {
        let turned = self.turned.take();
        turned.unwrap_or_else(|| Err(EapError::Tls("no answer".into())))
    }

    /// Feeds TLS with the message, and takes what it has to say.
    fn turn(&mut self) -> Result<Progress, EapError> {
        let incoming = std::mem::take(&mut self.incoming);
        let mut rest = incoming.as_slice();
        while !rest.is_empty() {
            let read = self.connection.read_tls(&mut rest);
            if read.map_err(|error| EapError::Tls(error.to_string()))? == 0 {
                return Err(EapError::Protocol("EAP-TLS"));
            }
            self.connection.process_new_packets().map_err(failed)?;
        }
        let server = matches!(self.connection, Connection::Server(_));
        if server && self.is_modern() && !self.committed && !self.connection.is_handshaking() {
            self.committed = true;
            let written = self.connection.writer().write(&[0]);
            written.map_err(|error| EapError::Tls(error.to_string()))?;
        }
        while self.connection.wants_write() {
            let written = self.connection.write_tls(&mut self.outgoing);
            written.map_err(|error| EapError::Tls(error.to_string()))?;
        }
        if self.outgoing.is_empty() {
            return Ok(Progress::Idle);
        }
        self.spoken = true;
        self.whole = Some(self.outgoing.len());
        Ok(Progress::Send(self.fragment()))
    }

    /// The next fragment of what is to be sent.
    fn fragment(&mut self) -> Vec<u8> {
        let rest = self.outgoing.split_off(FRAGMENT.min(self.outgoing.len()));
        let part = std::mem::replace(&mut self.outgoing, rest);
        let more = if self.outgoing.is_empty() { 0 } else { MORE };
        let whole = self.whole.take().filter(|_| more != 0);
        let Some(whole) = whole else {
            return [&[more], &part[..]].concat();
        };
        let whole = u32::try_from(whole).unwrap_or(u32::MAX).to_be_bytes();
        [&[LENGTH_INCLUDED | more], &whole[..], &part].concat()
    }

    fn is_modern(&self) -> bool {
        self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Whether the handshake is over, as far as this side can know. A client of TLS 1.3 waits for the
    /// server's word that nothing follows.
    pub(super) fn is_done(&mut self) -> bool {
        if self.connection.is_handshaking() || !self.outgoing.is_empty() {
            return false;
        }
        if self.is_modern() && matches!(self.connection, Connection::Client(_)) && !self.committed {
            let mut byte = [1];
            let read = self.connection.reader().read(&mut byte);
            self.committed = matches!(read, Ok(1)) && byte == [0];
            return self.committed;
        }
        true
    }

    /// The peer's certificates, its own first.
    pub(super) fn peer_chain(&self) -> Vec<Vec<u8>> {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        chain.iter().map(|der| der.to_vec()).collect()
    }

    /// The session key (RFC 5216 §2.3; RFC 9190 §2.3).
    pub(super) fn session_key(&self) -> Result<SessionKey, EapError> {
        let (label, context): (&[u8], Option<&[u8]>) = if self.is_modern() {
            (b"EXPORTER_EAP_TLS_Key_Material", Some(&[TLS]))
        } else {
            (b"client EAP encryption", None)
        };
        // 1.3: of 128 bytes the first 64; the exporter's output depends on its length.
        let len = if self.is_modern() { 128 } else { 64 };
        let mut material = Zeroizing::new(vec![0; len]);
        self.connection
            .export_keying_material(&mut material[..], label, context)
            .map_err(failed)?;
        material.truncate(64);
        Ok(SessionKey(material))
    }
}

fn failed(error: Error) -> EapError {
    EapError::Tls(error.to_string())
}
