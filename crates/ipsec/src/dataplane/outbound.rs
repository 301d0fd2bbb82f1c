//! Packets that go out: policy, encapsulation, protection.

use std::time::Instant;

use offload::{Slot, prefetch};

use super::expiry::Party;
use super::{
    DataPlane, Event, Frame, SaIndex, Scratch, Statistics, authentication, for_each_group,
};
use crate::ah;
use crate::batch::{OutboundBatch, OutboundPacket, Outcome};
use crate::drops::DropCause;
use crate::ip::{IpHeader, protocol, write_v4_checksum};
use crate::sa::{Mode, OutboundSa, OuterHeaders, Protection};
use crate::selector::Flow;
use crate::spd::{Action, Decision};
use crate::transport::write_udp6_checksum;

impl DataPlane {
    /// Decides about each packet of the batch and protects in place what is to be protected. Every
    /// packet has an outcome afterwards; order is kept.
    pub fn outbound(&mut self, batch: &mut OutboundBatch, now: Instant, events: &mut Vec<Event>) {
        let mut order = std::mem::take(&mut self.scratch.order);
        order.clear();
        let (buffer, packets, frames) = batch.parts();
        for (index, packet) in packets.iter_mut().enumerate() {
            if let Some(frame) = packet.frame(frames) {
                order.push((frame.index, index));
                continue;
            }
            match self.classify(buffer, packet, events) {
                Ok(Some(sa)) => order.push((sa, index)),
                Ok(None) => {
                    packet.outcome = Outcome::Bypassed;
                    self.statistics.bypassed.count(packet.len);
                }
                Err(outcome) => packet.outcome = outcome,
            }
        }
        // Stable within an association, because the packet's number is part of the key.
        order.sort_unstable();
        let Self {
            outbound,
            scratch,
            limits,
            statistics,
            ..
        } = self;
        for_each_group(outbound, &order, |sa, index, group| {
            protect(sa, scratch, statistics, batch, group, now);
            limits.carried(Party::Outbound(index), &mut sa.usage);
        });
        scratch.order = order;
        for packet in &batch.packets {
            if let Outcome::Dropped { cause, .. } = packet.outcome {
                self.statistics.outbound_drops.count(cause);
            }
        }
    }

    /// Finds what protects the packet with this header, or each segment of it; none where
    /// [`outbound`](Self::outbound) would not protect it in tunnel mode.
    pub fn frame(&mut self, inner: &IpHeader) -> Option<Frame> {
        let decision = self.spd.decide(&Flow::outbound(inner))?;
        let index = decision.sa.filter(|_| decision.action == Action::Protect)?;
        let sa = self.outbound.get(index)?.as_ref()?;
        let Mode::Tunnel(tunnel) = &sa.mode else {
            return None;
        };
        Some(Frame {
            sa: sa.handle(),
            index,
            inner: *inner,
            before: sa.overhead_before(tunnel.local.is_ipv6()),
            inner_mtu: sa.inner_mtu(),
            trailer: sa.trailer(true),
        })
    }

    /// The association that protects a packet; none where it goes as it is.
    fn classify(
        &mut self,
        buffer: &[u8],
        packet: &mut OutboundPacket,
        events: &mut Vec<Event>,
    ) -> Result<Option<SaIndex>, Outcome> {
        let bytes = buffer.get(packet.range()).unwrap_or_default();
        let header = IpHeader::parse(bytes).map_err(|error| dropped(error.into()))?;
        packet.len = header.total_len;
        let Some(Decision { policy, action, sa }) = self.spd.decide(&Flow::outbound(&header))
        else {
            return Err(dropped(DropCause::NoPolicy));
        };
        match action {
            Action::Bypass => return Ok(None),
            Action::Discard => return Err(dropped(DropCause::PolicyDiscard)),
            Action::Protect => {}
        }
        let Some(sa) = sa else {
            if self.acquired.insert(policy, ()).is_none() {
                events.push(Event::Acquire(policy));
            }
            return Err(dropped(DropCause::NoOutboundSa));
        };
        // Not looked at before the whole batch is classified: it comes meanwhile.
        if let Some(place) = self.outbound.get(sa) {
            prefetch(place);
        }
        Ok(Some(sa))
    }
}

