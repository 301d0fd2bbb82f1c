//! OCSP responses about everything that was issued, signed by delegates of the authorities.
//!
//! A response is signed when somebody asks, and handed out again until half of its time is over or the status
//! changes. So it costs one signature per certificate and half-time, however often strangers ask; and a
//! revocation counts with the next request.
//!
//! Who sends a nonce or asks about several certificates gets a response of their own. As strangers may ask for any
//! number of those, so many certificates a second are signed for; beyond that a nonce is not repeated (RFC 6960, section
//! 4.4.1, leaves that to responders) and several certificates are to be asked about later.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pki::CertificateChain;
use pki::cert::Certificate;
use pki::crl::RevocationReason;
use pki::key::PrivateKey;
use pki::ocsp::responder::{self, CertificateRequest, Refusal, ResponseSigner};
use pki::status::Revocation;
use store::sqlx;
use time::OffsetDateTime;

use crate::generation::AuthorityId;
use crate::on_hold;
use crate::records::instant;
use crate::{Registry, RegistryError};

/// Responses that are kept, each about a kilobyte; with as many of before. Whoever asks about more certificates
/// than that has some signed again.
const KEPT: usize = 4096;
/// Certificates a second in responses of somebody's own: at some 50 µs each a hundredth of a processor.
const OWN_PER_SECOND: usize = 200;

/// A response that is good now.
#[derive(Clone, Debug)]
pub struct OcspAnswer {
    /// In DER.
    pub der: Arc<[u8]>,
    /// Until when it counts.
    pub next_update: OffsetDateTime,
    /// Whether it serves everybody who asks the same.
    pub shared: bool,
}

struct Kept {
    answer: OcspAnswer,
    /// From when on it is signed anew.
    renew_at: OffsetDateTime,
    signed_at: OffsetDateTime,
    revoked: Option<Revocation>,
}

/// Signers of the authorities, and what they signed.
#[derive(Default)]
pub(crate) struct Ocsp {
    signers: RwLock<BTreeMap<AuthorityId, Arc<ResponseSigner>>>,
    kept: Mutex<Generations>,
    own: Mutex<OwnBudget>,
}

/// Certificates in responses of somebody's own, counted in each second.
#[derive(Default)]
struct OwnBudget {
    second: i64,
    spent: usize,
}

impl OwnBudget {
    fn take(&mut self, certificates: usize, now: OffsetDateTime) -> bool {
        let second = now.unix_timestamp();
        if self.second != second {
            (self.second, self.spent) = (second, 0);
        }
        let fits = self.spent + certificates <= OWN_PER_SECOND;
        if fits {
            self.spent += certificates;
        }
        fits
    }
}

type Key = (AuthorityId, Vec<u8>);

#[derive(Default)]
struct Generations {
    current: HashMap<Key, Kept>,
    before: HashMap<Key, Kept>,
}

impl Generations {
    fn get(&self, key: &Key) -> Option<&Kept> {
        self.current.get(key).or_else(|| self.before.get(key))
    }

    fn insert(&mut self, key: Key, kept: Kept) {
        if self.current.len() >= KEPT {
            self.before = std::mem::take(&mut self.current);
        }
        self.current.insert(key, kept);
    }
}

impl Registry {
    /// Has responses about certificates of this authority signed with this key from now on.
    ///
    /// # Errors
    /// [`RegistryError::Corrupt`] for a certificate that cannot be encoded.
    pub fn set_ocsp_signer(
        &self,
        id: AuthorityId,
        key: PrivateKey,
        chain: &CertificateChain,
    ) -> Result<(), RegistryError> {
        let signer = ResponseSigner::new(key, chain.leaf().clone())
            .map_err(|_| RegistryError::Corrupt("OCSP signer"))?;
        let ocsp = &self.inner.ocsp;
        let mut signers = ocsp.signers.write().unwrap_or_else(PoisonError::into_inner);
        signers.insert(id, Arc::new(signer));
        Ok(())
    }

    /// Answers a request (DER).
    ///
    /// # Errors
    /// [`Refusal`], which goes to whoever asked.
    pub async fn ocsp_response(
        &self,
        request: &[u8],
        now: OffsetDateTime,
    ) -> Result<OcspAnswer, Refusal> {
        let request = responder::Request::parse(request)?;
        let names = |authority: &Certificate| {
            let mut all = request.certificates.iter();
            all.all(|one| one.names(authority))
        };
        let held = self.held();
        let mut authorities = held.all.values();
        let named = authorities.find(|authority| names(authority.certificate()));
        let id = named.ok_or(Refusal::Unauthorized)?.id;
        if let ([one], None) = (request.certificates.as_slice(), &request.nonce) {
            return self.answer(id, one, now).await;
        }
        let own = &self.inner.ocsp.own;
        let fits = own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(request.certificates.len(), now);
        match request.certificates.as_slice() {
            _ if fits => self.own_answer(id, &request, now).await,
            [one] => self.answer(id, one, now).await,
            _ => Err(Refusal::TryLater),
        }
    }

