//! `cordon pki ceremony`, `request-authorities`, `install-authorities`: a root that is elsewhere.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pki::profile::CaKind;

use super::SiteArgs;

/// `cordon pki ceremony …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Ceremony {
    /// Print a script to begin with: making the root and certifying the three authorities.
    #[command(after_help = "Example:\n  cordon pki ceremony script > first.toml")]
    Script,
    /// Hold a ceremony: do what the script says with the root's key, each step confirmed by everybody present.
    ///
    /// Nothing is signed before all of it is confirmed, and nothing stays of a ceremony that does not end.
    #[command(after_help = "Examples:
  cordon pki ceremony run first.toml --root root --passphrase-file passphrase
  cordon pki ceremony run first.toml --root root --passphrase-file passphrase --yes --json
Files that the script names lie beside it. What is to be carried to the site, and shown to auditors, lies in
root/ceremonies/0001 afterwards; it has no secret.")]
    Run(CeremonyRun),
    /// Check the records of ceremonies: signatures, files, and that none is missing between two.
    #[command(after_help = "Examples:
  cordon pki ceremony check root --root-sha256 3f0c…
  cordon pki ceremony check root/ceremonies/0002 --root-sha256 3f0c…
The first checks all ceremonies of a root's folder, the second one alone, as a site or an auditor has it.")]
    Check {
        /// A root's folder, or that of one ceremony.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// SHA-256 of the root's certificate, as people wrote it down.
        #[arg(long, value_name = "HEX")]
        root_sha256: String,
    },
}

/// `cordon pki ceremony run`.
#[derive(Debug, Args)]
pub(crate) struct CeremonyRun {
    /// What is to be done.
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: PathBuf,
    /// Folder of the root, on a medium that is locked away afterwards; made when it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// File with the passphrase of the root's key, at least 12 bytes.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: PathBuf,
    /// Do not ask: the record says that no participant confirmed.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `cordon pki request-authorities`.
#[derive(Debug, Args)]
pub(crate) struct RequestAuthorities {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Request another generation of this kind, users, devices or services; may be given several times.
    #[arg(long, value_name = "KIND")]
    pub(crate) new: Vec<CaKind>,
    /// Folder to write users-ca.csr, devices-ca.csr and services-ca.csr into, or devices-g2-ca.csr.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// `cordon pki authorities`.
#[derive(Debug, Args)]
pub(crate) struct Authorities {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Only those of this kind, users, devices or services.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<CaKind>,
    /// File for their certificates (PEM); replaced if it exists. Those that are revoked or over are left out.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// `cordon pki new-authority`.
#[derive(Debug, Args)]
pub(crate) struct NewAuthority {
    /// users, devices or services.
    #[arg(value_name = "KIND")]
    pub(crate) kind: CaKind,
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// File with the passphrase of the root's key.
    #[arg(long, value_name = "FILE")]
    pub(crate) root_passphrase_file: PathBuf,
}

/// `cordon pki install-authorities`.
#[derive(Debug, Args)]
pub(crate) struct InstallAuthorities {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Folder of the ceremony.
    #[arg(value_name = "DIR")]
    pub(crate) ceremony: PathBuf,
    /// SHA-256 of the root's certificate, as people wrote it down at the ceremony; needed the first time.
    #[arg(long, value_name = "HEX")]
    pub(crate) root_sha256: Option<String>,
}
