//! Requests as they stand in the ring.

use crate::{IV_MAX, Status, crc32};

/// The device owns the descriptor: the driver sets it, the device's completion clears it.
pub const OWNED: u32 = 1 << 31;

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($constant:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub u8);

        impl $name {
            $(#[doc = $text] pub const $constant: Self = Self($number);)*

            /// All listed numbers with their names and meanings.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$constant, stringify!($constant), $text)),*];
        }
    };
}

numbers! {
    /// Work that a descriptor asks for. Unlisted numbers are refused by the device.
    Operation {
        ENCRYPT = 1, "Encrypt the source; with GCM and CCM the tag follows the data.";
        DECRYPT = 2, "Decrypt the source; with GCM and CCM the computed tag follows the data.";
        LOAD_KEY = 3, "Put the source into the key slot; there is no destination.";
        ZEROISE_KEY = 4, "Overwrite the key slot; there is neither source nor destination.";
        AUTHENTICATE = 5, "Compute the source's tag, which is the destination. Without mode, vector and associated data.";
        EXPONENTIATE = 6, "Raise a number to a power; the destination is as long as the data. Without mode, vector and tag.";
    }
}

numbers! {
    /// Ciphers and other algorithms, each with its sizes of keys.
    Algorithm {
        AES = 1, "AES with 16, 24 or 32 bytes of key.";
        IBC_128 = 2, "IBC, 16 bytes of key, 8 rounds.";
        IBC_128_STRONG = 3, "IBC, 16 bytes of key, 14 rounds.";
        IBC_192 = 4, "IBC, 24 bytes of key, 10 rounds.";
        IBC_256 = 5, "IBC, 32 bytes of key, 10 rounds.";
        IBC_320 = 6, "IBC, 40 bytes of key, 12 rounds.";
        HMAC_SHA_1 = 7, "HMAC with SHA-1: 1 to 64 bytes of key, a tag of 10 to 20.";
        HMAC_SHA_256 = 8, "HMAC with SHA-256: 1 to 64 bytes of key, a tag of 16 to 32.";
        RSA = 9, "RSA's private operation without any encoding. The key: the modulus of 256, 384 or 512 bytes; the public exponent, 8 bytes; p, q, dP, dQ and qInv, half of the modulus each; highest bytes first. The public exponent checks the result before it is written.";
        MODULAR = 10, "No key, slot 0. Associated data: an odd modulus, as long as the data, which are less than it; then the exponent, 1 to 512 bytes. Highest bytes first.";
    }
}

impl Algorithm {
    /// Says whether a key has a length that the algorithm takes, in bytes.
    pub const fn takes_key(self, len: usize) -> bool {
        match self {
            Self::AES => matches!(len, 16 | 24 | 32),
            Self::IBC_128 | Self::IBC_128_STRONG => len == 16,
            Self::IBC_192 => len == 24,
            Self::IBC_256 => len == 32,
            Self::IBC_320 => len == 40,
            Self::HMAC_SHA_1 | Self::HMAC_SHA_256 => matches!(len, 1..=64),
            // Of moduli with 2048, 3072 and 4096 bits.
            Self::RSA => matches!(len, 904 | 1352 | 1800),
            _ => false,
        }
    }
}

numbers! {
    /// Modes of operation of the ciphers.
    Mode {
        ECB = 1, "Whole blocks, no vector.";
        CBC = 2, "Whole blocks.";
        CTR = 3, "The whole block counts, big endian.";
        CFB = 4, "Segments of a whole block, the last may be short. AES only.";
        OFB = 5, "The last block may be short. AES only.";
        CTS = 6, "CBC with ciphertext stealing, CBC-CS3: more than one block, the last two always swapped. AES only.";
        GCM = 7, "A vector of 12 bytes, a tag of 12 to 16. AES only.";
        CCM = 8, "A vector of 7 to 13 bytes, a tag of 4 to 16, even. AES only.";
    }
}

/// A field of a descriptor, for header and manual.
#[derive(Clone, Copy, Debug)]
pub struct FieldEntry {
    /// Name in manual and header.
    pub name: &'static str,
    /// Its type in the header.
    pub c_type: &'static str,
    /// Number of array elements; 1 is no array.
    pub count: usize,
    /// Offset in the descriptor, in bytes.
    pub offset: usize,
    /// Meaning, in a few words.
    pub text: &'static str,
}

/// Bytes of a descriptor; one starts at a multiple of this.
pub const SIZE: usize = 128;
/// Offset from which [`CHECK`] does not cover: from here on the device writes.
pub const CHECKED: usize = 96;
/// Offset of the check value.
pub const CHECK: usize = 96;
/// Offset of the number of bytes produced, written by the device.
pub const PRODUCED: usize = 100;
/// Offset of the core's cycles, written by the device.
pub const CYCLES: usize = 104;
/// Offset of the status word; the echo of the sequence number stands behind it.
pub const STATUS: usize = 120;

