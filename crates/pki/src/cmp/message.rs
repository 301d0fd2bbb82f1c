//! Reading messages.

use der::asn1::BitString;
use der::{Decode, Reader, SliceReader, Tag, TagNumber};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::failure::FailureInfo;
use super::wire::{Header, ID_IMPLICIT_CONFIRM, sequence};

/// Largest message read, in bytes. One with an RSA 4096 key and a chain of two certificates has about 6 000.
pub const MAX_MESSAGE: usize = 24 * 1024;
/// Certificates beside a message at most: its signer's, and those above.
const MAX_EXTRA_CERTIFICATES: usize = 8;
/// Bytes of transaction identifiers and nonces: RFC 9483, section 3.1, has 16.
const IDENTIFIER_BYTES: std::ops::RangeInclusive<usize> = 16..=64;
/// Versions of the protocol: RFC 4210, and RFC 9480 with its successors.
const VERSIONS: std::ops::RangeInclusive<u8> = 2..=3;

/// The kind of a message, by the tag of its body (RFC 9810, section 5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// `ir`: a first certificate.
    Initialization,
    /// `cr`: another certificate.
    Certification,
    /// `p10cr`: a certificate, by a PKCS#10 request.
    Pkcs10,
    /// `kur`: a certificate for a new key in the place of the present one.
    KeyUpdate,
    /// `rr`: a revocation.
    Revocation,
    /// `certConf`: the holder has the certificate, or does not want it.
    Confirmation,
    /// Any other, which no requester sends here.
    Other(u8),
}

impl BodyKind {
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::Initialization,
            2 => Self::Certification,
            4 => Self::Pkcs10,
            7 => Self::KeyUpdate,
            11 => Self::Revocation,
            24 => Self::Confirmation,
            other => Self::Other(other),
        }
    }
}

/// Why a message cannot be read, or what is wrong with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("CMP message longer than {MAX_MESSAGE} bytes")]
    TooLong,
    /// Not a PKIMessage in DER.
    #[error("malformed CMP message")]
    Malformed,
    #[error("CMP version {0} is not supported, only 2 and 3")]
    Version(u8),
    #[error("the CMP message has no transaction identifier of 16 to 64 bytes")]
    TransactionId,
    #[error("the CMP message has no sender nonce of 16 to 64 bytes")]
    SenderNonce,
    #[error("the CMP message has no time")]
    Time,
}

impl MessageError {
    /// Code of the answer to the sender.
    #[must_use]
    pub const fn failure(self) -> FailureInfo {
        match self {
            Self::TooLong | Self::Malformed | Self::TransactionId => FailureInfo::BadDataFormat,
            Self::Version(_) => FailureInfo::UnsupportedVersion,
            Self::SenderNonce => FailureInfo::BadSenderNonce,
            Self::Time => FailureInfo::BadTime,
        }
    }
}

/// A message whose protection is not verified yet.
pub struct Message<'a> {
    pub(super) header: Header,
    pub(super) kind: BodyKind,
    /// Content of the body's tag, in DER.
    pub(super) content: &'a [u8],
    /// The bytes that the protection is over (RFC 9810, section 5.1.3).
    pub(super) protected: Vec<u8>,
    pub(super) protection: Option<BitString>,
    /// The signer's certificate, and those above it.
    extra_certificates: Vec<CertificateDer<'a>>,
}

