//! Key exchanges: Curve25519 and NIST curves (RFC 8031, RFC 5903), MODP (RFC 3526), ML-KEM.

use aws_lc_rs::{agreement, kem};
use zeroize::Zeroizing;

use super::modp;
use crate::Random;
use crate::wire::KeyExchangeId;

/// A method of key exchange that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Curve25519.
    X25519,
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
    /// 2048-bit MODP, group 14: for old peers.
    Modp2048,
    /// 3072-bit MODP, group 15: for old peers.
    Modp3072,
    /// 4096-bit MODP, group 16: for old peers.
    Modp4096,
    /// ML-KEM-768 (FIPS 203): only as an additional key exchange.
    MlKem768,
}

/// Why a key exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The peer's value is not one of the group's, or it would make the secret predictable.
    #[error("invalid public value for {0:?}")]
    PublicValue(Group),
    /// The library failed.
    #[error("the crypto library failed")]
    Library,
}

/// A shared secret.
pub type Shared = Zeroizing<Vec<u8>>;

impl Group {
    /// The registered number.
    pub const fn id(self) -> KeyExchangeId {
        match self {
            Self::X25519 => KeyExchangeId::CURVE25519,
            Self::P256 => KeyExchangeId::ECP_256,
            Self::P384 => KeyExchangeId::ECP_384,
            Self::Modp2048 => KeyExchangeId::MODP_2048,
            Self::Modp3072 => KeyExchangeId::MODP_3072,
            Self::Modp4096 => KeyExchangeId::MODP_4096,
            Self::MlKem768 => KeyExchangeId::ML_KEM_768,
        }
    }

    /// The group with this number.
    pub const fn from_id(id: KeyExchangeId) -> Option<Self> {
        Some(match id {
            KeyExchangeId::CURVE25519 => Self::X25519,
            KeyExchangeId::ECP_256 => Self::P256,
            KeyExchangeId::ECP_384 => Self::P384,
            KeyExchangeId::MODP_2048 => Self::Modp2048,
            KeyExchangeId::MODP_3072 => Self::Modp3072,
            KeyExchangeId::MODP_4096 => Self::Modp4096,
            KeyExchangeId::ML_KEM_768 => Self::MlKem768,
            _ => return None,
        })
    }

    /// Whether the group can stand in an IKE_SA_INIT. ML-KEM's values are too long for a message
    /// that cannot be fragmented, so it only follows another exchange (RFC 9370 §2.2).
    pub const fn is_first(self) -> bool {
        !matches!(self, Self::MlKem768)
    }

    const fn curve(self) -> Option<&'static agreement::Algorithm> {
        match self {
            Self::X25519 => Some(&agreement::X25519),
            Self::P256 => Some(&agreement::ECDH_P256),
            Self::P384 => Some(&agreement::ECDH_P384),
            _ => None,
        }
    }

    const fn modp(self) -> Option<modp::Modp> {
        match self {
            Self::Modp2048 => Some(modp::Modp::M2048),
            Self::Modp3072 => Some(modp::Modp::M3072),
            Self::Modp4096 => Some(modp::Modp::M4096),
            _ => None,
        }
    }
}

enum Private {
    Curve(agreement::PrivateKey),
    Modp(modp::Modp, Zeroizing<Vec<u8>>),
    Kem(kem::DecapsulationKey),
}

/// Our half of an exchange that we started.
pub struct Pending {
    group: Group,
    private: Private,
    public: Vec<u8>,
}

impl Pending {
    /// Makes our half.
    ///
    /// # Errors
    /// [`ExchangeError::Library`].
    pub fn start(group: Group, random: &mut dyn Random) -> Result<Self, ExchangeError> {
        let (private, public) = if let Some(curve) = group.curve() {
            let private = curve_key(group, curve, random)?;
            let public = private
                .compute_public_key()
                .map_err(|_| ExchangeError::Library)?;
            (
                Private::Curve(private),
                curve_to_wire(group, public.as_ref())?,
            )
        } else if let Some(modp) = group.modp() {
            let mut exponent = Zeroizing::new(vec![0; modp.exponent_len()]);
            random.fill(&mut exponent);
            let public = modp.public(&exponent);
            (Private::Modp(modp, exponent), public)
        } else {
            let key = kem::DecapsulationKey::generate(&kem::ML_KEM_768)
                .map_err(|_| ExchangeError::Library)?;
            let public = key
                .encapsulation_key()
                .and_then(|key| key.key_bytes())
                .map_err(|_| ExchangeError::Library)?;
            let public = public.as_ref().to_vec();
            (Private::Kem(key), public)
        };
        Ok(Self {
            group,
            private,
            public,
        })
    }

