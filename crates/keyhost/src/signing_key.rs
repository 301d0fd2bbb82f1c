//! Signing with a key from a file; only the process of the keys does.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, RsaEncoding, RsaKeyPair,
};
use pki::PrivateKey;

use crate::algorithm::{KeyKind, SignatureScheme};

/// A private key from a file.
pub(crate) struct SigningKey(PrivateKey);

/// Why a key did not sign; says nothing about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignError {
    /// The scheme is for another kind of key.
    #[error("the key cannot sign with {0:?}")]
    Scheme(SignatureScheme),
    #[error("signing failed")]
    Library,
}

impl SigningKey {
    pub(crate) const fn new(key: PrivateKey) -> Self {
        Self(key)
    }

    pub(crate) fn kind(&self) -> KeyKind {
        self.0.algorithm().into()
    }

    pub(crate) fn public(&self) -> &[u8] {
        self.0.public_spki_der()
    }

    /// Signs a whole message.
    ///
    /// # Errors
    /// [`SignError`].
    pub(crate) fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
    ) -> Result<Vec<u8>, SignError> {
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
            KeyKind::Ed25519 if scheme == SignatureScheme::Ed25519 => {
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

fn rsa(scheme: SignatureScheme) -> Result<&'static dyn RsaEncoding, SignError> {
    Ok(match scheme {
        SignatureScheme::RsaPssSha256 => &signature::RSA_PSS_SHA256,
        SignatureScheme::RsaPssSha384 => &signature::RSA_PSS_SHA384,
        SignatureScheme::RsaPssSha512 => &signature::RSA_PSS_SHA512,
        SignatureScheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_SHA256,
        SignatureScheme::RsaPkcs1Sha384 => &signature::RSA_PKCS1_SHA384,
        SignatureScheme::RsaPkcs1Sha512 => &signature::RSA_PKCS1_SHA512,
        other => return Err(SignError::Scheme(other)),
    })
}

const fn ecdsa(scheme: SignatureScheme) -> Option<(&'static EcdsaSigningAlgorithm, KeyKind)> {
    Some(match scheme {
        SignatureScheme::EcdsaP256 => (
            &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
            KeyKind::EcdsaP256,
        ),
        SignatureScheme::EcdsaP256Fixed => (
            &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            KeyKind::EcdsaP256,
        ),
        SignatureScheme::EcdsaP384 => (
            &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
            KeyKind::EcdsaP384,
        ),
        SignatureScheme::EcdsaP384Fixed => (
            &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            KeyKind::EcdsaP384,
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use pki::KeyAlgorithm;

    use super::*;

    #[test]
    fn key_signs_with_schemes_of_its_kind_only() {
        use aws_lc_rs::signature::UnparsedPublicKey;
        let cases: [(
            KeyAlgorithm,
            SignatureScheme,
            &dyn signature::VerificationAlgorithm,
        ); 4] = [
            (
                KeyAlgorithm::EcdsaP256,
                SignatureScheme::EcdsaP256,
                &signature::ECDSA_P256_SHA256_ASN1,
            ),
            (
                KeyAlgorithm::EcdsaP384,
                SignatureScheme::EcdsaP384Fixed,
                &signature::ECDSA_P384_SHA384_FIXED,
            ),
            (
                KeyAlgorithm::Ed25519,
                SignatureScheme::Ed25519,
                &signature::ED25519,
            ),
            (
                KeyAlgorithm::Rsa2048,
                SignatureScheme::RsaPssSha384,
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
