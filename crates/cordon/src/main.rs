//! The `cordon` binary: command line, configuration, wiring of roles.
//!
//! What a role does is in its own crate; here is who is connected to whom. `site` opens the
//! roles, `up` puts them on listeners, `gate` turns certificates and passwords into principals,
//! `portal_services` answer the portal, `control` serves the administrator's commands. Measurements
//! and the research cipher are another program, `cordon-lab`.
#![forbid(unsafe_code)]

mod administration;
mod administrator;
mod at_rest;
mod authorities;
mod authority_keys;
mod cli;
mod clock;
mod commands;
mod config;
mod console;
mod control;
mod credentials;
mod databases;
mod demo;
mod disabled_people;
mod est_client;
mod export;
mod failure;
mod gate;
mod giver;
mod key_process;
mod keys;
mod last_checkpoint;
mod log_proof;
mod metrics;
mod notices;
mod openvpn;
mod orders;
mod owner;
mod portal_services;
mod registration;
mod renewal;
mod request_session;
mod rights;
mod settings;
mod silence;
mod site;
mod trust_bundle;
mod uninterrupted;
mod up;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::failure::{OrHint as _, Outcome};

fn main() -> ExitCode {
    commandline::main("cordon", Cli::try_parse, run)
}

fn run(cli: Cli) -> Outcome {
    commandline::start_logging(&cli.output.log)?;
    if let Command::Vpn(cli::Vpn::Signer) = cli.command {
        return commands::vpn::signer();
    }
    if let Command::Vpn(cli::Vpn::Fetcher) = cli.command {
        return commands::vpn_fetcher::run();
    }
    if let Command::Lab(words) | Command::Ibc(words) = &cli.command {
        return commands::laboratory::run(&cli, words);
    }
    // What it gives up, it must give up before there are other threads.
    let signer = match &cli.command {
        Command::Vpn(cli::Vpn::Up { config }) => Some(commands::vpn_confinement::begin(config)?),
        _ => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_hint("cannot start", "check the limits on threads and open files")?;
    match (cli.command, signer) {
        (Command::Vpn(cli::Vpn::Up { config }), Some(signer)) => {
            runtime.block_on(commands::vpn_up::up(&config, signer))
        }
        (command, _) => runtime.block_on(dispatch(command, cli.output.json)),
    }
}

async fn dispatch(command: Command, json: bool) -> Outcome {
    match command {
        Command::Up(up) => commands::up::run(&up, json).await,
        Command::Demo(demo) => demo::run(&demo, json).await,
        Command::Camera(command) => cordon_camera::run(command, json).await,
        Command::Evidence(command) => commands::evidence::run(command, json).await,
        Command::Audit(command) => commands::audit::run(command, json).await,
        Command::Vpn(command) => commands::vpn::run(command, json).await,
        Command::Pki(command) => commands::pki::run(command, json).await,
        Command::Registry(command) => commands::registry::run(command, json).await,
        Command::Directory(command) => commands::directory::run(command, json).await,
        Command::Lab(_) | Command::Ibc(_) => Ok(()),
        Command::Config { command } => commands::config::run(command, json).await,
        Command::Site(command) => commands::site::run(command, json).await,
        Command::Openapi => commands::openapi(),
        Command::Completions { shell } => commands::completions(shell),
        Command::Man { out } => commands::man(&out, json),
    }
}
