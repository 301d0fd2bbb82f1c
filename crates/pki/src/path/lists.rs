//! Revocation lists, taken only from signers whose own certificates are valid.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::certificate::ParsedCertificate;
use super::error::PathError;
use super::policy::{AuthorityKinds, PathPolicy, RevocationPolicy};
use super::purpose::Purpose;
use super::revocation::PathRecord;
use super::{Known, TrustStore, validation};
use crate::cert::MAX_CHAIN_LEN;
use crate::crl::{self, CrlError, VerifiedCrl};
use crate::name::canonical::CanonicalName;
use crate::name::shown;

impl TrustStore {
    /// Verifies a CRL of one of the known authorities and takes it into the status cache.
    ///
    /// A list of an authority that is refused itself (revoked, expired) is verified, and speaks for nobody:
    /// the cache stays as it is, as does every path through that authority. A site whose authority was
    /// revoked goes on with the lists of the others.
    ///
    /// # Errors
    /// [`CrlError`], one variant per reason; the cache is unchanged then, except after
    /// [`CrlError::Full`].
    pub fn accept_crl(&self, der: &[u8], now: OffsetDateTime) -> Result<VerifiedCrl, CrlError> {
        self.accept_crl_of(der, &[], now)
    }

    /// As [`Self::accept_crl`], for the process that issues the list: revocations are recorded, holds are not. The issuer reads
    /// holds from its database, where they end at once, also while no list can be made.
    ///
    /// # Errors
    /// As [`Self::accept_crl`].
    pub fn accept_own_crl(&self, der: &[u8], now: OffsetDateTime) -> Result<VerifiedCrl, CrlError> {
        self.accept_list(der, &[], VerifiedCrl::without_holds, now)
    }

    /// As [`Self::accept_crl`], for an authority that has a key of its own for lists: `signers` are
    /// certificates that may hold it.
    ///
    /// The signer's certificate must be valid itself: a path to an anchor, in date, not revoked, with the
    /// key usage for signing CRLs. If it is revoked later, the list counts no longer.
    ///
    /// # Errors
    /// [`CrlError`]; the cache is unchanged then, except after [`CrlError::Full`].
    pub fn accept_crl_of(
        &self,
        der: &[u8],
        signers: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<VerifiedCrl, CrlError> {
        self.accept_list(der, signers, |verified| verified, now)
    }

    /// Verifies a list and records what `recorded` leaves of it.
    fn accept_list(
        &self,
        der: &[u8],
        signers: &[CertificateDer<'_>],
        recorded: fn(VerifiedCrl) -> VerifiedCrl,
        now: OffsetDateTime,
    ) -> Result<VerifiedCrl, CrlError> {
        let parsed = crl::parse(der)?;
        let issuer = &parsed.tbs_cert_list.issuer;
        let mut outcome = Err(CrlError::UnknownIssuer {
            issuer: shown(issuer),
        });
        let issuer = CanonicalName::of(issuer);
        let authorities = self.known();
        let known = self.inner.roots.iter().chain(&authorities.intermediates);
        let given: Vec<_> = signers
            .iter()
            .take(MAX_CHAIN_LEN)
            .filter_map(|der| ParsedCertificate::parse(der).ok().map(Arc::new))
            .collect();
        let known = known.map(|signer| (signer, true));
        let candidates = known.chain(given.iter().map(|signer| (signer, false)));
        let mut of_refused = None;
        // Two authorities may share a name while one replaces the other; the key decides.
        for (signer, is_known) in candidates.filter(|(signer, _)| signer.subject == issuer) {
            let verified = match crl::verify_parsed(&parsed, &signer.certificate, now) {
                Ok(verified) => verified,
                Err(error) => {
                    outcome = Err(error);
                    continue;
                }
            };
            match self.crl_signer(signer, &given, &authorities, now) {
                Ok(record) => {
                    let verified = recorded(VerifiedCrl {
                        signer: Some(record.into_signer()),
                        ..verified
                    });
                    self.inner.status.apply(&verified)?;
                    return Ok(verified);
                }
                Err(_) if is_known => of_refused = Some(verified),
                Err(error) => outcome = Err(CrlError::Signer(Box::new(error))),
            }
        }
        of_refused.map_or(outcome, Ok)
    }

    /// The path of somebody who signed a CRL.
    fn crl_signer(
        &self,
        signer: &Arc<ParsedCertificate>,
        given: &[Arc<ParsedCertificate>],
        known: &Known,
        now: OffsetDateTime,
    ) -> Result<PathRecord, PathError> {
        if self
            .inner
            .roots
            .iter()
            .any(|root| root.fingerprint == signer.fingerprint)
        {
            validation::check_dates(signer, now)?;
            return Ok(PathRecord::of(std::slice::from_ref(signer)));
        }
        let policy = PathPolicy::new(Purpose::CrlSigner).with_authority(AuthorityKinds::Any);
        let chain = self.find(signer, given, known, &policy, now)?;
        chain
            .record
            .check(&self.inner.status, RevocationPolicy::Known, now)?;
        Ok(chain.record)
    }
}
