//! Enrolment over Secure Transport (RFC 7030) and the revocation lists, over HTTP.
//!
//! | request | who | answer |
//! |---|---|---|
//! | `GET /.well-known/est/cacerts` | anybody | certs-only PKCS#7: root and issuing authorities |
//! | `POST /.well-known/est/simpleenroll` | HTTP Basic: device name or user id, code | the certificate |
//! | `POST /.well-known/est/simplereenroll` | TLS client certificate of device, gateway or person | the certificate |
//! | `POST /.well-known/est/serverkeygen` | HTTP Basic: device name, code of an invitation | a key made here, and the certificate |
//! | `GET /.well-known/est/csrattrs` | anybody | what a request should have |
//! | `GET /crl/{root,users,devices,services}.crl` | anybody | the list, DER |
//! | `GET /crl/users-017.crl`, `GET /crl/users-delta.crl`, … | anybody | that of a shard, and delta lists |
//! | `GET /ca/{root,users,devices,services}.cer`, `GET /ca/users-g2.cer`, … | anybody | the authority's newest certificate, DER |
//! | `POST /ocsp`, `GET /ocsp/{base64}` | anybody | the OCSP response, DER |
//!
//! Bodies of EST are base64 (RFC 8951). The TLS certificates of the peer are taken from the request
//! extension [`PeerCertificates`] and its address from `ConnectInfo<SocketAddr>`, which the listener
//! sets. Refusals carry one line of plain text:
//! 400 for a bad request, 401 for wrong credentials, 403 for a certificate or device that is not
//! accepted, 413 and 415 for body and type, 429 for too many renewals, 500 for a fault here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use pki::csr::MAX_CSR_LEN;
use pki::ocsp::responder::MAX_REQUEST;
use pki::path::Purpose;
use pki::pkcs7;
use pki::tls::PeerCertificates;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::{AuthorityId, CrlName, EnrolError, Issued, Registry, RegistryError};

/// Largest request body in bytes: the largest request in base64, with line ends.
const MAX_BODY: usize = MAX_CSR_LEN * 3 / 2;
/// Largest `Authorization` header looked at, in bytes.
const MAX_AUTHORIZATION: usize = 512;
const PKCS7: &str = "application/pkcs7-mime";
const PKCS7_CERTS_ONLY: &str = "application/pkcs7-mime; smime-type=certs-only";
const OCSP_RESPONSE: &str = "application/ocsp-response";
const PKCS8: &str = "application/pkcs8";
/// Between the parts of an answer, whose base64 has no hyphens.
const BOUNDARY: &str = "cordon-part";
const PKCS10: &str = "application/pkcs10";
const CHALLENGE: &str = "Basic realm=\"enrolment\", charset=\"UTF-8\"";

/// Tells the time; a shell passes the system's, a test its own.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

#[derive(Clone)]
struct Est {
    registry: Registry,
    clock: Clock,
}

/// The routes of EST in the table above; [`public_router`] has the others.
pub fn router(registry: Registry, clock: Clock) -> Router {
    Router::new()
        .route("/.well-known/est/cacerts", get(cacerts))
        .route("/.well-known/est/simpleenroll", post(simpleenroll))
        .route("/.well-known/est/simplereenroll", post(simplereenroll))
        .route("/.well-known/est/serverkeygen", post(serverkeygen))
        .route("/.well-known/est/csrattrs", get(csrattrs))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Est { registry, clock })
}

/// The routes that need no authentication, for a plain HTTP listener: revocation lists, authorities' certificates and OCSP, whose
/// readers cannot check TLS before they have them (RFC 5280, section 8). What they give is signed.
pub fn public_router(registry: Registry, clock: Clock) -> Router {
    Router::new()
        .route("/crl/{file}", get(crl))
        .route("/ca/{file}", get(issuer))
        .route("/ocsp", post(ocsp_post))
        .route("/ocsp/{*request}", get(ocsp_get))
        .layer(DefaultBodyLimit::max(MAX_REQUEST))
        .with_state(Est { registry, clock })
}

