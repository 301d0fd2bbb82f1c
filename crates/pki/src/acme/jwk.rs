//! Public keys as JSON (RFC 7517, RFC 7518 section 6, RFC 8037).

use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};
use const_oid::db::rfc5912::{ID_EC_PUBLIC_KEY, RSA_ENCRYPTION, SECP_256_R_1, SECP_384_R_1};
use const_oid::db::rfc8410::ID_ED_25519;
use der::asn1::{Any, BitString, UintRef};
use der::{Encode, Sequence};
use serde::Deserialize;
use serde::de::IgnoredAny;
use spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use super::base64url::{from_base64url, to_base64url};
use crate::key::{KeyAlgorithm, KeyError};
use crate::spki::spki_sha256;

/// Why a key is not taken.
#[derive(Debug, thiserror::Error)]
pub enum JwkError {
    /// A member is missing, has another form than the standard gives it, or does not belong to a public key.
    #[error("malformed JSON web key")]
    Malformed,
    /// Another kind of key or curve.
    #[error("keys are P-256, P-384, Ed25519, or RSA of 2048, 3072 or 4096 bits")]
    Kind,
    #[error("unusable key")]
    Key(#[source] KeyError),
}

/// A public key whose members are in the one form that they can have.
#[derive(Clone, Debug)]
pub struct Jwk {
    canonical: String,
    spki_sha256: String,
    bits: Vec<u8>,
    algorithm: KeyAlgorithm,
}

/// Members of public keys; a private key's are unknown and refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Members {
    kty: String,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    #[serde(rename = "alg")]
    _alg: Option<IgnoredAny>,
    #[serde(rename = "use")]
    _use: Option<IgnoredAny>,
    #[serde(rename = "key_ops")]
    _key_ops: Option<IgnoredAny>,
    #[serde(rename = "kid")]
    _kid: Option<IgnoredAny>,
}

#[derive(Sequence)]
struct RsaPublicKey<'a> {
    modulus: UintRef<'a>,
    exponent: UintRef<'a>,
}

impl Jwk {
    /// Reads a key from its JSON.
    ///
    /// # Errors
    /// [`JwkError`], one variant per reason.
    pub fn parse(json: &[u8]) -> Result<Self, JwkError> {
        Self::of_members(&serde_json::from_slice(json).map_err(|_| JwkError::Malformed)?)
    }

    pub(super) fn of_members(members: &Members) -> Result<Self, JwkError> {
        match (members.kty.as_str(), members.crv.as_deref()) {
            ("EC", Some("P-256")) => Self::elliptic(members, KeyAlgorithm::EcdsaP256),
            ("EC", Some("P-384")) => Self::elliptic(members, KeyAlgorithm::EcdsaP384),
            ("OKP", Some("Ed25519")) => Self::edwards(members),
            ("RSA", None) => Self::rsa(members),
            _ => Err(JwkError::Kind),
        }
    }

