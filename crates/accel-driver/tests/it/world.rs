//! Registers and memory of a device in this process, with a bus on which things go wrong.

use accel_abi::descriptor::{self, Completion};
use accel_abi::register::control;
use accel_abi::{Descriptor, Operation, Register, Segment};
use accel_driver::Transport;
use accel_simulation::cores::{AesCore, Check, Cores, Engine, HmacCore, IbcCore, MontCore};
use accel_simulation::device::{Device, Memory, Region};

/// Device address of the first byte of memory; what is registered begins one margin later.
pub(crate) const BASE: u64 = 0x8000_0000;
pub(crate) const MARGIN: usize = 4096;

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

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn chance(&mut self, of_1000: usize) -> bool {
        self.below(1000) < of_1000
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

pub(crate) fn engine() -> Engine {
    Engine::new(Cores {
        aes: Some(Box::new(AesCore::new())),
        ibc: Some((Box::new(IbcCore::new()), Check::None)),
        hmac: Some(Box::new(HmacCore::new())),
        modular: Some(Box::new(MontCore::new(32).unwrap())),
    })
}

/// Chances, in thousandths, of what goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    // Of each interrupt.
    pub(crate) lost: usize,
    pub(crate) doubled: usize,
    pub(crate) late: usize,
    // Of each tick.
    pub(crate) spurious: usize,
    pub(crate) idle: usize,
    // Of each request: what the device reads is damaged.
    pub(crate) descriptor: usize,
    pub(crate) list: usize,
    // Of each request: what the device writes is wrong.
    pub(crate) lie: usize,
    pub(crate) lie_about_tag: usize,
    pub(crate) claim_undone: usize,
    // Of each request: the end of the device.
    pub(crate) die: usize,
    pub(crate) vanish: usize,
}

/// State of the device's existence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    /// It answers, and does nothing any more.
    Dead,
    /// Registers read as all ones.
    Gone,
}

pub(crate) struct World {
    pub(crate) device: Device,
    pub(crate) memory: Memory,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) life: Life,
    /// Ticks at which interrupts arrive.
    arriving: Vec<u64>,
    tick: u64,
    /// Sequence numbers of requests whose tag the device falsified, or that it claimed undone.
    pub(crate) falsified: Vec<u32>,
    /// Something was done that makes a correct driver give the device up.
    pub(crate) broken: bool,
    pub(crate) interrupts_lost: u64,
}

impl World {
    pub(crate) fn new(registered: usize, faults: Faults, seed: u64) -> Self {
        let mut memory = Memory::new(BASE, registered + 2 * MARGIN);
        memory.as_mut_slice().fill(0xa5);
        let start = BASE + MARGIN as u64;
        memory.register(Region {
            addresses: start..start + registered as u64,
            writable: true,
        });
        Self {
            device: Device::new(engine()),
            memory,
            random: Random(seed),
            faults,
            life: Life::Alive,
            arriving: Vec::new(),
            tick: 0,
            falsified: Vec::new(),
            broken: false,
            interrupts_lost: 0,
        }
    }

    pub(crate) fn margins_untouched(&self) -> bool {
        let bytes = self.memory.as_slice();
        let (head, rest) = bytes.split_at(MARGIN);
        let tail = &rest[rest.len() - MARGIN..];
        head.iter().chain(tail).all(|&byte| byte == 0xa5)
    }

    /// Registered memory, which the driver uses from its beginning.
    pub(crate) fn registered(&mut self) -> &mut [u8] {
        let bytes = self.memory.as_mut_slice();
        let end = bytes.len() - MARGIN;
        &mut bytes[MARGIN..end]
    }

    /// A tick passes: the number of interrupts that arrive.
    pub(crate) fn advance(&mut self) -> usize {
        self.tick += 1;
        if self.life == Life::Alive && !self.random.chance(self.faults.idle) {
            self.work();
        }
        let now = self.tick;
        let before = self.arriving.len();
        self.arriving.retain(|&at| at > now);
        let arrived = before - self.arriving.len();
        arrived + usize::from(self.random.chance(self.faults.spurious))
    }

