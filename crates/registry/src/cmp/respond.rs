//! A message comes in, and its answer goes out.

use std::sync::{Arc, PoisonError};

use pki::CertificateChain;
use pki::cmp::{Message, MessageError, Protect, Reply, ReplyBody, ReplyError};
use pki::key::PrivateKey;
use time::OffsetDateTime;

use super::bounds::random;
use super::refusal;
use super::serve::Answer;
use super::state::Signer;
use super::transactions::Kept;
use crate::invitations::{self, Forget};
use crate::protocol::Protocol;
use crate::{EnrolError, Registry, RegistryError};

/// Why a message gets no answer of the protocol.
#[derive(Debug, thiserror::Error)]
pub enum CmpError {
    /// It cannot be read, so that there is nothing to answer.
    #[error(transparent)]
    Unreadable(#[from] MessageError),
    /// CMP is off, or there is no signer yet.
    #[error("this site does not speak CMP")]
    Off,
    #[error("cannot answer")]
    Reply(#[from] ReplyError),
    #[error("no randomness")]
    Random,
    #[error("interrupted by shutdown")]
    Interrupted,
}

impl Registry {
    /// Whether the configuration switches CMP on.
    #[must_use]
    pub fn speaks_cmp(&self) -> bool {
        self.inner.cmp.sealing().is_some()
    }

    /// Has answers signed with this key from now on.
    pub fn set_cmp_signer(&self, key: PrivateKey, chain: CertificateChain) {
        let signer = &self.inner.cmp.signer;
        let mut signer = signer.write().unwrap_or_else(PoisonError::into_inner);
        *signer = Some(Arc::new(Signer { key, chain }));
    }

    /// Answers a message (DER): with what was asked for, or with an error message that says why not. Refusals are audited.
    ///
    /// # Errors
    /// [`CmpError`] where no answer can be made.
    pub async fn cmp_response(&self, der: &[u8], now: OffsetDateTime) -> Result<Vec<u8>, CmpError> {
        let registry = Self {
            protocol: Some(Protocol::Cmp),
            ..self.clone()
        };
        let signer = {
            let signer = self.inner.cmp.signer.read();
            signer.unwrap_or_else(PoisonError::into_inner).clone()
        };
        let signer = signer.ok_or(CmpError::Off)?;
        let message = Message::parse(der)?;
        let (kept, answer) = match registry.authenticate(&message, now).await {
            Ok(peer) => {
                let kept = peer.kept.clone();
                (kept, registry.serve(&message, peer, now).await)
            }
            Err(error) => (Kept::Signature, Err(error)),
        };
        let der = der.to_vec();
        let roots = vec![self.root().clone()];
        // A key is derived, or a signature made: not in this task.
        let reply = move || {
            let reply = Response {
                kept: &kept,
                signer: &signer,
                trust: &roots,
                now,
            };
            reply.to_der(&der, answer)
        };
        let pool = &self.inner.pool;
        pool.run(reply).await.map_err(|_| CmpError::Interrupted)?
    }

    /// Deletes the codes of invitations for CMP that are over.
    ///
    /// # Errors
    /// [`RegistryError::Store`].
    pub async fn forget_codes(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let mut tx = self.inner.sql.write().await?;
        invitations::forget_sealed(&mut tx, Forget::Over(now)).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// An answer on its way.
struct Response<'a> {
    kept: &'a Kept,
    signer: &'a Signer,
    trust: &'a [pki::Certificate],
    now: OffsetDateTime,
}

impl Response<'_> {
    fn to_der(
        &self,
        request: &[u8],
        answer: Result<Answer, EnrolError>,
    ) -> Result<Vec<u8>, CmpError> {
        let message = Message::parse(request)?;
        let (mut certificates, mut nonce) = (
            self.signer.chain.certificates().to_vec(),
            random().map_err(|_| CmpError::Random)?,
        );
        let by_secret = matches!(self.kept, Kept::Secret { .. });
        let text;
        let body = match &answer {
            Ok(Answer::Certificate {
                issued,
                id,
                nonce: noted,
                confirmed,
            }) => {
                nonce = *noted;
                // Above the new certificate; each once.
                for certificate in issued.chain.certificates().iter().skip(1) {
                    if !certificates.contains(certificate) {
                        certificates.push(certificate.clone());
                    }
                }
                ReplyBody::Certificate {
                    certificate: issued.chain.leaf(),
                    id: *id,
                    trust: if by_secret { self.trust } else { &[] },
                    confirmed: *confirmed,
                }
            }
            Ok(Answer::Revoked) => ReplyBody::Revoked,
            Ok(Answer::Confirmed) => ReplyBody::Confirmed,
            Err(error) => {
                if let EnrolError::Registry(_) = error {
                    let error: &dyn std::error::Error = error;
                    tracing::error!(error, "CMP request failed");
                }
                text = error.for_peer();
                let failure = refusal::failure(error);
                ReplyBody::Refused {
                    failure,
                    text: &text,
                }
            }
        };
        let reply = Reply {
            body,
            sender: self.signer.chain.leaf(),
            certificates: &certificates,
            nonce,
            now: self.now,
        };
        let der = match self.kept {
            Kept::Secret { mac, secret } => {
                let mac = mac.answering(random().map_err(|_| CmpError::Random)?);
                let secret = secret.as_bytes();
                reply.to_der(&message, &Protect::Secret { mac: &mac, secret })
            }
            Kept::Signature => reply.to_der(&message, &Protect::Signature(&self.signer.key)),
        };
        Ok(der?)
    }
}
