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
mod error;
mod mschap;
mod mschapv2;
mod packet;
mod server;
mod session_key;
mod tls;

pub use client::{Client, ClientOutput};
pub use error::EapError;
pub use mschap::NtHash;
pub use server::{Server, ServerOutput};
pub use session_key::SessionKey;
pub use tls::TlsStep;
