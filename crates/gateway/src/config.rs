//! The file that describes a tunnel with manual keys.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use ipsec::sa::Spi;
use ipsec::selector::AddressRange;
use offload::{Encryption, Integrity, Suite};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// A tunnel with manual keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticConfig {
    /// The inner side.
    pub interface: InterfaceConfig,
    /// The outer side.
    pub path: PathConfig,
    /// Algorithms and keys.
    pub sa: SaConfig,
    /// What goes through the tunnel; without any, everything between the two sides.
    #[serde(default)]
    pub policy: Vec<PolicyConfig>,
    /// A Unix socket that answers with the tunnel's state as JSON.
    pub status: Option<PathBuf>,
}

/// The TUN interface.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its name, up to 15 bytes.
    pub name: String,
    /// Its addresses, with prefix length.
    #[serde(default)]
    pub addresses: Vec<Prefix>,
    /// Destinations that are routed into it.
    #[serde(default)]
    pub routes: Vec<Prefix>,
    /// Bytes of the largest packet; what the path takes unless given.
    pub mtu: Option<u16>,
    /// Whether large packets are handed over uncut. Off only for kernels where that is broken.
    #[serde(default = "yes")]
    pub offload: bool,
}

const fn yes() -> bool {
    true
}

/// The two ends of ESP in UDP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathConfig {
    /// Our address and port.
    pub local: SocketAddr,
    /// The far side's.
    pub remote: SocketAddr,
    /// Bytes of the largest outer packet.
    #[serde(default = "ethernet")]
    pub mtu: u16,
}

const fn ethernet() -> u16 {
    1500
}

/// Algorithms and keys of both directions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaConfig {
    /// The suite's encryption algorithm.
    #[serde(deserialize_with = "encryption")]
    pub encryption: Encryption,
    /// Its integrity algorithm; none for combined modes.
    #[serde(default, deserialize_with = "integrity")]
    pub integrity: Option<Integrity>,
    /// 64-bit sequence numbers.
    #[serde(default = "yes")]
    pub extended_sequence: bool,
    /// Packets of the replay window.
    #[serde(default)]
    pub replay_window: u32,
    /// Keys of what we send.
    pub outbound: KeyConfig,
    /// Keys of what we receive.
    pub inbound: KeyConfig,
}

/// Keys of one direction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// The association's SPI, at least 256.
    #[serde(deserialize_with = "spi")]
    pub spi: Spi,
    /// Encryption key in hexadecimal, for combined modes with 4 bytes of salt behind it.
    #[serde(default, deserialize_with = "key")]
    pub encryption_key: Zeroizing<Vec<u8>>,
    /// Integrity key in hexadecimal.
    #[serde(default, deserialize_with = "key")]
    pub integrity_key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyConfig")
            .field("spi", &self.spi)
            .finish_non_exhaustive()
    }
}

/// One traffic selector.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Addresses on our side.
    pub local: Prefix,
    /// Addresses on the far side.
    pub remote: Prefix,
    /// Upper-layer protocol number; any unless given.
    pub protocol: Option<u8>,
}

/// An address with a prefix length, as in `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address, host bits included.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub bits: u8,
}

