//! `cordon run audit`, `cordon peer show`, and the commands about sources and alarms.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit_host::{Alarm, AuditHost, Settings, SourceState};
use commandline::{print, stop_on_signals, visible};
use pki::key::Passphrase;
use serde_json::json;
use service_kit::{Doors, Place, Process, Role, Status};
use site::last_checkpoint;
use time::OffsetDateTime;

use crate::cli::{AlarmArgs, CloseAlarm, PeerShow, Run};
use commandline::{OrHint as _, Outcome};
use site::audit_host::{AuditHostRole, Order, RunConfig, ask, peer_key};

/// Runs the audit host until a signal.
pub(crate) async fn run(args: &Run, json: bool) -> Outcome {
    let config = RunConfig::load(&args.config)?.audit;
    let data = config.data.clone();
    site::owner::check(&data)?;
    durable::create_dir_all(&data).or_hint(
        format!("cannot make the data folder {}", data.display()),
        "name another folder as audit.data, or check its rights",
    )?;
    site::parts::private(&data)?;
    let secret = commandline::passphrase(&data, args.passphrase_file.as_deref())?;
    let secret = Passphrase::new(secret);
    let key = peer_key(&data, &secret)?;
    last_checkpoint::check_there(&data)?;
    let log = site::parts::open_audit(&data, &secret, &config.origin)?;
    last_checkpoint::hold(&data, &log, OffsetDateTime::now_utc())?;
    durable::create_dir_all(&data.join("sources")).or_hint(
        format!("cannot make a folder in {}", data.display()),
        "check the folder's rights and its disk",
    )?;
    let settings = Settings {
        sources_dir: data.join("sources"),
        sources: config.sources()?,
        silent_after: Duration::from_secs(u64::from(config.silent_after_seconds)),
        stalled_after: audit_host::STALLED_AFTER,
        reserved_bytes: config.reserved_bytes,
    };
    let host = AuditHost::open(settings, log).or_hint(
        "cannot open the audit host",
        "correct audit.sources, and check the folder's rights and its disk",
    )?;
    let doors = Doors::new();
    let listen = Arc::new(Place::new("audit.listen", config.listen));
    let role = AuditHostRole {
        host: host.clone(),
        key: key.clone(),
        doors: doors.clone(),
        listen: Arc::clone(&listen),
        data,
    };
    let mut roles: Vec<Arc<dyn Role>> = vec![Arc::new(role)];
    let metrics = Place::new("audit.metrics", config.metrics);
    let status = Arc::new(Status::new(metrics, &doors, roles.clone()));
    roles.push(status.clone());
    let process = Process::start(roles).await?;
    stop_on_signals(process.stop_token())?;
    let value = json!({
        "listen": listen.address().to_string(),
        "metrics": status.place().address().to_string(),
        "peer": key.id(),
        "log_key": host.log().verifier().to_string(),
        "sources": host.sources().len(),
    });
    let text = format!(
        "sources    {} on {}\nmetrics    http://{}/metrics\npeer       {}\nlog key    {}\nstop with Ctrl-C",
        host.sources().len(),
        listen.address(),
        status.place().address(),
        key.id(),
        host.log().verifier(),
    );
    print(json, &value, &text)?;
    process.until_stopped().await
}

/// Prints the key by which peers know this host.
pub(crate) fn show_peer(args: &PeerShow, json: bool) -> Outcome {
    let _owner = site::owner::AsOwner::of(&args.data)?;
    site::owner::check(&args.data)?;
    durable::create_dir_all(&args.data).or_hint(
        format!("cannot make the data folder {}", args.data.display()),
        "name another folder with --data, or check its rights",
    )?;
    site::parts::private(&args.data)?;
    let secret = commandline::passphrase(&args.data, args.passphrase_file.as_deref())?;
    let id = peer_key(&args.data, &Passphrase::new(secret))?.id();
    print(json, &json!({ "peer": id }), &id.to_string())
}

/// Lists the sources of a running audit host.
pub(crate) async fn sources(data: &Path, json: bool) -> Outcome {
    let value = ask(data, &Order::Sources).await?;
    let sources: Vec<SourceState> =
        serde_json::from_value(value.get("sources").cloned().unwrap_or_default())
            .or_hint("the answer", "use the same version of cordon")?;
    let mut text = String::new();
    for source in &sources {
        let size = source
            .size
            .map_or_else(|| "nothing yet".to_owned(), |size| format!("{size} events"));
        let silent = match (&source.trouble, source.is_silent) {
            (Some(trouble), _) => format!("  NOT MIRRORED: {}", visible(trouble)),
            (None, true) => "  SILENT".to_owned(),
            (None, false) => String::new(),
        };
        text.push_str(&format!(
            "{:<24} {size:>16}  taken {} s ago{silent}\n",
            source.name, source.silent_seconds
        ));
    }
    if sources.is_empty() {
        text.push_str("no source is configured: add [[audit.sources]]\n");
    }
    print(json, &value, text.trim_end())
}

/// Lists alarms: those that are open, or all.
pub(crate) async fn alarms(args: &AlarmArgs, json: bool) -> Outcome {
    let value = ask(&args.data, &Order::Alarms).await?;
    let alarms: Vec<Alarm> =
        serde_json::from_value(value.get("alarms").cloned().unwrap_or_default())
            .or_hint("the answer", "use the same version of cordon")?;
    let shown = |alarm: &&Alarm| args.all || alarm.closed.is_none();
    let shown: Vec<&Alarm> = alarms.iter().filter(shown).collect();
    let mut text = String::new();
    for alarm in &shown {
        let (date, time) = (alarm.at.date(), alarm.at.time());
        text.push_str(&format!(
            "{:>6}  {date} {:02}:{:02} UTC  {:<16} {:<20} {}{}\n",
            alarm.number,
            time.hour(),
            time.minute(),
            alarm.source,
            visible(&alarm.kind),
            visible(&alarm.about),
            alarm
                .entry
                .map_or_else(String::new, |entry| format!(" (entry {entry})"))
        ));
        if alarm.repeated > 0 {
            let latest = alarm.latest.as_deref().unwrap_or(&alarm.about);
            text.push_str(&format!(
                "        and {} more of the same, the last: {}\n",
                alarm.repeated,
                visible(latest)
            ));
        }
        if let Some(closed) = &alarm.closed {
            text.push_str(&format!(
                "        closed by {}: {}\n",
                visible(&closed.by),
                visible(&closed.reason)
            ));
        }
    }
    if shown.is_empty() {
        text.push_str("no alarm is open\n");
    }
    print(json, &json!({ "alarms": shown }), text.trim_end())
}

/// Closes an alarm.
pub(crate) async fn close_alarm(args: &CloseAlarm, json: bool) -> Outcome {
    let order = Order::CloseAlarm {
        number: args.number,
        reason: args.reason.clone(),
    };
    let value = ask(&args.data, &order).await?;
    let text = format!("alarm {} is closed and recorded", args.number);
    print(json, &value, &text)
}
