//! ESP and AH without UDP, over a raw socket (IP protocols 50 and 51).
//!
//! We write the whole outer packet ourselves (`IP_HDRINCL`). On receiving, IPv4 comes with its header
//! and IPv6 without: there it is put back from what the kernel tells. Extension headers in front of
//! AH are lost with it, so such packets fail verification.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use ipsec::batch::{Arrival, Arrived, InboundPacket, OutboundBatch, OutboundPacket, Outcome};
use ipsec::ip::IpHeader;
use ipsec::sa::SaHandle;
use nix::sys::socket::sockopt::Ipv6RecvPacketInfo;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg,
    sendmmsg,
};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::socket::{Sent, enlarge_buffers, is_broken, is_too_large, wait_writable, would_block};
use crate::counters::IoCounters;

/// Packets of one call.
const BATCH: usize = 64;
/// Bytes of a packet at most, put together from fragments by the kernel.
const MAX_PACKET: usize = 65535;
const V6_HEADER: usize = 40;
/// Room of one received packet. Only pages that packets touch become memory.
const SLOT: usize = (V6_HEADER + MAX_PACKET).next_multiple_of(64);
/// Hops of a header that is put back: how many were left is not told.
const HOPS: u8 = 64;

/// A raw socket and its buffers.
pub struct RawOuter {
    socket: OwnedFd,
    local: IpAddr,
    peers: Peers,
    protocol: u8,
    received: Vec<u8>,
}

/// Whom a raw socket talks to.
enum Peers {
    /// This one; the socket is connected.
    One(IpAddr),
    /// Each association has its own.
    Many(HashMap<SaHandle, IpAddr>),
}

/// Ancillary data of a received packet.
struct Arrived6 {
    source: IpAddr,
    destination: IpAddr,
    class: u8,
}

