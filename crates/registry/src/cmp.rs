//! Enrolment over the Certificate Management Protocol (RFC 9810), in the lightweight profile (RFC 9483), over HTTP (RFC 9811).
//!
//! ```text
//! ir, p10cr   protected by an invitation's code      ─► as an invitation is used over EST
//! cr, kur,
//! p10cr       protected by the present certificate   ─► as a certificate is renewed over EST
//! rr          protected by the very certificate      ─► revocation, if an order is enough for it
//! certConf    protected as its request               ─► the code is forgotten, or an unwanted certificate superseded
//! ```
//!
//! Only the messages are decided here: who gets which certificate is said by `invited` and `enrol`, and what is revoked by
//! `revoke`, as for every other way to ask. A message is protected by itself, so that TLS is not needed for it; a message
//! that holds is taken once, within [`CLOCK_WINDOW`] of our clock.
//!
//! Answers to messages whose protection holds are protected in the same way. Others are refused with a signature by the
//! site, as there is no secret that both know.

mod authenticate;
mod http;
mod refusal;
mod sealing;
mod serve;
mod transactions;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pki::CertificateChain;
use pki::cmp::{Message, MessageError, Protect, Reply, ReplyBody, ReplyError};
use pki::key::{Passphrase, PrivateKey};
use time::{Duration, OffsetDateTime};

use self::authenticate::Kept;
pub use self::http::router;
pub use self::refusal::CmpRefusal;
pub(crate) use self::sealing::SealingKey;
use self::serve::Answer;
use self::transactions::Transactions;
use crate::invitations::{self, Forget};
use crate::{Config, EnrolError, Registry, RegistryError};

/// How far the time of a message may be from ours. Our choice: what a device's clock drifts in months without setting.
pub const CLOCK_WINDOW: Duration = Duration::minutes(5);

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
    #[error("interrupted by shutdown")]
    Interrupted,
}

/// Whoever signs answers.
struct Signer {
    key: PrivateKey,
    chain: CertificateChain,
}

/// What the protocol needs beside the registry.
#[derive(Default)]
pub(crate) struct Cmp {
    signer: RwLock<Option<Arc<Signer>>>,
    sealing: Option<SealingKey>,
    open: Mutex<Transactions>,
}

impl Cmp {
    /// Reads the key for invitations' codes, or makes it.
    pub(crate) fn open(
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
    ) -> Result<Self, RegistryError> {
        Ok(Self {
            sealing: Some(SealingKey::open(directory, config, passphrase)?),
            ..Self::default()
        })
    }

    pub(crate) fn sealing(&self) -> Option<&SealingKey> {
        self.sealing.as_ref()
    }

    fn open_transactions(&self) -> MutexGuard<'_, Transactions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            protocol: Some("cmp"),
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
        let (mut certificates, mut nonce) = (self.signer.chain.certificates().to_vec(), random()?);
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
                let mac = mac.answering(random()?);
                let secret = secret.as_bytes();
                reply.to_der(&message, &Protect::Secret { mac: &mac, secret })
            }
            Kept::Signature => reply.to_der(&message, &Protect::Signature(&self.signer.key)),
        };
        Ok(der?)
    }
}

/// Sixteen random bytes: a nonce, or a salt.
fn random() -> Result<[u8; 16], CmpError> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| CmpError::Interrupted)?;
    Ok(bytes)
}
