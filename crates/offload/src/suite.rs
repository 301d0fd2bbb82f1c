//! Algorithms by their RFC names, and the sizes that follow from them.

use zeroize::Zeroizing;

/// Longest integrity value of any algorithm, in bytes.
pub const MAX_ICV: usize = 32;

/// Encryption algorithms of ESP (RFC 8221 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encryption {
    /// No encryption (RFC 2410); only with an integrity algorithm.
    Null,
    /// AES-CBC with a 128-bit key (RFC 3602).
    AesCbc128,
    /// AES-CBC with a 192-bit key (RFC 3602).
    AesCbc192,
    /// AES-CBC with a 256-bit key (RFC 3602).
    AesCbc256,
    /// AES-CTR with a 128-bit key (RFC 3686).
    AesCtr128,
    /// AES-CTR with a 192-bit key (RFC 3686).
    AesCtr192,
    /// AES-CTR with a 256-bit key (RFC 3686).
    AesCtr256,
    /// AES-CCM with a 128-bit key and an 8-byte integrity value (RFC 4309).
    AesCcm128Icv8,
    /// AES-CCM with a 128-bit key and a 12-byte integrity value (RFC 4309).
    AesCcm128Icv12,
    /// AES-CCM with a 128-bit key and a 16-byte integrity value (RFC 4309).
    AesCcm128Icv16,
    /// AES-CCM with a 192-bit key and an 8-byte integrity value (RFC 4309).
    AesCcm192Icv8,
    /// AES-CCM with a 192-bit key and a 12-byte integrity value (RFC 4309).
    AesCcm192Icv12,
    /// AES-CCM with a 192-bit key and a 16-byte integrity value (RFC 4309).
    AesCcm192Icv16,
    /// AES-CCM with a 256-bit key and an 8-byte integrity value (RFC 4309).
    AesCcm256Icv8,
    /// AES-CCM with a 256-bit key and a 12-byte integrity value (RFC 4309).
    AesCcm256Icv12,
    /// AES-CCM with a 256-bit key and a 16-byte integrity value (RFC 4309).
    AesCcm256Icv16,
    /// AES-GCM with a 128-bit key and a 16-byte integrity value (RFC 4106).
    AesGcm128,
    /// AES-GCM with a 192-bit key and a 16-byte integrity value (RFC 4106).
    AesGcm192,
    /// AES-GCM with a 256-bit key and a 16-byte integrity value (RFC 4106).
    AesGcm256,
    /// AES-GMAC with a 128-bit key: no encryption, but an integrity value (RFC 4543).
    AesGmac128,
    /// AES-GMAC with a 192-bit key: no encryption, but an integrity value (RFC 4543).
    AesGmac192,
    /// AES-GMAC with a 256-bit key: no encryption, but an integrity value (RFC 4543).
    AesGmac256,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
    /// DES-CBC (RFC 2405): broken; with the feature `legacy-algorithms` only.
    #[cfg(feature = "legacy-algorithms")]
    DesCbc,
    /// Triple DES in CBC mode with three keys (RFC 2451): worn out; with the feature
    /// `legacy-algorithms` only.
    #[cfg(feature = "legacy-algorithms")]
    TripleDesCbc,
}

/// What an encryption algorithm is without its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing is encrypted.
    Null,
    /// AES-CBC.
    AesCbc,
    /// AES-CTR.
    AesCtr,
    /// AES-CCM.
    AesCcm,
    /// AES-GCM.
    AesGcm,
    /// AES-GMAC: AES-GCM over nothing but additional data.
    AesGmac,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
    /// DES-CBC, Triple DES in CBC mode.
    #[cfg(feature = "legacy-algorithms")]
    LegacyCbc,
}

