//! One TCP connection: its socket, its two queues, the UDP socket towards the workers.

use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{SockRef, Socket, TcpKeepalive};

use super::stream::{Decoder, Encoder, Frame};
use super::{ConnectionName, TcpCounters, TcpEvent, TcpSink, bound, count};
use crate::outer::would_block;

/// Bytes that one read takes, and a receive of joined datagrams.
const CHUNK: usize = 64 * 1024;
/// Reads of one connection in a row; then it is another one's turn.
const READS: usize = 4;
/// Bytes of ESP that wait in front of a connection: beyond it, no more is taken from the workers.
const ESP_WAITING: usize = 128 * 1024;
/// Bytes that wait with messages of IKE. A peer that takes so little is not there any more.
const WAITING: usize = 512 * 1024;
/// Datagrams of one send at most, and their bytes.
const SEGMENTS: usize = 64;
const SEND: usize = 60_000;
/// Silence after which a connection is probed, pause between probes, and their number.
const PROBE: (Duration, Duration, u32) = (Duration::from_secs(20), Duration::from_secs(5), 3);
/// Time after which a connection ends on which the peer acknowledges nothing.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// Time for opening a connection.
const OPENING: Duration = Duration::from_secs(5);
/// Time after which an open connection counts as one that works.
const STABLE: Duration = Duration::from_secs(10);
/// First and longest pause before a connection is opened anew; it doubles.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(8));
/// Time in which a connection that is being closed may send what waits, and hear the rest.
pub(super) const CLOSING: Duration = Duration::from_secs(2);

/// What all connections of the thread use.
pub(super) struct Shared {
    pub(super) epoll: OwnedFd,
    pub(super) workers: SocketAddr,
    pub(super) sink: TcpSink,
    pub(super) counters: Arc<TcpCounters>,
    pub(super) buffer: Vec<u8>,
    pub(super) batch: Batch,
}

impl Shared {
    pub(super) fn new(
        workers: SocketAddr,
        sink: TcpSink,
        counters: Arc<TcpCounters>,
    ) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            workers,
            sink,
            counters,
            buffer: vec![0; CHUNK],
            batch: Batch::default(),
        })
    }
}

/// ESP packets of one size on their way to the workers, of which the last may be smaller.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    size: usize,
    count: usize,
    /// A smaller one came: nothing fits behind it.
    full: bool,
}

impl Batch {
    /// Takes a packet, after it has sent what does not go with it.
    fn push(&mut self, esp: &Esp, workers: SocketAddr, packet: &[u8]) {
        let fits = self.count > 0
            && !self.full
            && packet.len() <= self.size
            && self.count < SEGMENTS.min(esp.state.max_gso_segments())
            && self.bytes.len() + packet.len() <= SEND;
        if !fits {
            self.send(esp, workers);
            self.size = packet.len();
        }
        self.full = packet.len() < self.size;
        self.bytes.extend_from_slice(packet);
        self.count += 1;
    }

    fn send(&mut self, esp: &Esp, workers: SocketAddr) {
        if self.count > 0 {
            let transmit = Transmit {
                destination: workers,
                ecn: None,
                contents: &self.bytes,
                segment_size: (self.count > 1).then_some(self.size),
                src_ip: None,
            };
            // What the worker's socket does not take is lost, as on a network.
            if let Err(error) = esp.state.try_send((&esp.socket).into(), &transmit) {
                tracing::debug!(%error, "ESP from a TCP connection not handed over");
            }
        }
        self.bytes.clear();
        (self.count, self.full) = (0, false);
    }
}

/// The UDP socket towards the workers.
pub(super) struct Esp {
    socket: UdpSocket,
    state: UdpSocketState,
    polled: bool,
}

enum State {
    /// Since when, and whether the thread waits for it to become writable.
    Opening(TcpStream, Instant),
    Open(TcpStream, Instant),
    /// Until it is to be opened anew.
    Pausing(Instant),
}

/// A connection of ours that is opened anew when it breaks.
#[derive(Clone, Copy, Debug, Default)]
struct Opener {
    failures: u32,
    /// Whether it was open before.
    opened: bool,
}

pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) name: ConnectionName,
    state: State,
    /// None where the peer opened it.
    opener: Option<Opener>,
    decoder: Decoder,
    out: Encoder,
    /// Whether the kernel is asked when its socket can be written to; none before it is asked to be read.
    writable: Option<bool>,
    esp: Option<Esp>,
    /// Whether a message of IKE has come.
    pub(super) speaks: bool,
    closing: Option<Instant>,
}

/// Whether a connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    No,
}

/// What the thread is told of a socket: the connection's number, and which of its sockets.
pub(super) const fn token(id: u64, esp: bool) -> EventData {
    EventData::new_u64((id << 1) | esp as u64)
}

impl Connection {
    /// One that the peer opened.
    pub(super) fn accepted(
        shared: &Shared,
        id: u64,
        name: ConnectionName,
        stream: TcpStream,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        configure(&SockRef::from(&stream))?;
        epoll::add(&shared.epoll, &stream, token(id, false), EventFlags::IN)?;
        Ok(Self {
            id,
            name,
            state: State::Open(stream, Instant::now()),
            opener: None,
            decoder: Decoder::of_opener(),
            out: Encoder::default(),
            writable: Some(false),
            esp: None,
            speaks: false,
            closing: None,
        })
    }

