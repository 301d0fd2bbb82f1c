//! IKE_AUTH with EAP as responder (RFC 7296 §2.16); `eap_initiator` draws the messages.

use super::common::Common;
use super::core::Core;
use super::handshake::{error_notify, proof_refused};
use super::payloads::find;
use super::responder::{Responder, ResponderNext, ResponderStep, ServerRun};
use super::responder_auth::{authorize_initiator, refuse_initiator};
use super::state::Failure;
use crate::auth::{PeerVerified, verify_shared_key};
use crate::config::{LocalAuth, PeerId, Psk, RemoteAuth};
use crate::diagnosis::{AuthenticationFailure, Difference, Setting};
use crate::eap::{EapError, NtHash, Server, ServerOutput};
use crate::event::{Reason, Request, Response};
use crate::wire::{Authentication, ExchangeType, IdType, Identification, Payload};

impl Responder {
    /// Takes an IKE_AUTH request without AUTH: first we prove ourselves.
    ///
    /// ```text
    /// HDR, SK {IDi, [CERTREQ,] [CP,] SAi2, TSi, TSr}  -->
    /// ```
    pub(super) fn start_eap_server(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        request: Vec<Payload>,
    ) -> Result<ResponderNext, Failure> {
        let RemoteAuth::Eap { methods } = &sa.connection.remote_auth else {
            return Err(refuse_initiator(sa, core, "no EAP here"));
        };
        let (server, first) = Server::new(methods);
        let run = Box::new(ServerRun { server, request });
        let auth_id = sa.channel.next_expected();
        let handshake = &mut self.handshake;
        // All proofs name the first IKE_AUTH request, however many there are (RFC 9242 §3.3.2).
        handshake.auth_id = Some(auth_id);
        let octets = handshake.octets_r(&sa.connection.local_id, auth_id);
        match &sa.connection.local_auth {
            LocalAuth::Psk(psk) => {
                let proof = octets.shared_key(handshake.keys.prf, psk);
                Ok(self.open_eap(sa, core, run, proof, first))
            }
            LocalAuth::Certificates(ours) => {
                let asked = handshake.ask_signature(&sa.connection, ours, &octets);
                let Some((scheme, question)) = asked else {
                    let reason = "peer knows no signature algorithm of our key";
                    return Err(refuse_initiator(sa, core, reason));
                };
                let pending = core.request(sa.id, question);
                Ok(ResponderNext::Wait(ResponderStep::EapSigning {
                    pending,
                    scheme,
                    run,
                    first,
                }))
            }
            LocalAuth::Eap { .. } => Err(refuse_initiator(sa, core, "EAP on both sides")),
        }
    }

    /// Sends our proof and the first EAP request.
    ///
    /// ```text
    ///   <--  HDR, SK {IDr, [CERT,] AUTH, EAP}
    /// ```
    pub(super) fn open_eap(
        &self,
        sa: &mut Common,
        core: &mut Core,
        run: Box<ServerRun>,
        proof: Authentication,
        first: Vec<u8>,
    ) -> ResponderNext {
        let mut reply = vec![Payload::IdR(sa.connection.local_id.clone())];
        reply.extend(self.handshake.own_certificates(&sa.connection));
        reply.extend([Payload::Auth(proof), Payload::Eap(first)]);
        reply_eap(sa, core, run, &reply)
    }

    /// Takes a further IKE_AUTH request.
    ///
    /// ```text
    /// HDR, SK {EAP}   -->      or, after its success,
    /// HDR, SK {AUTH}  -->
    /// ```
    pub(super) fn on_eap_request(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        step: ResponderStep,
        request: &[Payload],
    ) -> Result<ResponderNext, Failure> {
        let (packet, proof) = (find!(request, Payload::Eap), find!(request, Payload::Auth));
        match (step, packet, proof) {
            (ResponderStep::EapExpecting(mut run), Some(packet), None) => {
                let output = run.server.handle(packet, core.bytes());
                on_server_output(sa, core, run, output)
            }
            (ResponderStep::EapSucceeded { run, key, who }, None, Some(proof)) => {
                match self.verify_eap_initiator(&run, &key, &who, proof) {
                    Ok(peer) => {
                        self.eap_key = Some(key);
                        Ok(authorize_initiator(sa, core, peer, run.request))
                    }
                    Err(reason) => Err(refuse_initiator(sa, core, reason)),
                }
            }
            // The client's turn, and not what it is to send.
            (ResponderStep::EapExpecting(_) | ResponderStep::EapSucceeded { .. }, ..) => {
                let reason = "message out of place in EAP";
                Err(refuse_initiator(sa, core, reason))
            }
            _ => {
                let failure = refuse_initiator(sa, core, "message out of place in EAP");
                Err(Failure::wrong_state(*failure.reason))
            }
        }
    }

    /// The caller's answer about the user.
    pub(super) fn on_user_answer(
        sa: &mut Common,
        core: &mut Core,
        mut run: Box<ServerRun>,
        answer: Response,
    ) -> Result<ResponderNext, Failure> {
        let password: Option<NtHash>;
        let output = match answer {
            Response::Password(hash) => {
                password = Some(hash);
                run.server.password(password.as_ref(), core.bytes())
            }
            Response::PeerKey(_) => run.server.certificate(None),
            Response::Tls => run.server.tls(),
            Response::Refused(reason) if run.server.waits_for_password() => {
                // For the log; to the peer it looks like a wrong password.
                run.server.note_refusal(reason.what);
                run.server.password(None, core.bytes())
            }
            Response::Refused(reason)
            | Response::OtherConnection(reason)
            | Response::OtherAuthorities(reason) => run.server.certificate(Some(reason.what)),
            _ => {
                let failure = refuse_initiator(sa, core, "wrong kind of answer");
                return Err(Failure::wrong_state(*failure.reason));
            }
        };
        on_server_output(sa, core, run, output)
    }

