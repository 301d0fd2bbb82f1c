//! `cordon pki`: certificates.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::authorities::{
    Authorities, Ceremony, InstallAuthorities, NewAuthority, RequestAuthorities,
};
use commandline::SiteArgs;

/// `cordon pki …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Pki {
    /// Issue a certificate for a person of the directory, as PKCS#12 for browsers.
    ///
    /// The site makes the key, so the certificate is without nonRepudiation: whoever signs has a key of her own certified
    /// (`cordon registry invite`, `cordon registry request new issue`).
    #[command(after_help = "Examples:
  cordon pki issue-user --data /var/lib/cordon --uid officer-4711 --out officer.p12
  cordon pki issue-user --data /var/lib/cordon --uid officer-4711 --profile mail-encryption \\
    --out mail.p12")]
    IssueUser {
        #[command(flatten)]
        site: SiteArgs,
        /// The person's user id.
        #[arg(long)]
        uid: String,
        /// Profile of a certificate whose key the site may make; without it, the one for logging in.
        #[arg(long, value_name = "NAME")]
        profile: Option<String>,
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
    /// Put root.key back into the folder pki for the time. Takes effect at once;
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
    /// List the issuing authorities with their generations, and which of each kind issues.
    ///
    /// With --out their certificates are written, for those who pin them: gateways, for instance.
    #[command(after_help = "Examples:
  cordon pki authorities --data /var/lib/cordon
  cordon pki authorities --data /var/lib/cordon --kind devices --out devices-ca.pem")]
    Authorities(Authorities),
    /// Make another generation of an issuing authority, with a key and name of its own, with the root's key.
    ///
    /// Put root.key back into the folder pki for the time. The new generation issues nothing until
    /// `cordon pki activate-authority`; of each kind one at most waits for that. Where the root is elsewhere: `cordon pki request-authorities --new`.
    #[command(after_help = "Example:
  cordon pki new-authority devices --data /var/lib/cordon --root-passphrase-file root.txt")]
    NewAuthority(NewAuthority),
    /// Have a generation issue from now on, in place of the one that does; that one still signs its lists.
    ///
    /// Nothing is interrupted: certificates of both are accepted, and their holders get one of the new generation when they
    /// renew. Where acts need approvals: `cordon registry request new authority`.
    #[command(after_help = "Example:
  cordon pki activate-authority devices-g2 --data /var/lib/cordon")]
    ActivateAuthority {
        /// Its name, as `cordon pki authorities` shows it.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Discard a generation that was never activated, and delete its key.
    ///
    /// It issued nothing, and its number and name are not used again. Another one can be made then. Have the root revoke its
    /// certificate if anybody may have had its key.
    #[command(after_help = "Example:
  cordon pki drop-authority devices-g2 --data /var/lib/cordon")]
    DropAuthority {
        /// Its name, as `cordon pki authorities` shows it.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Use the root's key on a machine without a network, by a script, with a signed transcript.
    #[command(subcommand)]
    Ceremony(Ceremony),
    /// Write certification requests of the issuing authorities, for a root that is elsewhere.
    ///
    /// In an empty data folder this makes the authorities' keys, and `cordon up` waits for their certificates instead of
    /// making a root of its own. Of a site that has its authorities, their keys are requested once more, to renew them.
    /// With --new, keys for another generation are made, which is installed beside the present one.
    #[command(after_help = "Examples:
  cordon pki request-authorities --data /var/lib/cordon --out requests
  cordon pki request-authorities --new devices --data /var/lib/cordon --out requests
Then hold a ceremony with these requests, and `cordon pki install-authorities`.")]
    RequestAuthorities(RequestAuthorities),
    /// Install what a ceremony made: certificates of the issuing authorities, and the root's revocation list.
    ///
    /// The ceremony's record is checked first. Everything takes effect at once; a new generation issues nothing until
    /// `cordon pki activate-authority`.
    #[command(after_help = "Examples:
  cordon pki install-authorities stick/0001 --data /var/lib/cordon --root-sha256 3f0c…
  cordon pki install-authorities stick/0002 --data /var/lib/cordon")]
    InstallAuthorities(InstallAuthorities),
    /// Renew a certificate of this host over EST, with a new key, when two thirds of its life are over.
    #[command(after_help = "Examples:
  cordon pki renew --file /etc/cordon/gateway.pem --server pki.example.org:8445 --root root.pem
  cordon pki renew --file /etc/openvpn/server/server.conf --server pki.example.org:8445 \\
    --root root.pem --watch --deploy-hook /etc/cordon/restart-openvpn
A file holds a key and its certificates (PEM), or is an OpenVPN configuration with <cert> and <key>.")]
    Renew(enrolment::Renew),
    /// Profiles of certificates: what each kind of certificate says.
    #[command(subcommand)]
    Profile(PkiProfile),
    /// Verify from the audit log that every certificate was issued according to the rules.
    ///
    /// Each is there with the approved request, one-time code or renewal that it came from, approvals with good
    /// signatures of enough people; and none is there that the log does not know. Ends with 1 when something is missing.
    #[command(after_help = "Examples:
  cordon pki audit --data /var/lib/cordon
  cordon pki audit --audit-log copy/log --key log.vkey --root root.pem --authorities authorities.pem \\
    --certificates seen.pem
The first takes log, authorities and the registry's book from the site's folder, the second from files,
as an auditor has them.")]
    Audit(PkiAudit),
    /// Show what a certificate says.
    #[command(after_help = "Example:\n  cordon pki show camera.pem")]
    Show {
        /// A certificate (PEM or DER).
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// `cordon pki profile …`.
#[derive(Debug, Subcommand)]
pub(crate) enum PkiProfile {
    /// List the profiles of certificates that a site issues on request; without a site, all that are built in.
    #[command(after_help = "Examples:
  cordon pki profile list
  cordon pki profile list --data /var/lib/cordon")]
    #[command(mut_arg("data", |data| data.required(false)))]
    List {
        #[command(flatten)]
        site: Option<SiteArgs>,
    },
    /// Show the file of a profile, to read it or to begin another one with.
    #[command(after_help = "Examples:
  cordon pki profile show user
  cordon pki profile show patrol-login --data /var/lib/cordon")]
    #[command(mut_arg("data", |data| data.required(false)))]
    Show {
        /// Name of the profile.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        site: Option<SiteArgs>,
    },
    /// Check the file of a profile; needs no site.
    #[command(after_help = "Example:\n  cordon pki profile check patrol-login.toml")]
    Check {
        /// The file (TOML).
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Put a profile in force for certificates from now on, where the site needs no approvals.
    ///
    /// With approvals, use `cordon registry request new profile`.
    #[command(after_help = "Example:
  cordon pki profile put patrol-login.toml --data /var/lib/cordon")]
    Put {
        /// The file (TOML).
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        site: SiteArgs,
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
    /// This server of the network, with all certificates; the first name in its certificate.
    #[arg(long, value_name = "HOST")]
    pub(crate) server: Option<String>,
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

/// `cordon pki audit`.
#[derive(Debug, Args)]
pub(crate) struct PkiAudit {
    /// Folder of the site's data.
    #[arg(long, value_name = "DIR", required_unless_present = "audit_log")]
    pub(crate) data: Option<PathBuf>,
    /// Settings, for the numbers of approvals; without it they have their defaults.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of the audit log.
    #[arg(long, value_name = "DIR", requires = "root", requires = "authorities")]
    pub(crate) audit_log: Option<PathBuf>,
    /// The log's public key; without it log.vkey beside the log.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The root's certificate (PEM), from a source that you trust.
    #[arg(long, value_name = "FILE")]
    pub(crate) root: Option<PathBuf>,
    /// Certificates of the issuing authorities (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) authorities: Option<PathBuf>,
    /// Certificates (PEM) to look for in the log, as others have seen them.
    #[arg(long, value_name = "FILE")]
    pub(crate) certificates: Vec<PathBuf>,
}
