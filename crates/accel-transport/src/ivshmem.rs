//! The protocol of QEMU's shared memory device: memory and doorbells over a Unix socket.
//!
//! A server sends numbers of eight bytes, little endian, some of them with a file descriptor: the
//! version, the peer's number, -1 with the shared memory, and then for each vector of each peer its
//! number with an eventfd (QEMU, `docs/specs/ivshmem-spec.rst`). Here the device is peer 0, and its
//! only client peer 1; each has one vector.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};
use rustix::process::geteuid;

/// Version of the protocol.
const VERSION: i64 = 0;
/// Number of the device among the peers.
pub const DEVICE: u16 = 0;
/// Number of its client.
const CLIENT: i64 = 1;
/// Says that the descriptor beside it is the shared memory.
const MEMORY: i64 = -1;
/// Offset of the doorbell in the first region of QEMU's device; the peer's number stands in the
/// upper half of what is written, the vector in the lower one.
pub const DOORBELL: usize = 12;

/// A socket on which clients get memory and doorbells.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
}

/// The device's side of a client.
#[derive(Debug)]
pub struct Peer {
    socket: UnixStream,
    memory: OwnedFd,
    doorbell: OwnedFd,
    interrupt: OwnedFd,
}

/// Files and numbers that a client gets.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Never read: its end tells each side that the other has gone.
    pub(crate) socket: UnixStream,
    pub(crate) memory: OwnedFd,
    pub(crate) doorbell: OwnedFd,
    pub(crate) interrupt: OwnedFd,
}

/// The reason for which a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The doorbell was rung.
    Doorbell,
    /// The client has gone.
    Closed,
    /// Nothing happened.
    Timeout,
}

impl Listener {
    /// Listens on a new socket.
    ///
    /// # Errors
    /// Those of `bind`: the path must not exist.
    pub fn new(path: &Path) -> io::Result<Self> {
        let socket = UnixListener::bind(path)?;
        Ok(Self { socket })
    }

    /// Waits for a client, for which there are `bytes` of zeros, a power of two for QEMU, as shared
    /// memory. It gets them by [`Peer::greet`].
    ///
    /// A process of another user than this one's and root is turned away: whoever is the client has the device access
    /// all memory that is registered, a guest's whole memory among it.
    ///
    /// # Errors
    /// Those of the socket and of making memory and eventfds.
    pub fn accept(&self, bytes: u64) -> io::Result<Peer> {
        let socket = loop {
            let (socket, _) = self.socket.accept()?;
            if is_trusted(&socket)? {
                break socket;
            }
        };
        let memory = memfd_create(
            "accelerator",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        ftruncate(&memory, bytes)?;
        // A side that made it smaller would end the other one, which has it mapped.
        fcntl_add_seals(
            &memory,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Peer {
            socket,
            memory,
            doorbell: event()?,
            interrupt: event()?,
        })
    }
}

impl Peer {
    /// Gives the client the memory, in which the device's registers have to stand by now: it would
    /// take zeros for registers.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn greet(&self) -> io::Result<()> {
        send(&self.socket, VERSION, None)?;
        send(&self.socket, CLIENT, None)?;
        for (number, descriptor) in [
            (MEMORY, &self.memory),
            (i64::from(DEVICE), &self.doorbell),
            (CLIENT, &self.interrupt),
        ] {
            send(&self.socket, number, Some(descriptor.as_fd()))?;
        }
        Ok(())
    }

    /// The memory that it shares with its client.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Interrupts the client.
    ///
    /// # Errors
    /// Those of writing to an eventfd.
    pub fn interrupt(&self) -> io::Result<()> {
        ring(&self.interrupt)
    }

    /// Waits for the doorbell, at most so long.
    ///
    /// # Errors
    /// Those of `poll` and of reading an eventfd.
    pub fn wait(&self, at_most: Duration) -> io::Result<Woken> {
        let mut looked = [
            PollFd::new(&self.doorbell, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN),
        ];
        let limit = Timespec::try_from(at_most).map_err(io::Error::other)?;
        match poll(&mut looked, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [doorbell, socket] = looked.map(|looked| !looked.revents().is_empty());
        if doorbell {
            drain(&self.doorbell)?;
            Ok(Woken::Doorbell)
        } else if socket {
            // A client sends nothing; whatever comes is its end.
            Ok(Woken::Closed)
        } else {
            Ok(Woken::Timeout)
        }
    }
}

impl Connection {
    /// Becomes the client of the device behind a socket, or fails after so long.
    ///
    /// A device that has a client already neither takes nor refuses another one.
    pub(crate) fn open(path: &Path, within: Duration) -> io::Result<Self> {
        let end = Instant::now() + within;
        let socket = connect_within(path, within)?;
        if !is_trusted(&socket)? {
            // Somebody has taken the device's place: keys and messages would be theirs.
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if receive_until(&socket, end)?.0 != VERSION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (own, _) = receive_until(&socket, end)?;
        let (mut memory, mut doorbell, mut interrupt) = (None, None, None);
        while memory.is_none() || doorbell.is_none() || interrupt.is_none() {
            match receive_until(&socket, end)? {
                (MEMORY, Some(descriptor)) => memory = Some(descriptor),
                (number, Some(descriptor)) if number == own => interrupt = Some(descriptor),
                (number, Some(descriptor)) if number == i64::from(DEVICE) => {
                    doorbell = Some(descriptor);
                }
                // Another peer's.
                (0.., _) => {}
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        let sealed = |memory: &OwnedFd| {
            fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
        };
        match (memory.filter(sealed), doorbell, interrupt) {
            (Some(memory), Some(doorbell), Some(interrupt)) => Ok(Self {
                socket,
                memory,
                doorbell,
                interrupt,
            }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A connection, for which a socket with too many others in its queue makes its caller wait.
fn connect_within(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Send, Some(within))?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(UnixStream::from(socket)),
        Err(rustix::io::Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}

/// Says whether the other side is a process of this user, or of root.
fn is_trusted(socket: &UnixStream) -> io::Result<bool> {
    let user = socket_peercred(socket)?.uid;
    Ok(user.is_root() || user == geteuid())
}

/// Adds one to an eventfd; one that is full is as good as rung.
pub(crate) fn ring(event: &OwnedFd) -> io::Result<()> {
    match rustix::io::write(event, &1_u64.to_ne_bytes()) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn drain(event: &OwnedFd) -> io::Result<()> {
    match rustix::io::read(event, &mut [0; 8]) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn send(socket: &UnixStream, number: i64, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = number.to_le_bytes();
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Waits for a number until `end` at most.
fn receive_until(socket: &UnixStream, end: Instant) -> io::Result<(i64, Option<OwnedFd>)> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left))?;
    receive(socket).map_err(|error| match error.kind() {
        // What a socket with a time limit calls it.
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

fn receive(socket: &UnixStream) -> io::Result<(i64, Option<OwnedFd>)> {
    let mut bytes = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptor = descriptors.last();
        }
    }
    Ok((i64::from_le_bytes(bytes), descriptor))
}
