//! The package's files: which there may be, their hashes, and the signature over the list of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use pki::cert::Certificate;

use super::error::{self, CheckError};
use crate::digest::{Sha256, Sha256Digest};
use crate::manifest::Manifest;
use crate::package::{self, EPOCH, SIGNATURE, SUMS, medium_name};

/// Files that a package has, and no others beside `media/` and `crls/`.
const FILES: [&str; 20] = [
    "README.md",
    SUMS,
    SIGNATURE,
    "package.json",
    "block.cordon",
    "manifest.p7s",
    "manifest.json",
    "receipt.p7s",
    "receipt.json",
    "camera.pem",
    "centre.pem",
    "root.pem",
    "events.jsonl",
    "proofs.json",
    EPOCH,
    "checkpoint",
    "log.pem",
    "verify_package.py",
    "media",
    "crls",
];
/// Most files in `media` and `crls` together.
const MAX_FILES: usize = 4_096;
/// Largest file that is read into memory, in bytes: proofs of the most events in a package.
const MAX_READ: u64 = 256 << 20;
const BUFFER: usize = 64 * 1024;

/// A package's folder.
pub(super) struct Folder {
    path: PathBuf,
    /// Names with slashes, and sizes.
    files: BTreeMap<String, u64>,
}

impl Folder {
    /// Lists the files; links and unknown names are refused, so that nothing unsigned lies between.
    pub(super) fn open(path: &Path) -> Result<Self, CheckError> {
        let there = |name: &str| path.join(name).symlink_metadata().is_ok();
        if there("README.md") && !there("package.json") {
            return Err(CheckError::EarlierVersion);
        }
        let mut folder = Self {
            path: path.to_owned(),
            files: BTreeMap::new(),
        };
        folder.list("")?;
        for part in ["media", "crls"] {
            if path.join(part).symlink_metadata().is_ok() {
                folder.list(part)?;
            }
        }
        Ok(folder)
    }

    fn list(&mut self, part: &str) -> Result<(), CheckError> {
        let place = self.path.join(part);
        let io = |source| CheckError::Io {
            file: if part.is_empty() { "." } else { part }.to_owned(),
            source,
        };
        for item in fs::read_dir(&place).map_err(io)? {
            let item = item.map_err(io)?;
            let data = item.path().symlink_metadata().map_err(io)?;
            let unexpected =
                || CheckError::Unexpected(item.file_name().to_string_lossy().into_owned());
            let name = item.file_name().into_string().map_err(|_| unexpected())?;
            let top = part.is_empty();
            if top && !FILES.contains(&name.as_str()) {
                return Err(unexpected());
            }
            if top && data.is_dir() && (name == "media" || name == "crls") {
                continue;
            }
            if !data.is_file() || self.files.len() >= MAX_FILES {
                return Err(unexpected());
            }
            let full = if top { name } else { format!("{part}/{name}") };
            self.files.insert(full, data.len());
        }
        Ok(())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    fn open_file(&self, name: &str) -> Result<File, CheckError> {
        if !self.has(name) {
            return Err(CheckError::Missing(name.to_owned()));
        }
        File::open(self.path.join(name)).map_err(|source| CheckError::Io {
            file: name.to_owned(),
            source,
        })
    }

    /// A whole file, within bounds.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, CheckError> {
        let file = self.open_file(name)?;
        let mut bytes = Vec::new();
        file.take(MAX_READ.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|source| CheckError::Io {
                file: name.to_owned(),
                source,
            })?;
        if bytes.len() as u64 > MAX_READ {
            return Err(CheckError::TooLarge {
                file: name.to_owned(),
                max: MAX_READ,
            });
        }
        Ok(bytes)
    }

    /// Hash and size of a file of any size.
    pub(super) fn hash(&self, name: &str) -> Result<(Sha256Digest, u64), CheckError> {
        let mut file = self.open_file(name)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; BUFFER];
        let mut size: u64 = 0;
        loop {
            let n = crate::seal::read_full(&mut file, &mut buffer).map_err(|source| {
                CheckError::Io {
                    file: name.to_owned(),
                    source,
                }
            })?;
            if n == 0 {
                return Ok((hash.finish(), size));
            }
            size = size.saturating_add(n as u64);
            hash.update(buffer.get(..n).unwrap_or_default());
        }
    }

    /// Names of the revocation lists.
    pub(super) fn lists(&self) -> impl Iterator<Item = &str> {
        self.files
            .keys()
            .map(String::as_str)
            .filter(|name| name.starts_with("crls/"))
    }

    /// Holds every file against `SHA256SUMS` and gives its bytes, whose signature is checked later.
    pub(super) fn check_sums(&self) -> Result<Vec<u8>, CheckError> {
        let bytes = self.read(SUMS)?;
        let malformed = |problem: &str| error::malformed(SUMS, problem);
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed("not UTF-8"))?;
        let mut listed: BTreeMap<&str, Sha256Digest> = BTreeMap::new();
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            let (hash, name) = line.split_once(" *").ok_or_else(|| malformed("line"))?;
            let hash = hash.parse().map_err(|_| malformed("hash"))?;
            if listed.insert(name, hash).is_some() {
                return Err(malformed("a file listed twice"));
            }
        }
        for name in self.files.keys().filter(|n| *n != SUMS && *n != SIGNATURE) {
            let hash = listed
                .remove(name.as_str())
                .ok_or_else(|| CheckError::Unexpected(name.clone()))?;
            if self.hash(name)?.0 != hash {
                return Err(CheckError::Hash(name.clone()));
            }
        }
        match listed.first_key_value() {
            Some((name, _)) => Err(CheckError::Missing((*name).to_owned())),
            None => Ok(bytes),
        }
    }

    /// Checks the signature over the bytes of `SHA256SUMS`.
    pub(super) fn check_signature(
        &self,
        signer: &Certificate,
        sums: &[u8],
    ) -> Result<(), CheckError> {
        let signature = self.read(SIGNATURE)?;
        let spki = &signer.tbs_certificate.subject_public_key_info;
        package::verify_sums(spki, sums, &signature).map_err(|()| CheckError::SumsSignature)
    }

    /// Whether `media` holds exactly what the manifest names.
    pub(super) fn check_media(&self, manifest: &Manifest) -> Result<(), CheckError> {
        let mut expected = BTreeMap::new();
        for (index, medium) in manifest.media.iter().enumerate() {
            expected.insert(medium_name(index, &medium.name), medium);
        }
        for name in self.files.keys().filter(|n| n.starts_with("media/")) {
            let medium = expected
                .remove(name)
                .ok_or_else(|| CheckError::Unexpected(name.clone()))?;
            if self.hash(name)? != (medium.sha256, medium.size) {
                return Err(CheckError::Mismatch("medium and manifest"));
            }
        }
        match expected.into_keys().next() {
            Some(name) => Err(CheckError::Missing(name)),
            None => Ok(()),
        }
    }
}