/// Protects the packets of one association.
fn protect(
    sa: &mut OutboundSa,
    scratch: &mut Scratch,
    statistics: &mut Statistics,
    batch: &mut OutboundBatch,
    group: &[(SaIndex, usize)],
    now: Instant,
) {
    let (buffer, packets, frames) = batch.parts();
    scratch.slots.clear();
    sa.begin_group(group.len());
    for (_, index) in group {
        let Some(packet) = packets.get_mut(*index) else {
            continue;
        };
        let inner_len = packet.len;
        // Asked for each packet: those before it in the batch may have used up the rest.
        let slot = if sa.usage.is_expired(now) {
            Err(dropped(DropCause::Expired))
        } else {
            encapsulate(sa, buffer, packet, frames)
        };
        match slot {
            Ok(slot) => {
                scratch.slots.push(slot);
                sa.usage.count(inner_len);
                statistics.protected.count(inner_len);
            }
            Err(outcome) => {
                packet.outcome = outcome;
                scratch.slots.push(Slot {
                    valid: false,
                    ..Slot::new(0, 0, 0)
                });
            }
        }
    }
    match &sa.protection {
        Protection::Esp(transform) => transform.seal(buffer, &mut scratch.slots),
        Protection::Ah(mac) => {
            authentication::sign(mac, buffer, scratch);
        }
    }
    for ((_, index), slot) in group.iter().zip(&scratch.slots) {
        let Some(packet) = packets.get_mut(*index) else {
            continue;
        };
        let finished = slot.valid && finish(sa, buffer, packet).is_some();
        if !finished && !matches!(packet.outcome, Outcome::Dropped { .. }) {
            packet.outcome = dropped(DropCause::SealFailed);
        }
    }
}

const fn dropped(cause: DropCause) -> Outcome {
    Outcome::Dropped { cause, mtu: 0 }
}

/// Bytes of an IPv6 packet that every link takes; one that cannot has fragmentation of its own (RFC 8200 §5).
const IPV6_MIN_MTU: usize = 1280;

/// Bytes of the largest packet that an association takes whole. IPv6 packets are never told to be smaller than what
/// every link takes: around those that do not fit, the outer packet goes in fragments (RFC 4301 §8.2, RFC 4303 §3.3.4).
fn largest(sa: &OutboundSa, inner: &IpHeader) -> usize {
    let fits = sa.inner_mtu();
    match inner.source.is_ipv6() {
        true => fits.max(IPV6_MIN_MTU),
        false => fits,
    }
}

/// Whether an association takes a packet.
fn admit(sa: &OutboundSa, inner: &IpHeader) -> Result<(), Outcome> {
    match sa.mode {
        Mode::Transport if inner.fragment => Err(dropped(DropCause::FragmentInTransport)),
        Mode::Tunnel(_) if inner.dont_fragment && inner.total_len > largest(sa, inner) => {
            let mtu = u16::try_from(largest(sa, inner)).unwrap_or(u16::MAX);
            Err(Outcome::Dropped {
                cause: DropCause::TooBig,
                mtu,
            })
        }
        _ => Ok(()),
    }
}

/// Writes what depends on the sealed packet: a checksum that covers it.
fn finish(sa: &OutboundSa, buffer: &mut [u8], packet: &OutboundPacket) -> Option<()> {
    if sa.encapsulation.is_none() || sa.options.outer_headers == OuterHeaders::BySocket {
        return Some(());
    }
    let Outcome::Protected { payload, .. } = packet.outcome else {
        return Some(());
    };
    let udp = payload.checked_sub(8 + packet.start)?;
    let packet = buffer.get_mut(packet.range())?;
    if packet.first()? >> 4 == 6 {
        write_udp6_checksum(packet, udp)?;
    }
    Some(())
}

