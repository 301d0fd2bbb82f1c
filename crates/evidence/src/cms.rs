//! Cryptographic Message Syntax, as far as sealed blocks and receipts need it (RFC 5652).
//!
//! * [`sign`] and [`SignedMessage::verify`]: `SignedData` with one signer and the signed attributes
//!   of CAdES-BES (ETSI EN 319 122-1): content-type, message-digest, signing-time and
//!   signing-certificate-v2 (RFC 5035).
//! * [`encrypt`] and [`EnvelopedMessage::decrypt`]: `AuthEnvelopedData` (RFC 5083) with AES-256-GCM
//!   (RFC 5084) to recipients by ephemeral-static ECDH (RFC 5753) or RSAES-OAEP (RFC 3560).
//!
//! Types come from the `cms` crate; verification and decryption are ours. Input must be DER: a
//! message is encoded again after parsing and refused if a byte differs, so every accepted message
//! has one form and a signature cannot be carried over to other bytes. What is *not* decided here
//! is whether the signer is to be trusted: that needs a trust store and a time, see `pki::path`.

mod encoding;
mod enveloped;
mod error;
mod ess;
mod kari;
mod ktri;
mod recipient;
mod signed;

pub use enveloped::{EnvelopedMessage, encrypt, parse_auth_enveloped_data};
pub use error::{CmsError, MAX_MESSAGE_LEN};
pub use recipient::RecipientKey;
pub use signed::{Placement, SignedMessage, Verified, parse_signed_data, sign};
