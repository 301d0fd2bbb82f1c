//! Revocation: the site's lists, fetched on contact, kept over restarts, and asked before a receipt
//! ends a block's life.
//!
//! A camera that cannot know whether a certificate was revoked goes on uploading, for blocks are
//! sealed, but accepts no receipt: it keeps its pictures and says so. A list is never replaced by an
//! older one, so that whoever stole the server's key cannot hide a revocation that the camera has
//! seen; for one that it has not seen yet, the lists' own validity is the bound.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evidence::digest::Sha256Digest;
use http::{Method, Request, StatusCode};
use pki::crl::{self, CrlError, RevocationReason};
use pki::ocsp::{self, CertStatus};
use pki::path::{PathError, Purpose, TrustStore};
use pki::status::{IssuerId, Revocation as Revoked};
use pki::{cert, file};
use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use time::OffsetDateTime;
use x509_cert::der::Encode as _;

use crate::transport::{Connection, TransportError, body};
use pki::name::shown;

/// Path of the site's lists.
const PATH: &str = "/intake/v1/revocation";
const SCHEMA: &str = "cordon.revocation/1";
/// Lists are fetched again on a connection that lives longer, and OCSP responses are looked at again: what a
/// revocation takes at most to reach a camera that is in contact.
const FRESH: Duration = Duration::from_secs(60);
/// Most OCSP responses in an answer: about the server and the signer of receipts.
const MAX_RESPONSES: usize = 4;
/// Certificates of which it is remembered that the responses do not call them revoked.
const MAX_UNREVOKED: usize = 16;
/// Most lists, and issuing authorities, in an answer: a root and the generations of the services authority.
const MAX_LISTS: usize = 8;
const EXTENSION: &str = "crl";

#[derive(Deserialize)]
struct Lists {
    schema: String,
    /// In DER, base64.
    lists: Vec<String>,
    /// Certificates of their issuers, likewise.
    #[serde(default)]
    authorities: Vec<String>,
    /// OCSP responses about the certificates of the server and of receipts, likewise.
    #[serde(default)]
    ocsp: Vec<String>,
}

