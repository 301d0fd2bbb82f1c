//! From a configuration to running threads.

use std::collections::BTreeMap;
use std::io::{self};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use accelerator::Accelerator;
use audit::journal::Journal;
use ikev2::CrashSecret;
use keyhost::secret_file;
use socket2::SockRef;
use sys::privileges;
use time::OffsetDateTime;
use tunnel::StartError;
use tunnel::child_sa::EventSink;
use tunnel::config::BackendConfig;
use tunnel::data_plane::NegotiatedKeying;
use tunnel::link;
use tunnel::negotiated;
use tunnel::outer::udp::{bind, bind_each};
use tunnel::outer::{IkeSink, PathMtu};
use tunnel::tcp::TcpHandle;

use super::backlog::Backlog;
use super::command::{Command, Reply};
use super::config::{
    Carrier, ConnectionConfig, DaemonConfig, Family, IKE_PORT, NAT_PORT, OuterConfig,
};
use super::ike_sender::IkeSender;
use super::journal::{self, Audit};
use super::peer_verifier::{OcspCounters, PeerVerifier, TrustJob, VerifierEvent};
use super::protocol::Protocol;
use super::report::{DaemonStatus, IkeStatus};
use super::resolve::ResolvedConfig;
use super::secret;
use super::tcp;
use super::threads::{Inbox, Input, listen_ike, sign, work_slowly};
use super::tickets::{self, TicketFile};
use super::trust::SharedTrust;

/// Signatures and certificates that wait at most; further handshakes are refused.
const JOBS: usize = 256;
/// Longest wait of the operator for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells a running daemon what to do.
#[derive(Clone)]
pub struct DaemonHandle {
    inbox: Inbox,
    plane: Arc<dyn NegotiatedKeying>,
    trust: SyncSender<TrustJob>,
    accelerator: Accelerator,
    journal: Option<journal::Progress>,
}

