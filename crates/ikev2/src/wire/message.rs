//! Chains of payloads, clear and encrypted (RFC 7296 §3.2, §3.14; RFC 7383 §2.5).

use std::ops::Range;

use super::header::{HEADER_LEN, Header};
use super::limits;
use super::payload::Payload;
use super::reader::{DecodeError, Reader, Reason, patch_len16};
use super::registry::PayloadType;

const CRITICAL: u8 = 0x80;

/// The Encrypted or Encrypted Fragment payload of a message, not yet opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encrypted {
    /// Type of the first payload inside; none in fragments after the first.
    pub first: PayloadType,
    /// Bytes of the message in front of the initialisation vector: they are authenticated.
    pub associated: Range<usize>,
    /// Initialisation vector, ciphertext and integrity value.
    pub body: Range<usize>,
    /// Number and total of a fragment, counted from one.
    pub fragment: Option<(u16, u16)>,
}

/// A message split at its encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The header.
    pub header: Header,
    /// Payloads in the clear; in protected exchanges usually none, and never to be acted upon.
    pub clear: Vec<Payload>,
    /// Encrypted part.
    pub encrypted: Option<Encrypted>,
}

impl Datagram {
    /// Splits a message.
    ///
    /// # Errors
    /// Anything that is not a well-formed message of IKE version 2.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > limits::MESSAGE_BYTES {
            return Err(DecodeError {
                offset: 0,
                reason: Reason::TooMany("bytes"),
            });
        }
        let header = Header::parse(bytes)?;
        let mut reader = Reader::new(bytes, 0);
        reader.take(HEADER_LEN, "header")?;
        let mut clear = Vec::new();
        let mut kind = header.first;
        while kind != PayloadType::NONE {
            if matches!(kind, PayloadType::SK | PayloadType::SKF) {
                let encrypted = split_encrypted(kind, &mut reader)?;
                return Ok(Self {
                    header,
                    clear,
                    encrypted: Some(encrypted),
                });
            }
            let (payload, next) = decode_one(kind, clear.len(), &mut reader)?;
            clear.push(payload);
            kind = next;
        }
        reader.finish()?;
        Ok(Self {
            header,
            clear,
            encrypted: None,
        })
    }
}

fn split_encrypted(kind: PayloadType, reader: &mut Reader<'_>) -> Result<Encrypted, DecodeError> {
    let first = PayloadType(reader.u8("next payload")?);
    reader.u8("flags")?;
    let len = usize::from(reader.u16("payload length")?);
    // The Encrypted payload is the last one, so it must reach the end (§3.14).
    if len != reader.remaining().saturating_add(4) {
        return Err(reader.error(Reason::Length("encrypted payload")));
    }
    let fragment = if kind == PayloadType::SKF {
        let (number, total) = (
            reader.u16("fragment number")?,
            reader.u16("fragment total")?,
        );
        if number == 0 || number > total {
            return Err(reader.error(Reason::Invalid("fragment number")));
        }
        Some((number, total))
    } else {
        None
    };
    let start = reader.offset();
    let end = start.saturating_add(reader.remaining());
    Ok(Encrypted {
        first,
        associated: 0..start,
        body: start..end,
        fragment,
    })
}

fn decode_one(
    kind: PayloadType,
    seen: usize,
    reader: &mut Reader<'_>,
) -> Result<(Payload, PayloadType), DecodeError> {
    if seen >= limits::PAYLOADS {
        return Err(reader.error(Reason::TooMany("payloads")));
    }
    let next = PayloadType(reader.u8("next payload")?);
    let critical = reader.u8("payload flags")? & CRITICAL != 0;
    let len = usize::from(reader.u16("payload length")?);
    let Some(len) = len.checked_sub(4) else {
        return Err(reader.error(Reason::Length("payload")));
    };
    let body = reader.sub(len, "payload")?;
    Ok((Payload::decode(kind, critical, body)?, next))
}

/// Decodes a chain that starts with a payload of type `first`.
///
/// # Errors
/// Malformed or unknown critical payloads, more than [`limits::PAYLOADS`], or bytes behind the last.
pub fn decode_chain(first: PayloadType, bytes: &[u8]) -> Result<Vec<Payload>, DecodeError> {
    let mut reader = Reader::new(bytes, 0);
    let mut payloads = Vec::new();
    let mut kind = first;
    while kind != PayloadType::NONE {
        let (payload, next) = decode_one(kind, payloads.len(), &mut reader)?;
        payloads.push(payload);
        kind = next;
    }
    reader.finish()?;
    Ok(payloads)
}

/// Appends a chain to `out` and returns the type of its first payload.
pub fn encode_chain(payloads: &[Payload], out: &mut Vec<u8>) -> PayloadType {
    let kind_at = |index: usize| payloads.get(index).map_or(PayloadType::NONE, Payload::kind);
    for (index, payload) in payloads.iter().enumerate() {
        let start = out.len();
        out.extend([kind_at(index.saturating_add(1)).0, 0, 0, 0]);
        payload.encode(out);
        patch_len16(out, start, start.saturating_add(2));
    }
    kind_at(0)
}

/// A whole message without encryption.
pub fn encode_clear(header: Header, payloads: &[Payload]) -> Vec<u8> {
    let mut chain = Vec::new();
    let first = encode_chain(payloads, &mut chain);
    let total = HEADER_LEN.saturating_add(chain.len());
    let mut out = Header { first, ..header }.encode(total).to_vec();
    out.extend(chain);
    out
}
