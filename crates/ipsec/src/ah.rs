//! What AH covers: an IP header with its mutable fields at zero (RFC 4302 §3.3.3.1, appendix A).

use crate::drops::DropCause;
use crate::ip::protocol;

/// Bytes of the header without its integrity value: next header, length, reserved, SPI, sequence.
pub const FIXED_LEN: usize = 12;

/// Bytes of the whole header. Its length is a multiple of 4 in IPv4 and of 8 in IPv6 (RFC 4302
/// §2.2).
pub const fn header_len(icv_len: usize, v6: bool) -> usize {
    (FIXED_LEN + icv_len).next_multiple_of(if v6 { 8 } else { 4 })
}

/// The value of the length field for a header of `len` bytes.
pub(crate) fn length_field(len: usize) -> Option<u8> {
    u8::try_from((len / 4).checked_sub(2)?).ok()
}

/// Bytes of a received header, by its length field.
pub(crate) const fn received_len(field: u8) -> usize {
    (field as usize + 2) * 4
}

/// Zeroes the mutable fields of all that stands in front of the AH header.
///
/// # Errors
/// [`DropCause::UnsupportedHeader`] for source routes and routing headers, whose final form we do
/// not work out; [`DropCause::MalformedPacket`] for options that contradict themselves.
pub(crate) fn zero_mutable_fields(headers: &mut [u8]) -> Result<(), DropCause> {
    match headers.first().map(|byte| byte >> 4) {
        Some(4) => zero_v4(headers),
        Some(6) => zero_v6(headers),
        _ => Err(DropCause::MalformedPacket),
    }
}

fn zero_v4(header: &mut [u8]) -> Result<(), DropCause> {
    let (fixed, mut options) = header
        .split_first_chunk_mut::<20>()
        .ok_or(DropCause::MalformedPacket)?;
    let [
        _,
        class,
        _,
        _,
        _,
        _,
        flags,
        offset,
        hops,
        _,
        sum_0,
        sum_1,
        ..,
    ] = fixed;
    for field in [class, flags, offset, hops, sum_0, sum_1] {
        *field = 0;
    }
    loop {
        // RFC 4302 appendix A1: these stay as they are, all others are zeroed whole.
        const IMMUTABLE: [u8; 6] = [130, 133, 134, 136, 148, 149];
        const SOURCE_ROUTES: [u8; 2] = [131, 137];
        let kind = match options.first() {
            None | Some(0) => return Ok(()),
            Some(1) => {
                options = options.get_mut(1..).unwrap_or_default();
                continue;
            }
            Some(kind) => *kind,
        };
        if SOURCE_ROUTES.contains(&kind) {
            return Err(DropCause::UnsupportedHeader);
        }
        let len = usize::from(*options.get(1).ok_or(DropCause::MalformedPacket)?);
        if len < 2 {
            return Err(DropCause::MalformedPacket);
        }
        let (option, rest) = options
            .split_at_mut_checked(len)
            .ok_or(DropCause::MalformedPacket)?;
        if !IMMUTABLE.contains(&kind) {
            option.fill(0);
        }
        options = rest;
    }
}

fn zero_v6(headers: &mut [u8]) -> Result<(), DropCause> {
    let (fixed, mut rest) = headers
        .split_first_chunk_mut::<40>()
        .ok_or(DropCause::MalformedPacket)?;
    let [version, class, flow_0, flow_1, _, _, next, hops, ..] = fixed;
    *version &= 0xF0;
    for field in [class, flow_0, flow_1, hops] {
        *field = 0;
    }
    let mut kind = *next;
    while !rest.is_empty() {
        let [next, len, ..] = *rest else {
            return Err(DropCause::MalformedPacket);
        };
        let size = 8 + usize::from(len) * 8;
        let (header, behind) = rest
            .split_at_mut_checked(size)
            .ok_or(DropCause::MalformedPacket)?;
        match kind {
            protocol::HOP_BY_HOP | protocol::DESTINATION => {
                zero_v6_options(header.get_mut(2..).unwrap_or_default())?;
            }
            _ => return Err(DropCause::UnsupportedHeader),
        }
        kind = next;
        rest = behind;
    }
    Ok(())
}

/// Options whose third-highest type bit is set may change on the way (RFC 8200 §4.2): their data
/// counts as zero.
fn zero_v6_options(mut options: &mut [u8]) -> Result<(), DropCause> {
    while let Some(kind) = options.first().copied() {
        if kind == 0 {
            options = options.get_mut(1..).unwrap_or_default();
            continue;
        }
        let len = usize::from(*options.get(1).ok_or(DropCause::MalformedPacket)?);
        let (option, rest) = options
            .split_at_mut_checked(2 + len)
            .ok_or(DropCause::MalformedPacket)?;
        if kind & 0x20 != 0 {
            option.get_mut(2..).unwrap_or_default().fill(0);
        }
        options = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        assert_eq!((header_len(12, false), header_len(12, true)), (24, 24));
        assert_eq!((header_len(16, false), header_len(16, true)), (28, 32));
        assert_eq!(length_field(24), Some(4));
        assert_eq!(received_len(4), 24);
    }

    #[test]
    fn v4_options_by_kind() {
        let mut header = hex::decode("4800002800010000401100000a0000010a000002").unwrap();
        // Router alert (immutable), record route (mutable), padding.
        header.extend([148, 4, 0, 9, 7, 6, 4, 1, 2, 3, 1, 0]);
        zero_mutable_fields(&mut header).unwrap();
        assert_eq!(header[20..], [148, 4, 0, 9, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(header[1], 0);
        assert_eq!(header[8], 0);
        assert_eq!(header[4..6], [0, 1], "the identification is covered");
        let mut routed = header.clone();
        routed[20] = 131;
        assert_eq!(
            zero_mutable_fields(&mut routed),
            Err(DropCause::UnsupportedHeader)
        );
        let mut endless = header.clone();
        endless[21] = 0;
        assert_eq!(
            zero_mutable_fields(&mut endless),
            Err(DropCause::MalformedPacket)
        );
    }

    #[test]
    fn v6_options_by_bit() {
        let mut headers = vec![0x6A, 0xBC, 1, 2, 0, 8, protocol::HOP_BY_HOP, 9];
        headers.extend([0xFD; 32]);
        headers.extend([protocol::AH, 0, 0x25, 1, 0xAA, 0x05, 1, 0xBB]);
        zero_mutable_fields(&mut headers).unwrap();
        assert_eq!(headers[..8], [0x60, 0, 0, 0, 0, 8, protocol::HOP_BY_HOP, 0]);
        assert_eq!(headers[40..], [protocol::AH, 0, 0x25, 1, 0, 0x05, 1, 0xBB]);
        headers[6] = protocol::ROUTING;
        assert_eq!(
            zero_mutable_fields(&mut headers),
            Err(DropCause::UnsupportedHeader)
        );
    }
}
