//! Writing the package's files, hashing each on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use durable::{DiskFile, SharedDisk};
use pki::key::PrivateKey;

use super::error::ExportError;
use crate::digest::{HashingWriter, Sha256Digest};
use crate::package::{SIGNATURE, SUMS};

/// Modes of a package's files and folders: it holds decrypted media, so only its owner reads it.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Writes one file's content.
pub type Fill<'a> = dyn FnMut(&mut dyn Write) -> Result<(), ExportError> + 'a;

/// Destination of a package's files: one after the other, each from beginning to end.
pub trait Target {
    /// Takes the file `name` (with slashes), whose bytes `fill` writes.
    ///
    /// # Errors
    /// That of `fill`, or [`ExportError::Io`].
    fn file(&mut self, name: &str, fill: &mut Fill<'_>) -> Result<(), ExportError>;

    /// Ends a complete package.
    ///
    /// # Errors
    /// [`ExportError::Io`].
    fn finish(&mut self) -> Result<(), ExportError>;
}

/// A package being written to its target.
pub(super) struct Writer<'a> {
    target: &'a mut dyn Target,
    sums: BTreeMap<String, Sha256Digest>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(target: &'a mut dyn Target) -> Self {
        Self {
            target,
            sums: BTreeMap::new(),
        }
    }

    /// Writes file `name` through `fill`; the result is its SHA-256.
    pub(super) fn stream(
        &mut self,
        name: &str,
        mut fill: impl FnMut(&mut dyn Write) -> Result<(), ExportError>,
    ) -> Result<Sha256Digest, ExportError> {
        let mut hash = Sha256Digest::ZERO;
        self.target.file(name, &mut |out| {
            let mut hashing = HashingWriter::new(out);
            fill(&mut hashing)?;
            hash = hashing.finish().0;
            Ok(())
        })?;
        self.sums.insert(name.to_owned(), hash);
        Ok(hash)
    }

    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), ExportError> {
        self.stream(name, |out| out.write_all(bytes).map_err(ExportError::Io))
            .map(|_| ())
    }

    /// Writes and signs the list of hashes, and ends the package.
    pub(super) fn finish(mut self, key: &PrivateKey) -> Result<(), ExportError> {
        let mut sums = String::new();
        for (name, hash) in &self.sums {
            // The form of sha256sum in binary mode; names have no character it would escape.
            let _ = writeln!(sums, "{hash} *{name}");
        }
        let signature = key.sign(sums.as_bytes()).map_err(ExportError::Sign)?;
        self.write(SUMS, sums.as_bytes())?;
        self.write(SIGNATURE, &signature)?;
        self.target.finish()
    }
}

/// A new folder.
///
/// Its files have no names until all of them are complete (`O_TMPFILE`), so that nothing is left of
/// an export that is killed half-way but an empty folder. On a file system without such files
/// (NFS), they are written into `NAME.partial`, which the next export to this name removes. Either
/// way the folder is renamed when complete: a package is whole or absent.
pub struct FolderTarget {
    disk: SharedDisk,
    partial: PathBuf,
    target: PathBuf,
    /// Complete files without names, and the names that they get.
    unnamed: Vec<(DiskFile, PathBuf)>,
    /// Folders of the package.
    folders: BTreeSet<PathBuf>,
    complete: bool,
}

impl FolderTarget {
    /// Begins the folder `target`, which must not exist.
    ///
    /// # Errors
    /// [`ExportError::Exists`] or [`ExportError::Io`].
    pub fn begin(target: &Path) -> Result<Self, ExportError> {
        Self::begin_on(durable::real(), target)
    }

    /// Does the same on another disk.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_on(disk: SharedDisk, target: &Path) -> Result<Self, ExportError> {
        if target.symlink_metadata().is_ok() {
            return Err(ExportError::Exists {
                path: target.to_owned(),
            });
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = target.with_file_name(name);
        // What an interrupted export left behind.
        disk.remove_dir_all(&partial).map_err(ExportError::Io)?;
        disk.create_dir_all(&partial).map_err(ExportError::Io)?;
        // Before anything is in it.
        make_private(&partial)?;
        Ok(Self {
            disk,
            folders: BTreeSet::from([partial.clone()]),
            partial,
            target: target.to_owned(),
            unnamed: Vec::new(),
            complete: false,
        })
    }
}

impl Target for FolderTarget {
    fn file(&mut self, name: &str, fill: &mut Fill<'_>) -> Result<(), ExportError> {
        let path = self.partial.join(name);
        if let Some(folder) = path.parent()
            && !self.folders.contains(folder)
        {
            self.disk.create_dir(folder).map_err(ExportError::Io)?;
            make_private(folder)?;
            self.folders.insert(folder.to_owned());
        }
        let unnamed = self.disk.create_unnamed(&self.partial, FILE_MODE);
        let unnamed = unnamed.map_err(ExportError::Io)?;
        let is_unnamed = unnamed.is_some();
        let file = match unnamed {
            Some(file) => file,
            None => self
                .disk
                .create(&path, FILE_MODE)
                .map_err(ExportError::Io)?,
        };
        fill(&mut self.disk.writer(&file))?;
        self.disk.sync(&file).map_err(ExportError::Io)?;
        if is_unnamed {
            self.unnamed.push((file, path));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ExportError> {
        for (file, path) in self.unnamed.drain(..) {
            self.disk.name(&file, &path).map_err(ExportError::Io)?;
        }
        // Before the rename: a power cut must not leave a part of the files under the package's name.
        for folder in &self.folders {
            self.disk.sync_dir(folder).map_err(ExportError::Io)?;
        }
        let renamed = self.disk.rename(&self.partial, &self.target);
        renamed.map_err(ExportError::Io)?;
        self.complete = true;
        let synced = self.disk.sync_parent(&self.target);
        synced.map_err(ExportError::Io)
    }
}

impl Drop for FolderTarget {
    fn drop(&mut self) {
        if !self.complete {
            // Decrypted media must not lie around after a failed export.
            let _ = self.disk.remove_dir_all(&self.partial);
        }
    }
}

fn make_private(folder: &Path) -> Result<(), ExportError> {
    let set = fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE));
    set.map_err(ExportError::Io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_folder_holds_no_byte_of_its_files() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("package");
        let mut target = FolderTarget::begin(&path).unwrap();
        target
            .file("media/01-a.jpg", &mut |out| {
                out.write_all(b"plaintext").map_err(ExportError::Io)
            })
            .unwrap();
        // As after `kill -9`: nothing of the target runs any more.
        let partial = place.path().join("package.partial");
        assert_eq!(fs::read_dir(partial.join("media")).unwrap().count(), 0);
        target.finish().unwrap();
        assert_eq!(fs::read(path.join("media/01-a.jpg")).unwrap(), b"plaintext");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("media")), 0o700);
        assert_eq!(mode(&path.join("media/01-a.jpg")), 0o600);
        assert!(!partial.exists());
        assert!(matches!(
            FolderTarget::begin(&path),
            Err(ExportError::Exists { .. })
        ));
    }
}
