//! OCSP responses about everything that was issued, signed by delegates of the authorities.
//!
//! A response is signed when somebody asks, and handed out again until half of its time is over or the status
//! changes. So it costs one signature per certificate and half-time, however often strangers ask; and a
//! revocation counts with the next request.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pki::CertificateChain;
use pki::cert::Certificate;
use pki::crl::RevocationReason;
use pki::key::PrivateKey;
use pki::ocsp::responder::{CertificateRequest, Refusal, ResponseSigner};
use pki::profile::CaKind;
use pki::status::Revocation;
use store::sqlx;
use time::OffsetDateTime;

use crate::records::instant;
use crate::{Registry, RegistryError};

/// Responses that are kept, each about a kilobyte; with as many of before. Whoever asks about more certificates
/// than that has some signed again.
const KEPT: usize = 4096;

/// A response that is good now.
#[derive(Clone, Debug)]
pub struct OcspAnswer {
    /// In DER.
    pub der: Arc<[u8]>,
    /// Until when it counts.
    pub next_update: OffsetDateTime,
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
    signers: RwLock<BTreeMap<CaKind, Arc<ResponseSigner>>>,
    kept: Mutex<Generations>,
}

type Key = (CaKind, Vec<u8>);

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
    /// Has responses about certificates of `kind` signed with this key from now on.
    ///
    /// # Errors
    /// [`RegistryError::Corrupt`] for a certificate that cannot be encoded.
    pub fn set_ocsp_signer(
        &self,
        kind: CaKind,
        key: PrivateKey,
        chain: &CertificateChain,
    ) -> Result<(), RegistryError> {
        let signer = ResponseSigner::new(key, chain.leaf().clone())
            .map_err(|_| RegistryError::Corrupt("OCSP signer"))?;
        let ocsp = &self.inner.ocsp;
        let mut signers = ocsp.signers.write().unwrap_or_else(PoisonError::into_inner);
        signers.insert(kind, Arc::new(signer));
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
        let request = CertificateRequest::parse(request)?;
        let authorities = &self.inner.authorities;
        let named = authorities
            .iter()
            .find(|(_, authority)| request.names(authority.certificate()));
        let (kind, _) = named.ok_or(Refusal::Unauthorized)?;
        self.answer(*kind, &request, now).await
    }

    /// The response about a certificate of this registry, as it is stapled. `None` if there is none.
    pub async fn ocsp_staple(
        &self,
        kind: CaKind,
        certificate: &Certificate,
        now: OffsetDateTime,
    ) -> Option<OcspAnswer> {
        let issuer = self.authority_certificate(kind)?;
        let request = CertificateRequest::about(certificate, &issuer).ok()?;
        self.answer(kind, &request, now).await.ok()
    }

    async fn answer(
        &self,
        kind: CaKind,
        request: &CertificateRequest,
        now: OffsetDateTime,
    ) -> Result<OcspAnswer, Refusal> {
        let failed = |error: &dyn std::error::Error| {
            tracing::error!(%error, "no OCSP response");
            Refusal::InternalError
        };
        // The database, not a list or cache: what another process revoked counts as well.
        let status = self.ocsp_status(kind, &request.serial_hex()).await;
        // RFC 5019, section 2.2.3: a responder says nothing of certificates that it does not know.
        let revoked = status
            .map_err(|error| failed(&error))?
            .ok_or(Refusal::Unauthorized)?;
        let ocsp = &self.inner.ocsp;
        let key = (kind, request.identifier().map_err(|e| failed(&e))?);
        let fresh =
            |kept: &&Kept| kept.revoked == revoked && kept.signed_at <= now && now < kept.renew_at;
        let lock = || ocsp.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(&key).filter(fresh) {
            return Ok(kept.answer.clone());
        }
        self.inner.config.clock.check(now).map_err(|e| failed(&e))?;
        let signer = {
            let signers = ocsp.signers.read().unwrap_or_else(PoisonError::into_inner);
            signers.get(&kind).cloned()
        };
        let signer = signer.ok_or(Refusal::InternalError)?;
        let lifetime = self.inner.config.lifetimes.ocsp_response;
        let next_update = now.saturating_add(lifetime).min(signer.not_after());
        let der = signer
            .respond(request, revoked, now, next_update)
            .map_err(|e| failed(&e))?;
        let answer = OcspAnswer {
            der: der.into(),
            next_update,
        };
        let kept = Kept {
            answer: answer.clone(),
            renew_at: now + (next_update - now) / 2,
            signed_at: now,
            revoked,
        };
        lock().insert(key, kept);
        Ok(answer)
    }

    /// Whether a certificate was issued, and whether and since when it is revoked.
    async fn ocsp_status(
        &self,
        kind: CaKind,
        serial: &str,
    ) -> Result<Option<Option<Revocation>>, RegistryError> {
        let row: Option<(Option<i64>, Option<String>)> = sqlx::query_as(
            "SELECT r.at, r.reason FROM issued i
             LEFT JOIN revoked r ON r.authority = i.authority AND r.serial = i.serial
             WHERE i.authority = ? AND i.serial = ?",
        )
        .bind(kind.name())
        .bind(serial)
        // Strangers ask: not with the connections that devices wait for.
        .fetch_optional(self.inner.people.read())
        .await?;
        let Some((at, reason)) = row else {
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
        at.zip(reason).map(revocation).transpose().map(Some)
    }
}