impl Encryption {
    /// Every algorithm of this build.
    pub const ALL: &'static [Self] = &[
        Self::Null,
        Self::AesCbc128,
        Self::AesCbc192,
        Self::AesCbc256,
        Self::AesCtr128,
        Self::AesCtr192,
        Self::AesCtr256,
        Self::AesCcm128Icv8,
        Self::AesCcm128Icv12,
        Self::AesCcm128Icv16,
        Self::AesCcm192Icv8,
        Self::AesCcm192Icv12,
        Self::AesCcm192Icv16,
        Self::AesCcm256Icv8,
        Self::AesCcm256Icv12,
        Self::AesCcm256Icv16,
        Self::AesGcm128,
        Self::AesGcm192,
        Self::AesGcm256,
        Self::AesGmac128,
        Self::AesGmac192,
        Self::AesGmac256,
        Self::ChaCha20Poly1305,
        #[cfg(feature = "legacy-algorithms")]
        Self::DesCbc,
        #[cfg(feature = "legacy-algorithms")]
        Self::TripleDesCbc,
    ];

    pub const fn mode(self) -> Mode {
        match self {
            Self::Null => Mode::Null,
            Self::AesCbc128 | Self::AesCbc192 | Self::AesCbc256 => Mode::AesCbc,
            Self::AesCtr128 | Self::AesCtr192 | Self::AesCtr256 => Mode::AesCtr,
            Self::AesCcm128Icv8
            | Self::AesCcm128Icv12
            | Self::AesCcm128Icv16
            | Self::AesCcm192Icv8
            | Self::AesCcm192Icv12
            | Self::AesCcm192Icv16
            | Self::AesCcm256Icv8
            | Self::AesCcm256Icv12
            | Self::AesCcm256Icv16 => Mode::AesCcm,
            Self::AesGcm128 | Self::AesGcm192 | Self::AesGcm256 => Mode::AesGcm,
            Self::AesGmac128 | Self::AesGmac192 | Self::AesGmac256 => Mode::AesGmac,
            Self::ChaCha20Poly1305 => Mode::ChaCha20Poly1305,
            #[cfg(feature = "legacy-algorithms")]
            Self::DesCbc | Self::TripleDesCbc => Mode::LegacyCbc,
        }
    }

    /// Bytes of the cipher's key.
    pub const fn cipher_key_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc128
            | Self::AesCtr128
            | Self::AesCcm128Icv8
            | Self::AesCcm128Icv12
            | Self::AesCcm128Icv16
            | Self::AesGcm128
            | Self::AesGmac128 => 16,
            Self::AesCbc192
            | Self::AesCtr192
            | Self::AesCcm192Icv8
            | Self::AesCcm192Icv12
            | Self::AesCcm192Icv16
            | Self::AesGcm192
            | Self::AesGmac192 => 24,
            Self::AesCbc256
            | Self::AesCtr256
            | Self::AesCcm256Icv8
            | Self::AesCcm256Icv12
            | Self::AesCcm256Icv16
            | Self::AesGcm256
            | Self::AesGmac256
            | Self::ChaCha20Poly1305 => 32,
            #[cfg(feature = "legacy-algorithms")]
            Self::DesCbc => 8,
            #[cfg(feature = "legacy-algorithms")]
            Self::TripleDesCbc => 24,
        }
    }

    /// Bytes of salt behind the key, the first of each nonce (RFC 3686 §4, where it is called nonce;
    /// RFC 4309 §4; RFC 4106 §4; RFC 4543 §3.2; RFC 7634 §2).
    pub const fn salt_len(self) -> usize {
        match self.mode() {
            Mode::AesCtr | Mode::AesGcm | Mode::AesGmac | Mode::ChaCha20Poly1305 => 4,
            Mode::AesCcm => 3,
            Mode::Null | Mode::AesCbc => 0,
            #[cfg(feature = "legacy-algorithms")]
            Mode::LegacyCbc => 0,
        }
    }

    /// Bytes of key material: the key, and the salt behind it.
    pub const fn key_len(self) -> usize {
        self.cipher_key_len() + self.salt_len()
    }

    /// Bytes of the initialisation vector in each packet.
    pub const fn iv_len(self) -> usize {
        match self.mode() {
            Mode::Null => 0,
            Mode::AesCbc => 16,
            Mode::AesCtr | Mode::AesCcm | Mode::AesGcm | Mode::AesGmac | Mode::ChaCha20Poly1305 => {
                8
            }
            #[cfg(feature = "legacy-algorithms")]
            Mode::LegacyCbc => 8,
        }
    }

    /// Bytes of the algorithm's own integrity value; 0 where it has none.
    pub const fn icv_len(self) -> usize {
        match self {
            Self::AesCcm128Icv8 | Self::AesCcm192Icv8 | Self::AesCcm256Icv8 => 8,
            Self::AesCcm128Icv12 | Self::AesCcm192Icv12 | Self::AesCcm256Icv12 => 12,
            _ if self.is_combined() => 16,
            _ => 0,
        }
    }

    /// Bytes to a multiple of which payload and trailer are padded (at least 4, RFC 4303 §2.4).
    pub const fn alignment(self) -> usize {
        match self.mode() {
            Mode::AesCbc => 16,
            Mode::Null
            | Mode::AesCtr
            | Mode::AesCcm
            | Mode::AesGcm
            | Mode::AesGmac
            | Mode::ChaCha20Poly1305 => 4,
            #[cfg(feature = "legacy-algorithms")]
            Mode::LegacyCbc => 8,
        }
    }

    /// Whether the algorithm authenticates as well.
    pub const fn is_combined(self) -> bool {
        matches!(
            self.mode(),
            Mode::AesCcm | Mode::AesGcm | Mode::AesGmac | Mode::ChaCha20Poly1305
        )
    }

    /// Whether what it protects cannot be read by others.
    pub const fn encrypts(self) -> bool {
        !matches!(self.mode(), Mode::Null | Mode::AesGmac)
    }
}

