//! Who has sent a message, and what it asks for is done, by those who decide about it for every protocol.

use std::sync::Arc;
use std::time::Instant;

use event_catalogue::registry::EnrolmentStep;
use pki::cert;
use pki::csr::{self, CertificationRequest, Claims};
use pki::key::KeyAlgorithm;
use pki::scep::{ContentCipher, Decrypted, EnvelopeError, Message, MessageKind};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::refusal::ScepRefusal;
use super::state::Authority;
use crate::{Admitted, EnrolError, Issued, Registry, RegistryError};

const ENROL: EnrolmentStep = EnrolmentStep::Enrol;
const RENEW: EnrolmentStep = EnrolmentStep::Renew;

/// A certificate, and the cipher in which its owner asked for it.
pub(super) struct Granted {
    pub(super) issued: Issued,
    pub(super) cipher: ContentCipher,
}

/// What was encrypted in a message.
struct Opened {
    request: Decrypted,
    claims: Claims,
}

impl Registry {
    /// Does what a message asks for.
    pub(super) async fn serve_scep(
        &self,
        message: &Arc<Message>,
        authority: &Arc<Authority>,
        now: OffsetDateTime,
    ) -> Result<Granted, EnrolError> {
        let action = match message.kind() {
            MessageKind::RenewalReq => RENEW,
            MessageKind::PkcsReq | MessageKind::Other => ENROL,
        };
        if let Err(refusal) = check_signature(message) {
            return Err(self.refuse_scep(action, "unknown", refusal, now).await);
        }
        match message.kind() {
            MessageKind::PkcsReq => self.enrol_by_scep(message, authority, now).await,
            MessageKind::RenewalReq => self.renew_by_scep(message, authority, now).await,
            MessageKind::Other => {
                let refusal = ScepRefusal::Unsupported;
                Err(self.refuse_scep(action, "unknown", refusal, now).await)
            }
        }
    }

    async fn refuse_scep(
        &self,
        action: EnrolmentStep,
        claimed: &str,
        refusal: impl Into<EnrolError> + Send,
        now: OffsetDateTime,
    ) -> EnrolError {
        let (resource, error) = (("device", claimed), refusal.into());
        match self.record_refusal(action, resource, &error, now).await {
            Ok(()) => error,
            Err(fault) => fault.into(),
        }
    }

    /// A first certificate, by name and code.
    async fn enrol_by_scep(
        &self,
        message: &Arc<Message>,
        authority: &Arc<Authority>,
        now: OffsetDateTime,
    ) -> Result<Granted, EnrolError> {
        let signer = &message.signer().tbs_certificate.subject_public_key_info;
        let own = |claims: &Claims| claims.spki == *signer;
        let opened = match self.open_scep(message, authority, own).await {
            Ok(opened) => opened,
            Err(refusal) => return Err(self.refuse_scep(ENROL, "unknown", refusal, now).await),
        };
        let Opened { request, claims } = opened;
        let name = claims.common_name.as_str();
        let Some(code) = &claims.challenge else {
            let refusal = ScepRefusal::NoChallenge;
            return Err(self.refuse_scep(ENROL, name, refusal, now).await);
        };
        let issued = self.enrol_by_code(name, code, &request.content, now);
        Ok(Granted {
            issued: issued.await?,
            cipher: request.cipher,
        })
    }

    /// Another certificate, by the present one. Whoever has none learns nothing of what is encrypted.
    async fn renew_by_scep(
        &self,
        message: &Arc<Message>,
        authority: &Arc<Authority>,
        now: OffsetDateTime,
    ) -> Result<Granted, EnrolError> {
        let signer = cert::to_der(message.signer()).map_err(RegistryError::from)?;
        let peer = [CertificateDer::from(signer)];
        let present = match self.admit_renewal(&peer, now).await {
            Ok(present) => present,
            Err(error) => return Err(self.not_admitted(RENEW, error, now).await),
        };
        let key = &message.signer().tbs_certificate.subject_public_key_info;
        // What somebody else has encrypted for a first certificate has another key, and a code.
        let not_of_another = |claims: &Claims| claims.spki == *key || claims.challenge.is_none();
        let own = |claims: &Claims| not_of_another(claims) && names(&present, claims);
        let request = match self.open_scep(message, authority, own).await {
            Ok(opened) => opened.request,
            Err(refusal) => {
                let name = &present.identity().common_name;
                return Err(self.refuse_scep(RENEW, name, refusal, now).await);
            }
        };
        let csr = CertificationRequest::Pkcs10(&request.content);
        let outcome = self.renew_admitted(&present, &peer, csr, now).await;
        if matches!(outcome, Err(EnrolError::Csr(_))) {
            self.note_undecipherable();
        }
        Ok(Granted {
            issued: outcome?,
            cipher: request.cipher,
        })
    }

    /// Decrypts a message, and reads what the request claims, which must be the signer's `own`: anybody can sign what
    /// somebody else has encrypted.
    async fn open_scep(
        &self,
        message: &Arc<Message>,
        authority: &Arc<Authority>,
        own: impl Fn(&Claims) -> bool + Send,
    ) -> Result<Opened, EnrolError> {
        let full = {
            let counted = self.inner.scep.undecipherable();
            counted.is_full(&self.host(), Instant::now())
        };
        if full {
            return Err(ScepRefusal::TooManyUndecipherable.into());
        }
        let (message, authority) = (Arc::clone(message), Arc::clone(authority));
        // By the private key, which takes a millisecond: not in this task.
        let decrypt = move || message.decrypt(&authority.key, authority.chain.leaf());
        let decrypted = self.inner.pool.run(decrypt).await;
        let decrypted = decrypted.map_err(|_| RegistryError::Interrupted)?;
        // What is no request looks like what cannot be decrypted: the difference would tell whether a padding was right.
        let opened = decrypted.and_then(|request| match csr::claims(&request.content) {
            Ok(claims) => Ok(Opened { request, claims }),
            Err(_) => Err(EnvelopeError::Undecipherable),
        });
        let refusal = match opened {
            Ok(opened) if own(&opened.claims) => return Ok(opened),
            Ok(_) => ScepRefusal::OtherSigner,
            Err(error) => error.into(),
        };
        if refusal.may_be_of_another() {
            self.note_undecipherable();
        }
        Err(refusal.into())
    }

    /// Counts a message whose content may be somebody else's, changed until it can be read.
    fn note_undecipherable(&self) {
        let host = self.host();
        let mut counted = self.inner.scep.undecipherable();
        counted.note(&host, Instant::now());
    }

    fn host(&self) -> String {
        self.address
            .map_or_else(String::new, |address| audit::host_of(address).to_string())
    }
}

/// The signature holds, and its key is one to which an answer can be encrypted.
fn check_signature(message: &Message) -> Result<(), ScepRefusal> {
    let signer = &message.signer().tbs_certificate.subject_public_key_info;
    if !KeyAlgorithm::of_spki(signer).is_ok_and(KeyAlgorithm::is_rsa) {
        return Err(ScepRefusal::SignerKey);
    }
    Ok(message.verify()?)
}

/// Whether a request is in the name of the holder of a certificate.
fn names(present: &Admitted, claims: &Claims) -> bool {
    let identity = present.identity();
    let claimed = &claims.common_name;
    *claimed == identity.common_name || identity.uid.as_ref() == Some(claimed)
}
