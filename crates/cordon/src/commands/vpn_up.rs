//! `cordon vpn up` and the commands that reach it: negotiated tunnels.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keyhost::KeyHost;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use vpn::daemon::{self, DaemonHandle, Thread};
use vpn::firewall::Firewall;
use vpn::report::{DaemonStatus, openmetrics};
use vpn::{Command, Reply, ResolvedConfig, StartupConfig};
use zeroize::Zeroizing;

use super::vpn::{Front, bind_metrics, bind_status, serve_metrics};
use super::vpn_credentials::{Credentials, Seen, look};
use super::vpn_crls::{self, Known};
use super::vpn_fetcher::Fetcher;
use super::vpn_ocsp;
use super::{field, list, print, read_text, text, vpn_firewall};
use crate::cli::VpnSocket;
use crate::control;
use crate::failure::{Failure, OrHint as _, Outcome};

/// Bytes of an order at most.
const MAX_ORDER: u64 = 4096;
/// Bytes of an answer at most.
const MAX_ANSWER: u64 = 16 * 1024 * 1024;
/// How long somebody may take to say what they want.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often files with revocation lists and our certificates are looked at.
const LOOK_AT_FILES: Duration = Duration::from_secs(2);
/// How long threads get to end by themselves.
const ENDING: Duration = Duration::from_secs(5);

/// What is asked over the control socket.
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
    /// Take the changed file over.
    Reload,
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Reads what a configuration names, and the revocation lists.
fn load(path: &Path, file: &str, signer: &KeyHost) -> Outcome<ResolvedConfig> {
    let what = || format!("the tunnels in {}", path.display());
    let hint = "see docs/tunnels/settings.md for what the file holds";
    let read = ResolvedConfig::read(file, folder_of(path), signer);
    let mut loaded = read.or_hint(what(), hint)?;
    loaded.config.status = folder_of(path).join(&loaded.config.status);
    let site = loaded
        .config
        .audit
        .as_ref()
        .and_then(|audit| audit.site.as_ref());
    if let Some(site) = site.map(|site| folder_of(path).join(site)) {
        let send = move |first, events| control::send_journal(&site, first, events);
        loaded.central = Some(Box::new(send));
    }
    vpn_crls::check(loaded.crl_urls())?;
    vpn_ocsp::check(loaded.ocsp_responders())?;
    let lists = daemon::read_crls(loaded.crl_files());
    loaded.accept_crls(&lists.or_hint("revocation lists", "correct `crls` of [trust]")?);
    Ok(loaded)
}

/// A daemon that runs, as its orders reach it.
struct Running {
    path: PathBuf,
    /// The configuration in force.
    file: Zeroizing<String>,
    startup: StartupConfig,
    signer: KeyHost,
    handle: DaemonHandle,
    firewall: Option<Firewall>,
    fetcher: Fetcher,
    crls: Seen,
    credentials: Credentials,
    /// Lists that were fetched, and what ends fetching.
    fetched: Known,
    fetching: CancellationToken,
}

impl Running {
    /// Asks for revocation lists by HTTP from now on.
    fn fetch(&self, urls: Vec<String>, every: Duration) {
        let ways = (&self.handle, &self.fetcher);
        vpn_crls::follow(urls, every, ways, &self.fetched, &self.fetching);
    }

    /// New revocation lists, if a file has changed.
    fn look_at_crls(&mut self) {
        let files: Vec<PathBuf> = self.crls.iter().map(|(file, _)| file.clone()).collect();
        let seen = look(&files);
        if seen == self.crls {
            return;
        }
        match daemon::read_crls(&files) {
            Ok(lists) => {
                tracing::info!("revocation lists have changed");
                self.handle.revocation_lists(lists);
            }
            Err(error) => tracing::error!(%error, "revocation lists stay as they are"),
        }
        self.crls = seen;
    }

    /// Our certificates, if their files have changed.
    fn look_at_credentials(&mut self) {
        if !self.credentials.have_changed() {
            return;
        }
        // What else was written into the configuration meanwhile is for `reload`.
        let read = ResolvedConfig::read(&self.file, folder_of(&self.path), &self.signer);
        let loaded = match read {
            Ok(loaded) => loaded,
            Err(error) => return self.credentials.refused(&error),
        };
        match self.handle.command(Command::Credentials(Box::new(loaded))) {
            Some(Reply::Renewed { changed, .. }) => self.credentials.taken_over(&changed),
            _ => tracing::error!("renewed certificates were not taken over"),
        }
    }

