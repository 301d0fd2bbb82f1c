//! Proof of identity (RFC 7296 §2.15, RFC 7427, RFC 8420, RFC 9242 §3.3.2).
//!
//! An IKE SA is established only with an [`Authenticated`], which only this module makes, from an
//! [`AuthorizedPeer`] and an [`OurProof`]: both directions, and what the peer may have, or nothing.

use std::sync::Arc;

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use subtle::ConstantTimeEq;

use crate::authorization::Authorization;
use crate::config::{KeyKind, Psk};
use crate::crypto::{IkeKeys, Prf};
use crate::wire::{AuthMethod, Authentication, HashId, Identification};

/// A signature algorithm with its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RsaPkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RsaPkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RsaPkcs1Sha512,
    /// RSASSA-PSS with SHA-256 and 32 bytes of salt.
    RsaPssSha256,
    /// RSASSA-PSS with SHA-384 and 48 bytes of salt.
    RsaPssSha384,
    /// RSASSA-PSS with SHA-512 and 64 bytes of salt.
    RsaPssSha512,
    /// ECDSA on P-256 with SHA-256, DER.
    EcdsaP256,
    /// The same as 64 bytes r and s, for method 9 (RFC 4754).
    EcdsaP256Fixed,
    /// ECDSA on P-384 with SHA-384, DER.
    EcdsaP384,
    /// The same as 96 bytes r and s, for method 10 (RFC 4754).
    EcdsaP384Fixed,
    /// ECDSA on P-521 with SHA-512, DER; only of peers.
    EcdsaP521,
    /// The same as 132 bytes r and s, for method 11 (RFC 4754).
    EcdsaP521Fixed,
    /// Ed25519.
    Ed25519,
}

const ALL: [Scheme; 13] = [
    Scheme::RsaPssSha256,
    Scheme::RsaPssSha384,
    Scheme::RsaPssSha512,
    Scheme::RsaPkcs1Sha256,
    Scheme::RsaPkcs1Sha384,
    Scheme::RsaPkcs1Sha512,
    Scheme::EcdsaP256,
    Scheme::EcdsaP384,
    Scheme::EcdsaP521,
    Scheme::Ed25519,
    Scheme::EcdsaP256Fixed,
    Scheme::EcdsaP384Fixed,
    Scheme::EcdsaP521Fixed,
];

/// DER AlgorithmIdentifiers (RFC 7427 Appendix A, RFC 8420 §3). Those of RSASSA-PSS are the explicit
/// ones with hash, mask generation and salt length.
const RSA_SHA256: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00";
const RSA_SHA384: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c\x05\x00";
const RSA_SHA512: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d\x05\x00";
const PSS_SHA256: &[u8] = b"\x30\x41\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x34\
    \xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\
    \xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\
    \x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\xa2\x03\x02\x01\x20";
const PSS_SHA384: &[u8] = b"\x30\x41\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x34\
    \xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\
    \xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\
    \x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\xa2\x03\x02\x01\x30";
const PSS_SHA512: &[u8] = b"\x30\x41\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x34\
    \xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\
    \xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\
    \x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\xa2\x03\x02\x01\x40";
const ECDSA_SHA256: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
const ECDSA_SHA384: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x03";
const ECDSA_SHA512: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x04";
const ED25519: &[u8] = b"\x30\x05\x06\x03\x2b\x65\x70";

