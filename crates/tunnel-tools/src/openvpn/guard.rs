//! `cordon vpn openvpn-guard`: decides beside an OpenVPN server which devices have a session, all the time.
//!
//! OpenVPN asks whether a certificate is revoked when a device connects and about once an hour. The guard holds its management
//! socket: no device gets in unless the guard says so, sessions of those that are revoked or suspended end, and when the guard
//! itself ends, so do all sessions, until it is back.
//!
//! ```text
//! site ──► guard ──► management.sock ──► openvpn        who may come in, who has to leave
//!            └─────► crl.pem, refused-devices.txt       what OpenVPN's own checks read
//! ```
//!
//! `management` is OpenVPN's protocol, `sessions` who is connected, `lists` the revocation lists.

mod lists;
mod management;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use client_profiles::openvpn::{AUTHORITIES, CRL, MANAGEMENT, REFUSED_DEVICES};
use commandline::{Failure, OrHint as _, Outcome, field, list, text};
use error_report::Report;
use keyhost::secret_file;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::lists::Lists;
use self::management::{Client, MAX_LINE, Notice, Peer, Reader};
use self::sessions::Sessions;
use crate::http_client;
use crate::site::{Control, SiteRequest};

/// Pause between two looks at the site. Our choice: with [`SITE`] and what ending a session takes, a revocation counts
/// within five seconds.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait for the site.
const SITE: Duration = Duration::from_secs(2);
/// Interval at which the files for OpenVPN are compared with the site: a resumed device gets in again that soon. Our choice: one
/// short question costs the site little, and the lists are fetched only when they have changed.
const FILES: Duration = Duration::from_secs(5);
/// Pause before the management socket is tried again.
const RECONNECT: Duration = Duration::from_millis(500);
/// Longest wait for OpenVPN to take a command.
const WRITING: Duration = Duration::from_secs(5);
/// Bytes of OpenVPN's configuration at most.
const MAX_CONFIG: u64 = 1 << 20;
/// Bytes of the file with refused names at most.
const MAX_NAMES: u64 = 16 << 20;

/// `cordon vpn openvpn-guard`.
#[derive(Debug, Args)]
pub struct Guard {
    /// OpenVPN's configuration, as `openvpn-profile` made it; the other files lie beside it.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Folder of the data of a site that runs on this host: revocations and suspensions count.
    #[arg(long, value_name = "DIR", required_unless_present = "crl_url")]
    data: Option<PathBuf>,
    /// Where the site publishes its revocation lists, such as http://pki.example.org/crl: revocations count.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    crl_url: Option<String>,
    /// Seconds between two looks at --crl-url.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    refresh: u64,
}

/// The source of revocations.
enum Source {
    Site {
        data: PathBuf,
        /// When the files for OpenVPN are compared with the site again.
        files_at: Instant,
        /// The site's mark of the lists that are in force here.
        mark: String,
        /// Whether it did not answer the last time.
        silent: bool,
    },
    Publisher(mpsc::Receiver<String>),
}

/// Runs until it is stopped.
pub(crate) async fn run(args: &Guard, control: Control) -> Outcome {
    check_config(&args.config)?;
    let folder = args.config.parent().unwrap_or(Path::new(""));
    let mut guard = Watch {
        control,
        lists: Lists::new(&folder.join(AUTHORITIES), folder.join(CRL))?,
        refused_file: folder.join(REFUSED_DEVICES),
        source: source(args)?,
        sessions: Sessions::default(),
    };
    let stop = CancellationToken::new();
    commandline::stop_on_signals(stop.clone())?;
    let socket = folder.join(MANAGEMENT);
    tokio::select! {
        outcome = guard.run(&socket) => outcome,
        () = stop.cancelled() => Ok(()),
    }
}

