//! JSON Web Signatures (RFC 7515) as RFC 8555 has them: of a request, of a key change, and of an account's binding.

use aws_lc_rs::hmac;
use serde::Deserialize;

use super::base64url::from_base64url;
use super::jwk::{Jwk, JwkError, Members};

/// Largest request in bytes. A certification request of [`MAX_CSR_LEN`](crate::csr::MAX_CSR_LEN) is in base64 twice, and
/// there are key and signature beside it.
pub const MAX_REQUEST: usize = 32 * 1024;
/// Longest address or nonce that is read, in bytes; our choice.
const MAX_TEXT: usize = 512;

/// Why a signed request is not taken.
#[derive(Debug, thiserror::Error)]
pub enum JwsError {
    #[error("a request has at most {MAX_REQUEST} bytes")]
    TooLong,
    /// Not in the flattened form, with another member, or not base64url.
    #[error("malformed signed request: {0}")]
    Malformed(&'static str),
    /// Another algorithm than the key's.
    #[error("requests are signed with ES256, ES384, EdDSA or RS256, as the key has it")]
    Algorithm,
    #[error(transparent)]
    Key(#[from] JwkError),
    #[error("the signature does not match")]
    Signature,
}

/// Names of the accepted algorithms, for the error about another one.
pub(super) const ALGORITHMS: [&str; 4] = ["ES256", "ES384", "EdDSA", "RS256"];

impl JwsError {
    /// The algorithms by which requests may be signed.
    #[must_use]
    pub const fn algorithms() -> [&'static str; 4] {
        ALGORITHMS
    }
}

/// With whose key a request is signed.
#[derive(Clone, Debug)]
pub enum SigningKey {
    /// The key that it brings.
    Jwk(Jwk),
    /// That of the account with this address.
    Account(String),
}

/// The one form that is read (RFC 8555, section 6.2): no unprotected header, no second signature.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flattened {
    protected: String,
    payload: String,
    signature: String,
}

/// Any member beside these is refused, `crit` and `b64` among them: they change what the rest means.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Protected {
    alg: String,
    nonce: Option<String>,
    url: String,
    jwk: Option<Members>,
    kid: Option<String>,
}

/// A signature with what it is over, taken apart and not verified.
#[derive(Debug)]
struct Signed {
    /// Header and payload as they came.
    input: String,
    payload: Vec<u8>,
    signature: Vec<u8>,
    alg: String,
    nonce: Option<String>,
    url: String,
    key: SigningKey,
}

impl Signed {
    fn parse(json: &[u8]) -> Result<Self, JwsError> {
        if json.len() > MAX_REQUEST {
            return Err(JwsError::TooLong);
        }
        let form = "it is no JSON object of protected, payload and signature";
        Self::of_parts(&serde_json::from_slice(json).map_err(|_| JwsError::Malformed(form))?)
    }

    fn of_parts(one: &Flattened) -> Result<Self, JwsError> {
        let encoded = JwsError::Malformed("a part is not base64url without padding");
        let parts = [&one.protected, &one.payload, &one.signature].map(|part| from_base64url(part));
        let [Some(header), Some(payload), Some(signature)] = parts else {
            return Err(encoded);
        };
        let form = "its header has other members than alg, nonce, url, and one of jwk and kid";
        let header: Protected =
            serde_json::from_slice(&header).map_err(|_| JwsError::Malformed(form))?;
        let long = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > MAX_TEXT);
        if header.url.len() > MAX_TEXT || long(&header.kid) || long(&header.nonce) {
            return Err(JwsError::Malformed("a text in its header is too long"));
        }
        let key = match (header.jwk, header.kid) {
            (Some(jwk), None) => SigningKey::Jwk(Jwk::of_members(&jwk)?),
            (None, Some(kid)) => SigningKey::Account(kid),
            _ => return Err(JwsError::Malformed(form)),
        };
        Ok(Self {
            input: format!("{}.{}", one.protected, one.payload),
            payload,
            signature,
            alg: header.alg,
            nonce: header.nonce,
            url: header.url,
            key,
        })
    }

    fn verify(&self, key: &Jwk) -> Result<(), JwsError> {
        if self.alg != key.alg() {
            return Err(JwsError::Algorithm);
        }
        match key.has_signed(self.input.as_bytes(), &self.signature) {
            true => Ok(()),
            false => Err(JwsError::Signature),
        }
    }
}

