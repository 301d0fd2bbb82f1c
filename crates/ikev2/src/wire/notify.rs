//! Notify and Delete payloads (RFC 7296 §3.10, §3.11).

use super::limits;
use super::reader::{DecodeError, Reader, Reason};
use super::registry::{NotifyType, Protocol};

/// A Notify payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// Protocol of the SA that is meant, if one is.
    pub protocol: Protocol,
    /// SPI of that SA: empty, 4 or 8 bytes.
    pub spi: Vec<u8>,
    /// Type of the notification.
    pub kind: NotifyType,
    /// Its data.
    pub data: Vec<u8>,
}

impl Notify {
    /// A notification about no Child SA, without data.
    pub const fn new(kind: NotifyType) -> Self {
        Self {
            protocol: Protocol::NONE,
            spi: Vec::new(),
            kind,
            data: Vec::new(),
        }
    }

    /// The same with data.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self
    }

    /// A notification about the ESP SA with this SPI.
    pub fn about_esp(kind: NotifyType, spi: u32) -> Self {
        Self {
            protocol: Protocol::ESP,
            spi: spi.to_be_bytes().to_vec(),
            kind,
            data: Vec::new(),
        }
    }

    /// The SPI, if it is one of ESP or AH.
    pub fn spi32(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.spi.as_slice().try_into().ok()?))
    }

    pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let protocol = Protocol(reader.u8("protocol")?);
        let spi_len = usize::from(reader.u8("SPI size")?);
        let kind = NotifyType(reader.u16("notify type")?);
        let spi = reader.take(spi_len, "SPI")?.to_vec();
        Ok(Self {
            protocol,
            spi,
            kind,
            data: reader.rest().to_vec(),
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend([
            self.protocol.0,
            u8::try_from(self.spi.len()).unwrap_or(u8::MAX),
        ]);
        out.extend(self.kind.0.to_be_bytes());
        out.extend(&self.spi);
        out.extend(&self.data);
    }
}

/// A Delete payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delete {
    /// The IKE SA that carries the message.
    Ike,
    /// ESP or AH SAs by the SPIs at which the sender receives.
    Children {
        /// ESP or AH.
        protocol: Protocol,
        /// The SPIs.
        spis: Vec<u32>,
    },
}

impl Delete {
    pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let protocol = Protocol(reader.u8("protocol")?);
        let spi_len = reader.u8("SPI size")?;
        let count = usize::from(reader.u16("SPI count")?);
        let delete = match (protocol, spi_len, count) {
            (Protocol::IKE, 0, 0) => Self::Ike,
            (Protocol::ESP | Protocol::AH, 4, _) => {
                if count > limits::SPIS {
                    return Err(reader.error(Reason::TooMany("SPIs")));
                }
                let spis = (0..count)
                    .map(|_| reader.u32("SPI"))
                    .collect::<Result<_, _>>()?;
                Self::Children { protocol, spis }
            }
            _ => return Err(reader.error(Reason::Invalid("delete"))),
        };
        reader.finish()?;
        Ok(delete)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ike => out.extend([Protocol::IKE.0, 0, 0, 0]),
            Self::Children { protocol, spis } => {
                out.extend([protocol.0, 4]);
                out.extend(u16::try_from(spis.len()).unwrap_or(u16::MAX).to_be_bytes());
                for spi in spis {
                    out.extend(spi.to_be_bytes());
                }
            }
        }
    }
}
