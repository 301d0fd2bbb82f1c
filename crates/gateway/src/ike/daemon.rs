//! From a configuration to running threads.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use audit::journal::{Journal, JournalOptions};
use ikev2::auth::Scheme;
use ikev2::wire::Identification;
use ikev2::{AskId, Random};
use ipsec::dataplane::DataPlane;
use quinn_udp::{RecvMeta, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec};
use sys::tun::Tun;
use time::OffsetDateTime;

use super::config::OuterConfig;
use super::control::{
    AuditNote, Control, Effect, IKE_PORT, LinkOrder, NAT_PORT, Now, Order, Reply,
};
use super::journal;
use super::plan::Loaded;
use super::report::{DaemonStatus, IkeStatus};
use super::signer::SigningKey;
use super::trust::{Accepted, Trust};
use crate::backend::Backend as _;
use crate::capture::Capture;
use crate::children::{Children, Note};
use crate::daemon::StartError;
use crate::link::{self, Link};
use crate::outer::udp::send_from;
use crate::outer::{Outer, PathMtu, would_block};
use crate::privileges;
use crate::worker::{Command, Path, Worker, WorkerHandle, WorkerParts};

/// Bytes of the largest uncut packet: protected, it still fits one send.
const UNCUT: u32 = 60_000;
/// Messages that wait for the protocol half at most; further ones are dropped, and peers repeat them.
const WAITING: usize = 4096;
/// Signatures and certificates that wait at most; further handshakes are refused.
const JOBS: usize = 256;
/// Audit events that wait for the disk at most.
const NOTES: usize = 4096;
/// How often certificates of peers are looked at again, apart from new revocation lists.
const RECHECK: Duration = Duration::from_secs(5);
/// How long peers get to confirm that the daemon ends.
const FAREWELL: Duration = Duration::from_millis(1500);
/// How long the operator waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

struct System;

impl Random for System {
    fn fill(&mut self, out: &mut [u8]) {
        // Without random numbers nothing here is safe; going on would be worse than ending.
        aws_lc_rs::rand::fill(out).unwrap_or_else(|_| std::process::abort());
    }
}

/// What reaches the protocol half.
enum Input {
    Datagram(SocketAddr, SocketAddr, Vec<u8>),
    Note(Note),
    Signed(AskId, Result<Vec<u8>, String>),
    Verified(AskId, Result<(Vec<u8>, Accepted), String>),
    /// Revocation lists were taken over.
    Recheck,
    Order(Order, SyncSender<Reply>),
    Stop,
}

/// The way to the protocol half; bounds what strangers can put into it.
#[derive(Clone)]
struct Inbox {
    sender: Sender<Input>,
    waiting: Arc<AtomicUsize>,
    busy: Arc<AtomicU64>,
}

impl Inbox {
    fn datagram(&self, local: SocketAddr, remote: SocketAddr, bytes: &[u8]) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.busy.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.send(Input::Datagram(local, remote, bytes.to_vec()));
    }

    fn send(&self, input: Input) {
        // Nobody there any more means that the daemon ends.
        let _ = self.sender.send(input);
    }
}

enum KeyJob {
    Set(String, Option<SigningKey>),
    Sign(AskId, String, Scheme, Vec<u8>),
}

enum TrustJob {
    Verify(AskId, Vec<Vec<u8>>, Identification),
    Crls(Vec<Vec<u8>>),
    /// The daemon ends, though others can still ask.
    End,
}

type SharedTrust = Arc<RwLock<Option<Arc<Trust>>>>;

/// Tells a running daemon what to do.
#[derive(Clone)]
pub struct DaemonHandle {
    inbox: Inbox,
    worker: Arc<WorkerHandle>,
    trust: SyncSender<TrustJob>,
}