/// Makes room and writes everything but IV, ciphertext and integrity value. The slot that comes back
/// is the ESP packet, or for AH the whole IP packet.
fn encapsulate(
    sa: &mut OutboundSa,
    buffer: &mut [u8],
    packet: &mut OutboundPacket,
    frames: &[Frame],
) -> Result<Slot, Outcome> {
    let no_room = || dropped(DropCause::NoRoom);
    let inner = match packet.frame(frames) {
        // Segments of one packet have its header, each with a length of its own.
        Some(frame) => IpHeader {
            total_len: packet.len,
            ..frame.inner
        },
        None => {
            let bytes = buffer.get(packet.range()).ok_or_else(no_room)?;
            IpHeader::parse(bytes).map_err(|error| dropped(error.into()))?
        }
    };
    admit(sa, &inner)?;
    let overhead = sa.overhead_before(is_v6(sa, &inner));
    if packet.room_before() < overhead {
        return Err(no_room());
    }
    let layout = Layout::of(sa, packet, &inner, overhead).map_err(dropped)?;
    let sequence = sa.next_sequence().map_err(dropped)?;
    write_frame(sa, buffer, &layout, &inner, sequence).ok_or_else(no_room)?;
    packet.start = layout.start;
    packet.len = layout.end - layout.start;
    let traffic_class = match &sa.mode {
        Mode::Tunnel(tunnel) => tunnel.traffic_class(&inner),
        Mode::Transport => inner.traffic_class,
    };
    packet.outcome = Outcome::Protected {
        sa: sa.handle(),
        payload: layout.header,
        traffic_class,
    };
    Ok(match &sa.protection {
        Protection::Esp(_) => Slot::new(layout.header, layout.end - layout.header, sequence),
        Protection::Ah(_) => Slot::new(layout.start, packet.len, sequence),
    })
}

/// Offsets in the buffer of a protected packet's parts.
struct Layout {
    /// First byte of the outer IP header.
    start: usize,
    /// First byte behind the IP headers: UDP, ESP or AH.
    behind_ip: usize,
    /// First byte of the ESP or AH header.
    header: usize,
    /// First byte of what is protected.
    payload: usize,
    /// One past the payload's last byte.
    payload_end: usize,
    /// One past the last byte of padding and trailer; `payload_end` for AH.
    trailer_end: usize,
    /// One past the packet's last byte.
    end: usize,
    /// Names what is protected.
    next_header: u8,
}

impl Layout {
    fn of(
        sa: &OutboundSa,
        packet: &OutboundPacket,
        inner: &IpHeader,
        overhead: usize,
    ) -> Result<Self, DropCause> {
        let start = packet.start - overhead;
        let by_socket = sa.options.outer_headers == OuterHeaders::BySocket;
        let udp = if sa.encapsulation.is_some() && !by_socket {
            8
        } else {
            0
        };
        let (outer_len, payload, next_header) = match &sa.mode {
            Mode::Tunnel(_) if by_socket => (0, packet.start, inner.tunnel_protocol()),
            Mode::Tunnel(tunnel) => (tunnel.header_len(), packet.start, inner.tunnel_protocol()),
            // The IP headers move to the front; what they name is read before that.
            Mode::Transport => (inner.insertion, packet.start + inner.insertion, 0),
        };
        let behind_ip = start + outer_len;
        let payload_end = packet.start + packet.len;
        let trailer = sa.trailer(matches!(sa.mode, Mode::Tunnel(_)));
        let end = payload_end + trailer.after(payload_end - payload);
        let trailer_end = end - trailer.icv_len;
        if end - packet.start > packet.room() || end - start > usize::from(u16::MAX) {
            return Err(DropCause::NoRoom);
        }
        Ok(Self {
            start,
            behind_ip,
            header: behind_ip + udp,
            payload,
            payload_end,
            trailer_end,
            end,
            next_header,
        })
    }
}

