//! The `cordon` binary: command line, commands and demo.
//!
//! The crate `site` has the roles and connects them; `tunnel-tools` has the commands of tunnels. Measurements and the research
//! cipher are another program, `cordon-lab`.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod demo;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use commandline::Outcome;
use site::site_control::OrdersToSites;

fn main() -> ExitCode {
    commandline::main("cordon", Cli::try_parse, run)
}

fn run(cli: Cli) -> Outcome {
    commandline::start_logging(&cli.output.log)?;
    if let Command::Lab(words) | Command::Ibc(words) = &cli.command {
        return commands::laboratory::run(&cli, words);
    }
    match cli.command {
        // It starts its runtime itself: some of its commands give up rights before there are other threads.
        Command::Vpn(command) => tunnel_tools::run(command, &OrdersToSites, cli.output.json),
        command => commandline::block_on(dispatch(command, cli.output.json)),
    }
}

async fn dispatch(command: Command, json: bool) -> Outcome {
    match command {
        Command::Up(up) => commands::up::run(&up, json).await,
        Command::Run(args) => commands::run::run(&args, json).await,
        Command::Peer(cli::Peer::Show(args)) => commands::audit_host::show_peer(&args, json),
        Command::Demo(demo) => demo::run(&demo, json).await,
        Command::Camera(command) => cordon_camera::run(command, json).await,
        Command::Evidence(command) => commands::evidence::run(command, json).await,
        Command::Audit(command) => commands::audit::run(command, json).await,
        Command::Pki(command) => commands::pki::run(command, json).await,
        Command::Id(command) => enrolment::id(command, json).await,
        Command::Registry(command) => commands::registry::run(command, json).await,
        Command::Directory(command) => commands::directory::run(command, json).await,
        Command::Service(command) => commands::service::run(command, json).await,
        Command::Vpn(_) | Command::Lab(_) | Command::Ibc(_) => Ok(()),
        Command::Config { command } => commands::config::run(command, json).await,
        Command::Site(command) => commands::site_data::run(command, json).await,
        Command::Openapi => commands::openapi(),
        Command::Completions { shell } => commands::completions(shell),
        Command::Man { out } => commands::man(&out, json),
    }
}
