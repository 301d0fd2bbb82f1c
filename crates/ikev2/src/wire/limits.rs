//! Bounds of what is decoded.

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
