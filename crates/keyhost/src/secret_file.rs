//! Files with secrets.

use std::fs::File;
use std::io::Read as _;
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
    let file = File::open(path).map_err(|error| format!("{shown}: {error}"))?;
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