impl DaemonHandle {
    /// Carries out an order; none when the daemon has ended. Waits for the answer.
    pub fn order(&self, order: Order) -> Option<Reply> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.inbox.send(Input::Order(order, sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    /// The whole state; none when the daemon has ended.
    pub fn status(&self) -> Option<DaemonStatus> {
        let Some(Reply::Status(mut ike)) = self.order(Order::Status) else {
            return None;
        };
        let path = self.worker.snapshot()?;
        let bytes: BTreeMap<(&str, &str), u64> = path
            .associations
            .iter()
            .map(|sa| ((&*sa.direction, sa.spi.as_str()), sa.amount.bytes))
            .collect();
        fill_bytes(&mut ike, &bytes);
        Some(DaemonStatus { path, ike: *ike })
    }

    /// Takes revocation lists (DER) over; peers that they name lose their tunnels.
    pub fn revocation_lists(&self, lists: Vec<Vec<u8>>) {
        let _ = self.trust.send(TrustJob::Crls(lists));
    }

    /// Ends the daemon, after its peers were told.
    pub fn stop(&self) {
        self.inbox.send(Input::Stop);
    }
}

fn fill_bytes(ike: &mut IkeStatus, bytes: &BTreeMap<(&str, &str), u64>) {
    for child in ike.sas.iter_mut().flat_map(|sa| &mut sa.children) {
        let of = |way, spi: &str| bytes.get(&(way, spi)).copied().unwrap_or(0);
        child.bytes_in = of("in", &child.spi_in);
        child.bytes_out = of("out", &child.spi_out);
    }
}

/// A thread's name and what it does.
pub type Thread = (&'static str, Box<dyn FnOnce() -> io::Result<()> + Send>);

fn quiet(
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Box<dyn FnOnce() -> io::Result<()> + Send> {
    Box::new(move || {
        privileges::drop_all()?;
        work()
    })
}

/// Reads revocation lists from files, PEM or DER.
///
/// # Errors
/// Those of reading.
pub fn read_crls(files: &[PathBuf]) -> io::Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        })?;
        all.extend(split_crls(bytes));
    }
    Ok(all)
}

/// The lists in a file: one in DER, or several in PEM.
fn split_crls(bytes: Vec<u8>) -> Vec<Vec<u8>> {
    const END: &str = "-----END X509 CRL-----";
    let text = std::str::from_utf8(&bytes).ok();
    let Some(text) = text.filter(|text| text.contains(END)) else {
        return vec![bytes];
    };
    let parts = text.split_inclusive(END);
    let parts = parts.filter_map(|part| part.get(part.find("-----BEGIN")?..));
    parts
        .filter_map(|part| der::pem::decode_vec(part.as_bytes()).ok())
        .map(|(_, der)| der)
        .collect()
}

impl Loaded {
    /// Files with revocation lists.
    pub fn crl_files(&self) -> &[PathBuf] {
        &self.crls
    }

    /// Takes revocation lists over before the configuration is used.
    pub fn accept_crls(&self, lists: &[Vec<u8>]) {
        if let Some(trust) = &self.trust {
            accept(trust, lists);
        }
    }
}

fn accept(trust: &Trust, lists: &[Vec<u8>]) {
    for list in lists {
        match trust.accept_crl(list, OffsetDateTime::now_utc()) {
            Ok(()) | Err(pki::crl::CrlError::Rollback) => {}
            Err(error) => tracing::error!(%error, "a revocation list is not taken over"),
        }
    }
}

/// Bytes of the largest inner packet that fits whatever is negotiated: AES-CBC with the longest
/// integrity value has most around it.
fn inner_mtu(path: &OuterConfig) -> u16 {
    const UDP_ESP_IV_ICV: u16 = 8 + 8 + 16 + 32;
    let ip = if path.listen.is_ipv4() { 20 } else { 40 };
    let room = path.mtu.saturating_sub(ip + UDP_ESP_IV_ICV);
    (room - room % 16).saturating_sub(2)
}

