//! The socket on which a tunnel answers. It replaces only a stale socket of ours, and removes its name only while that is
//! still ours.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use commandline::{Failure, OrHint as _, Outcome};
use tokio::net::{UnixListener, UnixStream};

/// Time within which a listener under that name has to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);
const HINT: &str = "choose another path for `status`, in a folder that exists";

/// A bound socket, whose name is removed when it is dropped.
pub(super) struct StatusSocket {
    /// Moved out by the task that serves it.
    pub(super) listener: Option<UnixListener>,
    path: PathBuf,
    /// Device and number of what was bound.
    inode: (u64, u64),
}

impl StatusSocket {
    /// Binds it, in place of one that a killed daemon left. The lock of the interface is taken before.
    pub(super) async fn bind(path: &Path) -> Outcome<Self> {
        let what = || format!("status socket {}", path.display());
        make_way(path).await?;
        let listener = UnixListener::bind(path).or_hint(what(), HINT)?;
        let inode = std::fs::symlink_metadata(path).or_hint(what(), HINT)?;
        let bound = Self {
            listener: Some(listener),
            path: path.to_owned(),
            inode: number(&inode),
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .or_hint(what(), HINT)?;
        Ok(bound)
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path);
        if now.is_ok_and(|now| number(&now) == self.inode) {
            // It is only a name; a new tunnel replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn number(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Removes a stale socket of ours, without a listener. Anything else stays, and is an error.
async fn make_way(path: &Path) -> Outcome {
    let shown = path.display();
    let refused = |what: String, hint: &str| Err(Failure::new(anyhow::anyhow!(what), hint));
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.or_hint(format!("status socket {shown}"), HINT)?,
    };
    if !metadata.file_type().is_socket() {
        return refused(
            format!("`status`: {shown} is there and is no socket"),
            "choose another path for `status`; that file stays as it is",
        );
    }
    match tokio::time::timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Ok(Err(error)) => return Err(error).or_hint(format!("status socket {shown}"), HINT),
        Ok(Ok(_)) | Err(_) => {
            return refused(
                format!("`status`: another program listens at {shown}"),
                "end the tunnel that has it, or choose another path for `status`",
            );
        }
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return refused(
            format!(
                "`status`: {shown} is a socket of user {}, on which nobody listens",
                metadata.uid()
            ),
            "remove it, if a tunnel of that user left it there",
        );
    }
    std::fs::remove_file(path).or_hint(format!("status socket {shown}"), HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_takes_the_place_of_one_that_is_left_and_of_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vpn.sock");
        let first = StatusSocket::bind(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        // There is a listener.
        let refused = StatusSocket::bind(&path).await.err().unwrap();
        assert!(refused.message().contains("listens"), "{refused:?}");
        drop(first);
        assert!(!path.exists());
        // One that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(StatusSocket::bind(&path).await.unwrap());
        // A file, and a link to one.
        std::fs::write(&path, "precious").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for name in [&path, &link] {
            let refused = StatusSocket::bind(name).await.err().unwrap();
            assert!(refused.message().contains("no socket"), "{refused:?}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(link.is_symlink());
    }

    #[tokio::test]
    async fn name_that_another_has_taken_meanwhile_stays_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vpn.sock");
        let first = StatusSocket::bind(&path).await.unwrap();
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
