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
}

impl<S: Sync> FromRequestParts<S> for Device {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if let Some(device) = parts.extensions.get::<Self>() {
            return Ok(device.clone());
        }
        let (code, message) = parts.extensions.get::<DeviceRefused>().map_or_else(
            || {
                (
                    "no-certificate",
                    "no device certificate was presented".to_owned(),
                )
            },
            |refused| (refused.code.as_str(), refused.message.clone()),
        );
        let hint = "present a certificate of the devices CA that is valid and not revoked";
        Err(Problem::new(StatusCode::FORBIDDEN, code, message, hint))
    }
}
