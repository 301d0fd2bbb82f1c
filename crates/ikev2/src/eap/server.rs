//! The server (the "authenticator" of RFC 3748 with its authentication server in one): the responder
//! of the IKE SA.

use std::collections::VecDeque;

use super::error::EapError;
use super::mschap::NtHash;
use super::mschapv2::{self, Outcome};
use super::packet::{
    FAILURE, IDENTITY, MAX_ROUNDS, MSCHAPV2, NAK, Packet, REQUEST, RESPONSE, SUCCESS, TLS, encode,
    end,
};
use super::session_key::SessionKey;
use super::tls::{self, Progress, TlsStep, Tunnel};
use crate::config::ServerMethod;

/// Longest identity that we take.
const MAX_IDENTITY: usize = 256;

/// Next step after a message.
pub enum ServerOutput {
    /// Send this.
    Send(Vec<u8>),
    /// Look up the password of this user, and go on with [`Server::password`].
    NeedPassword(String),
    /// Run this, and go on with [`Server::tls`].
    NeedTls(TlsStep),
    /// Validate this chain and that it speaks for this name, and go on with [`Server::certificate`].
    NeedCertificate(Vec<Vec<u8>>, String),
    /// The client has proved that it is this user; send the packet.
    Success(Vec<u8>, SessionKey, String),
    /// It has not; send the packet and close.
    Failure(Vec<u8>, EapError),
}

enum Method {
    None,
    MsChapV2(mschapv2::Server),
    Tls(TlsStep),
}

/// One run of EAP as server.
pub struct Server {
    methods: VecDeque<ServerMethod>,
    method: Method,
    /// Identity that the client claims; not proved by itself.
    identity: Option<Vec<u8>>,
    /// Identifier of our latest request.
    id: u8,
    rounds: u16,
    refusal: Option<String>,
}

fn text(name: &[u8]) -> String {
    String::from_utf8(name.to_vec()).unwrap_or_else(|_| name.escape_ascii().to_string())
}

impl Server {
    /// Starts with the methods in order of preference; gives the first packet.
    ///
    /// RFC 7296 §3.16 has IKE's own identity instead of this request for one. Telephones and Windows put
    /// an address there, so only here they say who they are.
    pub fn new(methods: &[ServerMethod]) -> (Self, Vec<u8>) {
        let server = Self {
            methods: methods.iter().cloned().collect(),
            method: Method::None,
            identity: None,
            id: 1,
            rounds: 0,
            refusal: None,
        };
        (server, encode(REQUEST, 1, IDENTITY, &[]))
    }

    /// Handles a packet of the client; `challenge` is random.
    pub fn handle(&mut self, bytes: &[u8], challenge: [u8; 16]) -> ServerOutput {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds > MAX_ROUNDS {
            return self.fail(EapError::Protocol("no end"));
        }
        self.step(bytes, challenge)
            .unwrap_or_else(|error| self.fail(error))
    }

    fn fail(&self, error: EapError) -> ServerOutput {
        // Both name the response that they answer (RFC 3748 §4.2).
        ServerOutput::Failure(end(FAILURE, self.id.wrapping_sub(1)).to_vec(), error)
    }

    fn request(&self, kind: u8, data: &[u8]) -> ServerOutput {
        ServerOutput::Send(encode(REQUEST, self.id, kind, data))
    }

    fn step(&mut self, bytes: &[u8], challenge: [u8; 16]) -> Result<ServerOutput, EapError> {
        let packet = Packet::decode(bytes)?;
        if packet.code != RESPONSE || packet.id != self.id {
            return Err(EapError::Protocol("message out of place"));
        }
        self.id = self.id.wrapping_add(1);
        if self.identity.is_none() {
            let valid = packet.kind == IDENTITY && packet.data.len() <= MAX_IDENTITY;
            if !valid {
                return Err(EapError::Protocol("identity"));
            }
            self.identity = Some(packet.data.to_vec());
            return self.next_method(None, challenge);
        }
        match (&mut self.method, packet.kind) {
            (Method::MsChapV2(mschapv2::Server::Challenged { .. }), NAK) => {
                self.next_method(Some(packet.data), challenge)
            }
            // Once a method has begun there is no way back (RFC 3748 §5.3.1).
            (Method::Tls(step), NAK) if step.tunnel().is_fresh() => {
                self.next_method(Some(packet.data), challenge)
            }
            (Method::MsChapV2(method), MSCHAPV2) => match method.handle(packet.data)? {
                Outcome::NeedPassword(user) => Ok(ServerOutput::NeedPassword(text(&user))),
                Outcome::Done(user, key) => Ok(self.succeed(key, text(&user))),
                Outcome::Failed => Err(self.failure().unwrap_or(EapError::Protocol("MSCHAPv2"))),
            },
            (Method::Tls(step), TLS) => {
                let step = step.clone();
                let progress = step.tunnel().handle(packet.data)?;
                self.after_tls(&step, progress)
            }
            _ => Err(EapError::Protocol("message out of place")),
        }
    }