    /// One of ours, on a socket that has its address already.
    pub(super) fn dialled(
        shared: &mut Shared,
        id: u64,
        name: ConnectionName,
        socket: Socket,
        now: Instant,
    ) -> Self {
        let mut connection = Self {
            id,
            name,
            state: State::Pausing(now),
            opener: Some(Opener::default()),
            decoder: Decoder::of_acceptor(),
            out: Encoder::default(),
            writable: None,
            esp: None,
            speaks: false,
            closing: None,
        };
        if let Err(error) = connection.open(shared, socket, now) {
            connection.lost(&error, now);
        }
        connection
    }

    fn open(&mut self, shared: &mut Shared, socket: Socket, now: Instant) -> io::Result<()> {
        configure(&SockRef::from(&socket))?;
        match socket.connect(&self.name.1.into()) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let stream = TcpStream::from(socket);
        // Writable means that it is open, or has failed.
        epoll::add(
            &shared.epoll,
            &stream,
            token(self.id, false),
            EventFlags::OUT,
        )?;
        self.writable = None;
        self.state = State::Opening(stream, now);
        Ok(())
    }

    /// Whether something is to be done at a certain time.
    pub(super) const fn waits(&self) -> bool {
        !matches!(self.state, State::Open(..)) || self.closing.is_some()
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, shared: &mut Shared, now: Instant) -> Kept {
        if self.closing.is_some_and(|at| at <= now) {
            return Kept::No;
        }
        match &self.state {
            State::Opening(_, since) if now.saturating_duration_since(*since) >= OPENING => {
                self.lost(&io::ErrorKind::TimedOut.into(), now)
            }
            State::Pausing(until) if *until <= now => {
                let opened = bound(self.name.0.ip());
                match opened.and_then(|socket| self.open(shared, socket, now)) {
                    Ok(()) => Kept::Yes,
                    Err(error) => self.lost(&error, now),
                }
            }
            _ => Kept::Yes,
        }
    }

    /// The connection is broken. What was under way is lost: half a message has no end on another one.
    fn lost(&mut self, error: &io::Error, now: Instant) -> Kept {
        let Some(opener) = self.opener.as_mut().filter(|_| self.closing.is_none()) else {
            tracing::debug!(remote = %self.name.1, %error, "TCP connection ended");
            return Kept::No;
        };
        if let State::Open(_, since) = &self.state {
            if now.saturating_duration_since(*since) >= STABLE {
                opener.failures = 0;
            }
            self.out.clear();
            tracing::info!(remote = %self.name.1, %error, "TCP connection broken, opening it anew");
        } else {
            tracing::info!(remote = %self.name.1, %error, "TCP connection cannot be opened");
        }
        self.decoder = Decoder::of_acceptor();
        let pause = PAUSE.0.saturating_mul(1 << opener.failures.min(7));
        opener.failures = opener.failures.saturating_add(1);
        self.state = State::Pausing(now + pause.min(PAUSE.1));
        Kept::Yes
    }

    /// Handles an event of its TCP socket.
    pub(super) fn on_tcp(&mut self, shared: &mut Shared, flags: EventFlags, now: Instant) -> Kept {
        let done = match &self.state {
            State::Opening(..) => self.on_open(shared, now),
            State::Open(..) => self.on_open_event(shared, flags),
            State::Pausing(_) => Ok(()),
        };
        self.after(shared, done, now)
    }

    fn after(&mut self, shared: &mut Shared, done: io::Result<()>, now: Instant) -> Kept {
        match done.and_then(|()| self.watch(shared)) {
            Ok(()) => Kept::Yes,
            Err(error) => self.lost(&error, now),
        }
    }