impl Scheme {
    const fn algorithm_identifier(self) -> Option<&'static [u8]> {
        Some(match self {
            Self::RsaPkcs1Sha256 => RSA_SHA256,
            Self::RsaPkcs1Sha384 => RSA_SHA384,
            Self::RsaPkcs1Sha512 => RSA_SHA512,
            Self::RsaPssSha256 => PSS_SHA256,
            Self::RsaPssSha384 => PSS_SHA384,
            Self::RsaPssSha512 => PSS_SHA512,
            Self::EcdsaP256 => ECDSA_SHA256,
            Self::EcdsaP384 => ECDSA_SHA384,
            Self::EcdsaP521 => ECDSA_SHA512,
            Self::Ed25519 => ED25519,
            Self::EcdsaP256Fixed | Self::EcdsaP384Fixed | Self::EcdsaP521Fixed => return None,
        })
    }

    const fn hash(self) -> HashId {
        match self {
            Self::RsaPkcs1Sha256 | Self::RsaPssSha256 | Self::EcdsaP256 | Self::EcdsaP256Fixed => {
                HashId::SHA2_256
            }
            Self::RsaPkcs1Sha384 | Self::RsaPssSha384 | Self::EcdsaP384 | Self::EcdsaP384Fixed => {
                HashId::SHA2_384
            }
            Self::RsaPkcs1Sha512 | Self::RsaPssSha512 | Self::EcdsaP521 | Self::EcdsaP521Fixed => {
                HashId::SHA2_512
            }
            Self::Ed25519 => HashId::IDENTITY,
        }
    }

    const fn fits(self, key: KeyKind) -> bool {
        match key {
            KeyKind::Rsa => matches!(
                self,
                Self::RsaPkcs1Sha256
                    | Self::RsaPkcs1Sha384
                    | Self::RsaPkcs1Sha512
                    | Self::RsaPssSha256
                    | Self::RsaPssSha384
                    | Self::RsaPssSha512
            ),
            KeyKind::EcdsaP256 => matches!(self, Self::EcdsaP256),
            KeyKind::EcdsaP384 => matches!(self, Self::EcdsaP384),
            KeyKind::Ed25519 => matches!(self, Self::Ed25519),
        }
    }

    /// Candidates for the check of a signature. A method of ECDSA in [`AuthMethod::DIGITAL_SIGNATURE`] names the hash and not
    /// the curve, which is the key's: peers use any announced hash with any curve.
    fn verifiers(self) -> &'static [&'static dyn VerificationAlgorithm] {
        match self {
            Self::RsaPkcs1Sha256 => &[&signature::RSA_PKCS1_2048_8192_SHA256],
            Self::RsaPkcs1Sha384 => &[&signature::RSA_PKCS1_2048_8192_SHA384],
            Self::RsaPkcs1Sha512 => &[&signature::RSA_PKCS1_2048_8192_SHA512],
            Self::RsaPssSha256 => &[&signature::RSA_PSS_2048_8192_SHA256],
            Self::RsaPssSha384 => &[&signature::RSA_PSS_2048_8192_SHA384],
            Self::RsaPssSha512 => &[&signature::RSA_PSS_2048_8192_SHA512],
            Self::EcdsaP256 => &[
                &signature::ECDSA_P256_SHA256_ASN1,
                &signature::ECDSA_P384_SHA256_ASN1,
                &signature::ECDSA_P521_SHA256_ASN1,
            ],
            Self::EcdsaP256Fixed => &[&signature::ECDSA_P256_SHA256_FIXED],
            Self::EcdsaP384 => &[
                &signature::ECDSA_P384_SHA384_ASN1,
                &signature::ECDSA_P256_SHA384_ASN1,
                &signature::ECDSA_P521_SHA384_ASN1,
            ],
            Self::EcdsaP384Fixed => &[&signature::ECDSA_P384_SHA384_FIXED],
            Self::EcdsaP521 => &[
                &signature::ECDSA_P521_SHA512_ASN1,
                &signature::ECDSA_P256_SHA512_ASN1,
                &signature::ECDSA_P384_SHA512_ASN1,
            ],
            Self::EcdsaP521Fixed => &[&signature::ECDSA_P521_SHA512_FIXED],
            Self::Ed25519 => &[&signature::ED25519],
        }
    }

    /// The scheme with which a key signs for a peer that announced these hashes
    /// (SIGNATURE_HASH_ALGORITHMS). Without an announcement only the old methods of ECDSA remain;
    /// RSA's old method means SHA-1, which we do not sign with.
    pub fn for_peer(key: KeyKind, announced: Option<&[HashId]>) -> Option<Self> {
        match (announced, key) {
            (Some(hashes), _) => ALL
                .into_iter()
                .find(|scheme| scheme.fits(key) && hashes.contains(&scheme.hash())),
            (None, KeyKind::EcdsaP256) => Some(Self::EcdsaP256Fixed),
            (None, KeyKind::EcdsaP384) => Some(Self::EcdsaP384Fixed),
            (None, KeyKind::Rsa | KeyKind::Ed25519) => None,
        }
    }

    /// Wraps a signature into the payload.
    pub fn payload(self, signature: &[u8]) -> Authentication {
        let method = match self {
            Self::EcdsaP256Fixed => AuthMethod::ECDSA_P256_SHA256,
            Self::EcdsaP384Fixed => AuthMethod::ECDSA_P384_SHA384,
            Self::EcdsaP521Fixed => AuthMethod::ECDSA_P521_SHA512,
            _ => AuthMethod::DIGITAL_SIGNATURE,
        };
        let mut data = Vec::new();
        if let Some(identifier) = self.algorithm_identifier() {
            data.push(u8::try_from(identifier.len()).unwrap_or(u8::MAX));
            data.extend(identifier);
        }
        data.extend(signature);
        Authentication { method, data }
    }

    /// Scheme and signature of a payload, if we accept the scheme.
    fn of_payload(payload: &Authentication) -> Option<(Self, &[u8])> {
        match payload.method {
            AuthMethod::ECDSA_P256_SHA256 => Some((Self::EcdsaP256Fixed, &payload.data)),
            AuthMethod::ECDSA_P384_SHA384 => Some((Self::EcdsaP384Fixed, &payload.data)),
            AuthMethod::ECDSA_P521_SHA512 => Some((Self::EcdsaP521Fixed, &payload.data)),
            AuthMethod::DIGITAL_SIGNATURE => {
                let (len, rest) = payload.data.split_first()?;
                let (identifier, signature) = rest.split_at_checked(usize::from(*len))?;
                let scheme = ALL
                    .into_iter()
                    .find(|s| s.algorithm_identifier() == Some(identifier))?;
                Some((scheme, signature))
            }
            _ => None,
        }
    }
}

