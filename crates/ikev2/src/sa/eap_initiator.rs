//! IKE_AUTH with EAP as initiator (RFC 7296 §2.16).
//!
//! ```text
//! HDR, SK {IDi, [CERTREQ,] [CP,] SAi2, TSi, TSr}  -->          no AUTH: the responder proves itself first
//!                  <--  HDR, SK {IDr, [CERT,] AUTH, EAP}       or nothing goes on
//! HDR, SK {EAP}    -->
//!                  <--  HDR, SK {EAP}                          as often as the method needs
//!                  <--  HDR, SK {EAP (success)}
//! HDR, SK {AUTH}   -->                                         made with the session key
//!                  <--  HDR, SK {AUTH, [CP,] SAr2, TSi, TSr}   made with the session key
//! ```

use super::common::Common;
use super::core::Core;
use super::handshake::{error_notify, own_proof, proof_refused, verification};
use super::initiator::{ClientRun, Initiator, InitiatorNext, InitiatorStep};
use super::initiator_auth::{authorize_responder, refuse_responder};
use super::payloads::find;
use super::state::Failure;
use crate::auth::{OurProof, PeerVerified, verify_shared_key};
use crate::config::{LocalAuth, Psk, RemoteAuth};
use crate::diagnosis::{AuthenticationFailure, Difference, Setting};
use crate::eap::{Client, ClientOutput, EapError, NtHash};
use crate::event::{Reason, Request};
use crate::wire::{ExchangeType, Payload};

fn failed(reason: impl ToString) -> Failure {
    Reason::Authentication(reason.to_string().into()).into()
}

fn refused_or(sa: &Common, response: &[Payload], otherwise: &'static str) -> Failure {
    let refused = |error| proof_refused(&sa.connection, error);
    error_notify(response)
        .map_or(Reason::Protocol(otherwise), refused)
        .into()
}

fn login_failed(sa: &Common, error: &EapError) -> Failure {
    let failure = match error {
        EapError::Refused => {
            let (theirs, ours) = (
                "refuses user, password or method",
                own_proof(&sa.connection),
            );
            let difference = Difference::new(Setting::Login, theirs, ours);
            AuthenticationFailure::new(error.to_string(), difference)
        }
        other => other.to_string().into(),
    };
    Reason::Authentication(failure).into()
}

impl Initiator {
    /// Sends the first IKE_AUTH request, without AUTH.
    ///
    /// ```text
    /// HDR, SK {IDi, [CERTREQ,] [CP,] SAi2, TSi, TSr}  -->
    /// ```
    pub(super) fn start_eap(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
    ) -> Result<InitiatorNext, Failure> {
        let by_responder = matches!(sa.connection.remote_auth, RemoteAuth::Eap { .. });
        let LocalAuth::Eap { identity, method } = &sa.connection.local_auth else {
            return Err(failed("no user for EAP is configured"));
        };
        // A password must not go to somebody who proves itself with nothing better.
        if sa.connection.ppk.is_some() || by_responder {
            let reason =
                "EAP goes with neither a post-quantum preshared key nor EAP by the responder";
            return Err(failed(reason));
        }
        let client = Client::new(identity, method).map_err(failed)?;
        let auth_id = sa.channel.next_request();
        let payloads = self.auth_payloads(sa, core, None)?;
        // All proofs name the first IKE_AUTH request, however many there are (RFC 9242 §3.3.2).
        self.handshake.auth_id = Some(auth_id);
        let run = ClientRun {
            client,
            responder: None,
        };
        sa.channel.request(core, ExchangeType::IKE_AUTH, &payloads);
        Ok(InitiatorNext::Wait(InitiatorStep::EapStarted(Box::new(
            run,
        ))))
    }

    /// Takes a response while EAP is under way.
    pub(super) fn on_eap_response(
        &mut self,
        sa: &mut Common,
        core: &mut Core,
        step: InitiatorStep,
        response: Vec<Payload>,
    ) -> Result<InitiatorNext, Failure> {
        match step {
            InitiatorStep::EapStarted(run) => self.on_eap_start(sa, core, run, response),
            InitiatorStep::EapSent(run) => self.continue_eap(sa, core, run, &response),
            InitiatorStep::EapProofSent { run, ours, key } => {
                match self.verify_eap_responder(*run, &key, &response) {
                    Ok(peer) => Ok(authorize_responder(sa, core, peer, ours, response)),
                    Err(reason) => Err(refuse_responder(sa, core, reason)),
                }
            }
            _ => Err(sa.out_of_place(core, ExchangeType::IKE_AUTH, true, "unexpected IKE_AUTH")),
        }
    }

