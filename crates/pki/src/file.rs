//! Keys and certificates in files: written durably, read with a bound.

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use durable::{Disk, RealDisk};

use crate::cert::{CertError, CertificateChain};
use crate::key::{KeyError, Passphrase, PrivateKey};

/// Mode of private key files: the owner only.
const PRIVATE_MODE: u32 = 0o600;
/// Mode of public files.
const PUBLIC_MODE: u32 = 0o644;
/// Largest file read, in bytes.
const MAX_FILE_LEN: u64 = 1024 * 1024;

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Larger than any key or chain.
    #[error("{} is too large", path.display())]
    TooLarge { path: PathBuf },
    /// Others than the owner can read a private key.
    #[error("{} can be read by others (mode {mode:04o}), expected 0600", path.display())]
    TooOpen { path: PathBuf, mode: u32 },
    /// The contents are not a key, or not for this passphrase.
    #[error("cannot use the key in {}", path.display())]
    Key { path: PathBuf, source: KeyError },
    /// The contents are not certificates.
    #[error("cannot use the certificates in {}", path.display())]
    Certificate { path: PathBuf, source: CertError },
}

/// Writes `contents` so that a crash at any instant leaves either the old file or the new one.
///
/// When this returns, the contents are durable. `mode` are the permission bits of the file.
///
/// # Errors
/// [`FileError::Io`]; no temporary file is left behind then.
pub fn write_atomic(path: &Path, contents: &[u8], mode: u32) -> Result<(), FileError> {
    write_atomic_on(&RealDisk, path, contents, mode)
}

/// Does the same on another disk.
///
/// # Errors
/// As [`write_atomic`].
pub fn write_atomic_on(
    disk: &dyn Disk,
    path: &Path,
    contents: &[u8],
    mode: u32,
) -> Result<(), FileError> {
    let written = disk.write_atomic(path, contents, mode);
    written.map_err(|source| FileError::Io {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

/// Stores `key` encrypted under `passphrase`, mode 0600.
///
/// # Errors
/// [`FileError::Io`] or [`FileError::Key`].
pub fn save_private(
    path: &Path,
    key: &PrivateKey,
    passphrase: &Passphrase,
) -> Result<(), FileError> {
    save_private_on(&RealDisk, path, key, passphrase)
}

/// Does the same on another disk.
///
/// # Errors
/// As [`save_private`].
pub fn save_private_on(
    disk: &dyn Disk,
    path: &Path,
    key: &PrivateKey,
    passphrase: &Passphrase,
) -> Result<(), FileError> {
    let pem = key
        .to_encrypted_pem(passphrase)
        .map_err(|source| FileError::Key {
            path: path.to_owned(),
            source,
        })?;
    write_atomic_on(disk, path, pem.as_bytes(), PRIVATE_MODE)
}

/// Reads a key stored by [`save_private`] or by `openssl pkcs8 -topk8`.
///
/// # Errors
/// [`FileError`]; [`FileError::TooOpen`] if group or others have any access to the file.
pub fn load_private(path: &Path, passphrase: &Passphrase) -> Result<PrivateKey, FileError> {
    let text = read(path, true)?;
    PrivateKey::from_encrypted_pem(&text, passphrase).map_err(|source| FileError::Key {
        path: path.to_owned(),
        source,
    })
}

/// Stores a chain as PEM, leaf first, mode 0644.
///
/// # Errors
/// [`FileError::Io`] or [`FileError::Certificate`].
pub fn save_chain(path: &Path, chain: &CertificateChain) -> Result<(), FileError> {
    save_chain_on(&RealDisk, path, chain)
}

/// Does the same on another disk.
///
/// # Errors
/// As [`save_chain`].
pub fn save_chain_on(
    disk: &dyn Disk,
    path: &Path,
    chain: &CertificateChain,
) -> Result<(), FileError> {
    let pem = chain.to_pem().map_err(|source| FileError::Certificate {
        path: path.to_owned(),
        source,
    })?;
    write_atomic_on(disk, path, pem.as_bytes(), PUBLIC_MODE)
}

/// Reads concatenated PEM certificates.
///
/// # Errors
/// [`FileError::Io`], [`FileError::TooLarge`] or [`FileError::Certificate`].
pub fn load_chain(path: &Path) -> Result<CertificateChain, FileError> {
    CertificateChain::from_pem(&read(path, false)?).map_err(|source| FileError::Certificate {
        path: path.to_owned(),
        source,
    })
}

fn read(path: &Path, private: bool) -> Result<String, FileError> {
    let failed = |source| FileError::Io {
        operation: "read",
        path: path.to_owned(),
        source,
    };
    let (file, metadata) = durable::open_regular(path).map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if private && mode & 0o077 != 0 {
        return Err(FileError::TooOpen {
            path: path.to_owned(),
            mode,
        });
    }
    let mut text = String::new();
    file.take(MAX_FILE_LEN.saturating_add(1))
        .read_to_string(&mut text)
        .map_err(failed)?;
    if u64::try_from(text.len()).is_ok_and(|len| len <= MAX_FILE_LEN) {
        Ok(text)
    } else {
        Err(FileError::TooLarge {
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::key::KeyAlgorithm;

    #[test]
    fn private_key_is_stored_for_the_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device.key");
        let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
        save_private(&path, &key, &"secret".into()).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let again = load_private(&path, &"secret".into()).unwrap();
        assert_eq!(again.public_spki_der(), key.public_spki_der());
        assert!(matches!(
            load_private(&path, &"guess".into()),
            Err(FileError::Key {
                source: KeyError::WrongPassphrase,
                ..
            })
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            load_private(&path, &"secret".into()),
            Err(FileError::TooOpen { mode: 0o640, .. })
        ));
    }

    #[test]
    fn missing_and_oversized_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chain.pem");
        assert!(matches!(load_chain(&path), Err(FileError::Io { .. })));
        fs::write(&path, vec![b'x'; 1024 * 1024 + 1]).unwrap();
        assert!(matches!(load_chain(&path), Err(FileError::TooLarge { .. })));
        fs::write(&path, "no certificate").unwrap();
        assert!(matches!(
            load_chain(&path),
            Err(FileError::Certificate {
                source: CertError::Empty,
                ..
            })
        ));
    }
}
