//! New names on file systems without hard links: FAT and exFAT, on which people carry codes, keys and packages.
//!
//! A file that is complete under another name gets its own by a link, which replaces nothing. Without links, by a rename
//! that replaces nothing, which FAT has. Without that (exFAT), the name is claimed by an empty file, created exclusively,
//! and the rename replaces the claim. A crash between the two leaves the empty claim, and the content beside it; nothing of
//! another's is replaced at any step.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Whether a link failed because the file system has none.
pub(crate) fn has_no_links(error: &io::Error) -> bool {
    // EPERM is what link(2) says of FAT; FUSE says what the file system's program does.
    let errors = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS];
    let found = error.raw_os_error();
    errors
        .iter()
        .any(|errno| Some(errno.raw_os_error()) == found)
}

/// Gives the file `from` the name `to`, which must not be taken, in the place of its own.
pub(crate) fn name_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if has_no_links(&error) => move_new(from, to),
        Err(error) => Err(error),
    }
}

/// The same without links.
pub(crate) fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => claim(from, to),
        moved => Ok(moved?),
    }
}

/// The same by an empty file that holds the name.
fn claim(from: &Path, to: &Path) -> io::Result<()> {
    File::create_new(to)?;
    fs::rename(from, to).inspect_err(|_| {
        // The claim is ours, and empty.
        let _ = fs::remove_file(to);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    type Way = fn(&Path, &Path) -> io::Result<()>;
    const WAYS: [(&str, Way); 3] = [("link", name_new), ("move", move_new), ("claim", claim)];

    #[test]
    fn file_gets_its_name_in_each_way() {
        for (way, name) in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let (from, to) = (folder.path().join("from"), folder.path().join("to"));
            fs::write(&from, "content").unwrap();
            name(&from, &to).unwrap();
            assert_eq!(fs::read(&to).unwrap(), b"content", "{way}");
            assert!(!from.exists(), "{way}");
        }
    }

    #[test]
    fn name_that_is_taken_stays_what_it_is() {
        for (way, name) in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::write(at("from"), "content").unwrap();
            fs::write(at("file"), "theirs").unwrap();
            fs::create_dir(at("folder")).unwrap();
            symlink("/nowhere/at/all", at("dangling")).unwrap();
            for taken in ["file", "folder", "dangling"] {
                let refused = name(&at("from"), &at(taken)).unwrap_err();
                assert_eq!(
                    refused.kind(),
                    io::ErrorKind::AlreadyExists,
                    "{way} {taken}"
                );
            }
            assert_eq!(fs::read(at("file")).unwrap(), b"theirs", "{way}");
            assert_eq!(fs::read(at("from")).unwrap(), b"content", "{way}");
        }
    }

    #[test]
    fn failed_claim_leaves_no_name_behind() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        assert!(claim(&folder.path().join("missing"), &to).is_err());
        assert!(!to.exists());
    }

    #[test]
    fn only_missing_links_lead_to_another_way() {
        for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS] {
            assert!(has_no_links(&errno.into()), "{errno}");
        }
        for errno in [
            Errno::EXIST,
            Errno::NOSPC,
            Errno::IO,
            Errno::ROFS,
            Errno::ACCESS,
            Errno::XDEV,
        ] {
            assert!(!has_no_links(&errno.into()), "{errno}");
        }
        assert!(!has_no_links(&io::ErrorKind::PermissionDenied.into()));
    }
}
