//! OpenVPN with its defaults and one data cipher.

use std::path::{Path, PathBuf};

use super::tunnel::{Tunnel, UP, ourselves, write_private};
use crate::LabError;
use crate::experiments::OPENSSL;
use crate::network::Side;
use crate::process::Call;
use crate::program::Program;

pub(crate) const OPENVPN: Program = Program {
    name: "openvpn",
    package: "openvpn",
    version: &["--version"],
};
const DONE: &str = "Initialization Sequence Completed";
/// Our provider under the name that works with OpenVPN.
const MODULE: &str = "cordon_ibc_openvpn";

/// One data cipher, by OpenVPN's name.
#[derive(Clone)]
pub(crate) struct OpenVpn {
    pub(crate) cipher: String,
    /// For ciphers that do not authenticate, by OpenVPN's name.
    pub(crate) integrity: &'static str,
    /// Provider that OpenSSL loads.
    pub(crate) provider: Provider,
    /// Folder with `key.pem`, `cert.pem` and the modules, and the certificate's fingerprint.
    pub(crate) identity: Identity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    Default,
    /// OpenSSL's old and broken ciphers, too.
    Legacy,
    /// Ours with the INDECT Block Cipher.
    Ibc,
}

impl Provider {
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Default => &["default"],
            Self::Legacy => &["legacy", "default"],
            Self::Ibc => &["default", MODULE],
        }
    }
}

/// One throw-away key and certificate for both ends, which know each other's fingerprint.
#[derive(Clone)]
pub(crate) struct Identity {
    folder: PathBuf,
    fingerprint: String,
    modules: PathBuf,
}

impl Identity {
    /// A key on the curve P-256.
    pub(crate) const P256: [&'static str; 3] = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

    /// Makes them in `folder`, with a key as `openssl req -newkey` names it.
    pub(crate) fn make(folder: &Path, key: &[&str]) -> Result<Self, LabError> {
        std::fs::create_dir_all(folder).map_err(LabError::io("a folder in memory"))?;
        let openssl =
            || Call::new(OPENSSL.path().unwrap_or_else(|| OPENSSL.name.into())).folder(folder);
        openssl()
            .args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=lab"])
            .args(["-keyout", "key.pem", "-out", "cert.pem", "-newkey"])
            .args(key)
            .run()?;
        let shown = openssl()
            .args([
                "x509",
                "-in",
                "cert.pem",
                "-noout",
                "-fingerprint",
                "-sha256",
            ])
            .run()?
            .stdout;
        let fingerprint = shown
            .trim()
            .rsplit('=')
            .next()
            .unwrap_or_default()
            .to_owned();
        Ok(Self {
            folder: folder.to_owned(),
            fingerprint,
            modules: modules(folder)?,
        })
    }

    /// Folder of `key.pem` and `cert.pem`.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fingerprint that the other end must show.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The ciphers that this OpenVPN lists.
    pub(crate) fn ciphers(&self, provider: Provider) -> Result<Vec<String>, LabError> {
        let done = Call::new(OPENVPN.path().unwrap_or_else(|| OPENVPN.name.into()))
            .args(["--show-ciphers", "--providers"])
            .args(provider.names())
            .env("OPENSSL_MODULES", &self.modules)
            .run()?;
        let listed = done.stdout.lines().filter(|line| line.contains("bit key"));
        Ok(listed
            .filter_map(|line| Some(line.split_whitespace().next()?.to_uppercase()))
            .collect())
    }

    /// Whether our provider was found.
    pub(crate) fn has_ibc(&self) -> bool {
        self.modules.join(format!("{MODULE}.so")).exists()
    }
}

/// A folder with OpenSSL's own modules and our provider, wherever it lies.
fn modules(folder: &Path) -> Result<PathBuf, LabError> {
    let done = Call::new(OPENSSL.path().unwrap_or_else(|| OPENSSL.name.into()))
        .args(["version", "-m"])
        .run()?;
    let own = done.stdout.split('"').nth(1).unwrap_or_default().to_owned();
    let modules = folder.join("modules");
    let failed = "a folder of OpenSSL's modules";
    std::fs::create_dir_all(&modules).map_err(LabError::io(failed))?;
    for entry in std::fs::read_dir(&own).into_iter().flatten().flatten() {
        std::os::unix::fs::symlink(entry.path(), modules.join(entry.file_name()))
            .map_err(LabError::io(failed))?;
    }
    // Not installed, it lies where cargo left it, beside this program or one level up (tests).
    let own = ourselves()?;
    let built = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|f| f.join("libibc_provider.so"));
    let target = modules.join(format!("{MODULE}.so"));
    if let Some(built) = built.into_iter().find(|file| file.exists())
        && !target.exists()
    {
        std::os::unix::fs::symlink(built, target).map_err(LabError::io(failed))?;
    }
    Ok(modules)
}

impl OpenVpn {
    pub(super) fn start(&self, tunnel: &mut Tunnel<'_>) -> Result<(), LabError> {
        tunnel.server = Side::Server.inside();
        for side in Side::BOTH {
            let own = match side {
                Side::Server => "tls-server\ndh none\n".to_owned(),
                Side::Client => format!("tls-client\nnobind\nremote {}\n", side.other().outside()),
            };
            let text = format!(
                "dev tun\nproto udp\nport 1194\ntopology subnet\nverb 3\nmssfix 1300\ndisable-dco\n\
                 cert cert.pem\nkey key.pem\npeer-fingerprint {}\nproviders {}\ndata-ciphers {}\nauth {}\n\
                 ifconfig {} 255.255.255.0\n{own}",
                self.identity.fingerprint,
                self.provider.names().join(" "),
                self.cipher,
                self.integrity,
                side.inside(),
            );
            let config = self.identity.folder.join(format!("{}.conf", side.name()));
            write_private(&config, &text)?;
            let call = tunnel
                .network
                .call(side, OPENVPN.path().unwrap_or_else(|| OPENVPN.name.into()));
            let call = call
                .arg("--config")
                .arg(config)
                .folder(&self.identity.folder);
            tunnel.spawn(side, call.env("OPENSSL_MODULES", &self.identity.modules))?;
        }
        for (_, daemon) in &mut tunnel.daemons {
            daemon.wait_for(UP, |daemon| daemon.said().contains(DONE))?;
        }
        Ok(())
    }
}
