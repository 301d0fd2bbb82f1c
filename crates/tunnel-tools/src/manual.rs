//! `cordon vpn static`: a tunnel with manual keys; and the state of any running tunnel.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use commandline::{Failure, OrHint as _, Outcome, field, list, print, text, write_out};
use http::header::CONTENT_TYPE;
use listener::Listener;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tunnel::config::{BackendConfig, ModeConfig, PathConfig, ProtocolConfig, StaticConfig};
use tunnel::counters::Snapshot;
use tunnel::data_plane::{ManualKeying, Run};
use tunnel::rekey::UsedKeys;
use vpn::firewall::Firewall;
use vpn::manual;

use crate::client::{self, Request};
use crate::firewall;
use crate::load::read_secret_settings;
use crate::status_socket::StatusSocket;

/// How a tunnel's state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StatusFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For Prometheus.
    Prometheus,
}

/// Bytes of a request to a tunnel at most, and how long it may take.
const MAX_REQUEST: u64 = 4096;
const REQUEST: Duration = Duration::from_secs(2);

/// Reads the description of a tunnel. Others must not be able to read its keys.
fn read_config(path: &Path) -> Outcome<StaticConfig> {
    let what = || format!("the tunnel {}", path.display());
    StaticConfig::parse(&read_secret_settings(path)?).or_hint(
        what(),
        "see docs/tunnels/settings.md for what the file holds",
    )
}

/// Everything that can be missing besides the tunnel itself. It is bound first: a tunnel that has begun
/// to route packets is only taken down in an orderly way.
pub(super) struct Front {
    pub(super) status: Option<UnixListener>,
    pub(super) metrics: Option<TcpListener>,
    pub(super) terminate: Signal,
    pub(super) interrupt: Signal,
    pub(super) hang_up: Signal,
}

impl Front {
    async fn bind(config: &StaticConfig, status: Option<UnixListener>) -> Outcome<Self> {
        let metrics = match &config.metrics {
            Some(metrics) => Some(bind_metrics(metrics.listen).await?),
            None => None,
        };
        Self::new(status, metrics)
    }

    /// Signals beside what is bound.
    pub(super) fn new(status: Option<UnixListener>, metrics: Option<TcpListener>) -> Outcome<Self> {
        let of = |kind| signal(kind).or_hint("signals", "check that signals are not blocked");
        Ok(Self {
            status,
            metrics,
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            hang_up: of(SignalKind::hangup())?,
        })
    }
}

pub(crate) async fn run_static(path: &Path) -> Outcome {
    let config = read_config(path)?;
    tracing::warn!(
        "keys come from a file and are never renewed: whoever copies the file reads everything, past \
         and future; for laboratories only"
    );
    let mut seed = [0; 8];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| Failure::new(anyhow::anyhow!("no random numbers"), "check /dev/urandom"))?;
    // Before anything is changed: a start that is refused takes nothing away from the tunnel that runs.
    let _lock = firewall::lock(&config.interface.name, config.backend)?;
    let mut status = match &config.status {
        Some(socket) => Some(StatusSocket::bind(socket).await?),
        None => None,
    };
    // Before the first outer socket: from here on no packet leaves in the clear, even if this process is killed.
    let firewall = Firewall::of_static(&config);
    firewall::put_in_force(firewall.as_ref(), &firewall::owner(path)?)?;
    let listener = status.as_mut().and_then(|socket| socket.listener.take());
    let front = Front::bind(&config, listener).await?;
    let hint = match config.backend {
        BackendConfig::User => {
            "run as root or with CAP_NET_ADMIN; names, addresses and ports must be free on this host"
        }
        BackendConfig::Kernel => {
            "run as root on a kernel with IPsec, with names, SPIs and ports free; without `backend` the \
             program itself protects packets, on any kernel"
        }
    };
    let (run, handle) = manual::start(&config, u64::from_ne_bytes(seed))
        .await
        .or_hint("the tunnel cannot start", hint)?;
    let result = serve(path, &config, front, run, handle).await;
    drop(status);
    firewall::say_what_stays(firewall.as_ref());
    // After a failure the routes of transport mode stay as well.
    result?;
    let hint = match config.backend {
        BackendConfig::User => "see `ip rule`",
        BackendConfig::Kernel => "see `ip link`",
    };
    manual::clean_up(&config)
        .await
        .or_hint("routes of the tunnel are left", hint)
}

