//! What OCSP responders say of certificates (RFC 6960), and asking them ([`client`]).
//!
//! A response counts if the certificate's issuer signed it, or somebody whom the issuer certified for just
//! that and who is not known to be revoked, and if it is current. Others leave the status undetermined, as
//! if they had not come: a peer chooses what it hands over, and whoever is on the way to a responder can
//! answer in its place.

pub mod client;
pub mod responder;

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use const_oid::db::rfc5280::ID_KP_OCSP_SIGNING;
use const_oid::db::rfc5912::{ID_SHA_1, ID_SHA_256};
use const_oid::db::rfc6960::ID_PKIX_OCSP_BASIC;
use der::asn1::{Null, OctetString};
use der::{Decode as _, Encode as _};
use spki::AlgorithmIdentifierOwned;
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus as WireStatus, OcspRequest, OcspResponse,
    OcspResponseStatus, Request, TbsRequest, Version,
};

use crate::path::certificate::{
    ParsedCertificate, contents as signature_algorithm, verify as verify_signature,
};
pub use crate::path::policy::OcspPolicy;
use crate::status::StatusCache;

/// Responses that are looked at.
const RESPONSES: usize = 8;
/// How far the responder's clock may be ahead of ours.
pub const MAX_AHEAD: Duration = Duration::from_secs(300);
/// How long a response is current that does not say it (RFC 6960 §4.2.2.1: newer is always to be had).
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);

/// Status of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertStatus {
    Good,
    Revoked(OffsetDateTime),
}

/// Why a response leaves the status of a certificate undetermined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undetermined {
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
    /// A critical extension that is not processed here (RFC 6960 §4.4).
    #[error("the answer has an unknown critical extension")]
    UnknownCritical,
}

/// Status of `certificate` by the usable ones of `responses` (DER): revoked if one of them says so, `None` if
/// it stays undetermined. `issuers` are those who may have issued it; `revoked` is what is known of
/// revoked certificates, responders' among them.
#[must_use]
pub fn look_up(
    responses: &[Vec<u8>],
    certificate: &Certificate,
    issuers: &[&Certificate],
    revoked: &StatusCache,
    now: OffsetDateTime,
) -> Option<CertStatus> {
    let parse = |one: &Certificate| ParsedCertificate::parse(&one.to_der().ok()?).ok();
    let issuers: Vec<Arc<ParsedCertificate>> = issuers
        .iter()
        .filter_map(|one| parse(one).map(Arc::new))
        .collect();
    look_up_parsed(responses, certificate, &issuers, revoked, now)
}

pub(crate) fn look_up_parsed(
    responses: &[Vec<u8>],
    certificate: &Certificate,
    issuers: &[Arc<ParsedCertificate>],
    revoked: &StatusCache,
    now: OffsetDateTime,
) -> Option<CertStatus> {
    let mut outcome = None;
    for response in responses.iter().take(RESPONSES) {
        let Ok(response) = basic(response) else {
            continue;
        };
        for issuer in issuers {
            match status(&response, certificate, issuer, revoked, now) {
                Ok((CertStatus::Revoked(at), _)) => return Some(CertStatus::Revoked(at)),
                Ok((CertStatus::Good, _)) => outcome = Some(CertStatus::Good),
                Err(_) => {}
            }
        }
    }
    outcome
}

/// A certificate about which a responder can be asked.
#[derive(Clone, Debug)]
pub struct Query {
    certificate: Certificate,
    issuer: Arc<ParsedCertificate>,
    revoked: StatusCache,
    request: Vec<u8>,
}

impl Query {
    /// A query about a certificate, with the one of `issuers` who issued it; none if nobody of them did.
    /// `revoked` is what is known of revoked certificates, responders' among them.
    #[must_use]
    pub fn new(
        certificate: &Certificate,
        issuers: &[&Certificate],
        revoked: &StatusCache,
    ) -> Option<Self> {
        let parse = |one: &Certificate| ParsedCertificate::parse(&one.to_der().ok()?).ok();
        let parsed = parse(certificate)?;
        let issuers = issuers.iter().filter_map(|one| parse(one));
        let issuer = issuers.into_iter().find(|one| is_issued(&parsed, one))?;
        Some(Self {
            request: request(certificate, &issuer.certificate).ok()?,
            certificate: certificate.clone(),
            issuer: Arc::new(issuer),
            revoked: revoked.clone(),
        })
    }

    /// The request (DER). It names the certificate by issuer and serial number, and nothing else is in it.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// The status by a response (DER), and until when.
    ///
    /// # Errors
    /// [`Undetermined`].
    pub fn status(
        &self,
        response: &[u8],
        now: OffsetDateTime,
    ) -> Result<(CertStatus, OffsetDateTime), Undetermined> {
        let response = basic(response)?;
        status(
            &response,
            &self.certificate,
            &self.issuer,
            &self.revoked,
            now,
        )
    }
}

