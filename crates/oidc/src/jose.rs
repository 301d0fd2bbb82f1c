//! JSON Web Signatures (RFC 7515) with ES256, the only algorithm, over aws-lc.
//!
//! A library for all of JOSE would bring algorithms that must be refused again. What is needed is one header, one signature
//! and one comparison.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest JWS that is read; a client assertion has some hundred bytes.
const MAX_JWS: usize = 4096;

/// A signature cannot be made or is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoseError {
    #[error("the key is not one of P-256")]
    Key,
    #[error("the library cannot sign")]
    Sign,
    #[error("the text is not a compact JWS of at most 4096 bytes")]
    Malformed,
    /// `none`, a symmetric algorithm, or another one: the algorithm is the verifier's choice (RFC 8725, section 3.1).
    #[error("the algorithm is not ES256")]
    Algorithm,
    /// The header names extensions that must be understood (RFC 7515, section 4.1.11).
    #[error("the header has crit")]
    Critical,
    #[error("the signature does not verify")]
    Signature,
}

/// A P-256 key that signs tokens.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    id: String,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A key from PKCS#8.
    ///
    /// # Errors
    /// [`JoseError::Key`].
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, JoseError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        let pair = pair.map_err(|_| JoseError::Key)?;
        let (x, y) = coordinates(&pair)?;
        // RFC 7638: required members in their order, without spaces.
        let text = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()));
        Ok(Self { pair, id })
    }

    /// The key's identifier, its thumbprint by RFC 7638.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public key as a JWK.
    ///
    /// # Errors
    /// [`JoseError::Key`].
    pub fn jwk(&self) -> Result<Value, JoseError> {
        let (x, y) = coordinates(&self.pair)?;
        Ok(json!({
            "kty": "EC", "crv": "P-256", "x": x, "y": y,
            "kid": self.id, "use": "sig", "alg": "ES256",
        }))
    }

    /// A signed token of type `kind` with these claims.
    ///
    /// # Errors
    /// [`JoseError::Sign`].
    pub fn sign(&self, kind: &str, claims: &Value) -> Result<String, JoseError> {
        let header = json!({ "alg": "ES256", "typ": kind, "kid": self.id });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.map_err(|_| JoseError::Sign)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn coordinates(pair: &EcdsaKeyPair) -> Result<(String, String), JoseError> {
    let point = pair.public_key().as_ref();
    match point.split_first_chunk::<1>() {
        Some(([4], rest)) if rest.len() == 64 => {
            let (x, y) = rest.split_at_checked(32).ok_or(JoseError::Key)?;
            Ok((URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y)))
        }
        _ => Err(JoseError::Key),
    }
}

/// The claims of a JWS by the key with this uncompressed point.
///
/// # Errors
/// [`JoseError`]. A JWS without signature, with another algorithm or with `crit` is refused before its signature is looked at.
pub fn verify(jws: &str, point: &[u8]) -> Result<Value, JoseError> {
    #[derive(Deserialize)]
    struct Header {
        alg: String,
        crit: Option<serde::de::IgnoredAny>,
    }
    if jws.len() > MAX_JWS {
        return Err(JoseError::Malformed);
    }
    let (signed, signature) = jws.rsplit_once('.').ok_or(JoseError::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(JoseError::Malformed)?;
    let decode = |part: &str| {
        URL_SAFE_NO_PAD
            .decode(part)
            .map_err(|_| JoseError::Malformed)
    };
    let header: Header =
        serde_json::from_slice(&decode(header)?).map_err(|_| JoseError::Malformed)?;
    if header.alg != "ES256" {
        return Err(JoseError::Algorithm);
    }
    if header.crit.is_some() {
        return Err(JoseError::Critical);
    }
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    key.verify(signed.as_bytes(), &decode(signature)?)
        .map_err(|_| JoseError::Signature)?;
    serde_json::from_slice(&decode(claims)?).map_err(|_| JoseError::Malformed)
}