/// A client that shows a certificate here confirms that it has it, as with any other use: who renewed one
/// and uses it elsewhere only, as gateways do, so ends the former.
async fn cacerts(
    State(est): State<Est>,
    peer: Option<Extension<PeerCertificates>>,
) -> Result<Response, Refusal> {
    if let Some(Extension(PeerCertificates(peer))) = peer {
        // What comes is public: whoever is not admitted has confirmed nothing.
        let admitted = est
            .registry
            .admit(&peer, Purpose::ClientEnrolment, (est.clock)());
        if let Err(error) = admitted.await {
            tracing::debug!(%error, "certificate not admitted");
        }
    }
    certs_only(PKCS7, &est.registry.authorities())
}

async fn simpleenroll(
    State(est): State<Est>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let (name, code) = basic(&headers).ok_or(Refusal::Enrol(EnrolError::Unauthorised))?;
    let csr = request(&headers, body)?;
    let issued = est
        .registry
        .at_address(address(from))
        .enrol_by_code(&name, &code, &csr, (est.clock)())
        .await?;
    certificate(&issued)
}

/// RFC 7030, section 4.4.2: the key in PKCS#8 and the certificate, as two parts. TLS alone protects the key.
async fn serverkeygen(
    State(est): State<Est>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let (name, code) = basic(&headers).ok_or(Refusal::Enrol(EnrolError::Unauthorised))?;
    let csr = request(&headers, body)?;
    let (issued, key) = est
        .registry
        .at_address(address(from))
        .enrol_with_server_key(&name, &code, &csr, (est.clock)())
        .await?;
    let certificates = std::slice::from_ref(issued.chain.leaf());
    let certificates = pkcs7::encode_certs_only(certificates).map_err(Refusal::Encode)?;
    let mut body = Zeroizing::new(String::new());
    let key = Zeroizing::new(wrapped(&key.to_pkcs8_der()));
    for (content_type, text) in [(PKCS8, &*key), (PKCS7_CERTS_ONLY, &wrapped(&certificates))] {
        body.push_str(&format!("--{BOUNDARY}\r\nContent-Type: {content_type}\r\n"));
        body.push_str("Content-Transfer-Encoding: base64\r\n\r\n");
        body.push_str(text);
    }
    body.push_str(&format!("--{BOUNDARY}--\r\n"));
    let headers = [
        (
            CONTENT_TYPE,
            format!("multipart/mixed; boundary={BOUNDARY}"),
        ),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, body.as_bytes().to_vec()).into_response())
}

/// RFC 7030, section 4.5.
async fn csrattrs() -> Result<Response, Refusal> {
    let der = pki::csr::wanted_attributes().map_err(EnrolError::Csr)?;
    let headers = [
        (CONTENT_TYPE.as_str(), "application/csrattrs"),
        ("content-transfer-encoding", "base64"),
    ];
    Ok((headers, wrapped(&der)).into_response())
}

async fn simplereenroll(
    State(est): State<Est>,
    peer: Option<Extension<PeerCertificates>>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let Some(Extension(PeerCertificates(peer))) = peer else {
        return Err(EnrolError::NoCertificate.into());
    };
    let csr = request(&headers, body)?;
    let issued = est
        .registry
        .at_address(address(from))
        .reenrol(&peer, &csr, (est.clock)())
        .await?;
    certificate(&issued)
}

/// Where the request comes from, where the listener says so.
fn address(from: Option<Extension<ConnectInfo<SocketAddr>>>) -> Option<IpAddr> {
    from.map(|Extension(ConnectInfo(peer))| peer.ip())
}

