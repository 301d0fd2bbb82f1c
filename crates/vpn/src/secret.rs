//! Secrets of this host that only have to stay the same.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use keyhost::secret_file::read;
use zeroize::Zeroizing;

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

/// Finds the crash secret of a service that has a folder for its state (`StateDirectory=` of systemd).
pub(super) fn of_service() -> Option<PathBuf> {
    let folders = std::env::var_os("STATE_DIRECTORY")?;
    let first = std::env::split_paths(&folders).next()?;
    first.is_absolute().then(|| first.join("crash.secret"))
}

fn make(path: &Path) -> std::io::Result<()> {
    let mut secret = Zeroizing::new([0; 32]);
    let filled = aws_lc_rs::rand::fill(&mut *secret);
    filled.map_err(|_| std::io::Error::other("no random numbers"))?;
    write(path, Zeroizing::new(hex::encode(*secret)).as_bytes())
}

/// Writes a secret (text, without the line's end) in place of another one or none. Under its name there is either
/// what was there or all of it.
pub(super) fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
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
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    // In one step: a crash leaves the old secret or the new one, never half of one.
    std::fs::rename(&new, path)?;
    match path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn kept_secret_is_made_once_and_never_replaces_a_bad_one() {
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
