//! The command line: one definition for parsing, help and completions.

mod audit;
mod audit_host;
mod authorities;
mod directory;
mod pki;
pub(crate) mod quarantine;
#[cfg(test)]
mod reference;
mod registry;
mod request;
mod run;
mod service;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use audit::{AcceptLoss, Audit, AuditVerify};
pub(crate) use audit_host::{AlarmArgs, CloseAlarm, Peer, PeerShow};
pub(crate) use authorities::{
    Authorities, Ceremony, CeremonyRun, InstallAuthorities, NewAuthority, RequestAuthorities,
};
pub(crate) use commandline::SiteArgs;
pub(crate) use cordon_camera::Camera;
pub(crate) use directory::Directory;
pub(crate) use pki::{Pki, PkiAudit, PkiProfile, Revoke};
pub(crate) use registry::{HolderArgs, HolderName, Invited, ProfileName, Registry, Replace};
pub(crate) use request::{Asking, NewAct, RequestCommand, Seen};
pub(crate) use run::{RoleName, Run};
pub(crate) use service::{ClientArgs, Service};
pub(crate) use tunnel_tools::Vpn;

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
    /// Run some roles, on a host of their own.
    #[command(
        after_help = "Examples:\n  cordon run audit --config /etc/cordon-audit.toml\n  cordon run registry directory --data /var/lib/cordon --config /etc/cordon.toml\n  cordon run centre portal --data /var/lib/cordon --config /etc/cordon.toml"
    )]
    Run(Run),
    /// The key by which other hosts know this one.
    #[command(subcommand)]
    Peer(Peer),
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
    /// Your own key and certificate, on your own computer.
    #[command(subcommand)]
    Id(enrolment::Id),
    /// Enrolment of devices.
    #[command(subcommand)]
    Registry(Registry),
    /// People and their passwords.
    #[command(subcommand)]
    Directory(Directory),
    /// Foreign applications that people open through the portal.
    #[command(subcommand)]
    Service(Service),
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

/// The arguments of another program.
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
    /// Found a site with its first administrators and registrars, who hold their own keys.
    ///
    /// Makes the authorities, certifies the keys of at least two administrators and two registrars, and begins the audit log
    /// with the transcript, which counts as the first quorum. From then on acts need approvals. A run that was cut off is
    /// completed by the same command.
    #[command(after_help = "Examples:
  cordon id request --uid admin-1                             each person, on their own computer
  cordon site found --data site --config site.toml --from founding.toml --out founded
  cordon site found --data site --config site.toml --out founded            asks for everything
Each person continues with `cordon id install --uid admin-1 --certificate founded/admin-1.pem --root founded/root.pem`.")]
    Found {
        #[command(flatten)]
        site: SiteArgs,
        /// The founding as a file (TOML); without it, the command asks.
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// Folder for the certificates of the people and the root.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
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
