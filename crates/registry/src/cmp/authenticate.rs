//! Who has sent a message: by the code of an invitation, or by a certificate.

use event_catalogue::registry::EnrolmentStep;
use pki::cmp::{BodyKind, Envelope, Message, Protection, ProtectionError, SecretProtection};
use pki::path::Purpose;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::bounds::CLOCK_WINDOW;
use super::refusal::CmpRefusal;
use super::transactions::{Kept, Waiting};
use crate::admission::{Admitted, authority_of};
use crate::invitations::{self, Stored};
use crate::{EnrolError, Registry, RegistryError};

/// Invitations that may have one name, of a person and of a device. So many keys are derived for every message, so that the
/// time says nothing of who was invited.
const CANDIDATES: u8 = 2;
/// Derived from where there are fewer.
const NOBODY: &str = "no code has such letters";
/// Names of senders at most, in bytes.
const MAX_NAME: usize = 64;

/// The sender of a message that holds.
pub(super) struct Peer {
    pub(super) who: Who,
    pub(super) kept: Kept,
    /// Under which name its transactions are kept.
    pub(super) sender: String,
}

pub(super) enum Who {
    /// Whoever has the code of an invitation.
    Invited(Box<Stored>),
    /// The holder of a certificate.
    Holder {
        present: Box<Admitted>,
        certificate: CertificateDer<'static>,
    },
    /// Whoever a certificate was issued to in this transaction.
    Confirming,
}

impl Registry {
    /// Verifies the protection of a message, and that it is none of before.
    pub(super) async fn authenticate(
        &self,
        message: &Message<'_>,
        now: OffsetDateTime,
    ) -> Result<Peer, EnrolError> {
        let action = action(message);
        let checked = check_envelope(message, now);
        let (envelope, protection) = match checked {
            Ok(checked) => checked,
            Err(refusal) => {
                let claimed = claimed_name(message);
                return Err(self.refuse(action, &claimed, refusal.into(), now).await);
            }
        };
        if message.kind() == BodyKind::Confirmation {
            return match self.confirming(message, &envelope, protection, now).await {
                Ok(peer) => Ok(peer),
                Err(error) => {
                    let claimed = claimed_name(message);
                    Err(self.refuse(action, &claimed, error, now).await)
                }
            };
        }
        let peer = match protection {
            Protection::Secret(protection) => self.by_code(&envelope, protection, now).await?,
            Protection::Signature => self.by_certificate(message, now).await?,
        };
        let begun = self.begin_transaction(
            &peer.sender,
            envelope.transaction_id,
            envelope.sender_nonce,
            now,
        );
        match begun.await {
            Ok(()) => Ok(peer),
            Err(error) => {
                let (kind, name) = peer.who.resource();
                self.record_refusal(action, (kind, &name), &error, now)
                    .await?;
                Err(error)
            }
        }
    }

    /// Records a refusal of somebody who has not shown who they are.
    async fn refuse(
        &self,
        action: EnrolmentStep,
        claimed: &str,
        error: EnrolError,
        now: OffsetDateTime,
    ) -> EnrolError {
        let resource = (error.claimed(), claimed);
        match self.record_refusal(action, resource, &error, now).await {
            Ok(()) => error,
            Err(fault) => fault.into(),
        }
    }

    async fn by_code(
        &self,
        envelope: &Envelope<'_>,
        protection: SecretProtection,
        now: OffsetDateTime,
    ) -> Result<Peer, EnrolError> {
        let name = name_of(envelope);
        let mac = protection.mac().clone();
        match self.invited_by_code(&name, protection).await {
            Ok((invitation, secret)) => Ok(Peer {
                sender: format!("invitation/{}", invitation.id),
                who: Who::Invited(Box::new(invitation)),
                kept: Kept::Secret { mac, secret },
            }),
            Err(error) => Err(self.refuse(EnrolmentStep::Enrol, &name, error, now).await),
        }
    }

