//! From a configuration to running threads.

use std::collections::BTreeMap;
use std::io::{self};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use audit::journal::{Journal, JournalOptions};
use ikev2::CrashSecret;
use ipsec::dataplane::DataPlane;
use socket2::SockRef;
use sys::tun::Tun;

use super::config::{Carrier, OuterConfig};
use super::control::{IKE_PORT, NAT_PORT, Order, Reply};
use super::journal::{self, Audit};
use super::peer_verifier::{Finding, OcspCounters, PeerVerifier, SharedTrust, TrustJob, accept};
use super::plan::Loaded;
use super::plane::Plane;
use super::protocol::Protocol;
use super::report::{DaemonStatus, IkeStatus};
use super::secret;
use super::threads::{Inbox, Input, listen_ike, sign, work_on_tls};
use crate::children::Children;
use crate::config::BackendConfig;
use crate::daemon::{StartError, capture};
use crate::kernel;
use crate::link::{self, Link};
use crate::outer::udp::{bind, bind_each};
use crate::outer::{Outer, PathMtu};
use crate::privileges;
use crate::worker::{Path, Worker, WorkerParts};
use crate::workers::{Post, Workers, queues};

/// Bytes of the largest uncut packet: protected, it still fits one send.
const UNCUT: u32 = 60_000;
/// The same where the kernel cuts before it protects.
const UNCUT_KERNEL: u32 = 65_536;
/// Signatures and certificates that wait at most; further handshakes are refused.
const JOBS: usize = 256;
/// Bytes that transport mode adds at most: UDP, ESP header, IV, padding and trailer, integrity value of
/// AES-CBC with HMAC-SHA2-512. What fits the interface stays below it.
const TRANSPORT_OVERHEAD: u16 = 8 + 8 + 16 + 15 + 2 + 32;
/// How long the operator waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells a running daemon what to do.
#[derive(Clone)]
pub struct DaemonHandle {
    inbox: Inbox,
    plane: Plane,
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
        let path = self.plane.snapshot()?;
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
pub fn split_crls(bytes: Vec<u8>) -> Vec<Vec<u8>> {
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

    /// Addresses of revocation lists.
    pub fn crl_urls(&self) -> &[String] {
        let trust = self.config.trust.as_ref();
        trust.map_or(&[], |trust| &trust.crl_urls)
    }

    /// Addresses of OCSP responders.
    pub fn ocsp_responders(&self) -> &[String] {
        let trust = self.config.trust.as_ref();
        trust.map_or(&[], |trust| &trust.ocsp_responder)
    }

    /// How often revocation lists are asked for.
    pub fn crl_refresh(&self) -> Duration {
        let trust = self.config.trust.as_ref();
        trust.map_or(Duration::MAX, |trust| {
            trust.crl_refresh.max(Duration::from_secs(1))
        })
    }

    /// Takes revocation lists over before the configuration is used.
    pub fn accept_crls(&self, lists: &[Vec<u8>]) {
        if let Some(trust) = &self.trust {
            accept(trust, lists);
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

/// The mark of outer packets: only where they go to the same address as inner ones.
fn outer_mark(loaded: &Loaded) -> Option<u32> {
    loaded
        .has_transport()
        .then(|| loaded.config.path.mark.get())
}

/// Our address towards another one, as the kernel's routes have it.
pub(super) fn source_of(listen: IpAddr, remote: IpAddr) -> Option<IpAddr> {
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
    let mark = outer_mark(&loaded);
    let esp = bind_each(SocketAddr::new(listen, NAT_PORT), config.interface.workers)?;
    let ike = bind(SocketAddr::new(listen, IKE_PORT), false)?;
    if let Some(mark) = mark {
        SockRef::from(&ike).set_mark(mark).map_err(failed)?;
    }
    let sender = match esp.first() {
        Some(socket) => socket.try_clone().map_err(failed)?,
        None => return Err(failed(io::Error::other("no worker"))),
    };
    let answering = ike.try_clone().map_err(failed)?;
    if mark.is_some() && listen.is_ipv4() {
        for interface in link::strict_interfaces() {
            tracing::warn!(%interface, "rp_filter = 1 drops what the peer sends there: set it to 2");
        }
    }
    let journal = match &config.audit {
        Some(audit) => {
            let folder = folder.join(&audit.folder);
            let opened = Journal::open(&folder, journal::ROLE, JournalOptions::default());
            Some(opened.map_err(|error| failed(io::Error::other(error)))?)
        }
        None => None,
    };
    let central = loaded.central.take();
    let (input, inputs) = mpsc::channel();
    let inbox = Inbox::new(input);
    let name = config.interface.name.clone();
    let over = Arc::new(AtomicBool::new(false));
    let (mut threads, plane) = packet_path(&loaded, esp, &inbox, &over, seed).await?;
    let kernel = config.backend == BackendConfig::Kernel;
    let (keys, key_jobs) = mpsc::sync_channel(JOBS);
    let (trust, trust_jobs) = mpsc::sync_channel(JOBS);
    let (tls, tls_jobs) = mpsc::sync_channel(JOBS);
    let (links, link_orders) = mpsc::channel();
    let (notes, audit_notes) = journal::notes();
    let shared: SharedTrust = Arc::new(RwLock::new(loaded.trust.take().map(Arc::new)));
    let audit_errors = Arc::new(AtomicU64::new(0));
    let asked = Arc::new(OcspCounters::default());
    let found = inbox.clone();
    let tell = move |finding: Finding<_>| found.send(Input::Found(finding));
    let verifier = PeerVerifier::new(
        Arc::clone(&shared),
        loaded.ocsp_transport.take(),
        Arc::clone(&asked),
        trust.clone(),
        Box::new(tell),
    );
    let crash_secret = config.crash_secret.clone().or_else(secret::of_service);
    let crash_secret = match crash_secret {
        Some(file) => {
            let made = secret::kept(&folder.join(file));
            Some(CrashSecret::new(
                made.map_err(|what| failed(io::Error::other(what)))?,
            ))
        }
        None => None,
    };
    let protocol = Protocol {
        crash_secret,
        inputs,
        inbox: inbox.clone(),
        plane: plane.clone(),
        keys,
        trust: trust.clone(),
        tls,
        shared,
        links,
        notes: journal.is_some().then_some(notes),
        audit_errors: Arc::clone(&audit_errors),
        asked,
        sockets: (answering, sender),
        over: Arc::clone(&over),
        stop_at: None,
        start: Instant::now(),
    };
    let (key_inbox, port_inbox, tls_inbox) = (inbox.clone(), inbox.clone(), inbox.clone());
    let (signer, watched) = (loaded.signer.clone(), loaded.signer.clone());
    let others: [Thread; 7] = [
        (
            "vpn-keys",
            quiet(move || sign(&key_jobs, &key_inbox, &signer)),
        ),
        ("vpn-signer", quiet(move || watched.watch())),
        ("vpn-tls", quiet(move || work_on_tls(&tls_jobs, &tls_inbox))),
        ("vpn-verify", quiet(move || verifier.run(&trust_jobs))),
        (
            "vpn-port500",
            quiet(move || listen_ike(&ike, &port_inbox, &over)),
        ),
        (
            "vpn-links",
            Box::new(move || {
                privileges::keep_net_admin()?;
                super::links::run(&name, &link_orders, kernel)
            }),
        ),
        ("vpn-ike", quiet(move || protocol.run(loaded))),
    ];
    threads.extend(others);
    if let Some(journal) = journal {
        let audit = Audit::new(journal, central);
        let run = move || {
            audit.run(&audit_notes, &audit_errors);
            Ok(())
        };
        threads.push(("vpn-audit", quiet(run)));
    }
    let handle = DaemonHandle {
        inbox,
        plane,
        trust,
    };
    Ok((threads, handle))
}

/// What moves the packets: its threads, and the way to them.
async fn packet_path(
    loaded: &Loaded,
    esp: Vec<UdpSocket>,
    inbox: &Inbox,
    over: &Arc<AtomicBool>,
    seed: u64,
) -> Result<(Vec<Thread>, Plane), StartError> {
    let config = &loaded.config;
    let interface = &config.interface;
    let mtu = interface.mtu.unwrap_or_else(|| inner_mtu(&config.path));
    let failed = |source| StartError::Interface {
        name: interface.name.clone(),
        source,
    };
    let mut wanted = Link {
        name: &interface.name,
        mtu,
        uncut: UNCUT,
        addresses: &interface.addresses,
        routes: &interface.routes,
        peer: None,
    };
    match config.backend {
        BackendConfig::User => {
            let queues = queues(interface).map_err(failed)?;
            link::configure(&wanted).await?;
            let made = queues.into_iter().zip(esp);
            let made = made
                .map(|(queues, socket)| worker(loaded, queues, socket, mtu, inbox, seed))
                .collect::<Result<_, _>>()?;
            let (workers, handle) = Workers::new(made).map_err(failed)?;
            let thread: Thread = ("vpn-worker", quiet(move || workers.run()));
            Ok((vec![thread], Plane::User(Arc::new(handle))))
        }
        BackendConfig::Kernel => {
            wanted.uncut = UNCUT_KERNEL;
            // There is one: the plan says so.
            let Some(esp) = esp.into_iter().next() else {
                return Err(failed(io::Error::other("no worker")));
            };
            let number = config.path.mark.get();
            let (notes, port_inbox, over) = (inbox.clone(), inbox.clone(), Arc::clone(over));
            let sink = Box::new(move |note| notes.send(Input::Note(note)));
            let (run, handle) = kernel::start_children(&wanted, number, &esp, sink).await?;
            let run = move || {
                // Associations are changed and removed by it.
                privileges::keep_net_admin()?;
                run().map_err(io::Error::other)
            };
            let threads: Vec<Thread> = vec![
                ("vpn-kernel", Box::new(run)),
                (
                    "vpn-port4500",
                    quiet(move || listen_ike(&esp, &port_inbox, &over)),
                ),
            ];
            Ok((threads, Plane::Kernel(Arc::new(handle))))
        }
    }
}

fn worker(
    loaded: &Loaded,
    queues: (Tun, Tun),
    socket: UdpSocket,
    mtu: u16,
    inbox: &Inbox,
    seed: u64,
) -> Result<(Worker, Post), StartError> {
    let config = &loaded.config;
    let address = SocketAddr::new(config.path.listen, NAT_PORT);
    let failed = |source| StartError::Socket {
        kind: "UDP",
        address,
        source,
    };
    let capture = capture(&config.debug)?;
    let (ike, notes) = (inbox.clone(), inbox.clone());
    let sink = Box::new(move |local: IpAddr, remote: SocketAddr, bytes: &[u8]| {
        ike.datagram(SocketAddr::new(local, NAT_PORT), remote, bytes);
    });
    let (transport, mark) = (loaded.has_transport(), outer_mark(loaded));
    let outer = match config.path.encapsulation {
        Carrier::Udp => Outer::shared_udp(socket, transport, mark, sink).map_err(failed)?,
        Carrier::Auto | Carrier::Native => {
            let raw = |source| StartError::Socket {
                kind: "raw ESP",
                address,
                source,
            };
            Outer::shared_both(socket, transport, mark, sink).map_err(raw)?
        }
    };
    let nowhere = SocketAddr::new(config.path.listen, 0);
    let parts = WorkerParts {
        queues,
        mtu,
        outer,
        plane: DataPlane::new(seed),
        policies: Vec::new(),
        pair: None,
        children: Children::new(Box::new(move |note| notes.send(Input::Note(note)))),
        rekey: crate::config::RekeyConfig::default(),
        path: Path::new(
            config.path.mtu,
            PathMtu::new(nowhere, nowhere, mark).map_err(failed)?,
            transport.then_some(TRANSPORT_OVERHEAD),
        ),
        capture,
    };
    Worker::new(parts).map_err(failed)
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