    /// The group.
    pub const fn group(&self) -> Group {
        self.group
    }

    /// Returns the public value for the peer.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The shared secret with the peer's answer.
    ///
    /// # Errors
    /// [`ExchangeError::PublicValue`] if the answer is invalid.
    pub fn finish(&self, peer: &[u8]) -> Result<Shared, ExchangeError> {
        let invalid = ExchangeError::PublicValue(self.group);
        match &self.private {
            Private::Curve(private) => curve_agree(self.group, private, peer),
            Private::Modp(modp, exponent) => modp.agree(exponent, peer).ok_or(invalid),
            Private::Kem(key) => {
                let shared = key.decapsulate(peer.into()).map_err(|_| invalid)?;
                Ok(Zeroizing::new(shared.as_ref().to_vec()))
            }
        }
    }
}

/// The answer to a peer's half, and the shared secret.
///
/// # Errors
/// [`ExchangeError::PublicValue`] if the peer's half is invalid.
pub fn respond(
    group: Group,
    peer: &[u8],
    random: &mut dyn Random,
) -> Result<(Vec<u8>, Shared), ExchangeError> {
    if group != Group::MlKem768 {
        let ours = Pending::start(group, random)?;
        let shared = ours.finish(peer)?;
        return Ok((ours.public, shared));
    }
    let invalid = ExchangeError::PublicValue(group);
    let key = kem::EncapsulationKey::new(&kem::ML_KEM_768, peer).map_err(|_| invalid)?;
    let (ciphertext, shared) = key.encapsulate().map_err(|_| invalid)?;
    Ok((
        ciphertext.as_ref().to_vec(),
        Zeroizing::new(shared.as_ref().to_vec()),
    ))
}

fn curve_key(
    group: Group,
    curve: &'static agreement::Algorithm,
    random: &mut dyn Random,
) -> Result<agreement::PrivateKey, ExchangeError> {
    let len = if group == Group::P384 { 48 } else { 32 };
    // A random string is no valid scalar of the NIST curves once in 2^32 (P-256) or less.
    for _ in 0..8 {
        let mut scalar = Zeroizing::new(vec![0; len]);
        random.fill(&mut scalar);
        if let Ok(key) = agreement::PrivateKey::from_private_key(curve, &scalar) {
            return Ok(key);
        }
    }
    Err(ExchangeError::Library)
}

/// RFC 5903 §7 sends both coordinates without the byte that says so.
fn curve_to_wire(group: Group, public: &[u8]) -> Result<Vec<u8>, ExchangeError> {
    match (group, public.split_first()) {
        (Group::X25519, _) => Ok(public.to_vec()),
        (_, Some((0x04, coordinates))) => Ok(coordinates.to_vec()),
        _ => Err(ExchangeError::Library),
    }
}

fn curve_agree(
    group: Group,
    private: &agreement::PrivateKey,
    peer: &[u8],
) -> Result<Shared, ExchangeError> {
    let invalid = ExchangeError::PublicValue(group);
    let point = if group == Group::X25519 {
        peer.to_vec()
    } else {
        [&[0x04], peer].concat()
    };
    // The library refuses points off the curve. For X25519 it refuses the all-zero secret as well,
    // which RFC 8031 §5 leaves to us: it comes from points of small order.
    let public = agreement::UnparsedPublicKey::new(private.algorithm(), point);
    agreement::agree(private, public, invalid, |secret| {
        if secret.iter().all(|byte| *byte == 0) {
            return Err(invalid);
        }
        Ok(Zeroizing::new(secret.to_vec()))
    })
}
