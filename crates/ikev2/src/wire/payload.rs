//! The payloads (RFC 7296 §3.4 to §3.16).

use super::limits;
use super::notify::{Delete, Notify};
use super::proposal::{Proposal, decode_proposals, encode_proposals};
use super::reader::{DecodeError, Reader, Reason};
use super::registry::{
    AttributeType, AuthMethod, CertEncoding, CfgType, IdType, KeyExchangeId, PayloadType,
};
use super::traffic::{TrafficSelector, decode_selectors, encode_selectors};

/// A Key Exchange payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyExchange {
    /// The method.
    pub method: KeyExchangeId,
    /// The public value, encapsulation key or ciphertext.
    pub data: Vec<u8>,
}

/// Identity of a side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identification {
    /// Type of the data.
    pub kind: IdType,
    /// Name, address or DER.
    pub data: Vec<u8>,
}

impl Identification {
    /// A domain name.
    pub fn fqdn(name: &str) -> Self {
        Self {
            kind: IdType::FQDN,
            data: name.as_bytes().to_vec(),
        }
    }

    /// The payload without its generic header, as it goes into AUTH (RFC 7296 §2.15).
    pub fn body(&self) -> Vec<u8> {
        let mut out = vec![self.kind.0, 0, 0, 0];
        out.extend(&self.data);
        out
    }
}

impl std::fmt::Display for Identification {
    /// Type and data; anything but printable ASCII is escaped, since the peer chooses it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.kind)?;
        match self.kind {
            IdType::FQDN | IdType::RFC822_ADDR | IdType::KEY_ID => {
                write!(f, "{}", self.data.escape_ascii())
            }
            _ => self
                .data
                .iter()
                .try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// A certificate, or something else of that kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Encoding of the certificate.
    pub encoding: CertEncoding,
    /// For X.509 the DER.
    pub data: Vec<u8>,
}

/// A request for certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertRequest {
    /// Encoding of the certificates asked for.
    pub encoding: CertEncoding,
    /// For X.509: SHA-1 hashes of the trusted authorities' public keys, 20 bytes each.
    pub authorities: Vec<u8>,
}

/// Proof of identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// Method of the proof.
    pub method: AuthMethod,
    /// The proof.
    pub data: Vec<u8>,
}

/// One attribute of a Configuration payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Type of the attribute.
    pub kind: AttributeType,
    /// Its value; empty in requests that leave the choice to the peer.
    pub value: Vec<u8>,
}

/// A Configuration payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Request, reply, set or acknowledgement.
    pub kind: CfgType,
    /// The attributes.
    pub attributes: Vec<Attribute>,
}

/// Any payload that may stand in a clear or opened chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Proposals.
    Sa(Vec<Proposal>),
    /// Key exchange data.
    Ke(KeyExchange),
    /// Identity of the initiator.
    IdI(Identification),
    /// Identity of the responder.
    IdR(Identification),
    /// A certificate.
    Cert(Certificate),
    /// A request for certificates.
    CertReq(CertRequest),
    /// Proof of identity.
    Auth(Authentication),
    /// A nonce of 16 to 256 bytes.
    Nonce(Vec<u8>),
    /// A notification.
    Notify(Notify),
    /// SAs that are gone.
    Delete(Delete),
    /// A vendor's mark.
    Vendor(Vec<u8>),
    /// Traffic of the initiator's side.
    TsI(Vec<TrafficSelector>),
    /// Traffic of the responder's side.
    TsR(Vec<TrafficSelector>),
    /// Addresses and names.
    Cp(Configuration),
    /// An EAP message.
    Eap(Vec<u8>),
    /// Keys that solve a puzzle (RFC 8019 §8.2).
    PuzzleSolution(Vec<u8>),
    /// A payload that we do not know and may skip (not critical).
    Unknown(PayloadType, Vec<u8>),
}

impl Payload {
    /// The type in the chain.
    pub const fn kind(&self) -> PayloadType {
        match self {
            Self::Sa(_) => PayloadType::SA,
            Self::Ke(_) => PayloadType::KE,
            Self::IdI(_) => PayloadType::IDI,
            Self::IdR(_) => PayloadType::IDR,
            Self::Cert(_) => PayloadType::CERT,
            Self::CertReq(_) => PayloadType::CERTREQ,
            Self::Auth(_) => PayloadType::AUTH,
            Self::Nonce(_) => PayloadType::NONCE,
            Self::Notify(_) => PayloadType::NOTIFY,
            Self::Delete(_) => PayloadType::DELETE,
            Self::Vendor(_) => PayloadType::VENDOR,
            Self::TsI(_) => PayloadType::TSI,
            Self::TsR(_) => PayloadType::TSR,
            Self::Cp(_) => PayloadType::CP,
            Self::Eap(_) => PayloadType::EAP,
            Self::PuzzleSolution(_) => PayloadType::PUZZLE_SOLUTION,
            Self::Unknown(kind, _) => *kind,
        }
    }

