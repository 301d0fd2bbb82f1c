//! An OpenID Connect provider without sockets, clock and storage: authorization code with PKCE, and nothing else.
//!
//! The shell reads requests and asks the access rules; this crate says what a request means and what may be answered.
//! [`AuthorizationRequest`] is what an application asks for, [`Provider`] has the codes, access tokens and logins,
//! [`ClientProof`] is how an application proves who it is, [`jose`] signs and verifies.
//!
//! Standards: OpenID Connect Core 1.0, Discovery 1.0, Back-Channel Logout 1.0; RFC 6749 with RFC 7636 (S256 only), RFC 7523
//! (ES256 only), RFC 9207, RFC 9700. Implicit and hybrid flows, refresh tokens and dynamic registration do not exist here.
#![forbid(unsafe_code)]

mod authorize;
mod claims;
mod client_proof;
pub mod jose;
mod metadata;
mod parameters;
mod provider;

pub use authorize::{
    ACR_CERTIFICATE, ACR_PASSWORD, AuthorizationRequest, AuthorizeError, ErrorResponse, Need,
};
pub use claims::{LoginKind, Person, Scope, id_token, logout_token, userinfo};
pub use client_proof::{Assertion, ClientProof};
pub use metadata::{Endpoints, metadata};
pub use parameters::{MAX_PARAMETERS, ParameterError, Parameters};
pub use provider::{
    Cause, Ended, Full, Grant, LOGIN_LIFETIME, Login, Provider, Redeemed, Redemption,
    TOKEN_LIFETIME,
};

/// Why the token endpoint refuses (RFC 6749, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("{0}")]
    InvalidRequest(&'static str),
    #[error("{0}")]
    InvalidClient(&'static str),
    #[error("{0}")]
    InvalidGrant(&'static str),
    #[error("only authorization_code is supported")]
    UnsupportedGrantType,
}

impl TokenError {
    /// The error code on the wire.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidRequest(_) => "invalid_request",
            Self::InvalidClient(_) => "invalid_client",
            Self::InvalidGrant(_) => "invalid_grant",
            Self::UnsupportedGrantType => "unsupported_grant_type",
        }
    }
}

#[cfg(test)]
mod tests;