async fn crl(
    State(est): State<Est>,
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let name: CrlName = file
        .strip_suffix(".crl")
        .and_then(|name| name.parse().ok())
        .ok_or(Refusal::NotFound)?;
    let list = est.registry.crl_for(name, (est.clock)()).await;
    let list = list.map_err(Refusal::Lists)?.ok_or(Refusal::NotFound)?;
    let tag = format!("\"{}\"", list.tag);
    if is_known(&headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response());
    }
    let headers = [
        (CONTENT_TYPE, "application/pkix-crl".to_owned()),
        (ETAG, tag),
    ];
    Ok((headers, list.der.to_vec()).into_response())
}

/// RFC 5280, section 4.2.2.1: one certificate in DER. A reader trusts it by its own anchor, not by where it came from.
async fn issuer(State(est): State<Est>, Path(file): Path<String>) -> Result<Response, Refusal> {
    let name = file.strip_suffix(".cer").ok_or(Refusal::NotFound)?;
    let certificate = match name {
        "root" => Some(est.registry.root().clone()),
        name => {
            let id: AuthorityId = name.parse().map_err(|_| Refusal::NotFound)?;
            let records = est.registry.authority_records((est.clock)()).into_iter();
            let mut records = records.filter(|record| record.id == id);
            records.next().map(|record| record.certificate)
        }
    };
    let certificate = certificate.ok_or(Refusal::NotFound)?;
    let der = pki::cert::to_der(&certificate).map_err(|_| Refusal::NotFound)?;
    Ok(([(CONTENT_TYPE, "application/pkix-cert")], der).into_response())
}

/// Whether whoever asks knows what this entity tag stands for (RFC 9110, section 13.1.2).
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    known.filter_map(|known| known.to_str().ok()).any(|known| {
        let mut tags = known.split(',').map(str::trim);
        tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
    })
}

/// RFC 6960, appendix A.1.
async fn ocsp_post(
    State(est): State<Est>,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let body = body.map_err(|e| Refusal::Body(e.status()))?;
    Ok(ocsp(&est, &body).await)
}

async fn ocsp_get(State(est): State<Est>, Path(request): Path<String>) -> Response {
    // The path comes with its escapes undone; a plus may have become a space on the way.
    let letters = request.replace(' ', "+");
    let der = match letters.len() <= MAX_REQUEST * 2 {
        true => STANDARD.decode(letters.as_bytes()).unwrap_or_default(),
        false => Vec::new(),
    };
    ocsp(&est, &der).await
}

async fn ocsp(est: &Est, request: &[u8]) -> Response {
    let now = (est.clock)();
    let answer = est.registry.ocsp_response(request, now).await;
    let (der, until) = match answer {
        Ok(response) => {
            let until = response.shared.then_some(response.next_update);
            (response.der.to_vec(), until)
        }
        Err(refusal) => (refusal.to_der(), None),
    };
    // RFC 5019, section 6.2: caches may keep it, but not longer than it lasts. Half of that, because
    // then there is another.
    let age = until.map_or(0, |until: OffsetDateTime| {
        (until - now).whole_seconds().max(0) / 2
    });
    let cache = format!("max-age={age}, public, no-transform, must-revalidate");
    let headers = [
        (CONTENT_TYPE, OCSP_RESPONSE.to_owned()),
        (CACHE_CONTROL, cache),
    ];
    (headers, der).into_response()
}

/// RFC 7030, section 4.2.3: the certificate alone; the authorities come from `cacerts`.
fn certificate(issued: &Issued) -> Result<Response, Refusal> {
    certs_only(PKCS7_CERTS_ONLY, std::slice::from_ref(issued.chain.leaf()))
}

fn certs_only(
    content_type: &'static str,
    certificates: &[pki::Certificate],
) -> Result<Response, Refusal> {
    let der = pkcs7::encode_certs_only(certificates).map_err(Refusal::Encode)?;
    let headers = [
        (CONTENT_TYPE.as_str(), content_type),
        // RFC 8951 calls the header superfluous, but clients of RFC 7030 look for it.
        ("content-transfer-encoding", "base64"),
    ];
    Ok((headers, wrapped(&der)).into_response())
}