fn bind(address: IpAddr, port: u16) -> Result<UdpSocket, StartError> {
    use socket2::{Domain, Protocol, Socket, Type};
    let address = SocketAddr::new(address, port);
    let open = || {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().map_err(|source| StartError::Socket {
        kind: "UDP",
        address,
        source,
    })
}

/// Our address towards another one, as the kernel's routes have it.
fn source_of(listen: IpAddr, remote: IpAddr) -> Option<IpAddr> {
    if !listen.is_unspecified() {
        return Some(listen);
    }
    let probe = UdpSocket::bind(SocketAddr::new(listen, 0)).ok()?;
    // Connecting sends nothing.
    probe.connect(SocketAddr::new(remote, IKE_PORT)).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// Creates interface and sockets; gives the threads that are to run.
///
/// # Errors
/// [`StartError`], naming what could not be had.
pub async fn start(
    mut loaded: Loaded,
    folder: &FsPath,
    seed: u64,
) -> Result<(Vec<Thread>, DaemonHandle), StartError> {
    let config = &loaded.config;
    let listen = config.path.listen;
    let failed = |source| StartError::Interface {
        name: config.interface.name.clone(),
        source,
    };
    let (esp, ike) = (bind(listen, NAT_PORT)?, bind(listen, IKE_PORT)?);
    let sender = esp.try_clone().map_err(failed)?;
    let answering = ike.try_clone().map_err(failed)?;
    let tun = Tun::create(&config.interface.name, config.interface.offload).map_err(failed)?;
    let mtu = config
        .interface
        .mtu
        .unwrap_or_else(|| inner_mtu(&config.path));
    link::configure(&Link {
        name: tun.name(),
        mtu,
        uncut: UNCUT,
        addresses: &config.interface.addresses,
        routes: &config.interface.routes,
        peer: None,
    })
    .await?;
    let journal = match &config.audit {
        Some(audit) => {
            let folder = folder.join(&audit.folder);
            let opened = Journal::open(&folder, journal::ROLE, JournalOptions::default());
            Some(opened.map_err(|error| failed(io::Error::other(error)))?)
        }
        None => None,
    };
    let (input, inputs) = mpsc::channel();
    let inbox = Inbox {
        sender: input,
        waiting: Arc::default(),
        busy: Arc::default(),
    };
    let name = tun.name().to_owned();
    let (mut worker, handle) = worker(&loaded, tun, esp, mtu, &inbox, seed)?;
    let handle = Arc::new(handle);
    let (keys, key_jobs) = mpsc::sync_channel(JOBS);
    let (trust, trust_jobs) = mpsc::sync_channel(JOBS);
    let (links, link_orders) = mpsc::channel();
    let (notes, audit_notes) = mpsc::sync_channel(NOTES);
    let shared: SharedTrust = Arc::new(RwLock::new(loaded.trust.take().map(Arc::new)));
    let audit_errors = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let protocol = Protocol {
        inputs,
        inbox: inbox.clone(),
        worker: Arc::clone(&handle),
        keys,
        trust: trust.clone(),
        shared: Arc::clone(&shared),
        links,
        notes: journal.is_some().then_some(notes),
        audit_errors: Arc::clone(&audit_errors),
        sockets: (answering, sender),
        over: Arc::clone(&over),
        stop_at: None,
        start: Instant::now(),
    };
    let (key_inbox, trust_inbox, port_inbox) = (inbox.clone(), inbox.clone(), inbox.clone());
    let mut threads: Vec<Thread> = vec![
        ("vpn-worker", quiet(move || worker.run())),
        ("vpn-keys", quiet(move || sign(&key_jobs, &key_inbox))),
        (
            "vpn-verify",
            quiet(move || judge(&trust_jobs, &shared, &trust_inbox)),
        ),
        (
            "vpn-port500",
            quiet(move || listen_ike(&ike, &port_inbox, &over)),
        ),
        (
            "vpn-links",
            Box::new(move || {
                privileges::keep_net_admin()?;
                super::links::run(&name, &link_orders)
            }),
        ),
        ("vpn-ike", quiet(move || protocol.run(loaded))),
    ];
    if let Some(journal) = journal {
        let run = move || {
            journal::run(journal, &audit_notes, &audit_errors);
            Ok(())
        };
        threads.push(("vpn-audit", quiet(run)));
    }
    let handle = DaemonHandle {
        inbox,
        worker: handle,
        trust,
    };
    Ok((threads, handle))
}

fn worker(
    loaded: &Loaded,
    tun: Tun,
    socket: UdpSocket,
    mtu: u16,
    inbox: &Inbox,
    seed: u64,
) -> Result<(Worker, WorkerHandle), StartError> {
    let config = &loaded.config;
    let address = SocketAddr::new(config.path.listen, NAT_PORT);
    let failed = |source| StartError::Socket {
        kind: "UDP",
        address,
        source,
    };
    let capture = match &config.debug.capture {
        Some(path) => {
            tracing::warn!(file = %path.display(),
                "everything the tunnels carry is written to a file IN THE CLEAR");
            let made = Capture::create(path, config.debug.capture_limit);
            Some(made.map_err(|source| StartError::Capture {
                path: path.clone(),
                source,
            })?)
        }
        None => None,
    };
    let (ike, notes) = (inbox.clone(), inbox.clone());
    let sink = Box::new(move |local: IpAddr, remote: SocketAddr, bytes: &[u8]| {
        ike.datagram(SocketAddr::new(local, NAT_PORT), remote, bytes);
    });
    let nowhere = SocketAddr::new(config.path.listen, 0);
    let parts = WorkerParts {
        tun,
        mtu,
        outer: Outer::shared_udp(socket, sink).map_err(failed)?,
        plane: DataPlane::new(seed),
        policies: Vec::new(),
        pair: None,
        children: Children::new(Box::new(move |note| notes.send(Input::Note(note)))),
        rekey: crate::config::RekeyConfig::default(),
        path: Path::new(
            config.path.mtu,
            PathMtu::new(nowhere, nowhere, None).map_err(failed)?,
            None,
        ),
        capture,
    };
    Worker::new(parts).map_err(failed)
}

/// The thread with the private keys.
fn sign(jobs: &Receiver<KeyJob>, inbox: &Inbox) -> io::Result<()> {
    let mut keys: BTreeMap<String, SigningKey> = BTreeMap::new();
    while let Ok(job) = jobs.recv() {
        match job {
            KeyJob::Set(name, Some(key)) => drop(keys.insert(name, key)),
            KeyJob::Set(name, None) => drop(keys.remove(&name)),
            KeyJob::Sign(ask, name, scheme, message) => {
                let result = match keys.get(&name) {
                    Some(key) => key
                        .sign(scheme, &message)
                        .map_err(|error| error.to_string()),
                    None => Err("the connection has no key".to_owned()),
                };
                inbox.send(Input::Signed(ask, result));
            }
        }
    }
    Ok(())
}

/// The thread that judges certificates.
fn judge(jobs: &Receiver<TrustJob>, shared: &SharedTrust, inbox: &Inbox) -> io::Result<()> {
    while let Ok(job) = jobs.recv() {
        let trust = shared
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match (job, trust) {
            (TrustJob::Verify(ask, chain, id), Some(trust)) => {
                let result = trust.verify(&chain, &id, OffsetDateTime::now_utc());
                inbox.send(Input::Verified(
                    ask,
                    result.map_err(|error| error.to_string()),
                ));
            }
            (TrustJob::Verify(ask, ..), None) => {
                let result = Err("no authority is trusted".to_owned());
                inbox.send(Input::Verified(ask, result));
            }
            (TrustJob::Crls(lists), Some(trust)) => {
                accept(&trust, &lists);
                inbox.send(Input::Recheck);
            }
            (TrustJob::Crls(_), None) => {}
            (TrustJob::End, _) => break,
        }
    }
    Ok(())
}

/// The thread that reads UDP port 500.
fn listen_ike(socket: &UdpSocket, inbox: &Inbox, over: &AtomicBool) -> io::Result<()> {
    let state = UdpSocketState::new(socket.into())?;
    let local = socket.local_addr()?;
    let mut buffer = vec![0; 65_536];
    while !over.load(Ordering::Relaxed) {
        // Woken now and then to see whether it is over.
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 250_000_000,
        };
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut meta = [RecvMeta::default()];
        let received = state.recv(
            socket.into(),
            &mut [IoSliceMut::new(&mut buffer)],
            &mut meta,
        );
        let [meta] = meta;
        match received {
            Ok(_) => {
                let to = SocketAddr::new(meta.dst_ip.unwrap_or(local.ip()), local.port());
                let bytes = buffer.get(..meta.len).unwrap_or_default();
                for datagram in bytes.chunks(meta.stride.max(1)) {
                    inbox.datagram(to, meta.addr, datagram);
                }
            }
            Err(error) if would_block(&error) => {}
            // About datagrams sent earlier: anybody who can send ICMP can cause these.
            Err(error) => tracing::debug!(%error, "receiving on port 500"),
        }
    }
    Ok(())
}

/// The protocol half's thread.
struct Protocol {
    inputs: Receiver<Input>,
    inbox: Inbox,
    worker: Arc<WorkerHandle>,
    keys: SyncSender<KeyJob>,
    trust: SyncSender<TrustJob>,
    shared: SharedTrust,
    links: Sender<LinkOrder>,
    notes: Option<SyncSender<AuditNote>>,
    audit_errors: Arc<AtomicU64>,
    /// On port 500, on port 4500.
    sockets: (UdpSocket, UdpSocket),
    over: Arc<AtomicBool>,
    stop_at: Option<Instant>,
    start: Instant,
}

impl Protocol {
    fn now(&self) -> Now {
        Now::since(self.start, Instant::now())
    }

    fn run(mut self, loaded: Loaded) -> io::Result<()> {
        let path = loaded.config.path.clone();
        let listen = path.listen;
        let source = Box::new(move |remote| source_of(listen, remote));
        let mut control = Control::new(path, Box::new(System), source, self.now());
        control.begin(loaded.plans, &loaded.config.pool, self.now());
        let mut recheck = Instant::now() + RECHECK;
        loop {
            let now = self.now();
            control.tick(now);
            if now.instant >= recheck {
                self.recheck(&mut control, now);
                recheck = now.instant + RECHECK;
            }
            self.flush(&mut control, now);
            if self
                .stop_at
                .is_some_and(|at| control.is_over() || at <= now.instant)
            {
                break;
            }
            let next = control.poll_timeout().map(|at| at.since(now.stamp));
            let deadlines = [Some(recheck), self.stop_at].into_iter().flatten();
            let other = deadlines.map(|at| at.saturating_duration_since(now.instant));
            let wait = other.chain(next).min().unwrap_or(RECHECK);
            match self.inputs.recv_timeout(wait) {
                Ok(input) => self.handle(&mut control, input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.over.store(true, Ordering::Relaxed);
        self.worker.send(Command::Stop);
        let _ = self.trust.send(TrustJob::End);
        Ok(())
    }

    fn handle(&mut self, control: &mut Control, input: Input) {
        let now = self.now();
        match input {
            Input::Datagram(local, remote, bytes) => {
                self.inbox.waiting.fetch_sub(1, Ordering::Relaxed);
                control.datagram(local, remote, &bytes, now);
            }
            Input::Note(note) => control.note(note, now),
            Input::Signed(ask, result) => control.signed(ask, result, now),
            Input::Verified(ask, result) => control.verified(ask, result, now),
            Input::Recheck => self.recheck(control, now),
            Input::Order(order, answer) => {
                let busy = self.inbox.busy.load(Ordering::Relaxed);
                control.lost(busy, self.audit_errors.load(Ordering::Relaxed));
                // Who does not wait any more is no trouble.
                let _ = answer.try_send(control.obey(order, now));
            }
            Input::Stop => {
                self.stop_at = self.stop_at.or(Some(now.instant + FAREWELL));
                control.stop(now);
            }
        }
    }

    fn recheck(&self, control: &mut Control, now: Now) {
        let trust = self
            .shared
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(trust) = trust else { return };
        let utc = OffsetDateTime::now_utc();
        let judge = |accepted: &Accepted| {
            trust
                .recheck(accepted, utc)
                .map_err(|error| error.to_string())
        };
        control.recheck(&judge, now);
    }

    /// Carries out what the control wants.
    fn flush(&self, control: &mut Control, now: Now) {
        loop {
            while let Some(transmit) = control.poll_transmit() {
                let socket = match transmit.local.port() {
                    NAT_PORT => &self.sockets.1,
                    _ => &self.sockets.0,
                };
                let source = transmit.local.ip();
                // What does not go out is repeated like what gets lost.
                if let Err(error) = send_from(socket, source, transmit.remote, &transmit.payload) {
                    tracing::debug!(%error, remote = %transmit.remote, "IKE message not sent");
                }
            }
            let Some(effect) = control.poll_effect() else {
                return;
            };
            self.carry_out(control, effect, now);
        }
    }

    fn carry_out(&self, control: &mut Control, effect: Effect, now: Now) {
        let busy = || "too many handshakes at once".to_owned();
        match effect {
            Effect::Sign(ask, name, scheme, message) => {
                if self
                    .keys
                    .try_send(KeyJob::Sign(ask, name, scheme, message))
                    .is_err()
                {
                    control.signed(ask, Err(busy()), now);
                }
            }
            Effect::Verify(ask, chain, id) => {
                if self
                    .trust
                    .try_send(TrustJob::Verify(ask, chain, id))
                    .is_err()
                {
                    control.verified(ask, Err(busy()), now);
                }
            }
            // Rare, and must not be lost.
            Effect::SetKey(name, key) => drop(self.keys.send(KeyJob::Set(name, key))),
            Effect::SetTrust(trust) => {
                let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
                *shared = trust.map(Arc::new);
            }
            Effect::Child(order) => drop(self.worker.send(Command::Child(order))),
            Effect::Link(order) => drop(self.links.send(order)),
            Effect::Audit(note) => {
                let lost = self
                    .notes
                    .as_ref()
                    .is_some_and(|notes| notes.try_send(note).is_err());
                if lost {
                    self.audit_errors.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_any_suite_fits() {
        let path = |listen: &str, mtu| OuterConfig {
            listen: listen.parse().unwrap(),
            mtu,
            ..OuterConfig::default()
        };
        assert_eq!(inner_mtu(&path("0.0.0.0", 1500)), 1406);
        assert_eq!(inner_mtu(&path("::", 1500)), 1390);
        assert_eq!(inner_mtu(&path("0.0.0.0", 1280)), 1182);
        assert_eq!(inner_mtu(&path("0.0.0.0", 10)), 0);
    }

    #[test]
    fn lists_are_found_in_one_file() {
        let pem = |bytes: &[u8]| {
            der::pem::encode_string("X509 CRL", der::pem::LineEnding::LF, bytes).unwrap()
        };
        let both = format!("words\n{}{}", pem(b"one"), pem(b"two"));
        assert_eq!(split_crls(both.into_bytes()), [b"one", b"two"]);
        assert_eq!(split_crls(vec![0x30, 0x82]), [vec![0x30, 0x82]]);
    }
}
