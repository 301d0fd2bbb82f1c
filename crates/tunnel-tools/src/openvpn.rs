//! `cordon vpn openvpn-…`: OpenVPN, which runs as it is, with certificates of the site.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use commandline::{OrHint as _, Outcome, SiteArgs, print, text};
use serde_json::json;

use self::guard::Guard;
use self::key::VerifyKey;
use self::profile::Profile;
use self::verify::Verify;
use crate::site::{Control, SiteRequest};

mod guard;
mod key;
mod profile;
mod verify;

/// The commands of `cordon vpn` that are about OpenVPN.
#[derive(Debug, Subcommand)]
pub enum Openvpn {
    /// Write configurations of an OpenVPN server and of devices, with new keys and certificates.
    #[command(after_help = "Examples:
  cordon vpn openvpn-profile --data /var/lib/cordon --server vpn.example.org \\
    --device camera-17 --out tunnel
  cordon vpn openvpn-profile --data /var/lib/cordon --device camera-18 --out tunnel
  cordon vpn openvpn-profile --data /var/lib/cordon --server vpn.example.org \\
    --transport tcp --port 443 --dev tap --network 192.0.2.0/24 \\
    --bridge-gateway 192.0.2.1 --bridge-pool 192.0.2.128-192.0.2.191 \\
    --device camera-17 --out bridged
  cordon vpn openvpn-profile --data /var/lib/cordon --device camera-19 --csr camera-19.csr \\
    --pkcs11-provider /usr/lib/softhsm/libsofthsm2.so \\
    --pkcs11-id 'SoftHSM\\x20project/SoftHSM\\x20v2/04b1/cameras/01' --out tunnel
The first makes the folder, the second adds a device to it; the third is a folder for Ethernet over TCP. In the last the
key stays on the device's token, which made the request. Carry the files that the command names to the server, which needs
`cordon` as well, each .ovpn file to its device, and keep the folder to yourself: it holds private keys.")]
    #[command(name = "openvpn-profile")]
    Profile(Profile),
    /// Admit devices to an OpenVPN server, and end the sessions of those that are revoked or suspended.
    #[command(after_help = "Examples:
  cordon vpn openvpn-guard --config /etc/openvpn/server/server.conf --data /var/lib/cordon
  cordon vpn openvpn-guard --config server.conf --crl-url http://pki.example.org/crl
It runs beside OpenVPN, as root. Without it nobody gets in, and when it ends, everybody is out until it is back. It keeps
crl.pem current. A suspension counts at once with --data, and with the next list with --crl-url.")]
    #[command(name = "openvpn-guard")]
    Guard(Guard),
    /// Write the current revocation lists for an OpenVPN server, replacing the file.
    #[command(after_help = "Example:
  cordon vpn openvpn-crl --data /var/lib/cordon --out /etc/openvpn/server/crl.pem
A list is good for one day: let a daily job write it where no `openvpn-guard` runs.")]
    #[command(name = "openvpn-crl")]
    Crl {
        #[command(flatten)]
        site: SiteArgs,
        /// File to write.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Verify a peer's certificate: OpenVPN calls this, see `tls-verify` in server.conf.
    #[command(after_help = "Example:
  cordon vpn openvpn-verify --authorities authorities.pem --crl crl.pem \\
    --certificate peer.pem 0 CN=camera-17
OpenVPN names the certificate's file in the environment instead, as `peer_cert`. Exit code 1 refuses the device.")]
    #[command(name = "openvpn-verify")]
    Verify(Verify),
    /// Verify whose key of the control channel it is: OpenVPN calls this, see `tls-crypt-v2-verify` in server.conf.
    #[command(after_help = "Example:
  cordon vpn openvpn-verify-key --refused refused-devices.txt --metadata FILE --metadata-type 0
OpenVPN names file and type in the environment instead. Exit code 1 refuses the key.")]
    #[command(name = "openvpn-verify-key")]
    VerifyKey(VerifyKey),
}

pub(crate) async fn run(command: Openvpn, control: Control, json: bool) -> Outcome {
    match command {
        Openvpn::Verify(args) => verify::run(&args),
        Openvpn::VerifyKey(args) => key::run(&args),
        Openvpn::Profile(args) => profile::run(&args, control, json).await,
        Openvpn::Guard(args) => guard::run(&args, control).await,
        Openvpn::Crl { site, out } => {
            write_crl(control, &site, &out).await?;
            let summary = format!("wrote {}, good for a day", out.display());
            print(json, &json!({ "file": out }), &summary)
        }
    }
}

/// Writes the current lists where anybody may read them: OpenVPN does so without its rights.
pub(super) async fn write_crl(control: Control, site: &SiteArgs, file: &Path) -> Outcome {
    let answer = control.request(site, SiteRequest::Crls).await?;
    write_public(file, text(&answer, "crl_pem").as_bytes())
}

/// Replaces a file that anybody may read.
pub(super) fn write_public(file: &Path, bytes: &[u8]) -> Outcome {
    durable::write_atomic(file, bytes, 0o644).or_hint(
        format!("cannot write {}", file.display()),
        "check the folder's rights",
    )
}
