//! The thread that moves packets: TUN interface on one side, UDP socket on the other, the data plane
//! between them.
//!
//! One thread does both directions: on a machine that also runs what uses the tunnel, more threads
//! only add wake-ups. It works as long as there is work and sleeps in `poll` when both sides are
//! empty. Nothing is queued here: a full socket makes it wait, and the kernel's queues in front of it
//! are bounded.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::{Duration, Instant};

use ipsec::batch::{Arrival, Arrived, InboundPacket, OutboundBatch, Outcome};
use ipsec::dataplane::{DataPlane, Event};
use ipsec::drops::DropCause;
use ipsec::sa::{InboundSa, OutboundSa, Spi};
use ipsec::spd::PolicyId;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec};
use sys::tun::{HEADER_LEN, Tun};

use crate::coalesce::{Coalescer, Sink};
use crate::counters::{IoCounters, Snapshot};
use crate::segment::Segments;
use crate::vnet::VnetHeader;

/// Packets read from the interface before they are sent: small packets are dear one by one.
const READ_BUDGET: usize = 64;
/// Room for packets on their way out: two uncut ones. More per turn costs more in cache misses than
/// it saves in calls.
const OUT_BYTES: usize = 160 * 1024;
/// Room that one uncut packet may take once it is cut and protected.
const UNCUT_ROOM: usize = 80 * 1024;
/// Buffers for received datagrams, each as large as the kernel joins them to.
const RECEIVE_BUFFERS: usize = 4;
const RECEIVE_SIZE: usize = 64 * 1024;
/// Bytes of one send at most: what fits a UDP datagram.
const MAX_SEND: usize = 65507;
/// How often the interface is given a turn while the socket keeps delivering.
const RECEIVE_ROUNDS: usize = 2;
/// The first bytes of an IKE message on the port it shares with ESP (RFC 3948 §2.2).
const NON_ESP_MARKER: [u8; 4] = [0; 4];
const KEEPALIVE: [u8; 1] = [0xFF];

/// What a worker can be told.
pub enum Command {
    /// Uses a new pair of associations; the old inbound one stays for packets on their way.
    Rekey(Box<SaPair>),
    /// Removes an inbound association.
    Remove(Spi),
    /// Answers with the state.
    Snapshot(SyncSender<Snapshot>),
    /// Ends the worker.
    Stop,
}

/// Two associations that belong together.
pub struct SaPair {
    /// For what is sent.
    pub outbound: OutboundSa,
    /// For what is received.
    pub inbound: InboundSa,
    /// Where it is sent.
    pub remote: SocketAddr,
}

/// Tells a worker what to do.
#[derive(Debug)]
pub struct WorkerHandle {
    commands: Sender<Command>,
    wake: UnixStream,
}

impl WorkerHandle {
    /// Sends a command and wakes the worker. False when it has ended.
    pub fn send(&self, command: Command) -> bool {
        // A full wake-up socket is as good as one more byte in it.
        self.commands.send(command).is_ok() && (&self.wake).write(&[1]).map_or(true, |n| n == 1)
    }

    /// The worker's state; none when it has ended.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.send(Command::Snapshot(sender));
        receiver.recv_timeout(Duration::from_secs(2)).ok()
    }
}

/// The packet mover.
pub struct Worker {
    tun: Tun,
    socket: UdpSocket,
    udp: UdpSocketState,
    plane: DataPlane,
    policies: Vec<PolicyId>,
    /// Where packets of an association go.
    remotes: HashMap<Spi, SocketAddr>,
    /// Answers "too big" with this address.
    router: Option<IpAddr>,
    commands: Receiver<Command>,
    wake: UnixStream,
    io: IoCounters,
    snapshot: Snapshot,
    out: OutboundBatch,
    read_buffer: Vec<u8>,
    receive_buffer: Vec<u8>,
    arrived: Vec<InboundPacket>,
    coalescer: Coalescer,
    events: Vec<Event>,
}

/// What a worker works with.
pub struct WorkerParts {
    /// The interface.
    pub tun: Tun,
    /// Largest inner packet, in bytes; shown in the state.
    pub mtu: u16,
    /// The bound socket.
    pub socket: UdpSocket,
    /// Policies, without associations.
    pub plane: DataPlane,
    /// Policies whose traffic the associations protect.
    pub policies: Vec<PolicyId>,
    /// The first associations.
    pub pair: SaPair,
    /// The interface's own address.
    pub router: Option<IpAddr>,
}

