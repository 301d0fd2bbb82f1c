//! The command line: one definition for parsing, help and completions.

mod authorities;
mod directory;
mod pki;
pub(crate) mod quarantine;
#[cfg(test)]
mod reference;
mod registry;
mod request;
mod site_args;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use authorities::{
    Authorities, Ceremony, CeremonyRun, InstallAuthorities, NewAuthority, RequestAuthorities,
};
pub(crate) use cordon_camera::Camera;
pub(crate) use directory::Directory;
pub(crate) use pki::{Pki, PkiAudit, PkiProfile, Revoke};
pub(crate) use registry::{HolderArgs, HolderName, Invited, ProfileName, Registry, Replace};
pub(crate) use request::{Asking, NewAct, RequestCommand, Seen};
pub(crate) use site_args::{AcceptLoss, SiteArgs};

/// Secure communications for police systems: cameras, evidence, people, proofs.
#[derive(Debug, Parser)]
#[command(
    name = "cordon",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  cordon demo --data /tmp/cordon            try everything on this machine
  cordon up --data /var/lib/cordon          run all roles
  cordon audit verify /var/lib/cordon/audit/log --key audit.vkey
Every command explains itself: cordon COMMAND --help")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: commandline::OutputArgs,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run all roles in one process, with everything they need inside.
    #[command(
        after_help = "Example:\n  cordon up --data /var/lib/cordon --config /etc/cordon.toml"
    )]
    Up(Up),
    /// Run everything and a camera that sends drawn pictures.
    #[command(
        after_help = "Example:\n  cordon demo --data /tmp/cordon --violations 5 --once --json"
    )]
    Demo(Demo),
    /// The field agent.
    #[command(subcommand)]
    Camera(Camera),
    /// Sealed evidence by hand.
    #[command(subcommand)]
    Evidence(Evidence),
    /// The audit log.
    #[command(subcommand)]
    Audit(Audit),
    /// Certificates: issue, revoke, show.
    #[command(subcommand)]
    Pki(Pki),
    /// Enrolment of devices.
    #[command(subcommand)]
    Registry(Registry),
    /// People and their passwords.
    #[command(subcommand)]
    Directory(Directory),
    /// Tunnels.
    #[command(subcommand)]
    Vpn(Vpn),
    /// The INDECT Block Cipher: broken, research only. Runs `cordon-lab ibc`.
    #[command(disable_help_flag = true)]
    Ibc(Words),
    /// Published measurements repeated on this machine. Runs `cordon-lab`.
    #[command(disable_help_flag = true)]
    Lab(Words),
    /// Check a configuration file.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// The data of a site.
    #[command(subcommand)]
    Site(Site),
    /// Print the OpenAPI description of the HTTP interface.
    #[command(after_help = "Example:\n  cordon openapi > openapi.json")]
    Openapi,
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  cordon completions bash > /etc/bash_completion.d/cordon")]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands.
    #[command(after_help = "Example:\n  cordon man --out /usr/local/share/man/man1")]
    Man {
        /// Folder for `cordon.1`, `cordon-up.1` and so on; made when it is missing.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// What another program is told.
#[derive(Debug, Args)]
pub(crate) struct Words {
    /// Its arguments.
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<std::ffi::OsString>,
}

/// `cordon up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
}

/// `cordon demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// How many violations the camera sees.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) violations: u64,
    /// End when every violation has its receipt.
    #[arg(long)]
    pub(crate) once: bool,
}

