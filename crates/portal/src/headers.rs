//! Headers that every answer carries.

use axum::response::Response;
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

/// Nothing but our own style sheet and pictures; no script, no frame, no foreign form target.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; media-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'",
);

/// Adds the security headers; pages are not cached unless their handler says otherwise.
pub(crate) async fn add(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: HeaderValue| {
        headers.insert(name, value);
    };
    set(CONTENT_SECURITY_POLICY, POLICY);
    set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    set(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    set(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    set(
        STRICT_TRANSPORT_SECURITY,
        HeaderValue::from_static("max-age=31536000"),
    );
    set(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    );
    set(
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), microphone=(), geolocation=()"),
    );
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
