//! Messages as bytes and as types (RFC 7296 §3).
//!
//! Decoding has two steps, because what is inside an Encrypted payload must not be looked at before
//! its integrity is checked: [`Datagram::parse`] splits the outer chain, [`decode_chain`] turns a
//! clear or an opened chain into [`Payload`]s. What is decoded encodes to the same bytes, apart from
//! reserved bits, which are sent as zero.
//!
//! Every list has a bound ([`limits`]); a message that exceeds one is refused as a whole.

mod header;
mod message;
mod notify;
mod payload;
mod proposal;
mod reader;
mod registry;
mod traffic;

pub use header::{Flags, HEADER_LEN, Header};
pub use message::{Datagram, Encrypted, decode_chain, encode_chain, encode_clear};
pub use notify::{Delete, Notify};
pub use payload::{
    Attribute, Authentication, CertRequest, Certificate, Configuration, Identification,
    KeyExchange, Payload,
};
pub use proposal::{Proposal, Transform};
pub use reader::{DecodeError, Reader, Reason};
pub use registry::{
    AttributeType, AuthMethod, CertEncoding, CfgType, EncrId, ExchangeType, HashId, IdType,
    IntegId, KeyExchangeId, NotifyType, PayloadType, PrfId, Protocol, TransformType,
};
pub use traffic::TrafficSelector;

/// Bounds of what is decoded.
pub mod limits {
    /// Longest message after reassembly, in bytes. Our choice: room for a long certificate chain.
    pub const MESSAGE_BYTES: usize = 65_535;
    /// Payloads in one message. Our choice: an IKE_AUTH with a chain has about 20.
    pub const PAYLOADS: usize = 64;
    /// Proposals in one SA payload. The number is one byte; peers send up to about ten.
    pub const PROPOSALS: usize = 32;
    /// Transforms in one proposal.
    pub const TRANSFORMS: usize = 64;
    /// Traffic selectors in one payload; the count is one byte.
    pub const SELECTORS: usize = 64;
    /// Attributes in one Configuration payload.
    pub const ATTRIBUTES: usize = 64;
    /// SPIs in one Delete payload.
    pub const SPIS: usize = 256;
    /// Longest nonce (RFC 7296 §2.10).
    pub const NONCE_MAX: usize = 256;
    /// Shortest nonce (RFC 7296 §2.10).
    pub const NONCE_MIN: usize = 16;
}
