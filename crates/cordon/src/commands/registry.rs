//! `cordon registry`: enrolment of devices, and the states of devices and people.

use std::path::Path;

use commandline::{reserve, write_new};
use serde_json::json;
use zeroize::Zeroizing;

use super::{list, text};
use crate::cli::{HolderArgs, Registry, Replace, SiteArgs};
use commandline::{Failure, OrHint as _, Outcome};
use site::administration::{QuarantineOrder, ReplacementStep};
use site::config::{Config, Hosts};
use site::control::{Change, Request, ask};

pub(crate) async fn run(command: Registry, json: bool) -> Outcome {
    match command {
        Registry::Code {
            site,
            device,
            clearance,
            out,
            hours,
        } => {
            let value = invite(&site, &device, clearance, hours, &out).await?;
            let summary = format!(
                "wrote {}: carry the folder to {device} and start there\n  \
                 cordon camera run --config camera.toml\nthe code is good until {}",
                out.display(),
                text(&value, "expires"),
            );
            super::print(json, &value, &summary)
        }
        Registry::Invite {
            invited,
            cmp,
            complete,
            site,
            out,
        } => {
            if complete && invited.holder.uid.is_none() {
                let what = "--complete is for invitations of people";
                return Err(Failure::usage(what, "name a person with --uid"));
            }
            let order = super::request::invite(invited)?;
            // Before the order, which voids the code that the person may have.
            let place = reserve(&out)?;
            let mut value = ask(&site, Request::Invite { order, cmp }).await?;
            let code = super::request::take_code(&mut value).unwrap_or_default();
            super::request::write_invitation(place, code, &value, complete)?;
            let summary = format!(
                "wrote {}: hand it to {} alone\nthe code is good until {}",
                out.display(),
                text(&value, "holder"),
                text(&value, "expires"),
            );
            super::print(json, &value, &summary)
        }
        Registry::List { site } => list_holders(&site, json).await,
        Registry::Suspend(args) => change(args, Change::Suspend, json).await,
        Registry::Resume(args) => change(args, Change::Resume, json).await,
        Registry::Retire(args) => change(args, Change::Retire, json).await,
        Registry::Readmit(args) => change(args, Change::Readmit, json).await,
        Registry::Replace(args) => replace(args, json).await,
        Registry::Request(command) => super::request::run(command, json).await,
    }
}

async fn replace(args: Replace, json: bool) -> Outcome {
    let reason = args.reason.unwrap_or_default();
    let step = match (args.confirm, args.withdraw) {
        (true, _) => ReplacementStep::Confirm,
        (false, true) => ReplacementStep::Withdraw { reason },
        (false, false) => ReplacementStep::Propose { reason },
    };
    let device = args.device;
    let order = QuarantineOrder::Replace { device, step };
    let value = ask(&args.site, Request::Quarantine(order)).await?;
    let (device, done) = (text(&value, "device"), text(&value, "done"));
    let chain = value.get("chain").filter(|chain| !chain.is_null());
    let next = match chain {
        Some(chain) => {
            let number = |name| chain.get(name).and_then(serde_json::Value::as_u64);
            format!(
                ": its chain is closed at number {}, and epoch {} begins\n\
                 release its blocks with `cordon evidence quarantine release`",
                number("closed_head").unwrap_or_default(),
                number("epoch").unwrap_or_default(),
            )
        }
        None if !args.withdraw => {
            "\nanother person confirms it with `cordon registry replace --confirm`".to_owned()
        }
        None => String::new(),
    };
    super::print(json, &value, &format!("{device} is {done}{next}"))
}

async fn list_holders(site: &SiteArgs, json: bool) -> Outcome {
    let value = ask(site, Request::ListHolders).await?;
    let mut lines = String::new();
    for record in list(&value, "holders") {
        lines.push_str(&format!(
            "{:<9} {:<28} {:<10} since {}\n",
            text(record, "authority"),
            text(record, "holder"),
            text(record, "state"),
            text(record, "changed_at"),
        ));
    }
    super::print(json, &value, &lines)
}