    /// A response for whoever sent `request`, and for nobody else.
    async fn own_answer(
        &self,
        id: AuthorityId,
        request: &responder::Request,
        now: OffsetDateTime,
    ) -> Result<OcspAnswer, Refusal> {
        let mut certificates = Vec::with_capacity(request.certificates.len());
        for one in &request.certificates {
            certificates.push((one, self.issued_status(id, one).await?));
        }
        self.sign(id, &certificates, request.nonce.as_deref(), now)
    }

    /// Whether and since when a certificate of ours is revoked.
    async fn issued_status(
        &self,
        id: AuthorityId,
        request: &CertificateRequest,
    ) -> Result<Option<Revocation>, Refusal> {
        // The database, not a list or cache: what another process revoked counts as well.
        let status = self.ocsp_status(id, &request.serial_hex()).await;
        // RFC 5019, section 2.2.3: a responder says nothing of certificates that it does not know.
        let status = status
            .map_err(|error| failed(&error))?
            .ok_or(Refusal::Unauthorized)?;
        // RFC 6960, section 2.7: whoever asks about the leaf alone hears of its authority here.
        let authority = self.authority(id).map_err(|e| failed(&e))?;
        let authority = self.revocation_of(&authority);
        Ok(status.or(authority.map(|revoked| Revocation {
            reason: RevocationReason::CaCompromise,
            ..revoked
        })))
    }

    fn sign(
        &self,
        id: AuthorityId,
        certificates: &[(&CertificateRequest, Option<Revocation>)],
        nonce: Option<&[u8]>,
        now: OffsetDateTime,
    ) -> Result<OcspAnswer, Refusal> {
        let config = &self.inner.config;
        config.clock.check(now).map_err(|e| failed(&e))?;
        let signer = {
            let signers = self.inner.ocsp.signers.read();
            signers
                .unwrap_or_else(PoisonError::into_inner)
                .get(&id)
                .cloned()
        };
        // None is renewed for an authority that nobody needs any more.
        let signer = signer.filter(|signer| now < signer.not_after());
        let signer = signer.ok_or(Refusal::InternalError)?;
        let next_update = now
            .saturating_add(config.lifetimes.ocsp_response)
            .min(signer.not_after());
        let der = signer
            .respond(certificates, nonce, now, next_update)
            .map_err(|e| failed(&e))?;
        Ok(OcspAnswer {
            der: der.into(),
            next_update,
            shared: nonce.is_none() && certificates.len() == 1,
        })
    }

    /// The response about a certificate of this registry, as it is stapled. `None` if there is none.
    pub async fn ocsp_staple(
        &self,
        certificate: &Certificate,
        now: OffsetDateTime,
    ) -> Option<OcspAnswer> {
        let held = self.held();
        let mut authorities = held.all.values();
        let issuer = authorities.find(|one| {
            one.certificate().tbs_certificate.subject == certificate.tbs_certificate.issuer
        })?;
        let request = CertificateRequest::about(certificate, issuer.certificate()).ok()?;
        self.answer(issuer.id, &request, now).await.ok()
    }

    async fn answer(
        &self,
        id: AuthorityId,
        request: &CertificateRequest,
        now: OffsetDateTime,
    ) -> Result<OcspAnswer, Refusal> {
        let revoked = self.issued_status(id, request).await?;
        let ocsp = &self.inner.ocsp;
        let key = (id, request.identifier().map_err(|e| failed(&e))?);
        let fresh =
            |kept: &&Kept| kept.revoked == revoked && kept.signed_at <= now && now < kept.renew_at;
        let lock = || ocsp.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(&key).filter(fresh) {
            return Ok(kept.answer.clone());
        }
        let answer = self.sign(id, &[(request, revoked)], None, now)?;
        let kept = Kept {
            answer: answer.clone(),
            renew_at: now + (answer.next_update - now) / 2,
            signed_at: now,
            revoked,
        };
        lock().insert(key, kept);
        Ok(answer)
    }

    /// Whether a certificate was issued, and whether and since when it is revoked or on hold.
    async fn ocsp_status(
        &self,
        id: AuthorityId,
        serial: &str,
    ) -> Result<Option<Option<Revocation>>, RegistryError> {
        type Row = (Option<i64>, Option<String>, Option<i64>);
        let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(on_hold::status_query()))
            .bind(id.kind().name())
            .bind(serial)
            .bind(id.generation())
            // Strangers ask: not with the connections that devices wait for.
            .fetch_optional(self.inner.people.read())
            .await?;
        let Some((at, reason, held_at)) = row else {
            return Ok(None);
        };
        let revocation = |(at, reason): (i64, String)| {
            let reason: RevocationReason = reason
                .parse()
                .map_err(|_| RegistryError::Corrupt("reason"))?;
            Ok::<_, RegistryError>(Revocation {
                at: instant(at)?,
                reason,
            })
        };
        let hold = || held_at.zip(Some(RevocationReason::CertificateHold.name().to_owned()));
        let known = at.zip(reason).or_else(hold);
        known.map(revocation).transpose().map(Some)
    }
}

fn failed(error: &dyn std::error::Error) -> Refusal {
    tracing::error!(%error, "no OCSP response");
    Refusal::InternalError
}
