//! `cordon pki`: certificates.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::site_args::SiteArgs;

/// `cordon pki …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Pki {
    /// Issue a certificate for a person of the directory, as PKCS#12 for browsers.
    #[command(after_help = "Example:
  cordon pki issue-user --data /var/lib/cordon --uid officer-4711 --out officer.p12")]
    IssueUser {
        #[command(flatten)]
        site: SiteArgs,
        /// The person's user id.
        #[arg(long)]
        uid: String,
        /// PKCS#12 file to write; its password goes to FILE.password.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Revoke a person, a device or one certificate; it takes effect at once inside of this system.
    ///
    /// A person or device is revoked with all certificates, and gets no new ones until
    /// `cordon registry readmit`.
    #[command(after_help = "Example:
  cordon pki revoke --data /var/lib/cordon --uid officer-4711 --reason key-compromise")]
    Revoke(Revoke),
    /// List issued certificates, the newest thousand of each authority.
    #[command(after_help = "Example:\n  cordon pki list --data /var/lib/cordon")]
    List {
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Give the issuing authorities new certificates for their keys, with the root's key.
    ///
    /// Put root.key back into the folder pki for the time. Takes effect at the next start of the site;
    /// what the authorities issued stays valid.
    #[command(after_help = "Example:
  cordon pki renew-authorities --data /var/lib/cordon --root-passphrase-file root.txt")]
    RenewAuthorities {
        #[command(flatten)]
        site: SiteArgs,
        /// File with the passphrase of the root's key.
        #[arg(long, value_name = "FILE")]
        root_passphrase_file: PathBuf,
    },
    /// Renew a certificate of this host over EST, with a new key, when two thirds of its life are over.
    #[command(after_help = "Examples:
  cordon pki renew --file /etc/cordon/gateway.pem --server pki.example.org:8445 --root root.pem
  cordon pki renew --file /etc/openvpn/server/server.conf --server pki.example.org:8445 \\
    --root root.pem --watch --deploy-hook /etc/cordon/restart-openvpn
A file holds a key and its certificates (PEM), or is an OpenVPN configuration with <cert> and <key>.")]
    Renew(crate::commands::renew::Renew),
    /// Show what a certificate says.
    #[command(after_help = "Example:\n  cordon pki show camera.pem")]
    Show {
        /// A certificate (PEM or DER).
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// `cordon pki revoke`.
#[derive(Debug, Args)]
#[group(id = "whose", required = true, multiple = false)]
pub(crate) struct RevokeWhose {
    /// This person, with all certificates.
    #[arg(long)]
    pub(crate) uid: Option<String>,
    /// This device, with all certificates and one-time codes.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// This gateway, with all certificates; the first name in its certificate.
    #[arg(long, value_name = "HOST")]
    pub(crate) gateway: Option<String>,
    /// The certificate with this serial number.
    #[arg(long, value_name = "HEX")]
    pub(crate) serial: Option<String>,
}

/// `cordon pki revoke`.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    #[command(flatten)]
    pub(crate) whose: RevokeWhose,
    /// Why: unspecified, key-compromise, affiliation-changed, superseded, cessation-of-operation.
    #[arg(long, default_value = "unspecified")]
    pub(crate) reason: String,
}
