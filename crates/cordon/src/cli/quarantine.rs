//! `cordon evidence quarantine`: blocks that were set apart, and the decision about them.

use clap::{Args, Subcommand};

use super::site_args::SiteArgs;

/// `cordon evidence quarantine …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Quarantine {
    /// List the blocks that wait for a decision, oldest first.
    #[command(after_help = "Example:\n  cordon evidence quarantine list --data /var/lib/cordon")]
    List {
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Verify a block again and say what stands against it now. Recorded in the audit log.
    #[command(after_help = "Example:
  cordon evidence quarantine show --data /var/lib/cordon BLOCK")]
    Show {
        #[command(flatten)]
        site: SiteArgs,
        /// SHA-256 of the block, from `list`.
        #[arg(value_name = "BLOCK")]
        block: String,
    },
    /// Make a block evidence: it must pass every check but those excepted.
    ///
    /// The block gets a receipt and its place in archive and index; the audit log has who released it, why,
    /// and what was excepted.
    #[command(after_help = "Example:
  cordon evidence quarantine release --data /var/lib/cordon --except too-old \\
    --reason 'camera was in a flooded tunnel for two years' BLOCK")]
    Release(Release),
    /// Decide that a block is no evidence: its bytes are removed.
    #[command(after_help = "Example:
  cordon evidence quarantine reject --data /var/lib/cordon --reason 'test picture' BLOCK")]
    Reject {
        #[command(flatten)]
        site: SiteArgs,
        /// SHA-256 of the block, from `list`.
        #[arg(value_name = "BLOCK")]
        block: String,
        /// Why, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// `cordon evidence quarantine release`.
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// SHA-256 of the block, from `list`.
    #[arg(value_name = "BLOCK")]
    pub(crate) block: String,
    /// A reason that is no obstacle, as `show` names it: captured-after-sealing, certificate-revoked,
    /// from-the-future, not-scanned, signed-outside-validity, too-old. May be given several times.
    #[arg(long = "except", value_name = "CODE")]
    pub(crate) exceptions: Vec<String>,
    /// Why, for the audit log.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