impl RawOuter {
    /// Without `remote` it talks to many.
    pub(super) fn open(
        local: IpAddr,
        remote: Option<IpAddr>,
        protocol: u8,
        mark: Option<u32>,
    ) -> io::Result<Self> {
        let domain = if local.is_ipv4() {
            Domain::IPV4
        } else {
            Domain::IPV6
        };
        let kind = Protocol::from(i32::from(protocol));
        let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(kind))?;
        if local.is_ipv4() {
            // The data plane writes the outer header, whose fields AH covers (RFC 4302 §3.3.3).
            socket.set_header_included_v4(true)?;
        } else {
            socket.set_header_included_v6(true)?;
            // The kernel takes IPv6 headers off; class and address are told beside the packet.
            socket.set_recv_tclass_v6(true)?;
            if remote.is_none() {
                nix::sys::socket::setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
            }
        }
        if let Some(mark) = mark {
            socket.set_mark(mark)?;
        }
        enlarge_buffers(&SockRef::from(&socket));
        // Packets to other addresses of this host are for others.
        socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
        if let Some(remote) = remote {
            // Connected, it gets only this peer's packets, and ICMP errors about ours.
            socket.connect(&SockAddr::from(SocketAddr::new(remote, 0)))?;
        }
        Ok(Self {
            socket: socket.into(),
            local,
            peers: remote.map_or_else(|| Peers::Many(HashMap::new()), Peers::One),
            protocol,
            received: vec![0; BATCH * SLOT],
        })
    }

    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.received
    }

    /// Says where packets of an association go.
    pub(super) fn add_next_hop(&mut self, sa: SaHandle, remote: IpAddr) {
        if let Peers::Many(next_hops) = &mut self.peers {
            next_hops.insert(sa, remote);
        }
    }

    pub(super) fn remove_next_hop(&mut self, sa: SaHandle) {
        if let Peers::Many(next_hops) = &mut self.peers {
            next_hops.remove(&sa);
        }
    }

    /// Whether a packet goes through here, and to whom unless the socket is connected.
    fn to(&self, packet: &OutboundPacket) -> Option<Option<SockaddrStorage>> {
        let Outcome::Protected { sa, .. } = packet.outcome else {
            return None;
        };
        match &self.peers {
            Peers::One(_) => Some(None),
            Peers::Many(next_hops) => {
                let remote = SocketAddr::new(*next_hops.get(&sa)?, 0);
                Some(Some(SockaddrStorage::from(remote)))
            }
        }
    }

    /// Sends what is protected, up to [`BATCH`] packets a call.
    pub(super) fn send(&self, batch: &OutboundBatch, io: &mut IoCounters) -> Sent {
        let mut sent = Sent::default();
        let ours = batch.packets.iter();
        let ours = ours.filter_map(|packet| Some((packet, self.to(packet)?)));
        let (packets, to): (Vec<_>, Vec<_>) = ours
            .map(|(packet, to)| ([IoSlice::new(batch.bytes(packet))], to))
            .unzip();
        let (mut rest, mut to) = (packets.as_slice(), to.as_slice());
        while !rest.is_empty() {
            let done = match self.send_some(rest, to) {
                Ok(count) => {
                    io.sends += 1;
                    count
                }
                Err(error) if would_block(&error) => {
                    io.send_waits += 1;
                    if wait_writable(self.socket.as_fd()) {
                        continue;
                    }
                    io.send_errors += rest.len() as u64;
                    return sent;
                }
                // Only this packet is lost, the ones behind it may be smaller.
                Err(error) => {
                    sent.too_large |= is_too_large(&error);
                    io.send_errors += 1;
                    1
                }
            };
            rest = rest.get(done..).unwrap_or_default();
            to = to.get(done..).unwrap_or_default();
        }
        sent
    }

    fn send_some(
        &self,
        packets: &[[IoSlice<'_>; 1]],
        to: &[Option<SockaddrStorage>],
    ) -> io::Result<usize> {
        let packets = packets.get(..packets.len().min(BATCH)).unwrap_or(packets);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(packets.len(), None);
        let no_control: [ControlMessage<'_>; 0] = [];
        let results = sendmmsg(
            self.socket.as_raw_fd(),
            &mut headers,
            packets,
            to,
            no_control,
            MsgFlags::empty(),
        )?;
        // Never zero, or the caller would try the same packets for ever.
        Ok(results.count().max(1))
    }

    pub(super) fn receive(
        &mut self,
        arrived: &mut Vec<InboundPacket>,
        io: &mut IoCounters,
    ) -> io::Result<bool> {
        let v4 = self.local.is_ipv4();
        let remote = match self.peers {
            Peers::One(remote) => Some(remote),
            Peers::Many(_) => None,
        };
        let ends = (remote, self.local);
        let headroom = if v4 { 0 } else { V6_HEADER };
        let mut slots: Vec<[IoSliceMut<'_>; 1]> = self
            .received
            .chunks_exact_mut(SLOT)
            .map(|slot| {
                [IoSliceMut::new(
                    slot.get_mut(headroom..).unwrap_or_default(),
                )]
            })
            .collect();
        // Made anew each time: what a call leaves in the control buffers' lengths bounds the next.
        let control = (!v4).then(|| nix::cmsg_space!(i32, nix::libc::in6_pktinfo));
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, control);
        let flags = MsgFlags::MSG_DONTWAIT;
        let results = recvmmsg(
            self.socket.as_raw_fd(),
            &mut headers,
            &mut slots,
            flags,
            None,
        );
        let lengths: Vec<(usize, Option<Arrived6>)> = match results {
            Ok(results) => results
                .map(|message| (message.bytes, arrived6(&message, ends)))
                .collect(),
            Err(error) => {
                return match io::Error::from(error) {
                    error if would_block(&error) => Ok(false),
                    error if is_broken(&error) => Err(error),
                    _ => {
                        io.receive_errors += 1;
                        Ok(true)
                    }
                };
            }
        };
        io.receives += 1;
        // A call that did not fill its slots has emptied the socket.
        let full = lengths.len() == BATCH;
        for (index, (len, told)) in lengths.into_iter().enumerate() {
            let base = index * SLOT;
            let packet = match told {
                _ if v4 => self.v4_packet(base, len),
                Some(told) => self.v6_packet(base, len, &told),
                None => None,
            };
            match packet {
                Some(packet) => arrived.push(packet),
                None => io.unreadable += 1,
            }
        }
        Ok(full)
    }

    fn v4_packet(&self, base: usize, len: usize) -> Option<InboundPacket> {
        let header = IpHeader::parse(self.received.get(base..base + len)?).ok()?;
        Some(InboundPacket {
            start: base + header.header_len,
            len: header.total_len - header.header_len,
            ip_header: Some(base),
            room_before: 0,
            arrival: Arrival {
                source: header.source,
                source_port: 0,
                destination: header.destination,
                traffic_class: header.traffic_class,
                in_udp: false,
            },
            outcome: Arrived::Pending,
        })
    }

    /// Puts the header back in front of what follows it.
    fn v6_packet(&mut self, base: usize, len: usize, told: &Arrived6) -> Option<InboundPacket> {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (told.source, told.destination) else {
            return None;
        };
        let class = told.class;
        let header = self.received.get_mut(base..base + V6_HEADER)?;
        // As it was on the wire, as far as AH covers it: flow label and hop limit are counted as zero (RFC 4302 §3.3.3.1.2).
        let [l0, l1] = u16::try_from(len).ok()?.to_be_bytes();
        let (fixed, addresses) = header.split_first_chunk_mut::<8>()?;
        let first = 0x60 | (class >> 4);
        *fixed = [first, class << 4, 0, 0, l0, l1, self.protocol, HOPS];
        let (from, to) = addresses.split_first_chunk_mut::<16>()?;
        *from = source.octets();
        to.copy_from_slice(&destination.octets());
        Some(InboundPacket {
            start: base + V6_HEADER,
            len,
            ip_header: Some(base),
            room_before: V6_HEADER,
            arrival: Arrival {
                source: told.source,
                source_port: 0,
                destination: told.destination,
                traffic_class: class,
                in_udp: false,
            },
            outcome: Arrived::Pending,
        })
    }
}

impl AsFd for RawOuter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads the ancillary data of an IPv6 packet; an address that is missing is that of the connected socket.
fn arrived6(
    message: &nix::sys::socket::RecvMsg<'_, '_, SockaddrStorage>,
    ends: (Option<IpAddr>, IpAddr),
) -> Option<Arrived6> {
    let from = message.address.as_ref().and_then(|address| {
        let address = address.as_sockaddr_in6()?;
        Some(IpAddr::V6(address.ip()))
    });
    let mut told = Arrived6 {
        source: ends.0.or(from)?,
        destination: ends.1,
        class: 0,
    };
    for part in message.cmsgs().into_iter().flatten() {
        match part {
            ControlMessageOwned::Ipv6TClass(class) => {
                told.class = u8::try_from(class).unwrap_or(0);
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                told.destination = IpAddr::from(info.ipi6_addr.s6_addr);
            }
            _ => {}
        }
    }
    Some(told)
}