    /// Answers a client that has heard enough and says so in INFORMATIONAL, rather than in EAP to the end. Nobody is
    /// authenticated here, and it ends nothing but its own handshake.
    ///
    /// ```text
    /// HDR(INFORMATIONAL), SK {N(AUTHENTICATION_FAILED)}  -->
    ///                                                    <--  HDR(INFORMATIONAL), SK {}
    /// ```
    pub(super) fn on_eap_given_up(
        sa: &mut Common,
        core: &mut Core,
        mut run: ServerRun,
        payloads: &[Payload],
    ) -> Failure {
        sa.channel.respond(core, ExchangeType::INFORMATIONAL, &[]);
        let given_up = || {
            let error = error_notify(payloads);
            let refused = |error| proof_refused(&sa.connection, error);
            error.map_or(Reason::Protocol("EAP was broken off"), refused)
        };
        // What we have told it already says more than its last word.
        let failure = run.server.failure();
        let known = failure.map(|error| login_failed(sa, &error));
        known.unwrap_or_else(given_up).into()
    }

    fn verify_eap_initiator(
        &self,
        run: &ServerRun,
        key: &Psk,
        who: &Identification,
        proof: &Authentication,
    ) -> Result<PeerVerified, String> {
        // The proof covers the identity in IKE; who the peer is came out of EAP.
        let id = find!(run.request, Payload::IdI).ok_or("no identity")?;
        let octets = self.handshake.octets_i(id, 0);
        verify_shared_key(self.handshake.keys.prf, key, &octets, proof, who)
            .map_err(|error| error.to_string())
    }
}

/// The reason why a user does not come in; the user hears none.
fn login_failed(sa: &Common, error: &EapError) -> Reason {
    let theirs = match error {
        EapError::Password(who) => format!("user or password of {who}"),
        EapError::Method => "no method of ours".to_owned(),
        other => return Reason::Authentication(other.to_string().into()),
    };
    let ours = format!("`eap` of connection {:?}", sa.connection.name);
    let difference = Difference::new(Setting::Login, theirs, ours);
    Reason::Authentication(AuthenticationFailure::new(error.to_string(), difference))
}

/// Sends an EAP request.
///
/// ```text
///   <--  HDR, SK {EAP}
/// ```
fn reply_eap(
    sa: &mut Common,
    core: &mut Core,
    run: Box<ServerRun>,
    reply: &[Payload],
) -> ResponderNext {
    sa.channel.respond(core, ExchangeType::IKE_AUTH, reply);
    ResponderNext::Wait(ResponderStep::EapExpecting(run))
}

fn on_server_output(
    sa: &mut Common,
    core: &mut Core,
    run: Box<ServerRun>,
    output: ServerOutput,
) -> Result<ResponderNext, Failure> {
    let connection = sa.connection.name.clone();
    let question = match output {
        ServerOutput::Send(packet) => {
            return Ok(reply_eap(sa, core, run, &[Payload::Eap(packet)]));
        }
        ServerOutput::Success(packet, key, name) => {
            return end_eap(sa, core, run, packet, key.into_psk(), &name);
        }
        ServerOutput::Failure(packet, error) => {
            let reply = [Payload::Eap(packet)];
            sa.channel.respond(core, ExchangeType::IKE_AUTH, &reply);
            return Err(login_failed(sa, &error).into());
        }
        ServerOutput::NeedTls(step) => Request::Tls(step),
        ServerOutput::NeedPassword(user) => Request::Password { connection, user },
        ServerOutput::NeedCertificate(chain, name) => Request::VerifyPeer {
            connection,
            ike: sa.id,
            chain,
            id: identification(&name),
            ocsp: Vec::new(),
        },
    };
    let pending = core.request(sa.id, question);
    Ok(ResponderNext::Wait(ResponderStep::EapAsking {
        pending,
        run,
    }))
}

/// Says that EAP has succeeded; now the session key is to be shown.
///
/// ```text
///   <--  HDR, SK {EAP (success)}
/// ```
fn end_eap(
    sa: &mut Common,
    core: &mut Core,
    run: Box<ServerRun>,
    packet: Vec<u8>,
    key: Psk,
    name: &str,
) -> Result<ResponderNext, Failure> {
    let who = identification(name);
    let wanted = match &sa.connection.remote_id {
        PeerId::Any => true,
        // EAP knows names only, whatever kind of identity IKE makes of them.
        PeerId::Exactly(id) => id.data == who.data,
        // Patterns stand for types of identities that certificates prove.
        PeerId::Matching(_) => false,
    };
    if !wanted {
        let reason = format!("user is {who}, which is not whom we want");
        return Err(refuse_initiator(sa, core, reason));
    }
    let reply = [Payload::Eap(packet)];
    sa.channel.respond(core, ExchangeType::IKE_AUTH, &reply);
    let step = ResponderStep::EapSucceeded { run, key, who };
    Ok(ResponderNext::Wait(step))
}

/// The name of a user as an identity: an opaque one, since it is neither a host's nor surely a mailbox.
fn identification(name: &str) -> Identification {
    Identification {
        kind: IdType::KEY_ID,
        data: name.as_bytes().to_vec(),
    }
}