/// The contents of a sound header.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    pub transaction_id: &'a [u8],
    pub sender_nonce: &'a [u8],
    /// The nonce of ours that it answers.
    pub recipient_nonce: Option<&'a [u8]>,
    pub time: OffsetDateTime,
    /// Name of the key with which it is protected.
    pub sender_kid: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Reads a message in DER.
    ///
    /// # Errors
    /// [`MessageError::TooLong`] or [`MessageError::Malformed`].
    pub fn parse(der: &'a [u8]) -> Result<Self, MessageError> {
        if der.len() > MAX_MESSAGE {
            return Err(MessageError::TooLong);
        }
        Self::read(der).map_err(|_| MessageError::Malformed)
    }

    fn read(der: &'a [u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(der)?;
        let message = reader.sequence(|reader| {
            let header = reader.tlv_bytes()?;
            let body = reader.tlv_bytes()?;
            let protection = reader.context_specific(TagNumber::N0, der::TagMode::Explicit)?;
            let certificates = match reader.is_finished() {
                true => None,
                false => Some(reader.tlv_bytes()?),
            };
            Ok((header, body, protection, certificates))
        })?;
        let (header, body, protection, certificates) = reader.finish(message)?;
        let (number, content) = tagged(body)?;
        Ok(Self {
            protected: sequence(&[header, body])?,
            header: Header::from_der(header)?,
            kind: BodyKind::of(number),
            content,
            protection,
            extra_certificates: match certificates {
                Some(der) => extra_certificates(der)?,
                None => Vec::new(),
            },
        })
    }

    #[must_use]
    pub const fn kind(&self) -> BodyKind {
        self.kind
    }

    /// Checks what every message has to say of itself.
    ///
    /// # Errors
    /// [`MessageError`], one variant per reason.
    pub fn envelope(&self) -> Result<Envelope<'_>, MessageError> {
        let header = &self.header;
        if !VERSIONS.contains(&header.pvno) {
            return Err(MessageError::Version(header.pvno));
        }
        let transaction_id = identifier(header.transaction_id.as_ref());
        let sender_nonce = identifier(header.sender_nonce.as_ref());
        let time = header.message_time.ok_or(MessageError::Time)?;
        let time = i64::try_from(time.to_unix_duration().as_secs())
            .ok()
            .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
            .ok_or(MessageError::Time)?;
        Ok(Envelope {
            transaction_id: transaction_id.ok_or(MessageError::TransactionId)?,
            sender_nonce: sender_nonce.ok_or(MessageError::SenderNonce)?,
            recipient_nonce: octets(header.recipient_nonce.as_ref()),
            time,
            sender_kid: octets(header.sender_kid.as_ref()),
        })
    }

    /// Whether the sender would do without confirming the certificate (RFC 9810, section 5.1.1.1).
    #[must_use]
    pub fn wants_implicit_confirm(&self) -> bool {
        let mut information = self.header.general_info.iter().flatten();
        information.any(|one| one.oid == ID_IMPLICIT_CONFIRM)
    }

    /// The signer's certificate, which comes first (RFC 9483, section 3.3).
    #[must_use]
    pub fn signer(&self) -> Option<&CertificateDer<'a>> {
        self.extra_certificates.first()
    }
}

fn octets(field: Option<&der::asn1::OctetString>) -> Option<&[u8]> {
    field.map(der::asn1::OctetString::as_bytes)
}

fn identifier(field: Option<&der::asn1::OctetString>) -> Option<&[u8]> {
    octets(field).filter(|bytes| IDENTIFIER_BYTES.contains(&bytes.len()))
}

/// Number and content of an explicit tag, which holds one value.
fn tagged(der: &[u8]) -> der::Result<(u8, &[u8])> {
    let mut reader = SliceReader::new(der)?;
    let header = der::Header::decode(&mut reader)?;
    let Tag::ContextSpecific {
        constructed: true,
        number,
    } = header.tag
    else {
        return Err(header.tag.value_error());
    };
    let content = reader.read_slice(header.length)?;
    reader.finish(())?;
    // One value and nothing after it.
    let mut inner = SliceReader::new(content)?;
    inner.tlv_bytes()?;
    inner.finish(())?;
    Ok((number.value(), content))
}

fn extra_certificates(der: &[u8]) -> der::Result<Vec<CertificateDer<'_>>> {
    let (number, content) = tagged(der)?;
    if number != 1 {
        return Err(Tag::Sequence.value_error());
    }
    let mut reader = SliceReader::new(content)?;
    let certificates = reader.sequence(|reader| {
        let mut certificates = Vec::new();
        while !reader.is_finished() {
            if certificates.len() >= MAX_EXTRA_CERTIFICATES {
                return Err(Tag::Sequence.length_error());
            }
            certificates.push(CertificateDer::from(reader.tlv_bytes()?));
        }
        Ok(certificates)
    })?;
    reader.finish(certificates)
}
