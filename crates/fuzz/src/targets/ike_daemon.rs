//! What the tunnel daemon reads besides IKE: OCSP responses that peers and responders send, and what it and
//! the process with the private keys say to one another.
//!
//! The certificates and responses in `ike_daemon_files` were made by OpenSSL; nobody has their keys any more.

use crate::support::edit;
use gateway::ike::fuzzing::{self, Status};
use time::macros::datetime;

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
            let found = fuzzing::ocsp(CAMERA, AUTHORITY, &edit(response, edits), now);
            assert!(
                found.is_none_or(|found| found == says),
                "an altered response says something else"
            );
            if edits.len() < 4 {
                assert_eq!(found, Some(says));
            }
        }
        1 => drop(fuzzing::ocsp(CAMERA, AUTHORITY, rest, now)),
        2 => assert!(fuzzing::signer_request(rest).is_none_or(|again| again == rest)),
        _ => assert!(fuzzing::signer_response(rest).is_none_or(|again| again == rest)),
    }
}
