//! Requests as descriptors.

use accel_abi::descriptor::Iv;
use accel_abi::{Algorithm, Descriptor, Mode, Operation, TAG_MAX};

use crate::layout::Layout;
use crate::request::{Message, Request};

/// A request ready to be posted.
pub(crate) struct Work<'a> {
    pub(crate) descriptor: Descriptor,
    /// The source in its pieces.
    pub(crate) source: [&'a [u8]; 3],
    /// The tag to compare; empty for requests without one.
    pub(crate) tag: &'a [u8],
}

const NOTHING: &[u8] = &[];

/// A message without anything.
const NO_MESSAGE: Message<'static> = Message {
    algorithm: Algorithm(0),
    mode: Mode(0),
    slot: 0,
    iv: NOTHING,
    aad: NOTHING,
    data: NOTHING,
};

/// A message for a slot, without mode, vector and associated data.
fn plain(slot: u8, algorithm: Algorithm, data: &[u8]) -> Message<'_> {
    Message {
        algorithm,
        slot,
        data,
        ..NO_MESSAGE
    }
}

impl<'a> Work<'a> {
    /// The descriptor of a request; none if something in it is too long or missing.
    pub(crate) fn new(
        request: &Request<'a>,
        layout: &Layout,
        base: u64,
        sequence: u32,
        index: u32,
    ) -> Option<Self> {
        let (operation, message) = operation_and_message(request);
        let (tag, tag_bytes) = match *request {
            Request::Decrypt { tag, .. } | Request::VerifyTag { tag, .. } => (tag, tag.len()),
            Request::Encrypt { tag_length, .. } | Request::Authenticate { tag_length, .. } => {
                (NOTHING, usize::from(tag_length))
            }
            _ => (NOTHING, 0),
        };
        let exponent = match *request {
            Request::Power { exponent, .. } => exponent,
            _ => NOTHING,
        };
        let aad = message.aad.len() + exponent.len();
        let source = aad + message.data.len();
        let (source_needed, destination) = match operation {
            Operation::LOAD_KEY => (true, 0),
            Operation::ZEROISE_KEY => (false, 0),
            Operation::AUTHENTICATE => (true, tag_bytes),
            _ => (true, message.data.len() + tag_bytes),
        };
        let keys = matches!(operation, Operation::LOAD_KEY | Operation::ZEROISE_KEY);
        let complete = (source > 0 || !source_needed) && (destination > 0 || keys);
        if source > layout.buffer || tag_bytes > TAG_MAX || !complete {
            return None;
        }
        let address = |offset: usize, used: bool| if used { base + offset as u64 } else { 0 };
        let descriptor = Descriptor {
            operation,
            algorithm: message.algorithm,
            mode: message.mode,
            slot: message.slot,
            sequence,
            source: address(layout.source_list(index), source > 0),
            destination: address(layout.destination_list(index), destination > 0),
            source_length: u32::try_from(source).ok()?,
            aad_length: u32::try_from(aad).ok()?,
            destination_length: u32::try_from(destination).ok()?,
            iv: Iv::new(message.iv)?,
            tag_length: u8::try_from(tag_bytes).ok()?,
        };
        Some(Self {
            descriptor,
            source: [message.aad, exponent, message.data],
            tag,
        })
    }
}

fn operation_and_message<'a>(request: &Request<'a>) -> (Operation, Message<'a>) {
    match *request {
        Request::LoadKey {
            slot,
            algorithm,
            key,
        } => (Operation::LOAD_KEY, plain(slot, algorithm, key)),
        Request::ZeroiseKey { slot } => {
            (Operation::ZEROISE_KEY, plain(slot, Algorithm(0), NOTHING))
        }
        Request::Encrypt { message, .. } => (Operation::ENCRYPT, message),
        Request::Decrypt { message, .. } => (Operation::DECRYPT, message),
        Request::Authenticate {
            slot,
            algorithm,
            data,
            ..
        }
        | Request::VerifyTag {
            slot,
            algorithm,
            data,
            ..
        } => (Operation::AUTHENTICATE, plain(slot, algorithm, data)),
        Request::Power { modulus, base, .. } => {
            let message = plain(0, Algorithm::MODULAR, base);
            let aad = modulus;
            (Operation::EXPONENTIATE, Message { aad, ..message })
        }
        Request::RsaPrivate { slot, input } => {
            (Operation::EXPONENTIATE, plain(slot, Algorithm::RSA, input))
        }
    }
}