/// Integrity algorithms of ESP and AH (RFC 8221 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Integrity {
    /// HMAC-SHA1-96 (RFC 2404): only for old peers.
    HmacSha1_96,
    /// HMAC-SHA2-256-128 (RFC 4868).
    HmacSha256_128,
    /// HMAC-SHA2-384-192 (RFC 4868).
    HmacSha384_192,
    /// HMAC-SHA2-512-256 (RFC 4868).
    HmacSha512_256,
    /// AES-XCBC-MAC-96 (RFC 3566): for devices that have AES and no hash.
    AesXcbc96,
    /// HMAC-MD5-96 (RFC 2403): worn out; with the feature `legacy-algorithms` only.
    #[cfg(feature = "legacy-algorithms")]
    HmacMd5_96,
}

impl Integrity {
    /// Every algorithm of this build.
    pub const ALL: &'static [Self] = &[
        Self::HmacSha1_96,
        Self::HmacSha256_128,
        Self::HmacSha384_192,
        Self::HmacSha512_256,
        Self::AesXcbc96,
        #[cfg(feature = "legacy-algorithms")]
        Self::HmacMd5_96,
    ];

    /// Bytes of key.
    pub const fn key_len(self) -> usize {
        match self {
            Self::HmacSha1_96 => 20,
            Self::HmacSha256_128 => 32,
            Self::HmacSha384_192 => 48,
            Self::HmacSha512_256 => 64,
            Self::AesXcbc96 => 16,
            #[cfg(feature = "legacy-algorithms")]
            Self::HmacMd5_96 => 16,
        }
    }

    /// Bytes of the truncated integrity value.
    pub const fn icv_len(self) -> usize {
        match self {
            Self::HmacSha1_96 | Self::AesXcbc96 => 12,
            Self::HmacSha256_128 => 16,
            Self::HmacSha384_192 => 24,
            Self::HmacSha512_256 => 32,
            #[cfg(feature = "legacy-algorithms")]
            Self::HmacMd5_96 => 12,
        }
    }
}

/// Why algorithms or keys do not go together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SuiteError {
    /// RFC 8221 §4: encryption without integrity is forbidden, and so is neither.
    #[error("{0:?} needs an integrity algorithm")]
    NoIntegrity(Encryption),
    /// RFC 8221 §4: a combined mode takes no second integrity algorithm.
    #[error("{0:?} authenticates by itself and takes no integrity algorithm")]
    DoubleIntegrity(Encryption),
    /// A key of the wrong size.
    #[error("{algorithm} takes {expected} bytes of key material, {actual} were given")]
    KeyLength {
        algorithm: String,
        /// Bytes it takes.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// The library did not take a key of the right size.
    #[error("the crypto library refused the key")]
    Refused,
}