    fn ring(&self) -> usize {
        let low = u64::from(self.device.read(Register::RING_LOW));
        let high = u64::from(self.device.read(Register::RING_HIGH));
        (high << 32 | low).saturating_sub(BASE + MARGIN as u64) as usize
    }

    fn work(&mut self) {
        let waiting = self.device.read(Register::CONTROL) & control::ENABLE != 0
            && self.device.read(Register::CONSUMER) != self.device.read(Register::PRODUCER);
        if !waiting {
            return;
        }
        let size = self.device.read(Register::RING_SIZE);
        let index = self.device.read(Register::CONSUMER) % size;
        let at = self.ring() + index as usize * descriptor::SIZE;
        let faults = self.faults;
        if self.random.chance(faults.vanish) {
            self.life = Life::Gone;
            self.broken = true;
            return;
        }
        if self.random.chance(faults.claim_undone) && self.claim_undone(at) {
            return;
        }
        if self.random.chance(faults.descriptor) {
            let bit = self.random.below(8 * (descriptor::CHECK + 4));
            self.registered()[at + bit / 8] ^= 1 << (bit % 8);
            self.broken = true;
        }
        if self.random.chance(faults.list) {
            self.damage_list(at);
        }
        let request = self.request(at);
        self.device.step(&mut self.memory);
        if self.random.chance(faults.die) {
            // In the middle: part of the result is there, the completion is not.
            self.life = Life::Dead;
            self.broken = true;
            let owned = descriptor::OWNED.to_le_bytes();
            self.registered()[at + descriptor::STATUS..][..4].copy_from_slice(&owned);
            return;
        }
        if self.random.chance(faults.lie) {
            self.lie(at);
        }
        if self.random.chance(faults.lie_about_tag) {
            self.lie_about_tag(request.as_ref());
        }
        if self.device.take_interrupt() {
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        let faults = self.faults;
        if self.random.chance(faults.lost) {
            self.interrupts_lost += 1;
            return;
        }
        let mut at = self.tick;
        if self.random.chance(faults.late) {
            at += self.random.below(300) as u64;
        }
        self.arriving.push(at);
        if self.random.chance(faults.doubled) {
            let again = at + self.random.below(20) as u64;
            self.arriving.push(again);
        }
    }

    fn request(&mut self, at: usize) -> Option<Descriptor> {
        let bytes = *self.registered()[at..].first_chunk().unwrap();
        Descriptor::decode(&bytes).ok()
    }

    /// Says that a request is done, and does nothing. Only for opened messages with a tag: in other
    /// modes nobody without a second computation could notice.
    fn claim_undone(&mut self, at: usize) -> bool {
        let Some(request) = self.request(at) else {
            return false;
        };
        if request.operation != Operation::DECRYPT || request.tag_length == 0 {
            return false;
        }
        self.falsified.push(request.sequence);
        let completion = Completion {
            produced: request.destination_length,
            cycles: 1,
            status: Some(accel_abi::Status::OK),
            echo: request.sequence,
        };
        let memory = self.registered();
        memory[at + descriptor::PRODUCED..][..12].copy_from_slice(&completion.results());
        memory[at + descriptor::STATUS..][..8].copy_from_slice(&completion.status_and_echo());
        // The real device is then stuck at this descriptor: the next look at it halts.
        self.broken = true;
        true
    }

    /// A list entry that loops, is empty, too long, or leads elsewhere.
    fn damage_list(&mut self, at: usize) {
        let Some(request) = self.request(at) else {
            return;
        };
        let destination = self.random.below(2) == 1 && request.destination != 0;
        let list = if destination {
            request.destination
        } else {
            request.source
        };
        if list == 0 {
            return;
        }
        let offset = (list - BASE) as usize - MARGIN;
        let length = if destination {
            request.destination_length
        } else {
            request.source_length
        };
        let good = Segment {
            address: list,
            length,
            flags: Segment::LAST,
        };
        let outside = [BASE, BASE + 64, u64::MAX - 8, 0, 1 << 40][self.random.below(5)];
        let bytes = match self.random.below(5) {
            0 => Segment {
                length: 0,
                flags: Segment::LINK,
                ..good
            }
            .encode(),
            1 => Segment { length: 0, ..good }.encode(),
            2 => Segment {
                length: length + 1 + self.random.next() as u32 / 4,
                ..good
            }
            .encode(),
            3 => Segment {
                address: outside,
                ..good
            }
            .encode(),
            _ => {
                let mut bytes = *self.registered()[offset..].first_chunk().unwrap();
                bytes[self.random.below(16)] ^= 1 << self.random.below(8);
                bytes
            }
        };
        self.registered()[offset..][..Segment::SIZE].copy_from_slice(&bytes);
        self.broken = true;
    }

    /// Falsifies what a completion says of itself.
    fn lie(&mut self, at: usize) {
        let (offset, value) = match self.random.below(4) {
            0 => (descriptor::STATUS + 4, self.random.next() as u32),
            1 => {
                let memory = self.registered();
                let echo = u32::from_le_bytes(
                    *memory[at + descriptor::STATUS + 4..].first_chunk().unwrap(),
                );
                (descriptor::STATUS + 4, echo.wrapping_sub(1))
            }
            2 => (descriptor::STATUS, 11 + self.random.next() as u32 % 1000),
            _ => (descriptor::PRODUCED, self.random.next() as u32 | 1 << 31),
        };
        let memory = self.registered();
        let status = memory[at + descriptor::STATUS];
        if offset == descriptor::PRODUCED && u16::from(status) != accel_abi::Status::OK.0 {
            return;
        }
        memory[at + offset..][..4].copy_from_slice(&value.to_le_bytes());
        self.broken = true;
    }

    fn lie_about_tag(&mut self, request: Option<&Descriptor>) {
        let Some(request) = request.filter(|request| request.tag_length > 0) else {
            return;
        };
        let list = (request.destination - BASE) as usize - MARGIN;
        let entry = *self.registered()[list..].first_chunk().unwrap();
        let Some(entry) = Segment::decode(&entry) else {
            return;
        };
        if entry.address < BASE + MARGIN as u64 || entry.length != request.destination_length {
            return;
        }
        let end = (entry.address - BASE) as usize - MARGIN + entry.length as usize;
        let back = 1 + self.random.below(usize::from(request.tag_length));
        let bit = self.random.below(8);
        if let Some(byte) = self.registered().get_mut(end - back) {
            *byte ^= 1 << bit;
            self.falsified.push(request.sequence);
        }
    }
}

impl Transport for World {
    fn read_register(&mut self, register: Register) -> u32 {
        match self.life {
            Life::Gone => u32::MAX,
            _ => self.device.read(register),
        }
    }

    fn write_register(&mut self, register: Register, value: u32) {
        if self.life != Life::Gone {
            self.device.write(register, value);
        }
        if self.life == Life::Alive && self.device.take_interrupt() {
            self.deliver();
        }
    }

    fn memory(&self) -> (u64, usize) {
        (
            BASE + MARGIN as u64,
            self.memory.as_slice().len() - 2 * MARGIN,
        )
    }

    fn read_memory(&mut self, offset: usize, into: &mut [u8]) -> bool {
        let source = self
            .registered()
            .get(offset..)
            .and_then(|rest| rest.get(..into.len()));
        source.map(|source| into.copy_from_slice(source)).is_some()
    }

    fn write_memory(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let target = self
            .registered()
            .get_mut(offset..)
            .and_then(|rest| rest.get_mut(..bytes.len()));
        target.map(|target| target.copy_from_slice(bytes)).is_some()
    }
}