impl Worker {
    /// Puts a worker together.
    ///
    /// # Errors
    /// Those of setting up the socket.
    pub fn new(parts: WorkerParts) -> io::Result<(Self, WorkerHandle)> {
        let udp = UdpSocketState::new((&parts.socket).into())?;
        for (what, bytes) in [("send", SOCKET_BUFFER), ("receive", SOCKET_BUFFER)] {
            let set = match what {
                "send" => udp.set_send_buffer_size((&parts.socket).into(), bytes),
                _ => udp.set_recv_buffer_size((&parts.socket).into(), bytes),
            };
            if let Err(error) = set {
                tracing::warn!(what, bytes, %error, "socket buffer stays small");
            }
        }
        let (commands, receiver) = mpsc::channel();
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let offload = parts.tun.offload();
        let snapshot = Snapshot {
            interface: parts.tun.name().to_owned(),
            offload: match offload {
                sys::tun::Offload::None => "none",
                sys::tun::Offload::Tcp => "tcp",
                sys::tun::Offload::TcpAndUdp => "tcp+udp",
            },
            mtu: parts.mtu,
            ..Snapshot::default()
        };
        let mut worker = Self {
            tun: parts.tun,
            socket: parts.socket,
            udp,
            plane: parts.plane,
            policies: parts.policies,
            remotes: HashMap::new(),
            router: parts.router,
            commands: receiver,
            wake: woken,
            io: IoCounters::default(),
            snapshot,
            out: OutboundBatch::new(1, OUT_BYTES),
            read_buffer: vec![0; HEADER_LEN + 65536],
            receive_buffer: vec![0; RECEIVE_BUFFERS * RECEIVE_SIZE],
            arrived: Vec::with_capacity(RECEIVE_BUFFERS * 64),
            coalescer: Coalescer::new(offload),
            events: Vec::new(),
        };
        worker.rekey(parts.pair);
        Ok((worker, WorkerHandle { commands, wake }))
    }

