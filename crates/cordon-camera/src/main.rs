//! The field agent alone: the same code as `cordon camera`, without centre, portal and tunnels.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use commandline::{OrHint as _, Outcome};
use cordon_camera::Cli;

fn main() -> ExitCode {
    commandline::main("cordon-camera", Cli::try_parse, run)
}

fn run(cli: Cli) -> Outcome {
    commandline::start_logging(&cli.output.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_hint("cannot start", "check the limits on threads and open files")?;
    runtime.block_on(cordon_camera::run(cli.command, cli.output.json))
}