/// `cordon evidence …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Evidence {
    /// Sign and encrypt files into one block.
    #[command(after_help = "Example:
  cordon evidence seal --key camera.key --passphrase-file passphrase --chain camera.pem \\
    --recipient centre.pem --meta violation.json --sequence 1 --out block.cordon picture.jpg")]
    Seal(Seal),
    /// Decrypt a block into a folder.
    #[command(after_help = "Example:
  cordon evidence open --key centre.key --passphrase-file passphrase --certificate centre.pem \\
    --root root.pem --out folder block.cordon")]
    Open(Open),
    /// Look at blocks that were set apart, and decide about them.
    #[command(subcommand)]
    Quarantine(quarantine::Quarantine),
    /// Check a block: signature, chain, hashes, without writing anything.
    #[command(after_help = "Example:
  cordon evidence verify --key centre.key --passphrase-file passphrase --certificate centre.pem \\
    --root root.pem block.cordon")]
    Verify(Unseal),
    /// Check a custody package against a trust file: exit code 0 means valid.
    #[command(after_help = "Example:
  cordon evidence check --trust trust.json v-0123456789abcdef")]
    Check(Check),
    /// Print the trust file of a site: its root's fingerprint and its audit log's key.
    #[command(after_help = "Example:
  cordon evidence trust --data /var/lib/cordon > trust.json")]
    Trust(SiteArgs),
    /// Print the script that checks custody packages with Python and OpenSSL alone.
    #[command(after_help = "Example:
  cordon evidence script > verify_package.py")]
    Script,
    /// Write a custody package that others can check without this program.
    #[command(after_help = "Example:
  cordon evidence export --data /var/lib/cordon --out package \\
    --as anna.p12 --as-password-file anna.password v-0123456789abcdef")]
    Export(Export),
    /// Rebuild the index from archive, quarantine and log. Stop the site first.
    ///
    /// The former index stays beside it. Only what it alone had is taken from it: open uploads, and what cameras used of
    /// their bounds.
    #[command(after_help = "Example:\n  cordon evidence rebuild-index --data /var/lib/cordon")]
    RebuildIndex(SiteArgs),
    /// Accept that the archive lost blocks of which no copy is left; it is recorded. Stop the site first.
    #[command(after_help = "Example:
  cordon evidence accept-loss --data /var/lib/cordon --reason 'disk of the archive failed, no copy'")]
    AcceptLoss(AcceptLoss),
}

/// `cordon evidence seal`.
#[derive(Debug, Args)]
pub(crate) struct Seal {
    /// The signer's encrypted private key (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The signer's certificate and issuers, leaf first (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) chain: PathBuf,
    /// Certificates to encrypt to (PEM); may be given several times.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) recipient: Vec<PathBuf>,
    /// What the pictures show, as a camera describes it (JSON).
    #[arg(long, value_name = "FILE")]
    pub(crate) meta: PathBuf,
    /// Number in the signer's chain of blocks, from 1.
    #[arg(long, value_name = "N")]
    pub(crate) sequence: u64,
    /// SHA-256 of the previous manifest; zeros for the first block.
    #[arg(long, value_name = "HEX")]
    pub(crate) previous: Option<String>,
    /// File with the key's passphrase; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: PathBuf,
    /// The block to write.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The media, in order.
    #[arg(required = true, value_name = "MEDIUM")]
    pub(crate) media: Vec<PathBuf>,
}

/// What opening a block needs.
#[derive(Debug, Args)]
pub(crate) struct Unseal {
    /// The recipient's encrypted private key (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The recipient's certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: PathBuf,
    /// The trusted root (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) root: PathBuf,
    /// Revocation lists (DER or PEM); may be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) crl: Vec<PathBuf>,
    /// File with the key's passphrase.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: PathBuf,
    /// The block.
    #[arg(value_name = "BLOCK")]
    pub(crate) block: PathBuf,
}

/// `cordon evidence open`.
#[derive(Debug, Args)]
pub(crate) struct Open {
    #[command(flatten)]
    pub(crate) unseal: Unseal,
    /// Folder for the manifest and the media; must not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// `cordon evidence check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The trust file, from the authority itself and not from the package.
    #[arg(long, value_name = "FILE")]
    pub(crate) trust: PathBuf,
    /// Newer revocation lists than those of the package (DER or PEM); may be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) crl: Vec<PathBuf>,
    /// The package's folder.
    #[arg(value_name = "PACKAGE")]
    pub(crate) package: PathBuf,
}

