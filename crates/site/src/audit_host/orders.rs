//! Commands for a running audit host, over `DIR/audit-host.sock`: one line of JSON each way.

use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::Actor;
use audit_host::AuditHost;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, OrHint as _, Outcome};

/// Longest order in bytes.
const MAX_ORDER: u64 = 64 * 1024;
/// Longest time that an order or its answer takes on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(10);
const HINT: &str = "see the log of the audit host";

/// What a command asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Sources,
    Alarms,
    CloseAlarm { number: u64, reason: String },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Done(Value),
    Failed { message: String, hint: String },
}

fn socket(data: &Path) -> PathBuf {
    data.join("audit-host.sock")
}

/// Opens the socket. The lock of the host's own log has shown that no other audit host runs here.
pub(super) fn listen(data: &Path) -> Outcome<UnixListener> {
    let path = socket(data);
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(&path).or_hint(
        format!("cannot listen on {}", path.display()),
        "choose a shorter data path",
    )
}

/// Answers until `stop`, one order after the other.
pub(super) async fn serve(
    host: AuditHost,
    listener: UnixListener,
    stop: CancellationToken,
) -> Outcome {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        let answered = match accepted {
            Ok((stream, _)) => answer(&host, stream).await,
            Err(error) => Err(error),
        };
        if let Err(error) = answered {
            tracing::warn!(%error, "a command broke off");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn answer(host: &AuditHost, stream: UnixStream) -> std::io::Result<()> {
    let actor = crate::console::peer(&stream.peer_cred()?);
    let (read, mut write) = stream.into_split();
    let mut line = Vec::new();
    let mut read = BufReader::new(read.take(MAX_ORDER));
    timeout(ON_ITS_WAY, read.read_until(b'\n', &mut line)).await??;
    let answer = match carry_out(host, &line, actor).await {
        Ok(value) => Answer::Done(value),
        Err(failure) => Answer::Failed {
            message: failure.message(),
            hint: failure.hint().to_owned(),
        },
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    timeout(ON_ITS_WAY, write.write_all(&text)).await?
}

async fn carry_out(host: &AuditHost, line: &[u8], actor: Actor) -> Outcome<Value> {
    let order = serde_json::from_slice(line);
    let order = order.or_hint("unknown order", "use the same version of cordon")?;
    let host = host.clone();
    let done = spawn_blocking(move || match order {
        Order::Sources => Ok(json!({
            "sources": host.sources(),
            "checkpoint": host.log().checkpoint(),
        })),
        Order::Alarms => Ok(json!({ "alarms": host.list_alarms() })),
        Order::CloseAlarm { number, reason } => {
            let closed = host.close_alarm(number, &reason, actor);
            let hint = "see `cordon audit alarms`";
            closed
                .or_hint(format!("alarm {number}"), hint)
                .map(|alarm| json!({ "alarm": alarm }))
        }
    });
    done.await.or_hint("the order died", HINT)?
}

/// Asks the audit host that runs in this folder.
pub async fn ask(data: &Path, order: &Order) -> Outcome<Value> {
    let stream = UnixStream::connect(socket(data)).await;
    let mut stream = stream.or_hint(
        format!("no audit host runs in {}", data.display()),
        "start it with `cordon run audit --config FILE`, and name its data folder with --data",
    )?;
    let mut line = serde_json::to_vec(order).or_hint("order", HINT)?;
    line.push(b'\n');
    let sent = stream.write_all(&line).await;
    sent.or_hint("cannot reach the audit host", HINT)?;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer).await;
    read.or_hint("cannot reach the audit host", HINT)?;
    match serde_json::from_slice(&answer).or_hint("the audit host gave no answer", HINT)? {
        Answer::Done(value) => Ok(value),
        Answer::Failed { message, hint } => Err(Failure::new(anyhow::anyhow!("{message}"), hint)),
    }
}
