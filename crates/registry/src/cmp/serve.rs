//! What a message asks for is done, by those who decide about it for every protocol.

use audit::Actor;
use event_catalogue::Recorded as _;
use event_catalogue::registry::Superseded;
use pki::cert;
use pki::cmp::{BodyKind, Message};
use pki::crl::RevocationReason;
use pki::csr::CertificationRequest;
use pki::profile::CaKind;
use rustls_pki_types::CertificateDer;
use store::sqlx;
use time::OffsetDateTime;

use super::authenticate::{Peer, Who, action};
use super::bounds::random;
use super::refusal::CmpRefusal;
use super::transactions::Waiting;

use crate::admission::{Admitted, authority_of};
use crate::invitations::{self, Forget};
use crate::{EnrolError, Issued, Registry, RegistryError};

/// The number of the only request in a message (RFC 9483, section 4.1.1).
const REQUEST_ID: i64 = 0;
/// That of a `p10cr`, which has none (RFC 9483, section 4.1.4).
const NO_REQUEST_ID: i64 = -1;

/// The outcome of a message.
pub(super) enum Answer {
    Certificate {
        issued: Box<Issued>,
        id: i64,
        /// Ours, which a confirmation answers.
        nonce: [u8; 16],
        /// Whether it takes no confirmation.
        confirmed: bool,
    },
    Revoked,
    Confirmed,
}

impl Registry {
    /// Does what a message asks for whose sender is known.
    pub(super) async fn serve(
        &self,
        message: &Message<'_>,
        peer: Peer,
        now: OffsetDateTime,
    ) -> Result<Answer, EnrolError> {
        match message.kind() {
            BodyKind::Revocation => {
                let outcome = self.revoke_own(message, &peer.who, now).await;
                self.or_recorded(message, &peer.who, outcome, now).await
            }
            BodyKind::Confirmation => {
                let outcome = self.confirm_issued(message, &peer, now).await;
                self.or_recorded(message, &peer.who, outcome, now).await
            }
            _ => self.certify(message, peer, now).await,
        }
    }

    /// Records a refusal that nobody has recorded yet.
    async fn or_recorded<T>(
        &self,
        message: &Message<'_>,
        who: &Who,
        outcome: Result<T, EnrolError>,
        now: OffsetDateTime,
    ) -> Result<T, EnrolError> {
        if let Err(error) = &outcome {
            let (kind, name) = who.resource();
            self.record_refusal(action(message), (kind, &name), error, now)
                .await?;
        }
        outcome
    }

    async fn certify(
        &self,
        message: &Message<'_>,
        peer: Peer,
        now: OffsetDateTime,
    ) -> Result<Answer, EnrolError> {
        let request = match message.has_certificate_request() {
            true => {
                let read = wanted(message, &peer.who);
                Some(self.or_recorded(message, &peer.who, read, now).await?)
            }
            false => None,
        };
        let (csr, id) = match &request {
            Some(request) => (CertificationRequest::Crmf(request), REQUEST_ID),
            None => (
                CertificationRequest::Pkcs10(message.pkcs10()),
                NO_REQUEST_ID,
            ),
        };
        let (issued, actor, signer) = match &peer.who {
            Who::Invited(invitation) => {
                let issued = self.enrol_invited(invitation, csr, now).await?;
                (issued, crate::invited::actor(invitation), None)
            }
            Who::Holder {
                present,
                certificate,
            } => {
                let shown = std::slice::from_ref(certificate);
                let issued = self.renew_admitted(present, shown, csr, now).await?;
                (issued, actor_of(present), Some(certificate.to_vec()))
            }
            Who::Confirming => return Err(CmpRefusal::Unsupported.into()),
        };
        let nonce = random()?;
        let confirmed = message.wants_implicit_confirm();
        let invitation = match &peer.who {
            Who::Invited(invitation) => Some(invitation.id.clone()),
            _ => None,
        };
        if confirmed {
            self.forget_code(invitation.as_deref()).await?;
        } else if let Ok(envelope) = message.envelope() {
            let waiting = Waiting {
                sender: peer.sender,
                transaction: envelope.transaction_id.to_vec(),
                nonce,
                id,
                certificate: issued.chain.leaf().clone(),
                authority: issued.authority,
                serial: issued.serial.clone(),
                actor,
                invitation,
                until: Waiting::until(now),
                kept: peer.kept,
                signer,
            };
            self.inner.cmp.open_transactions().add(waiting, now);
        }
        Ok(Answer::Certificate {
            issued: Box::new(issued),
            id,
            nonce,
            confirmed,
        })
    }

