//! `cordon pki post-quantum`: an experimental authority.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `cordon pki post-quantum …`.
#[derive(Debug, Subcommand)]
pub(crate) enum PostQuantum {
    /// Make a root and an issuing authority with keys of ML-DSA-65, in a new folder.
    #[command(after_help = "Example:
  cordon pki post-quantum authority --config cordon.toml --folder pq --passphrase-file secret")]
    Authority(PostQuantumFolder),
    /// Certify a key of ML-DSA-65 for signing documents, by a certification request that is signed with it.
    #[command(after_help = "Example:
  cordon pki post-quantum certify --config cordon.toml --folder pq --passphrase-file secret \\
    --csr officer-9.csr --uid officer-9 --name 'Ninth Officer' --out officer-9.pem")]
    Certify {
        #[command(flatten)]
        folder: PostQuantumFolder,
        /// Certification request (PKCS#10) in PEM or DER.
        #[arg(long, value_name = "FILE")]
        csr: PathBuf,
        /// User id of the owner.
        #[arg(long)]
        uid: String,
        /// Full name of the owner.
        #[arg(long)]
        name: String,
        /// Mail address of the owner.
        #[arg(long)]
        email: Option<String>,
        /// Days for which the certificate is good, 730 at most.
        #[arg(long, default_value_t = 365)]
        days: u32,
        /// File to write: the certificate and those above it.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Sign the revocation list anew, with one more certificate if one is named.
    #[command(after_help = "Example:
  cordon pki post-quantum list --config cordon.toml --folder pq --passphrase-file secret \\
    --revoke officer-9.pem --reason key-compromise")]
    List {
        #[command(flatten)]
        folder: PostQuantumFolder,
        /// Certificate to revoke.
        #[arg(long, value_name = "FILE")]
        revoke: Option<PathBuf>,
        /// Why, as in `cordon pki revoke`.
        #[arg(long, default_value = "unspecified", requires = "revoke")]
        reason: String,
    },
}

/// Where the authority is.
#[derive(Debug, Args)]
pub(crate) struct PostQuantumFolder {
    /// Configuration with `ml_dsa = true` below `[experimental]`, and the site's organisation and country.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of the authority.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// File with the passphrase of its keys.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: PathBuf,
}
