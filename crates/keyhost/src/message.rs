//! Messages between a service and the process with its private keys.
//!
//! One message is one record of a `SOCK_SEQPACKET` socket: a byte for its kind, then its fields; numbers are
//! big-endian, texts and octets have their length in four bytes before them. There is no way to ask for
//! a private key, so a fault that sends whatever it likes gets signatures and no key.

use crate::algorithm::{KeyKind, SignatureScheme};

/// Bytes of a message at most. The longest that a service signs is IKE's, which begins with a whole first
/// message (RFC 7296 §2.15), and that fits a datagram.
pub(crate) const MAX_MESSAGE: usize = 96 * 1024;

/// Request of the service.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Take a key into service.
    Load {
        /// File, or `pkcs11:` URI.
        key: Vec<u8>,
        /// File with the passphrase or PIN.
        passphrase: Option<Vec<u8>>,
        /// Public half that it must have, DER SubjectPublicKeyInfo.
        public: Vec<u8>,
    },
    /// Read a certificate from a token.
    Certificate {
        /// `pkcs11:` URI.
        uri: Vec<u8>,
    },
    /// Read a public key from a token.
    PublicKey {
        /// `pkcs11:` URI.
        uri: Vec<u8>,
    },
    /// Sign a whole message.
    Sign {
        number: u32,
        scheme: SignatureScheme,
        message: Vec<u8>,
    },
    Forget {
        number: u32,
    },
}

/// Response of the process.
#[derive(Debug, PartialEq, Eq)]
pub enum Response {
    /// A key is in service.
    Key {
        number: u32,
        kind: KeyKind,
    },
    Signature(Vec<u8>),
    /// A certificate (DER).
    Certificate(Vec<u8>),
    /// A public key (DER SubjectPublicKeyInfo).
    PublicKey(Vec<u8>),
    Done,
    /// It is not done; why, for the operator.
    Refused(String),
}

/// Numbers on the wire are places in this list.
const SCHEMES: [SignatureScheme; 11] = [
    SignatureScheme::RsaPkcs1Sha256,
    SignatureScheme::RsaPkcs1Sha384,
    SignatureScheme::RsaPkcs1Sha512,
    SignatureScheme::RsaPssSha256,
    SignatureScheme::RsaPssSha384,
    SignatureScheme::RsaPssSha512,
    SignatureScheme::EcdsaP256,
    SignatureScheme::EcdsaP256Fixed,
    SignatureScheme::EcdsaP384,
    SignatureScheme::EcdsaP384Fixed,
    SignatureScheme::Ed25519,
];

const KINDS: [KeyKind; 4] = [
    KeyKind::Rsa,
    KeyKind::EcdsaP256,
    KeyKind::EcdsaP384,
    KeyKind::Ed25519,
];

fn place<T: PartialEq>(table: &[T], what: &T) -> Option<u8> {
    u8::try_from(table.iter().position(|entry| entry == what)?).ok()
}

/// Puts fields after one another.
struct Writer(Vec<u8>);

impl Writer {
    fn octets(mut self, octets: &[u8]) -> Option<Self> {
        let len = u32::try_from(octets.len()).ok()?;
        self.0.extend(len.to_be_bytes());
        self.0.extend(octets);
        Some(self)
    }

    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    fn end(self) -> Option<Vec<u8>> {
        (self.0.len() <= MAX_MESSAGE).then_some(self.0)
    }
}

/// Takes them off again.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn octets(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.number()?).ok()?;
        let (octets, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(octets.to_vec())
    }

    fn end<T>(self, what: T) -> Option<T> {
        self.0.is_empty().then_some(what)
    }
}

