//! The thread that moves packets: TUN interface on one side, the outer sockets on the other, the data plane
//! between them.
//!
//! One thread does both directions: on a machine that also runs what uses the tunnel, more threads
//! only add wake-ups. Where there are many peers and cores, there can be several ([`crate::workers`]). It works as long as there is work and sleeps in `poll` when both sides are
//! empty, after a look around where the next packet is likely to be near (`spin`). Nothing is queued here: a full socket makes it wait, and the kernel's queues in front of it
//! are bounded.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ipsec::batch::{Arrived, HEADROOM, InboundPacket, OutboundBatch, Outcome, TAILROOM};
use ipsec::dataplane::{DataPlane, Event};
use ipsec::drops::DropCause;
use ipsec::sa::{OutboundSa, SaHandle};
use ipsec::spd::PolicyId;
use rustix::event::{PollFd, PollFlags, Timespec};
use sys::tun::{HEADER_LEN, Tun};

use crate::capture::{Capture, Direction};
use crate::children::{Children, Tables};
use crate::coalesce::Coalescer;
use crate::command::{Command, WorkerHandle};
use crate::config::RekeyConfig;
use crate::counters::{IoCounters, Snapshot};
use crate::outer::{NextHop, Outer, PathMtu, would_block};
use crate::rekey::{Rekey, RekeyError, SaPair};
use crate::segment::Segments;
use crate::spin::Spin;
use crate::tun_sink::{TunSink, answer_too_big};
use crate::vnet::VnetHeader;

/// Packets read from the interface before they are sent: small packets are dear one by one.
const READ_BUDGET: usize = 64;
/// Busy turns after which `poll` is asked all the same, for commands.
const ASK_POLL: u32 = 64;
/// Room for packets on their way out: two super-packets. More per turn costs more in cache misses than
/// it saves in calls.
const OUT_BYTES: usize = 176 * 1024;
/// Room that one super-packet may take once it is cut and protected.
const SUPER_PACKET_ROOM: usize = 96 * 1024;
/// Packets that one receive lists, for a start.
const ARRIVED: usize = 256;
/// How often the path's MTU is asked for again while it is smaller than configured.
const PATH_MTU_AGAIN: Duration = Duration::from_secs(60);

pub struct Worker {
    tun: Tun,
    /// Where packets for the host are written.
    host: Tun,
    outer: Outer,
    plane: DataPlane,
    policies: Vec<PolicyId>,
    rekey: Rekey,
    children: Children,
    path: Path,
    commands: Receiver<Command>,
    stopped: bool,
    wake: UnixStream,
    io: IoCounters,
    snapshot: Snapshot,
    out: OutboundBatch,
    read_buffer: Vec<u8>,
    /// Packets to read before the next send.
    read_budget: usize,
    arrived: Vec<InboundPacket>,
    coalescer: Coalescer,
    events: Vec<Event>,
    capture: Option<Capture>,
    spin: Spin,
    /// Packets moved since the last wait.
    moved: usize,
}

/// What a worker works with.
pub struct WorkerParts {
    /// A queue of the interface to read from, and the one to write to: see [`crate::workers`].
    pub queues: (Tun, Tun),
    /// Largest inner packet, in bytes; shown in the state.
    pub mtu: u16,
    pub outer: Outer,
    pub plane: DataPlane,
    /// Policies whose traffic the associations protect.
    pub policies: Vec<PolicyId>,
    /// The first associations, if keys are manual.
    pub pair: Option<SaPair>,
    /// Takes Child SAs, if keys are negotiated.
    pub children: Children,
    /// How later ones take over.
    pub rekey: RekeyConfig,
    /// What the path takes.
    pub path: Path,
    /// Where inner packets are written, for debugging.
    pub capture: Option<Capture>,
}

