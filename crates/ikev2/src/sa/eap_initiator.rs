//! IKE_AUTH with EAP as initiator (RFC 7296 §2.16).
//!
//! ```text
//! IDi, SA, TS (no AUTH)     ──►
//!                           ◄── IDr, CERT, AUTH, EAP request
//! EAP response              ──►      the responder has proved itself, or nothing goes on
//!                           ◄── ... EAP success
//! AUTH with the session key ──►
//!                           ◄── AUTH with the session key, SA, TS
//! ```

use super::core::Core;
use super::handshake::{Handshake, Step, error_notify, verification};
use super::{IkeSa, Phase, find};
use crate::auth::{OurProof, PeerVerified, verify_shared_key};
use crate::config::{LocalAuth, Psk, RemoteAuth};
use crate::eap::{Client, ClientOutput, NtHash};
use crate::event::{Ask, Reason};
use crate::wire::{ExchangeType, Identification, Payload};

/// EAP under way as client.
pub(crate) struct ClientRun {
    client: Client,
    /// The responder, once it has proved itself.
    responder: Option<(PeerVerified, Identification)>,
}

impl IkeSa {
    /// Sends the first IKE_AUTH request, without AUTH.
    pub(super) fn start_eap(&mut self, core: &mut Core) {
        let LocalAuth::Eap { identity, method } = &self.connection.local_auth else {
            return;
        };
        if self.connection.ppk.is_some()
            || matches!(self.connection.remote_auth, RemoteAuth::Eap { .. })
        {
            let reason =
                "EAP goes with neither a post-quantum preshared key nor EAP by the responder";
            self.down(core, Reason::Authentication(reason.into()));
            return;
        }
        let client = match Client::new(identity, method) {
            Ok(client) => client,
            Err(error) => return self.down(core, Reason::Authentication(error.to_string())),
        };
        let auth_id = self.channel.next_request();
        let Some(payloads) = self.auth_payloads(core, None) else {
            return;
        };
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        handshake.auth_id = Some(auth_id);
        let responder = None;
        handshake.step = Step::EapStarted(Box::new(ClientRun { client, responder }));
        self.channel
            .request(core, ExchangeType::IKE_AUTH, &payloads);
    }

    /// A response while EAP is under way.
    pub(super) fn on_eap_response(&mut self, core: &mut Core, step: Step, response: Vec<Payload>) {
        match step {
            Step::EapStarted(run) => self.meet_responder(core, run, response),
            Step::EapSent(run) => self.go_on_with_eap(core, run, &response),
            Step::EapProved { run, ours, key } => {
                self.check_eap_responder(core, *run, ours, &key, &response);
            }
            _ => self.down(core, Reason::Protocol("unexpected IKE_AUTH")),
        }
    }

