//! `cordon peer`, and what concerns the audit host.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `cordon peer …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Peer {
    /// Print this host's key towards its peers; it is made on first use.
    #[command(after_help = "Example:\n  cordon peer show --data /var/lib/cordon")]
    Show(PeerShow),
}

/// `cordon peer show`.
#[derive(Debug, Args)]
pub(crate) struct PeerShow {
    /// Folder of the host's data.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// File with the passphrase of the key files.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// `cordon audit alarms`.
#[derive(Debug, Args)]
pub(crate) struct AlarmArgs {
    /// Folder of the audit host's data.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Also those that are closed.
    #[arg(long)]
    pub(crate) all: bool,
}

/// `cordon audit close-alarm`.
#[derive(Debug, Args)]
pub(crate) struct CloseAlarm {
    /// Folder of the audit host's data.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Number of the alarm.
    #[arg(value_name = "NUMBER")]
    pub(crate) number: u64,
    /// What was found; it is recorded for ever.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
