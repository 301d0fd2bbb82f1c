//! How an application proves who it is at the token endpoint: `client_secret_basic`, or `private_key_jwt` with ES256.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use services::{Client, ClientKey};

use crate::TokenError;
use crate::jose;
use crate::parameters::Parameters;

/// The only type of a client assertion (RFC 7523, section 2.2).
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Seconds for which an assertion may be good: it is remembered as long. Libraries make them good for an hour.
const MAX_LIFETIME: i64 = 3600;
/// Seconds that clocks may differ.
const SKEW: i64 = 30;
/// Longest `jti` in bytes.
const MAX_ID: usize = 256;

/// What an application shows, before it is verified.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientProof {
    client: String,
    shown: Shown,
}

#[derive(Clone, PartialEq, Eq)]
enum Shown {
    Secret(String),
    Assertion(String),
}

/// An assertion that verified; it must be refused when it comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assertion {
    pub id: String,
    /// End of its life, in seconds since the Unix epoch.
    pub until: i64,
}

impl std::fmt::Debug for ClientProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientProof")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl ClientProof {
    /// Reads the header `Authorization`, or else the form.
    ///
    /// # Errors
    /// [`TokenError`]: no proof, two proofs, or one that cannot be read. A secret in the form is none (RFC 6749,
    /// section 2.3.1, advises against it).
    pub fn read(authorization: Option<&str>, form: &Parameters) -> Result<Self, TokenError> {
        let assertion = form.get("client_assertion");
        if form.get("client_secret").is_some() {
            let what = "client_secret_post is not supported";
            return Err(TokenError::InvalidClient(what));
        }
        let proof = match (authorization, assertion) {
            (Some(_), Some(_)) => {
                return Err(TokenError::InvalidRequest("two client authentications"));
            }
            (None, None) => {
                return Err(TokenError::InvalidClient("no client authentication"));
            }
            (Some(header), None) => basic(header)?,
            (None, Some(assertion)) => {
                if form.get("client_assertion_type") != Some(ASSERTION) {
                    let what = "client_assertion_type is not that of a JWT";
                    return Err(TokenError::InvalidRequest(what));
                }
                Self {
                    client: subject(assertion)?,
                    shown: Shown::Assertion(assertion.to_owned()),
                }
            }
        };
        match form.get("client_id") {
            Some(id) if id != proof.client => Err(TokenError::InvalidClient(
                "client_id is that of another client",
            )),
            _ => Ok(proof),
        }
    }

    /// The client that it is said to be.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Verifies the proof by what is registered. `audiences` are the issuer and the token endpoint.
    ///
    /// # Errors
    /// [`TokenError::InvalidClient`]: another method than the registered one, or a proof that is not good now.
    pub fn verify(
        &self,
        client: &Client,
        audiences: &[&str],
        now: i64,
    ) -> Result<Option<Assertion>, TokenError> {
        match (&self.shown, &client.key) {
            (Shown::Secret(secret), ClientKey::Secret(hash)) => match hash.matches(secret) {
                true => Ok(None),
                false => Err(TokenError::InvalidClient("the client secret is wrong")),
            },
            (Shown::Assertion(jws), key @ ClientKey::Es256 { .. }) => {
                let point = key.point().unwrap_or_default();
                let verified = jose::verify(jws, &point);
                let claims = verified.map_err(|_| {
                    TokenError::InvalidClient("the client assertion does not verify")
                })?;
                self.check(&claims, audiences, now).map(Some)
            }
            _ => {
                let what = "the client is registered with another method";
                Err(TokenError::InvalidClient(what))
            }
        }
    }

    /// The claims of an assertion (RFC 7523, section 3).
    fn check(&self, claims: &Value, audiences: &[&str], now: i64) -> Result<Assertion, TokenError> {
        let refuse = |what| Err(TokenError::InvalidClient(what));
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let number = |name: &str| claims.get(name).and_then(Value::as_i64);
        let own = Some(self.client.as_str());
        if text("iss") != own || text("sub") != own {
            return refuse("iss and sub of the assertion must be the client");
        }
        let audience = match claims.get("aud") {
            Some(Value::String(one)) => Some(one.as_str()),
            // Several audiences could use the assertion at one another.
            Some(Value::Array(all)) if all.len() == 1 => all.first().and_then(Value::as_str),
            _ => None,
        };
        if !audience.is_some_and(|audience| audiences.contains(&audience)) {
            return refuse("aud of the assertion must be this issuer");
        }
        let Some(until) = number("exp") else {
            return refuse("the assertion has no exp");
        };
        if until.saturating_add(SKEW) <= now || until > now.saturating_add(MAX_LIFETIME) {
            return refuse("the assertion has expired, or is good for more than an hour");
        }
        let later = now.saturating_add(SKEW);
        if [number("nbf"), number("iat")]
            .into_iter()
            .flatten()
            .any(|time| time > later)
        {
            return refuse("the assertion is of a later time");
        }
        match text("jti") {
            Some(id) if id.len() <= MAX_ID => Ok(Assertion {
                id: id.to_owned(),
                until: until.saturating_add(SKEW),
            }),
            _ => refuse("the assertion has no jti of at most 256 bytes"),
        }
    }
}

/// `Basic`, where both parts are form-encoded first (RFC 6749, section 2.3.1).
fn basic(header: &str) -> Result<ClientProof, TokenError> {
    let malformed = TokenError::InvalidClient("the header Authorization is not Basic");
    let (scheme, rest) = header.split_once(' ').ok_or(malformed)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(malformed);
    }
    let text = STANDARD.decode(rest.trim()).map_err(|_| malformed)?;
    let text = String::from_utf8(text).map_err(|_| malformed)?;
    let (id, secret) = text.split_once(':').ok_or(malformed)?;
    let decode = |part: &str| {
        let pair = format!("v={part}");
        let decoded = form_urlencoded::parse(pair.as_bytes()).next();
        decoded.map(|(_, value)| value.into_owned())
    };
    Ok(ClientProof {
        client: decode(id).ok_or(malformed)?,
        shown: Shown::Secret(decode(secret).ok_or(malformed)?),
    })
}

/// The subject of an assertion whose signature is still to be verified: it says whose key to verify with.
fn subject(jws: &str) -> Result<String, TokenError> {
    let malformed = TokenError::InvalidClient("the client assertion is not a JWT");
    let claims = jws.split('.').nth(1).ok_or(malformed)?;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(claims)
        .map_err(|_| malformed)?;
    let claims: Value = serde_json::from_slice(&claims).map_err(|_| malformed)?;
    let subject = claims.get("sub").and_then(Value::as_str);
    subject.map(str::to_owned).ok_or(malformed)
}