fn write_frame(
    sa: &OutboundSa,
    buffer: &mut [u8],
    layout: &Layout,
    inner: &IpHeader,
    sequence: u64,
) -> Option<()> {
    let v6 = is_v6(sa, inner);
    let outer_protocol = match (&sa.encapsulation, &sa.protection) {
        (Some(_), _) => protocol::UDP,
        (None, Protection::Esp(_)) => protocol::ESP,
        (None, Protection::Ah(_)) => protocol::AH,
    };
    let [.., i0, i1] = sequence.to_be_bytes();
    let mut next_header = layout.next_header;
    match &sa.mode {
        Mode::Tunnel(_) if sa.options.outer_headers == OuterHeaders::BySocket => {
            return write_esp(sa, buffer, layout, next_header, sequence);
        }
        Mode::Tunnel(tunnel) => {
            let packet = buffer.get_mut(layout.start..layout.end)?;
            tunnel.write_header(packet, inner, outer_protocol, u16::from_be_bytes([i0, i1]))?;
        }
        Mode::Transport => {
            let from = layout.payload - inner.insertion;
            buffer.copy_within(from..layout.payload, layout.start);
            let packet = buffer.get_mut(layout.start..layout.end)?;
            next_header = replace_next_header(packet, inner, outer_protocol)?;
        }
    }
    if let Some(udp) = sa.encapsulation {
        // RFC 3948 §2.1: the checksum over IPv4 is zero; that over IPv6 follows after sealing.
        let length = u16::try_from(layout.end - layout.behind_ip).ok()?;
        let header = buffer.get_mut(layout.behind_ip..)?.first_chunk_mut::<8>()?;
        let ([s0, s1], [d0, d1]) = (udp.local.to_be_bytes(), udp.remote.to_be_bytes());
        let [l0, l1] = length.to_be_bytes();
        *header = [s0, s1, d0, d1, l0, l1, 0, 0];
    }
    match &sa.protection {
        Protection::Esp(_) => write_esp(sa, buffer, layout, next_header, sequence),
        Protection::Ah(mac) => {
            let len = ah::header_len(mac.integrity().icv_len(), v6);
            let header = buffer.get_mut(layout.header..layout.header + len)?;
            header.fill(0);
            let (fixed, _) = header.split_first_chunk_mut::<12>()?;
            let ([p0, p1, p2, p3], [q0, q1, q2, q3]) = (sa.spi.get().to_be_bytes(), low(sequence));
            let words = ah::length_field(len)?;
            *fixed = [next_header, words, 0, 0, p0, p1, p2, p3, q0, q1, q2, q3];
            Some(())
        }
    }
}

/// Whether the header in front of ESP or AH is IPv6.
fn is_v6(sa: &OutboundSa, inner: &IpHeader) -> bool {
    match &sa.mode {
        Mode::Tunnel(tunnel) => tunnel.local.is_ipv6(),
        Mode::Transport => inner.source.is_ipv6(),
    }
}

const fn low(sequence: u64) -> [u8; 4] {
    let [.., a, b, c, d] = sequence.to_be_bytes();
    [a, b, c, d]
}

/// Writes SPI, sequence number, padding and trailer (RFC 4303 §2.4: padding counts 1, 2, 3, …).
fn write_esp(
    sa: &OutboundSa,
    buffer: &mut [u8],
    layout: &Layout,
    next_header: u8,
    sequence: u64,
) -> Option<()> {
    let header = buffer.get_mut(layout.header..)?.first_chunk_mut::<8>()?;
    let ([p0, p1, p2, p3], [q0, q1, q2, q3]) = (sa.spi.get().to_be_bytes(), low(sequence));
    *header = [p0, p1, p2, p3, q0, q1, q2, q3];
    let fill = buffer.get_mut(layout.payload_end..layout.trailer_end)?;
    let Protection::Esp(transform) = &sa.protection else {
        return None;
    };
    // What is more than the alignment needs is traffic-flow padding, which is part of the payload
    // and simply zero; the pad length has only one byte.
    let alignment = transform.suite().encryption().alignment();
    let (padding, trailer) = fill.split_at_mut_checked(fill.len().checked_sub(2)?)?;
    let pad_len = padding.len() % alignment;
    let (traffic_flow, padding) = padding.split_at_mut_checked(padding.len() - pad_len)?;
    traffic_flow.fill(0);
    for (byte, count) in padding.iter_mut().zip(1..) {
        *byte = count;
    }
    *trailer.first_chunk_mut::<2>()? = [u8::try_from(pad_len).ok()?, next_header];
    Some(())
}

/// Makes the moved IP headers name `new` and the packet's new length; returns what they named.
fn replace_next_header(packet: &mut [u8], inner: &IpHeader, new: u8) -> Option<u8> {
    let total = packet.len();
    let old = std::mem::replace(packet.get_mut(inner.next_header_at)?, new);
    if inner.source.is_ipv4() {
        let length = u16::try_from(total).ok()?.to_be_bytes();
        packet.get_mut(2..4)?.copy_from_slice(&length);
        write_v4_checksum(packet, inner.header_len)?;
    } else {
        let length = u16::try_from(total.checked_sub(40)?).ok()?.to_be_bytes();
        packet.get_mut(4..6)?.copy_from_slice(&length);
    }
    Some(old)
}
