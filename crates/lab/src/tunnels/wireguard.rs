//! WireGuard in user space: wireguard-go.

use std::path::Path;

use super::tunnel::{Tunnel, UP, random_hex};
use crate::LabError;
use crate::network::Side;
use crate::process::Call;
use crate::program::Program;

pub(crate) const WIREGUARD: Program = Program {
    name: "wireguard-go",
    package: "wireguard-go",
    version: &["--version"],
};
pub(crate) const WG: Program = Program {
    name: "wg",
    package: "wireguard-tools",
    version: &["--version"],
};

pub(crate) struct WireGuard;

impl WireGuard {
    pub(super) fn start(&self, tunnel: &mut Tunnel<'_>) -> Result<(), LabError> {
        tunnel.server = Side::Server.inside();
        let pair = || -> Result<(String, String), LabError> {
            let private = Call::new(WG.name)
                .arg("genkey")
                .run()?
                .stdout
                .trim()
                .to_owned();
            let public = Call::new(WG.name)
                .arg("pubkey")
                .input(private.as_str())
                .run()?
                .stdout;
            Ok((private, public.trim().to_owned()))
        };
        let shared = random_hex(4)?;
        let keys = [(Side::Server, pair()?), (Side::Client, pair()?)];
        for (side, (private, _)) in &keys {
            let other = keys.iter().find(|(one, _)| one != side);
            let public = other.map_or("", |(_, (_, public))| public);
            let text = format!(
                "[Interface]\nPrivateKey = {private}\nListenPort = 51820\n[Peer]\nPublicKey = {public}\n\
                 AllowedIPs = {}/32\nEndpoint = {}:51820\n",
                side.other().inside(),
                side.other().outside(),
            );
            // Control sockets have one folder for all namespaces; a new name each time cannot meet one
            // that the last tunnel left.
            let name = format!(
                "wg{}{shared}",
                if *side == Side::Server { 's' } else { 'c' }
            );
            let config = tunnel.write(&format!("{name}.conf"), &text)?;
            let program = WIREGUARD.path().unwrap_or_else(|| WIREGUARD.name.into());
            let call = tunnel.network.call(*side, program).args(["-f", &name]);
            let socket = format!("/run/wireguard/{name}.sock");
            tunnel
                .spawn(*side, call)?
                .wait_for(UP, |_| Path::new(&socket).exists())?;
            let call = tunnel.network.call(*side, WG.name);
            call.args(["setconf", &name]).arg(config).run()?;
            let address = format!("{}/24", side.inside());
            tunnel
                .network
                .ip(*side, &["address", "add", &address, "dev", &name])?;
            tunnel
                .network
                .ip(*side, &["link", "set", &name, "mtu", "1420", "up"])?;
        }
        Ok(())
    }
}