fn source(args: &Guard) -> Outcome<Source> {
    let Some(url) = &args.crl_url else {
        return Ok(Source::Site {
            data: args.data.clone().unwrap_or_default(),
            files_at: Instant::now(),
            mark: String::new(),
            silent: false,
        });
    };
    http_client::check(
        std::slice::from_ref(url),
        "--crl-url",
        "http://pki.example.org/crl",
    )?;
    let (lists, _) = lists::follow(url, Duration::from_secs(args.refresh));
    Ok(Source::Publisher(lists))
}

/// Refuses a configuration whose server would let devices in without the guard, or whose key others can read.
fn check_config(file: &Path) -> Outcome {
    let hint = "use server.conf of a folder that `cordon vpn openvpn-profile` made";
    let read = secret_file::read(file, MAX_CONFIG).map_err(|what| {
        Failure::new(
            anyhow::anyhow!(what),
            "name OpenVPN's configuration, which holds its private key: only its owner may read it",
        )
    })?;
    let config = std::str::from_utf8(&read).or_hint("unreadable configuration", hint)?;
    let management = format!("management {MANAGEMENT} unix");
    let needed = [
        management.as_str(),
        "management-client-auth",
        "management-hold",
        "management-signal",
    ];
    let has = |line: &str| config.lines().any(|one| one.trim() == line);
    match needed.iter().find(|line| !has(line)) {
        None => Ok(()),
        Some(line) => {
            let error = anyhow::anyhow!(
                "{} has no line `{line}`: devices would get in without the guard",
                file.display()
            );
            Err(Failure::new(error, hint))
        }
    }
}

struct Watch {
    control: Control,
    lists: Lists,
    refused_file: PathBuf,
    source: Source,
    sessions: Sessions,
}

