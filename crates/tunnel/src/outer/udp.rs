//! ESP in UDP (RFC 3948), with segmentation offload in both directions.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use ipsec::batch::{Arrival, Arrived, InboundPacket, OutboundBatch, OutboundPacket, Outcome};
use ipsec::sa::SaHandle;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::sockopt::Ipv6DontFrag;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg, setsockopt};
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::family::{Families, canonical, on_socket, serves_both};
use super::socket::{
    IkeSink, NextHop, Sent, enlarge_buffers, is_broken, is_too_large, wait_writable, would_block,
};
use crate::counters::IoCounters;
use crate::error::StartError;

/// Buffers for received datagrams, each as large as the kernel joins them to.
const RECEIVE_BUFFERS: usize = 4;
const RECEIVE_SIZE: usize = 64 * 1024;
/// Bytes of one send at most: what fits a UDP datagram.
const MAX_SEND: usize = 65507;
/// Datagrams of one send at most (`UDP_MAX_SEGMENTS` of older kernels).
const MAX_SEGMENTS: usize = 64;
/// Room in front of each datagram in transport mode, where an IP header is rebuilt.
const TRANSPORT_ROOM: usize = 40;
/// The first bytes of an IKE message on the port it shares with ESP (RFC 3948 §2.2).
const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// A datagram that keeps address translation alive (RFC 3948 §2.3).
pub const KEEPALIVE: [u8; 1] = [0xFF];

/// Sockets on one address and port, over which the kernel spreads peers.
///
/// # Errors
/// [`StartError::Socket`], naming the address.
pub fn bind_each(
    address: SocketAddr,
    count: NonZeroUsize,
    families: Families,
) -> Result<Vec<UdpSocket>, StartError> {
    let shared = count.get() > 1;
    (0..count.get())
        .map(|_| bind(address, shared, families))
        .collect()
}

/// A socket; with `shared`, others may have the same address and port.
///
/// # Errors
/// [`StartError::Socket`], naming the address.
pub fn bind(
    address: SocketAddr,
    shared: bool,
    families: Families,
) -> Result<UdpSocket, StartError> {
    let open = || {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            // Where it takes IPv4 as well, no other socket may have that port.
            socket.set_only_v6(families == Families::One)?;
        }
        // Only where workers share it: otherwise a second daemon of the same user could take part in the traffic.
        socket.set_reuse_port(shared)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().map_err(|source| StartError::Socket {
        kind: "UDP",
        address,
        source,
    })
}

/// Sends after which a path on which the kernel could not cut datagrams is tried again: its device or its
/// MTU may have changed, and a wrong try costs one send.
const UNSEGMENTED_SENDS: u16 = 4096;

/// Bytes of the largest UDP payload around an IPv6 packet of 1280 bytes: ESP header, IV, padding of a block with its
/// length and next header, and the longest integrity value.
const AROUND_IPV6: usize = 1280 + 8 + 16 + 17 + 32;

/// Destination of an association's packets.
#[derive(Clone, Copy, Debug)]
struct Target {
    next_hop: NextHop,
    /// Sends that are still to go without segmentation: the kernel refused one on this path.
    unsegmented: u16,
}

/// A UDP socket and its buffers.
pub struct UdpOuter {
    socket: UdpSocket,
    state: UdpSocketState,
    serves_both: bool,
    /// Destinations of associations' packets.
    next_hops: HashMap<SaHandle, Target>,
    /// Datagrams of one send; 1 where the kernel cannot cut.
    segments: usize,
    received: Vec<u8>,
    /// Receiver of IKE's messages on this port.
    ike: Option<IkeSink>,
    /// In transport mode received datagrams are moved apart, to have room in front.
    apart: Option<Vec<u8>>,
    /// Parts of the batch that go in one send.
    run: Vec<Range<usize>>,
}

impl UdpOuter {
    /// Around a socket that is bound already. With `mark`, its packets carry it.
    pub(super) fn of(socket: UdpSocket, mark: Option<u32>, transport: bool) -> io::Result<Self> {
        let options = SockRef::from(&socket);
        if let Some(mark) = mark {
            options.set_mark(mark)?;
        }
        let state = udp_state(&socket)?;
        // Not more than the path is known to take, so that what is too large is an error here and the
        // association learns of it.
        let serves_both = serves_both(&socket)?;
        let is_v6 = socket.local_addr()?.is_ipv6();
        if is_v6 {
            rustix::net::sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
        }
        if serves_both || !is_v6 {
            rustix::net::sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
        }
        enlarge_buffers(&options);
        Ok(Self {
            segments: state.max_gso_segments().clamp(1, MAX_SEGMENTS),
            socket,
            state,
            serves_both,
            next_hops: HashMap::new(),
            ike: None,
            received: vec![0; RECEIVE_BUFFERS * RECEIVE_SIZE],
            apart: transport.then(Vec::new),
            run: Vec::with_capacity(MAX_SEGMENTS),
        })
    }