    fn reload(&mut self) -> Outcome<Value> {
        let file = read_text(&self.path)?;
        let loaded = load(&self.path, &file, &self.signer).map_err(|failure| {
            let hint = "the daemon reads files only in folders that its file named when it was started: \
                        restart it, or name the folder in `folders`";
            match failure.message().contains("Permission denied") {
                true => Failure::new(anyhow::anyhow!(failure.message()), hint),
                false => failure,
            }
        })?;
        if loaded.startup_only() != self.startup {
            return Err(Failure::new(
                anyhow::anyhow!("[interface], [path] or `status` differs from what runs"),
                "restart the daemon for that: `cordon vpn down`, `cordon vpn up`",
            ));
        }
        let new = Firewall::of_daemon(&loaded.config);
        let both = match (&self.firewall, &new) {
            (Some(old), Some(new)) => Some(old.clone().and(new)),
            (old, new) => old.clone().or_else(|| new.clone()),
        };
        vpn_firewall::put_in_force(both.as_ref())?;
        self.crls = look(loaded.crl_files());
        let credentials = Credentials::of(&loaded);
        loaded.accept_crls(&self.fetched.lists());
        self.fetching.cancel();
        self.fetching = CancellationToken::new();
        self.fetch(loaded.crl_urls().to_vec(), loaded.crl_refresh());
        let answer = self.answer(Command::Reload(Box::new(loaded)))?;
        (self.file, self.credentials) = (file, credentials);
        // Only now is it certain that nothing of the old configuration is in use.
        vpn_firewall::replace(self.firewall.as_ref(), new.as_ref())?;
        self.firewall = new;
        Ok(answer)
    }

    fn answer(&self, command: Command) -> Outcome<Value> {
        let ended = || Failure::new(anyhow::anyhow!("the daemon has ended"), "see its log");
        match self.handle.command(command).ok_or_else(ended)? {
            Reply::Explanations(failed) => Ok(json!({ "failed": failed })),
            Reply::Closing(count) => Ok(json!({ "closing": count })),
            Reply::Connecting => Ok(json!({ "connecting": true })),
            Reply::Reloaded {
                added,
                changed,
                removed,
                renewed,
            } => Ok(json!({
                "added": added,
                "changed": changed,
                "removed": removed,
                "renewed": renewed,
            })),
            Reply::Renewed { renewed, .. } => Ok(json!({ "renewed": renewed })),
            Reply::Refused(why) => Err(Failure::new(
                anyhow::anyhow!(why),
                "see `cordon vpn status` for what there is",
            )),
            Reply::Status(_) => Err(ended()),
        }
    }

    /// Carries a request out; true when the daemon is to end.
    fn carry_out(&mut self, request: Request) -> (Outcome<Value>, bool) {
        let answer = match request {
            Request::Status => {
                let ended = || Failure::new(anyhow::anyhow!("the daemon ends"), "see its log");
                let status = self.handle.status().ok_or_else(ended);
                status.and_then(|status| {
                    serde_json::to_value(status).or_hint("the state", "report this")
                })
            }
            Request::Explain => self.answer(Command::Explain),
            Request::Down { name: Some(name) } => self.answer(Command::Down(name)),
            Request::Down { name: None } => return (Ok(json!({ "ending": true })), true),
            Request::Connect { name } => self.answer(Command::Connect(name)),
            Request::Reload => self.reload(),
        };
        (answer, false)
    }
}

pub(crate) async fn up(path: &Path, signer: KeyHost) -> Outcome {
    let file = read_text(path)?;
    let mut loaded = load(path, &file, &signer)?;
    // Before the first socket: from here on nothing goes in the clear, whatever happens to this process.
    let firewall = Firewall::of_daemon(&loaded.config);
    vpn_firewall::put_in_force(firewall.as_ref())?;
    let fetcher = Fetcher::default();
    loaded.ocsp_transport = Some(vpn_ocsp::transport(Handle::current(), fetcher.clone()));
    let mut seed = [0; 8];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| Failure::new(anyhow::anyhow!("no random numbers"), "check /dev/urandom"))?;
    let socket = loaded.config.status.clone();
    let status = bind_status(&socket)?;
    let metrics = match &loaded.config.metrics {
        Some(metrics) => Some(bind_metrics(metrics.listen).await?),
        None => None,
    };
    let front = Front::new(Some(status), metrics)?;
    let (startup, crls) = (loaded.startup_only(), look(loaded.crl_files()));
    let credentials = Credentials::of(&loaded);
    let (urls, every) = (loaded.crl_urls().to_vec(), loaded.crl_refresh());
    let started = daemon::start(loaded, folder_of(path), u64::from_ne_bytes(seed)).await;
    let result = match started.or_hint(
        "the tunnels cannot start",
        "run as root or with CAP_NET_ADMIN and CAP_NET_BIND_SERVICE; UDP ports 500 and 4500 and the \
         interface's name must be free on this host",
    ) {
        Ok((threads, handle)) => {
            let running = Running {
                path: path.to_owned(),
                file,
                startup,
                signer,
                handle,
                firewall,
                fetcher,
                crls,
                credentials,
                fetched: Known::default(),
                fetching: CancellationToken::new(),
            };
            running.fetch(urls, every);
            serve(running, threads, front).await
        }
        Err(failure) => Err(failure),
    };
    // It is only a name; a new daemon replaces it.
    let _ = std::fs::remove_file(&socket);
    result
}

