//! How a private key signs; only the process of the keys does.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, RsaEncoding, RsaKeyPair,
};
use ikev2::auth::Scheme;
use ikev2::config::KeyKind;
use pki::{KeyAlgorithm, PrivateKey};

/// A private key that signs IKE_AUTH.
pub(super) struct SigningKey(PrivateKey);

/// Why a key did not sign; says nothing about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignError {
    /// The scheme is for another kind of key.
    #[error("the key cannot sign with {0:?}")]
    Scheme(Scheme),
    /// The library failed.
    #[error("signing failed")]
    Library,
}

impl SigningKey {
    pub(super) const fn new(key: PrivateKey) -> Self {
        Self(key)
    }

    pub(super) fn kind(&self) -> KeyKind {
        kind_of(self.0.algorithm())
    }

    pub(super) fn public(&self) -> &[u8] {
        self.0.public_spki_der()
    }

    /// Signs a whole message.
    ///
    /// # Errors
    /// [`SignError`].
    pub(super) fn sign(&self, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, SignError> {
        match self.kind() {
            KeyKind::Rsa => self.sign_rsa(rsa(scheme)?, message),
            KeyKind::EcdsaP256 | KeyKind::EcdsaP384 => {
                let algorithm = ecdsa(scheme).filter(|(_, kind)| *kind == self.kind());
                let (algorithm, _) = algorithm.ok_or(SignError::Scheme(scheme))?;
                let key = EcdsaKeyPair::from_pkcs8(algorithm, &self.0.to_pkcs8_der());
                let signature = key
                    .map_err(|_| SignError::Library)?
                    .sign(&SystemRandom::new(), message);
                Ok(signature.map_err(|_| SignError::Library)?.as_ref().to_vec())
            }
            KeyKind::Ed25519 if scheme == Scheme::Ed25519 => {
                let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&self.0.to_pkcs8_der());
                let signature = key
                    .map_err(|_| SignError::Library)?
                    .try_sign(message)
                    .map_err(|_| SignError::Library)?;
                Ok(signature.as_ref().to_vec())
            }
            KeyKind::Ed25519 => Err(SignError::Scheme(scheme)),
        }
    }

    fn sign_rsa(
        &self,
        padding: &'static dyn RsaEncoding,
        message: &[u8],
    ) -> Result<Vec<u8>, SignError> {
        let key = RsaKeyPair::from_pkcs8(&self.0.to_pkcs8_der()).map_err(|_| SignError::Library)?;
        let mut out = vec![0; key.public_modulus_len()];
        key.sign(padding, &SystemRandom::new(), message, &mut out)
            .map_err(|_| SignError::Library)?;
        Ok(out)
    }
}

/// What the protocol half calls a kind of key.
pub(super) const fn kind_of(algorithm: KeyAlgorithm) -> KeyKind {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => KeyKind::EcdsaP256,
        KeyAlgorithm::EcdsaP384 => KeyKind::EcdsaP384,
        KeyAlgorithm::Ed25519 => KeyKind::Ed25519,
        KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => KeyKind::Rsa,
    }
}

fn rsa(scheme: Scheme) -> Result<&'static dyn RsaEncoding, SignError> {
    Ok(match scheme {
        Scheme::RsaPssSha256 => &signature::RSA_PSS_SHA256,
        Scheme::RsaPssSha384 => &signature::RSA_PSS_SHA384,
        Scheme::RsaPssSha512 => &signature::RSA_PSS_SHA512,
        Scheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_SHA256,
        Scheme::RsaPkcs1Sha384 => &signature::RSA_PKCS1_SHA384,
        Scheme::RsaPkcs1Sha512 => &signature::RSA_PKCS1_SHA512,
        other => return Err(SignError::Scheme(other)),
    })
}

const fn ecdsa(scheme: Scheme) -> Option<(&'static EcdsaSigningAlgorithm, KeyKind)> {
    Some(match scheme {
        Scheme::EcdsaP256 => (
            &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
            KeyKind::EcdsaP256,
        ),
        Scheme::EcdsaP256Fixed => (
            &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            KeyKind::EcdsaP256,
        ),
        Scheme::EcdsaP384 => (
            &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
            KeyKind::EcdsaP384,
        ),
        Scheme::EcdsaP384Fixed => (
            &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            KeyKind::EcdsaP384,
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_key_signs_with_its_schemes_only() {
        use aws_lc_rs::signature::UnparsedPublicKey;
        let cases: [(KeyAlgorithm, Scheme, &dyn signature::VerificationAlgorithm); 4] = [
            (
                KeyAlgorithm::EcdsaP256,
                Scheme::EcdsaP256,
                &signature::ECDSA_P256_SHA256_ASN1,
            ),
            (
                KeyAlgorithm::EcdsaP384,
                Scheme::EcdsaP384Fixed,
                &signature::ECDSA_P384_SHA384_FIXED,
            ),
            (KeyAlgorithm::Ed25519, Scheme::Ed25519, &signature::ED25519),
            (
                KeyAlgorithm::Rsa2048,
                Scheme::RsaPssSha384,
                &signature::RSA_PSS_2048_8192_SHA384,
            ),
        ];
        for (algorithm, scheme, verifier) in cases {
            let key = SigningKey::new(PrivateKey::generate(algorithm).unwrap());
            let signature = key.sign(scheme, b"message").unwrap();
            let public = UnparsedPublicKey::new(verifier, key.public());
            public.verify(b"message", &signature).unwrap();
            assert!(public.verify(b"massage", &signature).is_err());
            for (other, wrong, _) in cases {
                if other != algorithm {
                    assert_eq!(key.sign(wrong, b"message"), Err(SignError::Scheme(wrong)));
                }
            }
        }
    }
}
