//! The commands that reach a running daemon of tunnels, by its control socket.

use std::path::{Path, PathBuf};

use clap::Args;
use commandline::{Failure, OrHint as _, Outcome, field, list, print, text, visible};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use vpn::JournalStatus;
use vpn::report::{DaemonStatus, openmetrics};

use crate::load::{folder_of, read_settings};

/// Which running tunnel is meant.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct VpnSocket {
    /// Its socket: `status` in its configuration.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Its configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Bytes of an answer at most.
const MAX_ANSWER: u64 = 16 * 1024 * 1024;

/// Requests over the control socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "lowercase")]
pub(crate) enum Request {
    Status,
    Explain,
    /// Close one connection, or end.
    Down {
        name: Option<String>,
    },
    /// Bring a connection up.
    Connect {
        name: String,
    },
    /// Replace the keys of a connection.
    Rekey {
        name: String,
    },
    /// Reauthenticate a connection.
    Reauth {
        name: String,
    },
    /// Take the changed file over.
    Reload,
}

/// The socket that a command is meant for.
pub(crate) fn socket_of(target: &VpnSocket) -> Outcome<PathBuf> {
    if let Some(socket) = &target.socket {
        return Ok(socket.clone());
    }
    let path = target.config.as_deref().unwrap_or(Path::new(""));
    let hint = "name the file with which the daemon was started, or its socket with --socket";
    let what = || format!("cannot find the daemon's socket in {}", path.display());
    let table: toml::Table = toml::from_str(&read_settings(path)?).or_hint(what(), hint)?;
    let status = table.get("status").and_then(toml::Value::as_str);
    let status = status.ok_or_else(|| anyhow::anyhow!("there is no `status`"));
    let status = PathBuf::from(status.or_hint(what(), hint)?);
    // A tunnel with manual keys has it where it is started, the daemon beside the file.
    match table.contains_key("connection") {
        true => Ok(folder_of(path).join(status)),
        false => Ok(status),
    }
}

/// Sends a request and gives the answer.
pub(crate) async fn ask(socket: &Path, request: &Request) -> Outcome<Value> {
    let what = || format!("no tunnel answers at {}", socket.display());
    let hint = "name the socket that the tunnel's configuration has as `status`";
    let mut stream = UnixStream::connect(socket).await.or_hint(what(), hint)?;
    let mut line = serde_json::to_vec(request).or_hint("the order", "report this")?;
    line.push(b'\n');
    stream.write_all(&line).await.or_hint(what(), hint)?;
    stream.shutdown().await.or_hint(what(), hint)?;
    let mut bytes = Vec::new();
    (&mut stream)
        .take(MAX_ANSWER)
        .read_to_end(&mut bytes)
        .await
        .or_hint(what(), hint)?;
    let value: Value = serde_json::from_slice(&bytes).or_hint(what(), hint)?;
    match value.get("error").and_then(Value::as_str) {
        Some(error) => Err(Failure::new(
            anyhow::anyhow!(error.to_owned()),
            text(&value, "hint"),
        )),
        None => Ok(in_lines(value)),
    }
}

