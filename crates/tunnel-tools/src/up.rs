//! `cordon vpn up`: negotiated tunnels, and what is carried out of the requests of other commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use commandline::{Failure, OrHint as _, Outcome};
use keyhost::KeyHost;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use vpn::daemon::{self, DaemonHandle, Thread};
use vpn::firewall::{Firewall, Owner};
use vpn::report::openmetrics;
use vpn::{Command, Reply, ResolvedConfig, StartupConfig};
use zeroize::Zeroizing;

use crate::client::Request;
use crate::credentials::{Credentials, Seen, look};
use crate::crls::{self, Known};
use crate::fetcher::Fetcher;
use crate::firewall;
use crate::load::{folder_of, load, read_settings};
use crate::manual::{Front, bind_metrics, serve_metrics};
use crate::ocsp;
use crate::site::Control;
use crate::status_socket::StatusSocket;

/// Bytes of an order at most.
const MAX_ORDER: u64 = 4096;
/// Time in which a client must send its request.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often files with revocation lists and our certificates are looked at.
const LOOK_AT_FILES: Duration = Duration::from_secs(2);
/// How long threads get to end by themselves.
const ENDING: Duration = Duration::from_secs(5);

/// A daemon that runs, as its orders reach it.
struct Running {
    control: Control,
    path: PathBuf,
    /// The configuration in force.
    file: Zeroizing<String>,
    startup: StartupConfig,
    signer: KeyHost,
    handle: DaemonHandle,
    firewall: Option<Firewall>,
    owner: Owner,
    fetcher: Fetcher,
    crls: Seen,
    credentials: Credentials,
    /// Lists that were fetched, and what ends fetching.
    fetched: Known,
    fetching: CancellationToken,
}

impl Running {
    /// Asks for revocation lists by HTTP from now on.
    fn fetch(&self, urls: Vec<String>, every: Option<Duration>) {
        let ways = (&self.handle, &self.fetcher);
        crls::follow(urls, every, ways, &self.fetched, &self.fetching);
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
        let file = read_settings(&self.path)?;
        let loaded = load(&self.path, &file, &self.signer, self.control).map_err(|failure| {
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
        firewall::put_in_force(both.as_ref(), &self.owner)?;
        self.crls = look(loaded.crl_files());
        let credentials = Credentials::of(&loaded);
        loaded.accept_crls(&self.fetched.lists());
        let (urls, refresh) = (loaded.crl_urls().to_vec(), loaded.crl_refresh());
        let answer = self.answer(Command::Reload(Box::new(loaded)))?;
        // Only now: a list that comes before its authority is in force is refused, and comes again when it changes only.
        self.fetching.cancel();
        self.fetching = CancellationToken::new();
        self.fetch(urls, refresh);
        (self.file, self.credentials) = (file, credentials);
        // Only now is it certain that nothing of the old configuration is in use.
        firewall::replace(self.firewall.as_ref(), new.as_ref(), &self.owner)?;
        self.firewall = new;
        Ok(answer)
    }

    fn answer(&self, command: Command) -> Outcome<Value> {
        let ended = || Failure::new(anyhow::anyhow!("the daemon has ended"), "see its log");
        match self.handle.command(command).ok_or_else(ended)? {
            Reply::Explanations(failed) => Ok(json!({ "failed": failed })),
            Reply::Closing(count) => Ok(json!({ "closing": count })),
            Reply::Connecting => Ok(json!({ "connecting": true })),
            Reply::Rekeying { ike_sas, children } => {
                Ok(json!({ "ike_sas": ike_sas, "children": children }))
            }
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
            Request::Rekey { name } => self.answer(Command::Rekey(name)),
            Request::Reauth { name } => self.answer(Command::Reauthenticate(name)),
            Request::Reload => self.reload(),
        };
        (answer, false)
    }
}

pub(crate) async fn up(path: &Path, signer: KeyHost, control: Control) -> Outcome {
    let file = read_settings(path)?;
    let mut loaded = load(path, &file, &signer, control)?;
    // Before anything is changed: a start that is refused takes nothing away from the tunnel that runs.
    let _lock = firewall::lock(&loaded.config.interface.name, loaded.config.backend)?;
    let owner = firewall::owner(path)?;
    let mut status = StatusSocket::bind(&loaded.config.status).await?;
    // Before the first outer socket: from here on no packet leaves in the clear, even if this process is killed.
    let firewall = Firewall::of_daemon(&loaded.config);
    firewall::put_in_force(firewall.as_ref(), &owner)?;
    let fetcher = Fetcher::default();
    loaded.ocsp_transport = Some(ocsp::transport(Handle::current(), fetcher.clone()));
    let mut seed = [0; 8];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| Failure::new(anyhow::anyhow!("no random numbers"), "check /dev/urandom"))?;
    let metrics = match &loaded.config.metrics {
        Some(metrics) => Some(bind_metrics(metrics.listen).await?),
        None => None,
    };
    let front = Front::new(status.listener.take(), metrics)?;
    let (startup, crls) = (loaded.startup_only(), look(loaded.crl_files()));
    let credentials = Credentials::of(&loaded);
    let (urls, every) = (loaded.crl_urls().to_vec(), loaded.crl_refresh());
    let started = daemon::start(loaded, folder_of(path), u64::from_ne_bytes(seed)).await;
    match started.or_hint(
        "the tunnels cannot start",
        "run as root or with CAP_NET_ADMIN and CAP_NET_BIND_SERVICE; UDP ports 500 and 4500 and the \
         interface's name must be free on this host",
    ) {
        Ok((threads, handle)) => {
            let running = Running {
                control,
                path: path.to_owned(),
                file,
                startup,
                signer,
                handle,
                firewall,
                owner,
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
    }
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
        let text = move || {
            let text = openmetrics(handle.status()?).ok();
            sys::memory::release_heap();
            text
        };
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
                // The client may be gone; ignore the send error.
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
    firewall::say_what_stays(running.firewall.as_ref());
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
            sys::memory::release_heap();
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