    pub(super) fn add_next_hop(&mut self, sa: SaHandle, next_hop: NextHop) {
        self.next_hops.insert(
            sa,
            Target {
                next_hop,
                unsegmented: 0,
            },
        );
    }

    pub(super) fn remove_next_hop(&mut self, sa: SaHandle) {
        self.next_hops.remove(&sa);
    }

    pub(super) fn set_ike(&mut self, sink: IkeSink) {
        self.ike = Some(sink);
    }

    pub(super) fn buffer(&mut self) -> &mut [u8] {
        self.apart.as_mut().unwrap_or(&mut self.received)
    }

    /// Sends what is protected, neighbours of one size together.
    pub(super) fn send(&mut self, batch: &OutboundBatch, io: &mut IoCounters) -> Sent {
        let mut sent = Sent::default();
        let mut rest = batch.packets.as_slice();
        while let Some((packet, behind)) = rest.split_first() {
            let Some(first) = Datagram::of(packet) else {
                rest = behind;
                continue;
            };
            let target = self.next_hops.get_mut(&first.sa).map(|target| {
                // Learned for this path alone: another peer may be behind another device.
                let segments = if target.unsegmented > 0 {
                    1
                } else {
                    self.segments
                };
                target.unsegmented = target.unsegmented.saturating_sub(1);
                (target.next_hop, segments)
            });
            let Some((next_hop, segments)) = target else {
                rest = behind;
                continue;
            };
            let count = self.gather(&first, behind, segments);
            rest = behind.get(count..).unwrap_or_default();
            sent.too_large |= self.send_run(batch, &first, next_hop, io);
        }
        sent
    }

    /// Puts `first` and those behind it that can go in the same call into the run: for one peer, of
    /// one class, of one size but for a smaller last one, at most `segments`. Returns how many of the latter.
    fn gather(&mut self, first: &Datagram, behind: &[OutboundPacket], segments: usize) -> usize {
        self.run.clear();
        self.run.push(first.range.clone());
        let most = segments.min(MAX_SEND / first.range.len().max(1));
        let mut taken = 0;
        for packet in behind {
            let Some(next) = Datagram::of(packet) else {
                break;
            };
            // One call has one destination and one class for all its datagrams.
            let alike = next.sa == first.sa && next.class == first.class;
            if !alike || taken + 1 >= most || next.range.len() > first.range.len() {
                break;
            }
            taken += 1;
            let len = next.range.len();
            match self.run.last_mut() {
                // Side by side, as they are in tunnel mode: one piece.
                Some(last) if last.end == next.range.start => last.end = next.range.end,
                _ => self.run.push(next.range),
            }
            // The kernel cuts at the first one's length, so a smaller one can only be the last.
            if len < first.range.len() {
                break;
            }
        }
        taken
    }

    /// Sends datagrams of the run that do not fit the path in IP fragments, where each may have an IPv6 packet in it
    /// that nobody may be told to make smaller (RFC 8200 §5). What is larger waits for its sender to hear of the path;
    /// false then.
    fn send_around_ipv6(
        &self,
        batch: &OutboundBatch,
        first: &Datagram,
        next_hop: NextHop,
    ) -> io::Result<bool> {
        let len = first.range.len();
        if len == 0 || len > AROUND_IPV6 {
            return Ok(false);
        }
        let pieces = self
            .run
            .iter()
            .filter_map(|range| batch.buffer.get(range.clone()));
        // Neighbours are one piece: each datagram but the last has the first one's length.
        let datagrams = pieces.flat_map(|piece| piece.chunks(len));
        without_path_mtu(&self.socket, next_hop.remote, || {
            datagrams.into_iter().try_for_each(|datagram| {
                self.send_message(&[IoSlice::new(datagram)], None, first.class, next_hop)
            })
        })?;
        Ok(true)
    }

