//! TCP encapsulation of IKE and ESP (RFC 9329), for networks that drop UDP.
//!
//! One thread ([`Relay`]) has all TCP connections. IKE messages go to whoever speaks IKE; ESP packets go to the workers'
//! UDP socket on this very host and come from there, so that a worker does for a peer behind TCP what it does for one behind
//! UDP, and has no code for it:
//!
//! ```text
//! peer ── TCP connection ── Relay ─┬─ IKE ── TcpEvent, TcpHandle::send
//!                                  └─ ESP ── UDP socket on loopback ── the worker's UDP socket
//! ```
//!
//! An ESP packet costs a second pass through a socket and a thread's wake-up, for peers behind TCP only. A connection gets
//! its UDP socket when its peer has proved who it is ([`TcpHandle::attach`]): ESP of strangers reaches no worker.
//!
//! Nothing waits for a slow peer. While a connection has too much to send, its UDP socket is not read, and the kernel drops
//! what does not fit there; messages of IKE have room beyond that, and when that is used up the connection ends.

mod connection;
mod relay;
mod strangers;
pub mod stream;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::error::StartError;
use crate::outer::{Families, NextHop};
pub use relay::Relay;

/// Connections that wait to be accepted at most, as far as the host permits (`net.core.somaxconn`): a flood of a thousand in a
/// second while this thread has no processor for some of them. Who finds no place comes again after a second, or three.
const BACKLOG: i32 = 1024;
/// Bytes of ESP that wait for a connection in front of its own queue; the kernel drops what comes beyond.
const ESP_BUFFER: usize = 512 * 1024;

/// Our end and the peer's of a connection. For one that we have opened, the address of the first socket: it keeps the name
/// when it is opened anew from another port.
pub type ConnectionName = (SocketAddr, SocketAddr);

/// What happens on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEvent<'a> {
    /// A message of IKE, with its non-ESP marker.
    Ike(ConnectionName, &'a [u8]),
    /// A connection of ours was broken, and is open again.
    Reopened(ConnectionName),
    /// A connection is gone whose peer had opened it, and had proved who it is.
    Ended(ConnectionName),
}

/// Takes events; must not wait.
pub type TcpSink = Box<dyn FnMut(TcpEvent<'_>) + Send>;

/// Counts since the start, but for the first.
#[derive(Debug, Default)]
pub struct TcpCounters {
    /// Connections at present.
    pub open: AtomicU64,
    pub accepted: AtomicU64,
    /// Connections of strangers that made room for others, or were too slow.
    pub displaced: AtomicU64,
    /// Connections ended because what came was no IKE and no ESP.
    pub malformed: AtomicU64,
    /// Connections of ours that were opened anew.
    pub reopened: AtomicU64,
    /// ESP packets that came from strangers.
    pub dropped: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Command to the thread.
enum Command {
    Dial(ConnectionName, Socket),
    Attach(ConnectionName, UdpSocket),
    Send(ConnectionName, Vec<u8>),
    Close(ConnectionName),
}

/// Handle to the connections. No call waits.
#[derive(Clone)]
pub struct TcpHandle {
    commands: Sender<Command>,
    wake: Arc<UnixStream>,
    /// The workers' socket.
    workers: SocketAddr,
    pub counters: Arc<TcpCounters>,
}

impl TcpHandle {
    fn command(&self, command: Command) {
        // Nobody there any more means that the daemon ends; a full wake-up socket wakes as well.
        if self.commands.send(command).is_ok() {
            let _ = (&*self.wake).write(&[1]);
        }
    }

    /// Opens a connection, and opens it anew whenever it breaks, until it is closed. Returns our end of it.
    ///
    /// # Errors
    /// Those of making a socket with that address.
    pub fn dial(&self, local: IpAddr, remote: SocketAddr) -> io::Result<SocketAddr> {
        let socket = bound(local)?;
        let local = socket.local_addr()?.as_socket();
        let local = local.ok_or_else(|| io::Error::other("a socket without an address"))?;
        self.command(Command::Dial((local, remote), socket));
        Ok(local)
    }

    /// Lets ESP through, as the peer has proved who it is. Returns where to send packets for it.
    ///
    /// # Errors
    /// Those of making a UDP socket.
    pub fn attach(&self, name: ConnectionName) -> io::Result<NextHop> {
        let socket = UdpSocket::bind(SocketAddr::new(self.workers.ip(), 0))?;
        // What others on this host send there is not taken.
        socket.connect(self.workers)?;
        socket.set_nonblocking(true)?;
        SockRef::from(&socket).set_recv_buffer_size(ESP_BUFFER)?;
        let remote = socket.local_addr()?;
        self.command(Command::Attach(name, socket));
        Ok(NextHop {
            remote,
            source: Some(self.workers.ip()),
        })
    }

    /// Sends a message of IKE, with its non-ESP marker. One that cannot be sent is lost, like the connection.
    pub fn send(&self, name: ConnectionName, message: Vec<u8>) {
        self.command(Command::Send(name, message));
    }

    /// Closes a connection, after what was sent before.
    pub fn close(&self, name: ConnectionName) {
        self.command(Command::Close(name));
    }
}

/// A socket of ours for a connection to be opened.
fn bound(local: IpAddr) -> io::Result<Socket> {
    let address = SocketAddr::new(local, 0);
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Opens the port on which peers may come.
///
/// # Errors
/// [`StartError::Socket`], naming the address.
pub fn listen(address: SocketAddr, families: Families) -> Result<TcpListener, StartError> {
    let open = || {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(families == Families::One)?;
        }
        // Connections of a daemon before this one may linger there.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|source| StartError::Socket {
        kind: "TCP",
        address,
        source,
    })
}

/// Address at which this host reaches what is bound to `listen`, and nobody else does.
const fn on_this_host(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address => address,
    }
}

/// The thread's work and the handle to it. `workers` is the address of the workers' UDP socket.
///
/// # Errors
/// Those of the system calls.
pub fn relay(
    listener: Option<TcpListener>,
    workers: SocketAddr,
    sink: TcpSink,
) -> io::Result<(Relay, TcpHandle)> {
    let (commands, receiver) = mpsc::channel();
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let workers = SocketAddr::new(on_this_host(workers.ip()), workers.port());
    let counters = Arc::new(TcpCounters::default());
    let handle = TcpHandle {
        commands,
        wake: Arc::new(wake),
        workers,
        counters: Arc::clone(&counters),
    };
    let relay = Relay::new(listener, workers, (receiver, woken), sink, counters)?;
    Ok((relay, handle))
}