/// What the path to the far side takes.
#[derive(Debug)]
pub struct Path {
    /// Bytes of the largest outer packet, as configured.
    pub configured: u16,
    /// Tells what the kernel learned about it.
    pub learned: PathMtu,
    /// In transport mode, bytes that protection adds at most.
    pub transport_overhead: Option<u16>,
    /// What counts at present.
    current: u16,
    ask_again: Option<Instant>,
}

impl Path {
    /// A path about which nothing is learned yet.
    pub const fn new(configured: u16, learned: PathMtu, transport_overhead: Option<u16>) -> Self {
        Self {
            configured,
            learned,
            transport_overhead,
            current: configured,
            ask_again: None,
        }
    }

    /// The largest packet that transport mode may protect.
    fn transport_limit(&self) -> Option<u16> {
        Some(self.current.saturating_sub(self.transport_overhead?))
    }
}

/// Where there may be something to read.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    interface: bool,
    network: bool,
    /// Commands were carried out, after which something may be due.
    commanded: bool,
}

impl Ready {
    const fn any(self) -> bool {
        self.interface || self.network
    }

    const fn or(self, other: Self) -> Self {
        Self {
            interface: self.interface || other.interface,
            network: self.network || other.network,
            commanded: other.commanded,
        }
    }
}

impl Worker {
    /// Puts a worker together.
    ///
    /// # Errors
    /// Those of making a pair of sockets.
    pub(crate) fn new(parts: WorkerParts) -> io::Result<(Self, WorkerHandle)> {
        let (commands, receiver) = mpsc::channel();
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (tun, host) = parts.queues;
        let offload = tun.offload();
        let snapshot = Snapshot {
            interface: tun.name().to_owned(),
            offload: match offload {
                sys::tun::Offload::None => "none",
                sys::tun::Offload::Tcp => "tcp",
                sys::tun::Offload::TcpAndUdp => "tcp+udp",
            }
            .into(),
            mtu: parts.mtu,
            ..Snapshot::default()
        };
        let mut worker = Self {
            tun,
            host,
            outer: parts.outer,
            plane: parts.plane,
            policies: parts.policies,
            rekey: Rekey::new(parts.rekey),
            children: parts.children,
            path: parts.path,
            commands: receiver,
            stopped: false,
            wake: woken,
            io: IoCounters::default(),
            snapshot,
            out: OutboundBatch::new(1, OUT_BYTES),
            read_buffer: vec![0; HEADER_LEN + 65536],
            read_budget: 1,
            arrived: Vec::with_capacity(ARRIVED),
            coalescer: Coalescer::new(offload),
            events: Vec::new(),
            capture: parts.capture,
            spin: Spin::default(),
            moved: 0,
        };
        if let Some(pair) = parts.pair {
            worker.rekey(pair).map_err(io::Error::other)?;
        }
        Ok((worker, WorkerHandle { commands, wake }))
    }

    /// Moves packets until told to stop.
    ///
    /// # Errors
    /// What makes going on impossible: the interface is gone, `poll` fails.
    pub fn run(&mut self) -> io::Result<()> {
        let mut ready = Ready::default();
        let mut turns = 0;
        loop {
            turns = if ready.any() { turns + 1 } else { 0 };
            // Asking costs a system call, so a busy worker does not before each turn; commands wait no longer than so many.
            if turns % ASK_POLL == 0 {
                match self.sleep(!ready.any())? {
                    Some(found) => ready = ready.or(found),
                    None => return Ok(()),
                }
            }
            // While one side is busy, the other is not asked for by `poll`.
            ready.network |= turns > 1;
            let now = Instant::now();
            self.take_over(now);
            if ready.network {
                ready.network = self.network_to_interface(now)?;
                // What the host answers, it answers at once.
                ready.interface = true;
            }
            if ready.interface {
                ready.interface = self.interface_to_network(now)?;
            }
            self.plane.poll_expiries(now, &mut self.events);
            self.plane.poll_sources(&mut self.events);
            self.report_events();
        }
    }

