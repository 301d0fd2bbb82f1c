//! RSA keys that are publicly known, from lists in the format of Debian's `openssl-blacklist`.
//!
//! OpenSSL on Debian made keys from 2006 to 2008 with nothing random in them but the number of a process (CVE-2008-0166), so
//! there are lists of all of them. They say nothing about keys on elliptic curves, which that OpenSSL made as well.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use const_oid::db::rfc5912::RSA_ENCRYPTION;
use der::Decode as _;
use spki::SubjectPublicKeyInfoRef;

use super::algorithm::RsaPublicKey;

/// Octets of a fingerprint: the last ones of a SHA-1.
const LEN: usize = 10;
/// Largest file read, in bytes. Debian's three lists together have under four million.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// Keys of all files at most, at ten bytes each.
const MAX_KEYS: usize = 4_000_000;

type Fingerprint = [u8; LEN];

/// Fingerprints of keys that no certificate may have.
#[derive(Clone, Debug, Default)]
pub struct KeyList(Vec<Fingerprint>);

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyListError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} has more than {MAX_FILE} bytes", .0.display())]
    TooLong(PathBuf),
    /// Neither a comment nor the last twenty digits of a SHA-1.
    #[error("{}:{line} is no fingerprint of twenty lower-case hexadecimal digits", path.display())]
    Line { path: PathBuf, line: usize },
    #[error("the lists have more than {MAX_KEYS} keys")]
    TooMany,
}

impl KeyList {
    /// Reads all lists: lines with the last twenty hexadecimal digits of a key's fingerprint, and comments after `#`.
    ///
    /// # Errors
    /// [`KeyListError`]; a line that cannot be read is none to be passed over, as its key would be let in.
    pub fn read(files: &[PathBuf]) -> Result<Self, KeyListError> {
        let mut all = Vec::new();
        for path in files {
            for (number, line) in text(path)?.lines().enumerate() {
                let line = line.trim_end();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let mut fingerprint = [0; LEN];
                hex::decode_to_slice(line, &mut fingerprint).map_err(|_| KeyListError::Line {
                    path: path.clone(),
                    line: number.saturating_add(1),
                })?;
                if all.len() >= MAX_KEYS {
                    return Err(KeyListError::TooMany);
                }
                all.push(fingerprint);
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(Self(all))
    }

    /// Whether the key of a `SubjectPublicKeyInfo` in DER is on a list. Keys that are not RSA's are on none.
    #[must_use]
    pub fn has(&self, spki: &[u8]) -> bool {
        !self.0.is_empty()
            && fingerprint(spki).is_some_and(|key| self.0.binary_search(&key).is_ok())
    }
}

fn text(path: &Path) -> Result<String, KeyListError> {
    let read = |source| KeyListError::Read {
        path: path.to_owned(),
        source,
    };
    if std::fs::metadata(path).map_err(read)?.len() > MAX_FILE {
        return Err(KeyListError::TooLong(path.to_owned()));
    }
    std::fs::read_to_string(path).map_err(read)
}

/// The end of the SHA-1 of what `openssl rsa -noout -modulus` prints.
fn fingerprint(spki: &[u8]) -> Option<Fingerprint> {
    let spki = SubjectPublicKeyInfoRef::from_der(spki).ok()?;
    if spki.algorithm.oid != RSA_ENCRYPTION {
        return None;
    }
    let key = RsaPublicKey::from_der(spki.subject_public_key.raw_bytes()).ok()?;
    let line = format!("Modulus={}\n", hex::encode_upper(key.modulus.as_bytes()));
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, line.as_bytes());
    hash.as_ref().last_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use der::Encode as _;

    use super::*;
    use crate::{KeyAlgorithm, PrivateKey};

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn read(text: &str) -> Result<KeyList, KeyListError> {
        KeyList::read(&[file(text).path().to_owned()])
    }

    /// As the comment at the head of such lists has it.
    fn by_openssl(key: &PrivateKey) -> String {
        let der = file("");
        std::fs::write(der.path(), &*key.to_pkcs8_der()).unwrap();
        let mut command = Command::new("openssl");
        command.args(["rsa", "-noout", "-modulus", "-inform", "DER", "-in"]);
        let printed = command
            .arg(der.path())
            .output()
            .expect("openssl is needed by this test");
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &printed.stdout);
        hex::encode(hash.as_ref())[20..].to_owned()
    }

    #[test]
    fn key_is_found_by_the_fingerprint_that_openssl_gives_and_no_other_is() {
        let key = PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap();
        let other = PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap();
        let curve = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        let listed = by_openssl(&key);
        let list = read(&format!("# comment\n\n{listed}\n{}\n", "0".repeat(20))).unwrap();
        let has = |key: &PrivateKey| list.has(&key.spki().to_der().unwrap());
        assert_eq!([has(&key), has(&other), has(&curve)], [true, false, false]);
        assert!(!KeyList::default().has(&key.spki().to_der().unwrap()));
        assert!(!list.has(b"no key"));
    }

    #[test]
    fn list_with_an_unreadable_line_is_refused() {
        for bad in ["0", "xx345678901234567890", "0123456789abcdef01234"] {
            let refused = read(&format!("{}\n{bad}\n", "0".repeat(20)));
            let is_named = matches!(refused, Err(KeyListError::Line { line: 2, .. }));
            assert!(is_named, "{bad}");
        }
        let missing = KeyList::read(&["/nonexistent/list".into()]);
        assert!(matches!(missing, Err(KeyListError::Read { .. })));
    }
}
