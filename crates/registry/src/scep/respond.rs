//! A message comes in, and its answer goes out.

use std::sync::Arc;

use pki::CertificateChain;
use pki::key::PrivateKey;
use pki::pkcs7::{self, Pkcs7Error};
use pki::scep::{Message, MessageError, Reply, ReplyBody, ReplyError};
use time::OffsetDateTime;

use super::refusal;
use super::serve::Granted;
use super::state::Authority;
use crate::protocol::Protocol;
use crate::{EnrolError, Registry};

/// Why a message gets no answer of the protocol.
#[derive(Debug, thiserror::Error)]
pub enum ScepError {
    /// It cannot be read, so that there is nothing to answer.
    #[error(transparent)]
    Unreadable(#[from] MessageError),
    /// SCEP is off, or there is no registration authority yet.
    #[error("this site does not speak SCEP")]
    Off,
    #[error("cannot answer")]
    Reply(#[from] ReplyError),
    #[error("cannot write the certificates")]
    Certificates(#[from] Pkcs7Error),
    #[error("no randomness")]
    Random,
    #[error("interrupted by shutdown")]
    Interrupted,
}

impl Registry {
    /// Whether the configuration switches SCEP on.
    #[must_use]
    pub fn speaks_scep(&self) -> bool {
        self.inner.config.scep
    }

    /// Has this RSA key decrypt messages and sign answers from now on.
    pub fn set_scep_authority(&self, key: PrivateKey, chain: CertificateChain) {
        self.inner.scep.set_authority(Authority { key, chain });
    }

    /// The registration authority's certificate, and those of the authorities (RFC 8894, section 4.2.1.2), as PKCS#7.
    ///
    /// # Errors
    /// [`ScepError::Off`], or [`ScepError::Certificates`].
    pub fn scep_certificates(&self) -> Result<Vec<u8>, ScepError> {
        let authority = self.inner.scep.authority().ok_or(ScepError::Off)?;
        let mut all = vec![authority.chain.leaf().clone()];
        all.extend(self.authorities());
        Ok(pkcs7::encode_certs_only(&all)?)
    }

    /// Answers a message (DER): with the certificate that was asked for, or with the reason for which there is none. Refusals
    /// are audited.
    ///
    /// # Errors
    /// [`ScepError`] where no answer can be made.
    pub async fn scep_response(
        &self,
        der: &[u8],
        now: OffsetDateTime,
    ) -> Result<Vec<u8>, ScepError> {
        let registry = Self {
            protocol: Some(Protocol::Scep),
            ..self.clone()
        };
        let authority = self.inner.scep.authority().ok_or(ScepError::Off)?;
        let message = Arc::new(Message::parse(der)?);
        let granted = registry.serve_scep(&message, &authority, now).await;
        let mut nonce = [0; 16];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| ScepError::Random)?;
        // A signature is made: not in this task.
        let reply = move || respond(&message, &authority, nonce, &granted);
        let pool = &self.inner.pool;
        pool.run(reply).await.map_err(|_| ScepError::Interrupted)?
    }
}

fn respond(
    message: &Message,
    authority: &Authority,
    nonce: [u8; 16],
    granted: &Result<Granted, EnrolError>,
) -> Result<Vec<u8>, ScepError> {
    let text;
    let body = match granted {
        Ok(Granted { issued, cipher }) => ReplyBody::Certificate {
            certificate: issued.chain.leaf(),
            cipher: *cipher,
        },
        Err(error) => {
            if let EnrolError::Registry(_) = error {
                let error: &dyn std::error::Error = error;
                tracing::error!(error, "SCEP request failed");
            }
            let (failure, said) = refusal::answer(error, message.kind());
            text = said;
            ReplyBody::Refused {
                failure,
                text: &text,
            }
        }
    };
    let reply = Reply {
        body,
        nonce,
        signer: authority.chain.leaf(),
    };
    Ok(reply.to_der(message, &authority.key)?)
}