impl Watch {
    /// Serves OpenVPN, and waits for it while it is gone.
    async fn run(&mut self, socket: &Path) -> Outcome {
        let mut waiting = false;
        loop {
            self.look().await;
            match UnixStream::connect(socket).await {
                Ok(stream) => {
                    waiting = false;
                    tracing::info!("OpenVPN is there");
                    // OpenVPN has ended all sessions together with the connection to the guard.
                    self.sessions.clear();
                    let error = self.serve(stream).await;
                    tracing::warn!("OpenVPN is gone: {}", Report(&*error));
                }
                Err(error) if !std::mem::replace(&mut waiting, true) => {
                    tracing::info!(socket = %socket.display(), %error, "waiting for OpenVPN");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(RECONNECT) => {}
                Some(lists) = of_publisher(&mut self.source) => drop(self.take(&lists)),
            }
        }
    }

    /// Decides for a connected OpenVPN until it is gone; the result is why.
    async fn serve(&mut self, stream: UnixStream) -> anyhow::Error {
        let (read, mut out) = stream.into_split();
        let (lines, mut incoming) = mpsc::channel(64);
        let reading = tokio::spawn(read_lines(BufReader::new(read), lines));
        let mut reader = Reader::default();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let ended = loop {
            let cut = self.sessions.next_cut();
            let cutting = async {
                match cut {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let commands = tokio::select! {
                line = incoming.recv() => match line {
                    Some(line) => match reader.line(&line) {
                        Some(notice) => self.handle(notice).await,
                        None => continue,
                    },
                    None => break anyhow::anyhow!("the management socket was closed"),
                },
                () = cutting => self.sessions.cut(Instant::now()),
                _ = look.tick() => self.look().await,
                Some(lists) = of_publisher(&mut self.source) => self.take(&lists),
            };
            if let Err(error) = send(&mut out, &commands).await {
                break error;
            }
        };
        reading.abort();
        ended
    }

    /// Answers a notice of OpenVPN by commands.
    async fn handle(&mut self, notice: Notice) -> Vec<String> {
        match notice {
            Notice::Hold => {
                self.sessions.clear();
                vec!["hold release".to_owned()]
            }
            Notice::Ended(client) => {
                self.sessions.end(client);
                Vec::new()
            }
            Notice::Refused(what) => {
                tracing::debug!(%what, "OpenVPN refused a command");
                Vec::new()
            }
            Notice::Admission { client, key, peer } => self.admit(client, key, peer).await,
        }
    }

    async fn admit(&mut self, client: Client, key: u64, peer: Option<Peer>) -> Vec<String> {
        let Some(peer) = peer else {
            tracing::warn!(client, "refused: it cannot be told which device it is");
            return vec![format!("client-deny {client} {key} \"nobody\"")];
        };
        let serials = BTreeSet::from([peer.serial.clone()]);
        // No device waits for a site that did not answer: the next look queries it again.
        let refusals = match self.source {
            Source::Site { silent: true, .. } => self.refused_by_lists(&serials),
            _ => self.refusals(&serials).await,
        };
        let refusal = refusals.get(&peer.serial).cloned();
        let (device, serial) = (peer.name.clone(), peer.serial.clone());
        let refusal = match refusal {
            None if self.sessions.begin(client, peer) => None,
            None => Some("too-many-sessions".to_owned()),
            refused => refused,
        };
        match refusal {
            None => {
                tracing::info!(%device, %serial, "admitted");
                vec![format!("client-auth-nt {client} {key}")]
            }
            Some(reason) => {
                tracing::warn!(%device, %serial, %reason, "refused");
                vec![format!("client-deny {client} {key} \"{reason}\"")]
            }
        }
    }

    /// Looks whether anybody who is connected must leave, and keeps the files for OpenVPN current.
    async fn look(&mut self) -> Vec<String> {
        let serials = self.sessions.serials();
        let refusals = self.refusals(&serials).await;
        if let Source::Site { files_at, .. } = &mut self.source
            && !refusals.is_empty()
        {
            *files_at = Instant::now();
        }
        let commands = self.refuse(refusals);
        self.refresh().await;
        commands
    }

    fn refuse(&mut self, refusals: BTreeMap<String, String>) -> Vec<String> {
        let mut commands = Vec::new();
        for (serial, reason) in refusals {
            let (more, peers) = self.sessions.refuse(&serial, Instant::now());
            for peer in peers {
                tracing::warn!(device = %peer.name, %serial, %reason, "session ended");
            }
            commands.extend(more);
        }
        commands
    }

    /// The refused certificates with reasons. A site that does not answer refuses none: then the lists count.
    async fn refusals(&mut self, serials: &BTreeSet<String>) -> BTreeMap<String, String> {
        let mut refused = self.refused_by_lists(serials);
        if let Source::Site { data, silent, .. } = &mut self.source {
            match standings(self.control, data, serials).await {
                Ok(by_site) => {
                    if std::mem::take(silent) {
                        tracing::info!("the site answers again");
                    }
                    refused.extend(by_site);
                }
                Err(failure) => {
                    if !std::mem::replace(silent, true) {
                        let what = failure.message();
                        tracing::warn!(%what, "the site does not answer: its last lists count");
                    }
                }
            }
        }
        refused
    }

    fn refused_by_lists(&self, serials: &BTreeSet<String>) -> BTreeMap<String, String> {
        let refusal = |serial: &String| Some((serial.clone(), self.lists.refusal(serial)?));
        serials.iter().filter_map(refusal).collect()
    }

    /// Takes lists of the publisher over, and ends whose sessions they end.
    fn take(&mut self, lists: &str) -> Vec<String> {
        if let Err(failure) = self.lists.take(lists) {
            tracing::warn!(what = %failure.message(), "revocation lists are not taken over");
        }
        let refusals = self.refused_by_lists(&self.sessions.serials());
        self.refuse(refusals)
    }

    /// Brings the files that OpenVPN reads in line with the site, if it is time.
    async fn refresh(&mut self) {
        let now = Instant::now();
        let Source::Site {
            data,
            files_at,
            mark,
            silent: false,
        } = &mut self.source
        else {
            return;
        };
        if *files_at > now {
            return;
        }
        *files_at = now.checked_add(FILES).unwrap_or(now);
        let answer = ask_in_time(self.control, data, SiteRequest::RefusedDevices).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                tracing::warn!(what = %failure.message(), "the site does not say which devices it refuses");
                return;
            }
        };
        let names = list(&answer, "devices").iter();
        let names = names.filter_map(|name| name.as_str());
        if let Err(failure) = write_refused(&self.refused_file, names) {
            tracing::warn!(what = %failure.message(), "names of refused devices are not taken over");
        }
        // A hold may be on the lists after its holder is enrolled again, so names alone do not say when to fetch them.
        if text(&answer, "lists_mark") == mark.as_str() && !mark.is_empty() {
            return;
        }
        match site_lists(self.control, data, &mut self.lists).await {
            Ok(taken) => *mark = taken,
            Err(failure) => {
                tracing::warn!(what = %failure.message(), "revocation lists are not taken over");
            }
        }
    }
}

/// Takes the site's lists over; returns their mark.
async fn site_lists(control: Control, data: &Path, lists: &mut Lists) -> Outcome<String> {
    let answer = ask_in_time(control, data, SiteRequest::Crls).await?;
    lists.take(text(&answer, "crl_pem"))?;
    Ok(text(&answer, "lists_mark").to_owned())
}

/// The next lists of a publisher.
async fn of_publisher(source: &mut Source) -> Option<String> {
    match source {
        Source::Publisher(lists) => lists.recv().await,
        Source::Site { .. } => std::future::pending().await,
    }
}

/// Writes the names of devices whose keys of the control channel are refused, where anybody may read them.
fn write_refused<'a>(file: &Path, names: impl Iterator<Item = &'a str>) -> Outcome {
    let mut lines = String::new();
    for name in names {
        lines.push_str(name);
        lines.push('\n');
    }
    let known = secret_file::read_public(file, MAX_NAMES);
    if known.is_ok_and(|known| known.as_slice() == lines.as_bytes()) {
        return Ok(());
    }
    durable::write_atomic(file, lines.as_bytes(), 0o644).or_hint(
        format!("cannot write {}", file.display()),
        "check the folder's rights",
    )
}