    fn elliptic(members: &Members, algorithm: KeyAlgorithm) -> Result<Self, JwkError> {
        let Members {
            x: Some(x),
            y: Some(y),
            n: None,
            e: None,
            ..
        } = members
        else {
            return Err(JwkError::Malformed);
        };
        let (name, curve, len) = match algorithm {
            KeyAlgorithm::EcdsaP384 => ("P-384", SECP_384_R_1, 48),
            _ => ("P-256", SECP_256_R_1, 32),
        };
        // RFC 7518, section 6.2.1.2: as many bytes as the field has, with leading zeros.
        let mut bits = vec![4];
        for coordinate in [x, y] {
            let bytes = from_base64url(coordinate).filter(|bytes| bytes.len() == len);
            bits.extend(bytes.ok_or(JwkError::Malformed)?);
        }
        let canonical = format!(r#"{{"crv":"{name}","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let parameters = Some(Any::from(curve));
        let identifier = AlgorithmIdentifierOwned {
            oid: ID_EC_PUBLIC_KEY,
            parameters,
        };
        Self::new(canonical, identifier, bits)
    }

    fn edwards(members: &Members) -> Result<Self, JwkError> {
        let Members {
            x: Some(x),
            y: None,
            n: None,
            e: None,
            ..
        } = members
        else {
            return Err(JwkError::Malformed);
        };
        let bits = from_base64url(x).filter(|bytes| bytes.len() == 32);
        let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let identifier = AlgorithmIdentifierOwned {
            oid: ID_ED_25519,
            parameters: None,
        };
        Self::new(canonical, identifier, bits.ok_or(JwkError::Malformed)?)
    }

    fn rsa(members: &Members) -> Result<Self, JwkError> {
        let Members {
            n: Some(n),
            e: Some(e),
            x: None,
            y: None,
            ..
        } = members
        else {
            return Err(JwkError::Malformed);
        };
        // RFC 7518, section 2: the fewest bytes that hold the number, so that there is one form.
        let number = |text: &str| {
            let bytes = from_base64url(text);
            bytes.filter(|bytes| bytes.first().is_some_and(|first| *first != 0))
        };
        let (modulus, exponent) = number(n).zip(number(e)).ok_or(JwkError::Malformed)?;
        let malformed = |_| JwkError::Malformed;
        let key = RsaPublicKey {
            modulus: UintRef::new(&modulus).map_err(malformed)?,
            exponent: UintRef::new(&exponent).map_err(malformed)?,
        };
        let canonical = format!(r#"{{"e":"{e}","kty":"RSA","n":"{n}"}}"#);
        let identifier = AlgorithmIdentifierOwned {
            oid: RSA_ENCRYPTION,
            parameters: Some(Any::null()),
        };
        Self::new(canonical, identifier, key.to_der().map_err(malformed)?)
    }

    fn new(
        canonical: String,
        identifier: AlgorithmIdentifierOwned,
        bits: Vec<u8>,
    ) -> Result<Self, JwkError> {
        let spki = SubjectPublicKeyInfoOwned {
            algorithm: identifier,
            subject_public_key: BitString::from_bytes(&bits).map_err(|_| JwkError::Malformed)?,
        };
        let algorithm = KeyAlgorithm::of_spki(&spki).map_err(JwkError::Key)?;
        Ok(Self {
            canonical,
            spki_sha256: spki_sha256(&spki).map_err(|_| JwkError::Malformed)?,
            bits,
            algorithm,
        })
    }

    /// The required members in the order of RFC 7638, section 3.
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The thumbprint (RFC 7638) in base64url.
    #[must_use]
    pub fn thumbprint(&self) -> String {
        to_base64url(digest::digest(&digest::SHA256, self.canonical.as_bytes()).as_ref())
    }

    /// SHA-256 of the same key's `SubjectPublicKeyInfo`, as certificates are recorded by.
    #[must_use]
    pub fn spki_sha256(&self) -> &str {
        &self.spki_sha256
    }

    /// The name of the one algorithm by which such a key signs here.
    pub(super) const fn alg(&self) -> &'static str {
        match self.algorithm {
            KeyAlgorithm::EcdsaP256 => "ES256",
            KeyAlgorithm::EcdsaP384 => "ES384",
            KeyAlgorithm::Ed25519 => "EdDSA",
            KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => "RS256",
        }
    }

    /// Verifies that `signature` is this key's over `message`, in the form of RFC 7518, section 3.
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let method: &'static dyn VerificationAlgorithm = match self.algorithm {
            KeyAlgorithm::EcdsaP256 => &ECDSA_P256_SHA256_FIXED,
            KeyAlgorithm::EcdsaP384 => &ECDSA_P384_SHA384_FIXED,
            KeyAlgorithm::Ed25519 => &ED25519,
            KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => {
                &RSA_PKCS1_2048_8192_SHA256
            }
        };
        let key = UnparsedPublicKey::new(method, &self.bits);
        key.verify(message, signature).is_ok()
    }
}

impl PartialEq for Jwk {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Jwk {}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7638, section 3.1.
    const RSA: &str = r#"{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB","alg":"RS256","kid":"2011-04-29"}"#;
    /// RFC 8037, appendix A.2.
    const ED: &str =
        r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

    #[test]
    fn thumbprints_are_those_of_the_standards() {
        let of = |json: &str| Jwk::parse(json.as_bytes()).unwrap().thumbprint();
        assert_eq!(of(RSA), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
        assert_eq!(of(ED), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn keys_in_another_form_of_another_kind_or_with_private_parts_are_refused() {
        let small = "A".repeat(171);
        let other = |from: &str, to: &str| ED.replace(from, to);
        let malformed = [
            other("}", r#","d":"AAAA"}"#),
            other("}", r#","y":"AAAA"}"#),
            other("HURo", "HURp"),
            other("HURo", "HURo="),
            other("HURo", "HUR"),
            RSA.replace(r#""n":""#, r#""n":"AA"#),
            RSA.replace(r#""e":"AQAB","#, ""),
            r#"{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}"#.to_owned(),
            String::new(),
            "[]".to_owned(),
        ];
        for json in malformed {
            let refused = Jwk::parse(json.as_bytes());
            assert!(matches!(refused, Err(JwkError::Malformed)), "{json}");
        }
        for json in [
            other("Ed25519", "X25519"),
            r#"{"kty":"oct","k":"AAAA"}"#.replace(r#","k":"AAAA""#, ""),
            r#"{"kty":"EC","crv":"secp256k1","x":"AAAA","y":"AAAA"}"#.to_owned(),
        ] {
            let refused = Jwk::parse(json.as_bytes());
            assert!(matches!(refused, Err(JwkError::Kind)), "{json}");
        }
        for json in [
            RSA.replace("AQAB", "AQ"),
            RSA.replace("AQAB", "Aw"),
            RSA.replace("AQAB", "EQ"),
            RSA.replace("AQAB", "__8"),
            RSA.replace("AQAB", "AQAA"),
            format!(r#"{{"kty":"RSA","n":"_{small}","e":"AQAB"}}"#),
        ] {
            let refused = Jwk::parse(json.as_bytes());
            assert!(matches!(refused, Err(JwkError::Key(_))), "{json}");
        }
    }
}
