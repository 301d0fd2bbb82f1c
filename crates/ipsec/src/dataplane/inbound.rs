//! Packets that come in: association, window, integrity, decapsulation, policy.

use std::net::SocketAddr;
use std::time::Instant;

use offload::{Slot, prefetch};

use super::expiry::Party;
use super::{DataPlane, SaIndex, Scratch, authentication, for_each_group};
use crate::ah;
use crate::batch::{Arrival, Arrived, InboundPacket};
use crate::drops::DropCause;
use crate::ip::{IpHeader, protocol, write_v4_checksum};
use crate::sa::{InboundSa, Mode, Protection, Spi};
use crate::selector::Flow;
use crate::tunnel::{decapsulated_ecn, set_ecn, write_ip_header};

impl DataPlane {
    /// Verifies, decrypts and checks packets of a buffer in place. Every packet has an outcome
    /// afterwards; order is kept. Packets are expected in the order in which they lie in the buffer.
    pub fn inbound(&mut self, buffer: &mut [u8], packets: &mut [InboundPacket], now: Instant) {
        let mut order = std::mem::take(&mut self.scratch.order);
        order.clear();
        let mut last = None;
        for (index, packet) in packets.iter_mut().enumerate() {
            let Some(spi) = read_spi(buffer, packet) else {
                packet.outcome = Arrived::Dropped(DropCause::Truncated);
                continue;
            };
            let found = match last {
                Some((known, sa)) if known == spi => sa,
                _ => self.find_inbound(spi),
            };
            last = Some((spi, found));
            match found {
                Some(sa) => order.push((sa, index)),
                None => packet.outcome = Arrived::Dropped(DropCause::UnknownSpi),
            }
        }
        // Stable within an association, because the packet's number is part of the key.
        order.sort_unstable();
        let Self {
            inbound,
            scratch,
            limits,
            sources,
            ..
        } = self;
        for_each_group(inbound, &order, |sa, index, group| {
            open_group(sa, scratch, buffer, packets, group, now);
            limits.carried(Party::Inbound(index), &mut sa.usage);
            if let Some(source) = sa.source.take_changed() {
                sources.push((sa.spi, source));
            }
        });
        scratch.order = order;
        for packet in packets {
            match packet.outcome {
                Arrived::Dropped(cause) => self.statistics.inbound_drops.count(cause),
                Arrived::Delivered { .. } => self.statistics.delivered.count(packet.len),
                Arrived::Pending => {}
            }
        }
    }

    /// The place of the association with an SPI; it will be needed soon.
    fn find_inbound(&self, spi: u32) -> Option<SaIndex> {
        let index = *self.by_spi.get(&Spi::new(spi)?)?;
        prefetch(self.inbound.get(index)?);
        Some(index)
    }
}

/// Opens the packets of one association.
fn open_group(
    sa: &mut InboundSa,
    scratch: &mut Scratch,
    buffer: &mut [u8],
    packets: &mut [InboundPacket],
    group: &[(SaIndex, usize)],
    now: Instant,
) {
    scratch.slots.clear();
    sa.usage.settle();
    sa.with_window(|sa| {
        for (_, index) in group {
            let Some(packet) = packets.get_mut(*index) else {
                continue;
            };
            let slot = prepare(sa, buffer, packet, now).unwrap_or_else(|cause| {
                packet.outcome = Arrived::Dropped(cause);
                Slot {
                    valid: false,
                    ..Slot::new(0, 0, 0)
                }
            });
            scratch.slots.push(slot);
        }
    });
    match &sa.protection {
        Protection::Esp(transform) => transform.open(buffer, &mut scratch.slots),
        Protection::Ah(mac) => {
            authentication::verify(mac, buffer, scratch);
        }
    }
    sa.with_window(|sa| {
        for ((_, index), slot) in group.iter().zip(&scratch.slots) {
            let Some(packet) = packets.get_mut(*index) else {
                continue;
            };
            if packet.outcome != Arrived::Pending {
                continue;
            }
            packet.outcome = match finish(sa, buffer, packet, slot, now) {
                Ok(()) => Arrived::Delivered { spi: sa.spi },
                Err(cause) => Arrived::Dropped(cause),
            };
        }
    });
}

fn read_spi(buffer: &[u8], packet: &InboundPacket) -> Option<u32> {
    let bytes = buffer.get(packet.range())?;
    // AH has next header, length and reserved in front of the SPI, ESP nothing. Only the IP header
    // tells which it is; without one it came by UDP and is ESP.
    let offset = if is_ah(buffer, packet) { 4 } else { 0 };
    Some(u32::from_be_bytes(
        *bytes.get(offset..)?.first_chunk::<4>()?,
    ))
}

fn is_ah(buffer: &[u8], packet: &InboundPacket) -> bool {
    let header = packet.ip_header.and_then(|at| buffer.get(at..packet.start));
    header.is_some_and(|header| names_ah(header).unwrap_or(false))
}

