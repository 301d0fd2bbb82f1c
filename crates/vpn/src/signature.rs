//! Keys and signatures of IKE in terms of the process that has the keys.

use std::sync::mpsc::SyncSender;

use ikev2::RequestId;
use ikev2::auth::Scheme;
use ikev2::config::KeyKind;
use keyhost::{Key, SignatureScheme};

/// Job of the thread that has the private keys sign.
pub(super) enum KeyJob {
    Set(String, Vec<Key>),
    Sign(RequestId, (String, usize), Scheme, Vec<u8>),
    /// For TLS, which waits, and has the first of a connection's certificates.
    SignNow(String, Scheme, Vec<u8>, SyncSender<Result<Vec<u8>, String>>),
}

/// Kind of a key as IKE has it.
pub(super) const fn key_kind(kind: keyhost::KeyKind) -> KeyKind {
    match kind {
        keyhost::KeyKind::Rsa => KeyKind::Rsa,
        keyhost::KeyKind::EcdsaP256 => KeyKind::EcdsaP256,
        keyhost::KeyKind::EcdsaP384 => KeyKind::EcdsaP384,
        keyhost::KeyKind::Ed25519 => KeyKind::Ed25519,
    }
}

/// The scheme as the process of the keys has it; none for P-521, with which we verify and never sign.
pub(super) const fn scheme(scheme: Scheme) -> Option<SignatureScheme> {
    Some(match scheme {
        Scheme::RsaPkcs1Sha256 => SignatureScheme::RsaPkcs1Sha256,
        Scheme::RsaPkcs1Sha384 => SignatureScheme::RsaPkcs1Sha384,
        Scheme::RsaPkcs1Sha512 => SignatureScheme::RsaPkcs1Sha512,
        Scheme::RsaPssSha256 => SignatureScheme::RsaPssSha256,
        Scheme::RsaPssSha384 => SignatureScheme::RsaPssSha384,
        Scheme::RsaPssSha512 => SignatureScheme::RsaPssSha512,
        Scheme::EcdsaP256 => SignatureScheme::EcdsaP256,
        Scheme::EcdsaP256Fixed => SignatureScheme::EcdsaP256Fixed,
        Scheme::EcdsaP384 => SignatureScheme::EcdsaP384,
        Scheme::EcdsaP384Fixed => SignatureScheme::EcdsaP384Fixed,
        Scheme::Ed25519 => SignatureScheme::Ed25519,
        Scheme::EcdsaP521 | Scheme::EcdsaP521Fixed => return None,
    })
}

/// Signs a whole message.
///
/// # Errors
/// A text for the operator.
pub(super) fn sign(key: &Key, wanted: Scheme, message: &[u8]) -> Result<Vec<u8>, String> {
    let scheme = scheme(wanted).ok_or_else(|| format!("no key signs with {wanted:?}"))?;
    key.sign(scheme, message).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p521_is_verified_and_never_signed_with() {
        for verified in [Scheme::EcdsaP521, Scheme::EcdsaP521Fixed] {
            assert_eq!(scheme(verified), None);
        }
        assert_eq!(scheme(Scheme::Ed25519), Some(SignatureScheme::Ed25519));
    }
}