    /// Takes the responder's proof, which comes with its first EAP request.
    ///
    /// ```text
    ///   <--  HDR, SK {IDr, [CERT,] AUTH, EAP}
    /// ```
    fn on_eap_start(
        &self,
        sa: &mut Common,
        core: &mut Core,
        run: Box<ClientRun>,
        response: Vec<Payload>,
    ) -> Result<InitiatorNext, Failure> {
        let proof = find!(response, Payload::Auth);
        let Some(id) = find!(response, Payload::IdR).filter(|_| proof.is_some()) else {
            return Err(refused_or(sa, &response, "no AUTH payload"));
        };
        // Nobody is told that we refuse it: the responder has not proved itself.
        if !sa.connection.remote_id.accepts(id) {
            let what = format!("peer is {id}, which is not whom we want");
            let wanted = &sa.connection.remote_id;
            let difference = Difference::new(Setting::PeerIdentity, id, wanted);
            let failure = AuthenticationFailure::new(what, difference);
            return Err(Reason::Authentication(failure).into());
        }
        if !matches!(sa.connection.remote_auth, RemoteAuth::Certificate { .. }) {
            return self.on_eap_responder_key(sa, core, run, &response, None);
        }
        let question = verification(sa.id, &sa.connection, id, &response);
        let question = question.ok_or_else(|| failed("no certificate came"))?;
        let pending = core.request(sa.id, question);
        let step = InitiatorStep::EapVerifying {
            pending,
            run,
            response,
        };
        Ok(InitiatorNext::Wait(step))
    }

    /// Checks the responder's proof; only then it learns anything about the user.
    pub(super) fn on_eap_responder_key(
        &self,
        sa: &mut Common,
        core: &mut Core,
        mut run: Box<ClientRun>,
        response: &[Payload],
        key: Option<&[u8]>,
    ) -> Result<InitiatorNext, Failure> {
        let peer = self.verify_responder(sa, response, key).map_err(failed)?;
        let id = find!(response, Payload::IdR).cloned();
        run.responder = id.map(|id| (peer, id));
        self.continue_eap(sa, core, run, response)
    }

    fn continue_eap(
        &self,
        sa: &mut Common,
        core: &mut Core,
        mut run: Box<ClientRun>,
        response: &[Payload],
    ) -> Result<InitiatorNext, Failure> {
        let Some(packet) = find!(response, Payload::Eap) else {
            return Err(refused_or(sa, response, "no EAP payload"));
        };
        let output = run.client.handle(packet);
        let question = match output.map_err(|error| login_failed(sa, &error))? {
            ClientOutput::Send(packet) => return Ok(send_eap(sa, core, run, packet)),
            ClientOutput::Success(key) => {
                return Ok(self.prove_session_key(sa, core, run, key.into_psk()));
            }
            ClientOutput::NeedTls(step) => Request::Tls(step),
            ClientOutput::NeedPassword => Request::Password {
                connection: sa.connection.name.clone(),
                user: run.client.identity(),
            },
        };
        let pending = core.request(sa.id, question);
        Ok(InitiatorNext::Wait(InitiatorStep::EapWorking {
            pending,
            run,
        }))
    }

    pub(super) fn on_tls(
        &self,
        sa: &mut Common,
        core: &mut Core,
        mut run: Box<ClientRun>,
    ) -> Result<InitiatorNext, Failure> {
        let packet = run.client.tls();
        let packet = packet.map_err(|error| login_failed(sa, &error))?;
        Ok(send_eap(sa, core, run, packet))
    }

    pub(super) fn on_own_password(
        &self,
        sa: &mut Common,
        core: &mut Core,
        mut run: Box<ClientRun>,
        password: &NtHash,
    ) -> Result<InitiatorNext, Failure> {
        let packet = run.client.password(core.bytes(), password);
        let packet = packet.map_err(|error| login_failed(sa, &error))?;
        Ok(send_eap(sa, core, run, packet))
    }

    /// Shows that we have the session key, which binds EAP to this IKE SA (RFC 7296 §2.16).
    ///
    /// ```text
    /// HDR, SK {AUTH}  -->
    /// ```
    fn prove_session_key(
        &self,
        sa: &mut Common,
        core: &mut Core,
        run: Box<ClientRun>,
        key: Psk,
    ) -> InitiatorNext {
        let handshake = &self.handshake;
        let octets = handshake.octets_i(&sa.connection.local_id, sa.channel.next_request());
        let proof = octets.shared_key(handshake.keys.prf, &key);
        let ours = OurProof::new(&proof);
        let payloads = [Payload::Auth(proof)];
        sa.channel.request(core, ExchangeType::IKE_AUTH, &payloads);
        InitiatorNext::Wait(InitiatorStep::EapProofSent { run, ours, key })
    }

    /// The responder knows the session key as well.
    fn verify_eap_responder(
        &self,
        run: ClientRun,
        key: &Psk,
        response: &[Payload],
    ) -> Result<PeerVerified, String> {
        let (first, id) = run.responder.ok_or("the responder has not proved itself")?;
        let proof = find!(response, Payload::Auth).ok_or("no proof")?;
        let octets = self.handshake.octets_r(&id, 0);
        verify_shared_key(self.handshake.keys.prf, key, &octets, proof, &id)
            .map_err(|error| error.to_string())?;
        // What it proved with its certificate or secret is who it is.
        Ok(first)
    }
}

/// Sends an EAP response.
///
/// ```text
/// HDR, SK {EAP}  -->
/// ```
fn send_eap(
    sa: &mut Common,
    core: &mut Core,
    run: Box<ClientRun>,
    packet: Vec<u8>,
) -> InitiatorNext {
    let payloads = [Payload::Eap(packet)];
    sa.channel.request(core, ExchangeType::IKE_AUTH, &payloads);
    InitiatorNext::Wait(InitiatorStep::EapSent(run))
}
