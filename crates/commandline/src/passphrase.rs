//! The passphrase that protects the key files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::{Failure, OrHint as _, Outcome};

/// Bytes of a passphrase, and of what is around it in its file; our choice.
const MAX_PASSPHRASE: usize = 64 * 1024;
/// Name of the systemd credential that holds the passphrase.
const CREDENTIAL: &str = "cordon-passphrase";

/// Finds the passphrase, in this order: the named file, systemd's credential, and a file in the
/// data folder that is made on first use.
///
/// The last is a convenience for trying things out: it protects copies of single key files, not a
/// stolen disk. A warning says so.
pub fn passphrase(data: &Path, file: Option<&Path>) -> Outcome<Zeroizing<Vec<u8>>> {
    if let Some(file) = file {
        return read(file);
    }
    if let Some(folder) = std::env::var_os("CREDENTIALS_DIRECTORY") {
        let credential = PathBuf::from(folder).join(CREDENTIAL);
        if is_there(&credential)? {
            return read(&credential);
        }
    }
    let own = data.join("passphrase");
    if !is_there(&own)? {
        let mut bytes = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut()).map_err(|_| {
            Failure::new(
                anyhow::anyhow!("the system gives no random bytes"),
                "check the kernel",
            )
        })?;
        let text = Zeroizing::new(hex::encode(bytes.as_ref()));
        durable::write_new(&own, text.as_bytes(), 0o600).or_hint(
            format!("cannot write {}", own.display()),
            "check the folder's rights",
        )?;
        tracing::warn!(
            file = %own.display(),
            "made a passphrase beside the keys it protects; for production use a systemd \
             credential or --passphrase-file on another medium"
        );
    }
    read(&own)
}

/// 120 random bits in letters that survive being typed.
pub fn new_password() -> Outcome<Zeroizing<String>> {
    let mut bytes = Zeroizing::new([0u8; 15]);
    aws_lc_rs::rand::fill(bytes.as_mut())
        .map_err(|_| Failure::new(anyhow::anyhow!("no random bytes"), "check the kernel"))?;
    Ok(Zeroizing::new(hex::encode(bytes.as_ref())))
}

/// Whether a file is there. One that cannot be looked at is not missing: a new passphrase in its place
/// would make every key useless.
pub fn is_there(file: &Path) -> Outcome<bool> {
    file.try_exists().or_hint(
        format!("cannot look at {}", file.display()),
        "check the folder's rights and its disk",
    )
}

fn read(file: &Path) -> Outcome<Zeroizing<Vec<u8>>> {
    let failed = || format!("cannot read the passphrase in {}", file.display());
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_PASSPHRASE));
    // Of a pipe, too, but not of a device that has no end.
    let opened = std::fs::File::open(file).or_hint(failed(), "check the file")?;
    let most = u64::try_from(MAX_PASSPHRASE).unwrap_or(u64::MAX);
    let read = opened.take(most).read_to_end(&mut bytes);
    read.or_hint(failed(), "check the file")?;
    if bytes.len() >= MAX_PASSPHRASE {
        let what = anyhow::anyhow!("{}: it is too long", failed());
        return Err(Failure::new(what, "check the file"));
    }
    let end = bytes
        .iter()
        .rposition(|b| !b.is_ascii_whitespace())
        .map_or(0, |i| i + 1);
    let trimmed = Zeroizing::new(bytes.get(..end).unwrap_or_default().to_vec());
    if trimmed.len() < 8 {
        return Err(Failure::new(
            anyhow::anyhow!(
                "the passphrase in {} has less than 8 characters",
                file.display()
            ),
            "use a longer one",
        ));
    }
    Ok(trimmed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn is_made_once_for_the_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let first = passphrase(folder.path(), None).unwrap();
        let second = passphrase(folder.path(), None).unwrap();
        assert_eq!(*first, *second);
        let mode = folder
            .path()
            .join("passphrase")
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_named_file_is_trimmed_and_must_not_be_short() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "correct horse\n").unwrap();
        assert_eq!(
            *passphrase(folder.path(), Some(&file)).unwrap(),
            b"correct horse"
        );
        std::fs::write(&file, "short\n").unwrap();
        assert!(
            passphrase(folder.path(), Some(&file))
                .unwrap_err()
                .message()
                .contains("8")
        );
    }
}
