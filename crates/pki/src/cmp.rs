//! Messages of the Certificate Management Protocol (RFC 9810), in the lightweight profile (RFC 9483).
//!
//! [`Message::parse`] reads a request, [`Protection`] says how it is protected and verifies that, the body's
//! functions read what is asked for; [`Reply`] writes the answer. The bytes that are verified are those that came: nothing
//! is encoded anew for it. What a message means, and who may ask for it, is the registry's business.
//!
//! The types are our own, as the crate `cmpv2` for this generation of `der` refuses version 3 of the protocol, cannot
//! make error messages, and keeps no bytes as they came.

mod body;
mod failure;
mod mac;
mod message;
mod protection;
mod reply;
pub(crate) mod wire;

pub use self::body::{CertificateConfirmation, Revocation};
pub use self::failure::FailureInfo;
pub use self::mac::{MAX_ITERATIONS, Mac, MacError};
pub use self::message::{BodyKind, Envelope, MAX_MESSAGE, Message, MessageError};
pub use self::protection::{Protection, ProtectionError, SecretProtection};
pub use self::reply::{Protect, Reply, ReplyBody, ReplyError};