impl Prefix {
    /// All addresses with this prefix.
    pub fn range(&self) -> AddressRange {
        // The length was checked when the prefix was read.
        AddressRange::prefix(self.address, self.bits)
            .unwrap_or_else(|_| AddressRange::host(self.address))
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let what = || format!("{text:?} is no address with a prefix length, such as 10.1.0.0/16");
        let (address, bits) = text.split_once('/').ok_or_else(what)?;
        let address: IpAddr = address.parse().map_err(|_| what())?;
        let bits = bits.parse().map_err(|_| what())?;
        AddressRange::prefix(address, bits).map_err(|error| error.to_string())?;
        Ok(Self { address, bits })
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// Names of encryption algorithms in configuration files.
const ENCRYPTION: [(&str, Encryption); 6] = [
    ("aes-256-gcm", Encryption::AesGcm256),
    ("aes-128-gcm", Encryption::AesGcm128),
    ("chacha20-poly1305", Encryption::ChaCha20Poly1305),
    ("aes-256-cbc", Encryption::AesCbc256),
    ("aes-128-cbc", Encryption::AesCbc128),
    ("null", Encryption::Null),
];

/// Names of integrity algorithms in configuration files.
const INTEGRITY: [(&str, Integrity); 4] = [
    ("hmac-sha2-256-128", Integrity::HmacSha256_128),
    ("hmac-sha2-384-192", Integrity::HmacSha384_192),
    ("hmac-sha2-512-256", Integrity::HmacSha512_256),
    ("hmac-sha1-96", Integrity::HmacSha1_96),
];

fn named<'de, D: Deserializer<'de>, T: Copy>(
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

fn encryption<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Encryption, D::Error> {
    named(deserializer, &ENCRYPTION)
}

fn integrity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Integrity>, D::Error> {
    named(deserializer, &INTEGRITY).map(Some)
}

fn spi<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Spi, D::Error> {
    let value = u32::deserialize(deserializer)?;
    Spi::new(value).ok_or_else(|| D::Error::custom("SPIs below 256 are reserved"))
}

fn key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Zeroizing<Vec<u8>>, D::Error> {
    let text = Zeroizing::new(String::deserialize(deserializer)?);
    // The decoder's error would quote the key.
    let bytes = hex::decode(&*text)
        .map_err(|_| D::Error::custom("a key is an even number of hexadecimal digits"))?;
    Ok(Zeroizing::new(bytes))
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not what the file should be; says where.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// Algorithms or keys do not go together.
    #[error("[sa]: {0}")]
    Suite(#[from] offload::SuiteError),
    /// The two ends are of different families.
    #[error("[path]: {0} and {1} are of different address families")]
    Families(SocketAddr, SocketAddr),
    /// One key would protect both directions.
    #[error("[sa]: both directions have the same encryption key: nonces would repeat")]
    SharedKey,
}

impl StaticConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigError`], with line and column where the text itself is wrong.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        config.suite()?;
        let (local, remote) = (config.path.local, config.path.remote);
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ConfigError::Families(local, remote));
        }
        let keys = [
            &config.sa.outbound.encryption_key,
            &config.sa.inbound.encryption_key,
        ];
        if !keys[0].is_empty() && keys[0] == keys[1] {
            return Err(ConfigError::SharedKey);
        }
        Ok(config)
    }

    /// The algorithms.
    ///
    /// # Errors
    /// Those of [`Suite::new`].
    pub fn suite(&self) -> Result<Suite, offload::SuiteError> {
        Suite::new(self.sa.encryption, self.sa.integrity)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const EXAMPLE: &str = r#"
        [interface]
        name = "cordon0"
        addresses = ["10.8.0.1/24"]
        routes = ["10.2.0.0/16"]

        [path]
        local = "192.0.2.1:4500"
        remote = "192.0.2.2:4500"

        [sa]
        encryption = "aes-128-gcm"
        outbound = { spi = 0x1001, encryption_key = "000102030405060708090a0b0c0d0e0f10111213" }
        inbound = { spi = 0x1002, encryption_key = "100102030405060708090a0b0c0d0e0f10111213" }
    "#;

    #[test]
    fn the_example_is_taken() {
        let config = StaticConfig::parse(EXAMPLE).unwrap();
        assert_eq!(config.path.mtu, 1500);
        assert!(config.sa.extended_sequence && config.interface.offload);
        assert!(
            !format!("{config:?}").contains("0102"),
            "keys are not shown"
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let wrong = |from: &str, to: &str, expected: &str| {
            assert!(EXAMPLE.contains(from));
            let error = StaticConfig::parse(&EXAMPLE.replace(from, to))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        };
        wrong("aes-128-gcm", "rot13", "line 12");
        wrong("10.2.0.0/16", "10.2.0.0/33", "no prefix of 33 bits");
        wrong("0x1001", "255", "SPIs below 256 are reserved");
        wrong(
            "1213\" }\n        inbound",
            "121\" }\n        inbound",
            "hexadecimal",
        );
        wrong("192.0.2.2:4500", "[::1]:4500", "different address families");
        wrong(
            "{ spi = 0x1002, encryption_key = \"10",
            "{ spi = 0x1002, encryption_key = \"00",
            "nonces would repeat",
        );
        wrong("aes-128-gcm", "aes-128-cbc", "integrity");
        wrong("[path]", "[paths]", "unknown field");
    }
}
