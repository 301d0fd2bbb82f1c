//! The owner of a data folder. A site runs as one Unix user, and everything in its folder is that user's: a single
//! file of root's would keep it from starting. Commands of root on a stopped site therefore act as that user, and
//! every other user is refused before anything is written.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Gid, Uid, getegid, geteuid, setegid, seteuid};

use crate::console;
use crate::failure::{Failure, OrHint as _, Outcome};

const HINT: &str = "check the folder's rights and its disk";

/// Who owns the folder, and who this process is: Unix users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Users {
    owner: u32,
    group: u32,
    process: u32,
}

/// `None`: the folder is not there yet, and will belong to the user who makes it.
fn users(data: &Path) -> Outcome<Option<Users>> {
    match std::fs::metadata(data) {
        Ok(found) => Ok(Some(Users {
            owner: found.uid(),
            group: found.gid(),
            process: geteuid().as_raw(),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).or_hint(format!("cannot look at {}", data.display()), HINT),
    }
}

/// Refuses to work in a data folder of another user.
///
/// # Errors
/// A refusal that names the owner, or a folder that cannot be read.
pub fn check(data: &Path) -> Outcome {
    match users(data)? {
        Some(users) if users.owner != users.process => Err(refusal(data, users)),
        _ => Ok(()),
    }
}

fn refusal(data: &Path, users: Users) -> Failure {
    let (owner, process) = (console::shown(users.owner), console::shown(users.process));
    Failure::new(
        anyhow::anyhow!(
            "{} belongs to {owner}, and this is {process}",
            data.display()
        ),
        format!("run it as the owner: sudo -u '#{}' cordon …", users.owner),
    )
}

/// The process acts as the owner of a data folder until this is dropped.
#[must_use]
pub struct AsOwner(Option<(Uid, Gid)>);

impl AsOwner {
    /// Takes the owner of `data` on where root runs this process; others keep what they are, and [`check`] decides.
    ///
    /// Only the effective user changes, of all threads: who gave the command is still known by the real one.
    ///
    /// # Errors
    /// The folder cannot be read, or the user cannot be changed.
    pub fn of(data: &Path) -> Outcome<Self> {
        let Some(users) = users(data)? else {
            return Ok(Self(None));
        };
        if users.process != 0 || users.owner == 0 {
            return Ok(Self(None));
        }
        let before = Self(Some((geteuid(), getegid())));
        // The group first: without root's rights it could not be changed any more.
        setegid(Gid::from_raw(users.group))
            .and_then(|()| seteuid(Uid::from_raw(users.owner)))
            .or_hint("cannot act as the owner of the data folder", HINT)?;
        Ok(before)
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        let Some((user, group)) = self.0.take() else {
            return;
        };
        if let Err(error) = seteuid(user).and_then(|()| setegid(group)) {
            tracing::error!(%error, "cannot become root again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_this_user_or_none_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        check(folder.path()).unwrap();
        check(&folder.path().join("not made yet")).unwrap();
        drop(AsOwner::of(folder.path()).unwrap());
    }

    #[test]
    fn folder_of_another_user_is_refused_with_its_name() {
        let users = Users {
            owner: 4711,
            group: 4711,
            process: 0,
        };
        let refused = refusal(Path::new("/srv/site"), users).message();
        assert!(
            refused.starts_with("/srv/site belongs to user 4711, and this is root"),
            "{refused}"
        );
        assert!(check(Path::new("/dev/null/x")).is_err());
    }
}
