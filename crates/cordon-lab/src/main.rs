//! The `cordon-lab` program: measurements, the research cipher with its attacks, drawn pictures. What a police
//! force runs is `cordon`, which has none of it.
#![forbid(unsafe_code)]

mod draw;
mod ibc;
mod lab;
mod page_server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commandline::{OrHint as _, Outcome};

const NAME: &str = "cordon-lab";

/// Measurements of Cordon beside other programs, and the INDECT Block Cipher, which is broken.
#[derive(Debug, Parser)]
#[command(name = NAME, version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  cordon-lab list                     experiments, and what they lack on this machine
  cordon-lab run --quick all          all of them in about eleven minutes
  cordon-lab ibc variants             the research cipher")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: commandline::OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Lab(lab::Lab),
    /// The INDECT Block Cipher: broken, research only.
    #[command(subcommand)]
    Ibc(ibc::args::IbcCommand),
    /// Draw traffic pictures with their facts, as the demo's camera sees them.
    #[command(after_help = "Example:\n  cordon-lab draw --out pictures --count 20")]
    Draw(draw::Draw),
    /// One page on the listeners of a site, for experiments.
    #[command(hide = true)]
    PageServer(page_server::PageServer),
}

fn main() -> ExitCode {
    commandline::main(NAME, parse, run)
}

/// Parses the command line of `cordon-lab`, or of `ibcipher` when called by that name.
fn parse() -> Result<Cli, clap::Error> {
    if !ibc::is_ibcipher(std::env::args_os().next().as_deref()) {
        return Cli::try_parse();
    }
    let ibc::Ibcipher { cipher, json } = ibc::Ibcipher::try_parse()?;
    Ok(Cli {
        command: Command::Ibc(ibc::args::IbcCommand::Cipher(cipher)),
        output: commandline::OutputArgs {
            json,
            log: "info".to_owned(),
        },
    })
}

fn run(cli: Cli) -> Outcome {
    commandline::start_logging(&cli.output.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_hint("cannot start", "check the limits on threads and open files")?;
    runtime.block_on(async {
        match cli.command {
            Command::Lab(command) => lab::run(command, cli.output.json).await,
            Command::Ibc(command) => ibc::run(command, cli.output.json).await,
            Command::Draw(args) => draw::run(&args, cli.output.json),
            Command::PageServer(args) => page_server::serve(&args).await,
        }
    })
}
