//! The kernel's IPsec as data plane: Linux protects the packets, we give it keys and policies.
//!
//! In tunnel mode an XFRM interface takes the place of the TUN interface: policies and associations
//! carry its number, so they concern what is routed into it and nothing else, as with our own data
//! plane. What no policy allows ends there. In transport mode there is no interface: the policies are
//! for the two hosts' addresses.
//!
//! [`message`] is the kernel's binary interface, `socket` its requests and answers, `tables` what is
//! installed and how new keys take over, `policies` what a configuration means.

pub(crate) mod children;
mod leftover;
mod message;
mod policies;
mod socket;
mod tables;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use self::children::{ChildCommand, KernelChildren};
use self::policies::{Pair, pair, policies};
use self::socket::Socket;
use self::tables::Tables;
use crate::backend::{Backend, BackendError};
use crate::children::NoteSink;
use crate::config::{Encapsulation, StaticConfig};
use crate::counters::Snapshot;
use crate::daemon::{self, StartError};
use crate::link::{self, Link, LinkError};
use crate::rekey::RekeyError;
use crate::reservation::ReservationStore;

/// Bytes of the largest uncut packet; the kernel cuts it before it protects.
const UNCUT: u32 = 65_536;
/// How often it is asked whether new keys are in use, while that matters.
const LOOK: Duration = Duration::from_millis(200);
/// How long nothing needs to be looked after otherwise; a command ends the wait.
const IDLE: Duration = Duration::from_secs(3600);
/// How long a command may take: the kernel may have to load modules.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why the kernel does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// It cannot.
    #[error("this kernel has no {what}: {source}")]
    Missing {
        /// What it lacks.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// Talking to it failed.
    #[error("netlink: {0}")]
    Netlink(io::Error),
    /// Somebody else installed it, or a tunnel that was killed left it behind.
    #[error("{0} is there already: see `ip xfrm state` and `ip xfrm policy`")]
    Exists(String),
    /// It said no.
    #[error("{what}: {source}{words}")]
    Refused {
        /// What was asked.
        what: String,
        /// Its own words in brackets, if it had any.
        words: String,
        /// Its answer.
        source: io::Error,
    },
    /// A daemon that runs in this network namespace has the number.
    #[error("another daemon has XFRM interface number {0}")]
    Claimed(u32),
    /// The socket that receives ESP in UDP.
    #[error("UDP socket on {address}: {source}")]
    Encapsulation {
        /// Where it was to be bound.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl KernelError {
    /// Whether what was to be removed was not there any more.
    fn is_gone(&self) -> bool {
        let Self::Refused { source, .. } = self else {
            return false;
        };
        let code = source.raw_os_error();
        [Errno::SRCH, Errno::NOENT]
            .map(|errno| Some(errno.raw_os_error()))
            .contains(&code)
    }
}

enum Command {
    Rekey(Box<Pair>, SyncSender<Result<(), BackendError>>),
    Snapshot(SyncSender<Snapshot>),
    Stop,
}

/// Looks after what is installed, on a thread of its own.
pub struct KernelWorker {
    tables: Tables<Socket>,
    commands: Receiver<Command>,
    snapshot: Snapshot,
    /// The kernel takes ESP out of its datagrams for as long as it is open.
    _encapsulation: Option<UdpSocket>,
}

/// Tells a [`KernelWorker`] what to do.
#[derive(Debug)]
pub struct KernelHandle {
    commands: Sender<Command>,
    store: ReservationStore,
}

impl Backend for KernelHandle {
    fn rekey(&self, config: &StaticConfig) -> Result<(), BackendError> {
        let pair = Box::new(pair(config).map_err(StartError::from)?);
        use_up(config, &self.store)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let ended = || BackendError::from(RekeyError::Ended);
        self.commands
            .send(Command::Rekey(pair, sender))
            .map_err(|_| ended())?;
        receiver.recv_timeout(PATIENCE).map_err(|_| ended())?
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.commands.send(Command::Snapshot(sender)).ok()?;
        receiver.recv_timeout(PATIENCE).ok()
    }

    fn stop(&self) {
        // A worker that has ended needs no order.
        let _ = self.commands.send(Command::Stop);
    }
}

impl KernelWorker {
    /// Works until it is told to stop, and then removes policies and associations.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn run(mut self) -> Result<(), KernelError> {
        loop {
            let wait = if self.tables.is_settled() { IDLE } else { LOOK };
            match self.commands.recv_timeout(wait) {
                Ok(Command::Rekey(pair, answer)) => {
                    // Nobody waiting any more is no trouble, here and below.
                    let _ = answer.try_send(self.tables.begin(*pair, Instant::now()));
                }
                Ok(Command::Snapshot(answer)) => {
                    self.tables.describe(&mut self.snapshot);
                    let _ = answer.try_send(self.snapshot.clone());
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return self.tables.remove();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.tables.poll(Instant::now());
        }
    }
}

/// Installs interface, associations and policies.
///
/// # Errors
/// [`StartError`], naming what could not be had; what was installed until then is removed.
pub async fn start(config: &StaticConfig) -> Result<(KernelWorker, KernelHandle), StartError> {
    // Keys are checked as for our own data plane, and what fits the path is the same.
    let checked = daemon::associations(config, Instant::now())?;
    let mtu = daemon::inner_mtu(config, &checked)?;
    let socket = Socket::open()?;
    let encapsulation = match config.encapsulation() {
        Encapsulation::Udp => Some(encapsulating(config.path.local)?),
        Encapsulation::None => None,
    };
    let store = daemon::open_store(config)?;
    let tables = match interface_number(config) {
        None => install_once(config, socket, &store)?,
        Some(number) => {
            let created = link::create_xfrm(&config.interface.name, number).await;
            created.map_err(uncreated)?;
            match with_interface(config, socket, &store, mtu).await {
                Ok(tables) => tables,
                Err(error) => {
                    // The error is what the operator needs; the interface is ours.
                    let _ = link::remove(&config.interface.name).await;
                    return Err(error);
                }
            }
        }
    };
    let (commands, receiver) = mpsc::channel();
    let worker = KernelWorker {
        tables,
        commands: receiver,
        snapshot: Snapshot {
            interface: config.interface.name.clone(),
            offload: "kernel".into(),
            mtu,
            ..Snapshot::default()
        },
        _encapsulation: encapsulation,
    };
    Ok((worker, KernelHandle { commands, store }))
}

/// A kernel without the kind of interface says "not supported".
fn uncreated(error: LinkError) -> StartError {
    match error.code() {
        Some(code) if code == Errno::OPNOTSUPP.raw_os_error() => KernelError::Missing {
            what: "XFRM interfaces (module xfrm_interface)",
            source: io::Error::from_raw_os_error(code),
        }
        .into(),
        _ => error.into(),
    }
}

async fn with_interface(
    config: &StaticConfig,
    socket: Socket,
    store: &ReservationStore,
    mtu: u16,
) -> Result<Tables<Socket>, StartError> {
    link::configure(&Link {
        name: &config.interface.name,
        mtu,
        uncut: UNCUT,
        addresses: &config.interface.addresses,
        routes: &config.interface.routes,
        peer: None,
    })
    .await?;
    install_once(config, socket, store)
}

fn use_up(config: &StaticConfig, store: &ReservationStore) -> Result<(), StartError> {
    let key = &config.sa.outbound;
    match key.encryption_key.is_empty() {
        // Nothing is encrypted, so there is no nonce.
        true => Ok(()),
        false => Ok(store.use_up(key)?),
    }
}

/// Installs keys that were never used before: the kernel begins with number one each time, and does not
/// say in time how far it came.
fn install_once(
    config: &StaticConfig,
    socket: Socket,
    store: &ReservationStore,
) -> Result<Tables<Socket>, StartError> {
    use_up(config, store)?;
    install(config, socket)
}

fn install(config: &StaticConfig, socket: Socket) -> Result<Tables<Socket>, StartError> {
    let policies = policies(config)?;
    let number = interface_number(config);
    let pair = pair(config)?;
    Ok(Tables::install(
        socket,
        pair,
        policies,
        number,
        config.rekey,
    )?)
}

/// Tells the thread of the kernel's Child SAs what to do.
#[derive(Debug)]
pub(crate) struct ChildrenHandle {
    commands: Sender<ChildCommand>,
}

impl ChildrenHandle {
    /// Sends a command; one that has ended needs none.
    pub(crate) fn send(&self, command: ChildCommand) {
        let _ = self.commands.send(command);
    }

    /// The state; none when it has ended.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.send(ChildCommand::Snapshot(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }
}

/// What runs on the thread of the kernel's Child SAs; it needs `CAP_NET_ADMIN`.
pub(crate) type RunChildren = Box<dyn FnOnce() -> Result<(), KernelError> + Send>;

/// Makes the XFRM interface `link` with a number for negotiated keys, after asking whether the kernel has
/// ESP at all. `udp` is the socket of ESP in UDP, out of whose datagrams the kernel takes ESP from now on.
/// What a daemon that was killed left under the number goes.
///
/// # Errors
/// [`StartError`], naming what could not be had; no interface is left then.
pub(crate) async fn start_children(
    link: &Link<'_>,
    number: u32,
    udp: &UdpSocket,
    sink: NoteSink,
) -> Result<(RunChildren, ChildrenHandle), StartError> {
    let mut socket = Socket::open()?;
    probe(&mut socket, number)?;
    let claim = leftover::claim(number)?;
    let address = udp.local_addr();
    sys::option::encapsulate_esp(udp).map_err(|source| KernelError::Encapsulation {
        address: address.unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0))),
        source,
    })?;
    link::remove_xfrm(link.name, number).await?;
    link::create_xfrm(link.name, number)
        .await
        .map_err(uncreated)?;
    let prepared = match leftover::clear(&mut socket, number) {
        Ok(()) => link::configure(link).await.map_err(StartError::from),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = prepared {
        // The error is what the operator needs; the interface is ours.
        let _ = link::remove(link.name).await;
        return Err(error);
    }
    let snapshot = Snapshot {
        interface: link.name.to_owned(),
        offload: "kernel".into(),
        mtu: link.mtu,
        ..Snapshot::default()
    };
    let (commands, receiver) = mpsc::channel();
    let mut children = KernelChildren::new(socket, number, snapshot, sink);
    let run = Box::new(move || {
        let _claim = claim;
        children.run(&receiver)
    });
    Ok((run, ChildrenHandle { commands }))
}

