//! EAP inside IKE_AUTH (RFC 7296 §2.16, RFC 3748): EAP-MSCHAPv2 and EAP-TLS, both sides.
//!
//! ```text
//! Server  Identity ──► method ──► Success (only with a session key)
//!                        └──────► Failure
//! Client  answers; believes Success only when its method has a session key and has seen the server's
//!         proof, so an early Success is worth nothing
//! ```
//!
//! A method without a session key is not spoken: the final AUTH payloads are made with the key, which is
//! what ties the exchange to the IKE SA. EAP-MSCHAPv2 is weak by itself (DES and MD4, a dictionary
//! attack finds the password); it is here because telephones and Windows have it, and it only runs
//! inside an IKE SA whose responder has proved itself with a certificate or a shared secret before.

mod client;
mod mschap;
mod mschapv2;
mod packet;
mod server;
mod tls;

use zeroize::Zeroizing;

pub use client::{Client, ClientOutput};
pub use mschap::NtHash;
pub use server::{Server, ServerOutput};
pub use tls::TlsStep;

use crate::config::Psk;

/// Exchanges of one method that we go through: EAP-TLS with large certificates in small fragments takes
/// about thirty.
const MAX_ROUNDS: u16 = 100;

/// The session key of a method (MSK), with which AUTH is made.
#[derive(Clone)]
pub struct SessionKey(Zeroizing<Vec<u8>>);

impl SessionKey {
    /// The key as a shared secret (RFC 7296 §2.16).
    pub fn into_psk(self) -> Psk {
        Psk(self.0)
    }
}

/// Why EAP ended without success. The peer gets no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EapError {
    /// Not as the documents want it.
    #[error("EAP: the peer broke the protocol ({0})")]
    Protocol(&'static str),
    /// Success came before the peer had proved itself.
    #[error("EAP: success without proof")]
    EarlySuccess,
    /// The server refused us.
    #[error("EAP: refused by the server")]
    Refused,
    /// Name or password is wrong, or there is no such user.
    #[error("EAP: wrong user or password ({0})")]
    Password(String),
    /// No method in common.
    #[error("EAP: no method in common")]
    Method,
    /// TLS failed.
    #[error("EAP-TLS: {0}")]
    Tls(String),
    /// The caller does not take the peer's certificate.
    #[error("EAP-TLS: certificate refused: {0}")]
    Certificate(String),
}
