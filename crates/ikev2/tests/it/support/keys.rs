//! Random numbers that repeat, and keys for certificates.

use std::sync::OnceLock;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use ikev2::Random;
use ikev2::auth::Scheme;
use ikev2::config::KeyKind;

/// A generator for tests: splitmix64.
#[derive(Clone)]
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// Keys for certificates. A "certificate" here is the bare public key: chains are the caller's work.
pub(crate) enum Key {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

static KEYS: OnceLock<[Key; 2]> = OnceLock::new();

/// The key of a side, which keeps it through restarts.
pub(crate) fn key_of(side: usize) -> Key {
    let keys = KEYS.get_or_init(|| [0, 1].map(|_| Key::generate(KeyKind::Ed25519)));
    keys[side].copy()
}

impl Key {
    pub(crate) fn generate(kind: KeyKind) -> Self {
        match kind {
            KeyKind::EcdsaP256 => Self::Ecdsa(
                EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).unwrap(),
            ),
            KeyKind::EcdsaP384 => Self::Ecdsa(
                EcdsaKeyPair::generate(&signature::ECDSA_P384_SHA384_ASN1_SIGNING).unwrap(),
            ),
            KeyKind::Ed25519 => Self::Ed25519(Ed25519KeyPair::generate().unwrap()),
            KeyKind::Rsa => {
                Self::Rsa(RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap())
            }
        }
    }

    /// The same key once more; only Ed25519's are wanted twice.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Ed25519(key) => {
                let der = key.to_pkcs8().unwrap();
                Self::Ed25519(Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap())
            }
            _ => panic!("only for Ed25519"),
        }
    }

    pub(crate) fn public(&self) -> Vec<u8> {
        match self {
            Self::Ecdsa(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::Ed25519(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::Rsa(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
        }
    }

    pub(crate) fn sign(&self, scheme: Scheme, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Ecdsa(key) => key
                .sign(&SystemRandom::new(), message)
                .unwrap()
                .as_ref()
                .to_vec(),
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Self::Rsa(key) => {
                let padding: &dyn signature::RsaEncoding = match scheme {
                    Scheme::RsaPssSha256 => &signature::RSA_PSS_SHA256,
                    Scheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_SHA256,
                    other => panic!("unexpected {other:?}"),
                };
                let mut out = vec![0; key.public_modulus_len()];
                key.sign(padding, &SystemRandom::new(), message, &mut out)
                    .unwrap();
                out
            }
        }
    }
}