    /// The responder's proof comes with its first EAP request.
    fn meet_responder(&mut self, core: &mut Core, run: Box<ClientRun>, response: Vec<Payload>) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let (Some(id), Some(_)) = (
            find!(response, Payload::IdR),
            find!(response, Payload::Auth),
        ) else {
            let error = error_notify(&response);
            let reason = error.map_or(Reason::Protocol("no AUTH payload"), Reason::Refused);
            return self.down(core, reason);
        };
        if !self.connection.remote_id.accepts(id) {
            let reason = format!("peer is {id}, which is not whom we want");
            return self.down(core, Reason::Authentication(reason));
        }
        if !matches!(self.connection.remote_auth, RemoteAuth::Certificate { .. }) {
            return self.trust_responder(core, run, &response, None);
        }
        let question = verification(self.id, &self.connection, id, &response);
        let Some(question) = question else {
            return self.down(core, Reason::Authentication("no certificate came".into()));
        };
        let ask = core.ask(self.id, question);
        handshake.step = Step::EapVerifying { ask, run, response };
    }

    /// Checks the responder's proof; only then it learns anything about the user.
    pub(super) fn trust_responder(
        &mut self,
        core: &mut Core,
        mut run: Box<ClientRun>,
        response: &[Payload],
        key: Option<&[u8]>,
    ) {
        let Phase::Handshake(handshake) = &self.phase else {
            return;
        };
        let verified = self.verify_responder(handshake, response, key);
        match verified.map(|peer| find!(response, Payload::IdR).cloned().map(|id| (peer, id))) {
            Ok(responder) => run.responder = responder,
            Err(reason) => return self.down(core, Reason::Authentication(reason)),
        }
        self.go_on_with_eap(core, run, response);
    }

    fn go_on_with_eap(&mut self, core: &mut Core, mut run: Box<ClientRun>, response: &[Payload]) {
        let Some(packet) = find!(response, Payload::Eap) else {
            let error = error_notify(response);
            let reason = error.map_or(Reason::Protocol("no EAP payload"), Reason::Refused);
            return self.down(core, reason);
        };
        let question = match run.client.handle(packet) {
            Ok(ClientOutput::Send(packet)) => return self.send_eap(core, run, packet),
            Ok(ClientOutput::Success(key)) => return self.prove_with(core, run, key.into_psk()),
            Err(error) => return self.down(core, Reason::Authentication(error.to_string())),
            Ok(ClientOutput::NeedTls(step)) => Ask::Tls(step),
            Ok(ClientOutput::NeedPassword) => Ask::Password {
                connection: self.connection.name.clone(),
                user: run.client.identity(),
            },
        };
        let ask = core.ask(self.id, question);
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.step = Step::EapAsked { ask, run };
        }
    }

    pub(super) fn on_tls(&mut self, core: &mut Core, mut run: Box<ClientRun>) {
        match run.client.tls() {
            Ok(packet) => self.send_eap(core, run, packet),
            Err(error) => self.down(core, Reason::Authentication(error.to_string())),
        }
    }

    fn send_eap(&mut self, core: &mut Core, run: Box<ClientRun>, packet: Vec<u8>) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        handshake.step = Step::EapSent(run);
        let payloads = [Payload::Eap(packet)];
        self.channel
            .request(core, ExchangeType::IKE_AUTH, &payloads);
    }

    pub(super) fn on_own_password(
        &mut self,
        core: &mut Core,
        mut run: Box<ClientRun>,
        password: &NtHash,
    ) {
        match run.client.password(core.bytes(), password) {
            Ok(packet) => self.send_eap(core, run, packet),
            Err(error) => self.down(core, Reason::Authentication(error.to_string())),
        }
    }

    fn prove_with(&mut self, core: &mut Core, run: Box<ClientRun>, key: Psk) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let octets = handshake.octets_i(&self.connection.local_id, self.channel.next_request());
        let proof = octets.shared_key(handshake.keys.prf, &key);
        let ours = OurProof::new(&proof);
        handshake.step = Step::EapProved { run, ours, key };
        let payloads = [Payload::Auth(proof)];
        self.channel
            .request(core, ExchangeType::IKE_AUTH, &payloads);
    }

    /// The responder knows the session key as well.
    fn check_eap_responder(
        &mut self,
        core: &mut Core,
        run: ClientRun,
        ours: OurProof,
        key: &Psk,
        response: &[Payload],
    ) {
        let Phase::Handshake(handshake) = &self.phase else {
            return;
        };
        let verified = verify_eap_responder(handshake, run, key, response);
        match verified {
            Ok(peer) => self.authorize_responder(core, peer, ours, response.to_vec()),
            Err(reason) => self.refuse_responder(core, reason),
        }
    }
}

fn verify_eap_responder(
    handshake: &Handshake,
    run: ClientRun,
    key: &Psk,
    response: &[Payload],
) -> Result<PeerVerified, String> {
    let (first, id) = run.responder.ok_or("the responder has not proved itself")?;
    let proof = find!(response, Payload::Auth).ok_or("no proof")?;
    let octets = handshake.octets_r(&id, 0);
    verify_shared_key(handshake.keys.prf, key, &octets, proof, &id)
        .map_err(|error| error.to_string())?;
    // What it proved with its certificate or secret is who it is.
    Ok(first)
}