/// An ESP suite: encryption and integrity that may be used together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Suite {
    encryption: Encryption,
    integrity: Option<Integrity>,
}

impl Suite {
    /// Puts two algorithms together.
    ///
    /// # Errors
    /// Refuses what RFC 8221 §4 forbids: encryption without integrity, neither of both, or a
    /// combined mode with a second integrity algorithm.
    pub const fn new(
        encryption: Encryption,
        integrity: Option<Integrity>,
    ) -> Result<Self, SuiteError> {
        match (encryption.is_combined(), integrity) {
            (true, Some(_)) => Err(SuiteError::DoubleIntegrity(encryption)),
            (false, None) => Err(SuiteError::NoIntegrity(encryption)),
            _ => Ok(Self {
                encryption,
                integrity,
            }),
        }
    }

    /// Neither encryption nor integrity, against RFC 8221 §4: the limit of a packet path without any
    /// cryptography, for measurements; with the feature `unprotected` only.
    #[cfg(feature = "unprotected")]
    pub const fn unprotected() -> Self {
        Self {
            encryption: Encryption::Null,
            integrity: None,
        }
    }

    pub const fn encryption(self) -> Encryption {
        self.encryption
    }

    /// The integrity algorithm; none where encryption authenticates by itself.
    pub const fn integrity(self) -> Option<Integrity> {
        self.integrity
    }

    /// Bytes of the integrity value at the end of each packet.
    pub const fn icv_len(self) -> usize {
        match self.integrity {
            Some(integrity) => integrity.icv_len(),
            None => self.encryption.icv_len(),
        }
    }
}

/// The keys of one direction, cleared when dropped.
#[derive(Clone)]
pub struct KeyMaterial {
    /// Encryption key, with the salt behind it where there is one.
    pub encryption: Zeroizing<Vec<u8>>,
    /// Integrity key; empty for combined modes.
    pub integrity: Zeroizing<Vec<u8>>,
}

impl KeyMaterial {
    /// Copies key bytes.
    pub fn new(encryption: &[u8], integrity: &[u8]) -> Self {
        Self {
            encryption: Zeroizing::new(encryption.to_vec()),
            integrity: Zeroizing::new(integrity.to_vec()),
        }
    }
}

pub(crate) fn check_len(
    algorithm: impl std::fmt::Debug,
    expected: usize,
    key: &[u8],
) -> Result<(), SuiteError> {
    if key.len() == expected {
        return Ok(());
    }
    Err(SuiteError::KeyLength {
        algorithm: format!("{algorithm:?}"),
        expected,
        actual: key.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build without the feature does not know the names, so no configuration can ask for them.
    #[test]
    fn legacy_algorithms_exist_with_their_feature_only() {
        let names: Vec<String> = Encryption::ALL
            .iter()
            .map(|algorithm| format!("{algorithm:?}"))
            .chain(
                Integrity::ALL
                    .iter()
                    .map(|algorithm| format!("{algorithm:?}")),
            )
            .collect();
        for legacy in ["DesCbc", "TripleDesCbc", "HmacMd5_96"] {
            let known = names.iter().any(|name| name == legacy);
            assert_eq!(known, cfg!(feature = "legacy-algorithms"), "{legacy}");
        }
    }

    #[test]
    fn forbidden_combinations_are_refused() {
        use Encryption::*;
        for encryption in [Null, AesCbc128, AesCbc256, AesCtr128] {
            assert_eq!(
                Suite::new(encryption, None),
                Err(SuiteError::NoIntegrity(encryption))
            );
        }
        for (encryption, icv_len) in [
            (AesGcm128, 16),
            (AesGcm256, 16),
            (ChaCha20Poly1305, 16),
            (AesGmac192, 16),
            (AesCcm128Icv8, 8),
            (AesCcm192Icv12, 12),
            (AesCcm256Icv16, 16),
        ] {
            assert_eq!(
                Suite::new(encryption, Some(Integrity::HmacSha256_128)),
                Err(SuiteError::DoubleIntegrity(encryption))
            );
            assert_eq!(Suite::new(encryption, None).unwrap().icv_len(), icv_len);
        }
    }
}