    /// Revokes the certificate that protects the message, and no other (RFC 9483, section 4.2).
    async fn revoke_own(
        &self,
        message: &Message<'_>,
        who: &Who,
        now: OffsetDateTime,
    ) -> Result<Answer, EnrolError> {
        let Who::Holder {
            present,
            certificate,
        } = who
        else {
            return Err(CmpRefusal::Unsupported.into());
        };
        let wanted = message.revocation().map_err(CmpRefusal::from)?;
        if !wanted.certificate.names(&parsed(certificate)?) {
            return Err(CmpRefusal::OtherCertificate.into());
        }
        // A hold has an end, and whoever has the key ends it; an authority's key is not the holder's to tell of.
        if matches!(
            wanted.reason,
            RevocationReason::CertificateHold | RevocationReason::CaCompromise
        ) {
            return Err(CmpRefusal::Reason.into());
        }
        let identity = present.identity();
        let warrant = match self.direct(actor_of(present)) {
            Ok(warrant) => warrant,
            Err(RegistryError::ApprovalRequired) => {
                return Err(CmpRefusal::ApprovalRequired.into());
            }
            Err(error) => return Err(error.into()),
        };
        let (authority, serial) = (authority_of(identity), &identity.serial_hex);
        self.revoke(authority, serial, wanted.reason, warrant, now)
            .await?;
        Ok(Answer::Revoked)
    }

    async fn confirm_issued(
        &self,
        message: &Message<'_>,
        peer: &Peer,
        now: OffsetDateTime,
    ) -> Result<Answer, EnrolError> {
        let said = message.confirmation().map_err(CmpRefusal::from)?;
        let transaction = message.envelope().map_err(CmpRefusal::from)?.transaction_id;
        let waiting = {
            let mut open = self.inner.cmp.open_transactions();
            open.take(&peer.sender, transaction)
        };
        let waiting = waiting.ok_or(CmpRefusal::NothingToConfirm)?;
        // Some give a p10cr the number that others have.
        let numbered =
            said.id == waiting.id || (waiting.id, said.id) == (NO_REQUEST_ID, REQUEST_ID);
        if !numbered {
            return Err(CmpRefusal::RequestId.into());
        }
        if said.accepted && !said.is_about(&waiting.certificate) {
            return Err(CmpRefusal::WrongHash.into());
        }
        if !said.accepted {
            self.supersede_unwanted(&waiting, now).await?;
        }
        self.forget_code(waiting.invitation.as_deref()).await?;
        Ok(Answer::Confirmed)
    }

    /// Ends a certificate that its holder does not want, unless it is in use by now.
    async fn supersede_unwanted(
        &self,
        waiting: &Waiting,
        now: OffsetDateTime,
    ) -> Result<(), EnrolError> {
        let (authority, serial) = (waiting.authority, &waiting.serial);
        let mut tx = self.write(now).await?;
        let ended: Option<String> = sqlx::query_scalar(
            "UPDATE issued SET superseded_at = ?3, unlisted = 1
             WHERE authority = ?1 AND serial = ?2 AND first_used_at IS NULL AND superseded_at IS NULL
             AND NOT EXISTS (SELECT 1 FROM revoked r WHERE r.authority = issued.authority
                             AND r.serial = issued.serial)
             RETURNING holder_id",
        )
        .bind(authority.name())
        .bind(serial)
        .bind(now.unix_timestamp())
        .fetch_optional(&mut **tx)
        .await?;
        let Some(holder) = ended else {
            return Ok(());
        };
        let (resource, actor) = (
            format!("certificate/{authority}/{holder}"),
            waiting.actor.clone(),
        );
        let declined = Superseded {
            serial: serial.clone(),
            successor: None,
        };
        let event = declined.into_event(now, actor, resource);
        let event = event.with_reason("its holder does not want it");
        tx.record(vec![event]).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Deletes the code of an invitation that was used.
    async fn forget_code(&self, invitation: Option<&str>) -> Result<(), EnrolError> {
        let Some(id) = invitation else {
            return Ok(());
        };
        let mut tx = self.inner.sql.write().await?;
        invitations::forget_sealed(&mut tx, Forget::Of(id)).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// The request of an `ir`, `cr` or `kur`; one that names a certificate to replace names the sender's own.
fn wanted<'a>(message: &Message<'a>, who: &Who) -> Result<pki::crmf::Request<'a>, EnrolError> {
    let request = message.certificate_request()?;
    if request.id() != REQUEST_ID {
        return Err(CmpRefusal::RequestId.into());
    }
    if let Some(old) = request.old_certificate()? {
        let Who::Holder { certificate, .. } = who else {
            return Err(CmpRefusal::OtherCertificate.into());
        };
        if !old.names(&parsed(certificate)?) {
            return Err(CmpRefusal::OtherCertificate.into());
        }
    }
    Ok(request)
}

fn parsed(certificate: &CertificateDer<'_>) -> Result<pki::Certificate, EnrolError> {
    cert::from_der(certificate).map_err(|_| EnrolError::NoCertificate)
}

fn actor_of(present: &Admitted) -> Actor {
    let identity = present.identity();
    match authority_of(identity) {
        CaKind::Users => {
            let uid = identity.uid.as_ref().unwrap_or(&identity.common_name);
            Actor::user(uid, &identity.common_name)
        }
        CaKind::Devices => Actor::device(&identity.common_name),
        CaKind::Services => Actor::service(&identity.common_name),
    }
}