/// A request, whose signature is not verified yet.
#[derive(Debug)]
pub struct SignedRequest {
    signed: Signed,
    nonce: String,
}

impl SignedRequest {
    /// Takes a request apart.
    ///
    /// # Errors
    /// [`JwsError`], one variant per reason.
    pub fn parse(json: &[u8]) -> Result<Self, JwsError> {
        let mut signed = Signed::parse(json)?;
        if !ALGORITHMS.contains(&signed.alg.as_str()) {
            return Err(JwsError::Algorithm);
        }
        let nonce = signed.nonce.take();
        let nonce = nonce.ok_or(JwsError::Malformed("its header has no nonce"))?;
        Ok(Self { signed, nonce })
    }

    /// The address that it is for, as its sender wrote it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.signed.url
    }

    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    #[must_use]
    pub const fn key(&self) -> &SigningKey {
        &self.signed.key
    }

    /// The payload, which is JSON; empty in a request that only reads (RFC 8555, section 6.3).
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.signed.payload
    }

    /// Verifies that it is signed with `key`.
    ///
    /// # Errors
    /// [`JwsError::Algorithm`] or [`JwsError::Signature`].
    pub fn verify(&self, key: &Jwk) -> Result<(), JwsError> {
        self.signed.verify(key)
    }
}

/// The change of an account's key (RFC 8555, section 7.3.5), signed with the new one.
#[derive(Debug)]
pub struct KeyChange {
    pub url: String,
    pub new: Jwk,
    /// Address of the account.
    pub account: String,
    pub old: Jwk,
}

impl KeyChange {
    /// Reads the inner signature and verifies it with the key that it brings.
    ///
    /// # Errors
    /// [`JwsError`], one variant per reason.
    pub fn parse(json: &[u8]) -> Result<Self, JwsError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Payload {
            account: String,
            old_key: Members,
        }
        let signed = Signed::parse(json)?;
        let SigningKey::Jwk(new) = &signed.key else {
            return Err(JwsError::Malformed("a key change brings its new key"));
        };
        if signed.nonce.is_some() {
            return Err(JwsError::Malformed("a key change has no nonce of its own"));
        }
        signed.verify(new)?;
        let form = JwsError::Malformed("a key change names account and oldKey");
        let Ok(payload) = serde_json::from_slice::<Payload>(&signed.payload) else {
            return Err(form);
        };
        Ok(Self {
            old: Jwk::of_members(&payload.old_key)?,
            account: payload.account,
            new: new.clone(),
            url: signed.url,
        })
    }
}

/// The binding of a new account to something known outside of the protocol (RFC 8555, section 7.3.4).
#[derive(Debug)]
pub struct Binding {
    input: String,
    tag: Vec<u8>,
    pub url: String,
    /// Name of the secret.
    pub kid: String,
    /// The account's key.
    pub key: Jwk,
}

impl Binding {
    /// Takes a binding apart, whose authentication code is not verified yet.
    ///
    /// # Errors
    /// [`JwsError`], one variant per reason.
    pub fn parse(json: &[u8]) -> Result<Self, JwsError> {
        Self::of(Signed::parse(json)?)
    }

    pub(super) fn of_parts(parts: &Flattened) -> Result<Self, JwsError> {
        Self::of(Signed::of_parts(parts)?)
    }

    fn of(signed: Signed) -> Result<Self, JwsError> {
        let SigningKey::Account(kid) = signed.key else {
            return Err(JwsError::Malformed("a binding names its secret, by kid"));
        };
        if signed.nonce.is_some() {
            return Err(JwsError::Malformed("a binding has no nonce of its own"));
        }
        if signed.alg != "HS256" {
            return Err(JwsError::Malformed("bindings are made with HS256"));
        }
        Ok(Self {
            key: Jwk::parse(&signed.payload)?,
            input: signed.input,
            tag: signed.signature,
            url: signed.url,
            kid,
        })
    }

    /// Verifies that it was made with this secret; takes the same time whatever the code is.
    #[must_use]
    pub fn verify(&self, secret: &[u8]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::verify(&key, self.input.as_bytes(), &self.tag).is_ok()
    }
}