/// Why nothing can be known of revocations.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RevocationError {
    #[error("cannot fetch revocation lists")]
    Transport(#[from] TransportError),
    #[error("centre gives no revocation lists: {0}")]
    Answer(StatusCode),
    #[error("centre's revocation lists are unusable: {0}")]
    Malformed(&'static str),
    #[error("revocation list refused")]
    List(#[from] CrlError),
    #[error("revocation lists are missing or stale")]
    Unknown(#[source] PathError),
}

/// The newest OCSP responses. What they say can only refuse: whoever is revoked leaves them away.
#[derive(Default)]
struct Responses {
    der: Vec<Vec<u8>>,
    /// Hashes of the certificates that these responses did not call revoked when they were last looked at: the
    /// server's and the receipts' signer's.
    unrevoked: Vec<(Sha256Digest, OffsetDateTime)>,
}

impl Responses {
    /// Tells whether they were looked at for it lately. A response that the clock or the authorities of then kept from counting may count
    /// by now.
    fn are_silent_about(&self, certificate: &Sha256Digest, now: OffsetDateTime) -> bool {
        let lately = |at: OffsetDateTime| (now - at).abs() < FRESH;
        let mut unrevoked = self.unrevoked.iter();
        unrevoked.any(|(one, at)| one == certificate && lately(*at))
    }

    fn note_silence(&mut self, certificate: Sha256Digest, now: OffsetDateTime) {
        self.unrevoked.retain(|(one, _)| *one != certificate);
        if self.unrevoked.len() < MAX_UNREVOKED {
            self.unrevoked.push((certificate, now));
        }
    }
}

/// The lists of one camera.
pub(crate) struct Revocation {
    folder: PathBuf,
    responses: Mutex<Responses>,
    /// State that was last reported, so that each is reported once.
    reported: Mutex<Option<String>>,
}

impl Revocation {
    /// Takes over the lists that an earlier run kept in `folder`, also those that are stale by now:
    /// what they revoke stays revoked.
    pub(crate) fn open(trust: &TrustStore, folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        for item in std::fs::read_dir(folder)? {
            let path = item?.path();
            if path.extension().is_some_and(|e| e == EXTENSION) {
                let der = std::fs::read(&path)?;
                if let Err(error) = accept_as_of_its_date(trust, &der) {
                    tracing::warn!(path = %path.display(), %error, "stored revocation list not used");
                }
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            responses: Mutex::default(),
            reported: Mutex::default(),
        })
    }

    /// Whether the lists were fetched over `connection` lately, by both clocks: after a jump of the
    /// wall clock they may be stale.
    pub(crate) fn is_fresh(connection: &Connection, now: OffsetDateTime) -> bool {
        connection
            .lists_at
            .is_some_and(|(at, wall)| at.elapsed() < FRESH && (now - wall).abs() < FRESH)
    }

    /// Fetches the lists over `connection` unless they are fresh, and asks about its server; `strict`
    /// refuses where a list is missing or stale.
    ///
    /// # Errors
    /// `Err` with [`TransportError::Revoked`] if the server must not be talked to.
    pub(crate) async fn follow(
        &self,
        strict: &TrustStore,
        connection: &mut Connection,
        now: OffsetDateTime,
    ) -> Result<Result<(), RevocationError>, TransportError> {
        let fresh = Self::is_fresh(connection, now);
        let fetched = if fresh {
            Ok(())
        } else {
            connection.validated = None;
            self.fetch(strict, connection, now).await
        };
        if fetched.is_ok() && !fresh {
            connection.lists_at = Some((Instant::now(), now));
        }
        if let Err(e) = self.check_responses(strict, &connection.peer, now) {
            return Err(TransportError::Revoked(e));
        }
        let checked = match &connection.validated {
            Some(validated) => strict.recheck(validated, now),
            None => strict
                .validate_chain(&connection.peer, Purpose::Server, now)
                .map(|validated| connection.validated = Some(validated)),
        };
        match checked {
            Ok(()) => Ok(fetched),
            Err(e @ (PathError::CrlMissing { .. } | PathError::CrlStale { .. })) => {
                Ok(fetched.and(Err(RevocationError::Unknown(e))))
            }
            Err(e) => Err(TransportError::Revoked(e)),
        }
    }

    async fn fetch(
        &self,
        strict: &TrustStore,
        connection: &mut Connection,
        now: OffsetDateTime,
    ) -> Result<(), RevocationError> {
        let request = Request::builder().method(Method::GET).uri(PATH);
        let request = request.body(body::empty());
        let request = request.map_err(|_| RevocationError::Malformed("request"))?;
        let answer = connection.request(request, 0).await?;
        if answer.status() != StatusCode::OK {
            return Err(RevocationError::Answer(answer.status()));
        }
        let lists: Lists = serde_json::from_slice(answer.body())
            .map_err(|_| RevocationError::Malformed("not of the schema"))?;
        // Refused as a whole: what is cut off might be just the list that revokes somebody, or its issuer.
        let most = lists.lists.len().max(lists.authorities.len());
        if lists.schema != SCHEMA || most > MAX_LISTS || lists.ocsp.len() > MAX_RESPONSES {
            return Err(RevocationError::Malformed("other schema, or too many"));
        }
        // An authority may have taken over since the last bundle. Without its list the next bundle, which is signed under it,
        // would never be taken. Its own path to the root is validated.
        let signers = lists.authorities.iter().map(|text| STANDARD.decode(text));
        let signers: Result<Vec<_>, _> = signers.collect();
        let signers = signers.map_err(|_| RevocationError::Malformed("not base64"))?;
        let signers: Vec<CertificateDer<'_>> = signers.into_iter().map(Into::into).collect();
        for list in lists.lists {
            let der = STANDARD
                .decode(list)
                .map_err(|_| RevocationError::Malformed("not base64"))?;
            match strict.accept_crl_of(&der, &signers, now) {
                Ok(list) if list.is_whole() => self.keep(&der),
                // It counts while this process runs. Kept in the place of the complete list, it would hide at the next start what
                // that one revokes.
                Ok(_) => {}
                // Of an authority that this camera has nothing to do with.
                Err(CrlError::UnknownIssuer { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let responses = lists.ocsp.iter().map(|text| STANDARD.decode(text));
        let responses: Result<Vec<_>, _> = responses.collect();
        let responses = responses.map_err(|_| RevocationError::Malformed("not base64"))?;
        let mut known = self.responses();
        // The same ones say the same.
        if known.der != responses {
            *known = Responses {
                der: responses,
                unrevoked: Vec::new(),
            };
        }
        Ok(())
    }

    fn responses(&self) -> MutexGuard<'_, Responses> {
        self.responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a certificate that an OCSP response calls revoked, from then on for as long as this process
    /// runs: afterwards the lists say so.
    fn check_responses(
        &self,
        strict: &TrustStore,
        chain: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        let Some(der) = chain.first() else {
            return Ok(());
        };
        let fingerprint = Sha256Digest::of(der);
        if self.responses().are_silent_about(&fingerprint, now) {
            return Ok(());
        }
        let Ok(leaf) = cert::from_der(der) else {
            return Ok(());
        };
        // Not those that the peer sent: their signatures are not verified here.
        let known = strict.intermediates();
        let issuers: Vec<_> = known.iter().collect();
        let responses = self.responses().der.clone();
        let status = ocsp::look_up(&responses, &leaf, &issuers, strict.status(), now);
        let Some(CertStatus::Revoked(at)) = status else {
            let mut asked = self.responses();
            // Unless others came meanwhile.
            if asked.der == responses {
                asked.note_silence(fingerprint, now);
            }
            return Ok(());
        };
        let tbs = &leaf.tbs_certificate;
        let revocation = Revoked {
            at,
            reason: RevocationReason::Unspecified,
        };
        let issuer = IssuerId::of(&tbs.issuer);
        let serial = hex::decode(cert::serial_hex(&leaf)).unwrap_or_default();
        if let Err(error) = strict.status().revoke(issuer, &serial, revocation) {
            tracing::warn!(%error, "a revocation is not kept");
        }
        Err(PathError::RevokedByOcsp {
            subject: shown(&tbs.subject),
            at,
        })
    }

    /// Keeps a list over restarts. Failing to is no reason to stop: the next contact brings it again.
    fn keep(&self, der: &[u8]) {
        let Ok(parsed) = crl::parse(der) else { return };
        let issuer = parsed.tbs_cert_list.issuer.to_der().unwrap_or_default();
        let name = format!("{}.{EXTENSION}", Sha256Digest::of(&issuer));
        let path = self.folder.join(name);
        // Most contacts bring the list that is here, and flash wears out.
        if std::fs::read(&path).is_ok_and(|kept| kept == der) {
            return;
        }
        if let Err(error) = file::write_atomic(&path, der, 0o600) {
            tracing::warn!(%error, "revocation list not kept");
        }
    }

    /// Whether the signer of a receipt was a service when it signed, and is known not to be revoked
    /// now.
    ///
    /// Its own time does not count for revocation: whoever stole a key writes the time that suits.
    pub(crate) fn signer(
        &self,
        strict: &TrustStore,
        chain: &[CertificateDer<'_>],
        signed_at: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<(), PathError> {
        let purpose = Purpose::ServiceSigner;
        let validated = strict.validate_ignoring_revocation(chain, purpose, signed_at)?;
        self.check_responses(strict, chain, now)?;
        strict.check_revoked(&validated, now)
    }

    /// Whether this state is news.
    pub(crate) fn is_news(&self, state: Option<&str>) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.as_deref() == state {
            return false;
        }
        *reported = state.map(str::to_owned);
        true
    }
}

/// Accepts a list at the time it was issued, so that its age does not matter.
fn accept_as_of_its_date(trust: &TrustStore, der: &[u8]) -> Result<(), CrlError> {
    let parsed = crl::parse(der)?;
    let issued = parsed.tbs_cert_list.this_update.to_system_time();
    trust
        .accept_crl(der, OffsetDateTime::from(issued))
        .map(drop)
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    #[test]
    fn what_responses_did_not_say_is_believed_for_a_minute_by_any_clock() {
        let (now, server) = (OffsetDateTime::UNIX_EPOCH, Sha256Digest::of(b"server"));
        let mut responses = Responses::default();
        responses.note_silence(server, now);
        let silent = |seconds: i64| {
            let then = now + Duration::seconds(seconds);
            responses.are_silent_about(&server, then)
        };
        assert!(silent(0) && silent(59) && silent(-59));
        assert!(!silent(60) && !silent(-60) && !silent(1_000_000));
        assert!(!responses.are_silent_about(&Sha256Digest::of(b"signer"), now));
        for other in 0..=u8::try_from(MAX_UNREVOKED).unwrap() {
            responses.note_silence(Sha256Digest::of(&[other]), now);
        }
        responses.note_silence(server, now + Duration::HOUR);
        assert_eq!(responses.unrevoked.len(), MAX_UNREVOKED);
    }
}
