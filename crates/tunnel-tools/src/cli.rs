//! The command line of `cordon vpn`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::client::VpnSocket;
use crate::firewall::Unblock;
use crate::manual::StatusFormat;

/// `cordon vpn …`.
#[derive(Debug, Subcommand)]
pub enum Vpn {
    /// Run an IPsec tunnel (ESP or AH) with keys from a file. For laboratories only: nobody renews
    /// these keys.
    #[command(after_help = "Example:\n  cordon vpn static --config tunnel.toml")]
    Static {
        /// The tunnel: addresses, algorithms, keys.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Run IPsec tunnels whose keys are negotiated (IKEv2).
    #[command(after_help = "Example:\n  cordon vpn up --config /etc/cordon-vpn.toml")]
    Up {
        /// Peers, certificates, addresses: see docs/vpn.md.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Set a tunnel up: ask a few questions and write both sides' files.
    #[command(subcommand)]
    Init(crate::init::Init),
    /// Set what a tunnel needs of this host until it starts anew: forwarding, and holes in its own firewall. Then check.
    #[command(
        after_help = "Example:\n  cordon vpn prepare --config /etc/cordon-vpn.toml --dry-run
Every step is shown as the command that does the same."
    )]
    Prepare {
        /// The file for `vpn up`.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Say what would be done, and do nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Send echo requests through a tunnel, which is brought up if it is not, and say where they stop.
    #[command(after_help = "Examples:
  cordon vpn ping --config /etc/cordon-vpn.toml
  cordon vpn ping --config /etc/cordon-vpn.toml headquarters --target 10.2.0.1")]
    Ping {
        /// The file with which the daemon was started.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The connection, where there are several.
        connection: Option<String>,
        /// An address of the other side; that named in `remote` of the child, or its first one, unless given.
        #[arg(long, value_name = "ADDRESS")]
        target: Option<std::net::IpAddr>,
    },
    /// Find mistakes in a configuration, and what would not work or leave in the clear on this host. Nothing is
    /// started.
    #[command(
        after_help = "Example:\n  cordon vpn check --config /etc/cordon-vpn.toml
Run it as the user and in the network namespace of `vpn up`. Exit code 1: there are errors, or the file cannot be read."
    )]
    Check {
        /// The file for `vpn up`.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Close a connection, or end the daemon and all its tunnels.
    #[command(after_help = "Examples:
  cordon vpn down --config /etc/cordon-vpn.toml headquarters
  cordon vpn down --config /etc/cordon-vpn.toml")]
    Down {
        #[command(flatten)]
        target: VpnSocket,
        /// The connection; without it the daemon ends.
        name: Option<String>,
    },
    /// Bring a connection up, also one that was closed by `down`.
    #[command(
        after_help = "Example:\n  cordon vpn connect --config /etc/cordon-vpn.toml headquarters"
    )]
    Connect {
        #[command(flatten)]
        target: VpnSocket,
        /// The connection.
        name: String,
    },
    /// Replace the keys of a connection now: of its IKE SAs and all their Child SAs. Packets go on meanwhile.
    #[command(
        after_help = "Example:\n  cordon vpn rekey --config /etc/cordon-vpn.toml headquarters"
    )]
    Rekey {
        #[command(flatten)]
        target: VpnSocket,
        /// The connection.
        name: String,
    },
    /// Have both sides of a connection authenticate anew now. Another tunnel comes up first; for whoever started it.
    #[command(
        after_help = "Example:\n  cordon vpn reauth --config /etc/cordon-vpn.toml headquarters"
    )]
    Reauth {
        #[command(flatten)]
        target: VpnSocket,
        /// The connection.
        name: String,
    },
    /// Show which negotiations failed, what both sides wanted, and where they differ.
    #[command(after_help = "Example:\n  cordon vpn explain --config /etc/cordon-vpn.toml")]
    Explain {
        #[command(flatten)]
        target: VpnSocket,
    },
    /// Take over a changed configuration; tunnels of connections that did not change stay up.
    #[command(after_help = "Example:\n  cordon vpn reload --config /etc/cordon-vpn.toml")]
    Reload {
        #[command(flatten)]
        target: VpnSocket,
    },
    /// Hold back packets that a tunnel must protect, before it is there: at boot, before the network.
    /// `vpn up` and `vpn static` do it themselves.
    #[command(after_help = "Example:\n  cordon vpn block --config /etc/cordon-vpn.toml")]
    Block {
        /// The tunnel, negotiated or with manual keys.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Let packets for the other side go in the clear again, after a tunnel was ended for good.
    #[command(after_help = "Examples:
  cordon vpn unblock --config /etc/cordon-vpn.toml
  cordon vpn unblock --interface cordon0")]
    Unblock(Unblock),
    /// Show what running tunnels do.
    #[command(after_help = "Example:\n  cordon vpn status --socket /run/cordon-vpn.sock --json")]
    Status {
        #[command(flatten)]
        target: VpnSocket,
        /// How to show it; `--json` is the same as `--format json`.
        #[arg(long, default_value = "text")]
        format: StatusFormat,
    },
    /// Write a tunnel's keys for Wireshark (its file `esp_sa`). Only in builds with the feature `lab`.
    #[command(
        after_help = "Example:\n  cordon vpn export-keys --config tunnel.toml --output esp_sa"
    )]
    ExportKeys {
        /// The tunnel: addresses, algorithms, keys.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// A new file, which only its owner may read.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Write configurations for other people's IKEv2 clients: strongSwan on Linux and Android, Apple,
    /// Windows.
    #[command(after_help = "Example:
  cordon vpn profile --data /var/lib/cordon --device camera-18 --gateway vpn.example.org \\
    --network 10.2.0.0/16 --out camera-18
The folder holds a private key: carry each file to its device, and the password of the .p12 by another
way.")]
    Profile(crate::profile::ProfileArgs),
    /// The process with the private keys, which `cordon vpn up` starts by itself.
    #[command(hide = true)]
    Signer,
    /// The process that fetches by HTTP; started by `up`.
    #[command(hide = true)]
    Fetcher,
    #[command(flatten)]
    Openvpn(crate::openvpn::Openvpn),
    /// Issue a certificate for a gateway of tunnels, which renews it from then on.
    #[command(after_help = "Example:
  cordon vpn gateway-certificate --data /var/lib/cordon --name vpn.example.org --out gateway
Carry the folder to the gateway. gateway.pem holds a private key; `cordon pki renew` keeps it valid.")]
    GatewayCertificate(crate::gateway::GatewayCertificate),
}
