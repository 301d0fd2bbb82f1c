//! What an OCSP responder said of a certificate (RFC 6960), as the peer hands it over in IKE (RFC 4806) or
//! as we were told when we asked.
//!
//! A response counts if the certificate's issuer signed it, or somebody whom the issuer certified for just
//! that, and if it is current. Others count as if they had not come: the peer chose what to send, and
//! whoever is on the way to a responder can answer in its place.

use std::time::Duration;

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use const_oid::ObjectIdentifier;
use const_oid::db::rfc5280::ID_KP_OCSP_SIGNING;
use const_oid::db::rfc5912::{ID_CE_EXT_KEY_USAGE, ID_SHA_1, ID_SHA_256};
use const_oid::db::rfc6960::ID_PKIX_OCSP_BASIC;
use der::asn1::{Null, OctetString};
use der::{Decode as _, Encode as _};
use serde::Deserialize;
use spki::AlgorithmIdentifierOwned;
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::ext::pkix::ExtendedKeyUsage;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus, OcspRequest, OcspResponse, OcspResponseStatus, Request,
    TbsRequest, Version,
};

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
    /// Whoever's own certificate no current response speaks for is refused.
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

/// Why a response says nothing of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Useless {
    /// Not what it should be.
    #[error("the answer is no OCSP response")]
    Unreadable,
    /// The responder's own words for that it does not answer (RFC 6960 §2.3).
    #[error("it answers \"{0}\"")]
    Refusal(&'static str),
    /// It is not about this certificate.
    #[error("the answer is about another certificate")]
    Another,
    /// It is too old, or of the future.
    #[error("the answer is not current")]
    NotCurrent,
    /// By nobody who may say it.
    #[error("nobody who may has signed the answer")]
    Unsigned,
    /// It does not know the certificate.
    #[error("it does not know the certificate")]
    Unknown,
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
        let Ok(response) = basic(response) else {
            continue;
        };
        for issuer in issuers {
            match says(&response, certificate, issuer, now) {
                Ok((Said::Revoked(at), _)) => return Some(Said::Revoked(at)),
                Ok((Said::Good, _)) => outcome = Some(Said::Good),
                Err(_) => {}
            }
        }
    }
    outcome
}

/// A certificate about which a responder can be asked.
#[derive(Clone, Debug)]
pub(super) struct About {
    certificate: Certificate,
    issuer: Certificate,
    request: Vec<u8>,
}

impl About {
    /// With the one of `issuers` who issued it; none if nobody of them did.
    pub(super) fn new(certificate: &Certificate, issuers: &[&Certificate]) -> Option<Self> {
        let issuer = issuers.iter().find(|one| is_issued(certificate, one))?;
        Some(Self {
            certificate: certificate.clone(),
            issuer: (*issuer).clone(),
            request: request(certificate, issuer).ok()?,
        })
    }

    /// The question (DER). It names the certificate by issuer and serial number, and nothing else is in it.
    pub(super) fn request(&self) -> &[u8] {
        &self.request
    }

    /// What an answer (DER) says, and until when.
    ///
    /// # Errors
    /// [`Useless`].
    pub(super) fn says(
        &self,
        answer: &[u8],
        now: OffsetDateTime,
    ) -> Result<(Said, OffsetDateTime), Useless> {
        says(&basic(answer)?, &self.certificate, &self.issuer, now)
    }
}

/// One certificate, SHA-1, no extensions: what every responder takes, also those that only hand out what
/// they signed ahead (RFC 5019 §2.1.1). So there is no nonce: an answer is as fresh as it says itself.
fn request(certificate: &Certificate, issuer: &Certificate) -> der::Result<Vec<u8>> {
    let tbs = &issuer.tbs_certificate;
    let hash = |data: &[u8]| {
        let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, data);
        OctetString::new(sum.as_ref())
    };
    let key = tbs.subject_public_key_info.subject_public_key.raw_bytes();
    let req_cert = CertId {
        hash_algorithm: AlgorithmIdentifierOwned {
            oid: ID_SHA_1,
            parameters: Some(Null.into()),
        },
        issuer_name_hash: hash(&tbs.subject.to_der()?)?,
        issuer_key_hash: hash(key)?,
        serial_number: certificate.tbs_certificate.serial_number.clone(),
    };
    let tbs_request = TbsRequest {
        version: Version::V1,
        requestor_name: None,
        request_list: vec![Request {
            req_cert,
            single_request_extensions: None,
        }],
        request_extensions: None,
    };
    let request = OcspRequest {
        tbs_request,
        optional_signature: None,
    };
    request.to_der()
}

fn basic(der: &[u8]) -> Result<BasicOcspResponse, Useless> {
    let response = OcspResponse::from_der(der).map_err(|_| Useless::Unreadable)?;
    let refusal = match response.response_status {
        OcspResponseStatus::Successful => None,
        OcspResponseStatus::MalformedRequest => Some("malformedRequest"),
        OcspResponseStatus::InternalError => Some("internalError"),
        OcspResponseStatus::TryLater => Some("tryLater"),
        OcspResponseStatus::SigRequired => Some("sigRequired"),
        OcspResponseStatus::Unauthorized => Some("unauthorized"),
    };
    if let Some(refusal) = refusal {
        return Err(Useless::Refusal(refusal));
    }
    let bytes = response.response_bytes.ok_or(Useless::Unreadable)?;
    if bytes.response_type != ID_PKIX_OCSP_BASIC {
        return Err(Useless::Unreadable);
    }
    BasicOcspResponse::from_der(bytes.response.as_bytes()).map_err(|_| Useless::Unreadable)
}

fn says(
    response: &BasicOcspResponse,
    certificate: &Certificate,
    issuer: &Certificate,
    now: OffsetDateTime,
) -> Result<(Said, OffsetDateTime), Useless> {
    let serial = &certificate.tbs_certificate.serial_number;
    let data = &response.tbs_response_data;
    let about = data
        .responses
        .iter()
        .find(|one| one.cert_id.serial_number == *serial && names(&one.cert_id, issuer));
    let about = about.ok_or(Useless::Another)?;
    let from = instant(about.this_update.0.to_unix_duration());
    // First of all: an hour after the last year that can be written is no time.
    if from > now + AHEAD {
        return Err(Useless::NotCurrent);
    }
    let until = match about.next_update {
        Some(until) => instant(until.0.to_unix_duration()),
        None => from + UNLIMITED,
    };
    if now > until {
        return Err(Useless::NotCurrent);
    }
    if !is_signed(response, issuer, now) {
        return Err(Useless::Unsigned);
    }
    match &about.cert_status {
        CertStatus::Good(_) => Ok((Said::Good, until)),
        CertStatus::Revoked(info) => {
            let at = instant(info.revocation_time.0.to_unix_duration());
            Ok((Said::Revoked(at), until))
        }
        CertStatus::Unknown(_) => Err(Useless::Unknown),
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
pub(super) mod tests;
