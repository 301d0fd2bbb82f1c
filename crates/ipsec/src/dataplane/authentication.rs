//! The AH packets of a batch: integrity values over whole packets whose mutable fields are zero for
//! the moment.

use offload::mac::MacSlot;
use offload::{Authenticator, Slot};

use super::Scratch;
use super::inbound::last_name;
use crate::ah;

/// Writes the integrity values of the scratch's slots, each a whole IP packet.
pub(super) fn sign(mac: &Authenticator, buffer: &mut [u8], scratch: &mut Scratch) {
    with_zeroed_headers(buffer, scratch, |buffer, slots| mac.sign(buffer, slots));
}

/// Checks the integrity values of the scratch's slots and marks those that do not match.
pub(super) fn verify(mac: &Authenticator, buffer: &mut [u8], scratch: &mut Scratch) {
    let icv_len = mac.integrity().icv_len();
    with_zeroed_headers(buffer, scratch, |buffer, slots| {
        for slot in slots.iter_mut().filter(|slot| slot.packet.valid) {
            slot.packet.valid = has_icv(buffer, slot, icv_len).unwrap_or(false);
        }
        mac.verify(buffer, slots);
    });
}

/// Zeroes the mutable fields of all packets, calls `work`, and puts the fields back.
fn with_zeroed_headers(
    buffer: &mut [u8],
    scratch: &mut Scratch,
    work: impl FnOnce(&mut [u8], &mut [MacSlot]),
) {
    let Scratch {
        slots,
        mac_slots,
        saved,
        ..
    } = scratch;
    saved.clear();
    mac_slots.clear();
    for slot in slots.iter_mut() {
        let header = slot
            .valid
            .then(|| zeroed_headers(buffer, slot, saved))
            .flatten();
        slot.valid = header.is_some();
        mac_slots.push(MacSlot {
            packet: *slot,
            icv: header.unwrap_or(0) + ah::FIXED_LEN,
        });
    }
    work(buffer, mac_slots);
    restore(buffer, slots, mac_slots, saved);
    for (slot, done) in slots.iter_mut().zip(&*mac_slots) {
        slot.valid = done.packet.valid;
    }
}

/// Puts back what [`zeroed_headers`] put aside, in the same order. `slots` still say whose headers
/// those were.
fn restore(buffer: &mut [u8], slots: &[Slot], mac_slots: &[MacSlot], saved: &[u8]) {
    let mut rest = saved;
    for (slot, mac_slot) in slots.iter().zip(mac_slots).filter(|(slot, _)| slot.valid) {
        let len = mac_slot.icv - ah::FIXED_LEN - slot.start;
        let Some((headers, behind)) = rest.split_at_checked(len) else {
            return;
        };
        if let Some(place) = buffer.get_mut(slot.start..slot.start + len) {
            place.copy_from_slice(headers);
        }
        rest = behind;
    }
}

/// Whether the header is long enough for the value, but for its padding (RFC 4302 §3.3.3.2.1).
fn has_icv(buffer: &[u8], slot: &MacSlot, icv_len: usize) -> Option<bool> {
    let header = slot.icv.checked_sub(ah::FIXED_LEN)?;
    let len = ah::received_len(*buffer.get(header + 1)?);
    let (least, end) = (ah::FIXED_LEN + icv_len, slot.packet.range().end);
    Some(len >= least && len < least + 8 && header + len <= end)
}

/// Bytes of IP headers that are put aside for one packet; longer ones are refused.
const MAX_HEADERS: usize = 256;

/// Puts the headers of an AH packet aside and zeroes their mutable fields. Returns where the AH header
/// begins; none where it cannot be.
fn zeroed_headers(buffer: &mut [u8], slot: &Slot, saved: &mut Vec<u8>) -> Option<usize> {
    let packet = buffer.get_mut(slot.range())?;
    let (_, len) = last_name(packet)?;
    if len > MAX_HEADERS {
        return None;
    }
    let headers = packet.get_mut(..len)?;
    let at = saved.len();
    saved.extend_from_slice(headers);
    if ah::zero_mutable_fields(headers).is_err() {
        headers.copy_from_slice(saved.get(at..)?);
        saved.truncate(at);
        return None;
    }
    Some(slot.start + len)
}
