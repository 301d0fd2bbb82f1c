//! Signed requests of the Automatic Certificate Management Environment (RFC 8555): JSON Web Signatures (RFC 7515) and keys
//! (RFC 7517), and what is asked for in them.
//!
//! ```text
//! bytes ─► SignedRequest ─► verify with the key of the account, or with the one that it brings ─► payload
//! ```
//!
//! Only what section 6.2 allows is read: the flattened form, a protected header of four members, one of the four
//! algorithms, and either a key or the address of an account. Who asks and what is granted is the registry's business.

mod base64url;
mod jwk;
mod jws;
mod payload;

pub use self::base64url::{from_base64url, to_base64url};
pub use self::jwk::{Jwk, JwkError};
pub use self::jws::{Binding, JwsError, KeyChange, MAX_REQUEST, SignedRequest, SigningKey};
pub use self::payload::{
    AccountUpdate, Finalize, Identifier, NewAccount, NewOrder, PayloadError, Revoke,
};