impl Request {
    /// As it is sent; none if it is too long.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let start = |kind| Writer(vec![kind]);
        match self {
            Self::Load {
                key,
                passphrase,
                public,
            } => {
                let writer = start(1).octets(key)?.octets(public)?;
                match passphrase {
                    Some(file) => writer.byte(1).octets(file)?.end(),
                    None => writer.byte(0).end(),
                }
            }
            Self::Certificate { uri } => start(4).octets(uri)?.end(),
            Self::PublicKey { uri } => start(5).octets(uri)?.end(),
            Self::Sign {
                number,
                scheme,
                message,
            } => {
                let scheme = place(&SCHEMES, scheme)?;
                start(2).number(*number).byte(scheme).octets(message)?.end()
            }
            Self::Forget { number } => start(3).number(*number).end(),
        }
    }

    /// Reads what [`Self::encode`] wrote; none if it is anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let request = match reader.byte()? {
            1 => Self::Load {
                key: reader.octets()?,
                public: reader.octets()?,
                passphrase: match reader.byte()? {
                    0 => None,
                    1 => Some(reader.octets()?),
                    _ => return None,
                },
            },
            2 => Self::Sign {
                number: reader.number()?,
                scheme: *SCHEMES.get(usize::from(reader.byte()?))?,
                message: reader.octets()?,
            },
            3 => Self::Forget {
                number: reader.number()?,
            },
            4 => Self::Certificate {
                uri: reader.octets()?,
            },
            5 => Self::PublicKey {
                uri: reader.octets()?,
            },
            _ => return None,
        };
        reader.end(request)
    }
}

impl Response {
    /// As it is sent; none if it is too long.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let start = |kind| Writer(vec![kind]);
        match self {
            Self::Key { number, kind } => {
                let kind = place(&KINDS, kind)?;
                start(1).number(*number).byte(kind).end()
            }
            Self::Certificate(der) => start(5).octets(der)?.end(),
            Self::PublicKey(der) => start(6).octets(der)?.end(),
            Self::Signature(signature) => start(2).octets(signature)?.end(),
            Self::Done => start(3).end(),
            Self::Refused(why) => start(4).octets(why.as_bytes())?.end(),
        }
    }

    /// Reads what [`Self::encode`] wrote; none if it is anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let response = match reader.byte()? {
            1 => Self::Key {
                number: reader.number()?,
                kind: *KINDS.get(usize::from(reader.byte()?))?,
            },
            2 => Self::Signature(reader.octets()?),
            3 => Self::Done,
            4 => Self::Refused(String::from_utf8(reader.octets()?).ok()?),
            5 => Self::Certificate(reader.octets()?),
            6 => Self::PublicKey(reader.octets()?),
            _ => return None,
        };
        reader.end(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let load = |passphrase| Request::Load {
            key: b"gateway.key".to_vec(),
            passphrase,
            public: vec![0x30; 91],
        };
        let mut all = vec![load(None), load(Some(b"secret".to_vec()))];
        all.extend(SCHEMES.map(|scheme| Request::Sign {
            number: 7,
            scheme,
            message: vec![9; 3],
        }));
        all.push(Request::Forget { number: u32::MAX });
        let uri = b"pkcs11:id=1".to_vec();
        all.push(Request::Certificate { uri: uri.clone() });
        all.push(Request::PublicKey { uri });
        all
    }

    fn responses() -> Vec<Response> {
        let mut all: Vec<Response> = KINDS.map(|kind| Response::Key { number: 1, kind }).into();
        all.push(Response::Signature(vec![1, 2]));
        all.push(Response::Certificate(vec![0x30]));
        all.push(Response::PublicKey(vec![0x30]));
        all.push(Response::Done);
        all.push(Response::Refused("no".into()));
        all
    }

    #[test]
    fn messages_round_trip_and_truncated_ones_are_refused() {
        for request in requests() {
            let bytes = request.encode().unwrap();
            assert_eq!(Request::decode(&bytes).as_ref(), Some(&request));
            for short in 0..bytes.len() {
                assert_eq!(Request::decode(&bytes[..short]), None, "{request:?}");
            }
            assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None);
        }
        for response in responses() {
            let bytes = response.encode().unwrap();
            assert_eq!(Response::decode(&bytes).as_ref(), Some(&response));
            for short in 0..bytes.len() {
                assert_eq!(Response::decode(&bytes[..short]), None, "{response:?}");
            }
            assert_eq!(Response::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn message_longer_than_the_bound_is_not_encoded() {
        let request = |len| Request::Sign {
            number: 0,
            scheme: SignatureScheme::Ed25519,
            message: vec![0; len],
        };
        assert!(request(MAX_MESSAGE - 10).encode().is_some());
        assert!(request(MAX_MESSAGE - 9).encode().is_none());
    }
}