/// All fields, ascending, without gaps.
pub const FIELDS: &[FieldEntry] = &[
    field("operation", "uint8_t", 1, 0, "Work."),
    field(
        "algorithm",
        "uint8_t",
        1,
        1,
        "Algorithm; zero for ZEROISE_KEY.",
    ),
    field("mode", "uint8_t", 1, 2, "Mode; zero for keys."),
    field("slot", "uint8_t", 1, 3, "Key slot, below 16."),
    field(
        "sequence",
        "uint32_t",
        1,
        4,
        "Number of the request, echoed in the completion. A ring's numbers do not repeat before 2^32.",
    ),
    field(
        "source",
        "uint64_t",
        1,
        8,
        "Device address of the source's segment list.",
    ),
    field(
        "destination",
        "uint64_t",
        1,
        16,
        "Device address of the destination's segment list; zero if there is none.",
    ),
    field(
        "source_length",
        "uint32_t",
        1,
        24,
        "Bytes of the source: associated data, then data, or the key.",
    ),
    field(
        "aad_length",
        "uint32_t",
        1,
        28,
        "Bytes of associated data at the source's beginning.",
    ),
    field(
        "destination_length",
        "uint32_t",
        1,
        32,
        "Bytes of the destination: exactly the data and the tag, or the tag alone.",
    ),
    field("iv_length", "uint8_t", 1, 36, "Bytes of the vector."),
    field(
        "tag_length",
        "uint8_t",
        1,
        37,
        "Bytes of the tag; zero without authentication.",
    ),
    field("reserved0", "uint8_t", 2, 38, "Zero."),
    field(
        "iv",
        "uint8_t",
        IV_MAX,
        40,
        "Initialisation vector; bytes beyond its length are zero.",
    ),
    field("reserved1", "uint8_t", 24, 72, "Zero."),
    field(
        "check",
        "uint32_t",
        1,
        CHECK,
        "CRC-32 (IEEE 802.3) of the 96 bytes before it.",
    ),
    field(
        "produced",
        "uint32_t",
        1,
        PRODUCED,
        "Written by the device: bytes of the destination written.",
    ),
    field(
        "cycles",
        "uint64_t",
        1,
        CYCLES,
        "Written by the device: cycles of its cores for this request.",
    ),
    field("reserved2", "uint8_t", 8, 112, "Zero; never read."),
    field(
        "status",
        "uint32_t",
        1,
        STATUS,
        "Bit 31: owned by the device. Else the outcome in bits 0 to 15.",
    ),
    field(
        "echo",
        "uint32_t",
        1,
        124,
        "Written by the device together with status: the sequence number.",
    ),
];

const fn field(
    name: &'static str,
    c_type: &'static str,
    count: usize,
    offset: usize,
    text: &'static str,
) -> FieldEntry {
    FieldEntry {
        name,
        c_type,
        count,
        offset,
        text,
    }
}

/// The driver's part of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Work that is asked for.
    pub operation: Operation,
    /// Cipher of the message or key.
    pub algorithm: Algorithm,
    /// Mode of operation; zero for keys.
    pub mode: Mode,
    /// Key slot, below [`crate::KEY_SLOTS`].
    pub slot: u8,
    /// Number of the request.
    pub sequence: u32,
    /// Device address of the source's list.
    pub source: u64,
    /// Device address of the destination's list.
    pub destination: u64,
    /// Bytes of the source.
    pub source_length: u32,
    /// Bytes of associated data at its beginning.
    pub aad_length: u32,
    /// Bytes of the destination.
    pub destination_length: u32,
    /// Initialisation vector, [`IV_MAX`] bytes at most.
    pub iv: Iv,
    /// Bytes of the tag.
    pub tag_length: u8,
}

/// A vector of at most [`IV_MAX`] bytes; the bytes behind it are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iv {
    bytes: [u8; IV_MAX],
    length: u8,
}

impl Iv {
    /// The vector; none if it is longer than [`IV_MAX`].
    pub fn new(vector: &[u8]) -> Option<Self> {
        let mut bytes = [0; IV_MAX];
        bytes.get_mut(..vector.len())?.copy_from_slice(vector);
        let length = u8::try_from(vector.len()).ok()?;
        Some(Self { bytes, length })
    }

    /// Its bytes, without what fills up.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }
}

/// The bytes are no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorError {
    /// The check value is another.
    Check,
    /// A reserved byte, or a byte behind the vector, is not zero, or the vector is too long.
    Reserved,
}

