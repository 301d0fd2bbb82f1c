//! IKE_AUTH with EAP as responder (RFC 7296 §2.16); `eap_initiator` draws the messages.

use super::core::Core;
use super::handshake::{Step, error_notify};
use super::{IkeSa, Phase, find};
use crate::auth::{PeerVerified, verify_shared_key};
use crate::config::{LocalAuth, PeerId, Psk, RemoteAuth};
use crate::eap::{NtHash, Server, ServerOutput};
use crate::event::{Answer, Ask, Reason};
use crate::wire::{Authentication, ExchangeType, IdType, Identification, Payload};

/// EAP under way as server.
pub(crate) struct ServerRun {
    server: Server,
    /// The first IKE_AUTH request: identity, SA, traffic selectors, configuration.
    request: Vec<Payload>,
}

impl IkeSa {
    /// Answers an IKE_AUTH request without AUTH: first we prove ourselves.
    pub(super) fn start_eap_server(&mut self, core: &mut Core, request: Vec<Payload>) {
        let RemoteAuth::Eap { methods } = &self.connection.remote_auth else {
            return;
        };
        let (server, first) = Server::new(methods);
        let run = Box::new(ServerRun { server, request });
        let auth_id = self.channel.next_expected();
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        handshake.auth_id = Some(auth_id);
        let octets = handshake.octets_r(&self.connection.local_id, auth_id);
        match &self.connection.local_auth {
            LocalAuth::Psk(psk) => {
                let proof = octets.shared_key(handshake.keys.prf, psk);
                self.open_eap(core, run, proof, first);
            }
            LocalAuth::Certificates(ours) => {
                let asked = handshake.ask_signature(&self.connection, ours, &octets);
                let Some((scheme, question)) = asked else {
                    let reason = "peer knows no signature algorithm of our key".into();
                    return self.refuse_initiator(core, reason);
                };
                let ask = core.ask(self.id, question);
                handshake.step = Step::EapSigning {
                    ask,
                    scheme,
                    run,
                    first,
                };
            }
            LocalAuth::Eap { .. } => self.refuse_initiator(core, "EAP on both sides".into()),
        }
    }

    /// Our proof and the first EAP request.
    pub(super) fn open_eap(
        &mut self,
        core: &mut Core,
        run: Box<ServerRun>,
        proof: Authentication,
        first: Vec<u8>,
    ) {
        let Phase::Handshake(handshake) = &self.phase else {
            return;
        };
        let mut reply = vec![Payload::IdR(self.connection.local_id.clone())];
        reply.extend(handshake.own_certificates(&self.connection));
        reply.extend([Payload::Auth(proof), Payload::Eap(first)]);
        self.reply_eap(core, run, &reply);
    }