    /// Sends the run. True when the kernel says that it is too large for the path.
    fn send_run(
        &mut self,
        batch: &OutboundBatch,
        first: &Datagram,
        next_hop: NextHop,
        io: &mut IoCounters,
    ) -> bool {
        let mut pieces = [IoSlice::new(&[]); MAX_SEGMENTS];
        let mut total = 0;
        for (piece, range) in pieces.iter_mut().zip(&self.run) {
            let bytes = batch.buffer.get(range.clone()).unwrap_or_default();
            total += bytes.len();
            *piece = IoSlice::new(bytes);
        }
        let pieces = pieces.get(..self.run.len()).unwrap_or_default();
        let len = first.range.len();
        // A lone datagram goes without the option, which a device without checksum offload would refuse.
        let cut = (total > len).then(|| u16::try_from(len).ok()).flatten();
        loop {
            match self.send_message(pieces, cut, first.class, next_hop) {
                Ok(()) => io.sends += 1,
                Err(error) if would_block(&error) => {
                    io.send_waits += 1;
                    // Waiting here is what holds the interface's queue back, so that senders slow down instead of losing packets.
                    if wait_writable(self.socket.as_fd()) {
                        continue;
                    }
                    io.send_errors += 1;
                }
                Err(error) if is_too_large(&error) => {
                    match self.send_around_ipv6(batch, first, next_hop) {
                        Ok(true) => io.sends += 1,
                        Ok(false) | Err(_) => io.send_errors += 1,
                    }
                    return true;
                }
                Err(error) => {
                    io.send_errors += 1;
                    // A device without checksum offload cannot cut datagrams, nor can the kernel where a
                    // piece does not fit the path; other paths are not concerned.
                    let unable = [Errno::EIO as i32, Errno::EINVAL as i32];
                    let raw = error.raw_os_error();
                    if cut.is_some() && raw.is_some_and(|e| unable.contains(&e)) {
                        let remote = next_hop.remote;
                        tracing::debug!(%error, %remote, "goes on without segmentation offload");
                        io.uncut_paths += 1;
                        if let Some(target) = self.next_hops.get_mut(&first.sa) {
                            target.unsegmented = UNSEGMENTED_SENDS;
                        }
                        // Where a piece did not fit, the path is smaller than believed.
                        return raw == Some(Errno::EINVAL as i32);
                    }
                }
            }
            return false;
        }
    }

    fn send_message(
        &self,
        pieces: &[IoSlice<'_>],
        cut: Option<u16>,
        class: u8,
        next_hop: NextHop,
    ) -> io::Result<()> {
        let wide = i32::from(class);
        let class = if next_hop.remote.is_ipv4() {
            ControlMessage::Ipv4Tos(&class)
        } else {
            ControlMessage::Ipv6TClass(&wide)
        };
        let segments = cut.as_ref().map(ControlMessage::UdpGsoSegments);
        let source = next_hop.source.map(Source::new);
        let source = source.as_ref().map(Source::message);
        // Three messages at most, on the stack: this runs for each send.
        let mut control = [class; 3];
        let mut count = 1;
        for message in [segments, source].into_iter().flatten() {
            if let Some(place) = control.get_mut(count) {
                *place = message;
                count += 1;
            }
        }
        let control = control.get(..count).unwrap_or_default();
        let address = SockaddrStorage::from(on_socket(next_hop.remote, self.serves_both));
        let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
        sendmsg(socket, pieces, control, flags, Some(&address))?;
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        arrived: &mut Vec<InboundPacket>,
        io: &mut IoCounters,
    ) -> io::Result<bool> {
        let mut meta = [RecvMeta::default(); RECEIVE_BUFFERS];
        let mut chunks = self.received.chunks_exact_mut(RECEIVE_SIZE);
        let mut buffers: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let socket = (&self.socket).into();
        let count = match self.state.recv(socket, &mut buffers, &mut meta) {
            Ok(count) => count,
            Err(error) if would_block(&error) => return Ok(false),
            Err(error) if is_broken(&error) => return Err(error),
            Err(_) => {
                io.receive_errors += 1;
                return Ok(true);
            }
        };
        io.receives += 1;
        if let Some(apart) = &mut self.apart {
            apart.clear();
        }
        for (index, meta) in meta.iter().take(count).enumerate() {
            self.list(index * RECEIVE_SIZE, meta, arrived, io);
        }
        // A call that did not fill its buffers has emptied the socket.
        Ok(count == RECEIVE_BUFFERS)
    }

    /// Lists the datagrams of one receive buffer that begins at `base`.
    fn list(
        &mut self,
        base: usize,
        meta: &RecvMeta,
        arrived: &mut Vec<InboundPacket>,
        io: &mut IoCounters,
    ) {
        let remote = canonical(meta.addr);
        let destination = meta.dst_ip.map(|ip| ip.to_canonical());
        let arrival = Arrival {
            source: remote.ip(),
            source_port: remote.port(),
            destination: destination.unwrap_or(remote.ip()),
            traffic_class: meta.ecn.map_or(0, |ecn: EcnCodepoint| ecn as u8),
            in_udp: true,
        };
        let received = self.received.get(base..base + meta.len).unwrap_or_default();
        let mut start = base;
        // The kernel joins datagrams of one sender and says the size of each; one without a size is whole.
        for datagram in received.chunks(meta.stride.max(1)) {
            if datagram == KEEPALIVE {
                io.keepalives += 1;
            // An SPI is never zero, so four zero bytes are IKE (RFC 3948 §2.2).
            } else if datagram.starts_with(&NON_ESP_MARKER) {
                io.ike += 1;
                if let Some(ike) = &mut self.ike {
                    ike(arrival.destination, remote, datagram);
                }
            } else {
                let (start, room_before) = match &mut self.apart {
                    Some(apart) => {
                        // Joined datagrams lie side by side, without room for the header that transport mode puts in front.
                        apart.resize(apart.len() + TRANSPORT_ROOM, 0);
                        let start = apart.len();
                        apart.extend_from_slice(datagram);
                        (start, TRANSPORT_ROOM)
                    }
                    None => (start, 0),
                };
                arrived.push(InboundPacket {
                    start,
                    len: datagram.len(),
                    ip_header: None,
                    room_before,
                    arrival,
                    outcome: Arrived::Pending,
                });
            }
            start += datagram.len();
        }
    }
}

/// The address from which a datagram is to be sent.
enum Source {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

impl Source {
    fn new(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.octets()),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            }),
            IpAddr::V6(address) => Self::V6(libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: address.octets(),
                },
                ipi6_ifindex: 0,
            }),
        }
    }

    fn message(&self) -> ControlMessage<'_> {
        match self {
            Self::V4(info) => ControlMessage::Ipv4PacketInfo(info),
            Self::V6(info) => ControlMessage::Ipv6PacketInfo(info),
        }
    }
}

