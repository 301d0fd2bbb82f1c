//! strongSwan with ESP in user space (its plugin kernel-libipsec), as kernels without ESP need it.

use std::os::unix::net::UnixStream;
use std::path::Path;

use super::tunnel::{Tunnel, UP, random_hex, write_private};
use crate::LabError;
use crate::network::Side;
use crate::process::Call;
use crate::program::Program;

pub(crate) const CHARON: Program = Program {
    name: "charon",
    package: "strongswan-charon libcharon-extra-plugins",
    version: &["--version"],
};
pub(crate) const SWANCTL: Program = Program {
    name: "swanctl",
    package: "strongswan-swanctl",
    version: &["--version"],
};
const PLUGINS: &str = "random drbg nonce aesni aes sha1 sha2 hmac kdf gcm ctr curve25519 openssl \
                       kernel-libipsec kernel-netlink socket-default vici";

/// One ESP proposal, by strongSwan's name.
pub(crate) struct StrongSwan {
    pub(crate) proposal: &'static str,
}

impl StrongSwan {
    pub(super) fn start(&self, tunnel: &mut Tunnel<'_>) -> Result<(), LabError> {
        // The plugin protects what goes to these addresses; on the interface itself they would do no
        // harm, but the cable's route would win.
        tunnel.server = Side::Server.inside();
        let secret = random_hex(32)?;
        for side in Side::BOTH {
            let address = format!("{}/32", side.inside());
            tunnel
                .network
                .ip(side, &["address", "replace", &address, "dev", "lo"])?;
            let home = tunnel.folder.join(format!("swan-{}", side.name()));
            std::fs::create_dir_all(home.join("swanctl")).map_err(LabError::io("a folder"))?;
            let socket = home.join("vici");
            write_private(
                &home.join("strongswan.conf"),
                &format!(
                    "charon {{\n load = {PLUGINS}\n install_virtual_ip = no\n plugins {{ vici {{ socket = \
                     unix://{} }} }}\n}}\n",
                    socket.display()
                ),
            )?;
            write_private(
                &home.join("swanctl/swanctl.conf"),
                &self.text(side, &secret),
            )?;
            // There is one name for the process file; the first daemon does not need it any more.
            let _ = std::fs::remove_file("/run/charon.pid");
            let _ = std::fs::remove_file(&socket);
            let program = CHARON.path().unwrap_or_else(|| CHARON.name.into());
            let call = tunnel.network.call(side, program);
            let daemon = tunnel.spawn(
                side,
                call.env("STRONGSWAN_CONF", home.join("strongswan.conf")),
            )?;
            daemon.wait_for(UP, |_| UnixStream::connect(&socket).is_ok())?;
            control(&home, &["--load-all", "--noprompt"])?;
        }
        let home = tunnel.folder.join("swan-client");
        control(&home, &["--initiate", "--child", "net"])
    }

    fn text(&self, side: Side, secret: &str) -> String {
        let other = side.other();
        format!(
            "connections {{ pair {{\n version = 2\n local_addrs = {}\n remote_addrs = {}\n \
             proposals = aes256gcm16-prfsha256-x25519\n local {{ auth = psk\n id = {} }}\n \
             remote {{ auth = psk\n id = {} }}\n children {{ net {{\n local_ts = {}/32\n \
             remote_ts = {}/32\n esp_proposals = {}\n }} }}\n}} }}\n\
             secrets {{ ike-pair {{ secret = \"{secret}\" }} }}\n",
            side.outside(),
            other.outside(),
            side.name(),
            other.name(),
            side.inside(),
            other.inside(),
            self.proposal,
        )
    }
}

/// Tells the daemon that has its files in `home`.
pub(crate) fn control(home: &Path, words: &[&str]) -> Result<(), LabError> {
    Call::new(SWANCTL.path().unwrap_or_else(|| SWANCTL.name.into()))
        .args(words)
        .arg("--uri")
        .arg(format!("unix://{}", home.join("vici").display()))
        .env("SWANCTL_DIR", home.join("swanctl"))
        .run()?;
    Ok(())
}