    fn after_tls(&self, step: &TlsStep, progress: Progress) -> Result<ServerOutput, EapError> {
        match progress {
            Progress::Send(data) => Ok(self.request(TLS, &data)),
            Progress::Work => Ok(ServerOutput::NeedTls(step.clone())),
            Progress::Idle => {
                let mut tunnel = step.tunnel();
                let chain = tunnel.peer_chain();
                if !tunnel.is_done() || chain.is_empty() {
                    return Err(EapError::Protocol("EAP-TLS"));
                }
                let identity = self.identity.as_deref().unwrap_or_default();
                Ok(ServerOutput::NeedCertificate(chain, text(identity)))
            }
        }
    }

    /// Goes on after TLS has worked.
    pub fn tls(&mut self) -> ServerOutput {
        let Method::Tls(step) = &self.method else {
            return self.fail(EapError::Protocol("unexpected TLS"));
        };
        let step = step.clone();
        let progress = step.tunnel().take_turn();
        let output = progress.and_then(|progress| self.after_tls(&step, progress));
        output.unwrap_or_else(|error| self.fail(error))
    }

    /// The next of our methods, of those that the client wants if it said.
    fn next_method(
        &mut self,
        wanted: Option<&[u8]>,
        challenge: [u8; 16],
    ) -> Result<ServerOutput, EapError> {
        while let Some(method) = self.methods.pop_front() {
            let kind = match method {
                ServerMethod::MsChapV2 => MSCHAPV2,
                ServerMethod::Tls(_) => TLS,
            };
            if wanted.is_some_and(|wanted| !wanted.contains(&kind)) {
                continue;
            }
            return match method {
                ServerMethod::MsChapV2 => {
                    let (method, data) = mschapv2::Server::challenge(self.id, challenge);
                    self.method = Method::MsChapV2(method);
                    Ok(self.request(MSCHAPV2, &data))
                }
                ServerMethod::Tls(config) => {
                    self.method = Method::Tls(TlsStep::new(Tunnel::server(&config)?));
                    Ok(self.request(TLS, &tls::start()))
                }
            };
        }
        Err(EapError::Method)
    }

    /// Goes on with the user's password; none if there is no such user or it may not come in.
    /// `challenge` is random.
    pub fn password(&mut self, password: Option<&NtHash>, challenge: [u8; 16]) -> ServerOutput {
        let Method::MsChapV2(method) = &mut self.method else {
            return self.fail(EapError::Protocol("unexpected password"));
        };
        match method.password(self.id, password, challenge) {
            Ok(data) => self.request(MSCHAPV2, &data),
            Err(error) => self.fail(error),
        }
    }

    /// Goes on after the certificate was validated, or refused for this reason.
    pub fn certificate(&mut self, refused: Option<String>) -> ServerOutput {
        let Method::Tls(step) = &self.method else {
            return self.fail(EapError::Protocol("unexpected certificate"));
        };
        let key = match refused {
            Some(reason) => Err(EapError::Certificate(reason)),
            None => step.tunnel().session_key(),
        };
        match key {
            Ok(key) => {
                let identity = text(self.identity.as_deref().unwrap_or_default());
                self.succeed(key, identity)
            }
            Err(error) => self.fail(error),
        }
    }

    /// Whether the password is what is waited for, rather than the verdict on a certificate.
    pub(crate) const fn waits_for_password(&self) -> bool {
        matches!(self.method, Method::MsChapV2(_))
    }

    /// Why the user may not come in, for our log.
    pub(crate) fn note_refusal(&mut self, reason: String) {
        self.refusal = Some(reason);
    }

    /// Why we have said no, if we have.
    pub(crate) fn failure(&mut self) -> Option<EapError> {
        let Method::MsChapV2(mschapv2::Server::Refused { user }) = &self.method else {
            return None;
        };
        let user = user.escape_ascii().to_string();
        let reason = self.refusal.take();
        let why = reason.map_or(user.clone(), |reason| format!("{user}: {reason}"));
        Some(EapError::Password(why))
    }

    fn succeed(&self, key: SessionKey, identity: String) -> ServerOutput {
        let id = self.id.wrapping_sub(1);
        ServerOutput::Success(end(SUCCESS, id).to_vec(), key, identity)
    }
}
