//! PKCS#12 export, for browsers and mail programs (RFC 7292): encrypted by PBES2 with AES-256 and
//! PBKDF2, authenticated by HMAC-SHA-256.

use p12_keystore::{EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKeyChain};

use crate::cert::CertificateChain;
use crate::key::PrivateKey;

/// Rounds of key derivation, for encryption and MAC each.
///
/// Far below what we use for keys at rest: the file is a transport form, protected by a long
/// random password, and programs that import it derive keys several times over.
const ROUNDS: u64 = 100_000;

/// Why no PKCS#12 file was made.
#[derive(Debug, thiserror::Error)]
pub enum Pkcs12Error {
    /// The leaf certificate belongs to another key.
    #[error("certificate and key do not belong together")]
    KeyMismatch,
    /// An empty password: some importers treat it as no password and refuse.
    #[error("password is empty")]
    EmptyPassword,
    /// Not PKCS#12 with one key and its certificates, or another password.
    #[error("not PKCS#12 that can be read, or another password: {reason}")]
    Decode {
        /// The decoder's word for it.
        reason: String,
    },
    /// The encoder failed.
    #[error("cannot encode PKCS#12: {reason}")]
    Encode {
        /// The encoder's word for it.
        reason: String,
    },
}

/// Packs key and chain (leaf first) into a PKCS#12 file under `friendly_name`.
///
/// `openssl pkcs12`, NSS `pk12util`, Windows 10 and macOS 14 or later read the result. The encoder
/// keeps copies of the key for the duration of the call which it does not wipe.
///
/// # Errors
/// [`Pkcs12Error`], one variant per reason.
pub fn export(
    key: &PrivateKey,
    chain: &CertificateChain,
    friendly_name: &str,
    password: &str,
) -> Result<Vec<u8>, Pkcs12Error> {
    if password.is_empty() {
        return Err(Pkcs12Error::EmptyPassword);
    }
    if chain.leaf().tbs_certificate.subject_public_key_info != key.spki() {
        return Err(Pkcs12Error::KeyMismatch);
    }
    let failed = |e: p12_keystore::error::Error| Pkcs12Error::Encode {
        reason: e.to_string(),
    };
    let certificates = chain
        .ders()
        .iter()
        .map(|der| p12_keystore::Certificate::from_der(der))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    // Ties certificate and key together; SHA-1's length is what importers are used to, the value
    // itself is only compared.
    let local_key_id = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.public_spki_der());
    let local_key_id = local_key_id.as_ref().get(..20).unwrap_or_default();
    let entry = PrivateKeyChain::new(key.to_pkcs8_der().as_slice(), local_key_id, certificates);
    let mut store = KeyStore::new();
    store.add_entry(friendly_name, KeyStoreEntry::PrivateKeyChain(entry));
    store
        .writer(password)
        .encryption_algorithm(EncryptionAlgorithm::PbeWithHmacSha256AndAes256)
        .encryption_iterations(ROUNDS)
        .mac_algorithm(MacAlgorithm::HmacSha256)
        .mac_iterations(ROUNDS)
        .write()
        .map_err(failed)
}

/// Reads key and chain (leaf first) from a PKCS#12 file; the decoder keeps copies of the key which it does
/// not wipe.
///
/// # Errors
/// [`Pkcs12Error::Decode`] or [`Pkcs12Error::KeyMismatch`].
pub fn import(bytes: &[u8], password: &str) -> Result<(PrivateKey, CertificateChain), Pkcs12Error> {
    let decode = |reason: String| Pkcs12Error::Decode { reason };
    let store = KeyStore::from_pkcs12(bytes, password).map_err(|e| decode(e.to_string()))?;
    let (_, entry) = store
        .private_key_chain()
        .ok_or_else(|| decode("no key".to_owned()))?;
    let key = PrivateKey::from_pkcs8_der(entry.key()).map_err(|e| decode(e.to_string()))?;
    let ders = entry.chain().iter().map(|c| c.as_der().to_vec());
    let chain = CertificateChain::from_ders(ders).map_err(|e| decode(e.to_string()))?;
    if chain.leaf().tbs_certificate.subject_public_key_info != key.spki() {
        return Err(Pkcs12Error::KeyMismatch);
    }
    Ok((key, chain))
}
