//! RSA keys whose signatures are made by the engine that a policy chooses.

use std::sync::Arc;

use aws_lc_rs::digest;
use der::asn1::UintRef;
use der::{Decode, Sequence};
use offload_policy::{Policy, RsaKey, RsaNumbers, RsaPadding, SignedHash};
use pkcs8::PrivateKeyInfo;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::{KeyError, PrivateKey};

/// `RSAPrivateKey` (RFC 8017, appendix A.1.2) with two primes.
#[derive(Sequence)]
struct RsaPrivateKey<'a> {
    version: u8,
    n: UintRef<'a>,
    e: UintRef<'a>,
    d: UintRef<'a>,
    p: UintRef<'a>,
    q: UintRef<'a>,
    dp: UintRef<'a>,
    dq: UintRef<'a>,
    qinv: UintRef<'a>,
}

impl PrivateKey {
    /// The same key, which signs by RSA with the engine that `policy` chooses.
    ///
    /// Keys of other kinds, and all keys without a device, stay as they are. Decryption and key agreement are software's.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] if the numbers are no key.
    pub fn with_engines(&self, policy: &Arc<Policy>) -> Result<Self, KeyError> {
        if policy.device().is_none() || !self.algorithm().is_rsa() {
            return Ok(self.clone());
        }
        let pkcs8 = self.to_pkcs8_der();
        let info = PrivateKeyInfo::from_der(&pkcs8).map_err(|_| KeyError::Malformed)?;
        let numbers = RsaPrivateKey::from_der(info.private_key).map_err(|_| KeyError::Malformed)?;
        let numbers = RsaNumbers {
            n: numbers.n.as_bytes(),
            e: numbers.e.as_bytes(),
            d: numbers.d.as_bytes(),
            p: numbers.p.as_bytes(),
            q: numbers.q.as_bytes(),
            dp: numbers.dp.as_bytes(),
            dq: numbers.dq.as_bytes(),
            qinv: numbers.qinv.as_bytes(),
        };
        let key = RsaKey::new(policy, &numbers).map_err(|_| KeyError::Malformed)?;
        Ok(Self {
            inner: Arc::clone(&self.inner),
            engine: Some(Arc::new(key)),
        })
    }

    /// The key for TLS where a policy chooses its engine; none for all others, which are rustls's own.
    pub(crate) fn tls_key(&self) -> Option<Arc<dyn SigningKey>> {
        let key = Arc::clone(self.engine.as_ref()?);
        let spki = self.public_spki_der().to_vec();
        Some(Arc::new(TlsKey { key, spki }))
    }
}

fn hashed(hash: SignedHash, message: &[u8]) -> digest::Digest {
    let algorithm = match hash {
        SignedHash::Sha256 => &digest::SHA256,
        SignedHash::Sha384 => &digest::SHA384,
        SignedHash::Sha512 => &digest::SHA512,
    };
    digest::digest(algorithm, message)
}

/// Signs with PKCS #1 v1.5 and SHA-256.
pub(super) fn sign(key: &RsaKey, message: &[u8]) -> Result<Vec<u8>, KeyError> {
    let hash = SignedHash::Sha256;
    key.sign(RsaPadding::Pkcs1, hash, hashed(hash, message).as_ref())
        .map_err(|_| KeyError::Sign)
}

/// Signatures that TLS knows, the wanted ones first: PSS, which TLS 1.3 demands.
const SCHEMES: [(SignatureScheme, RsaPadding, SignedHash); 6] = [
    (
        SignatureScheme::RSA_PSS_SHA512,
        RsaPadding::Pss,
        SignedHash::Sha512,
    ),
    (
        SignatureScheme::RSA_PSS_SHA384,
        RsaPadding::Pss,
        SignedHash::Sha384,
    ),
    (
        SignatureScheme::RSA_PSS_SHA256,
        RsaPadding::Pss,
        SignedHash::Sha256,
    ),
    (
        SignatureScheme::RSA_PKCS1_SHA512,
        RsaPadding::Pkcs1,
        SignedHash::Sha512,
    ),
    (
        SignatureScheme::RSA_PKCS1_SHA384,
        RsaPadding::Pkcs1,
        SignedHash::Sha384,
    ),
    (
        SignatureScheme::RSA_PKCS1_SHA256,
        RsaPadding::Pkcs1,
        SignedHash::Sha256,
    ),
];

struct TlsKey {
    key: Arc<RsaKey>,
    spki: Vec<u8>,
}

impl std::fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsKey").finish_non_exhaustive()
    }
}

impl SigningKey for TlsKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let chosen = SCHEMES
            .iter()
            .find(|(scheme, ..)| offered.contains(scheme))?;
        let (scheme, padding, hash) = *chosen;
        Some(Box::new(TlsSigner {
            key: Arc::clone(&self.key),
            scheme,
            padding,
            hash,
        }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.spki.as_slice()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

struct TlsSigner {
    key: Arc<RsaKey>,
    scheme: SignatureScheme,
    padding: RsaPadding,
    hash: SignedHash,
}

impl std::fmt::Debug for TlsSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSigner")
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

impl Signer for TlsSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let digest = hashed(self.hash, message);
        let signature = self.key.sign(self.padding, self.hash, digest.as_ref());
        signature.map_err(|error| rustls::Error::General(error.to_string()))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