    fn on_open(&mut self, shared: &mut Shared, now: Instant) -> io::Result<()> {
        let State::Opening(stream, _) = std::mem::replace(&mut self.state, State::Pausing(now))
        else {
            return Ok(());
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        // Before anything else (RFC 9329 §4), also when it is opened anew (§6.1).
        self.out.begin();
        self.state = State::Open(stream, now);
        tracing::info!(remote = %self.name.1, "TCP connection open");
        let again = self.opener.replace(Opener {
            opened: true,
            ..self.opener.unwrap_or_default()
        });
        if again.is_some_and(|opener| opener.opened) {
            count(&shared.counters.reopened);
            (shared.sink)(TcpEvent::Reopened(self.name));
        }
        self.flush()
    }

    fn on_open_event(&mut self, shared: &mut Shared, flags: EventFlags) -> io::Result<()> {
        if flags.intersects(EventFlags::OUT) {
            self.flush()?;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read(shared)?;
        }
        Ok(())
    }

    fn read(&mut self, shared: &mut Shared) -> io::Result<()> {
        let State::Open(stream, _) = &mut self.state else {
            return Ok(());
        };
        let Shared {
            workers,
            sink,
            counters,
            buffer,
            batch,
            ..
        } = shared;
        for _ in 0..READS {
            let count_read = match stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count_read) => count_read,
                Err(error) if would_block(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            let (name, esp, speaks) = (self.name, &self.esp, &mut self.speaks);
            let taken = self.decoder.push(
                buffer.get(..count_read).unwrap_or_default(),
                &mut |frame| match (frame, esp) {
                    (Frame::Ike(message), _) => {
                        *speaks = true;
                        sink(TcpEvent::Ike(name, message));
                    }
                    (Frame::Esp(packet), Some(esp)) => batch.push(esp, *workers, packet),
                    (Frame::Esp(_), None) => count(&counters.dropped),
                },
            );
            if let Some(esp) = &self.esp {
                batch.send(esp, *workers);
            }
            taken.map_err(|error| {
                count(&counters.malformed);
                io::Error::new(io::ErrorKind::InvalidData, error)
            })?;
            if count_read < buffer.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends what waits, as far as the kernel takes it.
    fn flush(&mut self) -> io::Result<()> {
        let State::Open(stream, _) = &mut self.state else {
            return Ok(());
        };
        while !self.out.pending().is_empty() {
            match stream.write(self.out.pending()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.out.advance(sent),
                Err(error) if would_block(&error) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles packets that the workers sent.
    pub(super) fn on_esp(&mut self, shared: &mut Shared, now: Instant) -> Kept {
        let done = self.forward(shared);
        self.after(shared, done, now)
    }

    fn forward(&mut self, shared: &mut Shared) -> io::Result<()> {
        let Some(esp) = &self.esp else {
            return Ok(());
        };
        while self.out.waiting() < ESP_WAITING {
            let mut meta = [RecvMeta::default()];
            let mut slices = [IoSliceMut::new(&mut shared.buffer)];
            match esp.state.recv((&esp.socket).into(), &mut slices, &mut meta) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if would_block(&error) => break,
                // About datagrams sent before: the worker's socket may be gone.
                Err(error) => {
                    tracing::debug!(%error, "ESP for a TCP connection");
                    break;
                }
            }
            let [meta] = meta;
            let received = shared.buffer.get(..meta.len).unwrap_or_default();
            for packet in received.chunks(meta.stride.max(1)) {
                // One receive is no more than a chunk, for which there is room.
                self.out.push(packet, WAITING);
            }
        }
        self.flush()
    }

    /// Sends a message of IKE.
    pub(super) fn send(&mut self, shared: &mut Shared, message: &[u8], now: Instant) -> Kept {
        if !self.out.push(message, WAITING) {
            let full = io::Error::other("the peer takes nothing");
            return self.lost(&full, now);
        }
        let done = self.flush();
        self.after(shared, done, now)
    }

    /// Lets ESP through.
    pub(super) fn attach(&mut self, shared: &mut Shared, socket: UdpSocket) -> io::Result<()> {
        let state = UdpSocketState::new((&socket).into())?;
        let esp = Esp {
            socket,
            state,
            polled: true,
        };
        epoll::add(
            &shared.epoll,
            &esp.socket,
            token(self.id, true),
            EventFlags::IN,
        )?;
        self.esp = Some(esp);
        self.watch(shared)
    }

    /// Ends it once what waits is sent.
    pub(super) fn close(&mut self, now: Instant) -> Kept {
        if !matches!(self.state, State::Open(..)) {
            return Kept::No;
        }
        self.closing.get_or_insert(now + CLOSING);
        Kept::Yes
    }

    /// Whether its peer opened it, and has proved who it is.
    pub(super) const fn is_known_peers(&self) -> bool {
        self.opener.is_none() && self.esp.is_some()
    }

    /// Asks the kernel for what there is use of.
    fn watch(&mut self, shared: &mut Shared) -> io::Result<()> {
        let open = matches!(self.state, State::Open(..));
        if let State::Open(stream, _) = &self.state {
            let writable = self.out.waiting() > 0;
            if self.writable != Some(writable) {
                let out = if writable {
                    EventFlags::OUT
                } else {
                    EventFlags::empty()
                };
                let flags = EventFlags::IN | out;
                epoll::modify(&shared.epoll, stream.as_fd(), token(self.id, false), flags)?;
                self.writable = Some(writable);
            }
        }
        // While it is full or not there, the kernel holds back what the workers send, and drops the rest.
        let wanted = open && self.out.waiting() < ESP_WAITING;
        let id = self.id;
        if let Some(esp) = self.esp.as_mut().filter(|esp| esp.polled != wanted) {
            let flags = if wanted {
                EventFlags::IN
            } else {
                EventFlags::empty()
            };
            epoll::modify(&shared.epoll, esp.socket.as_fd(), token(id, true), flags)?;
            esp.polled = wanted;
        }
        Ok(())
    }
}

/// Sets the options of a TCP socket.
fn configure(socket: &SockRef<'_>) -> io::Result<()> {
    let (idle, pause, count) = PROBE;
    let keepalive = TcpKeepalive::new()
        .with_time(idle)
        .with_interval(pause)
        .with_retries(count);
    socket.set_tcp_keepalive(&keepalive)?;
    // A message must not wait for the next one.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))
}