/// Whether the headers say that AH follows; they end where it begins.
fn names_ah(headers: &[u8]) -> Option<bool> {
    let version = headers.first()? >> 4;
    if version == 4 {
        return Some(*headers.get(9)? == protocol::AH);
    }
    let mut kind = *headers.get(6)?;
    let mut rest = headers.get(40..)?;
    while let [next, len, ..] = *rest {
        kind = next;
        rest = rest.get(8 + usize::from(len) * 8..)?;
    }
    Some(kind == protocol::AH)
}

/// Checks everything that needs no key. The slot that comes back is the ESP packet, or for AH the
/// whole IP packet.
fn prepare(
    sa: &InboundSa,
    buffer: &[u8],
    packet: &InboundPacket,
    now: Instant,
) -> Result<Slot, DropCause> {
    let ah = is_ah(buffer, packet);
    if ah != matches!(sa.protection, Protection::Ah(_))
        || packet.arrival.in_udp != sa.encapsulation.is_some()
    {
        return Err(DropCause::SaMismatch);
    }
    if sa.usage.is_expired(now) {
        return Err(DropCause::Expired);
    }
    let bytes = buffer.get(packet.range()).ok_or(DropCause::Truncated)?;
    let at = if ah { 8 } else { 4 };
    let low = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let low = u32::from_be_bytes(*low.ok_or(DropCause::Truncated)?);
    let sequence = sa.window.infer(low).ok_or(DropCause::BadSequence)?;
    sa.window.check(sequence)?;
    if !ah {
        return Ok(Slot::new(packet.start, packet.len, sequence));
    }
    let ip_header = packet.ip_header.ok_or(DropCause::SaMismatch)?;
    Ok(Slot::new(
        ip_header,
        packet.start + packet.len - ip_header,
        sequence,
    ))
}

/// After verification: moves the window, strips what protected the packet, checks what is inside.
fn finish(
    sa: &mut InboundSa,
    buffer: &mut [u8],
    packet: &mut InboundPacket,
    slot: &Slot,
    now: Instant,
) -> Result<(), DropCause> {
    if !slot.valid {
        return Err(DropCause::IntegrityFailed);
    }
    // Again: packets before this one in the batch may have used up the rest of the lifetime.
    if sa.usage.is_expired(now) {
        return Err(DropCause::Expired);
    }
    sa.window.accept(slot.sequence)?;
    sa.usage.count(packet.len);
    if packet.arrival.in_udp && slot.sequence == sa.window.top() {
        let Arrival {
            source,
            source_port,
            ..
        } = packet.arrival;
        let source = SocketAddr::new(source, source_port);
        sa.source.came_from(source, now);
    }
    let (payload, end, next_header) = match &sa.protection {
        Protection::Esp(transform) => {
            let payload = packet.start + transform.payload_offset();
            let end = packet.start + packet.len - transform.suite().icv_len();
            let text = buffer.get(payload..end).ok_or(DropCause::BadPadding)?;
            let (len, next_header) = strip_trailer(text).ok_or(DropCause::BadPadding)?;
            (payload, payload + len, next_header)
        }
        Protection::Ah(_) => {
            let header = buffer.get(packet.range()).ok_or(DropCause::Truncated)?;
            let [next_header, words, ..] = *header else {
                return Err(DropCause::Truncated);
            };
            (
                packet.start + ah::received_len(words),
                packet.start + packet.len,
                next_header,
            )
        }
    };
    if next_header == protocol::NONE {
        return Err(DropCause::Dummy);
    }
    let header = match &sa.mode {
        Mode::Tunnel(_) => deliver_tunnel(buffer, packet, payload, end, next_header)?,
        Mode::Transport => deliver_transport(sa, buffer, packet, payload, end, next_header)?,
    };
    let flow = Flow::inbound(&header);
    if sa
        .options
        .selectors
        .iter()
        .any(|selector| selector.matches(&flow))
    {
        Ok(())
    } else {
        Err(DropCause::SelectorMismatch)
    }
}

/// Checks padding and trailer (RFC 4303 §2.4, §2.5); returns the payload's length and what it is.
fn strip_trailer(text: &[u8]) -> Option<(usize, u8)> {
    let (rest, [pad_len, next_header]) = text.split_last_chunk::<2>()?;
    let len = rest.len().checked_sub(usize::from(*pad_len))?;
    let (_, padding) = rest.split_at_checked(len)?;
    padding
        .iter()
        .zip(1..=u8::MAX)
        .all(|(byte, count)| *byte == count)
        .then_some((len, *next_header))
}