/// One certificate, SHA-1, no extensions: what every responder takes, also those that only hand out what
/// they signed ahead (RFC 5019 §2.1.1). So there is no nonce: an answer is as fresh as it says itself.
fn request(certificate: &Certificate, issuer: &Certificate) -> der::Result<Vec<u8>> {
    let tbs_request = TbsRequest {
        version: Version::V1,
        requestor_name: None,
        request_list: vec![Request {
            req_cert: cert_id(certificate, issuer)?,
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

/// How requests name a certificate: by SHA-1 of issuer and key, which everybody takes.
fn cert_id(certificate: &Certificate, issuer: &Certificate) -> der::Result<CertId> {
    let tbs = &issuer.tbs_certificate;
    let hash = |data: &[u8]| {
        let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, data);
        OctetString::new(sum.as_ref())
    };
    let key = tbs.subject_public_key_info.subject_public_key.raw_bytes();
    Ok(CertId {
        hash_algorithm: AlgorithmIdentifierOwned {
            oid: ID_SHA_1,
            parameters: Some(Null.into()),
        },
        issuer_name_hash: hash(&tbs.subject.to_der()?)?,
        issuer_key_hash: hash(key)?,
        serial_number: certificate.tbs_certificate.serial_number.clone(),
    })
}

fn basic(der: &[u8]) -> Result<BasicOcspResponse, Undetermined> {
    let response = OcspResponse::from_der(der).map_err(|_| Undetermined::Unreadable)?;
    let refusal = match response.response_status {
        OcspResponseStatus::Successful => None,
        OcspResponseStatus::MalformedRequest => Some("malformedRequest"),
        OcspResponseStatus::InternalError => Some("internalError"),
        OcspResponseStatus::TryLater => Some("tryLater"),
        OcspResponseStatus::SigRequired => Some("sigRequired"),
        OcspResponseStatus::Unauthorized => Some("unauthorized"),
    };
    if let Some(refusal) = refusal {
        return Err(Undetermined::Refusal(refusal));
    }
    let bytes = response.response_bytes.ok_or(Undetermined::Unreadable)?;
    if bytes.response_type != ID_PKIX_OCSP_BASIC {
        return Err(Undetermined::Unreadable);
    }
    BasicOcspResponse::from_der(bytes.response.as_bytes()).map_err(|_| Undetermined::Unreadable)
}

fn status(
    response: &BasicOcspResponse,
    certificate: &Certificate,
    issuer: &ParsedCertificate,
    revoked: &StatusCache,
    now: OffsetDateTime,
) -> Result<(CertStatus, OffsetDateTime), Undetermined> {
    let serial = &certificate.tbs_certificate.serial_number;
    let data = &response.tbs_response_data;
    let about = data.responses.iter().find(|one| {
        one.cert_id.serial_number == *serial && names(&one.cert_id, &issuer.certificate)
    });
    let about = about.ok_or(Undetermined::Another)?;
    let from = instant(about.this_update.0.to_unix_duration());
    // First of all: an hour after the last year that can be written is no time.
    if from > now + MAX_AHEAD {
        return Err(Undetermined::NotCurrent);
    }
    let until = match about.next_update {
        Some(until) => instant(until.0.to_unix_duration()),
        None => from + DEFAULT_LIFETIME,
    };
    if now > until {
        return Err(Undetermined::NotCurrent);
    }
    let extensions = data
        .response_extensions
        .iter()
        .chain(&about.single_extensions);
    if extensions.flatten().any(|extension| extension.critical) {
        return Err(Undetermined::UnknownCritical);
    }
    if !is_signed(response, issuer, revoked, now) {
        return Err(Undetermined::Unsigned);
    }
    match &about.cert_status {
        WireStatus::Good(_) => Ok((CertStatus::Good, until)),
        WireStatus::Revoked(info) => {
            let at = instant(info.revocation_time.0.to_unix_duration());
            Ok((CertStatus::Revoked(at), until))
        }
        WireStatus::Unknown(_) => Err(Undetermined::Unknown),
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
fn is_signed(
    response: &BasicOcspResponse,
    issuer: &ParsedCertificate,
    revoked: &StatusCache,
    now: OffsetDateTime,
) -> bool {
    let by = |signer: &ParsedCertificate| {
        let data = response.tbs_response_data.to_der().ok()?;
        let algorithm = signature_algorithm(&response.signature_algorithm).ok()?;
        verify_signature(signer, &algorithm, &data, response.signature.as_bytes()?)
    };
    if by(issuer) == Some(true) {
        return true;
    }
    let delegates = response.certs.iter().flatten().take(RESPONSES);
    delegates
        .filter_map(|one| ParsedCertificate::parse(&one.to_der().ok()?).ok())
        .filter(|one| is_delegate(one, issuer, revoked, now))
        .any(|one| by(&one) == Some(true))
}

fn is_delegate(
    delegate: &ParsedCertificate,
    issuer: &ParsedCertificate,
    revoked: &StatusCache,
    now: OffsetDateTime,
) -> bool {
    let validity = &delegate.certificate.tbs_certificate.validity;
    let is_current = instant(validity.not_before.to_unix_duration()) <= now
        && now <= instant(validity.not_after.to_unix_duration());
    let extended = delegate.extended_usage.as_ref();
    let is_responder = extended.is_some_and(|usage| usage.0.contains(&ID_KP_OCSP_SIGNING));
    let may_sign = delegate
        .key_usage
        .is_none_or(|usage| usage.digital_signature() || usage.non_repudiation());
    is_current
        && is_responder
        && may_sign
        && delegate.unknown_critical.is_none()
        && is_issued(delegate, issuer)
        && revoked.is_revoked(&delegate.certificate, now).is_none()
}

/// Whether a certificate is by this issuer: by its name and its key.
fn is_issued(certificate: &ParsedCertificate, issuer: &ParsedCertificate) -> bool {
    certificate.issuer == issuer.subject && certificate.is_signed_by(issuer) == Some(true)
}

fn instant(since_1970: Duration) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + since_1970
}
