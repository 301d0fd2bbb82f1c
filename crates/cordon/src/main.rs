//! The `cordon` binary: command line, configuration, wiring of roles.
//!
//! What a role does is in its own crate; here is who is connected to whom. `site` opens the
//! roles, `up` puts them on listeners, `gate` turns certificates and passwords into principals,
//! `backend` answers the portal, `control` serves the administrator's commands. `ibc` is the
//! research cipher on the command line, which no role uses.
#![forbid(unsafe_code)]

mod backend;
mod cli;
mod commands;
mod config;
mod console;
mod control;
mod demo;
mod export;
mod failure;
mod gate;
mod ibc;
mod keys;
mod listener;
mod metrics;
mod openvpn;
mod secrets;
mod site;
mod up;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};
use crate::failure::{Failure, OrHint as _, Outcome};

/// A command without arguments, which gets the help text and exit code 2.
const HELP_INSTEAD: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != HELP_INSTEAD => {
            return Failure::of_usage(&error).report();
        }
        // Help and version, asked for or not; a reader that went away is no error.
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Parses the command line of `cordon`, or of `ibcipher` when called by that name.
fn parse() -> Result<Cli, clap::Error> {
    if !ibc::is_ibcipher(std::env::args_os().next().as_deref()) {
        return Cli::try_parse();
    }
    let ibc::Ibcipher { cipher, json } = ibc::Ibcipher::try_parse()?;
    Ok(Cli {
        command: Command::Ibc(ibc::args::IbcCommand::Cipher(cipher)),
        json,
        log: "info".to_owned(),
    })
}

fn run(cli: Cli) -> Outcome {
    start_logging(&cli.log)?;
    if let Command::Vpn(cli::Vpn::Signer) = cli.command {
        return commands::vpn::signer();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_hint("cannot start", "check the limits on threads and open files")?;
    runtime.block_on(dispatch(cli))
}

/// Logs go to standard error, so that standard output is the result and nothing else.
fn start_logging(filter: &str) -> Outcome {
    let filter = EnvFilter::try_new(filter)
        .map_err(|e| Failure::usage(format!("--log: {e}"), "use for instance --log info"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .init();
    Ok(())
}

async fn dispatch(cli: Cli) -> Outcome {
    let json = cli.json;
    match cli.command {
        Command::Up(up) => commands::up::run(&up, json).await,
        Command::Demo(demo) => demo::run(&demo, json).await,
        Command::Draw { out, count, first } => demo::draw_into(&out, first, count, json),
        Command::Camera(command) => commands::camera::run(command).await,
        Command::Evidence(command) => commands::evidence::run(command, json).await,
        Command::Audit(command) => commands::audit::run(command, json),
        Command::Vpn(command) => commands::vpn::run(command, json).await,
        Command::Pki(command) => commands::pki::run(command, json).await,
        Command::Registry(command) => commands::registry::run(command, json).await,
        Command::Directory(command) => commands::directory::run(command, json).await,
        Command::Ibc(command) => ibc::run(command, json).await,
        Command::Lab(command) => commands::lab::run(command, json).await,
        Command::Config { command } => commands::config::run(command, json),
        Command::Openapi => commands::openapi(),
        Command::Completions { shell } => commands::completions(shell),
    }
}
