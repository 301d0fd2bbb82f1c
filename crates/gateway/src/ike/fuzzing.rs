//! What the fuzz target `ike_daemon` reaches.

use time::OffsetDateTime;
use x509_cert::Certificate;

use super::signer::message::{Request, Response};
use pki::ocsp::{CertStatus, look_up};
use pki::status::StatusCache;

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not revoked.
    Good,
    /// Revoked.
    Revoked,
}

/// What an OCSP response says of a certificate (all DER). None if it counts for nothing.
pub fn ocsp(
    certificate: &[u8],
    issuer: &[u8],
    response: &[u8],
    now: OffsetDateTime,
) -> Option<Status> {
    let read = |der| pki::cert::from_der(der).ok();
    let (certificate, issuer): (Certificate, Certificate) = (read(certificate)?, read(issuer)?);
    match look_up(
        &[response.to_vec()],
        &certificate,
        &[&issuer],
        &StatusCache::new(),
        now,
    )? {
        CertStatus::Good => Some(Status::Good),
        CertStatus::Revoked(_) => Some(Status::Revoked),
    }
}

/// A request to the signer, read and written again.
pub fn signer_request(bytes: &[u8]) -> Option<Vec<u8>> {
    Request::decode(bytes)?.encode()
}

/// The signer's answer, read and written again.
pub fn signer_response(bytes: &[u8]) -> Option<Vec<u8>> {
    Response::decode(bytes)?.encode()
}