    pub(super) fn decode(
        kind: PayloadType,
        critical: bool,
        mut body: Reader<'_>,
    ) -> Result<Self, DecodeError> {
        Ok(match kind {
            PayloadType::SA => Self::Sa(decode_proposals(body)?),
            PayloadType::KE => {
                let method = KeyExchangeId(body.u16("key exchange method")?);
                body.take(2, "reserved bytes")?;
                Self::Ke(KeyExchange {
                    method,
                    data: body.rest().to_vec(),
                })
            }
            PayloadType::IDI => Self::IdI(decode_id(body)?),
            PayloadType::IDR => Self::IdR(decode_id(body)?),
            PayloadType::CERT => Self::Cert(Certificate {
                encoding: CertEncoding(body.u8("certificate encoding")?),
                data: body.rest().to_vec(),
            }),
            PayloadType::CERTREQ => Self::CertReq(CertRequest {
                encoding: CertEncoding(body.u8("certificate encoding")?),
                authorities: body.rest().to_vec(),
            }),
            PayloadType::AUTH => {
                let method = AuthMethod(body.u8("authentication method")?);
                body.take(3, "reserved bytes")?;
                Self::Auth(Authentication {
                    method,
                    data: body.rest().to_vec(),
                })
            }
            PayloadType::NONCE => {
                let valid = (limits::NONCE_MIN..=limits::NONCE_MAX).contains(&body.remaining());
                if !valid {
                    return Err(body.error(Reason::Length("nonce")));
                }
                Self::Nonce(body.rest().to_vec())
            }
            PayloadType::NOTIFY => Self::Notify(Notify::decode(body)?),
            PayloadType::DELETE => Self::Delete(Delete::decode(body)?),
            PayloadType::VENDOR => Self::Vendor(body.rest().to_vec()),
            PayloadType::TSI => Self::TsI(decode_selectors(body)?),
            PayloadType::TSR => Self::TsR(decode_selectors(body)?),
            PayloadType::CP => Self::Cp(decode_configuration(body)?),
            PayloadType::EAP => Self::Eap(body.rest().to_vec()),
            PayloadType::PUZZLE_SOLUTION => Self::PuzzleSolution(body.rest().to_vec()),
            PayloadType::SK | PayloadType::SKF | PayloadType::NONE => {
                return Err(body.error(Reason::Invalid("place of a payload")));
            }
            _ if critical => return Err(body.error(Reason::UnknownCritical(kind.0))),
            _ => Self::Unknown(kind, body.rest().to_vec()),
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sa(proposals) => encode_proposals(proposals, out),
            Self::Ke(ke) => {
                out.extend(ke.method.0.to_be_bytes());
                out.extend([0, 0]);
                out.extend(&ke.data);
            }
            Self::IdI(id) | Self::IdR(id) => out.extend(id.body()),
            Self::Cert(cert) => {
                out.push(cert.encoding.0);
                out.extend(&cert.data);
            }
            Self::CertReq(request) => {
                out.push(request.encoding.0);
                out.extend(&request.authorities);
            }
            Self::Auth(auth) => {
                out.extend([auth.method.0, 0, 0, 0]);
                out.extend(&auth.data);
            }
            Self::Notify(notify) => notify.encode(out),
            Self::Delete(delete) => delete.encode(out),
            Self::TsI(selectors) | Self::TsR(selectors) => encode_selectors(selectors, out),
            Self::Cp(configuration) => encode_configuration(configuration, out),
            Self::Nonce(data)
            | Self::Vendor(data)
            | Self::Eap(data)
            | Self::PuzzleSolution(data)
            | Self::Unknown(_, data) => out.extend(data),
        }
    }
}

fn decode_id(mut body: Reader<'_>) -> Result<Identification, DecodeError> {
    let kind = IdType(body.u8("identification type")?);
    body.take(3, "reserved bytes")?;
    Ok(Identification {
        kind,
        data: body.rest().to_vec(),
    })
}

fn decode_configuration(mut body: Reader<'_>) -> Result<Configuration, DecodeError> {
    let kind = CfgType(body.u8("configuration type")?);
    body.take(3, "reserved bytes")?;
    let mut attributes = Vec::new();
    while body.remaining() > 0 {
        if attributes.len() >= limits::ATTRIBUTES {
            return Err(body.error(Reason::TooMany("attributes")));
        }
        // The top bit is reserved and ignored.
        let kind = AttributeType(body.u16("attribute type")? & 0x7fff);
        let len = usize::from(body.u16("attribute length")?);
        attributes.push(Attribute {
            kind,
            value: body.take(len, "attribute")?.to_vec(),
        });
    }
    Ok(Configuration { kind, attributes })
}

fn encode_configuration(configuration: &Configuration, out: &mut Vec<u8>) {
    out.extend([configuration.kind.0, 0, 0, 0]);
    for attribute in &configuration.attributes {
        out.extend(attribute.kind.0.to_be_bytes());
        out.extend(
            u16::try_from(attribute.value.len())
                .unwrap_or(u16::MAX)
                .to_be_bytes(),
        );
        out.extend(&attribute.value);
    }
}