    /// Asks what there is to do, with `wait` until there is something. None when told to stop.
    fn sleep(&mut self, wait: bool) -> io::Result<Option<Ready>> {
        if !wait {
            return self.ask(Some(Timespec::default()));
        }
        if let Some(capture) = &mut self.capture {
            capture.flush();
        }
        let began = Instant::now();
        let window = self.spin.begin(std::mem::take(&mut self.moved), began);
        let mut looked = Duration::ZERO;
        while looked < window {
            let found = self.ask(Some(Timespec::default()))?;
            if found.is_none_or(|ready| ready.any() || ready.commanded) {
                self.spin.ended(looked, looked);
                return Ok(found);
            }
            // Whoever has work goes first: what is waited for may be theirs to send.
            thread::yield_now();
            let now = Instant::now();
            let before = std::mem::replace(&mut looked, now - began);
            if !self.spin.goes_on(looked - before, now) {
                break;
            }
        }
        let found = self.ask(self.time_left());
        self.spin.ended(began.elapsed(), looked);
        found
    }

    /// Asks which sides can be read, for `timeout` at most, and carries commands out. None when told to stop.
    fn ask(&mut self, timeout: Option<Timespec>) -> io::Result<Option<Ready>> {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [
            readable(self.tun.as_fd()),
            readable(self.outer.as_fd()),
            readable(self.wake.as_fd()),
        ];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Some(Ready::default())),
            Err(error) => return Err(error.into()),
        }
        let [interface, network, woken] = fds.map(|fd| !fd.revents().is_empty());
        // Even where the sockets have work: a command that waits behind traffic might wait for ever.
        if woken {
            self.handle_commands();
        }
        Ok((!self.stopped).then_some(Ready {
            interface,
            network,
            commanded: woken,
        }))
    }

    /// Until something is due.
    fn time_left(&self) -> Option<Timespec> {
        let deadlines = [
            self.plane.poll_timeout(),
            self.rekey.deadline(),
            self.children.deadline(),
            self.path.ask_again,
        ];
        deadlines.into_iter().flatten().min().map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            // Rounded up, so that the deadline has passed on waking.
            let left = left.saturating_add(Duration::from_millis(1));
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        })
    }

    /// Takes the wake-ups and carries out the commands that wait.
    fn handle_commands(&mut self) {
        let mut bytes = [0; 64];
        // Emptied before the queue is read: a command that comes meanwhile wakes again.
        while (&self.wake).read(&mut bytes).is_ok_and(|n| n > 0) {}
        self.carry_out_commands();
    }

    /// Carries out the commands that wait, without a system call.
    fn carry_out_commands(&mut self) {
        while !self.stopped {
            match self.commands.try_recv() {
                Ok(Command::Rekey(pair, answer)) => {
                    // Nobody waiting any more is no trouble, here and below.
                    let _ = answer.try_send(self.rekey(*pair));
                }
                Ok(Command::Install(install)) => {
                    let (children, mut tables) = self.children();
                    children.install(*install, &mut tables);
                }
                Ok(Command::Child(command)) => {
                    let (children, mut tables) = self.children();
                    children.handle(command, &mut tables);
                }
                Ok(Command::Snapshot(answer)) => {
                    let pending = self.rekey.is_pending();
                    self.snapshot.update(&self.plane, self.io, pending);
                    let _ = answer.try_send(self.snapshot.clone());
                }
                Ok(Command::Stop) | Err(mpsc::TryRecvError::Disconnected) => self.stopped = true,
                Err(mpsc::TryRecvError::Empty) => return,
            }
        }
    }

    /// The Child SAs, and what they change.
    fn children(&mut self) -> (&mut Children, Tables<'_>) {
        let tables = Tables {
            plane: &mut self.plane,
            outer: &mut self.outer,
            now: Instant::now(),
        };
        (&mut self.children, tables)
    }

    fn rekey(&mut self, pair: SaPair) -> Result<(), RekeyError> {
        let now = Instant::now();
        let (spi, remote) = self.rekey.begin(pair, &mut self.plane, now)?;
        // With manual keys there is one socket with one address.
        let source = None;
        self.outer
            .add_next_hop(spi.into(), NextHop { remote, source });
        self.take_over(now);
        Ok(())
    }

    /// Lets new keys and a new path MTU take effect when it is time.
    fn take_over(&mut self, now: Instant) {
        if let Some(outbound) = self.rekey.poll(&mut self.plane, now) {
            let old: Vec<SaHandle> = self.plane.outbound_sas().map(OutboundSa::handle).collect();
            let (spi, handle) = (outbound.spi(), outbound.handle());
            self.plane.install_outbound(outbound, &self.policies);
            // It was made with the configured one, and the path may be known by now.
            self.plane.set_path_mtu(handle, self.path.current);
            for old in old {
                self.plane.remove_outbound(old);
                self.outer.remove_next_hop(old);
            }
            tracing::info!(%spi, "sending with new keys");
        }
        if self.path.ask_again.is_some_and(|at| at <= now) || self.children.asks(now) {
            self.ask_path(now);
        }
        self.children.poll(&mut self.plane, now);
    }

    /// Learns what the path takes (RFC 4301 §8.2).
    fn ask_path(&mut self, now: Instant) {
        // Each peer has its own path.
        if self.children.is_used() {
            let (probe, mtu) = (&self.path.learned, self.path.configured);
            self.children.ask_paths(&mut self.plane, probe, mtu, now);
            return;
        }
        let Some(learned) = self.path.learned.ask() else {
            return;
        };
        // The configured size is a bound: what a router or an attacker says may only make it smaller.
        let mtu = learned.min(self.path.configured);
        self.path.ask_again = (mtu < self.path.configured).then(|| now + PATH_MTU_AGAIN);
        if mtu == self.path.current {
            return;
        }
        self.path.current = mtu;
        let all: Vec<SaHandle> = self.plane.outbound_sas().map(OutboundSa::handle).collect();
        for handle in all {
            self.plane.set_path_mtu(handle, mtu);
        }
        tracing::info!(mtu, "the path's MTU changed");
    }

    fn report_events(&mut self) {
        for event in self.events.drain(..) {
            match event {
                _ if self.children.is_used() => self.children.report(event),
                Event::Acquire(_) => tracing::warn!("traffic wants a tunnel that has no keys"),
                Event::OutboundExpired(sa, expiry) => {
                    tracing::warn!(spi = %sa.spi(), ?expiry, "lifetime of an association");
                }
                Event::InboundExpired(spi, expiry) => {
                    tracing::warn!(%spi, ?expiry, "lifetime of an association");
                }
                // With manual keys addresses are configured.
                Event::SourceChanged(..) => {}
            }
        }
    }

    /// Reads, cuts, protects and sends. True when there is more.
    fn interface_to_network(&mut self, now: Instant) -> io::Result<bool> {
        self.out.clear();
        let mut reads = 0;
        let mut emptied = false;
        while reads < self.read_budget {
            let room = self.out.buffer.len() - self.out.used();
            // The next packet may be as large as they come, and must have its place before it is read.
            if room < SUPER_PACKET_ROOM {
                break;
            }
            match self.tun.read(&mut self.read_buffer) {
                Ok(len) => self.take(len),
                Err(error) if would_block(&error) => {
                    emptied = true;
                    break;
                }
                Err(error) => return Err(error),
            }
            reads += 1;
        }
        // A lone packet goes out after one read; where there were more, more are awaited.
        let growth = if emptied { 1 } else { 4 };
        self.read_budget = (reads * growth).clamp(1, READ_BUDGET);
        if self.out.packets.is_empty() {
            return Ok(!emptied);
        }
        if let Some(capture) = &mut self.capture {
            let time = SystemTime::now();
            for packet in &self.out.packets {
                capture.packet(self.out.bytes(packet), Direction::Outbound, time);
            }
        }
        self.moved += self.out.packets.len();
        self.plane.outbound(&mut self.out, now, &mut self.events);
        for at in 0..self.out.packets.len() {
            self.answer_if_too_big(at);
        }
        // The kernel has just learned it, so asking now makes the next packets fit.
        if self.outer.send(&self.out, &mut self.io).too_large {
            self.ask_path(now);
        }
        Ok(!emptied)
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
        let packet = segments.packet();
        // Asked once for all segments, and before they are cut, so that each is written where its header and trailer fit
        // around it.
        let frame = self.plane.frame(segments.ip());
        if frame.is_none() && self.path.transport_overhead.is_none() {
            // Nothing protects it; the data plane says why.
            let whole = self.out.place(0, packet.len(), 0)?;
            whole.copy_from_slice(packet);
            return Some(());
        }
        let frame = frame.map(|frame| self.out.add_frame(frame));
        if let Some(limit) = self.path.transport_limit()
            && segments.len(0) > usize::from(limit)
        {
            self.io.transport_too_big += 1;
            let mut sink = TunSink {
                tun: &self.host,
                io: &mut self.io,
            };
            answer_too_big(packet, limit, &mut sink);
            return Some(());
        }
        for index in 0..segments.count() {
            let len = segments.len(index);
            let place = match frame {
                Some(frame) => self.out.place_framed(frame, len)?,
                None => self.out.place(HEADROOM, len, TAILROOM)?,
            };
            segments.write(index, place)?;
        }
        Some(())
    }

    /// Tells the sender of a packet that was too big what would have fitted.
    fn answer_if_too_big(&mut self, at: usize) {
        let Some(packet) = self.out.packets.get(at) else {
            return;
        };
        let Outcome::Dropped {
            cause: DropCause::TooBig,
            mtu,
        } = packet.outcome
        else {
            return;
        };
        let mut sink = TunSink {
            tun: &self.host,
            io: &mut self.io,
        };
        answer_too_big(self.out.bytes(packet), mtu, &mut sink);
    }

    /// Receives, opens, puts together and writes. True when there may be more.
    fn network_to_interface(&mut self, now: Instant) -> io::Result<bool> {
        self.arrived.clear();
        let more = self.outer.receive(&mut self.arrived, &mut self.io)?;
        self.moved += self.arrived.len();
        // A peer uses new keys as soon as it knows that we have them, and their command was sent before it could know. Packets
        // that were read before the command is carried out would find no association.
        self.carry_out_commands();
        let buffer = self.outer.buffer();
        self.plane.inbound(buffer, &mut self.arrived, now);
        let mut sink = TunSink {
            tun: &self.host,
            io: &mut self.io,
        };
        // Packets of one association come in runs.
        let mut last = None;
        for packet in &self.arrived {
            // A peer that was restarted goes on under old SPIs until it is told (RFC 7296 §1.5).
            if packet.outcome == Arrived::Dropped(DropCause::UnknownSpi) && self.children.is_used()
            {
                let spi = buffer
                    .get(packet.range())
                    .and_then(|bytes| bytes.first_chunk());
                let spi = spi.map_or(0, |spi| u32::from_be_bytes(*spi));
                self.children.unknown_spi(packet.arrival.source, spi, now);
            }
            if let Arrived::Delivered { spi } = packet.outcome {
                if last.replace(spi) != Some(spi) {
                    // What answers comes by the queue that this is written to.
                    let tun = match self.children.is_spread(spi) {
                        true => &self.tun,
                        false => &self.host,
                    };
                    if !sink.is_to(tun) {
                        self.coalescer.flush(buffer, &mut sink);
                        sink.tun = tun;
                    }
                }
                if let Some(capture) = &mut self.capture {
                    let bytes = buffer.get(packet.range()).unwrap_or_default();
                    capture.packet(bytes, Direction::Inbound, SystemTime::now());
                }
                self.coalescer.push(buffer, packet.range(), &mut sink);
            }
        }
        // Its pieces point into the buffer, which the next receive overwrites.
        self.coalescer.flush(buffer, &mut sink);
        Ok(more)
    }
}
