//! Content-addressed object storage on the local file system.
//!
//! An object is named by the SHA-256 of its bytes and never changes. Files lie two levels deep
//! (`ab/cd/abcd…`), so that no directory grows without bound. Objects enter as a second *link* to a
//! file on the same file system: a gigabyte of video is taken in without being copied.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use durable::SharedDisk;

/// The SHA-256 of an object's bytes; displayed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub [u8; 32]);

/// The text is not 64 hexadecimal digits.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not an object id (64 hexadecimal digits)")]
pub struct ObjectIdError;

impl ObjectId {
    /// The id of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
        let mut id = [0; 32];
        id.copy_from_slice(digest.as_ref());
        Self(id)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for ObjectId {
    type Err = ObjectIdError;

    fn from_str(text: &str) -> Result<Self, ObjectIdError> {
        let mut id = [0; 32];
        hex::decode_to_slice(text, &mut id).map_err(|_| ObjectIdError)?;
        Ok(Self(id))
    }
}

/// A directory of immutable objects.
#[derive(Clone, Debug)]
pub struct Objects {
    disk: SharedDisk,
    root: PathBuf,
    /// Folders, at most 65 792, whose names this process has made durable.
    folders: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Objects {
    /// Opens the store at `root`, creating the directory when it is missing.
    ///
    /// # Errors
    /// Any error of creating the directory.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        Self::open_on(durable::real(), root)
    }

    /// Does the same on another disk.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(disk: SharedDisk, root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        disk.create_dir_all(&root)?;
        Ok(Self {
            disk,
            root,
            folders: Arc::default(),
        })
    }

    /// Path of the object `id`, present or not.
    #[must_use]
    pub fn path(&self, id: &ObjectId) -> PathBuf {
        let name = id.to_string();
        let (first, rest) = name.split_at(2);
        let (second, _) = rest.split_at(2);
        self.root.join(first).join(second).join(&name)
    }

    /// Whether the object is here.
    ///
    /// # Errors
    /// Any error of looking, which does not say that it is missing.
    pub fn contains(&self, id: &ObjectId) -> io::Result<bool> {
        self.path(id).try_exists()
    }

    /// Opens the object for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no such object, else any error of opening it.
    pub fn get(&self, id: &ObjectId) -> io::Result<File> {
        File::open(self.path(id))
    }

    /// Removes the object; a missing one is no error. Not durable: a power cut may bring it back.
    ///
    /// # Errors
    /// Any other error of removing it.
    pub fn remove(&self, id: &ObjectId) -> io::Result<()> {
        self.disk.remove_file(&self.path(id))
    }

    /// Gives the synced file `from`, whose SHA-256 the caller has computed as `id`, a second name
    /// in the store; durable on return. An object that is here already stays as it is.
    ///
    /// A link, not a move: the caller removes `from` once its own records are on disk, and a
    /// crash in between leaves everything needed to do it again. `from` must lie on the store's
    /// file system.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn link(&self, id: &ObjectId, from: &Path) -> io::Result<()> {
        let path = self.path(id);
        let linked = self
            .make_folder_of(&path)
            .and_then(|()| self.disk.link(from, &path));
        let linked = match linked {
            // Somebody removed a folder that was there.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.folders().clear();
                self.make_folder_of(&path)?;
                self.disk.link(from, &path)
            }
            linked => linked,
        };
        match linked {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => self.disk.sync_parent(&path),
        }
    }

    fn folders(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the two folders above `path`, each one durable.
    fn make_folder_of(&self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).take(2).collect();
        above.reverse();
        for folder in above {
            if self.folders().contains(folder) {
                continue;
            }
            self.disk.create_dir(folder)?;
            self.disk.sync_parent(folder)?;
            self.folders().insert(folder.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn store() -> (tempfile::TempDir, Objects) {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::open(folder.path().join("archive")).unwrap();
        (folder, objects)
    }

    #[test]
    fn links_once_and_keeps_the_first_copy() {
        let (folder, objects) = store();
        let id = ObjectId::of(b"block");
        for _ in 0..2 {
            let incoming = folder.path().join("incoming");
            fs::write(&incoming, b"block").unwrap();
            objects.link(&id, &incoming).unwrap();
            fs::remove_file(&incoming).unwrap();
        }
        assert_eq!(
            io::read_to_string(objects.get(&id).unwrap()).unwrap(),
            "block"
        );
    }

    #[test]
    fn folder_that_was_removed_is_made_again() {
        let (folder, objects) = store();
        let incoming = folder.path().join("incoming");
        fs::write(&incoming, b"block").unwrap();
        let id = ObjectId::of(b"block");
        objects.link(&id, &incoming).unwrap();
        let path = objects.path(&id);
        fs::remove_dir_all(path.parent().unwrap().parent().unwrap()).unwrap();
        objects.link(&id, &incoming).unwrap();
        assert!(objects.contains(&id).unwrap());
        // A source that is missing is an error all the same.
        let other = ObjectId::of(b"other");
        let missing = objects.link(&other, &folder.path().join("none"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_missing_object_is_not_found() {
        let (_folder, objects) = store();
        let id = ObjectId::of(b"never stored");
        assert!(!objects.contains(&id).unwrap());
        assert_eq!(
            objects.get(&id).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn ids_are_read_strictly() {
        let id = ObjectId::of(b"x");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "00",
            "../../etc/passwd",
            &"0".repeat(63),
            &"g".repeat(64),
        ] {
            assert_eq!(bad.parse::<ObjectId>(), Err(ObjectIdError), "{bad}");
        }
    }
}