async fn ask_in_time(
    control: Control,
    data: &Path,
    request: SiteRequest,
) -> Outcome<serde_json::Value> {
    let asked = timeout(SITE, control.request_running(data, request)).await;
    asked.unwrap_or_else(|_| {
        let error = anyhow::anyhow!("no answer in {} seconds", SITE.as_secs());
        Err(Failure::new(error, "see the log of the running site"))
    })
}

/// What the site says of certificates: why they are refused, of those that are.
async fn standings(
    control: Control,
    data: &Path,
    serials: &BTreeSet<String>,
) -> Outcome<BTreeMap<String, String>> {
    if serials.is_empty() {
        return Ok(BTreeMap::new());
    }
    let request = SiteRequest::Standings {
        serials: serials.iter().cloned().collect(),
    };
    let answer = ask_in_time(control, data, request).await?;
    let refused = field(&answer, "refused").clone();
    serde_json::from_value(refused).or_hint("the site's answer", "use the same version of cordon")
}

/// Reads lines of a bounded length until the end.
async fn read_lines(
    mut from: BufReader<tokio::net::unix::OwnedReadHalf>,
    lines: mpsc::Sender<String>,
) {
    let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut from).take(most);
        match bounded.read_until(b'\n', &mut line).await {
            // A line without end is too long, or cut: what follows cannot be understood.
            Ok(_) if line.last() != Some(&b'\n') => return,
            Ok(_) => {}
            Err(_) => return,
        }
        let said = String::from_utf8_lossy(&line);
        let said = said.trim_end_matches(['\r', '\n']).to_owned();
        if lines.send(said).await.is_err() {
            return;
        }
    }
}

async fn send(out: &mut OwnedWriteHalf, commands: &[String]) -> anyhow::Result<()> {
    for command in commands {
        let line = format!("{command}\n");
        timeout(WRITING, out.write_all(line.as_bytes()))
            .await
            .map_err(|_| anyhow::anyhow!("OpenVPN takes no commands"))??;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