    /// Moves packets until told to stop.
    ///
    /// # Errors
    /// What makes going on impossible: the interface is gone, `poll` fails.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            let now = Instant::now();
            let sent = self.interface_to_network(now)?;
            let mut received = false;
            for _ in 0..RECEIVE_ROUNDS {
                if !self.network_to_interface(now)? {
                    break;
                }
                received = true;
            }
            self.plane.poll_expiries(now, &mut self.events);
            self.report_events();
            if !sent && !received && self.sleep()? {
                return Ok(());
            }
        }
    }

    /// Sleeps until there is something to do. True when told to stop.
    fn sleep(&mut self) -> io::Result<bool> {
        let timeout = self.plane.poll_timeout().map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            // Rounded up, so that the deadline has passed on waking.
            let left = left.saturating_add(Duration::from_millis(1));
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [
            readable(self.tun.as_fd()),
            readable(self.socket.as_fd()),
            readable(self.wake.as_fd()),
        ];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let woken = !fds[2].revents().is_empty();
        Ok(woken && self.obey())
    }

    /// Does what it was told. True when told to stop.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; 64];
        while (&self.wake).read(&mut bytes).is_ok_and(|n| n > 0) {}
        loop {
            match self.commands.try_recv() {
                Ok(Command::Rekey(pair)) => self.rekey(*pair),
                Ok(Command::Remove(spi)) => {
                    self.plane.remove_inbound(spi);
                }
                Ok(Command::Snapshot(answer)) => {
                    self.snapshot.update(&self.plane, self.io);
                    // Nobody waiting any more is no trouble.
                    let _ = answer.try_send(self.snapshot.clone());
                }
                Ok(Command::Stop) | Err(mpsc::TryRecvError::Disconnected) => return true,
                Err(mpsc::TryRecvError::Empty) => return false,
            }
        }
    }

    fn rekey(&mut self, pair: SaPair) {
        let old: Vec<Spi> = self.plane.outbound_sas().map(OutboundSa::spi).collect();
        let spi = pair.outbound.spi();
        self.plane.install_inbound(pair.inbound);
        self.remotes.insert(spi, pair.remote);
        for old in old {
            self.plane.remove_outbound(old);
            self.remotes.retain(|known, _| *known != old || old == spi);
        }
        self.plane.install_outbound(pair.outbound, &self.policies);
    }

    fn report_events(&mut self) {
        for event in self.events.drain(..) {
            match event {
                Event::Acquire(_) => tracing::warn!("traffic wants a tunnel that has no keys"),
                Event::OutboundExpired(spi, expiry) | Event::InboundExpired(spi, expiry) => {
                    tracing::warn!(%spi, ?expiry, "lifetime of an association");
                }
            }
        }
    }

    /// Reads, cuts, protects and sends. True when there was anything.
    fn interface_to_network(&mut self, now: Instant) -> io::Result<bool> {
        self.out.clear();
        for _ in 0..READ_BUDGET {
            let room = self.out.buffer.len() - self.out.used();
            if room < UNCUT_ROOM {
                break;
            }
            match self.tun.read(&mut self.read_buffer) {
                Ok(len) => self.take(len),
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if self.out.packets.is_empty() {
            return Ok(false);
        }
        self.plane.outbound(&mut self.out, now, &mut self.events);
        self.send();
        Ok(true)
    }

    /// Cuts what was read into packets, each in the place where it will be protected.
    fn take(&mut self, len: usize) {
        self.io.interface_reads += 1;
        if self.cut(len).is_none() {
            self.io.interface_unreadable += 1;
        }
    }

    fn cut(&mut self, len: usize) -> Option<()> {
        let (header, packet) = self
            .read_buffer
            .get(..len)?
            .split_first_chunk::<HEADER_LEN>()?;
        let segments = Segments::plan(&VnetHeader::parse(header), packet).ok()?;
        let Some(frame) = self.plane.frame(segments.packet()) else {
            // Nothing protects it; the data plane says why.
            let whole = self.out.place(0, segments.packet().len(), 0)?;
            whole.copy_from_slice(segments.packet());
            return Some(());
        };
        for index in 0..segments.count() {
            let len = segments.len(index);
            let place = self.out.place(frame.before, len, frame.after(len))?;
            segments.write(index, place)?;
        }
        Some(())
    }

    /// Sends what is protected, neighbours of one size together; answers what is too big.
    fn send(&mut self) {
        let mut at = 0;
        while let Some(packet) = self.out.packets.get(at).copied() {
            let Outcome::Protected {
                spi, traffic_class, ..
            } = packet.outcome
            else {
                if let Outcome::Dropped {
                    cause: DropCause::TooBig,
                    mtu,
                } = packet.outcome
                {
                    self.answer_too_big(at, mtu);
                }
                at += 1;
                continue;
            };
            let count = self.run_length(at, spi, traffic_class);
            let end = self
                .out
                .packets
                .get(at + count - 1)
                .map_or(0, |last| last.range().end);
            let ecn = EcnCodepoint::from_bits(traffic_class & 3);
            self.send_run(packet.start..end, packet.len, spi, ecn);
            at += count;
        }
    }

    /// How many packets from `at` on can go in one call: side by side, for one peer, of one size but
    /// for a smaller last one.
    fn run_length(&self, at: usize, spi: Spi, class: u8) -> usize {
        let Some(first) = self.out.packets.get(at) else {
            return 1;
        };
        let most = self
            .udp
            .max_gso_segments()
            .min(MAX_SEND / first.len.max(1))
            .max(1);
        let mut end = first.range().end;
        let mut count = 1;
        for packet in self.out.packets.iter().skip(at + 1) {
            let same = matches!(
                packet.outcome,
                Outcome::Protected { spi: other, traffic_class, .. }
                    if other == spi && traffic_class & 3 == class & 3
            );
            if count == most || !same || packet.start != end || packet.len > first.len {
                break;
            }
            count += 1;
            end = packet.range().end;
            if packet.len < first.len {
                break;
            }
        }
        count
    }

    fn send_run(
        &mut self,
        range: std::ops::Range<usize>,
        size: usize,
        spi: Spi,
        ecn: Option<EcnCodepoint>,
    ) {
        let Some(destination) = self.remotes.get(&spi).copied() else {
            return;
        };
        let Some(contents) = self.out.buffer.get(range) else {
            return;
        };
        let transmit = Transmit {
            destination,
            ecn,
            contents,
            segment_size: (contents.len() > size).then_some(size),
            src_ip: None,
        };
        loop {
            match self.udp.try_send((&self.socket).into(), &transmit) {
                Ok(()) => self.io.sends += 1,
                Err(error) if would_block(&error) => {
                    self.io.send_waits += 1;
                    if wait_writable(self.socket.as_fd()) {
                        continue;
                    }
                    self.io.send_errors += 1;
                }
                Err(_) => self.io.send_errors += 1,
            }
            return;
        }
    }

    fn answer_too_big(&mut self, at: usize, mtu: u16) {
        let packet = self
            .out
            .packets
            .get(at)
            .map(|packet| self.out.bytes(packet));
        let answer = packet
            .zip(self.router)
            .and_then(|(packet, router)| ipsec::icmp::too_big(packet, mtu, router));
        if let Some(answer) = answer {
            let mut sink = TunSink {
                tun: &self.tun,
                io: &mut self.io,
            };
            sink.write(&[IoSlice::new(&[0; HEADER_LEN]), IoSlice::new(&answer)]);
        }
    }

    /// Receives, opens, puts together and writes. True when there was anything.
    fn network_to_interface(&mut self, now: Instant) -> io::Result<bool> {
        let mut meta = [RecvMeta::default(); RECEIVE_BUFFERS];
        let received = {
            let mut chunks = self.receive_buffer.chunks_exact_mut(RECEIVE_SIZE);
            let mut buffers: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            match self
                .udp
                .recv((&self.socket).into(), &mut buffers, &mut meta)
            {
                Ok(count) => count,
                Err(error) if would_block(&error) => return Ok(false),
                // An ICMP error for what was sent earlier; the next call goes on.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
                Err(error) => return Err(error),
            }
        };
        self.io.receives += 1;
        self.arrived.clear();
        for (index, meta) in meta.iter().take(received).enumerate() {
            self.list(index * RECEIVE_SIZE, meta);
        }
        self.plane
            .inbound(&mut self.receive_buffer, &mut self.arrived, now);
        let mut sink = TunSink {
            tun: &self.tun,
            io: &mut self.io,
        };
        for packet in &self.arrived {
            if matches!(packet.outcome, Arrived::Delivered { .. }) {
                self.coalescer
                    .push(&self.receive_buffer, packet.range(), &mut sink);
            }
        }
        self.coalescer.flush(&self.receive_buffer, &mut sink);
        Ok(true)
    }

    /// Lists the datagrams of one receive buffer that begins at `base`.
    fn list(&mut self, base: usize, meta: &RecvMeta) {
        let arrival = Arrival {
            source: meta.addr.ip(),
            destination: meta.dst_ip.unwrap_or(meta.addr.ip()),
            traffic_class: meta.ecn.map_or(0, |ecn: EcnCodepoint| ecn as u8),
            in_udp: true,
        };
        let received = self
            .receive_buffer
            .get(base..base + meta.len)
            .unwrap_or_default();
        let mut start = base;
        for datagram in received.chunks(meta.stride.max(1)) {
            if datagram == KEEPALIVE {
                self.io.keepalives += 1;
            } else if datagram.starts_with(&NON_ESP_MARKER) {
                self.io.ike += 1;
            } else {
                self.arrived.push(InboundPacket {
                    start,
                    len: datagram.len(),
                    ip_header: None,
                    room_before: 0,
                    arrival,
                    outcome: Arrived::Pending,
                });
            }
            start += datagram.len();
        }
    }
}

/// Bytes asked for as socket buffers: some milliseconds at full rate.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;

struct TunSink<'a> {
    tun: &'a Tun,
    io: &'a mut IoCounters,
}

impl Sink for TunSink<'_> {
    fn write(&mut self, pieces: &[IoSlice<'_>]) {
        match self.tun.write(pieces) {
            Ok(_) => self.io.interface_writes += 1,
            Err(_) => self.io.interface_write_errors += 1,
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Waits a moment for room in the socket's queue.
fn wait_writable(socket: BorrowedFd<'_>) -> bool {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    rustix::event::poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}
