//! The registration of an application as a client of OpenID Connect.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::{ServiceError, is_https};

/// Redirect addresses of a client at most: an application has one for each of its host names.
const MAX_REDIRECTS: usize = 8;
/// Longest PEM text of a trust anchor: several certificates with RSA keys.
const MAX_TRUST: usize = 16 * 1024;
/// Length of a P-256 coordinate.
const COORDINATE: usize = 32;

/// An application that logs people in by OpenID Connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Addresses to which a person may return; compared byte for byte (RFC 9700, section 2.1).
    pub redirects: Vec<String>,
    pub key: ClientKey,
    /// Address for back-channel logout.
    #[serde(default)]
    pub logout: Option<String>,
    /// Certificates (PEM) that certify the application's TLS server. Absent: the site's own root.
    #[serde(default)]
    pub logout_trust: Option<String>,
}

/// How the application proves who it is at the token endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientKey {
    /// `client_secret_basic`: by a secret of 120 random bits.
    Secret(SecretHash),
    /// `private_key_jwt` with ES256: by the key with this public half.
    Es256 { x: String, y: String },
}

/// SHA-256 of a client secret. A secret is random, so one round of a hash keeps it from readers of the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretHash(String);

impl SecretHash {
    /// The hash of a secret that Cordon made.
    #[must_use]
    pub fn of(secret: &str) -> Self {
        Self(hex::encode(digest(&SHA256, secret.as_bytes())))
    }

    /// Tells whether `secret` is the one that was hashed.
    #[must_use]
    pub fn matches(&self, secret: &str) -> bool {
        let found = Self::of(secret);
        found.0.as_bytes().ct_eq(self.0.as_bytes()).into()
    }
}

impl ClientKey {
    /// The name of the method in the provider's metadata.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Secret(_) => "client_secret_basic",
            Self::Es256 { .. } => "private_key_jwt",
        }
    }

    /// The method with a hash of the key, as events name it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let hash = match self {
            Self::Secret(hash) => hash.0.clone(),
            Self::Es256 { x, y } => hex::encode(digest(&SHA256, format!("{x}.{y}").as_bytes())),
        };
        format!("{} {hash}", self.method())
    }

    /// The public key of a JWK (RFC 7517), which must be one of P-256 without its private half.
    ///
    /// # Errors
    /// [`ServiceError`] for any other text.
    pub fn from_jwk(text: &str) -> Result<Self, ServiceError> {
        #[derive(Deserialize)]
        struct Jwk {
            kty: String,
            crv: String,
            x: String,
            y: String,
            d: Option<serde::de::IgnoredAny>,
        }
        let refuse = |problem| ServiceError {
            field: "key",
            problem,
        };
        let jwk: Jwk = serde_json::from_str(text)
            .map_err(|_| refuse("must be a JWK with kty, crv, x and y"))?;
        if jwk.d.is_some() {
            return Err(refuse("has a private half; give the public JWK only"));
        }
        if jwk.kty != "EC" || jwk.crv != "P-256" {
            return Err(refuse("must be an EC key on P-256"));
        }
        let key = Self::Es256 { x: jwk.x, y: jwk.y };
        key.check()?;
        Ok(key)
    }

    /// The uncompressed point (SEC 1, section 2.3.3) of an ES256 key.
    #[must_use]
    pub fn point(&self) -> Option<Vec<u8>> {
        let Self::Es256 { x, y } = self else {
            return None;
        };
        let mut point = vec![4];
        for coordinate in [x, y] {
            let bytes = URL_SAFE_NO_PAD.decode(coordinate).ok()?;
            if bytes.len() != COORDINATE {
                return None;
            }
            point.extend_from_slice(&bytes);
        }
        Some(point)
    }

    fn check(&self) -> Result<(), ServiceError> {
        let refuse = |problem| {
            Err(ServiceError {
                field: "key",
                problem,
            })
        };
        match self {
            Self::Secret(hash) => {
                let is_hash = hash.0.len() == 64 && hash.0.bytes().all(|b| b.is_ascii_hexdigit());
                match is_hash {
                    true => Ok(()),
                    false => refuse("must have the SHA-256 of the secret"),
                }
            }
            Self::Es256 { .. } => match self.point() {
                Some(_) => Ok(()),
                None => refuse("must have two coordinates of 32 bytes in base64url"),
            },
        }
    }
}

impl Client {
    pub(crate) fn check(&self) -> Result<(), ServiceError> {
        let refuse = |field, problem| Err(ServiceError { field, problem });
        if self.redirects.is_empty() || self.redirects.len() > MAX_REDIRECTS {
            return refuse("redirects", "must be 1 to 8 addresses");
        }
        if !self.redirects.iter().all(|one| is_https(one)) {
            let rule = "must be https:// addresses without user, fragment and spaces";
            return refuse("redirects", rule);
        }
        self.key.check()?;
        if self.logout.as_ref().is_some_and(|one| !is_https(one)) {
            let rule = "must be an https:// address without user, fragment and spaces";
            return refuse("logout", rule);
        }
        match &self.logout_trust {
            Some(_) if self.logout.is_none() => refuse("logout_trust", "needs a logout address"),
            Some(pem) if pem.len() > MAX_TRUST => {
                refuse("logout_trust", "must have at most 16 KiB")
            }
            Some(pem) if !pem.contains("-----BEGIN CERTIFICATE-----") => {
                refuse("logout_trust", "must have a certificate in PEM")
            }
            _ => Ok(()),
        }
    }
}
