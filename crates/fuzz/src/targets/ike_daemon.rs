//! What the tunnel daemon reads besides IKE: OCSP responses that peers and responders send, and what it and
//! the process with the private keys say to one another.
//!
//! The certificates and responses in `ike_daemon_files` were made by OpenSSL; nobody has their keys any more.

use crate::support::edit;
use keyhost::message::{Request, Response};
use pki::ocsp::{CertStatus, look_up};
use pki::status::StatusCache;
use time::OffsetDateTime;
use time::macros::datetime;
use x509_cert::Certificate;

const AUTHORITY: &[u8] = include_bytes!("ike_daemon_files/authority.der");
const CAMERA: &[u8] = include_bytes!("ike_daemon_files/camera.der");
/// Responses about the camera, and what they say; the second does not say until when.
const RESPONSES: [(&[u8], Status); 3] = [
    (include_bytes!("ike_daemon_files/good.der"), Status::Good),
    (include_bytes!("ike_daemon_files/open.der"), Status::Good),
    (
        include_bytes!("ike_daemon_files/revoked.der"),
        Status::Revoked,
    ),
];

/// Status in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Good,
    Revoked,
}

/// Reads the status of a certificate in an OCSP response (all DER). None if it counts for nothing.
fn ocsp(certificate: &[u8], issuer: &[u8], response: &[u8], now: OffsetDateTime) -> Option<Status> {
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

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    let now = datetime!(2026-11-22 11:00 UTC);
    match mode % 4 {
        0 => {
            let Some((which, edits)) = rest.split_first() else {
                return;
            };
            let (response, says) = RESPONSES[usize::from(*which) % RESPONSES.len()];
            let found = ocsp(CAMERA, AUTHORITY, &edit(response, edits), now);
            assert!(
                found.is_none_or(|found| found == says),
                "an altered response says something else"
            );
            if edits.len() < 4 {
                assert_eq!(found, Some(says));
            }
        }
        1 => drop(ocsp(CAMERA, AUTHORITY, rest, now)),
        2 => {
            let again = Request::decode(rest).and_then(|request| request.encode());
            assert!(again.is_none_or(|again| again == rest));
        }
        _ => {
            let again = Response::decode(rest).and_then(|response| response.encode());
            assert!(again.is_none_or(|again| again == rest));
        }
    }
}
