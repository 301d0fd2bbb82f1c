//! `cordon lab` and `cordon ibc`: both are the program `cordon-lab`.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command as Program;

use crate::cli::{Cli, Command, Words};
use commandline::{Failure, Outcome};

const NAME: &str = "cordon-lab";

/// Becomes `cordon-lab`, from beside this program or else from `PATH`.
pub(crate) fn run(cli: &Cli, words: &Words) -> Outcome {
    let beside = std::env::current_exe()
        .ok()
        .map(|own| own.with_file_name(NAME))
        .filter(|file| file.exists());
    let mut program = Program::new(beside.unwrap_or_else(|| PathBuf::from(NAME)));
    program.args(["--log", &cli.output.log]);
    if cli.output.json {
        program.arg("--json");
    }
    if matches!(cli.command, Command::Ibc(_)) {
        program.arg("ibc");
    }
    // It comes back only where it fails.
    let error = program.args(&words.words).exec();
    Err(Failure::new(
        anyhow::Error::new(error)
            .context("measurements and the research cipher are the program cordon-lab"),
        "install cordon-lab beside cordon or in PATH",
    ))
}
