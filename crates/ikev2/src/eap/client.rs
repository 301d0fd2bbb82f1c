//! The client (the "peer" of RFC 3748): the initiator of the IKE SA.

use super::error::EapError;
use super::mschap::NtHash;
use super::mschapv2::{self, Step};
use super::packet::{
    FAILURE, IDENTITY, MAX_ROUNDS, MSCHAPV2, NAK, NOTIFICATION, Packet, REQUEST, RESPONSE, SUCCESS,
    TLS, encode,
};
use super::session_key::SessionKey;
use super::tls::{Progress, TlsStep, Tunnel};
use crate::config::ClientMethod;

/// Next step after a message.
pub enum ClientOutput {
    /// Send this.
    Send(Vec<u8>),
    /// Ask the user for the password, and go on with [`Client::password`].
    NeedPassword,
    /// Run this, and go on with [`Client::tls`].
    NeedTls(TlsStep),
    /// The server has let us in, and has proved itself.
    Success(SessionKey),
}

enum Method {
    MsChapV2(mschapv2::Client),
    Tls(TlsStep),
}

/// One run of EAP as client.
pub struct Client {
    identity: Vec<u8>,
    method: Method,
    begun: bool,
    /// Identifier of the request that waits for the password, or for TLS.
    waiting: Option<u8>,
    rounds: u16,
}

impl Client {
    /// Starts with a name and a method.
    ///
    /// # Errors
    /// [`EapError::Tls`] if the configuration is of no use.
    pub fn new(identity: &str, method: &ClientMethod) -> Result<Self, EapError> {
        let method = match method {
            ClientMethod::MsChapV2 => Method::MsChapV2(mschapv2::Client::Start),
            ClientMethod::Tls { config, server } => {
                Method::Tls(TlsStep::new(Tunnel::client(config, server.clone())?))
            }
        };
        Ok(Self {
            identity: identity.as_bytes().to_vec(),
            method,
            begun: false,
            waiting: None,
            rounds: 0,
        })
    }

    const fn kind(&self) -> u8 {
        match self.method {
            Method::MsChapV2(_) => MSCHAPV2,
            Method::Tls(_) => TLS,
        }
    }

    /// Handles a packet of the server.
    ///
    /// # Errors
    /// [`EapError`]: then the handshake is over.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<ClientOutput, EapError> {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds > MAX_ROUNDS || self.waiting.is_some() {
            return Err(EapError::Protocol("no end"));
        }
        let packet = Packet::decode(bytes)?;
        let answer = |kind, data: &[u8]| encode(RESPONSE, packet.id, kind, data);
        match (packet.code, packet.kind) {
            (SUCCESS, _) => self.success(),
            (FAILURE, _) => Err(EapError::Refused),
            (REQUEST, IDENTITY) if !self.begun => {
                Ok(ClientOutput::Send(answer(IDENTITY, &self.identity)))
            }
            (REQUEST, NOTIFICATION) => Ok(ClientOutput::Send(answer(NOTIFICATION, &[]))),
            (REQUEST, kind) if kind == self.kind() => self.request(&packet),
            // Another method, unless ours has begun (RFC 3748 §5.3.1).
            (REQUEST, _) if !self.begun => Ok(ClientOutput::Send(answer(NAK, &[self.kind()]))),
            _ => Err(EapError::Protocol("message out of place")),
        }
    }

    fn request(&mut self, packet: &Packet<'_>) -> Result<ClientOutput, EapError> {
        self.begun = true;
        let (kind, id) = (self.kind(), packet.id);
        let data = match &mut self.method {
            Method::MsChapV2(method) => match method.handle(packet.data)? {
                Step::Send(data) => data,
                Step::NeedPassword => {
                    self.waiting = Some(id);
                    return Ok(ClientOutput::NeedPassword);
                }
            },
            Method::Tls(step) => match step.tunnel().handle(packet.data)? {
                Progress::Send(data) => data,
                Progress::Idle => vec![0],
                Progress::Work => {
                    self.waiting = Some(id);
                    return Ok(ClientOutput::NeedTls(step.clone()));
                }
            },
        };
        Ok(ClientOutput::Send(encode(RESPONSE, id, kind, &data)))
    }

    /// Goes on with the password; `peer_challenge` is random.
    ///
    /// # Errors
    /// [`EapError::Protocol`] if nobody asked for it.
    pub fn password(
        &mut self,
        peer_challenge: [u8; 16],
        password: &NtHash,
    ) -> Result<Vec<u8>, EapError> {
        let (Some(id), Method::MsChapV2(method)) = (self.waiting.take(), &mut self.method) else {
            return Err(EapError::Protocol("unexpected password"));
        };
        let data = method.password(&self.identity, peer_challenge, password)?;
        Ok(encode(RESPONSE, id, MSCHAPV2, &data))
    }

    /// Goes on after TLS has worked.
    ///
    /// # Errors
    /// [`EapError`]: then the handshake is over.
    pub fn tls(&mut self) -> Result<Vec<u8>, EapError> {
        let (Some(id), Method::Tls(step)) = (self.waiting.take(), &self.method) else {
            return Err(EapError::Protocol("unexpected TLS"));
        };
        let mut tunnel = step.tunnel();
        let data = match tunnel.take_turn()? {
            Progress::Send(data) => data,
            // There is nothing to say before the client's hello but the hello.
            Progress::Idle if !tunnel.has_spoken() => return Err(EapError::Protocol("EAP-TLS")),
            Progress::Idle | Progress::Work => vec![0],
        };
        Ok(encode(RESPONSE, id, TLS, &data))
    }

    /// The name under which we log in.
    pub fn identity(&self) -> String {
        self.identity.escape_ascii().to_string()
    }

    fn success(&mut self) -> Result<ClientOutput, EapError> {
        match &mut self.method {
            Method::MsChapV2(mschapv2::Client::Done(key)) => Ok(ClientOutput::Success(key.clone())),
            Method::Tls(step) => {
                let mut tunnel = step.tunnel();
                if !self.begun || !tunnel.is_done() {
                    return Err(EapError::EarlySuccess);
                }
                Ok(ClientOutput::Success(tunnel.session_key()?))
            }
            Method::MsChapV2(_) => Err(EapError::EarlySuccess),
        }
    }
}