/// The hashes that we verify signatures over, as announced to the peer (RFC 7427 §4).
pub const HASHES: [HashId; 4] = [
    HashId::SHA2_256,
    HashId::SHA2_384,
    HashId::SHA2_512,
    HashId::IDENTITY,
];

/// Octets that one side signs.
pub struct SignedOctets(Vec<u8>);

impl SignedOctets {
    /// The first message as sent, the other side's nonce, the MACed identity, and, if there were
    /// IKE_INTERMEDIATE exchanges, what they contribute.
    pub fn new(
        prf: Prf,
        sk_p: &[u8],
        first_message: &[u8],
        other_nonce: &[u8],
        id: &Identification,
        intermediate: Option<&[u8]>,
    ) -> Self {
        let maced_id = prf.compute(sk_p, &[&id.body()]);
        let parts = [
            first_message,
            other_nonce,
            &maced_id,
            intermediate.unwrap_or_default(),
        ];
        Self(parts.concat())
    }

    /// The bytes, for the one who signs.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The proof in a resumed IKE SA: AUTH = prf(SK_px, octets) (RFC 5723 §5.1).
    pub fn resumption(&self, prf: Prf, sk_p: &[u8]) -> Authentication {
        Authentication {
            method: AuthMethod::SHARED_KEY,
            data: prf.compute(sk_p, &[&self.0]).to_vec(),
        }
    }

    /// The proof with a shared secret.
    pub fn shared_key(&self, prf: Prf, psk: &Psk) -> Authentication {
        let key = prf.compute(&psk.0, &[b"Key Pad for IKEv2"]);
        let data = prf.compute(&key, &[&self.0]).to_vec();
        Authentication {
            method: AuthMethod::SHARED_KEY,
            data,
        }
    }
}

/// Accumulates the IKE_INTERMEDIATE exchanges for AUTH (RFC 9242 §3.3.2).
#[derive(Clone, Debug, Default)]
pub struct IntermediateAuth {
    initiator: Vec<u8>,
    responder: Vec<u8>,
}

impl IntermediateAuth {
    /// Adds one exchange, with the keys that protected it.
    pub fn add(&mut self, keys: &IkeKeys, request: &[u8], response: &[u8]) {
        self.initiator = keys
            .prf
            .compute(&keys.sk_pi, &[&self.initiator, request])
            .to_vec();
        self.responder = keys
            .prf
            .compute(&keys.sk_pr, &[&self.responder, response])
            .to_vec();
    }

    /// Octets of IKE_INTERMEDIATE in the signed octets, if there was an exchange.
    pub fn octets(&self, ike_auth_message_id: u32) -> Option<Vec<u8>> {
        let id = ike_auth_message_id.to_be_bytes();
        (!self.initiator.is_empty()).then(|| [&self.initiator, &self.responder, &id[..]].concat())
    }
}