/// Moves packets until a signal ends it.
async fn serve(
    path: &Path,
    config: &StaticConfig,
    mut front: Front,
    run: Run,
    handle: Arc<dyn ManualKeying>,
) -> Outcome {
    let (ended, mut end) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("vpn-worker".into())
        .spawn(move || {
            // The receiver lives until this thread is joined.
            let _ = ended.send(run());
        });
    let thread = thread.or_hint("the tunnel cannot start", "check the limit on threads")?;
    let stop = CancellationToken::new();
    if let Some(listener) = front.metrics.take() {
        let handle = Arc::clone(&handle);
        let text = move || tunnel::metrics::openmetrics(handle.snapshot()?).ok();
        serve_metrics(listener, text, stop.clone());
    }
    let status = front.status.take();
    let status = status.map(|listener| tokio::spawn(serve_status(listener, Arc::clone(&handle))));
    tracing::info!(interface = %config.interface.name, remote = %config.path.remote, "tunnel up");
    let mut keys = Keys::new(config);
    let result = loop {
        tokio::select! {
            _ = front.terminate.recv() => handle.stop(),
            _ = front.interrupt.recv() => handle.stop(),
            _ = front.hang_up.recv() => reload(path, &*handle, &mut keys),
            result = &mut end => break result,
        }
    };
    stop.cancel();
    if let Some(task) = status {
        task.abort();
    }
    match (result, thread.join()) {
        (Ok(result), Ok(())) => result.or_hint("the tunnel ended", "see the log above"),
        _ => Err(Failure::new(
            anyhow::anyhow!("the tunnel's thread died"),
            "report this with the log",
        )),
    }
}

/// What new keys are checked against.
struct Keys {
    /// The file as it was first read.
    path: PathConfig,
    kind: (BackendConfig, ProtocolConfig, ModeConfig),
    used: UsedKeys,
}

impl Keys {
    fn new(config: &StaticConfig) -> Self {
        let mut used = UsedKeys::default();
        // Cannot fail: no key was used before, and the two directions' keys differ or are for no cipher.
        let _ = used.take([&config.sa.outbound, &config.sa.inbound]);
        Self {
            path: config.path.clone(),
            kind: kind(config),
            used,
        }
    }
}

/// What else cannot change while the tunnel runs: the policies in the kernel name it.
fn kind(config: &StaticConfig) -> (BackendConfig, ProtocolConfig, ModeConfig) {
    (config.backend, config.sa.protocol, config.sa.mode)
}

/// New keys from the same file. What cannot be used leaves the tunnel as it is.
fn reload(path: &Path, handle: &dyn ManualKeying, keys: &mut Keys) {
    match try_reload(path, handle, keys) {
        Ok(()) => tracing::info!("new keys installed"),
        Err(failure) => tracing::error!("keys stay as they are: {}", failure.message()),
    }
}

fn try_reload(path: &Path, handle: &dyn ManualKeying, keys: &mut Keys) -> Outcome {
    let config = read_config(path)?;
    if config.path != keys.path || kind(&config) != keys.kind {
        return Err(Failure::new(
            anyhow::anyhow!(
                "[path], backend, protocol or mode differs from what the tunnel was started with"
            ),
            "restart the tunnel for anything but new keys",
        ));
    }
    // Before they count as used.
    tunnel::associations::associations(&config, Instant::now())
        .or_hint("new keys", "correct the file")?;
    let hint = "new SPIs and new keys are needed each time: `openssl rand -hex 36`";
    keys.used
        .take([&config.sa.outbound, &config.sa.inbound])
        .or_hint("new keys", hint)?;
    handle.rekey(&config).or_hint("new keys", hint)
}

/// Answers each connection with the tunnel's state; a tunnel with manual keys takes no other order.
async fn serve_status(listener: UnixListener, handle: Arc<dyn ManualKeying>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            continue;
        };
        let handle = Arc::clone(&handle);
        tokio::spawn(async move {
            let mut request = Vec::new();
            let mut limited = (&mut stream).take(MAX_REQUEST);
            let read = limited.read_to_end(&mut request);
            // A client that sends no request gets the state as well.
            let _ = tokio::time::timeout(REQUEST, read).await;
            let bytes = match serde_json::from_slice(&request) {
                Ok(Request::Status) | Err(_) => {
                    let snapshot = tokio::task::spawn_blocking(move || handle.snapshot()).await;
                    let Ok(Some(snapshot)) = snapshot else { return };
                    serde_json::to_vec(&snapshot).unwrap_or_default()
                }
                Ok(_) => serde_json::json!({
                    "error": "a tunnel with manual keys negotiates nothing",
                    "hint": "end it by a signal; give it new keys by SIGHUP",
                })
                .to_string()
                .into_bytes(),
            };
            if let Err(error) = stream.write_all(&bytes).await {
                tracing::debug!(%error, "status was not read");
            }
        });
    }
}

