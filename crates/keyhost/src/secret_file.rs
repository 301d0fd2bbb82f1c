//! Files with secrets.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::Zeroizing;

/// Bytes of a file with a secret at most.
pub const SECRET_MAX: u64 = 16 * 1024;

/// The contents of a file that only its owner may read, without the line's end.
///
/// # Errors
/// A text for the operator, which names the file and nothing of what is in it.
pub fn read(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    secret(file, path, most)
}

/// What [`read`] gives, of a regular file only: a pipe that nobody writes to would keep the reader for ever.
///
/// # Errors
/// A text for the operator, which names the file and nothing of what is in it.
pub fn read_regular(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    secret(regular(path)?, path, most)
}

/// What [`read_public`] gives, of a regular file only.
///
/// # Errors
/// A text for the operator.
pub fn read_regular_public(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    contents(regular(path)?, path, most)
}

/// Opens a regular file, and waits for nothing else.
fn regular(path: &Path) -> Result<File, String> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();
    let file = options.read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| format!("{shown}: {error}"))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(format!("{shown} is no regular file")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

fn secret(file: File, path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let shown = path.display();
    let metadata = file
        .metadata()
        .map_err(|error| format!("{shown}: {error}"))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "{shown} is a secret and others may read it (mode {mode:03o}): chmod 600"
        ));
    }
    let mut bytes = contents(file, path, most)?;
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
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    contents(file, path, most)
}

fn contents(file: File, path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    // One piece of memory from the beginning: what a growing one leaves behind is not wiped.
    let size = usize::try_from(most).unwrap_or(0).saturating_add(2);
    let mut bytes = Zeroizing::new(Vec::with_capacity(size));
    let mut taken = file.take(most.saturating_add(1));
    let read = taken.read_to_end(&mut bytes);
    read.map_err(|error| format!("{}: {error}", path.display()))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > most) {
        return Err(format!("{} is too long", path.display()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};

    use super::*;

    #[test]
    fn regular_files_only_are_read_and_secrets_of_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write(&path, "word\n").unwrap();
        for (mode, taken) in [(0o600, true), (0o400, true), (0o640, false), (0o666, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_regular(&path, 16).is_ok(), taken, "{mode:o}");
            assert!(read_regular_public(&path, 16).is_ok(), "{mode:o}");
        }
        assert!(read_regular_public(&path, 4).is_err());
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for other in [&pipe, Path::new("/dev/zero"), folder.path()] {
            assert!(read_regular(other, 16).is_err(), "{other:?}");
            assert!(read_regular_public(other, 16).is_err(), "{other:?}");
        }
    }
}
