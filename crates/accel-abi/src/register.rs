//! The registers: 32-bit words in one page of 4 KiB.

/// Bytes of the register page.
pub const PAGE: u32 = 4096;

/// Offset of a register in the page, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register(pub u32);

/// Direction in which a register can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only: writes change nothing.
    ReadOnly,
    /// Reads give the value that was written.
    ReadWrite,
    /// Writes are commands; it reads as zero.
    WriteOnly,
    /// A written one clears the bit.
    ClearByWriting,
}

impl Access {
    /// The abbreviation of register manuals.
    pub const fn abbreviation(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
            Self::WriteOnly => "wo",
            Self::ClearByWriting => "w1c",
        }
    }
}

/// One bit or range of bits with a meaning.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in manual and header.
    pub name: &'static str,
    /// Number of its lowest bit.
    pub shift: u32,
    /// Number of bits that it has.
    pub width: u32,
    /// Meaning, in one sentence.
    pub text: &'static str,
}

impl Field {
    /// A word in which just its bits are set.
    pub const fn mask(&self) -> u32 {
        ((1 << self.width) - 1) << self.shift
    }
}

/// A register as the manual describes it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its offset in the page.
    pub register: Register,
    /// Name in manual and header.
    pub name: &'static str,
    /// Direction in which it can be used.
    pub access: Access,
    /// Meaning, a sentence or two.
    pub text: &'static str,
    /// Its fields; none means one number.
    pub fields: &'static [Field],
}

impl Register {
    /// Identification: always reads [`crate::ID`].
    pub const ID: Self = Self(0x00);
    /// Version: always reads [`crate::VERSION`].
    pub const VERSION: Self = Self(0x04);
    /// Cores that the device has.
    pub const CAPABILITIES: Self = Self(0x08);
    /// Switch, reset and zeroisation.
    pub const CONTROL: Self = Self(0x0c);
    /// State of the device.
    pub const STATE: Self = Self(0x10);
    /// Interrupts that the driver wants.
    pub const INTERRUPT_ENABLE: Self = Self(0x14);
    /// Interrupts that happened and were not cleared.
    pub const INTERRUPT_STATUS: Self = Self(0x18);
    /// Device address of the ring, low half.
    pub const RING_LOW: Self = Self(0x20);
    /// Device address of the ring, high half.
    pub const RING_HIGH: Self = Self(0x24);
    /// Descriptors of the ring.
    pub const RING_SIZE: Self = Self(0x28);
    /// Descriptors posted since the device was enabled.
    pub const PRODUCER: Self = Self(0x2c);
    /// Descriptors completed since the device was enabled.
    pub const CONSUMER: Self = Self(0x30);
    /// DMA accesses refused since the reset.
    pub const DMA_FAULTS: Self = Self(0x34);
    /// Work of a single shot: see [`shot`].
    pub const SHOT_COMMAND: Self = Self(0x40);
    /// Lengths of a single shot's source and of its associated data.
    pub const SHOT_LENGTHS: Self = Self(0x44);
    /// Lengths of a single shot's vector and tag.
    pub const SHOT_SIZES: Self = Self(0x48);
    /// Starts a single shot, with its number.
    pub const SHOT_START: Self = Self(0x4c);
    /// Outcome and number of the last single shot.
    pub const SHOT_STATUS: Self = Self(0x50);
    /// Bytes of the last single shot's result.
    pub const SHOT_PRODUCED: Self = Self(0x54);
    /// Cycles of the cores for the last single shot.
    pub const SHOT_CYCLES: Self = Self(0x58);
    /// First of the words of a single shot's source and result.
    pub const SHOT_DATA: Self = Self(0x400);

    /// The word of a single shot's data with this number; none beyond [`crate::SHOT_MAX`] bytes.
    pub const fn shot_data(index: u32) -> Option<Self> {
        if index < crate::SHOT_MAX / 4 {
            Some(Self(Self::SHOT_DATA.0 + 4 * index))
        } else {
            None
        }
    }

    /// The number of this word of a single shot's data; none for another register.
    pub const fn shot_index(self) -> Option<u32> {
        let aligned = self.0.is_multiple_of(4);
        match self.0.checked_sub(Self::SHOT_DATA.0) {
            Some(offset) if aligned && offset < crate::SHOT_MAX => Some(offset / 4),
            _ => None,
        }
    }
}

const _: () = assert!(Register::SHOT_DATA.0 + crate::SHOT_MAX <= crate::window::POSTED);

/// Bits of the register [`Register::CAPABILITIES`].
pub mod capabilities {
    /// The device has an AES core.
    pub const AES: u32 = 1 << 0;
    /// The device has an IBC core.
    pub const IBC: u32 = 1 << 1;
    /// The device has an HMAC core.
    pub const HMAC: u32 = 1 << 2;
    /// The device has a core for modular arithmetic.
    pub const MODULAR: u32 = 1 << 3;
    /// The device takes requests in its registers.
    pub const SINGLE_SHOT: u32 = 1 << 4;
}

