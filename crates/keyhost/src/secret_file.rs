//! Files with secrets, and other files that a configuration names.
//!
//! A file is opened without waiting and read only if it is a regular one.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

/// Bytes of a file with a secret at most.
pub const SECRET_MAX: u64 = 16 * 1024;

/// The contents of a file that only its owner may read, without the line's end.
///
/// # Errors
/// A text for the operator, which names the file and nothing of what is in it.
pub fn read(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let shown = path.display();
    let (file, metadata) = open(path)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "{shown} is a secret and others may read it (mode {mode:03o}): chmod 600"
        ));
    }
    let mut bytes = contents(file, &metadata, path, most)?;
    while bytes
        .last()
        .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
    {
        bytes.pop();
    }
    Ok(bytes)
}

/// The contents of a file that is no secret, though there may be one in it.
///
/// # Errors
/// A text for the operator.
pub fn read_public(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let (file, metadata) = open(path)?;
    contents(file, &metadata, path, most)
}

fn open(path: &Path) -> Result<(File, Metadata), String> {
    let shown = path.display();
    durable::open_regular(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => format!("{shown} is no regular file"),
        _ => format!("{shown}: {error}"),
    })
}

fn contents(
    file: File,
    metadata: &Metadata,
    path: &Path,
    most: u64,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let len = metadata.len();
    if len > most {
        return Err(format!("{} is too long", path.display()));
    }
    // One piece of memory from the beginning: what a growing one leaves behind is not wiped.
    // Beside what is read there is room for the reader to find the end in it, too.
    let size = usize::try_from(len).unwrap_or(0).saturating_add(64);
    let mut bytes = Zeroizing::new(Vec::with_capacity(size));
    let mut taken = file.take(len.saturating_add(1));
    let read = taken.read_to_end(&mut bytes);
    read.map_err(|error| format!("{}: {error}", path.display()))?;
    if u64::try_from(bytes.len()).is_ok_and(|read| read > len) {
        return Err(format!("{} grew while it was read", path.display()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn pipe_folder_and_device_are_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(&pipe)
            .status();
        assert!(made.unwrap().success());
        for path in [&pipe, folder.path(), Path::new("/dev/zero")] {
            let refused = read_public(path, 100).unwrap_err();
            assert!(refused.contains("no regular file"), "{refused}");
        }
        let refused = read(&pipe, 100).unwrap_err();
        assert!(refused.contains("no regular file"), "{refused}");
    }

    #[test]
    fn secret_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "word\n").unwrap();
        for (mode, taken) in [(0o600, true), (0o400, true), (0o640, false), (0o666, false)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path, 16).is_ok(), taken, "{mode:o}");
            assert!(read_public(&path, 16).is_ok(), "{mode:o}");
        }
    }

    #[test]
    fn file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345\n").unwrap();
        assert_eq!(**read_public(&path, 6).unwrap(), *b"12345\n");
        let refused = read_public(&path, 5).unwrap_err();
        assert!(refused.contains("too long"), "{refused}");
        std::fs::write(&path, "").unwrap();
        assert!(read_public(&path, 5).unwrap().is_empty());
    }
}
