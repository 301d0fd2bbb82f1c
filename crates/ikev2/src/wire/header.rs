//! The IKE header (RFC 7296 §3.1).

use super::reader::{DecodeError, Reader, Reason};
use super::registry::{ExchangeType, PayloadType};
use crate::types::SpiPair;

/// Bytes of the header.
pub const HEADER_LEN: usize = 28;

const VERSION_2_0: u8 = 0x20;

/// The flags byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// The sender created the IKE SA; decides whose SPI is which and which keys apply.
    pub initiator: bool,
    /// The message answers a request.
    pub response: bool,
}

impl Flags {
    const INITIATOR: u8 = 0x08;
    const RESPONSE: u8 = 0x20;

    const fn from_byte(byte: u8) -> Self {
        // The version flag says that the sender speaks more than 2; RFC 7296 wants it ignored.
        Self {
            initiator: byte & Self::INITIATOR != 0,
            response: byte & Self::RESPONSE != 0,
        }
    }

    const fn to_byte(self) -> u8 {
        let mut byte = 0;
        if self.initiator {
            byte |= Self::INITIATOR;
        }
        if self.response {
            byte |= Self::RESPONSE;
        }
        byte
    }
}

/// A message header without the length, which follows from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// SPI of the IKE SA's initiator; never zero.
    pub spi_i: u64,
    /// SPI of the responder; zero in the first request.
    pub spi_r: u64,
    /// Type of the first payload.
    pub first: PayloadType,
    /// The exchange.
    pub exchange: ExchangeType,
    /// Direction.
    pub flags: Flags,
    /// Number of the request.
    pub message_id: u32,
}

/// Whether a message begins an exchange of IKE version 1, in main or aggressive mode (RFC 2408 §3.1): the peer is
/// of another time, and nobody who forges.
pub fn is_first_of_version_1(bytes: &[u8]) -> bool {
    const MAIN: u8 = 2;
    const AGGRESSIVE: u8 = 4;
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return false;
    };
    let cookies = header.split_first_chunk::<8>();
    let is_first =
        cookies.is_some_and(|(initiator, rest)| *initiator != [0; 8] && rest.starts_with(&[0; 8]));
    let is_one = matches!(header.get(17..19), Some([0x10, MAIN | AGGRESSIVE]));
    let len = header.last_chunk::<4>().map(|len| u32::from_be_bytes(*len));
    is_first && is_one && len.and_then(|len| usize::try_from(len).ok()) == Some(bytes.len())
}

impl Header {
    /// The SPIs of both sides.
    pub const fn spis(&self) -> SpiPair {
        SpiPair {
            initiator: self.spi_i,
            responder: self.spi_r,
        }
    }

    /// Reads a header whose length field must cover exactly `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, 0);
        let spi_i = reader.u64("initiator SPI")?;
        let spi_r = reader.u64("responder SPI")?;
        let first = PayloadType(reader.u8("next payload")?);
        let version = reader.u8("version")?;
        let exchange = ExchangeType(reader.u8("exchange type")?);
        let flags = Flags::from_byte(reader.u8("flags")?);
        let message_id = reader.u32("message ID")?;
        let length = reader.u32("length")?;
        // A higher minor version is ours to ignore (§2.5); a higher major version is not.
        if version >> 4 != VERSION_2_0 >> 4 {
            return Err(DecodeError {
                offset: 17,
                reason: Reason::MajorVersion(version >> 4),
            });
        }
        if usize::try_from(length) != Ok(bytes.len()) {
            return Err(DecodeError {
                offset: 24,
                reason: Reason::Length("message"),
            });
        }
        if spi_i == 0 {
            return Err(DecodeError {
                offset: 0,
                reason: Reason::Invalid("initiator SPI"),
            });
        }
        Ok(Self {
            spi_i,
            spi_r,
            first,
            exchange,
            flags,
            message_id,
        })
    }

    /// The header of a message of `total` bytes, itself included.
    pub fn encode(&self, total: usize) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let length = u32::try_from(total).unwrap_or(u32::MAX);
        let fields: [&[u8]; 5] = [
            &self.spi_i.to_be_bytes(),
            &self.spi_r.to_be_bytes(),
            &[
                self.first.0,
                VERSION_2_0,
                self.exchange.0,
                self.flags.to_byte(),
            ],
            &self.message_id.to_be_bytes(),
            &length.to_be_bytes(),
        ];
        for (place, byte) in out.iter_mut().zip(fields.into_iter().flatten()) {
            *place = *byte;
        }
        out
    }
}