/// A single shot: a request in registers, without descriptor, lists and access to memory.
///
/// The fields have the meanings of a descriptor's. The source is the vector, then associated data, then data or key.
pub mod shot {
    /// [`super::Register::SHOT_COMMAND`].
    pub const fn command(operation: u8, algorithm: u8, mode: u8, slot: u8) -> u32 {
        u32::from_le_bytes([operation, algorithm, mode, slot])
    }

    /// [`super::Register::SHOT_LENGTHS`].
    pub const fn lengths(source: u16, aad: u16) -> u32 {
        (aad as u32) << 16 | source as u32
    }

    /// [`super::Register::SHOT_SIZES`].
    pub const fn sizes(iv: u8, tag: u8) -> u32 {
        u32::from_le_bytes([iv, tag, 0, 0])
    }

    /// [`super::Register::SHOT_STATUS`].
    pub const fn status(outcome: u16, number: u16) -> u32 {
        (number as u32) << 16 | outcome as u32
    }

    /// Lower and upper half of a word: outcome and number, or source and associated data.
    pub const fn halves(word: u32) -> (u16, u16) {
        let [a, b, c, d] = word.to_le_bytes();
        (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
    }
}

/// Bits of the register [`Register::CONTROL`].
pub mod control {
    /// Posted requests are processed.
    pub const ENABLE: u32 = 1 << 0;
    /// Ends everything, forgets ring and keys.
    pub const RESET: u32 = 1 << 1;
    /// Overwrites all keys; running requests end first.
    pub const ZEROISE: u32 = 1 << 2;
}

/// Bits of the register [`Register::STATE`].
pub mod state {
    /// The device is enabled.
    pub const ENABLED: u32 = 1 << 0;
    /// Posted requests are not all completed.
    pub const BUSY: u32 = 1 << 1;
    /// The device has stopped for a fault of the ring; only a reset helps.
    pub const HALTED: u32 = 1 << 2;
}

/// Bits of [`Register::INTERRUPT_ENABLE`] and [`Register::INTERRUPT_STATUS`].
pub mod interrupt {
    /// At least one request was completed.
    pub const COMPLETION: u32 = 1 << 0;
    /// The device has halted.
    pub const HALT: u32 = 1 << 1;
}

const fn bit(name: &'static str, mask: u32, text: &'static str) -> Field {
    Field {
        name,
        shift: mask.trailing_zeros(),
        width: 1,
        text,
    }
}

const fn byte(name: &'static str, shift: u32, text: &'static str) -> Field {
    Field {
        name,
        shift,
        width: 8,
        text,
    }
}

const fn half(name: &'static str, shift: u32, text: &'static str) -> Field {
    Field {
        name,
        shift,
        width: 16,
        text,
    }
}

/// All registers with their fields, ascending; of a single shot's data the first word.
pub const REGISTERS: &[Entry] = &[
    Entry {
        register: Register::ID,
        name: "ID",
        access: Access::ReadOnly,
        text: "\"CRDA\" in ASCII. All ones mean that no device answers.",
        fields: &[],
    },
    Entry {
        register: Register::VERSION,
        name: "VERSION",
        access: Access::ReadOnly,
        text: "Version of this interface.",
        fields: &[],
    },
    Entry {
        register: Register::CAPABILITIES,
        name: "CAPABILITIES",
        access: Access::ReadOnly,
        text: "Cores that the device has.",
        fields: &[
            bit("AES", capabilities::AES, "AES in eight modes."),
            bit(
                "IBC",
                capabilities::IBC,
                "The INDECT Block Cipher in ECB, CBC and CTR.",
            ),
            bit("HMAC", capabilities::HMAC, "HMAC with SHA-1 and SHA-256."),
            bit(
                "MODULAR",
                capabilities::MODULAR,
                "Modular exponentiation, and RSA's private operation.",
            ),
            bit(
                "SINGLE_SHOT",
                capabilities::SINGLE_SHOT,
                "Requests in the registers SHOT_*.",
            ),
        ],
    },
    Entry {
        register: Register::CONTROL,
        name: "CONTROL",
        access: Access::ReadWrite,
        text: "Commands; only ENABLE can be read back.",
        fields: &[
            bit(
                "ENABLE",
                control::ENABLE,
                "Process requests. Ring registers must be set before. Setting it puts PRODUCER and CONSUMER to zero.",
            ),
            bit(
                "RESET",
                control::RESET,
                "End everything, forget ring, interrupts and keys. Nothing is written to memory afterwards.",
            ),
            bit(
                "ZEROISE",
                control::ZEROISE,
                "Overwrite the keys of all slots and cores.",
            ),
        ],
    },
    Entry {
        register: Register::STATE,
        name: "STATE",
        access: Access::ReadOnly,
        text: "State of the device.",
        fields: &[
            bit("ENABLED", state::ENABLED, "Requests are processed."),
            bit(
                "BUSY",
                state::BUSY,
                "Posted requests are not all completed.",
            ),
            bit(
                "HALTED",
                state::HALTED,
                "The ring cannot be used: PRODUCER is more than RING_SIZE ahead, or a descriptor lies outside of registered memory. Only a reset helps.",
            ),
        ],
    },
    Entry {
        register: Register::INTERRUPT_ENABLE,
        name: "INTERRUPT_ENABLE",
        access: Access::ReadWrite,
        text: "Interrupts that the driver wants. A pending one is raised when it is enabled.",
        fields: &[
            bit(
                "COMPLETION",
                interrupt::COMPLETION,
                "A request was completed.",
            ),
            bit("HALT", interrupt::HALT, "The device has halted."),
        ],
    },
    Entry {
        register: Register::INTERRUPT_STATUS,
        name: "INTERRUPT_STATUS",
        access: Access::ClearByWriting,
        text: "Interrupts that happened, enabled or not. Clear it before looking at descriptors.",
        fields: &[
            bit(
                "COMPLETION",
                interrupt::COMPLETION,
                "A request was completed.",
            ),
            bit("HALT", interrupt::HALT, "The device has halted."),
        ],
    },
    Entry {
        register: Register::RING_LOW,
        name: "RING_LOW",
        access: Access::ReadWrite,
        text: "Device address of the ring, low half, a multiple of 128. Fixed while enabled.",
        fields: &[],
    },
    Entry {
        register: Register::RING_HIGH,
        name: "RING_HIGH",
        access: Access::ReadWrite,
        text: "Device address of the ring, high half. Fixed while enabled.",
        fields: &[],
    },
    Entry {
        register: Register::RING_SIZE,
        name: "RING_SIZE",
        access: Access::ReadWrite,
        text: "Descriptors of the ring, a power of two from 2 to 1024. Fixed while enabled.",
        fields: &[],
    },
    Entry {
        register: Register::PRODUCER,
        name: "PRODUCER",
        access: Access::ReadWrite,
        text: "The doorbell: descriptors posted since the device was enabled, modulo 2^32.",
        fields: &[],
    },
    Entry {
        register: Register::CONSUMER,
        name: "CONSUMER",
        access: Access::ReadOnly,
        text: "Descriptors completed since the device was enabled, modulo 2^32. For diagnosis: whether a request is complete, its status word says.",
        fields: &[],
    },
    Entry {
        register: Register::DMA_FAULTS,
        name: "DMA_FAULTS",
        access: Access::ReadOnly,
        text: "DMA accesses refused since the reset.",
        fields: &[],
    },
    Entry {
        register: Register::SHOT_COMMAND,
        name: "SHOT_COMMAND",
        access: Access::WriteOnly,
        text: "A request without descriptor. Writing clears the last result.",
        fields: &[
            byte("OPERATION", 0, "As in a descriptor."),
            byte("ALGORITHM", 8, "As in a descriptor."),
            byte("MODE", 16, "As in a descriptor."),
            byte("SLOT", 24, "As in a descriptor."),
        ],
    },
    Entry {
        register: Register::SHOT_LENGTHS,
        name: "SHOT_LENGTHS",
        access: Access::WriteOnly,
        text: "Bytes of the source.",
        fields: &[
            half("SOURCE", 0, "Associated data and data, or the key."),
            half("AAD", 16, "Associated data."),
        ],
    },
    Entry {
        register: Register::SHOT_SIZES,
        name: "SHOT_SIZES",
        access: Access::WriteOnly,
        text: "Bytes of vector and tag.",
        fields: &[
            byte("IV", 0, "The vector, before the source in SHOT_DATA."),
            byte("TAG", 8, "The tag."),
        ],
    },
    Entry {
        register: Register::SHOT_START,
        name: "SHOT_START",
        access: Access::WriteOnly,
        text: "Starts the request; bits 15:0 are its number, another than the last one's and not zero. Nothing happens while a single shot is under way. Descriptors are processed in between.",
        fields: &[],
    },
    Entry {
        register: Register::SHOT_STATUS,
        name: "SHOT_STATUS",
        access: Access::ReadOnly,
        text: "The last single shot that has ended, written after its result; zero before the first one. There is no interrupt.",
        fields: &[
            half("OUTCOME", 0, "As in a descriptor."),
            half("NUMBER", 16, "Its number."),
        ],
    },
    Entry {
        register: Register::SHOT_PRODUCED,
        name: "SHOT_PRODUCED",
        access: Access::ReadOnly,
        text: "Bytes of its result.",
        fields: &[],
    },
    Entry {
        register: Register::SHOT_CYCLES,
        name: "SHOT_CYCLES",
        access: Access::ReadOnly,
        text: "Cycles of its cores, 2^32 - 1 for more.",
        fields: &[],
    },
    Entry {
        register: Register::SHOT_DATA,
        name: "SHOT_DATA",
        access: Access::ReadWrite,
        text: "The first of 256 words. Written: vector and source, which the device overwrites once it has read them. Read: the last result.",
        fields: &[],
    },
];