/// Sends one datagram from a certain address of this host.
///
/// # Errors
/// Those of `sendmsg`.
pub fn send_from(
    socket: &UdpSocket,
    source: IpAddr,
    remote: SocketAddr,
    payload: &[u8],
) -> io::Result<()> {
    let source = (!source.is_unspecified()).then(|| Source::new(source));
    let control: Vec<_> = source.iter().map(Source::message).collect();
    let address = SockaddrStorage::from(on_socket(remote, serves_both(socket)?));
    let pieces = [IoSlice::new(payload)];
    let flags = MsgFlags::empty();
    sendmsg(socket.as_raw_fd(), &pieces, &control, flags, Some(&address))?;
    Ok(())
}

/// Sets a socket up to receive as [`UdpSocketState`] does.
///
/// # Errors
/// Those of the socket's options.
pub fn udp_state(socket: &UdpSocket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    if socket.local_addr()?.is_ipv6() {
        // It switches this on, and then nothing of IPv6 goes in fragments, whatever is said of the path's MTU.
        setsockopt(socket, Ipv6DontFrag, &false)?;
    }
    Ok(state)
}

/// As [`send_from`], without regard to what the path takes: the kernel cuts the datagram into IP fragments, and
/// routers may cut it further.
///
/// The socket may be one of ESP's, whose option is the same for all: a protected packet that is sent in between
/// arrives in fragments instead of being reported as too large, once.
///
/// # Errors
/// Those of `sendmsg` and of the socket's options.
pub fn send_in_fragments(
    socket: &UdpSocket,
    source: IpAddr,
    remote: SocketAddr,
    payload: &[u8],
) -> io::Result<()> {
    without_path_mtu(socket, remote, || {
        send_from(socket, source, remote, payload)
    })
}

/// Lets the kernel cut what `send` sends to `remote`.
fn without_path_mtu(
    socket: &UdpSocket,
    remote: SocketAddr,
    send: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    use rustix::net::sockopt;
    if remote.is_ipv4() {
        let before = sockopt::ip_mtu_discover(socket)?;
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DONT)?;
        let sent = send();
        sockopt::set_ip_mtu_discover(socket, before)?;
        sent
    } else {
        let before = sockopt::ipv6_mtu_discover(socket)?;
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DONT)?;
        let sent = send();
        sockopt::set_ipv6_mtu_discover(socket, before)?;
        sent
    }
}

impl AsFd for UdpOuter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A protected packet as a datagram's content.
struct Datagram {
    sa: SaHandle,
    class: u8,
    /// From the ESP header on: the socket writes what is in front.
    range: Range<usize>,
}

impl Datagram {
    const fn of(packet: &OutboundPacket) -> Option<Self> {
        match packet.outcome {
            Outcome::Protected {
                sa,
                payload,
                traffic_class,
            } => Some(Self {
                sa,
                class: traffic_class,
                range: payload..packet.range().end,
            }),
            _ => None,
        }
    }
}
