//! Security Association payload: proposals and transforms (RFC 7296 §3.3).

use super::limits;
use super::reader::{DecodeError, Reader, Reason, patch_len16};
use super::registry::{Protocol, TransformType};

/// Attribute "Key Length" in the short form (RFC 7296 §3.3.5).
const KEY_LENGTH: u16 = 0x8000 | 14;
const LAST: u8 = 0;
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;

/// One algorithm that may fill one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transform {
    /// The role.
    pub kind: TransformType,
    /// The algorithm's number within its role.
    pub id: u16,
    /// Bits of the key, for algorithms with several key sizes.
    pub key_bits: Option<u16>,
    /// Whether an attribute was present that we do not know; such a transform must not be chosen
    /// (RFC 7296 §3.3.6).
    pub unknown_attribute: bool,
}

impl Transform {
    /// A transform without attributes.
    pub const fn new(kind: TransformType, id: u16) -> Self {
        Self {
            kind,
            id,
            key_bits: None,
            unknown_attribute: false,
        }
    }

    /// The same with a key length in bits.
    #[must_use]
    pub const fn with_key_bits(mut self, bits: u16) -> Self {
        self.key_bits = Some(bits);
        self
    }

    fn decode(reader: &mut Reader<'_>) -> Result<(Self, bool), DecodeError> {
        let last = match reader.u8("transform")? {
            LAST => true,
            MORE_TRANSFORMS => false,
            _ => return Err(reader.error(Reason::Invalid("transform chaining"))),
        };
        reader.u8("transform")?;
        let len = usize::from(reader.u16("transform length")?);
        let Some(body) = len.checked_sub(4) else {
            return Err(reader.error(Reason::Length("transform")));
        };
        let mut body = reader.sub(body, "transform")?;
        let kind = TransformType(body.u8("transform type")?);
        body.u8("transform")?;
        let id = body.u16("transform ID")?;
        let mut transform = Self::new(kind, id);
        while body.remaining() > 0 {
            let attribute = body.u16("attribute type")?;
            let value = body.u16("attribute value")?;
            if attribute == KEY_LENGTH && transform.key_bits.is_none() {
                transform.key_bits = Some(value);
                continue;
            }
            transform.unknown_attribute = true;
            if attribute & 0x8000 == 0 {
                body.take(usize::from(value), "attribute")?;
            }
        }
        Ok((transform, last))
    }

    fn encode(&self, last: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([
            if last { LAST } else { MORE_TRANSFORMS },
            0,
            0,
            0,
            self.kind.0,
            0,
        ]);
        out.extend(self.id.to_be_bytes());
        if let Some(bits) = self.key_bits {
            out.extend(KEY_LENGTH.to_be_bytes());
            out.extend(bits.to_be_bytes());
        }
        patch_len16(out, start, start.saturating_add(2));
    }
}

/// One combination of algorithms on offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its number; the answer repeats it.
    pub number: u8,
    /// Protocol that is negotiated.
    pub protocol: Protocol,
    /// The offering side's SPI: 8 bytes for IKE (none in the first exchange), 4 for ESP and AH.
    pub spi: Vec<u8>,
    /// The algorithms; several of one type are alternatives.
    pub transforms: Vec<Transform>,
}

impl Proposal {
    /// The SPI of an ESP or AH proposal.
    pub fn spi32(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.spi.as_slice().try_into().ok()?))
    }

    /// The SPI of an IKE proposal.
    pub fn spi64(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.spi.as_slice().try_into().ok()?))
    }

    fn decode(reader: &mut Reader<'_>) -> Result<(Self, bool), DecodeError> {
        let last = match reader.u8("proposal")? {
            LAST => true,
            MORE_PROPOSALS => false,
            _ => return Err(reader.error(Reason::Invalid("proposal chaining"))),
        };
        reader.u8("proposal")?;
        let len = usize::from(reader.u16("proposal length")?);
        let Some(body) = len.checked_sub(4) else {
            return Err(reader.error(Reason::Length("proposal")));
        };
        let mut body = reader.sub(body, "proposal")?;
        let number = body.u8("proposal number")?;
        let protocol = Protocol(body.u8("protocol")?);
        let spi_len = usize::from(body.u8("SPI size")?);
        let count = usize::from(body.u8("transform count")?);
        if count > limits::TRANSFORMS {
            return Err(body.error(Reason::TooMany("transforms")));
        }
        let spi = body.take(spi_len, "SPI")?.to_vec();
        let mut transforms = Vec::with_capacity(count);
        for index in 1..=count {
            let (transform, end) = Transform::decode(&mut body)?;
            if end != (index == count) {
                return Err(body.error(Reason::Invalid("transform chaining")));
            }
            transforms.push(transform);
        }
        body.finish()?;
        Ok((
            Self {
                number,
                protocol,
                spi,
                transforms,
            },
            last,
        ))
    }

    fn encode(&self, last: bool, out: &mut Vec<u8>) {
        let start = out.len();
        let count = |len: usize| u8::try_from(len).unwrap_or(u8::MAX);
        out.extend([
            if last { LAST } else { MORE_PROPOSALS },
            0,
            0,
            0,
            self.number,
        ]);
        out.extend([
            self.protocol.0,
            count(self.spi.len()),
            count(self.transforms.len()),
        ]);
        out.extend(&self.spi);
        for (index, transform) in self.transforms.iter().enumerate() {
            transform.encode(index.saturating_add(1) == self.transforms.len(), out);
        }
        patch_len16(out, start, start.saturating_add(2));
    }
}

pub(super) fn decode_proposals(mut reader: Reader<'_>) -> Result<Vec<Proposal>, DecodeError> {
    let mut proposals = Vec::new();
    loop {
        if proposals.len() >= limits::PROPOSALS {
            return Err(reader.error(Reason::TooMany("proposals")));
        }
        let (proposal, last) = Proposal::decode(&mut reader)?;
        proposals.push(proposal);
        if last {
            reader.finish()?;
            return Ok(proposals);
        }
    }
}

pub(super) fn encode_proposals(proposals: &[Proposal], out: &mut Vec<u8>) {
    for (index, proposal) in proposals.iter().enumerate() {
        proposal.encode(index.saturating_add(1) == proposals.len(), out);
    }
}
