//! Manual keys: the thread that has one tunnel's associations and policies in the kernel.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use tunnel::config::{Encapsulation, StaticConfig};
use tunnel::counters::Snapshot;
use tunnel::data_plane::{DataPlane, DataPlaneError, ManualKeying};
use tunnel::link::{self, Link, LinkError};
use tunnel::rekey::RekeyError;
use tunnel::reservation::ReservationStore;
use tunnel::{StartError, associations};

use crate::error::XfrmError;
use crate::interface;
use crate::policies::{Pair, interface_number, pair, policies};
use crate::socket::Socket;
use crate::tables::{LOOK, Tables};

/// Longest time without looking otherwise; a command ends the wait.
const IDLE: Duration = Duration::from_secs(3600);
/// Longest time of a command: the kernel may have to load modules.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

enum Command {
    Rekey(Box<Pair>, SyncSender<Result<(), DataPlaneError>>),
    Snapshot(SyncSender<Snapshot>),
    Stop,
}

/// Looks after what is installed, on a thread of its own.
pub struct XfrmWorker {
    tables: Tables<Socket>,
    commands: Receiver<Command>,
    snapshot: Snapshot,
    /// The kernel takes ESP out of its datagrams for as long as it is open.
    _encapsulation: Option<UdpSocket>,
}

/// Handle to an [`XfrmWorker`].
#[derive(Debug)]
pub struct XfrmHandle {
    commands: Sender<Command>,
    store: ReservationStore,
}

impl DataPlane for XfrmHandle {
    fn snapshot(&self) -> Option<Snapshot> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.commands.send(Command::Snapshot(sender)).ok()?;
        receiver.recv_timeout(PATIENCE).ok()
    }

    fn stop(&self) {
        // A worker that has ended needs no command.
        let _ = self.commands.send(Command::Stop);
    }
}

impl ManualKeying for XfrmHandle {
    fn rekey(&self, config: &StaticConfig) -> Result<(), DataPlaneError> {
        let pair = Box::new(pair(config).map_err(StartError::from)?);
        use_up(config, &self.store)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let ended = || DataPlaneError::from(RekeyError::Ended);
        self.commands
            .send(Command::Rekey(pair, sender))
            .map_err(|_| ended())?;
        receiver.recv_timeout(PATIENCE).map_err(|_| ended())?
    }
}

impl XfrmWorker {
    /// Works until it is told to stop, and then removes policies and associations.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn run(mut self) -> Result<(), XfrmError> {
        loop {
            let wait = if self.tables.is_stable() { IDLE } else { LOOK };
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
pub async fn start(config: &StaticConfig) -> Result<(XfrmWorker, XfrmHandle), StartError> {
    // Keys are checked as for our own data plane, and what fits the path is the same.
    let checked = associations::associations(config, Instant::now())?;
    let mtu = associations::inner_mtu(config, &checked)?;
    let socket = Socket::open()?;
    let encapsulation = match config.encapsulation() {
        Encapsulation::Udp => Some(encapsulating(config.path.local)?),
        Encapsulation::None => None,
    };
    let store = associations::open_store(config)?;
    let tables = match interface_number(config) {
        None => install_once(config, socket, &store)?,
        Some(number) => {
            interface::create(&config.interface.name, number).await?;
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
    let worker = XfrmWorker {
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
    Ok((worker, XfrmHandle { commands, store }))
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
        gso_max_size: interface::GSO_MAX_SIZE,
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

/// A socket out of whose datagrams the kernel takes ESP.
fn encapsulating(address: SocketAddr) -> Result<UdpSocket, XfrmError> {
    let open = || {
        let socket = UdpSocket::bind(address)?;
        sys::option::encapsulate_esp(&socket)?;
        // What is not ESP is left to us and not read: the smallest queue is enough.
        socket2::SockRef::from(&socket).set_recv_buffer_size(0)?;
        Ok(socket)
    };
    open().map_err(|source| XfrmError::Encapsulation { address, source })
}

#[cfg(test)]
mod tests;
