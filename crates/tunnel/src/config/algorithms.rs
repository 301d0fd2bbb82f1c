//! Algorithms as configuration files name them.

use offload::{Encryption, Integrity};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Names of encryption algorithms in configuration files.
pub const ENCRYPTION: &[(&str, Encryption)] = &[
    ("aes-256-gcm", Encryption::AesGcm256),
    ("aes-192-gcm", Encryption::AesGcm192),
    ("aes-128-gcm", Encryption::AesGcm128),
    ("chacha20-poly1305", Encryption::ChaCha20Poly1305),
    ("aes-256-ccm", Encryption::AesCcm256Icv16),
    ("aes-192-ccm", Encryption::AesCcm192Icv16),
    ("aes-128-ccm", Encryption::AesCcm128Icv16),
    ("aes-256-ccm-12", Encryption::AesCcm256Icv12),
    ("aes-192-ccm-12", Encryption::AesCcm192Icv12),
    ("aes-128-ccm-12", Encryption::AesCcm128Icv12),
    ("aes-256-ccm-8", Encryption::AesCcm256Icv8),
    ("aes-192-ccm-8", Encryption::AesCcm192Icv8),
    ("aes-128-ccm-8", Encryption::AesCcm128Icv8),
    ("aes-256-cbc", Encryption::AesCbc256),
    ("aes-192-cbc", Encryption::AesCbc192),
    ("aes-128-cbc", Encryption::AesCbc128),
    ("aes-256-ctr", Encryption::AesCtr256),
    ("aes-192-ctr", Encryption::AesCtr192),
    ("aes-128-ctr", Encryption::AesCtr128),
    ("aes-256-gmac", Encryption::AesGmac256),
    ("aes-192-gmac", Encryption::AesGmac192),
    ("aes-128-gmac", Encryption::AesGmac128),
    ("null", Encryption::Null),
    #[cfg(feature = "lab")]
    ("des-cbc", Encryption::DesCbc),
    #[cfg(feature = "lab")]
    ("3des-cbc", Encryption::TripleDesCbc),
];

/// Names of integrity algorithms in configuration files.
pub const INTEGRITY: &[(&str, Integrity)] = &[
    ("hmac-sha2-256-128", Integrity::HmacSha256_128),
    ("hmac-sha2-384-192", Integrity::HmacSha384_192),
    ("hmac-sha2-512-256", Integrity::HmacSha512_256),
    ("hmac-sha1-96", Integrity::HmacSha1_96),
    ("aes-xcbc-96", Integrity::AesXcbc96),
    #[cfg(feature = "lab")]
    ("hmac-md5-96", Integrity::HmacMd5_96),
];

pub fn named<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    table: &[(&str, T)],
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    let found = table.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        D::Error::custom(format!(
            "unknown algorithm {text:?}: one of {}",
            names.join(", ")
        ))
    })
}
