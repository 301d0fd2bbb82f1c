//! `cordon directory`: people.

use std::path::PathBuf;

use clap::Subcommand;

use commandline::SiteArgs;

/// `cordon directory …`.
#[derive(Debug, Subcommand)]
pub(crate) enum Directory {
    /// Add or update people from a file, one JSON object a line: all of them, or none.
    #[command(after_help = "Example:
  cordon directory import --data /var/lib/cordon people.jsonl
A line: {\"uid\":\"officer-4711\",\"name\":\"Example Officer\",\"email\":\"officer@example.org\",
  \"organisation\":\"LEA-FR\",\"country\":\"FR\",\"clearance\":2,\"roles\":[\"officer\"],\"units\":[\"traffic\"]}
Without country it is that of the site.")]
    Import {
        #[command(flatten)]
        site: SiteArgs,
        /// The file; `-` reads standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also enable people who are disabled; without it they stay disabled.
        #[arg(long)]
        enable: bool,
    },
    /// List people.
    #[command(after_help = "Example:\n  cordon directory list --data /var/lib/cordon")]
    List {
        #[command(flatten)]
        site: SiteArgs,
    },
    /// Set a password, read from standard input.
    #[command(after_help = "Example:
  cordon directory password --data /var/lib/cordon --uid officer-4711 < password.txt")]
    Password {
        #[command(flatten)]
        site: SiteArgs,
        /// The person's user id.
        #[arg(long)]
        uid: String,
    },
    /// Keep a person from logging in, by certificate and by password.
    #[command(after_help = "Example:
  cordon directory disable --data /var/lib/cordon --uid officer-4711")]
    Disable {
        #[command(flatten)]
        site: SiteArgs,
        /// The person's user id.
        #[arg(long)]
        uid: String,
    },
    /// Let a disabled person log in again.
    #[command(after_help = "Example:
  cordon directory enable --data /var/lib/cordon --uid officer-4711")]
    Enable {
        #[command(flatten)]
        site: SiteArgs,
        /// The person's user id.
        #[arg(long)]
        uid: String,
    },
}
