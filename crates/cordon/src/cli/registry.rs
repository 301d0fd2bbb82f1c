//! `cordon registry`: enrolment, and the states of devices and people.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use commandline::SiteArgs;

/// `cordon registry …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Registry {
    /// Make a one-time code with which a device enrols itself, and a folder with all it needs.
    #[command(after_help = "Example:
  cordon registry code --data /var/lib/cordon --device camera-17 --out camera-17
Carry the folder to the camera and start `cordon camera run --config camera.toml` there.")]
    Code {
        #[command(flatten)]
        site: SiteArgs,
        /// Name of the device.
        #[arg(long)]
        device: String,
        /// Highest classification the device may seal, 0 to 3: what the devices CA may grant.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=4))]
        clearance: u8,
        /// Folder for the code, the certificates to trust and seal to, and a configuration to
        /// start from; must not exist.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Hours that the code is good for.
        #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=720))]
        hours: u32,
    },
    /// Make a code by which a person enrols a key of their own over EST, a device one for tunnels, or a server of the network
    /// its own over ACME.
    #[command(after_help = "Example:
  cordon registry invite --data site --uid officer-9 --complete --out officer-9.invitation
  cordon registry invite --data /var/lib/cordon --uid officer-9 --renewals 2 --out officer-9.code
  cordon registry invite --data /var/lib/cordon --server db.example.org --renewals 10 --out db.ini
Hand the file to the person alone: until it is used, its owner can enrol as that person. With --complete the person
uses it by `cordon id enrol FILE`; docs/enrolment.md has the commands for other clients. A server's file is a configuration for certbot: docs/acme.md.")]
    Invite {
        #[command(flatten)]
        invited: Invited,
        /// Also keep the code, encrypted, until it was used or is over: enrolment over CMP needs that.
        #[arg(long, conflicts_with = "server")]
        cmp: bool,
        /// Write an invitation for `cordon id enrol`: beside the code the user id, the site's address and its root's fingerprint.
        #[arg(long)]
        complete: bool,
        #[command(flatten)]
        site: SiteArgs,
        /// File for the code; must not exist.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// List devices and people with their states: enrolled, suspended, revoked, retired.
    #[command(after_help = "Example:\n  cordon registry list --data /var/lib/cordon")]
    List {
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Refuse a device or person for the time being; the certificates stay.
    #[command(after_help = "Example:
  cordon registry suspend --data /var/lib/cordon --device camera-17")]
    Suspend(HolderArgs),
    /// End a suspension.
    #[command(after_help = "Example:
  cordon registry resume --data /var/lib/cordon --device camera-17")]
    Resume(HolderArgs),
    /// Refuse a device or person for good and revoke all certificates; the name is not used again.
    #[command(after_help = "Example:
  cordon registry retire --data /var/lib/cordon --device camera-17")]
    Retire(HolderArgs),
    /// Allow a revoked device or person new certificates; the old ones stay revoked.
    #[command(after_help = "Example:
  cordon registry readmit --data /var/lib/cordon --device camera-17")]
    Readmit(HolderArgs),
    /// Close the chain of a camera whose memory was replaced: its numbers begin with 1 again.
    ///
    /// One person proposes it with --reason, another confirms it with --confirm. The closed chain ends at its head: it
    /// accepts only missing blocks that its own links confirm. Blocks that continue it, or contradict the new chain, wait
    /// in quarantine for `sequence-fork`. Blocks of the new chain that waited before can be released afterwards.
    #[command(after_help = "Example:
  cordon registry replace --data /var/lib/cordon --device camera-17 --reason 'memory card swapped' \\
    --as anna.p12 --as-password-file anna.password
  cordon registry replace --data /var/lib/cordon --device camera-17 --confirm \\
    --as ben.p12 --as-password-file ben.password")]
    Replace(Replace),
    /// Requests for acts that others approve.
    #[command(subcommand)]
    Request(super::request::RequestCommand),
}

/// `cordon registry replace`.
#[derive(Debug, Args)]
pub(crate) struct Replace {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Name of the device.
    #[arg(long)]
    pub(crate) device: String,
    /// Why, for the audit log.
    #[arg(long, value_name = "TEXT", required_unless_present = "confirm")]
    pub(crate) reason: Option<String>,
    /// Confirm the proposal of another person.
    #[arg(long, conflicts_with_all = ["reason", "withdraw"])]
    pub(crate) confirm: bool,
    /// Withdraw the proposal.
    #[arg(long)]
    pub(crate) withdraw: bool,
}

/// `cordon registry suspend` and its like.
#[derive(Debug, Args)]
pub(crate) struct HolderArgs {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    #[command(flatten)]
    pub(crate) holder: HolderName,
}

/// Who is invited, and to what.
#[derive(Debug, Args)]
pub(crate) struct Invited {
    #[command(flatten)]
    pub(crate) holder: HolderName,
    /// Level of the certificate; without it, the person's in the directory, and 0 for a device.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=4), conflicts_with = "server")]
    pub(crate) clearance: Option<u8>,
    /// Unit in the certificate's name, one of the person's.
    #[arg(long, requires = "uid")]
    pub(crate) unit: Option<String>,
    /// Hours that the code is good for.
    #[arg(long, default_value_t = 72, value_parser = clap::value_parser!(u32).range(1..=720))]
    pub(crate) hours: u32,
    /// How often the person or server renews the certificate with it before a person has to agree again.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub(crate) renewals: u8,
    /// A further name by which the server is reached; may be given several times.
    #[arg(long, value_name = "HOST", requires = "server")]
    pub(crate) name: Vec<String>,
    #[command(flatten)]
    pub(crate) profile: ProfileName,
}

/// Choice of a certificate's profile.
#[derive(Debug, Args)]
pub(crate) struct ProfileName {
    /// Profile of the certificate, one of `cordon pki profile list`; without it, the usual one of the holder.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Principal name of the account in Windows that it logs on to, as officer@police.example.
    #[arg(long, value_name = "NAME", requires = "sid", requires = "profile")]
    pub(crate) principal: Option<String>,
    /// Security identifier of that account, as S-1-5-21-1-2-3-1104.
    #[arg(long, value_name = "SID", requires = "principal")]
    pub(crate) sid: Option<String>,
}

/// A device, a person, a gateway or a server.
#[derive(Debug, Args)]
#[group(id = "holder", required = true, multiple = false)]
pub(crate) struct HolderName {
    /// Name of the device.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// User id of the person.
    #[arg(long)]
    pub(crate) uid: Option<String>,
    /// The gateway, by the first name in its certificate.
    #[arg(long, value_name = "HOST")]
    pub(crate) gateway: Option<String>,
    /// The server of the network, by the first name in its certificate.
    #[arg(long, value_name = "HOST")]
    pub(crate) server: Option<String>,
}
