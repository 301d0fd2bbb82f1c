//! `cordon run`: the roles of this host until a signal.

use std::path::PathBuf;

use commandline::{Failure, Outcome, SiteArgs, print, stop_on_signals};
use serde_json::json;
use service_kit::Process;
use site::Site;
use site::run::{centre_and_portal, registry_and_directory};
use tokio_util::sync::CancellationToken;

use crate::cli::{RoleName, Run};

/// Runs what was asked for, if the roles go together.
pub(crate) async fn run(args: &Run, json: bool) -> Outcome {
    let has = |role| args.roles.contains(&role);
    let site = has(RoleName::Registry) || has(RoleName::Directory);
    let centre = has(RoleName::Centre) || has(RoleName::Portal);
    let each = [
        (RoleName::Audit, !site && !centre),
        (RoleName::Registry, site && !centre),
        (RoleName::Directory, site && !centre),
        (RoleName::Centre, centre && !site),
        (RoleName::Portal, centre && !site),
    ];
    let whole = each.iter().all(|(role, wanted)| *wanted == has(*role));
    match (whole, site, centre) {
        (true, true, _) => registry(args, json).await,
        (true, _, true) => evidence(args, json).await,
        (true, false, false) => super::audit_host::run(args, json).await,
        (false, ..) => Err(Failure::usage(
            "these roles do not run together on a host",
            "choose `audit`, `registry directory` or `centre portal`; `cordon up` runs a whole site",
        )),
    }
}

fn site_args(args: &Run) -> Outcome<SiteArgs> {
    let data: Option<PathBuf> = args.data.clone();
    Ok(SiteArgs {
        data: data.ok_or_else(|| Failure::usage("no data folder is named", "add --data DIR"))?,
        config: Some(args.config.clone()),
        passphrase_file: args.passphrase_file.clone(),
        as_person: None,
        as_password_file: None,
    })
}

async fn registry(args: &Run, json: bool) -> Outcome {
    let site = Site::open_to_run(&site_args(args)?).await?;
    let process = registry_and_directory(&site).await?;
    stop_on_signals(process.stop_token())?;
    say("registry directory", json)?;
    process.until_stopped().await
}

async fn evidence(args: &Run, json: bool) -> Outcome {
    let stop = CancellationToken::new();
    stop_on_signals(stop.clone())?;
    let Some(process) = centre_and_portal(&site_args(args)?, &stop).await? else {
        return Ok(());
    };
    say("centre portal", json)?;
    until_stopped(process, stop).await
}

/// Waits as [`Process::until_stopped`], and stops with `stop`.
async fn until_stopped(process: Process, stop: CancellationToken) -> Outcome {
    let token = process.stop_token();
    let link = tokio::spawn(async move {
        stop.cancelled().await;
        token.cancel();
    });
    let outcome = process.until_stopped().await;
    link.abort();
    outcome
}

fn say(roles: &str, json: bool) -> Outcome {
    let text = format!("running    {roles}\nstop with Ctrl-C");
    print(json, &json!({ "running": roles }), &text)
}