    fn reply_eap(&mut self, core: &mut Core, run: Box<ServerRun>, reply: &[Payload]) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        handshake.step = Step::EapExpecting(run);
        self.channel.respond(core, ExchangeType::IKE_AUTH, reply);
    }

    /// A further IKE_AUTH request.
    pub(super) fn on_eap_request(&mut self, core: &mut Core, step: Step, request: &[Payload]) {
        match (
            step,
            find!(request, Payload::Eap),
            find!(request, Payload::Auth),
        ) {
            (Step::EapExpecting(mut run), Some(packet), None) => {
                let output = run.server.handle(packet, core.bytes());
                self.on_server_output(core, run, output);
            }
            (Step::EapSucceeded { run, key, who }, None, Some(proof)) => {
                match self.verify_eap_initiator(&run, &key, &who, proof) {
                    Ok(peer) => {
                        if let Phase::Handshake(handshake) = &mut self.phase {
                            handshake.eap_key = Some(key);
                        }
                        self.authorize_initiator(core, peer, run.request);
                    }
                    Err(reason) => self.refuse_initiator(core, reason),
                }
            }
            _ => self.refuse_initiator(core, "message out of place in EAP".into()),
        }
    }

    /// A client that has heard enough says so in INFORMATIONAL, rather than in EAP to the end. Nobody is
    /// authenticated here, and it ends nothing but its own handshake.
    pub(super) fn on_eap_given_up(&mut self, core: &mut Core, payloads: &[Payload]) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return;
        };
        let verdict = match handshake.take_step() {
            Step::EapExpecting(mut run) => run.server.verdict(),
            _ => None,
        };
        self.channel.respond(core, ExchangeType::INFORMATIONAL, &[]);
        let given_up = || {
            let error = error_notify(payloads);
            error.map_or(Reason::Protocol("EAP was broken off"), Reason::Refused)
        };
        let told = verdict.map(|error| Reason::Authentication(error.to_string()));
        self.down(core, told.unwrap_or_else(given_up));
    }

    fn on_server_output(&mut self, core: &mut Core, run: Box<ServerRun>, output: ServerOutput) {
        let connection = self.connection.name.clone();
        let question = match output {
            ServerOutput::Send(packet) => {
                return self.reply_eap(core, run, &[Payload::Eap(packet)]);
            }
            ServerOutput::Success(packet, key, name) => {
                return self.end_eap(core, run, packet, key.into_psk(), &name);
            }
            ServerOutput::Failure(packet, error) => {
                let reply = [Payload::Eap(packet)];
                self.channel.respond(core, ExchangeType::IKE_AUTH, &reply);
                return self.down(core, Reason::Authentication(error.to_string()));
            }
            ServerOutput::NeedTls(step) => Ask::Tls(step),
            ServerOutput::NeedPassword(user) => Ask::Password { connection, user },
            ServerOutput::NeedCertificate(chain, name) => Ask::VerifyPeer {
                connection,
                ike: self.id,
                chain,
                id: identification(&name),
                ocsp: Vec::new(),
            },
        };
        let ask = core.ask(self.id, question);
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.step = Step::EapAsking { ask, run };
        }
    }

    /// The caller's answer about the user.
    pub(super) fn on_user_answer(
        &mut self,
        core: &mut Core,
        mut run: Box<ServerRun>,
        answer: Answer,
    ) {
        let password: Option<NtHash>;
        let output = match answer {
            Answer::Password(hash) => {
                password = Some(hash);
                run.server.password(password.as_ref(), core.bytes())
            }
            Answer::PeerKey(_) => run.server.certificate(None),
            Answer::Tls => run.server.tls(),
            Answer::Refused(reason) if run.server.waits_for_password() => {
                // For the log; to the peer it looks like a wrong password.
                run.server.note_refusal(reason);
                run.server.password(None, core.bytes())
            }
            Answer::Refused(reason) | Answer::OtherConnection(reason) => {
                run.server.certificate(Some(reason))
            }
            _ => return self.refuse_initiator(core, "wrong kind of answer".into()),
        };
        self.on_server_output(core, run, output);
    }

    /// EAP has succeeded; now the session key is to be shown.
    fn end_eap(
        &mut self,
        core: &mut Core,
        run: Box<ServerRun>,
        packet: Vec<u8>,
        key: Psk,
        name: &str,
    ) {
        let who = identification(name);
        let wanted = match &self.connection.remote_id {
            PeerId::Any => true,
            PeerId::Exactly(id) => id.data == who.data,
        };
        if !wanted {
            let reason = format!("user is {who}, which is not whom we want");
            return self.refuse_initiator(core, reason);
        }
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.step = Step::EapSucceeded { run, key, who };
        }
        let reply = [Payload::Eap(packet)];
        self.channel.respond(core, ExchangeType::IKE_AUTH, &reply);
    }

    fn verify_eap_initiator(
        &self,
        run: &ServerRun,
        key: &Psk,
        who: &Identification,
        proof: &Authentication,
    ) -> Result<PeerVerified, String> {
        let Phase::Handshake(handshake) = &self.phase else {
            return Err("no handshake".into());
        };
        // The proof covers the identity in IKE; who the peer is came out of EAP.
        let id = find!(run.request, Payload::IdI).ok_or("no identity")?;
        let octets = handshake.octets_i(id, 0);
        verify_shared_key(handshake.keys.prf, key, &octets, proof, who)
            .map_err(|error| error.to_string())
    }
}

/// The name of a user as an identity: an opaque one, since it is neither a host's nor surely a mailbox.
fn identification(name: &str) -> Identification {
    Identification {
        kind: IdType::KEY_ID,
        data: name.as_bytes().to_vec(),
    }
}
