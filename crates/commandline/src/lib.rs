//! What the programs have in common on the command line: how a command fails, what it prints, how it logs
//! and how it is stopped.
#![forbid(unsafe_code)]

mod failure;
mod files;
mod logging;
mod output;
mod passphrase;
mod place;
mod site_args;

use std::process::ExitCode;

use clap::error::ErrorKind;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use files::{reserve, write_new, write_reserved};
pub use logging::start_logging;
pub use output::{OutputArgs, field, json_line, list, print, read_text, text, visible, write_out};
pub use passphrase::{is_there, new_password, passphrase};
pub use place::place;
pub use service_kit::{Failure, OrHint, Outcome};
pub use site_args::SiteArgs;

/// A command without arguments, which gets the help text and exit code 2.
const HELP_INSTEAD: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// Runs a program's command line: parses, carries out, and tells what failed.
pub fn main<C>(
    program: &str,
    parse: impl FnOnce() -> Result<C, clap::Error>,
    run: impl FnOnce(C) -> Outcome,
) -> ExitCode {
    // Before the words are understood, as they may not be.
    let json = std::env::args_os()
        .take_while(|word| word != "--")
        .any(|word| word == "--json");
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != HELP_INSTEAD => {
            return failure::report(&failure::of_usage(&error), program, json);
        }
        // Help and version, asked for or not; a reader that went away is no error.
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // Most commands have passphrases or keys in memory, and a key on the terminal is enough to have a core dumped.
    let hint = "check that the system lets programs give up core dumps (prctl, setrlimit)";
    let closed = sys::privileges::forbid_dumps().or_hint("cannot keep keys from core dumps", hint);
    match closed.and_then(|()| run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure::report(&failure, program, json),
    }
}

/// Runs a command in a runtime with all its threads.
///
/// # Errors
/// Where the runtime cannot start, and those of the command.
pub fn block_on(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_hint("cannot start", "check the limits on threads and open files")?;
    runtime.block_on(command)
}

/// Cancels `stop` on SIGTERM, SIGINT or SIGHUP.
///
/// # Errors
/// Where signals cannot be awaited.
pub fn stop_on_signals(stop: CancellationToken) -> Outcome {
    let hint = "check that signals are not blocked";
    let mut terminate = signal(SignalKind::terminate()).or_hint("signals", hint)?;
    let mut interrupt = signal(SignalKind::interrupt()).or_hint("signals", hint)?;
    let mut hang_up = signal(SignalKind::hangup()).or_hint("signals", hint)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
        }
        tracing::info!("stopping");
        stop.cancel();
    });
    Ok(())
}
