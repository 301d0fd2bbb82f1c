//! Signing OCSP responses (RFC 6960, RFC 5019): reading requests, writing responses.
//!
//! A response is signed by a delegate whom the authority certified for just that ([`Profile::OcspSigner`]), so
//! that the authority's key is not at work for strangers. One about one certificate and without nonce serves
//! everybody until it is signed anew; others are for whoever asked.
//!
//! [`Profile::OcspSigner`]: crate::profile::Profile::OcspSigner

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use const_oid::db::rfc6960::{ID_PKIX_OCSP_BASIC, ID_PKIX_OCSP_NONCE};
use der::asn1::{BitString, GeneralizedTime, Null, OctetString};
use der::{Decode as _, Encode as _};
use time::OffsetDateTime;
use x509_cert::Certificate;
use x509_cert::ext::Extension;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus as WireStatus, OcspGeneralizedTime, OcspRequest,
    OcspResponse, OcspResponseStatus, ResponderId, ResponseBytes, ResponseData, RevokedInfo,
    SingleResponse, Version,
};

use super::{cert_id, names};
use crate::cert::serial_to_hex;
use crate::crl::RevocationReason;
use crate::key::PrivateKey;
use crate::status::Revocation;

/// Bytes of a request at most; one about one certificate has about a hundred.
pub const MAX_REQUEST: usize = 2048;
/// Certificates of one request at most.
pub const MAX_CERTIFICATES: usize = 16;
/// Bytes of a nonce at most (RFC 9654, section 2.1).
pub const MAX_NONCE: usize = 128;

/// Whoever signs responses for an authority.
pub struct ResponseSigner {
    key: PrivateKey,
    certificate: Certificate,
    responder: ResponderId,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Certificates that it is about, one to [`MAX_CERTIFICATES`].
    pub certificates: Vec<CertificateRequest>,
    /// Bytes that the response is to repeat, one to [`MAX_NONCE`].
    pub nonce: Option<Vec<u8>>,
}

/// About which certificate somebody asks.
#[derive(Clone, Debug)]
pub struct CertificateRequest(CertId);

/// Why there is no response about a certificate, in the responder's words (RFC 6960 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is none.
    MalformedRequest,
    InternalError,
    /// Too many ask for responses of their own.
    TryLater,
    /// It is about a certificate of somebody else (RFC 5019 §2.2.3), or of several authorities.
    Unauthorized,
}

impl Refusal {
    /// The response in DER, which nobody signs.
    #[must_use]
    pub fn to_der(self) -> Vec<u8> {
        let response_status = match self {
            Self::MalformedRequest => OcspResponseStatus::MalformedRequest,
            Self::InternalError => OcspResponseStatus::InternalError,
            Self::TryLater => OcspResponseStatus::TryLater,
            Self::Unauthorized => OcspResponseStatus::Unauthorized,
        };
        let response = OcspResponse {
            response_status,
            response_bytes: None,
        };
        // Two small values, which always encode.
        response.to_der().unwrap_or_default()
    }
}

impl Request {
    /// Reads a request in DER. Signatures of requests say nothing about a certificate and are not looked at.
    ///
    /// # Errors
    /// [`Refusal::MalformedRequest`], also for one about more than [`MAX_CERTIFICATES`] and for a critical
    /// extension that is unknown here (RFC 6960, section 4.4).
    pub fn parse(der: &[u8]) -> Result<Self, Refusal> {
        if der.len() > MAX_REQUEST {
            return Err(Refusal::MalformedRequest);
        }
        let request = OcspRequest::from_der(der).map_err(|_| Refusal::MalformedRequest)?;
        let list = &request.tbs_request.request_list;
        if list.is_empty() || list.len() > MAX_CERTIFICATES {
            return Err(Refusal::MalformedRequest);
        }
        let mut certificates = Vec::with_capacity(list.len());
        for one in list {
            // The response repeats the identifier byte for byte, so each form of it is signed for itself. Of the
            // parameters of a hash there are two forms; anything else in their place would be one more signature.
            let parameters = one.req_cert.hash_algorithm.parameters.as_ref();
            let critical = one.single_request_extensions.iter().flatten();
            if parameters.is_some_and(|found| !found.is_null())
                || critical.into_iter().any(|e| e.critical)
            {
                return Err(Refusal::MalformedRequest);
            }
            certificates.push(CertificateRequest(one.req_cert.clone()));
        }
        let nonce = nonce(request.tbs_request.request_extensions.as_deref())?;
        Ok(Self {
            certificates,
            nonce,
        })
    }
}

/// The nonce of a request's extensions, of which there is one at most.
fn nonce(extensions: Option<&[Extension]>) -> Result<Option<Vec<u8>>, Refusal> {
    let mut found = None;
    for extension in extensions.unwrap_or_default() {
        if extension.extn_id != ID_PKIX_OCSP_NONCE {
            if extension.critical {
                return Err(Refusal::MalformedRequest);
            }
            continue;
        }
        let value = OctetString::from_der(extension.extn_value.as_bytes());
        let value = value.map_err(|_| Refusal::MalformedRequest)?.into_bytes();
        if value.is_empty() || value.len() > MAX_NONCE || found.is_some() {
            return Err(Refusal::MalformedRequest);
        }
        found = Some(value);
    }
    Ok(found)
}

