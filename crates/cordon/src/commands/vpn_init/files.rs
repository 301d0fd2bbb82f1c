//! Files that are written together, and never over others.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::control::write_new;
use crate::failure::{Failure, OrHint as _, Outcome};

/// Bytes of a file of ours at most, when it is compared.
const MAX_FILE: u64 = 4 << 20;
/// Bytes of a block of a tar archive (POSIX.1-2001, pax, "ustar Interchange Format").
const BLOCK: usize = 512;

/// Content of a file; none where it is made later.
type Content = Option<Zeroizing<Vec<u8>>>;

/// Files below one folder.
pub(super) struct Files {
    folder: PathBuf,
    files: Vec<(String, Content)>,
}

impl Files {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            files: Vec::new(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Adds a file, or the content of one that was named before.
    pub(super) fn add(&mut self, name: &str, bytes: Vec<u8>) {
        let bytes = Some(Zeroizing::new(bytes));
        match self.files.iter_mut().find(|(known, _)| known == name) {
            Some((_, content)) => *content = bytes,
            None => self.files.push((name.to_owned(), bytes)),
        }
    }

    /// Names a file whose content comes when everything else is known to be in order.
    pub(super) fn later(&mut self, name: &str) {
        self.files.push((name.to_owned(), None));
    }

    pub(super) fn text(&self, name: &str) -> Option<Zeroizing<String>> {
        let (_, content) = self.files.iter().find(|(known, _)| known == name)?;
        let bytes = content.as_ref()?.to_vec();
        String::from_utf8(bytes).ok().map(Zeroizing::new)
    }

    /// Reads a file that is there already.
    pub(super) fn existing(&self, name: &str) -> Outcome<Content> {
        self.read(name).map(|found| found.map(|(bytes, _)| bytes))
    }

    /// Reads a secret that is there already. One that others could have put there, or know, is refused: the tunnel would be theirs.
    pub(super) fn existing_secret(&self, name: &str) -> Outcome<Content> {
        use std::os::unix::fs::MetadataExt as _;
        let Some((bytes, metadata)) = self.read(name)? else {
            return Ok(None);
        };
        let ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if !ours || metadata.mode() & 0o077 != 0 {
            let what = format!("{} is not of this user alone", self.path(name).display());
            return Err(Failure::new(
                anyhow::anyhow!(what),
                "look at who made it, put it aside, and use a folder that only you can write to",
            ));
        }
        Ok(Some(bytes))
    }

    fn read(&self, name: &str) -> Outcome<Option<(Zeroizing<Vec<u8>>, std::fs::Metadata)>> {
        use std::io::Read as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.path(name);
        let what = || format!("cannot read {}", path.display());
        let mut options = std::fs::OpenOptions::new();
        // A pipe in the way would have us wait for ever.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = match options.read(true).custom_flags(flags).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.or_hint(what(), "check its rights")?,
        };
        let metadata = file.metadata().or_hint(what(), "check its rights")?;
        if !metadata.is_file() {
            let error = anyhow::anyhow!("{} is no file", path.display());
            return Err(Failure::new(error, "name another folder"));
        }
        let mut bytes = Zeroizing::new(Vec::new());
        file.take(MAX_FILE)
            .read_to_end(&mut bytes)
            .or_hint(what(), "check its rights")?;
        Ok(Some((bytes, metadata)))
    }

    /// Refuses to go on where another file lies in the way.
    pub(super) fn check(&self) -> Outcome {
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

    /// Writes what is not there yet, each for its owner alone.
    pub(super) fn write(&self) -> Outcome {
        for (name, content) in &self.files {
            let path = self.path(name);
            let Some(bytes) = content else { continue };
            if self.existing(name)?.as_ref() == Some(bytes) {
                continue;
            }
            if let Some(folder) = path.parent() {
                durable::create_dir_all(folder).or_hint(
                    format!("cannot make {}", folder.display()),
                    "check the parent folder",
                )?;
            }
            write_new(&path, bytes)?;
        }
        Ok(())
    }

    /// Describes each file on a line.
    pub(super) fn describe(&self) -> Vec<String> {
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

    pub(super) fn names(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(name, _)| self.path(name)).collect()
    }
}

/// Makes a tar archive (ustar) of a folder with files that only their owner may read. Nothing in it depends on time or user.
pub(super) fn tar(folder: &str, files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = header(&format!("{folder}/"), 0, b'5', 0o700);
    for (name, bytes) in files {
        archive.extend(header(
            &format!("{folder}/{name}"),
            bytes.len(),
            b'0',
            0o600,
        ));
        archive.extend(bytes);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    // Two empty blocks are the end.
    archive.resize(archive.len().saturating_add(2 * BLOCK), 0);
    archive
}

/// Makes a block that describes a file: numbers are octal text, and the checksum is over itself as spaces.
fn header(name: &str, len: usize, kind: u8, mode: u32) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK);
    let mut field = |bytes: &[u8], width: usize| {
        block.extend(bytes.iter().take(width));
        let rest = width.saturating_sub(bytes.len());
        block.resize(block.len().saturating_add(rest), 0);
    };
    field(name.as_bytes(), 100);
    field(format!("{mode:07o}").as_bytes(), 8);
    field(b"0000000", 8);
    field(b"0000000", 8);
    field(format!("{len:011o}").as_bytes(), 12);
    field(b"00000000000", 12);
    field(b"        ", 8);
    field(&[kind], 1);
    field(b"", 100);
    field(b"ustar\x0000", 8);
    block.resize(BLOCK, 0);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let text = format!("{sum:06o}\0 ");
    block.splice(148..156, text.bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_written_once_and_never_over_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(&folder.path().join("new"));
        files.add("here/secret", b"one".to_vec());
        files.add("here/other", b"two".to_vec());
        files.check().unwrap();
        files.write().unwrap();
        assert_eq!(mode(&files.path("here/secret")), 0o600);
        // The same again is no harm.
        files.check().unwrap();
        files.write().unwrap();
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
    fn secret_that_others_may_read_and_what_is_no_file_are_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(folder.path());
        assert!(files.existing_secret("secret").unwrap().is_none());
        let path = files.path("secret");
        std::fs::write(&path, "known").unwrap();
        let set = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).unwrap();
        };
        set(0o640);
        assert!(files.existing_secret("secret").is_err());
        set(0o600);
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
    fn archive_is_read_by_tar() {
        let folder = tempfile::tempdir().unwrap();
        let big = vec![7; 1000];
        let archive = tar(
            "there",
            &[("vpn.toml", b"text".to_vec()), ("secret", big.clone())],
        );
        assert_eq!(archive.len() % BLOCK, 0);
        let file = folder.path().join("there.tar");
        std::fs::write(&file, archive).unwrap();
        let done = std::process::Command::new("tar")
            .arg("-xf")
            .arg(&file)
            .arg("-C")
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        let inside = folder.path().join("there");
        assert_eq!(std::fs::read(inside.join("vpn.toml")).unwrap(), b"text");
        assert_eq!(std::fs::read(inside.join("secret")).unwrap(), big);
        assert_eq!(
            (mode(&inside), mode(&inside.join("secret"))),
            (0o700, 0o600)
        );
    }
}
