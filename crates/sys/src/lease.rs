//! Whether a file has a writer, as the kernel's count of open files says.
#![expect(unsafe_code, reason = "fcntl")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Returns whether any process has the file behind `file` open for writing.
///
/// `file` must be open for reading only. A read lease is granted only on a file without writers, so this takes one and
/// gives it back at once (`fcntl(2)`, `F_SETLEASE`). A process that opens the file in between waits for these
/// microseconds. The answer covers writers in other processes, containers and mount namespaces of this kernel, and none
/// on other computers.
///
/// # Errors
/// `PermissionDenied` if the file belongs to another user and the process has no `CAP_LEASE`; `InvalidInput` and others
/// on file systems without leases (NFS, most of FUSE).
pub fn has_writer(file: impl AsFd) -> io::Result<bool> {
    // linux/fcntl.h
    const F_SETSIG: libc::c_int = 10;
    let file = file.as_fd();
    // A process that opens the file while the lease lasts makes the kernel send SIGIO, which would end this process.
    // SIGURG is ignored unless a handler is installed.
    control(file, F_SETSIG, libc::SIGURG)?;
    match control(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            control(file, libc::F_SETLEASE, libc::F_UNLCK)?;
            Ok(false)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Changes one property of an open file.
fn control(file: impl AsFd, command: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: these commands take an integer, and the descriptor is open for the whole call.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, value) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, OpenOptions};
    use std::path::PathBuf;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("cordon-lease-{}-{name}", std::process::id()))
    }

    #[test]
    fn every_open_writer_is_seen_until_the_last_closes() {
        let path = temporary("writers");
        let first = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(has_writer(&reader).unwrap());
        let second = OpenOptions::new().append(true).open(&path).unwrap();
        drop(first);
        assert!(has_writer(&reader).unwrap());
        drop(second);
        assert!(!has_writer(&reader).unwrap());
        // Other readers do not count, and the lease is gone: this open would wait for it.
        let _other = File::open(&path).unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(has_writer(&reader).unwrap());
        drop(writer);
        // A writer under another name is a writer.
        let link = temporary("link");
        fs::hard_link(&path, &link).unwrap();
        let writer = OpenOptions::new().write(true).open(&link).unwrap();
        assert!(has_writer(&reader).unwrap());
        drop(writer);
        assert!(!has_writer(&reader).unwrap());
        fs::remove_file(&path).unwrap();
        fs::remove_file(&link).unwrap();
    }

    #[test]
    fn descriptor_that_is_no_file_is_an_error() {
        let (reader, _writer) = io::pipe().unwrap();
        assert!(has_writer(&reader).is_err());
    }
}
