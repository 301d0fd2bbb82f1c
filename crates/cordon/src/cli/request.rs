//! `cordon registry request`: acts that others approve.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::registry::{HolderName, Invited, ProfileName};
use commandline::SiteArgs;

/// `cordon registry request …`.
#[derive(Debug, Subcommand)]
pub(crate) enum RequestCommand {
    /// Ask for an act; it needs approvals of others.
    #[command(subcommand)]
    New(Box<NewAct>),
    /// Change what is asked for; approvals so far end.
    #[command(after_help = "Example:
  cordon registry request edit 0123456789ab --seen 3 issue --uid officer-9 --csr officer-9.csr \\
    --reason 'new officer, traffic' --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Edit {
        /// The request.
        #[arg(value_name = "ID")]
        id: String,
        /// Version that `show` gave.
        #[arg(long, value_name = "VERSION")]
        seen: u64,
        #[command(subcommand)]
        act: Box<NewAct>,
    },
    /// List open requests.
    #[command(after_help = "Example:\n  cordon registry request list --data /var/lib/cordon")]
    List {
        #[command(flatten)]
        site: SiteArgs,
        /// Also those that are done, refused or withdrawn.
        #[arg(long)]
        all: bool,
    },
    /// Show a request with its approvals and history.
    #[command(after_help = "Example:
  cordon registry request show 0123456789ab --data /var/lib/cordon")]
    Show {
        /// The request.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Hand a draft or a returned request in.
    #[command(after_help = "Example:
  cordon registry request submit 0123456789ab --seen 3 --data /var/lib/cordon --as me.p12 \\
    --as-password-file secret")]
    Submit(Seen),
    /// Sign a request, with the key of --as.
    #[command(after_help = "Example:
  cordon registry request approve 0123456789ab --seen 2 --data /var/lib/cordon --as me.p12 \\
    --as-password-file secret")]
    Approve(Seen),
    /// Send a request back to the requester.
    #[command(after_help = "Example:
  cordon registry request return 0123456789ab --seen 2 --reason 'which unit?' \\
    --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Return(Objection),
    /// Refuse a request for good.
    #[command(after_help = "Example:
  cordon registry request refuse 0123456789ab --seen 2 --reason 'not employed here' \\
    --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Refuse(Objection),
    /// Give an own request up.
    #[command(after_help = "Example:
  cordon registry request withdraw 0123456789ab --seen 2 --data /var/lib/cordon --as me.p12 \\
    --as-password-file secret")]
    Withdraw(Seen),
    /// Carry out an approved act: its requester may, and every person who may approve it.
    #[command(after_help = "Example:
  cordon registry request carry-out 0123456789ab --seen 4 --out officer-9.pem \\
    --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    CarryOut {
        #[command(flatten)]
        seen: Seen,
        /// File for the certificate and its issuer (PEM), the code, or the recovered key (CMS, DER), of an act that gives one; must
        /// not exist.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Also keep the code of an invitation, encrypted, until it was used or is over: enrolment over CMP needs that.
        #[arg(long, requires = "out")]
        cmp: bool,
        /// Write an invitation of a person for `cordon id enrol`: beside the code the user id, the site's address and its root's
        /// fingerprint.
        #[arg(long, requires = "out")]
        complete: bool,
    },
    /// Write a request with its approvals and certificates, for others to check.
    #[command(after_help = "Example:
  cordon registry request export 0123456789ab --out request --data /var/lib/cordon")]
    Export {
        /// The request.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        site: SiteArgs,
        /// Folder to write; must not exist.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Check the signatures of an exported request; needs no site.
    #[command(after_help = "Example:
  cordon registry request verify request --root root.pem")]
    Verify {
        /// The exported folder.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The trusted root (PEM), from the authority itself and not from the folder.
        #[arg(long, value_name = "FILE")]
        root: PathBuf,
    },
}

/// A request in the version that the person saw.
#[derive(Debug, Args)]
pub(crate) struct Seen {
    /// The request.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Version that `show` gave.
    #[arg(long, value_name = "VERSION")]
    pub(crate) seen: u64,
    #[command(flatten)]
    pub(crate) site: SiteArgs,
}

/// A decision against a request.
#[derive(Debug, Args)]
pub(crate) struct Objection {
    #[command(flatten)]
    pub(crate) seen: Seen,
    /// Words for the requester; they are recorded for ever.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

/// The act that is asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum NewAct {
    /// A certificate for a key that its owner made.
    #[command(after_help = "Example:
  cordon registry request new issue --uid officer-9 --csr officer-9.csr --reason 'new officer' \\
    --submit --data /var/lib/cordon --as me.p12 --as-password-file secret
  cordon registry request new issue --uid officer-9 --csr card.csr --profile smart-card-logon \\
    --principal officer-9@police.example --sid S-1-5-21-1-2-3-1104 --reason 'card' \\
    --submit --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Issue {
        #[command(flatten)]
        holder: HolderName,
        /// The certification request (PKCS#10, PEM or DER): a device's has its name as common name.
        #[arg(long, value_name = "FILE")]
        csr: PathBuf,
        /// Level of the certificate; without it, the person's in the directory, and 1 for a device.
        #[arg(long, value_parser = clap::value_parser!(u8).range(0..=4))]
        clearance: Option<u8>,
        /// A device that only opens tunnels.
        #[arg(long, requires = "device", conflicts_with = "profile")]
        tunnel_only: bool,
        #[command(flatten)]
        profile: ProfileName,
        #[command(flatten)]
        asking: Asking,
    },
    /// A code by which a person has a key of her own certified over EST, a device one for tunnels, or a server its own over
    /// ACME.
    #[command(after_help = "Example:
  cordon registry request new invite --uid officer-9 --renewals 2 --reason 'new officer' --submit \\
    --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Invite {
        #[command(flatten)]
        invited: Invited,
        #[command(flatten)]
        asking: Asking,
    },
    /// Renew a certificate for its key.
    #[command(after_help = "Example:
  cordon registry request new renew --serial 01a2 --reason 'ends in May' --submit \\
    --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Renew {
        /// Serial number of that certificate.
        #[arg(long, value_name = "HEX")]
        serial: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// The revocation of one certificate.
    #[command(after_help = "Example:
  cordon registry request new revoke --serial 01a2 --cause key-compromise --emergency \\
    --reason 'card stolen' --submit --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Revoke {
        /// Its serial number.
        #[arg(long, value_name = "HEX")]
        serial: String,
        /// Reason that revocation lists give, as in `cordon pki revoke`.
        #[arg(long, default_value = "unspecified")]
        cause: String,
        /// One approval at once, a second within the time that the site sets.
        #[arg(long)]
        emergency: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// Another state of a device, person, gateway or server, with all certificates.
    #[command(after_help = "Example:
  cordon registry request new holder --device camera-17 --change retire --reason 'scrapped' \\
    --submit --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Holder {
        #[command(flatten)]
        holder: HolderName,
        /// suspend, resume, revoke, retire or readmit.
        #[arg(long, value_parser = ["suspend", "resume", "revoke", "retire", "readmit"])]
        change: String,
        /// Reason that revocation lists give, for `--change revoke`.
        #[arg(long, default_value = "unspecified")]
        cause: String,
        /// One approval at once, a second within the time that the site sets; not for resume and readmit.
        #[arg(long)]
        emergency: bool,
        #[command(flatten)]
        asking: Asking,
    },
    /// An archived key, for the owner of the recovery key to open.
    #[command(after_help = "Example:
  cordon registry request new recover-key --serial 01a2 --reason 'card broken, mail of two years' \\
    --submit --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    RecoverKey {
        /// Serial number of the certificate of that key.
        #[arg(long, value_name = "HEX")]
        serial: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// A profile of certificates from a file, in the place of the one of its name or as a new one.
    #[command(after_help = "Example:
  cordon registry request new profile --file patrol-login.toml --reason 'short-lived log-in' \\
    --submit --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Profile {
        /// The profile's file; check it first with `cordon pki profile check`.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        asking: Asking,
    },
    /// Activate a generation of an issuing authority, in place of the one that issues.
    #[command(after_help = "Example:
  cordon registry request new authority --name devices-g2 --reason 'the first one ends in 2034' \\
    --submit --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Authority {
        /// Its name, as `cordon pki authorities` shows it.
        #[arg(long)]
        name: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Other rights of a person; what is not named stays.
    #[command(after_help = "Example:
  cordon registry request new person --uid officer-9 --clearance 2 --role officer --unit traffic \\
    --reason 'promoted' --submit --data /var/lib/cordon --as me.p12 --as-password-file secret")]
    Person {
        /// User id of the person.
        #[arg(long)]
        uid: String,
        /// New clearance.
        #[arg(long, value_parser = clap::value_parser!(u8).range(0..=4))]
        clearance: Option<u8>,
        /// All roles from then on; may be given several times.
        #[arg(long)]
        role: Option<Vec<String>>,
        /// All units from then on; may be given several times.
        #[arg(long)]
        unit: Option<Vec<String>>,
        #[command(flatten)]
        asking: Asking,
    },
}

/// The requester, and the reason.
#[derive(Debug, Args)]
pub(crate) struct Asking {
    /// Why; approvers sign it, and it is recorded for ever.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Also hand it in; not with `edit`.
    #[arg(long)]
    pub(crate) submit: bool,
    #[command(flatten)]
    pub(crate) site: SiteArgs,
}
