//! A machine: a device, memory with registered parts, and writes of descriptors.

use accel_abi::descriptor::{self, Completion, Iv};
use accel_abi::register::control;
use accel_abi::{Algorithm, Descriptor, Mode, Operation, Register, Segment};
use accel_simulation::cores::{AesCore, Check, Cores, Engine, HmacCore, IbcCore, MontCore};
use accel_simulation::device::{Device, Memory, Region};

/// Device address of the first byte of memory.
pub(crate) const BASE: u64 = 0x4000_0000;
pub(crate) const LENGTH: usize = 0x1_0000;
/// Offsets: the ring, lists and data that the device may use, and data it may only read.
pub(crate) const RING: usize = 0x1000;
pub(crate) const RING_SIZE: u32 = 8;
pub(crate) const SHARED: usize = 0x4000;
pub(crate) const SHARED_END: usize = 0x8000;
pub(crate) const READ_ONLY: usize = 0xa000;
pub(crate) const READ_ONLY_END: usize = 0xb000;

pub(crate) struct Machine {
    pub(crate) device: Device,
    pub(crate) memory: Memory,
    posted: u32,
}

pub(crate) fn address(offset: usize) -> u64 {
    BASE + offset as u64
}

pub(crate) fn device() -> Device {
    Device::new(Engine::new(Cores {
        aes: Some(Box::new(AesCore::new())),
        ibc: Some((Box::new(IbcCore::new()), Check::None)),
        hmac: Some(Box::new(HmacCore::new())),
        modular: Some(Box::new(MontCore::new(32).unwrap())),
    }))
}

impl Machine {
    pub(crate) fn new() -> Self {
        let mut memory = Memory::new(BASE, LENGTH);
        let ring_end = RING + RING_SIZE as usize * descriptor::SIZE;
        for (from, to, writable) in [
            (RING, ring_end, true),
            (SHARED, SHARED_END, true),
            (READ_ONLY, READ_ONLY_END, false),
        ] {
            memory.register(Region {
                addresses: address(from)..address(to),
                writable,
            });
        }
        let mut machine = Self {
            device: device(),
            memory,
            posted: 0,
        };
        machine.enable();
        machine
    }

    pub(crate) fn enable(&mut self) {
        self.posted = 0;
        self.device.write(Register::RING_LOW, address(RING) as u32);
        self.device.write(Register::RING_HIGH, 0);
        self.device.write(Register::RING_SIZE, RING_SIZE);
        self.device.write(Register::CONTROL, control::ENABLE);
    }

    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.as_mut_slice()[offset..][..bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn list(&mut self, offset: usize, entries: &[Segment]) {
        for (index, entry) in entries.iter().enumerate() {
            self.put(offset + 16 * index, &entry.encode());
        }
    }

    /// Posts bytes as the next descriptor and rings; the completion after one step.
    pub(crate) fn run(&mut self, bytes: &[u8; descriptor::SIZE]) -> Completion {
        let offset = RING + (self.posted % RING_SIZE) as usize * descriptor::SIZE;
        self.put(offset, bytes);
        self.posted = self.posted.wrapping_add(1);
        self.device.write(Register::PRODUCER, self.posted);
        self.device.step(&mut self.memory);
        let bytes = self.memory.as_slice()[offset..].first_chunk().unwrap();
        Completion::decode(bytes)
    }

    /// An AES key in slot 0, and a request of `length` bytes with lists of one piece each.
    pub(crate) fn ready(&mut self, length: u32) -> Descriptor {
        let last = |offset, length| Segment {
            address: address(offset),
            length,
            flags: Segment::LAST,
        };
        self.list(SHARED, &[last(SHARED + 0x100, 16)]);
        let key = Descriptor {
            operation: Operation::LOAD_KEY,
            mode: Mode(0),
            source_length: 16,
            destination: 0,
            destination_length: 0,
            ..request()
        };
        assert_eq!(self.run(&key.encode()).status, Some(accel_abi::Status::OK));
        self.list(SHARED, &[last(SHARED + 0x1000, length)]);
        self.list(SHARED + 0x80, &[last(SHARED + 0x2000, length)]);
        Descriptor {
            source_length: length,
            destination_length: length,
            ..request()
        }
    }
}

/// ECB over the lists at the beginning of the shared part.
pub(crate) fn request() -> Descriptor {
    Descriptor {
        operation: Operation::ENCRYPT,
        algorithm: Algorithm::AES,
        mode: Mode::ECB,
        slot: 0,
        sequence: 77,
        source: address(SHARED),
        destination: address(SHARED + 0x80),
        source_length: 16,
        aad_length: 0,
        destination_length: 16,
        iv: Iv::default(),
        tag_length: 0,
    }
}

/// `SplitMix64`: tests need numbers that are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
