//! Requests, results, and everything that can be wrong with them.

use accel_abi::{Algorithm, Mode, Status};
use zeroize::Zeroizing;

/// A message to encrypt or decrypt.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Cipher of the slot's key.
    pub algorithm: Algorithm,
    /// Mode of operation of the cipher.
    pub mode: Mode,
    /// Key slot, loaded before.
    pub slot: u8,
    /// Initialisation vector, as long as the mode wants it.
    pub iv: &'a [u8],
    /// Associated data; only with GCM and CCM.
    pub aad: &'a [u8],
    /// The data, without a tag.
    pub data: &'a [u8],
}

/// Work for the device.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Puts a key into a slot.
    LoadKey {
        /// The slot, below 16.
        slot: u8,
        /// The cipher that it is for.
        algorithm: Algorithm,
        /// The bytes of the key.
        key: &'a [u8],
    },
    /// Overwrites the key of a slot.
    ZeroiseKey {
        /// The slot, below 16.
        slot: u8,
    },
    /// Encrypts; with a tag length the result ends in a tag.
    Encrypt {
        /// The message to process.
        message: Message<'a>,
        /// Bytes of the tag; zero for modes without one.
        tag_length: u8,
    },
    /// Decrypts; with a tag the result is given only if the tag is right.
    Decrypt {
        /// The message to process.
        message: Message<'a>,
        /// The tag that came with it; empty for modes without one.
        tag: &'a [u8],
    },
    /// Computes an HMAC.
    Authenticate {
        /// Key slot, loaded before.
        slot: u8,
        /// The slot's algorithm, with a hash.
        algorithm: Algorithm,
        /// The message, at least a byte.
        data: &'a [u8],
        /// Bytes of the tag, at least half of the hash.
        tag_length: u8,
    },
    /// Computes an HMAC and compares it; the result is empty.
    VerifyTag {
        /// Key slot, loaded before.
        slot: u8,
        /// The slot's algorithm, with a hash.
        algorithm: Algorithm,
        /// The message, at least a byte.
        data: &'a [u8],
        /// The tag that came with it.
        tag: &'a [u8],
    },
    /// Raises a number to a power. The result can be as wrong as the device is: whoever can check
    /// it otherwise should.
    Power {
        /// An odd modulus, the highest byte first.
        modulus: &'a [u8],
        /// A number less than the modulus and as long.
        base: &'a [u8],
        /// The exponent, 1 to 512 bytes.
        exponent: &'a [u8],
    },
    /// RSA's private operation without any encoding, with the key of a slot.
    RsaPrivate {
        /// Key slot, loaded before.
        slot: u8,
        /// A number less than the modulus and as long, the highest byte first.
        input: &'a [u8],
    },
}

/// Number of a request, in the order of their submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Result of a request that was done.
#[derive(Clone, PartialEq, Eq)]
pub struct Output {
    /// The data, after encryption the tag as well; empty for keys. Wiped when dropped.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Cycles that the device says its cores took.
    pub cycles: u64,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Output({} bytes)", self.bytes.len())
    }
}

/// End of a request.
#[derive(Debug)]
pub struct Completed {
    /// The request that has ended.
    pub ticket: Ticket,
    /// Its result, or why there is none.
    pub result: Result<Output, RequestError>,
}

/// A request that could not be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The ring is full: completions have to be fetched first.
    #[error("the ring is full")]
    Full,
    /// Nothing to do, or more than a buffer holds; the vector or the tag is too long.
    #[error("the request does not fit the driver's buffers")]
    Length,
    /// The device has failed before.
    #[error("the device has failed: {0}")]
    Failed(Failure),
}

/// A request that was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The device refused it, as its caller's mistake; others are not affected.
    #[error("the device refused the request: {0}")]
    Refused(Status),
    /// The tag is wrong. Whoever sent the message may be the reason, or the device.
    #[error("the tag is wrong")]
    Authentication,
    /// The core noticed an error in its own computation. The same request may be submitted again.
    #[error("the core detected an error of its own")]
    CoreAlarm,
    /// The device failed before the request was done.
    #[error("the device has failed: {0}")]
    Failed(Failure),
}

/// The reason for which a driver has given its device up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Registers read as all ones.
    #[error("no device answers")]
    NoDevice,
    /// It is another device, or another version of the interface.
    #[error("register {register} reads {value:#010x}")]
    Identity {
        /// Its name: `ID` or `VERSION`.
        register: &'static str,
        /// The word that it reads.
        value: u32,
    },
    /// The device takes no requests without descriptors.
    #[error("the device takes no single shots")]
    NoSingleShot,
    /// The device did not enable its ring, or halted.
    #[error("the device has halted")]
    Halted,
    /// A request was not completed by its deadline.
    #[error("a request was not completed in time")]
    Deadline,
    /// A completion is not that of its request.
    #[error("a completion echoes request {found}, expected {expected}")]
    Echo {
        /// The request's sequence number.
        expected: u32,
        /// The echo that was found.
        found: u32,
    },
    /// The device wrote another number of bytes than the request asks for.
    #[error("the device wrote {found} bytes, expected {expected}")]
    Produced {
        /// Bytes that the request asks for.
        expected: u32,
        /// Bytes that the device says it wrote.
        found: u32,
    },
    /// An outcome that a working device does not give for this driver's requests.
    #[error("a request ended with {0}")]
    Outcome(Status),
    /// The transport's memory is smaller than it said.
    #[error("the registered memory cannot be reached")]
    Memory,
}
