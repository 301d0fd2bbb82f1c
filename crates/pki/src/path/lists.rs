//! Revocation lists, taken only from signers whose own certificates are valid.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::{
    AuthorityKinds, ParsedCertificate, PathError, PathPolicy, PathRecord, Purpose,
    RevocationPolicy, TrustStore, validation,
};
use crate::cert::MAX_CHAIN_LEN;
use crate::crl::{self, CrlError, VerifiedCrl};
use crate::name::canonical::CanonicalName;

impl TrustStore {
    /// Verifies a CRL of one of the known authorities and takes it into the status cache.
    ///
    /// # Errors
    /// [`CrlError`], one variant per reason; the cache is unchanged then, except after
    /// [`CrlError::Full`].
    pub fn accept_crl(&self, der: &[u8], now: OffsetDateTime) -> Result<VerifiedCrl, CrlError> {
        self.accept_crl_of(der, &[], now)
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
        let parsed = crl::parse(der)?;
        let issuer = &parsed.tbs_cert_list.issuer;
        let mut outcome = Err(CrlError::UnknownIssuer {
            issuer: issuer.to_string(),
        });
        let issuer = CanonicalName::of(issuer);
        let known = self.inner.roots.iter().chain(&self.inner.intermediates);
        let given: Vec<_> = signers
            .iter()
            .take(MAX_CHAIN_LEN)
            .filter_map(|der| ParsedCertificate::parse(der).ok().map(Arc::new))
            .collect();
        // Two authorities may share a name while one replaces the other; the key decides.
        for signer in known.chain(&given) {
            if signer.subject != issuer {
                continue;
            }
            outcome = crl::verify_parsed(&parsed, &signer.certificate, now).and_then(|verified| {
                let record = self.crl_signer(signer, &given, now);
                let record = record.map_err(|e| CrlError::Signer(Box::new(e)))?;
                Ok(VerifiedCrl {
                    signer: Some(record.into_signer()),
                    ..verified
                })
            });
            if outcome.is_ok() {
                break;
            }
        }
        let verified = outcome?;
        self.inner.status.apply(&verified)?;
        Ok(verified)
    }

    /// The path of somebody who signed a CRL.
    fn crl_signer(
        &self,
        signer: &Arc<ParsedCertificate>,
        given: &[Arc<ParsedCertificate>],
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
        let chain = self.find(signer, given, &policy, now)?;
        chain
            .record
            .check(&self.inner.status, RevocationPolicy::Known, now)?;
        Ok(chain.record)
    }
}