async fn change(args: HolderArgs, change: Change, json: bool) -> Outcome {
    let holder = super::request::named(args.holder)?;
    let value = ask(&args.site, Request::Change { holder, change }).await?;
    let revoked = list(&value, "revoked").len();
    let certificates = match revoked {
        0 => String::new(),
        count => format!(", {count} certificates revoked"),
    };
    let listed = match value.get("listed").and_then(serde_json::Value::as_bool) {
        Some(false) => {
            "\nthe revocation lists do not say so yet: the site tries again every two seconds"
        }
        _ => "",
    };
    let summary = format!(
        "{} was {} and is {}{certificates}{listed}",
        text(&value, "holder"),
        text(&value, "old"),
        text(&value, "new"),
    );
    super::print(json, &value, &summary)
}

/// Makes a one-time code and writes everything a camera needs into the new folder `out`.
pub(crate) async fn invite(
    site: &SiteArgs,
    device: &str,
    clearance: u8,
    hours: u32,
    out: &Path,
) -> Outcome<serde_json::Value> {
    if out.exists() {
        let error = anyhow::anyhow!("{} exists already", out.display());
        return Err(Failure::new(error, "name a new folder with --out"));
    }
    let config = Config::load(site.config.as_deref())?;
    let request = Request::Code {
        device: device.to_owned(),
        clearance,
        hours,
    };
    // Before the order, which voids the code that the device may have.
    durable::create_dir_all(out).or_hint(
        format!("cannot make {}", out.display()),
        "check the parent folder",
    )?;
    let place = reserve(&out.join("code"))?;
    let answer = match ask(site, request).await {
        Ok(answer) => answer,
        Err(failure) => {
            drop(place);
            // Only the empty folder of above.
            let _ = std::fs::remove_dir(out);
            return Err(failure);
        }
    };
    let answered = |name: &str| text(&answer, name).to_owned();
    super::request::write_code(place, &Zeroizing::new(answered("code")))?;
    write_new(&out.join("root.pem"), answered("root_pem").as_bytes())?;
    write_new(
        &out.join("authorities.pem"),
        answered("authorities_pem").as_bytes(),
    )?;
    write_new(
        &out.join("recipients.pem"),
        answered("recipients_pem").as_bytes(),
    )?;
    write_new(
        &out.join("camera.toml"),
        template(&config, device).as_bytes(),
    )?;
    Ok(json!({ "device": device, "folder": out, "expires": answered("expires") }))
}

/// A configuration to start from; paths are relative to its own folder.
fn template(config: &Config, device: &str) -> String {
    let host = config
        .site
        .names
        .first()
        .map_or("localhost", String::as_str);
    let elsewhere = config.hosts.iter().find_map(Hosts::intake);
    let (intake, intake_port) = elsewhere.unwrap_or((host, config.listen.intake.port()));
    format!(
        "# Camera agent of {device}; every setting is described in docs/camera.md.\n\
         # Paths are relative to the folder of this file.\n\n\
         [identity]\ndevice = \"{device}\"\nfile = \"identity.pem\"\n\n\
         [trust]\nroots = \"root.pem\"\nauthorities = \"authorities.pem\"\nrecipients = \"recipients.pem\"\n\n\
         [watch]\nfolder = \"incoming\"\nrejected = \"rejected\"\n\
         # Zone of the clock of a head whose EXIF has neither offset nor GPS time, as Europe/Warsaw.\n\
         time_zone = \"UTC\"\n\n\
         [spool]\nfolder = \"spool\"\nmax_bytes = 2000000000\n\n\
         [centre]\nhost = \"{intake}\"\nport = {intake_port}\n\n\
         [enrolment]\nhost = \"{host}\"\nport = {}\ncode_file = \"code\"\n",
        config.listen.enrolment.port(),
    )
}