pub(crate) async fn status(socket: &Path, format: StatusFormat) -> Outcome {
    let state = client::ask(socket, &Request::Status).await?;
    if format == StatusFormat::Prometheus {
        let text = if state.get("ike").is_some() {
            client::to_openmetrics(state)?
        } else {
            let state: Snapshot = serde_json::from_value(state)
                .or_hint("the state", "use the same version on both sides")?;
            tunnel::metrics::openmetrics(state)
                .or_hint("the state", "use the same version on both sides")?
        };
        return write_out(text.as_bytes());
    }
    print(format == StatusFormat::Json, &state, &describe(&state))?;
    match client::journal(&state) {
        Some(journal) if journal.is_stalled() => {
            let why = journal.refusal.unwrap_or_default();
            Err(Failure::new(
                anyhow::anyhow!("the journal does not reach the central log: {why}"),
                "see docs/tunnels/operation.md; events wait in the journal",
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(feature = "lab")]
pub(crate) fn export_keys(config: &Path, output: &Path) -> Outcome {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    let config = read_config(config)?;
    let lines = tunnel::wireshark::esp_sa(&config).or_hint("the keys", "correct the file")?;
    let what = || format!("cannot write {}", output.display());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(output)
        .or_hint(what(), "name a file that does not exist yet")?;
    tracing::warn!("anyone with this file can read everything that the tunnel carries");
    file.write_all(lines.as_bytes())
        .or_hint(what(), "make room on the disk")
}

#[cfg(not(feature = "lab"))]
pub(crate) fn export_keys(_: &Path, _: &Path) -> Outcome {
    Err(Failure::new(
        anyhow::anyhow!("this build does not let keys out"),
        "in a laboratory, build with `cargo build --features lab`",
    ))
}

pub(super) async fn bind_metrics(address: SocketAddr) -> Outcome<TcpListener> {
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "metrics are served to other hosts, in the clear");
    }
    TcpListener::bind(address).await.or_hint(
        format!("metrics on {address}"),
        "choose a free address of this host as `listen` of [metrics]",
    )
}

/// Serves `/metrics` until stopped; `text` waits for the tunnel and gives nothing once it has ended.
pub(super) fn serve_metrics(
    socket: TcpListener,
    text: impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) {
    let answer = move || {
        let text = text.clone();
        async move {
            match tokio::task::spawn_blocking(text).await {
                Ok(Some(text)) => {
                    let content = [(CONTENT_TYPE, tunnel::metrics::CONTENT_TYPE)];
                    Ok((content, text))
                }
                _ => Err(http::StatusCode::SERVICE_UNAVAILABLE),
            }
        }
    };
    let listener = Listener {
        name: "vpn metrics",
        socket,
        tls: None,
        service: Router::new().route("/metrics", get(answer)).into(),
        bounds: listener::BOUNDS,
        deadlines: listener::PEOPLE,
        metrics: listener::Metrics::default(),
        anew: None,
    };
    tokio::spawn(async move {
        if let Err(error) = listener.serve(stop).await {
            tracing::error!(%error, "metrics are no longer served");
        }
    });
}

fn describe(state: &Value) -> String {
    let amount = |name: &str| {
        let amount = field(state, name);
        format!(
            "{} packets, {} bytes",
            field(amount, "packets"),
            field(amount, "bytes")
        )
    };
    let mut lines = vec![
        format!(
            "{}  MTU {}  offload {}",
            text(state, "interface"),
            field(state, "mtu"),
            text(state, "offload")
        ),
        format!("sent      {}", amount("sent")),
        format!("received  {}", amount("received")),
    ];
    if let Some(ike) = state.get("ike") {
        lines.extend(client::describe(ike));
    }
    lines.extend(client::describe_accelerator(state));
    lines.extend(client::describe_journal(state));
    for sa in list(state, "associations") {
        lines.push(format!(
            "SPI {} {:<3}  {} packets, last number {}",
            text(sa, "spi"),
            text(sa, "direction"),
            field(sa, "packets"),
            field(sa, "sequence")
        ));
    }
    for (way, name) in [("out", "outbound_drops"), ("in", "inbound_drops")] {
        for drop in list(state, name) {
            lines.push(format!(
                "dropped {way:<3}  {} {}",
                field(drop, "packets"),
                text(drop, "cause")
            ));
        }
    }
    lines.join("\n")
}
