//! Messages of a batch.
//!
//! A message that stays with software costs the policy a look at one number. For a batch that number is read once,
//! however many messages it has; each message is still held against it, so that sizes may be mixed.

use crate::software::{BLOCK, TAG};
use crate::stream::MessageError;

/// A message of AES-GCM. A batch sets tag and outcome when it is sealed, and the outcome when it is opened.
#[derive(Debug)]
pub struct AeadMessage<'a> {
    /// Nonce, used once with a key.
    pub nonce: [u8; 12],
    /// Associated data.
    pub aad: &'a [u8],
    /// The data, processed in place.
    pub data: &'a mut [u8],
    /// The tag.
    pub tag: [u8; TAG],
    /// The outcome of the last batch that it was in; `Ok` before.
    pub outcome: Result<(), MessageError>,
}

/// A message of AES in CBC or counter mode, with a vector of its own.
#[derive(Debug)]
pub struct CipherMessage<'a> {
    /// Vector, or first counter.
    pub iv: [u8; BLOCK],
    /// The data, processed in place.
    pub data: &'a mut [u8],
    /// The outcome of the last batch that it was in; `Ok` before.
    pub outcome: Result<(), MessageError>,
}

/// A message to sign by HMAC.
#[derive(Debug)]
pub struct MacMessage<'a> {
    /// The data.
    pub data: &'a [u8],
    /// Place for the tag, or for its beginning.
    pub tag: &'a mut [u8],
    /// The outcome of the last batch that it was in; `Ok` before.
    pub outcome: Result<(), MessageError>,
}
