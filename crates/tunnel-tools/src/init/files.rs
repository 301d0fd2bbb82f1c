//! Files that are written together, and never over others.

mod reserved;

use std::fs::{Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use commandline::{Failure, OrHint as _, Outcome};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

pub(crate) use self::reserved::Reserved;

/// Bytes of a file of ours at most, when it is compared.
const MAX_FILE: u64 = 4 << 20;
/// Write permission of group and others, and any permission of theirs.
const WRITE_OF_OTHERS: u32 = 0o022;
const ANY_OF_OTHERS: u32 = 0o077;
const OURS: &str = "look at who made it, put it aside, and use a folder that only you can write to (`chmod go-w`, where it is yours)";

/// Content of a file; none where it is made later.
type Content = Option<Zeroizing<Vec<u8>>>;

/// Files below one folder.
pub(crate) struct Files {
    folder: PathBuf,
    files: Vec<(String, Content)>,
}

impl Files {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            files: Vec::new(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Adds a file, or the content of one that was named before.
    pub(crate) fn add(&mut self, name: &str, bytes: Vec<u8>) {
        let bytes = Some(Zeroizing::new(bytes));
        match self.files.iter_mut().find(|(known, _)| known == name) {
            Some((_, content)) => *content = bytes,
            None => self.files.push((name.to_owned(), bytes)),
        }
    }

    /// Names a file whose content comes when everything else is known to be in order.
    pub(crate) fn later(&mut self, name: &str) {
        self.files.push((name.to_owned(), None));
    }

    pub(crate) fn text(&self, name: &str) -> Option<Zeroizing<String>> {
        let (_, content) = self.files.iter().find(|(known, _)| known == name)?;
        let bytes = content.as_ref()?.to_vec();
        String::from_utf8(bytes).ok().map(Zeroizing::new)
    }

    /// Reads a file that is there already. One that others could have put there, or change, is refused: the tunnel would be theirs.
    pub(crate) fn existing(&self, name: &str) -> Outcome<Content> {
        let found = self.read(name, WRITE_OF_OTHERS)?;
        Ok(found.map(|(bytes, _)| bytes))
    }

    /// Reads an existing secret, which only this user may read.
    pub(crate) fn existing_secret(&self, name: &str) -> Outcome<Content> {
        let found = self.read(name, ANY_OF_OTHERS)?;
        Ok(found.map(|(bytes, _)| bytes))
    }

    fn read(&self, name: &str, forbidden: u32) -> Outcome<Option<(Zeroizing<Vec<u8>>, Metadata)>> {
        let path = self.path(name);
        if !self.is_folder_ours(&path)? {
            return Ok(None);
        }
        let what = || format!("cannot read {}", path.display());
        let mut options = OpenOptions::new();
        // Opening a pipe would block for ever, and the target of a link may be another user's choice.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let file = match options.read(true).custom_flags(flags).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(_) if path.is_symlink() => return Err(foreign(&path, "is a link")),
            other => other.or_hint(what(), "check its rights")?,
        };
        let metadata = file.metadata().or_hint(what(), "check its rights")?;
        if !metadata.is_file() {
            let error = anyhow::anyhow!("{} is not a file", path.display());
            return Err(Failure::new(error, "name another folder"));
        }
        if !is_ours(&metadata, forbidden) {
            return Err(foreign(&path, "is not of this user alone"));
        }
        let mut bytes = Zeroizing::new(Vec::new());
        file.take(MAX_FILE.saturating_add(1))
            .read_to_end(&mut bytes)
            .or_hint(what(), "check its rights")?;
        if bytes.len() as u64 > MAX_FILE {
            let error = anyhow::anyhow!("{} is too long", path.display());
            return Err(Failure::new(error, "name another folder"));
        }
        Ok(Some((bytes, metadata)))
    }

    /// Checks whether the folder of a file exists. Each one from ours downwards must be this user's and writable for this user
    /// only: another user with write access could replace our files.
    fn is_folder_ours(&self, path: &Path) -> Outcome<bool> {
        let below = path.parent().into_iter().flat_map(Path::ancestors);
        let mut folders: Vec<&Path> = below
            .take_while(|at| at.starts_with(&self.folder))
            .collect();
        folders.reverse();
        for folder in folders {
            // The folder in which the command runs.
            let at = match folder.as_os_str().is_empty() {
                true => Path::new("."),
                false => folder,
            };
            let metadata = match std::fs::symlink_metadata(at) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                other => other.or_hint(
                    format!("cannot look at {}", at.display()),
                    "name another folder",
                )?,
            };
            if !metadata.is_dir() {
                return Err(foreign(at, "is not a folder"));
            }
            if !is_ours(&metadata, WRITE_OF_OTHERS) {
                return Err(foreign(
                    at,
                    "is not a folder that only this user can write to",
                ));
            }
        }
        Ok(true)
    }

    /// Fails where a file with other content exists.
    pub(crate) fn check(&self) -> Outcome {
        for (name, content) in &self.files {
            match (self.existing(name)?, content) {
                (Some(found), Some(bytes)) if found != *bytes => {}
                (Some(_), None) => {}
                _ => continue,
            }
            let error =
                anyhow::anyhow!("{} is there, with other content", self.path(name).display());
            return Err(Failure::new(
                error,
                "nothing was changed: name another folder, or put that file aside",
            ));
        }
        Ok(())
    }

    /// Makes the folders, and room for each file that is not there yet.
    pub(crate) fn reserve(&self) -> Outcome<Reserved> {
        let mut reserved = Reserved::default();
        for (name, content) in &self.files {
            if content.is_some() && self.existing(name)? == *content {
                continue;
            }
            let path = self.path(name);
            reserved.folder_of(&path)?;
            if !self.is_folder_ours(&path)? {
                return Err(foreign(&path, "has no folder any more"));
            }
            reserved.file(name, &path, content.as_ref().map(|bytes| bytes.len()))?;
        }
        Ok(reserved)
    }

    /// The content of a file.
    fn content(&self, name: &str) -> Option<&[u8]> {
        let (_, content) = self.files.iter().find(|(known, _)| known == name)?;
        content.as_ref().map(|bytes| bytes.as_slice())
    }

    /// Describes each file on a line.
    pub(crate) fn describe(&self) -> Vec<String> {
        let line = |(name, content): &(String, Content)| {
            let path = self.path(name);
            let is_same =
                content.is_some() && matches!(self.existing(name), Ok(found) if found == *content);
            match is_same {
                true => format!("file    {} is there already", path.display()),
                false => format!("file    {} (mode 0600)", path.display()),
            }
        };
        self.files.iter().map(line).collect()
    }

    pub(crate) fn names(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(name, _)| self.path(name)).collect()
    }
}

