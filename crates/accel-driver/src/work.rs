//! Requests as descriptors.

use accel_abi::descriptor::Iv;
use accel_abi::{Algorithm, Descriptor, Mode, Operation, Status, TAG_MAX};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::layout::Layout;
use crate::request::{Failure, Message, Output, Request, RequestError};

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
    /// The descriptor of a request, without addresses and number; none if something in it is missing, or longer than the
    /// `buffer` for the source.
    pub(crate) fn new(request: &Request<'a>, buffer: usize) -> Option<Self> {
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
        if source > buffer || tag_bytes > TAG_MAX || !complete {
            return None;
        }
        let descriptor = Descriptor {
            operation,
            algorithm: message.algorithm,
            mode: message.mode,
            slot: message.slot,
            sequence: 0,
            source: 0,
            destination: 0,
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

    /// Puts the request at a place of the ring.
    pub(crate) fn at(mut self, layout: &Layout, base: u64, sequence: u32, index: u32) -> Self {
        let address = |offset: usize, length: u32| match length {
            0 => 0,
            _ => base + offset as u64,
        };
        let request = &mut self.descriptor;
        request.sequence = sequence;
        request.source = address(layout.source_list(index), request.source_length);
        let destination = layout.destination_list(index);
        request.destination = address(destination, request.destination_length);
        self
    }

    /// Returns the only completion that fits it.
    pub(crate) fn expected(&self) -> Expected {
        Expected {
            length: self.descriptor.destination_length,
            tag: self.tag.to_vec(),
            operation: self.descriptor.operation,
        }
    }
}

/// Lengths and kind that a completion must have.
pub(crate) struct Expected {
    /// Bytes of the result.
    pub(crate) length: u32,
    /// The tag to compare; empty for requests without one.
    tag: Vec<u8>,
    operation: Operation,
}

impl Expected {
    /// Holds an outcome against the request: none if there is a result, or the reason for which there is none.
    ///
    /// An error is what a working device does not do.
    pub(crate) fn refusal(
        &self,
        status: Status,
        produced: u32,
    ) -> Result<Option<RequestError>, Failure> {
        match status {
            Status::OK if produced != self.length => Err(Failure::Produced {
                expected: self.length,
                found: produced,
            }),
            Status::OK => Ok(None),
            Status::UNSUPPORTED | Status::BAD_LENGTH | Status::NO_KEY => {
                Ok(Some(RequestError::Refused(status)))
            }
            // Only numbers and keys made of them can be out of range.
            Status::BAD_OPERAND
                if matches!(
                    self.operation,
                    Operation::EXPONENTIATE | Operation::LOAD_KEY
                ) =>
            {
                Ok(Some(RequestError::Refused(status)))
            }
            Status::CORE_ALARM => Ok(Some(RequestError::CoreAlarm)),
            other => Err(Failure::Outcome(other)),
        }
    }

    /// Compares the tag, where there is one, in bytes that the device cannot reach any more.
    pub(crate) fn output(
        &self,
        mut bytes: Zeroizing<Vec<u8>>,
        cycles: u64,
    ) -> Result<Output, RequestError> {
        if !self.tag.is_empty() {
            let data = bytes.len().saturating_sub(self.tag.len());
            let computed = bytes.get(data..).unwrap_or(&[]);
            if !bool::from(computed.ct_eq(&self.tag)) {
                return Err(RequestError::Authentication);
            }
            bytes.truncate(data);
        }
        Ok(Output { bytes, cycles })
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
