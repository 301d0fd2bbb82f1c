//! Running `openssl`, an independent judge of what we write.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use der::EncodePem;
use der::pem::LineEnding;
use pki::cert::Certificate;

use crate::identity::{Identity, Root};

pub(crate) struct Workshop {
    folder: tempfile::TempDir,
}

impl Workshop {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn certificate(&self, name: &str, certificate: &Certificate) -> PathBuf {
        let pem = certificate.to_pem(LineEnding::LF).unwrap();
        self.write(name, pem.as_bytes())
    }

    /// Writes `NAME.pem` and `NAME.key` (unencrypted, in a folder that goes with the test).
    pub(crate) fn identity(&self, name: &str, identity: &Identity) -> (PathBuf, PathBuf) {
        let key =
            der::pem::encode_string("PRIVATE KEY", LineEnding::LF, &identity.key.to_pkcs8_der())
                .unwrap();
        (
            self.certificate(&format!("{name}.pem"), &identity.certificate),
            self.write(&format!("{name}.key"), key.as_bytes()),
        )
    }

    pub(crate) fn root(&self, root: &Root) -> PathBuf {
        self.certificate("root.pem", &root.certificate)
    }

    pub(crate) fn openssl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        Command::new("openssl")
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .expect("openssl must be installed")
    }

    /// Runs `openssl` with arguments split at spaces and expects success.
    pub(crate) fn openssl_ok(&self, line: &str) -> Vec<u8> {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let output = self.openssl(&arguments);
        assert!(
            output.status.success(),
            "openssl {line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }
}
