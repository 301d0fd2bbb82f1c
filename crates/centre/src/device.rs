//! The authenticated sender of a request.

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;

use crate::problem::Problem;

/// The common name of a camera's certificate, validated by the listener for this request.
///
/// A handler that takes it cannot be called without it, so no route can forget the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device(pub String);

/// Why the listener could not find a device behind a request; it puts this beside the request so
/// that the answer can say so.
#[derive(Clone, Debug)]
pub struct DeviceRefused {
    /// A stable name of the reason, in kebab case.
    pub code: String,
    /// The reason for people.
    pub message: String,
    /// Set where the fault is on this side: the answer instead, which says nothing about the peer.
    pub failure: Option<Problem>,
}

impl DeviceRefused {
    /// The answer to a request without a device or person, for want of a certificate of `kind`.
    pub(crate) fn answer(refused: Option<&Self>, kind: &str) -> Problem {
        let hint = format!("present a certificate of the {kind}s CA that is valid and not revoked");
        let Some(refused) = refused else {
            let message = format!("no {kind} certificate was presented");
            return Problem::new(StatusCode::FORBIDDEN, "no-certificate", message, &hint);
        };
        refused.failure.clone().unwrap_or_else(|| {
            let message = refused.message.clone();
            Problem::new(StatusCode::FORBIDDEN, &refused.code, message, &hint)
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Device {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if let Some(device) = parts.extensions.get::<Self>() {
            return Ok(device.clone());
        }
        let refused = parts.extensions.get::<DeviceRefused>();
        Err(DeviceRefused::answer(refused, "device"))
    }
}