    /// The invitation whose code protects the message. Only wrong codes are counted, of every name alike, as for EST.
    async fn invited_by_code(
        &self,
        name: &str,
        protection: SecretProtection,
    ) -> Result<(Stored, Zeroizing<String>), EnrolError> {
        let sealing = self.inner.cmp.sealing().ok_or(RegistryError::CmpOff)?;
        let readers = self.inner.people.read();
        let known = invitations::any(readers, name).await?;
        let mut candidates = Vec::new();
        for (stored, sealed) in invitations::sealed(readers, name, CANDIDATES).await? {
            let secret = sealing.unseal(&sealed, &stored.id, &stored.holder)?;
            candidates.push((Some(stored), secret));
        }
        while candidates.len() < usize::from(CANDIDATES) {
            candidates.push((None, Zeroizing::new(NOBODY.to_owned())));
        }
        let verify = move || {
            let mut found = None;
            for (stored, secret) in candidates {
                let holds = protection.verify(secret.as_bytes());
                if let (true, Some(stored)) = (holds, stored) {
                    found = Some((stored, secret));
                }
            }
            found
        };
        let found = self.inner.pool.run(verify).await;
        if let Some(found) = found.map_err(|_| RegistryError::Interrupted)? {
            return Ok(found);
        }
        self.count_wrong_code(name)?;
        Err(match known {
            true => EnrolError::WrongCode,
            false => EnrolError::Unauthorised,
        })
    }

    async fn by_certificate(
        &self,
        message: &Message<'_>,
        now: OffsetDateTime,
    ) -> Result<Peer, EnrolError> {
        let action = action(message);
        // The signature first: admission notes the first use of a certificate, which takes whoever has its key.
        let verified = message.verify_signature();
        let signer = match (verified, message.signer()) {
            (Ok(()), Some(signer)) => signer.clone().into_owned(),
            (outcome, _) => {
                let error = outcome.err().unwrap_or(ProtectionError::NoCertificate);
                let error = CmpRefusal::from(error).into();
                return Err(self.refuse(action, "unknown", error, now).await);
            }
        };
        let peer = std::slice::from_ref(&signer);
        let admitted = match message.kind() {
            // What ended needs no revocation, and asks for none.
            BodyKind::Revocation => self.admit(peer, Purpose::ClientEnrolment, now).await,
            _ => self.admit_renewal(peer, now).await,
        };
        let present = match admitted {
            Ok(present) => present,
            Err(error) => return Err(self.not_admitted(action, error, now).await),
        };
        let identity = present.identity();
        Ok(Peer {
            sender: format!(
                "certificate/{}/{}",
                authority_of(identity),
                identity.serial_hex
            ),
            who: Who::Holder {
                present: Box::new(present),
                certificate: signer,
            },
            kept: Kept::Signature,
        })
    }

    /// Whoever has a certificate to confirm, by the protection that its request had.
    async fn confirming(
        &self,
        message: &Message<'_>,
        envelope: &Envelope<'_>,
        protection: Protection,
        now: OffsetDateTime,
    ) -> Result<Peer, EnrolError> {
        let id = envelope.transaction_id;
        let waiting: Vec<Awaited> = {
            let open = self.inner.cmp.open_transactions();
            open.of(id, now).into_iter().map(Awaited::of).collect()
        };
        let found = match protection {
            Protection::Signature => {
                message.verify_signature().map_err(CmpRefusal::from)?;
                let signer = message.signer().map(|der| der.to_vec());
                let mut waiting = waiting.into_iter();
                waiting.find(|one| one.signer.is_some() && one.signer == signer)
            }
            Protection::Secret(protection) => {
                // Different senders do not share an identifier but by chance or on purpose.
                let mut waiting = waiting.into_iter();
                let first = waiting.find(|one| matches!(one.kept, Kept::Secret { .. }));
                let verify = move || {
                    first.filter(|one| match &one.kept {
                        Kept::Secret { secret, .. } => protection.verify(secret.as_bytes()),
                        Kept::Signature => false,
                    })
                };
                let verified = self.inner.pool.run(verify).await;
                verified.map_err(|_| RegistryError::Interrupted)?
            }
        };
        let awaited = found.ok_or(CmpRefusal::NothingToConfirm)?;
        if envelope.recipient_nonce != Some(awaited.nonce.as_slice()) {
            return Err(CmpRefusal::RecipientNonce.into());
        }
        Ok(Peer {
            who: Who::Confirming,
            kept: awaited.kept,
            sender: awaited.sender,
        })
    }
}

