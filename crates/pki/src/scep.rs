//! Messages of the Simple Certificate Enrolment Protocol (RFC 8894): signed by whoever asks, with the request encrypted
//! inside.
//!
//! ```text
//! bytes ─► Message ─► verify: the signer's key has signed ─► decrypt: AES by RSA key transport ─► certification request
//! certificate ─► encrypted to the signer ─► signed by the registration authority ─► Reply
//! ```
//!
//! Of the protocol's algorithms only AES in CBC mode and SHA-256 to SHA-512 are read; DES, triple DES, MD5 and SHA-1 are
//! refused. RSA key transport with PKCS#1 v1.5 is what clients of the protocol do: a padding that does not hold gives a
//! random key, so that a wrong key and a wrong text look the same. Who asks and what is granted is the registry's business.

mod attributes;
mod envelope;
mod message;
mod reply;

pub use self::envelope::{ContentCipher, Decrypted, EnvelopeError};
pub use self::message::{MAX_MESSAGE, Message, MessageError, MessageKind};
pub use self::reply::{FailInfo, Reply, ReplyBody, ReplyError};