/// Installs an association that nobody uses and removes it: the kernel says whether it has ESP only then.
fn probe(socket: &mut Socket, number: u32) -> Result<(), KernelError> {
    use ipsec::sa::{DEFAULT_REPLAY_WINDOW, Protocol, Spi};
    use offload::{Encryption, Suite};

    let suite = Suite::new(Encryption::AesGcm128, None).ok();
    // The last number, towards ourselves: peers do not send there.
    let (Some(suite), Some(spi)) = (suite, Spi::new(u32::MAX)) else {
        return Ok(());
    };
    let mut key = zeroize::Zeroizing::new(vec![0; 20]);
    aws_lc_rs::rand::fill(&mut key)
        .map_err(|_| KernelError::Netlink(io::Error::other("no random numbers")))?;
    let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
    let sa = message::Sa {
        source: loopback,
        destination: loopback,
        spi,
        protocol: Protocol::Esp(suite),
        transport: false,
        reqid: 0,
        in_udp: None,
        extended_sequence: true,
        window: DEFAULT_REPLAY_WINDOW,
        copy_dscp: false,
        hard_seconds: None,
        encryption_key: key,
        integrity_key: zeroize::Zeroizing::new(Vec::new()),
    };
    socket.add_sa(&sa, Some(number))?;
    socket.remove_sa(&sa)
}

/// Removes the interface, with its addresses and routes.
///
/// # Errors
/// What the kernel refused.
pub async fn clean_up(config: &StaticConfig) -> Result<(), LinkError> {
    match interface_number(config) {
        Some(_) => link::remove(&config.interface.name).await,
        None => Ok(()),
    }
}

/// The number that ties interface, policies and associations together. Two tunnels of one host cannot
/// have the same inbound SPI, so it is free; it stays when keys change.
fn interface_number(config: &StaticConfig) -> Option<u32> {
    (!config.is_transport()).then(|| config.sa.inbound.spi.get())
}

/// A socket out of whose datagrams the kernel takes ESP.
fn encapsulating(address: SocketAddr) -> Result<UdpSocket, KernelError> {
    let open = || {
        let socket = UdpSocket::bind(address)?;
        sys::option::encapsulate_esp(&socket)?;
        // What is not ESP is left to us and not read: the smallest queue is enough.
        socket2::SockRef::from(&socket).set_recv_buffer_size(0)?;
        Ok(socket)
    };
    open().map_err(|source| KernelError::Encapsulation { address, source })
}

#[cfg(test)]
mod tests;
