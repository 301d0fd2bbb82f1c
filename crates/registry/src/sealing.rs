//! Codes of invitations for CMP and ACME, encrypted under keys of the registry.
//!
//! Everywhere else the database has digests of codes. CMP protects a message with a key that is derived from the code and
//! from numbers that the sender chooses, and ACME the binding of an account with one that follows from the code, so whoever
//! verifies it needs the code. It is encrypted (AES-256-GCM) with a key that follows from a file, which the passphrase of the
//! authorities opens: the database alone gives no code away.

use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use pki::file;
use pki::key::{KeyAlgorithm, Passphrase, PrivateKey};
use zeroize::Zeroizing;

use crate::files::io;
use crate::{Config, RegistryError};

/// Protocols for which codes are kept.
#[derive(Clone, Copy)]
pub(crate) enum SealedFor {
    Cmp,
    Acme,
}

impl SealedFor {
    const fn file(self) -> &'static str {
        match self {
            Self::Cmp => "pki/cmp.key",
            Self::Acme => "pki/acme.key",
        }
    }

    /// The derived key's purpose.
    const fn purpose(self) -> &'static [u8] {
        match self {
            Self::Cmp => b"codes of invitations for CMP",
            Self::Acme => b"codes of invitations for ACME",
        }
    }
}

/// The key under which codes are kept.
pub(crate) struct SealingKey(LessSafeKey);

impl SealingKey {
    /// Reads the key's file; makes it where there is none. Blocks for key derivation.
    pub(crate) fn open(
        protocol: SealedFor,
        directory: &Path,
        config: &Config,
        passphrase: &Passphrase,
    ) -> Result<Self, RegistryError> {
        let path = directory.join(protocol.file());
        let key = match path.try_exists().map_err(io("look at", &path))? {
            true => file::load_private(&path, passphrase)?,
            false => {
                let key = PrivateKey::generate(KeyAlgorithm::Ed25519)?;
                file::save_private_on(&*config.disk, &path, &key, passphrase)?;
                key
            }
        };
        Self::derived(protocol, &key.to_pkcs8_der())
    }

    /// A key file holds a private key, as the others beside it do; it signs nothing, and only its bytes count.
    fn derived(protocol: SealedFor, bytes: &[u8]) -> Result<Self, RegistryError> {
        let secret = Salt::new(HKDF_SHA256, b"cordon").extract(bytes);
        let purpose = [protocol.purpose()];
        let key = secret.expand(&purpose, &AES_256_GCM);
        let key = key.map_err(|_| RegistryError::Sealed)?;
        Ok(Self(LessSafeKey::new(UnboundKey::from(key))))
    }

    /// Encrypts the code of an invitation. What is made is of no use in the row of another one.
    pub(crate) fn seal(
        &self,
        code: &str,
        id: &str,
        holder: &str,
    ) -> Result<Vec<u8>, RegistryError> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| RegistryError::Random)?;
        let mut bytes = Zeroizing::new(code.as_bytes().to_vec());
        // So that it is not moved in memory when the tag comes to it.
        bytes.reserve_exact(AES_256_GCM.tag_len());
        let about = Aad::from(format!("{id}/{holder}"));
        let sealed = self.0.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            about,
            &mut *bytes,
        );
        sealed.map_err(|_| RegistryError::Sealed)?;
        Ok([nonce.as_slice(), bytes.as_slice()].concat())
    }

    /// The code that [`Self::seal`] took.
    pub(crate) fn unseal(
        &self,
        sealed: &[u8],
        id: &str,
        holder: &str,
    ) -> Result<Zeroizing<String>, RegistryError> {
        let (nonce, sealed) = sealed
            .split_at_checked(NONCE_LEN)
            .ok_or(RegistryError::Sealed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| RegistryError::Sealed)?;
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let about = Aad::from(format!("{id}/{holder}"));
        let code = self.0.open_in_place(nonce, about, &mut bytes);
        let code = code.map_err(|_| RegistryError::Sealed)?;
        let code = std::str::from_utf8(code).map_err(|_| RegistryError::Sealed)?;
        Ok(Zeroizing::new(code.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_opens_in_its_own_row_only() {
        let key = SealingKey::derived(SealedFor::Cmp, b"bytes of a key").unwrap();
        let sealed = key.seal("a code", "0123", "officer-9").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"a code"));
        let opened = key.unseal(&sealed, "0123", "officer-9").unwrap();
        assert_eq!(&*opened, "a code");
        let other = SealingKey::derived(SealedFor::Cmp, b"bytes of another").unwrap();
        let acme = SealingKey::derived(SealedFor::Acme, b"bytes of a key").unwrap();
        let mut changed = sealed.clone();
        changed[NONCE_LEN] ^= 1;
        for outcome in [
            key.unseal(&sealed, "0124", "officer-9"),
            key.unseal(&sealed, "0123", "officer-8"),
            key.unseal(&changed, "0123", "officer-9"),
            key.unseal(&sealed[..5], "0123", "officer-9"),
            other.unseal(&sealed, "0123", "officer-9"),
            acme.unseal(&sealed, "0123", "officer-9"),
        ] {
            assert!(matches!(outcome, Err(RegistryError::Sealed)));
        }
        assert_ne!(key.seal("a code", "0123", "officer-9").unwrap(), sealed);
    }
}