/// Runs the threads until a signal, an order or a thread's end.
async fn serve(mut running: Running, threads: Vec<Thread>, mut front: Front) -> Outcome {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let mut alive = 0;
    for (name, work) in threads {
        let ended = ended.clone();
        let started = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                // The receiver lives until the process ends.
                let _ = ended.send((name, result));
            });
        started.or_hint("the tunnels cannot start", "check the limit on threads")?;
        alive += 1;
    }
    let stop = CancellationToken::new();
    if let Some(listener) = front.metrics.take() {
        let handle = running.handle.clone();
        let text = move || openmetrics(handle.status()?).ok();
        serve_metrics(listener, text, stop.clone());
    }
    let (requests, mut orders) = mpsc::channel(16);
    if let Some(listener) = front.status.take() {
        tokio::spawn(listen(listener, requests));
    }
    tracing::info!("tunnels are served");
    let mut tick = tokio::time::interval(LOOK_AT_FILES);
    let mut ending = None;
    let mut result = Ok(());
    while alive > 0 {
        let patience = async {
            match ending {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let mut end = false;
        tokio::select! {
            _ = front.terminate.recv() => end = true,
            _ = front.interrupt.recv() => end = true,
            _ = front.hang_up.recv() => {
                if let Err(failure) = blocking(|| running.reload()) {
                    tracing::error!("the configuration stays as it is: {}", failure.message());
                }
            }
            _ = tick.tick() => blocking(|| {
                running.look_at_crls();
                running.look_at_credentials();
            }),
            Some((request, answer)) = orders.recv() => {
                let (reply, over) = blocking(|| running.carry_out(request));
                // Who does not wait any more is no trouble.
                let _ = answer.send(reply);
                end = over;
            }
            Some((name, outcome)) = ends.recv() => {
                alive -= 1;
                let how = match outcome {
                    Ok(Ok(())) if ending.is_some() => None,
                    Ok(Ok(())) => Some("ended by itself".to_owned()),
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("died".to_owned()),
                };
                if let Some(how) = how {
                    let error = anyhow::anyhow!("thread {name}: {how}");
                    result = Err(Failure::new(error, "see the log above"));
                    end = true;
                }
            }
            () = patience => break,
        }
        if end && ending.is_none() {
            tracing::info!("ending");
            running.handle.stop();
            // The way to it ends the threads that wait for orders.
            ending = Some(tokio::time::Instant::now() + ENDING);
        }
    }
    stop.cancel();
    running.fetching.cancel();
    vpn_firewall::say_what_stays(running.firewall.as_ref());
    result
}

fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

type Waiting = (Request, tokio::sync::oneshot::Sender<Outcome<Value>>);

/// Reads orders and writes answers, one of each per connection.
async fn listen(listener: UnixListener, requests: mpsc::Sender<Waiting>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let requests = requests.clone();
        tokio::spawn(async move {
            if let Err(error) = converse(stream, requests).await {
                tracing::debug!(%error, "control socket");
            }
        });
    }
}

async fn converse(stream: UnixStream, requests: mpsc::Sender<Waiting>) -> anyhow::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(MAX_ORDER));
    tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await??;
    let request: Request = serde_json::from_str(&line)?;
    let (answer, answered) = tokio::sync::oneshot::channel();
    requests.send((request, answer)).await?;
    let value = match answered.await? {
        Ok(value) => value,
        Err(failure) => json!({ "error": failure.message(), "hint": failure.hint() }),
    };
    write.write_all(value.to_string().as_bytes()).await?;
    Ok(())
}

/// The socket that a command is meant for.
pub(crate) fn socket_of(target: &VpnSocket) -> Outcome<PathBuf> {
    if let Some(socket) = &target.socket {
        return Ok(socket.clone());
    }
    let path = target.config.as_deref().unwrap_or(Path::new(""));
    let hint = "name the file with which the daemon was started, or its socket with --socket";
    let what = || format!("cannot find the daemon's socket in {}", path.display());
    let table: toml::Table = toml::from_str(&read_text(path)?).or_hint(what(), hint)?;
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
        None => Ok(value),
    }
}

/// `cordon vpn down`, `connect`, `reload`.
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
            lines.push(super::vpn_credentials::describe(own));
        }
    }
    for sa in list(ike, "sas") {
        lines.push(format!(
            "IKE SA {}  {}  peer {}  {} to {}  {} s old, new keys in {} s  {}",
            text(sa, "spi"),
            text(sa, "connection"),
            text(sa, "peer"),
            text(sa, "local"),
            text(sa, "remote"),
            field(sa, "age_seconds"),
            field(sa, "rekey_seconds"),
            text(sa, "suite"),
        ));
        for child in list(sa, "children") {
            lines.push(format!(
                "  child {}  {} = {}  in {} {} bytes, out {} {} bytes  {} s old, new keys in {} s  {}",
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
            ));
        }
    }
    lines
}

/// The state as OpenMetrics text.
pub(crate) fn to_openmetrics(state: Value) -> Outcome<String> {
    const HINT: &str = "use the same version on both sides";
    let status: DaemonStatus = serde_json::from_value(state).or_hint("the state", HINT)?;
    openmetrics(status).or_hint("the state", HINT)
}