impl CertificateRequest {
    /// A request about a certificate of `issuer`, as everybody can read it.
    ///
    /// # Errors
    /// Those of encoding.
    pub fn about(certificate: &Certificate, issuer: &Certificate) -> der::Result<Self> {
        cert_id(certificate, issuer).map(Self)
    }

    /// Whether it is about a certificate of this authority.
    #[must_use]
    pub fn names(&self, issuer: &Certificate) -> bool {
        names(&self.0, issuer)
    }

    /// The certificate's serial number, as [`crate::cert::serial_hex`] writes it.
    #[must_use]
    pub fn serial_hex(&self) -> String {
        serial_to_hex(self.0.serial_number.as_bytes())
    }

    /// What distinguishes requests of one authority that get different bytes: the identifier in DER.
    ///
    /// # Errors
    /// Those of encoding.
    pub fn identifier(&self) -> der::Result<Vec<u8>> {
        self.0.to_der()
    }
}

impl ResponseSigner {
    /// A signer with its key and certificate, which goes along with each response.
    ///
    /// # Errors
    /// Those of encoding.
    pub fn new(key: PrivateKey, certificate: Certificate) -> der::Result<Self> {
        let own = &certificate.tbs_certificate.subject_public_key_info;
        let hash = digest(
            &SHA1_FOR_LEGACY_USE_ONLY,
            own.subject_public_key.raw_bytes(),
        );
        let responder = ResponderId::ByKey(OctetString::new(hash.as_ref())?);
        Ok(Self {
            key,
            certificate,
            responder,
        })
    }

    /// Last instant at which it may sign.
    #[must_use]
    pub fn not_after(&self) -> OffsetDateTime {
        let validity = &self.certificate.tbs_certificate.validity;
        validity.not_after.to_system_time().into()
    }

    /// Signs which certificates are good, or since when they are revoked, as of `now` and until `next_update`;
    /// repeats `nonce`.
    ///
    /// # Errors
    /// Those of encoding; a key that cannot sign counts as one.
    pub fn respond(
        &self,
        certificates: &[(&CertificateRequest, Option<Revocation>)],
        nonce: Option<&[u8]>,
        now: OffsetDateTime,
        next_update: OffsetDateTime,
    ) -> der::Result<Vec<u8>> {
        let about = |(request, revoked): &(&CertificateRequest, Option<Revocation>)| {
            Ok::<_, der::Error>(SingleResponse {
                cert_id: request.0.clone(),
                cert_status: wire_status(*revoked)?,
                this_update: instant(now)?,
                next_update: Some(instant(next_update)?),
                single_extensions: None,
            })
        };
        let tbs_response_data = ResponseData {
            version: Version::V1,
            responder_id: self.responder.clone(),
            produced_at: instant(now)?,
            responses: certificates.iter().map(about).collect::<Result<_, _>>()?,
            response_extensions: nonce.map(nonce_extension).transpose()?.map(|one| vec![one]),
        };
        let signature = self.key.sign(&tbs_response_data.to_der()?);
        let signature = signature.map_err(|_| der::ErrorKind::Failed)?;
        let basic = BasicOcspResponse {
            tbs_response_data,
            signature_algorithm: self.key.signature_algorithm(),
            signature: BitString::from_bytes(&signature)?,
            certs: Some(vec![self.certificate.clone()]),
        };
        let response = OcspResponse {
            response_status: OcspResponseStatus::Successful,
            response_bytes: Some(ResponseBytes {
                response_type: ID_PKIX_OCSP_BASIC,
                response: OctetString::new(basic.to_der()?)?,
            }),
        };
        response.to_der()
    }
}

fn wire_status(revoked: Option<Revocation>) -> der::Result<WireStatus> {
    let Some(revocation) = revoked else {
        return Ok(WireStatus::Good(Null));
    };
    Ok(WireStatus::Revoked(RevokedInfo {
        revocation_time: instant(revocation.at)?,
        // As on lists, "unspecified" is said by absence.
        revocation_reason: (revocation.reason != RevocationReason::Unspecified)
            .then(|| revocation.reason.to_code()),
    }))
}

fn nonce_extension(nonce: &[u8]) -> der::Result<Extension> {
    Ok(Extension {
        extn_id: ID_PKIX_OCSP_NONCE,
        critical: false,
        extn_value: OctetString::new(OctetString::new(nonce)?.to_der()?)?,
    })
}

fn instant(at: OffsetDateTime) -> der::Result<OcspGeneralizedTime> {
    let seconds = u64::try_from(at.unix_timestamp()).map_err(|_| der::ErrorKind::DateTime)?;
    let since_1970 = std::time::Duration::from_secs(seconds);
    GeneralizedTime::from_unix_duration(since_1970).map(OcspGeneralizedTime)
}
