//! Experimental: an authority of its own that signs with ML-DSA-65 (FIPS 204, RFC 9881), and what it certifies.
//!
//! Nothing else here takes such a key or signature: no path is validated with one, no site certifies or accepts one, and neither
//! TLS nor CMS knows of them. What is made here, other implementations verify.

mod authority;

use der::Encode as _;
use spki::SubjectPublicKeyInfoOwned;
use x509_cert::certificate::Certificate;

pub use self::authority::{Authority, AuthorityError, Whom};
use crate::csr::{self, CsrError};
pub use crate::key::ml_dsa::{ID_ML_DSA_65, MlDsaKey, is_ml_dsa_65, verify};
use crate::key::{KeyError, VerifyError};
use crate::name::Subject;

/// Verifies that `issuer` signed `certificate`, and is called as that says.
///
/// # Errors
/// As [`verify`].
pub fn verify_issued(certificate: &Certificate, issuer: &Certificate) -> Result<(), VerifyError> {
    let (tbs, issuer) = (&certificate.tbs_certificate, &issuer.tbs_certificate);
    let message = tbs.to_der().map_err(|_| VerifyError::Mismatch)?;
    let signature = certificate.signature.as_bytes().unwrap_or_default();
    // RFC 5280, section 4.1.1.2: what is signed names the same algorithm.
    if tbs.issuer != issuer.subject || tbs.signature != certificate.signature_algorithm {
        return Err(VerifyError::Mismatch);
    }
    let spki = &issuer.subject_public_key_info;
    verify(spki, &certificate.signature_algorithm, &message, signature)
}

/// Parses a certification request (PKCS#10, DER) for a key of ML-DSA-65 and verifies its proof of possession; gives the key and
/// the subject that it names.
///
/// # Errors
/// [`CsrError`], one variant per reason.
pub fn parse_and_verify_csr(der: &[u8]) -> Result<(SubjectPublicKeyInfoOwned, Subject), CsrError> {
    let request = csr::Signed::parse(der)?;
    let spki = request.spki().clone();
    if !is_ml_dsa_65(&spki) {
        let oid = spki.algorithm.oid;
        return Err(CsrError::Key(KeyError::Unsupported { oid }));
    }
    request.verify(|algorithm, message, signature| verify(&spki, algorithm, message, signature))?;
    Ok((spki.clone(), request.subject()?))
}

#[cfg(test)]
mod tests;