impl DaemonHandle {
    /// Carries out a command; none when the daemon has ended. Waits for the answer.
    pub fn command(&self, command: Command) -> Option<Reply> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.inbox.send(Input::Command(command, sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    /// The whole state; none when the daemon has ended.
    pub fn status(&self) -> Option<DaemonStatus> {
        let Some(Reply::Status(mut ike)) = self.command(Command::Status) else {
            return None;
        };
        let path = self.plane.snapshot()?;
        let bytes: BTreeMap<(&str, &str), u64> = path
            .associations
            .iter()
            .map(|sa| ((&*sa.direction, sa.spi.as_str()), sa.amount.bytes))
            .collect();
        fill_bytes(&mut ike, &bytes);
        Some(DaemonStatus {
            path,
            ike: *ike,
            accelerator: self.accelerator.status(),
            journal: self
                .journal
                .as_ref()
                .map(|journal| journal.status(Instant::now())),
        })
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

fn unprivileged(
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Box<dyn FnOnce() -> io::Result<()> + Send> {
    Box::new(move || {
        privileges::drop_all()?;
        work()
    })
}

/// Bytes of a file with revocation lists at most.
const CRL_MAX: u64 = 64 << 20;

/// Reads revocation lists from files, PEM or DER.
///
/// # Errors
/// Those of reading.
pub fn read_crls(files: &[PathBuf]) -> io::Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for file in files {
        let bytes = secret_file::read_public(file, CRL_MAX).map_err(io::Error::other)?;
        all.extend(split_crls(bytes.to_vec()));
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
    // Words may stand between the lists, as OpenSSL writes them.
    let parts = text.split_inclusive(END);
    let parts = parts.filter_map(|part| part.get(part.find("-----BEGIN")?..));
    parts
        .filter_map(|part| der::pem::decode_vec(part.as_bytes()).ok())
        .map(|(_, der)| der)
        .collect()
}

impl ResolvedConfig {
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

    /// Returns the interval at which revocation lists are asked for, if the configuration says one.
    pub fn crl_refresh(&self) -> Option<Duration> {
        self.config.trust.as_ref()?.crl_refresh
    }

    /// Takes revocation lists over before the configuration is used.
    pub fn accept_crls(&self, lists: &[Vec<u8>]) {
        self.trust.accept_crls(lists, OffsetDateTime::now_utc());
    }
}

/// Bytes of the largest inner packet that fits whatever is negotiated: AES-CBC with the longest
/// integrity value has most around it.
fn inner_mtu(path: &OuterConfig) -> u16 {
    const UDP_ESP_IV_ICV: u16 = 8 + 8 + 16 + 32;
    let ip = if path.listen.is_ipv4() { 20 } else { 40 };
    let room = path.mtu.saturating_sub(ip + UDP_ESP_IV_ICV);
    // CBC fills whole blocks, of which pad length and next header take two bytes (RFC 4303 §2.4).
    (room - room % 16).saturating_sub(2)
}

/// Whether IPv6 packets go through the tunnels.
fn has_ipv6_inside(loaded: &ResolvedConfig) -> bool {
    let config = &loaded.config;
    let interface = config
        .interface
        .addresses
        .iter()
        .chain(&config.interface.routes);
    let pools = config.pool.iter().flat_map(|pool| &pool.addresses);
    let children = config.connection.iter().flat_map(|one| &one.child);
    let children = children.flat_map(|child| child.local.iter().chain(&child.remote));
    let mut networks = interface.chain(pools).chain(children);
    let requested = |one: &ConnectionConfig| one.request.contains(&Family::Ipv6);
    networks.any(|network| network.address.is_ipv6()) || config.connection.iter().any(requested)
}

/// The mark of outer packets: only where they go to the same address as inner ones.
fn outer_mark(loaded: &ResolvedConfig) -> Option<u32> {
    loaded
        .has_transport()
        .then(|| loaded.config.path.mark.get())
}

/// Creates interface and sockets; gives the threads that are to run.
///
/// # Errors
/// [`StartError`], naming what could not be had.
pub async fn start(
    mut loaded: ResolvedConfig,
    folder: &FsPath,
    seed: u64,
) -> Result<(Vec<Thread>, DaemonHandle), StartError> {
    let config = &loaded.config;
    let (listen, families) = (config.path.listen, config.path.families());
    let failed = |source| StartError::Interface {
        name: config.interface.name.clone(),
        source,
    };
    let mark = outer_mark(&loaded);
    // Sockets before threads: a port that is taken is said before anything is changed.
    let esp = bind_each(
        SocketAddr::new(listen, NAT_PORT),
        config.interface.workers,
        families,
    )?;
    let ike = bind(SocketAddr::new(listen, IKE_PORT), false, families)?;
    let tcp_address = config
        .path
        .tcp_port
        .map(|port| SocketAddr::new(listen, port.get()));
    let listener = tcp_address.map(|address| tunnel::tcp::listen(address, families));
    let listener = listener.transpose()?;
    if let Some(mark) = mark {
        SockRef::from(&ike).set_mark(mark).map_err(failed)?;
    }
    // IKE behind a translator leaves from the port of ESP, of which any socket will do.
    let sender = match esp.first() {
        Some(socket) => socket.try_clone().map_err(failed)?,
        None => return Err(failed(io::Error::other("no worker"))),
    };
    let answering = ike.try_clone().map_err(failed)?;
    let any = SocketAddr::new(listen, 0);
    let path_mtu = PathMtu::new(any, any, mark).map_err(failed)?;
    if mark.is_some() && listen.is_ipv4() {
        for interface in link::strict_interfaces() {
            tracing::warn!(%interface, "rp_filter = 1 drops what the peer sends there: set it to 2");
        }
    }
    let journal = match &config.audit {
        Some(audit) => {
            let folder = folder.join(&audit.folder);
            let opened = Journal::open(&folder, journal::ROLE, journal::options());
            Some(opened.map_err(|error| failed(io::Error::other(error)))?)
        }
        None => None,
    };
    let central = loaded.central.take();
    let (input, inputs) = mpsc::channel();
    let inbox = Inbox::new(input);
    let name = config.interface.name.clone();
    let over = Arc::new(AtomicBool::new(false));
    // Before the interface: measuring takes a while, and packets would wait for it.
    let device = config.accelerator.clone();
    let device = device.map(|device| device.beside(folder));
    let accelerator = Accelerator::open(device.as_ref(), |wait| wait());
    let packets = accelerator.packets();
    let (mut threads, plane) = packet_path(&loaded, esp, &inbox, &over, packets, seed).await?;
    let kernel = config.backend == BackendConfig::Kernel;
    let tcp = match config.uses_tcp() {
        true => Some(tcp_connections(config, listener, &inbox, &over).map_err(failed)?),
        false => None,
    };
    let (tcp_thread, tcp) = tcp.unzip();
    threads.extend(tcp_thread);
    let (keys, key_jobs) = mpsc::sync_channel(JOBS);
    let (trust, trust_jobs) = mpsc::sync_channel(JOBS);
    let (tls, tls_jobs) = mpsc::sync_channel(JOBS);
    let (links, link_orders) = mpsc::channel();
    let (offered, audit_events) = journal::channel();
    let shared: SharedTrust = Arc::new(RwLock::new(std::mem::take(&mut loaded.trust)));
    let audit_errors = Arc::new(AtomicU64::new(0));
    let asked = Arc::new(OcspCounters::default());
    let found = inbox.clone();
    let tell = move |event: VerifierEvent<_>| found.send(Input::Verifier(event));
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
    let tickets = match &config.session_tickets {
        Some(file) => {
            // Tickets make coming back quicker; without them peers make whole handshakes.
            let opened = TicketFile::open(&folder.join(file), tickets::wall());
            opened
                .inspect_err(|error| {
                    tracing::error!(error, "no session tickets until the next start")
                })
                .ok()
        }
        None => None,
    };
    let protocol = Protocol {
        crash_secret,
        tickets,
        inputs,
        inbox: inbox.clone(),
        plane: Arc::clone(&plane),
        keys: Backlog::new(keys),
        trust: Backlog::new(trust.clone()),
        tls,
        shared,
        links,
        journal: journal.is_some().then_some(offered),
        audit_errors: Arc::clone(&audit_errors),
        asked,
        sender: IkeSender::new((answering, sender), path_mtu),
        tcp,
        over: Arc::clone(&over),
        stop_at: None,
        start: Instant::now(),
    };
    let (key_inbox, port_inbox, tls_inbox) = (inbox.clone(), inbox.clone(), inbox.clone());
    let (key_host, watched) = (loaded.key_host.clone(), loaded.key_host.clone());
    let others: [Thread; 7] = [
        (
            "vpn-keys",
            unprivileged(move || sign(&key_jobs, &key_inbox, &key_host)),
        ),
        ("vpn-key_host", unprivileged(move || watched.watch())),
        (
            "vpn-tls",
            unprivileged(move || work_slowly(&tls_jobs, &tls_inbox)),
        ),
        (
            "vpn-verify",
            unprivileged(move || verifier.run(&trust_jobs)),
        ),
        (
            "vpn-port500",
            unprivileged(move || listen_ike(&ike, &port_inbox, &over)),
        ),
        (
            "vpn-links",
            Box::new(move || {
                privileges::keep_net_admin()?;
                super::links::run(&name, &link_orders, kernel)
            }),
        ),
        ("vpn-ike", unprivileged(move || protocol.run(loaded))),
    ];
    threads.extend(others);
    let audit = journal.map(|journal| Audit::new(journal, central));
    let journal = audit.as_ref().map(Audit::progress);
    if let Some(audit) = audit {
        let run = move || {
            audit.run(&audit_events, &audit_errors);
            Ok(())
        };
        threads.push(("vpn-audit", unprivileged(run)));
    }
    let handle = DaemonHandle {
        inbox,
        plane,
        trust,
        accelerator,
        journal,
    };
    Ok((threads, handle))
}

/// Sends what the data plane reports to the protocol half.
struct InboxReports(Inbox);

impl negotiated::Reports for InboxReports {
    fn ike(&self) -> IkeSink {
        let inbox = self.0.clone();
        Box::new(move |local: IpAddr, remote: SocketAddr, bytes: &[u8]| {
            inbox.datagram(SocketAddr::new(local, NAT_PORT), remote, bytes);
        })
    }

    fn events(&self) -> EventSink {
        let inbox = self.0.clone();
        Box::new(move |event| inbox.send(Input::Child(event)))
    }
}

/// The thread of TCP connections, and the handle to it.
fn tcp_connections(
    config: &DaemonConfig,
    listener: Option<TcpListener>,
    inbox: &Inbox,
    over: &Arc<AtomicBool>,
) -> io::Result<(Thread, TcpHandle)> {
    tcp::raise_open_files();
    let workers = SocketAddr::new(config.path.listen, NAT_PORT);
    let (relay, handle) = tunnel::tcp::relay(listener, workers, tcp::sink(inbox.clone()))?;
    let over = Arc::clone(over);
    let thread: Thread = ("vpn-tcp", unprivileged(move || relay.run(&over)));
    Ok((thread, handle))
}

/// Starts the data plane's threads, and returns the way to them.
async fn packet_path(
    loaded: &ResolvedConfig,
    esp: Vec<UdpSocket>,
    inbox: &Inbox,
    over: &Arc<AtomicBool>,
    accelerator: Option<Arc<dyn offload::Accelerator>>,
    seed: u64,
) -> Result<(Vec<Thread>, Arc<dyn NegotiatedKeying>), StartError> {
    let config = &loaded.config;
    let interface = &config.interface;
    let fits = inner_mtu(&config.path);
    // Linux has no IPv6 on an interface that takes less (RFC 8200 §5); around what does not fit, fragments go outside.
    let least = if has_ipv6_inside(loaded) { 1280 } else { 0 };
    let mtu = interface.mtu.unwrap_or(fits.max(least));
    match config.backend {
        BackendConfig::User => {
            let settings = negotiated::Settings {
                interface,
                debug: &config.debug,
                mtu,
                path_mtu: config.path.mtu,
                native: config.path.encapsulation != Carrier::Udp,
                transport: loaded.has_transport(),
                mark: outer_mark(loaded),
                accelerator,
                seed,
            };
            let reports = InboxReports(inbox.clone());
            let (workers, handle) = negotiated::start(&settings, esp, &reports).await?;
            let thread: Thread = ("vpn-worker", unprivileged(move || workers.run()));
            Ok((vec![thread], Arc::new(handle)))
        }
        BackendConfig::Kernel => {
            // There is one: the configuration was checked for it.
            let Some(esp) = esp.into_iter().next() else {
                return Err(StartError::Interface {
                    name: interface.name.clone(),
                    source: io::Error::other("no worker"),
                });
            };
            let number = config.path.mark.get();
            let (port_inbox, over) = (inbox.clone(), Arc::clone(over));
            let sink = negotiated::Reports::events(&InboxReports(inbox.clone()));
            let started = xfrm::negotiated::start(interface, mtu, number, &esp, sink);
            let (run, handle) = started.await?;
            let run = move || {
                // Associations are changed and removed by it.
                privileges::keep_net_admin()?;
                run().map_err(io::Error::other)
            };
            let threads: Vec<Thread> = vec![
                ("vpn-kernel", Box::new(run)),
                (
                    "vpn-port4500",
                    unprivileged(move || listen_ike(&esp, &port_inbox, &over)),
                ),
            ];
            Ok((threads, Arc::new(handle)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_mtu_fits_every_suite() {
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
    fn revocation_lists_in_one_pem_file_are_all_found() {
        let pem = |bytes: &[u8]| {
            der::pem::encode_string("X509 CRL", der::pem::LineEnding::LF, bytes).unwrap()
        };
        let both = format!("words\n{}{}", pem(b"one"), pem(b"two"));
        assert_eq!(split_crls(both.into_bytes()), [b"one", b"two"]);
        assert_eq!(split_crls(vec![0x30, 0x82]), [vec![0x30, 0x82]]);
    }
}