impl core::fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Check => "check value of the descriptor is wrong",
            Self::Reserved => "reserved byte of the descriptor is not zero",
        })
    }
}

impl core::error::Error for DescriptorError {}

/// A completion as the device writes it, and as the driver finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Bytes written to the destination.
    pub produced: u32,
    /// Cycles of the cores.
    pub cycles: u64,
    /// Outcome; none while the device owns the descriptor.
    pub status: Option<Status>,
    /// Sequence number of the request.
    pub echo: u32,
}

/// Writes into a descriptor's bytes, in order; what does not fit is a mistake of this module.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let whole = core::mem::take(&mut self.0);
        let (head, tail) = whole.split_at_mut(bytes.len().min(whole.len()));
        for (to, from) in head.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.0 = tail;
    }
}

/// Takes fields off a descriptor's bytes, in order.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((head, tail)) => {
                self.0 = tail;
                *head
            }
            None => [0; N],
        }
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

impl Descriptor {
    /// Bytes as they stand in the ring, owned by the device, with the check value.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let mut to = Writer(&mut bytes);
        to.put(&[self.operation.0, self.algorithm.0, self.mode.0, self.slot]);
        to.put(&self.sequence.to_le_bytes());
        to.put(&self.source.to_le_bytes());
        to.put(&self.destination.to_le_bytes());
        to.put(&self.source_length.to_le_bytes());
        to.put(&self.aad_length.to_le_bytes());
        to.put(&self.destination_length.to_le_bytes());
        to.put(&[self.iv.length, self.tag_length, 0, 0]);
        to.put(&self.iv.bytes);
        let check = crc32(bytes.get(..CHECKED).unwrap_or(&[]));
        let mut to = Writer(bytes.get_mut(CHECK..).unwrap_or_default());
        to.put(&check.to_le_bytes());
        let mut to = Writer(bytes.get_mut(STATUS..).unwrap_or_default());
        to.put(&OWNED.to_le_bytes());
        bytes
    }

    /// The descriptor that stands in these bytes.
    ///
    /// # Errors
    /// [`DescriptorError`]; numbers without a meaning are left to the caller.
    pub fn decode(bytes: &[u8; SIZE]) -> Result<Self, DescriptorError> {
        let mut from = Reader(bytes);
        let descriptor = Self {
            operation: Operation(from.byte()),
            algorithm: Algorithm(from.byte()),
            mode: Mode(from.byte()),
            slot: from.byte(),
            sequence: from.word(),
            source: from.long(),
            destination: from.long(),
            source_length: from.word(),
            aad_length: from.word(),
            destination_length: from.word(),
            iv: Iv::default(),
            tag_length: 0,
        };
        let (iv_length, tag_length) = (from.byte(), from.byte());
        let reserved0 = from.take::<2>();
        let vector = from.take::<IV_MAX>();
        let reserved1 = from.take::<24>();
        if from.word() != crc32(bytes.get(..CHECKED).unwrap_or(&[])) {
            return Err(DescriptorError::Check);
        }
        let used = vector.get(..usize::from(iv_length));
        let iv = used.and_then(Iv::new).filter(|iv| iv.bytes == vector);
        match iv {
            Some(iv) if reserved0 == [0; 2] && reserved1 == [0; 24] => Ok(Self {
                iv,
                tag_length,
                ..descriptor
            }),
            _ => Err(DescriptorError::Reserved),
        }
    }
}

impl Completion {
    /// The completion that stands in these bytes.
    pub fn decode(bytes: &[u8; SIZE]) -> Self {
        let mut from = Reader(bytes.get(PRODUCED..).unwrap_or(&[]));
        let (produced, cycles) = (from.word(), from.long());
        let _reserved: [u8; 8] = from.take();
        let (word, echo) = (from.word(), from.word());
        let [low, high, ..] = word.to_le_bytes();
        let status = Status(u16::from_le_bytes([low, high]));
        Self {
            produced,
            cycles,
            status: (word & OWNED == 0).then_some(status),
            echo,
        }
    }

    /// The part before the status word, at [`PRODUCED`]: written first.
    pub fn results(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        let mut to = Writer(&mut bytes);
        to.put(&self.produced.to_le_bytes());
        to.put(&self.cycles.to_le_bytes());
        bytes
    }

    /// Status word and echo, at [`STATUS`]: written last, in one aligned write.
    pub fn status_and_echo(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        let mut to = Writer(&mut bytes);
        let word = self.status.map_or(OWNED, |status| u32::from(status.0));
        to.put(&word.to_le_bytes());
        to.put(&self.echo.to_le_bytes());
        bytes
    }
}
