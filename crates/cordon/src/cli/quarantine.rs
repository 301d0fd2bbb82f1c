//! `cordon evidence quarantine`: blocks that were set apart, and the decisions about them.

use clap::{Args, Subcommand};

use commandline::SiteArgs;

/// `cordon evidence quarantine …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Quarantine {
    /// List the blocks in quarantine, oldest first: those that wait for a decision, and those that are kept.
    #[command(after_help = "Example:\n  cordon evidence quarantine list --data /var/lib/cordon")]
    List {
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Verify a block again and show which check it fails now. Recorded in the audit log.
    #[command(after_help = "Example:
  cordon evidence quarantine show --data /var/lib/cordon \\
    --as anna.p12 --as-password-file anna.password BLOCK")]
    Show {
        #[command(flatten)]
        site: SiteArgs,
        /// SHA-256 of the block, from `list`.
        #[arg(value_name = "BLOCK")]
        block: String,
    },
    /// Propose to make a block evidence: it must pass every check but those excepted.
    ///
    /// A second person confirms it. The block then gets a receipt and its place in archive and index; the audit log has
    /// who proposed and confirmed it, why, and what was excepted.
    #[command(after_help = "Example:
  cordon evidence quarantine release --data /var/lib/cordon --except too-old \\
    --reason 'camera was in a flooded tunnel for two years' \\
    --as anna.p12 --as-password-file anna.password BLOCK")]
    Release(Release),
    /// Propose to close the case of a block: it does not become evidence, and its bytes stay in quarantine.
    ///
    /// A second person confirms it. The block does not wait any more and does not count against the bounds of the
    /// quarantine. It can still be released or rejected later.
    #[command(after_help = "Example:
  cordon evidence quarantine keep --data /var/lib/cordon --reason 'signer unknown, file 12/2026' \\
    --as anna.p12 --as-password-file anna.password BLOCK")]
    Keep {
        #[command(flatten)]
        site: SiteArgs,
        /// SHA-256 of the block, from `list`.
        #[arg(value_name = "BLOCK")]
        block: String,
        /// Why, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Propose to destroy a block: it will never be evidence, and its bytes are removed.
    ///
    /// A second person confirms it, and either destroys it after the waiting time
    /// (`intake.destroy_after_hours`).
    #[command(after_help = "Example:
  cordon evidence quarantine reject --data /var/lib/cordon --reason 'test picture' \\
    --as anna.p12 --as-password-file anna.password BLOCK")]
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
    /// Confirm what another person proposed: release or keep take effect, a destruction begins to wait.
    #[command(after_help = "Example:
  cordon evidence quarantine confirm --data /var/lib/cordon \\
    --as ben.p12 --as-password-file ben.password BLOCK")]
    Confirm {
        #[command(flatten)]
        site: SiteArgs,
        /// SHA-256 of the block, from `list`.
        #[arg(value_name = "BLOCK")]
        block: String,
    },
    /// Take a proposal back, also one that was confirmed.
    #[command(after_help = "Example:
  cordon evidence quarantine withdraw --data /var/lib/cordon --reason 'wrong block' \\
    --as ben.p12 --as-password-file ben.password BLOCK")]
    Withdraw {
        #[command(flatten)]
        site: SiteArgs,
        /// SHA-256 of the block, from `list`.
        #[arg(value_name = "BLOCK")]
        block: String,
        /// Why, for the audit log.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Destroy a block whose destruction was confirmed, once the waiting time has passed.
    #[command(after_help = "Example:
  cordon evidence quarantine destroy --data /var/lib/cordon \\
    --as ben.p12 --as-password-file ben.password BLOCK")]
    Destroy {
        #[command(flatten)]
        site: SiteArgs,
        /// SHA-256 of the block, from `list`.
        #[arg(value_name = "BLOCK")]
        block: String,
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
    /// A check to pass over, as `show` names it: above-clearance, captured-after-sealing, certificate-revoked,
    /// from-the-future, not-scanned, other-sender, signed-outside-validity, too-old. May be given several times.
    #[arg(long = "except", value_name = "CODE")]
    pub(crate) exceptions: Vec<String>,
    /// Why, for the audit log.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
