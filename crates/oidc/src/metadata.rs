//! The discovery document (Discovery 1.0, section 3; RFC 8414).

use serde_json::{Value, json};

use crate::authorize::{ACR_CERTIFICATE, ACR_PASSWORD};

/// Addresses of the endpoints, below the issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub authorization: String,
    pub token: String,
    pub userinfo: String,
    pub keys: String,
    pub logout: String,
}

/// The metadata of a provider.
#[must_use]
pub fn metadata(issuer: &str, endpoints: &Endpoints) -> Value {
    json!({
        "issuer": issuer,
        "authorization_endpoint": endpoints.authorization,
        "token_endpoint": endpoints.token,
        "userinfo_endpoint": endpoints.userinfo,
        "jwks_uri": endpoints.keys,
        "end_session_endpoint": endpoints.logout,
        "scopes_supported": ["openid", "profile", "email", "roles"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "private_key_jwt"],
        "token_endpoint_auth_signing_alg_values_supported": ["ES256"],
        "code_challenge_methods_supported": ["S256"],
        "acr_values_supported": [ACR_CERTIFICATE, ACR_PASSWORD],
        "claims_supported": [
            "iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "sid", "clearance",
            "name", "given_name", "family_name", "preferred_username", "email", "roles", "units",
        ],
        "claims_parameter_supported": false,
        "request_parameter_supported": false,
        "request_uri_parameter_supported": false,
        "authorization_response_iss_parameter_supported": true,
        "backchannel_logout_supported": true,
        "backchannel_logout_session_supported": true,
    })
}