/// Escapes the text of the daemon's answers. Names and reasons come from peers, and the caller joins them to lines.
fn in_lines(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(visible(&text)),
        Value::Array(values) => values.into_iter().map(in_lines).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(name, value)| (visible(&name), in_lines(value)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

/// `cordon vpn down`, `connect`, `rekey`, `reauth`, `reload`.
pub(crate) async fn tell(target: &VpnSocket, request: Request, json: bool) -> Outcome {
    let value = ask(&socket_of(target)?, &request).await?;
    let said = match &request {
        Request::Reload => {
            let names = |name: &str| {
                let names: Vec<&str> = list(&value, name)
                    .iter()
                    .filter_map(Value::as_str)
                    .collect();
                if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                }
            };
            let parts = ["added", "changed", "removed", "renewed"]
                .map(|name| format!("{name}: {}", names(name)));
            parts.join("\n")
        }
        Request::Rekey { .. } => format!(
            "new keys for {} IKE SAs and {} Child SAs",
            field(&value, "ike_sas"),
            field(&value, "children")
        ),
        Request::Reauth { .. } => "reauthenticating; see `cordon vpn status`".to_owned(),
        Request::Down { name: None } => "the daemon ends".to_owned(),
        Request::Down { .. } => format!("closing {} IKE SAs", field(&value, "closing")),
        _ => "done".to_owned(),
    };
    print(json, &value, &said)
}

pub(crate) async fn explain(target: &VpnSocket, json: bool) -> Outcome {
    let value = ask(&socket_of(target)?, &Request::Explain).await?;
    let failed = list(&value, "failed");
    let mut lines = Vec::new();
    for one in failed {
        let named = |name: &str| {
            let text = text(one, name);
            if text.is_empty() {
                "?".to_owned()
            } else {
                text.to_owned()
            }
        };
        lines.push(format!(
            "{} s ago  {}  connection {}  peer {}\n  reason  {}",
            field(one, "ago_seconds"),
            text(one, "what"),
            named("connection"),
            named("remote"),
            text(one, "reason"),
        ));
        for (name, label) in [
            ("child", "child   "),
            ("setting", "setting "),
            ("theirs", "theirs  "),
            ("ours", "ours    "),
            ("first_difference", "differ  "),
        ] {
            if !text(one, name).is_empty() {
                lines.push(format!("  {label}{}", text(one, name)));
            }
        }
    }
    if lines.is_empty() {
        lines.push("no negotiation has failed".to_owned());
    }
    print(json, &value, &lines.join("\n"))
}

/// The negotiated part of a state, for people.
pub(crate) fn describe(ike: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for connection in list(ike, "connections") {
        lines.push(format!(
            "connection {}  {}",
            text(connection, "name"),
            text(connection, "state")
        ));
        for own in list(connection, "certificates") {
            lines.push(crate::credentials::describe(own));
        }
    }
    for sa in list(ike, "sas") {
        lines.push(format!(
            "IKE SA {}  {}  peer {}  {} to {}{}  {} s old, new keys in {} s  {}",
            text(sa, "spi"),
            text(sa, "connection"),
            text(sa, "peer"),
            text(sa, "local"),
            text(sa, "remote"),
            match text(sa, "transport") {
                "tcp" => " over TCP",
                _ => "",
            },
            field(sa, "age_seconds"),
            field(sa, "rekey_seconds"),
            text(sa, "suite"),
        ));
        for child in list(sa, "children") {
            lines.push(format!(
                "  child {}  {} = {}  in {} {} bytes, out {} {} bytes  {} s old, new keys in {} s  {}{}",
                text(child, "name"),
                text(child, "local"),
                text(child, "remote"),
                text(child, "spi_in"),
                field(child, "bytes_in"),
                text(child, "spi_out"),
                field(child, "bytes_out"),
                field(child, "age_seconds"),
                field(child, "rekey_seconds"),
                text(child, "suite"),
                match child.get("worker").and_then(Value::as_u64) {
                    Some(worker) => format!("  worker {worker}"),
                    None => String::new(),
                },
            ));
        }
    }
    lines
}

/// The accelerator's part of a state, for people.
pub fn describe_accelerator(state: &Value) -> Vec<String> {
    let status = state.get("accelerator").cloned().unwrap_or_default();
    let status = serde_json::from_value::<Option<accelerator::Status>>(status);
    let status = status.ok().flatten();
    status.map_or_else(Vec::new, |status| status.lines())
}

/// State of the daemon's journal, if it has one.
pub(crate) fn journal(state: &Value) -> Option<JournalStatus> {
    serde_json::from_value(state.get("journal")?.clone()).ok()
}

pub(crate) fn describe_journal(state: &Value) -> Option<String> {
    let journal = journal(state)?;
    let mut line = format!("journal   {} records", journal.last);
    if let Some(shipped) = journal.shipped {
        line += &format!(", the central log has them up to {shipped}");
    }
    if let (Some(seconds), Some(why)) = (journal.waiting_seconds, &journal.refusal) {
        line += &format!("\nproblem   the journal does not move for {seconds} s: {why}");
    }
    Some(line)
}

/// The state as OpenMetrics text.
pub(crate) fn to_openmetrics(state: Value) -> Outcome<String> {
    const HINT: &str = "use the same version on both sides";
    let status: DaemonStatus = serde_json::from_value(state).or_hint("the state", HINT)?;
    openmetrics(status).or_hint("the state", HINT)
}
