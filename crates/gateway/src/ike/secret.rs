//! Files with secrets.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Bytes of a file with a secret at most.
pub(super) const SECRET_MAX: u64 = 16 * 1024;

/// The contents of a file that only its owner may read, without the line's end.
///
/// # Errors
/// A text for the operator, which names the file and nothing of what is in it.
pub(super) fn read(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
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
pub(super) fn public(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    contents(file, path, most)
}

/// A secret of this host that only has to stay the same: read, or made where there is none yet. One that was
/// lost is no harm but that peers take longer to notice a restart, so a missing file is a new one; one that
/// cannot be read is an error.
///
/// # Errors
/// A text for the operator.
pub(super) fn kept(path: &Path) -> Result<[u8; 32], String> {
    let shown = path.display();
    if !path
        .try_exists()
        .map_err(|error| format!("{shown}: {error}"))?
    {
        make(path).map_err(|error| format!("{shown}: {error}"))?;
    }
    let text = read(path, 128)?;
    let mut secret = [0; 32];
    hex::decode_to_slice(&*text, &mut secret)
        .map_err(|_| format!("{shown} is not 64 hexadecimal digits: remove it for a new one"))?;
    Ok(secret)
}

/// Where the crash secret of a service lies that has a folder for its state (`StateDirectory=` of systemd).
pub(super) fn of_service() -> Option<PathBuf> {
    let folders = std::env::var_os("STATE_DIRECTORY")?;
    let first = std::env::split_paths(&folders).next()?;
    first.is_absolute().then(|| first.join("crash.secret"))
}

/// Under its name there is either nothing or all of it.
fn make(path: &Path) -> std::io::Result<()> {
    let mut secret = Zeroizing::new([0; 32]);
    let filled = aws_lc_rs::rand::fill(&mut *secret);
    filled.map_err(|_| std::io::Error::other("no random numbers"))?;
    let new = path.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(Zeroizing::new(hex::encode(*secret)).as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    match path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
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
    use super::*;

    #[test]
    fn a_kept_secret_is_made_once_and_never_in_place_of_a_bad_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("crash.secret");
        let first = kept(&path).unwrap();
        assert_eq!(kept(&path).unwrap(), first);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let other = folder.path().join("other.secret");
        assert_ne!(kept(&other).unwrap(), first);
        std::fs::write(&other, "short").unwrap();
        assert!(kept(&other).unwrap_err().contains("64 hexadecimal digits"));
        assert_eq!(std::fs::read(&other).unwrap(), b"short");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(kept(&path).unwrap_err().contains("others may read it"));
    }
}
