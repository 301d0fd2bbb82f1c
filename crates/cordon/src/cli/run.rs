//! `cordon run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// A role that this process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    /// Mirrors the logs of other hosts and raises alarms.
    Audit,
    /// Issues and revokes certificates.
    Registry,
    /// Has the people of the site.
    Directory,
    /// Takes evidence from cameras.
    Centre,
    /// Shows evidence to people.
    Portal,
}

/// `cordon run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// `audit`, or `registry directory`, or `centre portal`.
    #[arg(value_name = "ROLE", required = true)]
    pub(crate) roles: Vec<RoleName>,
    /// Settings of the roles.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Folder of the host's data; made when it is missing. The settings of `audit` name theirs.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// File with the passphrase of the key files.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}