fn is_ours(metadata: &Metadata, forbidden: u32) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & forbidden == 0
}

fn foreign(path: &Path, what: &str) -> Failure {
    Failure::new(anyhow::anyhow!("{} {what}", path.display()), OURS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A folder of this user alone.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o700);
        folder
    }

    fn write(files: &Files) {
        files.check().unwrap();
        files.reserve().unwrap().write(files).unwrap();
    }

    #[test]
    fn files_are_written_once_and_never_over_others() {
        let folder = folder();
        let mut files = Files::new(&folder.path().join("new"));
        files.add("here/secret", b"one".to_vec());
        files.add("here/other", b"two".to_vec());
        write(&files);
        assert_eq!(mode(&files.path("here/secret")), 0o600);
        assert_eq!(mode(&files.path("here")), 0o700);
        let names = std::fs::read_dir(files.path("here")).unwrap().count();
        assert_eq!(names, 2, "files, and nothing else");
        // Writing the same content again succeeds.
        write(&files);
        files.add("here/secret", b"three".to_vec());
        files.add("here/another", b"four".to_vec());
        assert!(files.check().is_err());
        assert_eq!(std::fs::read(files.path("here/secret")).unwrap(), b"one");
        files.later("here/other2");
        std::fs::write(files.path("here/other2"), "").unwrap();
        files.add("here/secret", b"one".to_vec());
        assert!(files.check().unwrap_err().message().contains("other2"));
    }

    #[test]
    fn reserved_files_leave_nothing_unless_they_are_written() {
        let folder = folder();
        let mut files = Files::new(&folder.path().join("a/b"));
        files.later("here/key");
        let reserved = files.reserve().unwrap();
        assert!(files.path("here").is_dir());
        // Another process took the name meanwhile.
        std::fs::write(files.path("here/key"), "theirs").unwrap();
        files.add("here/key", b"ours".to_vec());
        assert!(reserved.write(&files).is_err());
        assert_eq!(std::fs::read(files.path("here/key")).unwrap(), b"theirs");
        std::fs::remove_file(files.path("here/key")).unwrap();
        drop(files.reserve().unwrap());
        assert!(folder.path().join("a").exists(), "made by an earlier call");
        let files = Files::new(&folder.path().join("c/d"));
        assert!(files.reserve().is_ok() && !folder.path().join("c").exists());
    }

    #[test]
    fn place_that_cannot_be_written_is_refused_before_anything_is_made() {
        let mut files = Files::new(Path::new("/proc/x"));
        files.later("key");
        assert!(files.reserve().is_err());
        let folder = folder();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let mut files = Files::new(&folder.path().join("file/x"));
        files.later("key");
        assert!(files.reserve().is_err());
    }

    #[test]
    fn secret_that_others_may_read_and_what_is_no_file_are_refused() {
        let folder = folder();
        let files = Files::new(folder.path());
        assert!(files.existing_secret("secret").unwrap().is_none());
        let path = files.path("secret");
        std::fs::write(&path, "known").unwrap();
        set_mode(&path, 0o640);
        assert!(files.existing_secret("secret").is_err());
        assert!(files.existing("secret").is_ok());
        set_mode(&path, 0o620);
        assert!(files.existing("secret").is_err());
        set_mode(&path, 0o600);
        assert_eq!(
            **files.existing_secret("secret").unwrap().unwrap(),
            *b"known"
        );
        std::fs::create_dir(files.path("folder")).unwrap();
        assert!(files.existing("folder").is_err());
        let pipe = files.path("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert!(files.existing("pipe").is_err());
    }

    #[test]
    fn link_and_folder_of_others_are_refused() {
        let folder = folder();
        let (own, elsewhere) = (folder.path().join("own"), folder.path().join("elsewhere"));
        std::fs::create_dir_all(own.join("here")).unwrap();
        std::fs::write(&elsewhere, "known to others").unwrap();
        set_mode(&elsewhere, 0o600);
        let files = Files::new(&own);
        symlink(&elsewhere, own.join("here/secret")).unwrap();
        let refused = files.existing_secret("here/secret").err().unwrap();
        assert!(refused.message().contains("is a link"), "{refused:?}");
        std::fs::remove_file(own.join("here/secret")).unwrap();
        for (open, mode) in [("here", 0o770), ("here", 0o707), ("", 0o777)] {
            set_mode(&own.join(open), mode);
            let refused = files.existing("here/secret").err().unwrap();
            assert!(refused.message().contains("only this user"), "{refused:?}");
            set_mode(&own.join(open), 0o755);
        }
        // The whole folder is behind a link.
        let link = folder.path().join("link");
        symlink(&own, &link).unwrap();
        let mut files = Files::new(&link);
        files.add("here/secret", b"new".to_vec());
        assert!(files.check().is_err() && files.reserve().is_err());
    }
}
