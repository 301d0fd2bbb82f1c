//! `cordon audit`: the log, and the alarms of an audit host.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use commandline::SiteArgs;

use super::audit_host::{AlarmArgs, CloseAlarm};

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
    /// List the hosts whose logs an audit host mirrors, and how far.
    #[command(after_help = "Example:\n  cordon audit sources --data /var/lib/cordon-audit")]
    Sources {
        /// Folder of the audit host's data.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// List the alarms of an audit host that are open.
    #[command(after_help = "Examples:
  cordon audit alarms --data /var/lib/cordon-audit
  cordon audit alarms --data /var/lib/cordon-audit --all --json")]
    Alarms(AlarmArgs),
    /// Close an alarm (recorded in the audit host's log).
    #[command(after_help = "Example:
  cordon audit close-alarm --data /var/lib/cordon-audit 17 --reason 'disk was replaced, ticket 4711'")]
    CloseAlarm(CloseAlarm),
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

/// `cordon audit accept-loss` and its like.
#[derive(Debug, Args)]
pub(crate) struct AcceptLoss {
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    /// Why; it is recorded for ever.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
