//! What an OCSP responder said of a certificate (RFC 6960), as the peer hands it over in IKE (RFC 4806).
//!
//! A response counts if the certificate's issuer signed it, or somebody whom the issuer certified for just
//! that, and if it is current. Others count as if they had not come: the peer chose what to send.

use std::time::Duration;

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5280::ID_KP_OCSP_SIGNING;
use const_oid::db::rfc5912::{ID_CE_EXT_KEY_USAGE, ID_SHA_1, ID_SHA_256};
use const_oid::db::rfc6960::ID_PKIX_OCSP_BASIC;
use der::{Decode as _, Encode as _};
use serde::Deserialize;
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::ext::pkix::ExtendedKeyUsage;
use x509_ocsp::{BasicOcspResponse, CertId, CertStatus, OcspResponse, OcspResponseStatus};

use super::trust::is_issued;

/// Responses that are looked at.
const RESPONSES: usize = 8;
/// How far the responder's clock may be ahead of ours.
const AHEAD: Duration = Duration::from_secs(300);
/// How long a response is current that does not say it (RFC 6960 §4.2.2.1: newer is always to be had).
const UNLIMITED: Duration = Duration::from_secs(3600);

/// What is asked of OCSP.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum OcspPolicy {
    /// Nothing.
    #[default]
    Off,
    /// Peers are asked for responses; one that says "revoked" counts, none is no harm.
    IfGiven,
    /// Who shows no current response for its own certificate is refused.
    Required,
}

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Not revoked.
    Good,
    /// Revoked, since when.
    Revoked(OffsetDateTime),
}

/// What the usable ones of `responses` (DER) say of `certificate`: "revoked" if one does. `issuers` are
/// those who may have issued it.
pub(super) fn look_up(
    responses: &[Vec<u8>],
    certificate: &Certificate,
    issuers: &[&Certificate],
    now: OffsetDateTime,
) -> Option<Said> {
    let mut outcome = None;
    for response in responses.iter().take(RESPONSES) {
        let Some(response) = basic(response) else {
            continue;
        };
        for issuer in issuers {
            match says(&response, certificate, issuer, now) {
                Some(Said::Revoked(at)) => return Some(Said::Revoked(at)),
                Some(Said::Good) => outcome = Some(Said::Good),
                None => {}
            }
        }
    }
    outcome
}

fn basic(der: &[u8]) -> Option<BasicOcspResponse> {
    let response = OcspResponse::from_der(der).ok()?;
    let bytes = response.response_bytes?;
    let right = response.response_status == OcspResponseStatus::Successful
        && bytes.response_type == ID_PKIX_OCSP_BASIC;
    right.then(|| BasicOcspResponse::from_der(bytes.response.as_bytes()).ok())?
}

fn says(
    response: &BasicOcspResponse,
    certificate: &Certificate,
    issuer: &Certificate,
    now: OffsetDateTime,
) -> Option<Said> {
    let serial = &certificate.tbs_certificate.serial_number;
    let data = &response.tbs_response_data;
    let about = data
        .responses
        .iter()
        .find(|one| one.cert_id.serial_number == *serial && names(&one.cert_id, issuer));
    let about = about?;
    let from = instant(about.this_update.0.to_unix_duration());
    let until = match about.next_update {
        Some(until) => instant(until.0.to_unix_duration()),
        None => from + UNLIMITED,
    };
    if from > now + AHEAD || now > until || !is_signed(response, issuer, now) {
        return None;
    }
    match &about.cert_status {
        CertStatus::Good(_) => Some(Said::Good),
        CertStatus::Revoked(info) => {
            let at = instant(info.revocation_time.0.to_unix_duration());
            Some(Said::Revoked(at))
        }
        CertStatus::Unknown(_) => None,
    }
}

/// Whether an identifier is of a certificate by this issuer.
fn names(id: &CertId, issuer: &Certificate) -> bool {
    let algorithm: &'static Algorithm = match id.hash_algorithm.oid {
        ID_SHA_1 => &SHA1_FOR_LEGACY_USE_ONLY,
        ID_SHA_256 => &SHA256,
        _ => return false,
    };
    let tbs = &issuer.tbs_certificate;
    let Ok(name) = tbs.subject.to_der() else {
        return false;
    };
    let key = tbs.subject_public_key_info.subject_public_key.raw_bytes();
    digest(algorithm, &name).as_ref() == id.issuer_name_hash.as_bytes()
        && digest(algorithm, key).as_ref() == id.issuer_key_hash.as_bytes()
}

/// Whether the issuer signed it, or somebody with its certificate for that (RFC 6960 §4.2.2.2).
fn is_signed(response: &BasicOcspResponse, issuer: &Certificate, now: OffsetDateTime) -> bool {
    let by = |signer: &Certificate| {
        let data = response.tbs_response_data.to_der().ok()?;
        let spki = signer
            .tbs_certificate
            .subject_public_key_info
            .to_der()
            .ok()?;
        let algorithm = &response.signature_algorithm;
        pki::key::verify(&spki, algorithm, &data, response.signature.as_bytes()?).ok()
    };
    let delegates = response.certs.iter().flatten().take(RESPONSES);
    let mut delegates = delegates.filter(|delegate| is_delegate(delegate, issuer, now));
    by(issuer).is_some() || delegates.any(|delegate| by(delegate).is_some())
}

fn is_delegate(delegate: &Certificate, issuer: &Certificate, now: OffsetDateTime) -> bool {
    let validity = &delegate.tbs_certificate.validity;
    let current = instant(validity.not_before.to_unix_duration()) <= now
        && now <= instant(validity.not_after.to_unix_duration());
    current && is_for(delegate, ID_KP_OCSP_SIGNING) && is_issued(delegate, issuer)
}

fn is_for(certificate: &Certificate, purpose: ObjectIdentifier) -> bool {
    let extensions = certificate.tbs_certificate.extensions.iter().flatten();
    let mut usage = extensions.filter(|extension| extension.extn_id == ID_CE_EXT_KEY_USAGE);
    usage.any(|extension| {
        ExtendedKeyUsage::from_der(extension.extn_value.as_bytes())
            .is_ok_and(|usage| usage.0.contains(&purpose))
    })
}

fn instant(since_1970: Duration) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + since_1970
}

#[cfg(test)]
mod tests;
