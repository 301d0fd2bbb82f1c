//! The command line of the agent.

use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// The field agent of Cordon: watches a folder, seals, spools, uploads.
#[derive(Debug, Parser)]
#[command(
    name = "cordon-camera",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Camera,
    #[command(flatten)]
    pub output: commandline::OutputArgs,
}

impl Cli {
    /// Parses the arguments of this process.
    ///
    /// # Errors
    /// Wrong usage; help and version, when asked for.
    pub fn try_parse() -> Result<Self, clap::Error> {
        // The examples are written for `cordon camera`.
        let command = Self::command().mut_subcommands(|command| {
            let examples = command.get_after_help().map(ToString::to_string);
            match examples {
                Some(text) => command.after_help(text.replace("cordon camera", "cordon-camera")),
                None => command,
            }
        });
        Self::from_arg_matches(&command.try_get_matches()?)
    }
}

/// `cordon camera …`, `cordon-camera …`.
#[derive(Debug, Subcommand)]
pub enum Camera {
    /// Watch a folder, seal, spool, upload.
    #[command(after_help = "Example:\n  cordon camera run --config /etc/cordon-camera.toml")]
    Run {
        /// Settings of the agent.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Say how the camera stands; ends with 1 if a person has to look.
    #[command(after_help = "Example:\n  cordon camera status --config /etc/cordon-camera.toml")]
    Status {
        /// Settings of the agent.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Note that a person has seen what the centre's audit log contradicted. The evidence stays in
    /// `log/accepted` of the spool.
    #[command(after_help = "Example:\n  cordon camera accept-log --config /etc/cordon-camera.toml")]
    AcceptLog {
        /// Settings of the agent.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// List the sources that could not be sealed, with the reasons, or give them back to be tried again. Mend the cause
    /// first: a source that still cannot be sealed is set aside again.
    #[command(after_help = "Examples:
  cordon camera retry --config /etc/cordon-camera.toml
  cordon camera retry --config /etc/cordon-camera.toml --name 20261121-100000
  cordon camera retry --config /etc/cordon-camera.toml --all")]
    Retry {
        /// Settings of the agent.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Give back the files with this name, without its ending.
        #[arg(long, value_name = "NAME", conflicts_with = "all")]
        name: Option<String>,
        /// Give back all.
        #[arg(long)]
        all: bool,
    },
    /// List the blocks that were set aside as damaged, or decide about one.
    #[command(after_help = "Examples:
  cordon camera damaged --config /etc/cordon-camera.toml
  cordon camera damaged --config /etc/cordon-camera.toml --restore 17")]
    Damaged {
        /// Settings of the agent.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Put the block with this number back, if it is sound again; the agent must not run.
        #[arg(long, value_name = "SEQUENCE", conflicts_with = "remove")]
        restore: Option<u64>,
        /// Delete the block with this number for good; the agent must not run.
        #[arg(long, value_name = "SEQUENCE")]
        remove: Option<u64>,
    },
}