/// Protection of the confirmation that a transaction waits for.
struct Awaited {
    sender: String,
    kept: Kept,
    signer: Option<Vec<u8>>,
    nonce: [u8; 16],
}

impl Awaited {
    fn of(waiting: &Waiting) -> Self {
        Self {
            sender: waiting.sender.clone(),
            kept: waiting.kept.clone(),
            signer: waiting.signer.clone(),
            nonce: waiting.nonce,
        }
    }
}

impl Who {
    /// Noun and name in events.
    pub(super) fn resource(&self) -> (&'static str, String) {
        match self {
            Self::Invited(invitation) => (
                crate::error::noun(invitation.authority),
                invitation.holder.clone(),
            ),
            Self::Holder { present, .. } => {
                let identity = present.identity();
                let name = identity.uid.as_ref().unwrap_or(&identity.common_name);
                (crate::error::noun(authority_of(identity)), name.clone())
            }
            Self::Confirming => ("device", "unknown".to_owned()),
        }
    }
}

/// Its name in events.
pub(super) fn action(message: &Message<'_>) -> EnrolmentStep {
    let by_secret = matches!(message.protection(), Ok(Protection::Secret(_)));
    match message.kind() {
        BodyKind::Revocation => EnrolmentStep::Revoke,
        BodyKind::Confirmation => EnrolmentStep::Confirm,
        BodyKind::Pkcs10 if by_secret => EnrolmentStep::Enrol,
        BodyKind::Certification | BodyKind::KeyUpdate | BodyKind::Pkcs10 => EnrolmentStep::Renew,
        BodyKind::Initialization | BodyKind::Other(_) => EnrolmentStep::Enrol,
    }
}

fn check_envelope<'m>(
    message: &'m Message<'_>,
    now: OffsetDateTime,
) -> Result<(Envelope<'m>, Protection), CmpRefusal> {
    let envelope = message.envelope()?;
    if (envelope.time - now).abs() > CLOCK_WINDOW {
        return Err(CmpRefusal::Clock);
    }
    let protection = message.protection()?;
    let by_secret = matches!(protection, Protection::Secret(_));
    match (message.kind(), by_secret) {
        (BodyKind::Other(_), _) => Err(CmpRefusal::Unsupported),
        (BodyKind::Initialization, false) => Err(CmpRefusal::WrongIntegrity(
            "a first certificate takes the code of an invitation; renew one with kur",
        )),
        (BodyKind::Certification | BodyKind::KeyUpdate | BodyKind::Revocation, true) => {
            Err(CmpRefusal::WrongIntegrity(
                "protect the message with the certificate that it is about; a code is for ir and p10cr",
            ))
        }
        _ => Ok((envelope, protection)),
    }
}

/// The name beside a code: what the sender calls its key.
fn name_of(envelope: &Envelope<'_>) -> String {
    let name = envelope.sender_kid.filter(|kid| kid.len() <= MAX_NAME);
    let name = name.and_then(|kid| std::str::from_utf8(kid).ok());
    name.unwrap_or_default().to_owned()
}

fn claimed_name(message: &Message<'_>) -> String {
    let by_secret = matches!(message.protection(), Ok(Protection::Secret(_)));
    let name = message.envelope().map(|envelope| name_of(&envelope));
    match name {
        Ok(name) if by_secret && !name.is_empty() => name,
        _ => "unknown".to_owned(),
    }
}
