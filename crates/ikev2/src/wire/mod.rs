//! Messages as bytes and as types (RFC 7296 §3).
//!
//! Decoding has two steps, because what is inside an Encrypted payload must not be looked at before
//! its integrity is checked: [`Datagram::parse`] splits the outer chain, [`decode_chain`] turns a
//! clear or an opened chain into [`Payload`]s. What is decoded encodes to the same bytes, apart from
//! reserved bits, which are sent as zero.
//!
//! Every list has a bound ([`limits`]); a message that exceeds one is refused as a whole.

mod header;
pub mod limits;
mod message;
mod notify;
mod payload;
mod proposal;
mod reader;
mod registry;
mod traffic;

pub use header::{Flags, HEADER_LEN, Header, is_first_of_version_1};
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
