//! Writing the package's files, hashing each on the way.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pki::key::PrivateKey;

use super::ExportError;
use crate::digest::{HashingWriter, Sha256Digest};

pub(super) const SUMS: &str = "SHA256SUMS";
pub(super) const SIGNATURE: &str = "SHA256SUMS.sig";

/// A package being written, in a folder beside its place.
pub(super) struct Folder {
    partial: PathBuf,
    target: PathBuf,
    sums: BTreeMap<String, Sha256Digest>,
    complete: bool,
}

impl Folder {
    pub(super) fn begin(target: &Path) -> Result<Self, ExportError> {
        if target.exists() {
            return Err(ExportError::Exists {
                path: target.to_owned(),
            });
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = target.with_file_name(name);
        // What an interrupted export left behind.
        match fs::remove_dir_all(&partial) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(ExportError::Io(e)),
            _ => {}
        }
        fs::create_dir_all(&partial).map_err(ExportError::Io)?;
        Ok(Self {
            partial,
            target: target.to_owned(),
            sums: BTreeMap::new(),
            complete: false,
        })
    }

    /// Writes file `name` through `fill`; the result is its SHA-256.
    pub(super) fn stream(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), ExportError>,
    ) -> Result<Sha256Digest, ExportError> {
        let path = self.partial.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(ExportError::Io)?;
        }
        let mut file = File::create_new(&path).map_err(ExportError::Io)?;
        let mut out = HashingWriter::new(&mut file);
        fill(&mut out)?;
        let (hash, _) = out.finish();
        file.sync_all().map_err(ExportError::Io)?;
        self.sums.insert(name.to_owned(), hash);
        Ok(hash)
    }

    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), ExportError> {
        self.stream(name, |out| out.write_all(bytes).map_err(ExportError::Io))
            .map(|_| ())
    }

    pub(super) fn copy(&mut self, name: &str, from: &Path) -> Result<Sha256Digest, ExportError> {
        self.stream(name, |out| {
            let mut source = File::open(from).map_err(ExportError::Io)?;
            io::copy(&mut source, out).map_err(ExportError::Io)?;
            Ok(())
        })
    }

    /// Files the folder will have once README, hashes and signature are there.
    pub(super) fn final_count(&self) -> usize {
        self.sums.len().saturating_add(3)
    }

    /// Writes and signs the list of hashes, and moves the package to its place.
    pub(super) fn finish(mut self, key: &PrivateKey) -> Result<(), ExportError> {
        let mut sums = String::new();
        for (name, hash) in &self.sums {
            // The form of sha256sum in binary mode; names have no character it would escape.
            let _ = writeln!(sums, "{hash} *{name}");
        }
        let signature = key.sign(sums.as_bytes()).map_err(ExportError::Sign)?;
        self.write(SUMS, sums.as_bytes())?;
        self.write(SIGNATURE, &signature)?;
        fs::rename(&self.partial, &self.target).map_err(ExportError::Io)?;
        self.complete = true;
        self.target
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .map_or_else(|| File::open("."), File::open)
            .and_then(|folder| folder.sync_all())
            .map_err(ExportError::Io)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.complete {
            // Decrypted media must not lie around after a failed export.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}