/// Takes the inner packet out; returns its header.
fn deliver_tunnel(
    buffer: &mut [u8],
    packet: &mut InboundPacket,
    payload: usize,
    end: usize,
    next_header: u8,
) -> Result<IpHeader, DropCause> {
    let bytes = buffer
        .get_mut(payload..end)
        .ok_or(DropCause::BadNextHeader)?;
    let inner = IpHeader::parse(bytes)?;
    if inner.tunnel_protocol() != next_header {
        return Err(DropCause::BadNextHeader);
    }
    let ecn = decapsulated_ecn(inner.traffic_class, packet.arrival.traffic_class)?;
    set_ecn(bytes, &inner, ecn).ok_or(DropCause::MalformedPacket)?;
    packet.start = payload;
    // What follows the inner packet is traffic-flow padding.
    packet.len = inner.total_len;
    Ok(inner)
}

/// Puts the IP header back in front of the payload; returns it.
fn deliver_transport(
    sa: &InboundSa,
    buffer: &mut [u8],
    packet: &mut InboundPacket,
    payload: usize,
    end: usize,
    next_header: u8,
) -> Result<IpHeader, DropCause> {
    let start = match packet.ip_header {
        Some(ip) => move_header(buffer, ip, packet.start, payload, end, next_header)?,
        None => rebuild_header(buffer, packet, payload, end, next_header)?,
    };
    packet.start = start;
    packet.len = end - start;
    let bytes = buffer
        .get_mut(packet.range())
        .ok_or(DropCause::MalformedPacket)?;
    let header = IpHeader::parse(bytes)?;
    let Some(original) = &sa.options.original_addresses else {
        return Ok(header);
    };
    crate::transport::fix_checksum(bytes, &header, original).ok_or(DropCause::MalformedPacket)?;
    Ok(header)
}

/// Moves the IP headers up to the payload and makes them name it.
fn move_header(
    buffer: &mut [u8],
    ip: usize,
    esp: usize,
    payload: usize,
    end: usize,
    next_header: u8,
) -> Result<usize, DropCause> {
    let headers = buffer.get(ip..esp).ok_or(DropCause::MalformedPacket)?;
    let (len, v6) = (
        headers.len(),
        headers.first().is_some_and(|byte| byte >> 4 == 6),
    );
    let (names_at, header_len) = last_name(headers).ok_or(DropCause::MalformedPacket)?;
    // In UDP the header in front of ESP goes as well.
    let start = payload
        .checked_sub(header_len)
        .filter(|_| header_len <= len);
    let start = start.ok_or(DropCause::MalformedPacket)?;
    buffer.copy_within(ip..ip + header_len, start);
    let packet = buffer
        .get_mut(start..end)
        .ok_or(DropCause::MalformedPacket)?;
    rewrite(packet, names_at, next_header, header_len, v6).ok_or(DropCause::MalformedPacket)?;
    Ok(start)
}

fn rewrite(
    packet: &mut [u8],
    names_at: usize,
    next_header: u8,
    header_len: usize,
    v6: bool,
) -> Option<()> {
    let total = packet.len();
    *packet.get_mut(names_at)? = next_header;
    if v6 {
        let length = u16::try_from(total.checked_sub(40)?).ok()?.to_be_bytes();
        packet.get_mut(4..6)?.copy_from_slice(&length);
        return Some(());
    }
    packet
        .get_mut(2..4)?
        .copy_from_slice(&u16::try_from(total).ok()?.to_be_bytes());
    write_v4_checksum(packet, header_len)
}

/// Finds the field of the headers that names what follows them, and their length.
pub(super) fn last_name(headers: &[u8]) -> Option<(usize, usize)> {
    if headers.first()? >> 4 == 4 {
        return Some((9, usize::from(headers.first()? & 0x0F) * 4));
    }
    let (mut at, mut len, mut kind) = (6, 40, *headers.get(6)?);
    while matches!(
        kind,
        protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION
    ) {
        let [next, words, ..] = *headers.get(len..)? else {
            return None;
        };
        at = len;
        len += 8 + usize::from(words) * 8;
        kind = next;
    }
    Some((at, len))
}

/// Writes a fresh IP header in front of a payload that came without one.
fn rebuild_header(
    buffer: &mut [u8],
    packet: &InboundPacket,
    payload: usize,
    end: usize,
    next_header: u8,
) -> Result<usize, DropCause> {
    let Arrival {
        source,
        destination,
        traffic_class,
        ..
    } = packet.arrival;
    let header_len = if source.is_ipv4() { 20 } else { 40 };
    let start = payload.checked_sub(header_len).ok_or(DropCause::NoRoom)?;
    if packet.start.saturating_sub(start) > packet.room_before {
        return Err(DropCause::NoRoom);
    }
    let bytes = buffer.get_mut(start..end).ok_or(DropCause::NoRoom)?;
    let ends = (source, destination);
    write_ip_header(
        bytes,
        ends,
        (traffic_class, REBUILT_HOPS),
        next_header,
        (true, 0),
    )
    .ok_or(DropCause::MalformedPacket)?;
    Ok(start)
}

/// Hops of a rebuilt header: the socket does not say how many were left.
const REBUILT_HOPS: u8 = 64;
