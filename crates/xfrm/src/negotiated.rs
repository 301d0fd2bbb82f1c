//! Negotiated keys: the thread that has Child SAs in the kernel.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

use tunnel::StartError;
use tunnel::child_sa::{ChildCommand, ChildSa, EventSink};
use tunnel::config::InterfaceConfig;
use tunnel::counters::Snapshot;
use tunnel::data_plane::{Capabilities, DataPlane, NegotiatedKeying, PreparedChild, Refusal};
use tunnel::link::{self, Link};

use crate::children::{Command, KernelChild, KernelChildren};
use crate::error::XfrmError;
use crate::interface;
use crate::manual::PATIENCE;
use crate::message;
use crate::socket::Socket;
use crate::stale;

/// Handle to the thread of the kernel's Child SAs.
#[derive(Debug)]
pub struct ChildrenHandle {
    commands: Sender<Command>,
}

impl ChildrenHandle {
    /// Sends a command; a thread that has ended needs none.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

impl DataPlane for ChildrenHandle {
    fn snapshot(&self) -> Option<Snapshot> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.send(Command::Snapshot(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }

    fn stop(&self) {
        self.send(Command::Stop);
    }
}

impl NegotiatedKeying for ChildrenHandle {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // The kernel has a lock for each association instead.
            workers: 1,
            // Associations have their addresses for life.
            moves: false,
            // The kernel tells associations apart by SPI and address, not by port.
            same_spi: false,
        }
    }

    fn prepare(&self, child: &ChildSa, _now: Instant) -> Result<PreparedChild, Refusal> {
        let child = Box::new(KernelChild::new(child)?);
        let commands = self.commands.clone();
        Ok(PreparedChild::new(move || {
            // A thread that has ended needs none.
            let _ = commands.send(Command::Install(child));
        }))
    }

    fn handle(&self, command: ChildCommand) {
        self.send(Command::Child(command));
    }
}

/// Work of the thread of the kernel's Child SAs; it needs `CAP_NET_ADMIN`.
pub type RunChildren = Box<dyn FnOnce() -> Result<(), XfrmError> + Send>;

/// Makes the XFRM interface with a number for negotiated keys, after asking whether the kernel has
/// ESP at all. `udp` is the socket of ESP in UDP, out of whose datagrams the kernel takes ESP from now on, and
/// `mtu` the bytes of the largest inner packet. What a daemon that was killed left under the number goes.
///
/// # Errors
/// [`StartError`], naming what could not be had; no interface is left then.
pub async fn start(
    config: &InterfaceConfig,
    mtu: u16,
    number: u32,
    udp: &UdpSocket,
    sink: EventSink,
) -> Result<(RunChildren, ChildrenHandle), StartError> {
    let link = Link {
        name: &config.name,
        mtu,
        gso_max_size: interface::GSO_MAX_SIZE,
        addresses: &config.addresses,
        routes: &config.routes,
        peer: None,
    };
    let mut socket = Socket::open()?;
    probe(&mut socket, number)?;
    let claim = stale::claim(number)?;
    let address = udp.local_addr();
    sys::option::encapsulate_esp(udp).map_err(|source| XfrmError::Encapsulation {
        address: address.unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0))),
        source,
    })?;
    link::remove_xfrm(link.name, number).await?;
    interface::create(link.name, number).await?;
    let prepared = match stale::clear(&mut socket, number) {
        Ok(()) => link::configure(&link).await.map_err(StartError::from),
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

/// Asks whether the kernel has what [`start`] needs, for the interface with this number.
///
/// # Errors
/// [`XfrmError`], naming what is missing.
pub fn check_kernel(number: u32) -> Result<(), XfrmError> {
    probe(&mut Socket::open()?, number)
}

/// Installs an association that nobody uses and removes it: the kernel says whether it has ESP only then.
fn probe(socket: &mut Socket, number: u32) -> Result<(), XfrmError> {
    use ipsec::sa::{DEFAULT_REPLAY_WINDOW, Protocol, Spi};
    use offload::{Encryption, Suite};

    let suite = Suite::new(Encryption::AesGcm128, None).ok();
    // The last number, towards ourselves: peers do not send there.
    let (Some(suite), Some(spi)) = (suite, Spi::new(u32::MAX)) else {
        return Ok(());
    };
    let mut key = zeroize::Zeroizing::new(vec![0; 20]);
    aws_lc_rs::rand::fill(&mut key)
        .map_err(|_| XfrmError::Netlink(io::Error::other("no random numbers")))?;
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
        tfc_padding: None,
        hard_seconds: None,
        encryption_key: key,
        integrity_key: zeroize::Zeroizing::new(Vec::new()),
    };
    socket.add_sa(&sa, Some(number))?;
    socket.remove_sa(&sa)
}