/// Base64 in lines of 64, as clients that feed it to PEM decoders expect.
fn wrapped(der: &[u8]) -> String {
    let mut text = String::new();
    // 48 bytes make 64 letters.
    for line in der.chunks(48) {
        STANDARD.encode_string(line, &mut text);
        text.push_str("\r\n");
    }
    text
}

fn request(
    headers: &HeaderMap,
    body: Result<axum::body::Bytes, BytesRejection>,
) -> Result<Vec<u8>, Refusal> {
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(str::trim);
    if !media_type.is_some_and(|t| t.eq_ignore_ascii_case(PKCS10)) {
        return Err(Refusal::MediaType);
    }
    let body = body.map_err(|e| Refusal::Body(e.status()))?;
    let letters: Vec<u8> = body
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    STANDARD.decode(letters).map_err(|_| Refusal::NotBase64)
}

/// Name and code from HTTP Basic authentication (RFC 7617).
fn basic(headers: &HeaderMap) -> Option<(String, Zeroizing<String>)> {
    let value = headers.get(AUTHORIZATION)?;
    if value.len() > MAX_AUTHORIZATION {
        return None;
    }
    let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(credentials.trim()).ok()?);
    let (name, code) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((name.to_owned(), Zeroizing::new(code.to_owned())))
}

/// A request that is not granted.
enum Refusal {
    Enrol(EnrolError),
    NotFound,
    Lists(RegistryError),
    MediaType,
    Body(StatusCode),
    NotBase64,
    Encode(pkcs7::Pkcs7Error),
}

impl From<EnrolError> for Refusal {
    fn from(e: EnrolError) -> Self {
        Self::Enrol(e)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Enrol(e) => return enrol_refusal(&e),
            Self::NotFound => (StatusCode::NOT_FOUND, "no such revocation list".to_owned()),
            Self::MediaType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("content type must be {PKCS10}"),
            ),
            Self::Body(status) => (status, format!("body must have at most {MAX_BODY} bytes")),
            Self::NotBase64 => (StatusCode::BAD_REQUEST, "body is not base64".to_owned()),
            Self::Lists(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "no revocation list");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "registry failed".to_owned(),
                )
            }
            Self::Encode(error) => {
                tracing::error!(%error, "cannot encode certificates");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "registry failed".to_owned(),
                )
            }
        };
        (status, text + "\n").into_response()
    }
}

fn enrol_refusal(e: &EnrolError) -> Response {
    let status = match e {
        EnrolError::Unauthorised
        | EnrolError::WrongCode
        | EnrolError::CodeExpired { .. }
        | EnrolError::CodeUsed => StatusCode::UNAUTHORIZED,
        EnrolError::Csr(_)
        | EnrolError::WrongSubject { .. }
        | EnrolError::OtherNames
        | EnrolError::KeyInUse
        | EnrolError::KeyListed
        | EnrolError::ServerKey(_)
        | EnrolError::Cmp(_)
        | EnrolError::Acme(_)
        | EnrolError::Scep(_)
        | EnrolError::KeyEncryption => StatusCode::BAD_REQUEST,
        EnrolError::NoCertificate
        | EnrolError::BadCertificate(_)
        | EnrolError::NotAdmitted(_)
        | EnrolError::NotNewest { .. }
        | EnrolError::Person { .. }
        | EnrolError::NotApproved
        | EnrolError::ApprovalGone(_)
        | EnrolError::AboveAuthority { .. }
        | EnrolError::NotRenewable
        | EnrolError::NoRenewalsLeft { .. }
        | EnrolError::Holder(_) => StatusCode::FORBIDDEN,
        EnrolError::TooManyRenewals { .. } | EnrolError::TooManyAttempts(_) => {
            StatusCode::TOO_MANY_REQUESTS
        }
        EnrolError::Registry(error) => {
            tracing::error!(error = error as &dyn std::error::Error, "enrolment failed");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    let mut response = (status, e.for_peer() + "\n").into_response();
    if status == StatusCode::UNAUTHORIZED {
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    }
    response
}
