//! Keys for Wireshark: lines of its preference file `esp_sa`. Only in laboratory builds, because who
//! has the file reads everything the tunnel carried.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipsec::sa::Protocol;
use offload::{Encryption, Integrity, Mode};
use zeroize::Zeroizing;

use crate::config::{ConfigError, KeyConfig, StaticConfig};

/// Why there are no keys to write.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("AH hides nothing: there is nothing to decrypt")]
    NothingHidden,
    /// One line that Wireshark does not take makes it refuse them all.
    #[error("Wireshark 4.0 has no name for {0:?}")]
    NoName(Encryption),
}

/// Both directions' keys, for `esp_sa` in Wireshark's folder or `-o uat:esp_sa:LINE`.
///
/// # Errors
/// [`ExportError`].
pub fn esp_sa(config: &StaticConfig) -> Result<Zeroizing<String>, ExportError> {
    let mut lines = Zeroizing::new(String::new());
    let Protocol::Esp(suite) = config.protocol()? else {
        return Err(ExportError::NothingHidden);
    };
    let encryption = suite.encryption();
    let cipher = encryption_name(encryption).ok_or(ExportError::NoName(encryption))?;
    let (local, remote) = (config.path.local.ip(), config.path.remote.ip());
    let ways = [
        (local, remote, &config.sa.outbound),
        (remote, local, &config.sa.inbound),
    ];
    for (from, to, key) in ways {
        let family = match from {
            IpAddr::V4(_) => "IPv4",
            IpAddr::V6(_) => "IPv6",
        };
        let mac = suite.integrity().map_or("NULL", integrity_name);
        let (cipher_key, mac_key) = hexadecimal(key);
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "\"{family}\",\"{from}\",\"{to}\",\"0x{}\",\"{cipher}\",\"{}\",\"{mac}\",\"{}\"",
            key.spi, *cipher_key, *mac_key
        );
    }
    Ok(lines)
}

fn hexadecimal(key: &KeyConfig) -> (Zeroizing<String>, Zeroizing<String>) {
    let text = |bytes: &[u8]| {
        Zeroizing::new(match bytes {
            [] => String::new(),
            bytes => format!("0x{}", hex::encode(bytes)),
        })
    };
    (text(&key.encryption_key), text(&key.integrity_key))
}

const fn encryption_name(encryption: Encryption) -> Option<&'static str> {
    match encryption.mode() {
        Mode::Null => Some("NULL"),
        Mode::AesCbc => Some("AES-CBC [RFC3602]"),
        Mode::AesGcm => Some("AES-GCM with 16 octet ICV [RFC4106]"),
        _ => None,
    }
}

const fn integrity_name(integrity: Integrity) -> &'static str {
    match integrity {
        #[cfg(feature = "lab")]
        Integrity::HmacMd5_96 => "HMAC-MD5-96 [RFC2403]",
        Integrity::HmacSha1_96 => "HMAC-SHA-1-96 [RFC2404]",
        Integrity::HmacSha256_128 => "HMAC-SHA-256-128 [RFC4868]",
        Integrity::HmacSha384_192 => "HMAC-SHA-384-192 [RFC4868]",
        Integrity::HmacSha512_256 => "HMAC-SHA-512-256 [RFC4868]",
        // It has no AES-XCBC-MAC.
        Integrity::AesXcbc96 => "ANY 96 bit authentication [no checking]",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::EXAMPLE;

    #[test]
    fn wireshark_export_has_a_line_for_each_direction() {
        let config = StaticConfig::parse(EXAMPLE).unwrap();
        let lines = esp_sa(&config).unwrap();
        let expected = "\"IPv4\",\"192.0.2.1\",\"192.0.2.2\",\"0x00001001\",\
            \"AES-GCM with 16 octet ICV [RFC4106]\",\
            \"0x000102030405060708090a0b0c0d0e0f10111213\",\"NULL\",\"\"";
        assert_eq!(lines.lines().next(), Some(expected));
        assert_eq!(lines.lines().count(), 2);
    }

    #[test]
    fn wireshark_export_of_unknown_cipher_is_refused() {
        let long = EXAMPLE
            .replace("10111213\"", "101112131415161718191a1b1c1d1e1f20212223\"")
            .replace("aes-128-gcm", "chacha20-poly1305");
        let config = StaticConfig::parse(&long).unwrap();
        let refused = esp_sa(&config);
        assert!(matches!(refused, Err(ExportError::NoName(_))));
    }
}