/// Why a proof does not convince.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Not the method that the configuration asks for, or one that we do not speak.
    #[error("peer authenticates with {0}, which is not what we ask for")]
    Method(AuthMethod),
    /// The proof is wrong: a wrong secret, a wrong key, or a forger.
    #[error("the proof is wrong (shared secret or key does not match)")]
    Proof,
}

/// Proof that the peer is who it says.
#[derive(Debug)]
pub struct PeerVerified {
    id: Identification,
}

impl PeerVerified {
    /// Returns the identity.
    pub const fn id(&self) -> &Identification {
        &self.id
    }
}

/// Our own proof was made.
#[derive(Debug)]
pub struct OurProof(());

impl OurProof {
    /// From the payload that goes to the peer.
    pub const fn new(_payload: &Authentication) -> Self {
        Self(())
    }
}

/// The peer is who it says, and it is said what it may have.
#[derive(Debug)]
pub struct AuthorizedPeer {
    verified: PeerVerified,
    authorization: Arc<Authorization>,
}

impl AuthorizedPeer {
    /// Puts both together.
    pub fn new(verified: PeerVerified, authorization: Authorization) -> Self {
        Self {
            verified,
            authorization: Arc::new(authorization),
        }
    }
}

/// Both directions are proved, and it is said what the peer may have.
#[derive(Debug)]
pub struct Authenticated {
    peer: Identification,
    authorization: Arc<Authorization>,
}

impl Authenticated {
    /// Puts both together.
    pub fn new(peer: AuthorizedPeer, _ours: OurProof) -> Self {
        Self {
            peer: peer.verified.id,
            authorization: peer.authorization,
        }
    }

    /// Returns the peer's authorization.
    pub(crate) fn authorization(&self) -> &Authorization {
        &self.authorization
    }

    /// For the successor of an authenticated IKE SA, whose keys come from it.
    pub(crate) fn inherit(&self) -> Self {
        Self {
            peer: self.peer.clone(),
            authorization: Arc::clone(&self.authorization),
        }
    }

    /// Returns the peer's identity.
    pub const fn peer(&self) -> &Identification {
        &self.peer
    }
}

/// Checks a proof made with a shared secret.
///
/// # Errors
/// [`AuthError`].
pub fn verify_shared_key(
    prf: Prf,
    psk: &Psk,
    octets: &SignedOctets,
    payload: &Authentication,
    id: &Identification,
) -> Result<PeerVerified, AuthError> {
    verify_code(&octets.shared_key(prf, psk), payload, id)
}

/// Checks the proof of a peer that resumes a session. It shows that the peer is who it was; whether that is
/// still enough is the caller's to say.
///
/// # Errors
/// [`AuthError`].
pub fn verify_resumption(
    (prf, sk_p): (Prf, &[u8]),
    octets: &SignedOctets,
    payload: &Authentication,
    id: &Identification,
) -> Result<PeerVerified, AuthError> {
    verify_code(&octets.resumption(prf, sk_p), payload, id)
}

/// Compares a message authentication code of the peer with the expected one, in constant time.
fn verify_code(
    expected: &Authentication,
    payload: &Authentication,
    id: &Identification,
) -> Result<PeerVerified, AuthError> {
    if payload.method != AuthMethod::SHARED_KEY {
        return Err(AuthError::Method(payload.method));
    }
    match bool::from(expected.data.ct_eq(&payload.data)) {
        true => Ok(PeerVerified { id: id.clone() }),
        false => Err(AuthError::Proof),
    }
}

/// Checks a signature with the public key (SubjectPublicKeyInfo) of a certificate that the caller has
/// validated.
///
/// # Errors
/// [`AuthError`].
pub fn verify_signature(
    public_key: &[u8],
    octets: &SignedOctets,
    payload: &Authentication,
    id: &Identification,
) -> Result<PeerVerified, AuthError> {
    let (scheme, signature) =
        Scheme::of_payload(payload).ok_or(AuthError::Method(payload.method))?;
    // With the curve of another key the key itself is not taken.
    let good = scheme.verifiers().iter().any(|verifier| {
        UnparsedPublicKey::new(*verifier, public_key)
            .verify(&octets.0, signature)
            .is_ok()
    });
    match good {
        true => Ok(PeerVerified { id: id.clone() }),
        false => Err(AuthError::Proof),
    }
}