/// `cordon evidence export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Folder to write; must not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// The violation's name, as the portal shows it.
    #[arg(value_name = "VIOLATION")]
    pub(crate) id: String,
}

/// `cordon audit …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Prove from files and a public key that nothing was changed, removed or cut.
    #[command(after_help = "Examples:
  cordon audit verify /var/lib/cordon/audit/log --key audit.vkey
  cordon audit verify copy-of-the-log --key audit.vkey --since checkpoint-of-last-month")]
    Verify(AuditVerify),
    /// Accept that the log was lost and cannot be restored (recorded in the audit log).
    #[command(after_help = "Example:
  cordon audit accept-loss --data /var/lib/cordon --reason 'disk of the log failed, no copy'")]
    AcceptLoss(AcceptLoss),
    /// Accept the current time after the clock ran ahead (recorded in the audit log). Stop the site first.
    #[command(after_help = "Example:
  cordon audit accept-clock --data /var/lib/cordon --reason 'clock was a month ahead'")]
    AcceptClock(AcceptLoss),
    /// Print events, newest last.
    #[command(after_help = "Example:\n  cordon audit show /var/lib/cordon/audit/log --last 20")]
    Show {
        /// Folder of the log.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// The log's public key; by default `log.vkey` beside the folder.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 50)]
        last: u64,
    },
}

/// `cordon audit verify`.
#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
    /// Folder of the log.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The log's public key (a verifier key as text); by default `log.vkey` beside the folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// A checkpoint seen earlier: the log must contain everything that it had then.
    #[arg(long, value_name = "FILE")]
    pub(crate) since: Option<PathBuf>,
    /// Folder of the roles' journals, which must all be contained in the log.
    #[arg(long, value_name = "DIR")]
    pub(crate) journals: Option<PathBuf>,
}

/// `cordon config …`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read a file and name the first mistake with its line.
    #[command(after_help = "Example:\n  cordon config check /etc/cordon.toml")]
    Check {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Send a test mail over the relay that a file names.
    #[command(
        after_help = "Example:\n  cordon config test-mail /etc/cordon.toml --to registrar@example.org"
    )]
    TestMail {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Address that gets the mail.
        #[arg(long, value_name = "ADDRESS")]
        to: String,
    },
}

/// `cordon site`.
#[derive(Debug, Subcommand)]
pub(crate) enum Site {
    /// Problems and warnings of a running site, and what its accelerator does.
    #[command(after_help = "Example:\n  cordon site status --data /var/lib/cordon")]
    Status {
        /// Folder of the site's data.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Compare the counters and the search of the index with its rows; the site may be running.
    #[command(after_help = "Example:\n  cordon site check --data /var/lib/cordon")]
    Check {
        /// Folder of the site's data.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}

/// `cordon vpn …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Vpn {
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
    Init(crate::commands::vpn_init::Init),
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
    Profile(crate::commands::vpn_profile::ProfileArgs),
    /// The process with the private keys, which `cordon vpn up` starts by itself.
    #[command(hide = true)]
    Signer,
    /// The process that fetches by HTTP; started by `up`.
    #[command(hide = true)]
    Fetcher,
    #[command(flatten)]
    Openvpn(crate::commands::openvpn::Openvpn),
    /// Issue a certificate for a gateway of tunnels, which renews it from then on.
    #[command(after_help = "Example:
  cordon vpn gateway-certificate --data /var/lib/cordon --name vpn.example.org --out gateway
Carry the folder to the gateway. gateway.pem holds a private key; `cordon pki renew` keeps it valid.")]
    GatewayCertificate(crate::commands::vpn_gateway::GatewayCertificate),
}

/// `cordon vpn unblock`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Unblock {
    /// The tunnel's configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Name of its interface, where the configuration is gone.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
}

/// Which running tunnel is meant.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct VpnSocket {
    /// Its socket: `status` in its configuration.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Its configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// How a tunnel's state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatusFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For Prometheus.
    Prometheus,
}
