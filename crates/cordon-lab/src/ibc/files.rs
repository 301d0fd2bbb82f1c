//! Input and output of the tool: files appear complete under their name or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use commandline::{Failure, OrHint as _, Outcome};

/// Rights of a new file before the user's mask takes some away, as of any other program.
const NEW_FILE_MODE: u32 = 0o666;

/// Source of the data.
pub(super) struct Input {
    pub(super) reader: Box<dyn Read + Send>,
    /// Bytes, if that is known beforehand; for the progress bar only.
    pub(super) len: Option<u64>,
}

/// Whether `path` means standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens the file `path`, or standard input for `-`.
pub(super) fn open(path: &Path) -> Outcome<Input> {
    if is_standard(path) {
        let reader = Box::new(io::stdin());
        return Ok(Input { reader, len: None });
    }
    let file = File::open(path).and_then(|file| {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        Ok((file, metadata))
    });
    let (file, metadata) = file.or_hint(
        format!("cannot read {}", path.display()),
        "check the file's name and rights",
    )?;
    let len = metadata.is_file().then_some(metadata.len());
    let reader = Box::new(file);
    Ok(Input { reader, len })
}

/// Destination of the data.
pub(super) enum Output {
    /// Standard output, a pipe or a device: what was written cannot be taken back.
    Direct,
    /// A temporary file beside the target, removed when this value is dropped.
    Atomic {
        temporary: TempPath,
        target: PathBuf,
    },
}

impl Output {
    /// Prepares writing to `path`, or to standard output for `-`.
    ///
    /// The writer is apart from the file's name, so that whoever keeps the name can give up the
    /// output while another thread is still stuck in writing to it.
    pub(super) fn create(path: &Path) -> Outcome<(Self, Writer)> {
        if is_standard(path) {
            return Ok((Self::Direct, Writer::Standard(io::stdout())));
        }
        let failed = |e: io::Error| {
            Failure::new(
                anyhow::Error::new(e).context(format!("cannot write {}", path.display())),
                "check the folder's name and rights, and the room on the disk",
            )
        };
        // A link is followed: its target is replaced, not the link.
        let target = match std::fs::canonicalize(path) {
            Ok(target) => target,
            Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(e) => return Err(failed(e)),
        };
        let existing = std::fs::metadata(&target).ok();
        let mode = match &existing {
            Some(metadata) if metadata.is_dir() => {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            Some(metadata) if !metadata.is_file() => {
                let file = File::options().write(true).open(&target).map_err(failed)?;
                return Ok((Self::Direct, Writer::File(file)));
            }
            Some(metadata) => metadata.permissions().mode() & 0o777,
            None => NEW_FILE_MODE,
        };
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let (file, temporary) = tempfile::Builder::new()
            .prefix(".cordon-ibc-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder)
            .map_err(failed)?
            .into_parts();
        Ok((Self::Atomic { temporary, target }, Writer::File(file)))
    }

    /// Puts the file under its name, on the disk.
    pub(super) fn finish(self, writer: &Writer) -> Outcome {
        let Self::Atomic { temporary, target } = self else {
            return Ok(());
        };
        let synced = match writer {
            Writer::File(file) => file.sync_all(),
            Writer::Standard(_) => Ok(()),
        };
        synced
            .and_then(|()| temporary.persist(&target).map_err(|e| e.error))
            .and_then(|()| durable::sync_parent(&target))
            .or_hint(
                format!("cannot write {}", target.display()),
                "check the room on the disk; nothing was kept",
            )
    }
}

/// Destination of the bytes.
pub(super) enum Writer {
    Standard(io::Stdout),
    File(File),
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::File(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_when_it_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let (output, mut writer) = Output::create(&path).unwrap();
        writer.write_all(b"content").unwrap();
        assert!(!path.exists());
        output.finish(&writer).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
        assert_eq!(names(folder.path()), ["out"]);
    }

    #[test]
    fn a_file_given_up_leaves_nothing_and_the_old_one_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::fs::write(&path, b"old").unwrap();
        let (output, mut writer) = Output::create(&path).unwrap();
        writer.write_all(b"new").unwrap();
        drop(output);
        writer.write_all(b"still stuck in writing").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["out"]);
    }

    #[test]
    fn links_rights_and_devices_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let link = folder.path().join("link");
        std::fs::write(&path, b"old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("out", &link).unwrap();
        let (output, mut writer) = Output::create(&link).unwrap();
        writer.write_all(b"new").unwrap();
        output.finish(&writer).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (output, writer) = Output::create(Path::new("/dev/null")).unwrap();
        assert!(matches!(output, Output::Direct));
        output.finish(&writer).unwrap();
        assert!(Output::create(folder.path()).is_err());
        assert!(Output::create(&folder.path().join("no/such/folder")).is_err());
    }
}
