//! EAP packets (RFC 3748 §4).

use super::error::EapError;

/// Exchanges of one method that we go through: EAP-TLS with large certificates in small fragments takes
/// about thirty.
pub(super) const MAX_ROUNDS: u16 = 100;
use crate::wire::Reader;

pub(super) const REQUEST: u8 = 1;
pub(super) const RESPONSE: u8 = 2;
pub(super) const SUCCESS: u8 = 3;
pub(super) const FAILURE: u8 = 4;

pub(super) const IDENTITY: u8 = 1;
pub(super) const NOTIFICATION: u8 = 2;
pub(super) const NAK: u8 = 3;
pub(super) const TLS: u8 = 13;
pub(super) const MSCHAPV2: u8 = 26;

/// A packet; success and failure have neither type nor data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) code: u8,
    pub(super) id: u8,
    pub(super) kind: u8,
    pub(super) data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a packet. Bytes behind its length are padding and ignored (§4.1).
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, EapError> {
        let broken = |_| EapError::Protocol("packet");
        let mut reader = Reader::new(bytes, 0);
        let code = reader.u8("code").map_err(broken)?;
        let id = reader.u8("identifier").map_err(broken)?;
        let len = usize::from(reader.u16("length").map_err(broken)?);
        let body = len.checked_sub(4).ok_or(EapError::Protocol("length"))?;
        let mut body = reader.sub(body, "body").map_err(broken)?;
        match code {
            REQUEST | RESPONSE => Ok(Self {
                code,
                id,
                kind: body.u8("type").map_err(broken)?,
                data: body.rest(),
            }),
            SUCCESS | FAILURE => Ok(Self {
                code,
                id,
                kind: 0,
                data: &[],
            }),
            _ => Err(EapError::Protocol("code")),
        }
    }
}

/// A request or response. Its data must fit into 65 530 bytes; all of ours have fewer than 2000.
pub(super) fn encode(code: u8, id: u8, kind: u8, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len().saturating_add(5)).unwrap_or(u16::MAX);
    let [high, low] = len.to_be_bytes();
    [&[code, id, high, low, kind], data].concat()
}

pub(super) const fn end(code: u8, id: u8) -> [u8; 4] {
    [code, id, 0, 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_and_lengths_are_checked() {
        let bytes = encode(REQUEST, 7, TLS, b"data");
        let packet = Packet::decode(&bytes).unwrap();
        assert_eq!((packet.code, packet.id, packet.kind), (REQUEST, 7, TLS));
        assert_eq!(packet.data, b"data");
        let padded = [&bytes[..], &[0; 3]].concat();
        assert_eq!(Packet::decode(&padded).unwrap(), packet);
        for len in 0..bytes.len() {
            assert!(Packet::decode(&bytes[..len]).is_err());
        }
        assert!(Packet::decode(&[REQUEST, 1, 0, 4]).is_err());
        assert!(Packet::decode(&[REQUEST, 1, 0, 3, 0]).is_err());
        assert!(Packet::decode(&[9, 1, 0, 5, 1]).is_err());
        assert_eq!(Packet::decode(&end(SUCCESS, 3)).unwrap().code, SUCCESS);
    }
}
