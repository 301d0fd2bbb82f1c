//! Random and half-right requests: the device stays inside of registered memory and never stands still.

use accel_abi::descriptor::{self, Iv};
use accel_abi::{Algorithm, Descriptor, Mode, Operation, Register, Segment, Status};
use accel_device::{Dma, DmaFault};

use crate::support::{
    BASE, LENGTH, Machine, READ_ONLY, READ_ONLY_END, RING, RING_SIZE, Random, SHARED, SHARED_END,
    address,
};

/// Counts accesses of a step.
struct Counting<'a> {
    memory: &'a mut accel_device::Memory,
    accesses: usize,
}

impl Dma for Counting<'_> {
    fn allows(&self, address: u64, length: u64, write: bool) -> bool {
        self.memory.allows(address, length, write)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        self.accesses += 1;
        self.memory.read(address, into)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.accesses += 1;
        self.memory.write(address, bytes)
    }
}

/// An address, often a good one.
fn some_address(random: &mut Random) -> u64 {
    match random.below(12) {
        0 => random.next(),
        1 => u64::MAX - random.below(64),
        2 => BASE + random.below(LENGTH as u64 + 64),
        3 => address(RING) + random.below(1024),
        4 => address(READ_ONLY) + random.below(0x1040),
        5 => address(SHARED_END) - random.below(64),
        _ => address(SHARED) + 16 * random.below(0x300),
    }
}

fn some_length(random: &mut Random) -> u32 {
    match random.below(12) {
        0 => 0,
        1 => random.next() as u32,
        2 => (1 << 20) + random.below(3) as u32 - 1,
        3 => 1 + random.below(100) as u32,
        _ => 16 * (1 + random.below(8) as u32),
    }
}

/// A list somewhere in the shared part, often one that can be followed.
fn write_list(machine: &mut Machine, random: &mut Random, at: usize, total: u32) {
    let count = 1 + random.below(4) as usize;
    let mut left = total;
    for index in 0..count {
        let last = index + 1 == count;
        let length = if last { left } else { left / 2 };
        left -= length.min(left);
        let mut entry = Segment {
            address: address(SHARED + 0x800) + random.below(0x3000),
            length,
            flags: if last { Segment::LAST } else { 0 },
        };
        if random.one_in(12) {
            entry.address = some_address(random);
        }
        if random.one_in(12) {
            entry.length = some_length(random);
        }
        if random.one_in(12) {
            entry.flags = random.below(5) as u16;
        }
        if random.one_in(12) {
            // A link: forwards, to itself, or back to the beginning.
            let to = at + 16 * random.below(4) as usize;
            entry = Segment {
                address: address(to),
                length: 0,
                flags: Segment::LINK,
            };
        }
        machine.list(at + 16 * index, &[entry]);
        if random.one_in(40) {
            machine.put(at + 16 * index, &[random.next() as u8]);
        }
    }
}

fn some_request(random: &mut Random) -> Descriptor {
    let number = |random: &mut Random, most: u64| random.below(most + 1) as u8;
    let iv_length = [0, 12, 16, 32, 7][random.below(5) as usize];
    let length = some_length(random);
    let tag_length = if random.one_in(2) {
        16
    } else {
        number(random, 40)
    };
    let aad_length = if random.one_in(2) {
        0
    } else {
        some_length(random) % 64
    };
    let data = length.saturating_sub(aad_length);
    let mut request = Descriptor {
        operation: Operation([1, 2, 3, 1, 3, 5, 6, 6][random.below(8) as usize]),
        algorithm: Algorithm(if random.one_in(3) {
            number(random, 11)
        } else {
            1
        }),
        mode: Mode(number(random, 9)),
        slot: number(random, 3),
        sequence: random.next() as u32,
        source: address(SHARED + 0x100),
        destination: address(SHARED + 0x200),
        source_length: length,
        aad_length,
        destination_length: data.saturating_add(u32::from(tag_length)),
        iv: Iv::new(&vec![9; iv_length]).unwrap(),
        tag_length,
    };
    match random.below(10) {
        0 => request.source = some_address(random),
        1 => request.destination = some_address(random),
        2 => request.destination_length = some_length(random),
        3 => request.operation = Operation(number(random, 7)),
        _ => {}
    }
    let numbers = matches!(
        request.operation,
        Operation::AUTHENTICATE | Operation::EXPONENTIATE
    );
    if numbers && !random.one_in(5) {
        request.mode = Mode(0);
        request.iv = Iv::default();
        if request.operation == Operation::AUTHENTICATE {
            (request.slot, request.algorithm) = (7, Algorithm::HMAC_SHA_256);
            (request.aad_length, request.tag_length) = (0, 15 + number(random, 18));
            request.destination_length = u32::from(request.tag_length);
        } else {
            // Modulus, exponent, base.
            let length = 1 + random.below(40) as u32;
            request.algorithm = Algorithm::MODULAR;
            (request.slot, request.tag_length) = (0, 0);
            request.aad_length = length + random.below(6) as u32;
            request.source_length = request.aad_length + length;
            request.destination_length = length;
        }
    }
    if request.operation == Operation::LOAD_KEY && !random.one_in(5) {
        request.mode = Mode(0);
        request.iv = Iv::default();
        (
            request.aad_length,
            request.destination_length,
            request.tag_length,
        ) = (0, 0, 0);
        request.source_length = [16, 24, 32, 40][random.below(4) as usize];
        if random.one_in(3) {
            // A slot of its own: else others' keys would mostly be there.
            (request.slot, request.algorithm) = (7, Algorithm::HMAC_SHA_256);
        }
    }
    request
}

/// One seed: a few dozen requests; the number of those that ended well, and how many of them were
/// tags or powers.
fn play(seed: u64) -> [usize; 2] {
    let mut random = Random(seed);
    let mut machine = Machine::new();
    let registered = |at: usize| {
        let ring = RING..RING + RING_SIZE as usize * descriptor::SIZE;
        ring.contains(&at) || (SHARED..SHARED_END).contains(&at)
    };
    for (at, byte) in machine.memory.as_mut_slice().iter_mut().enumerate() {
        if !(SHARED..SHARED_END).contains(&at) {
            *byte = (at * 31 + 7) as u8;
        } else if at >= SHARED + 0x800 {
            *byte = random.next() as u8;
        }
    }
    let before = machine.memory.as_slice().to_vec();
    let (mut good, mut numbers) = (0, 0);
    let mut posted = 0u32;
    for _ in 0..24 {
        let request = some_request(&mut random);
        write_list(
            &mut machine,
            &mut random,
            SHARED + 0x100,
            request.source_length,
        );
        write_list(
            &mut machine,
            &mut random,
            SHARED + 0x200,
            request.destination_length,
        );
        let mut bytes = request.encode();
        if random.one_in(20) {
            bytes[random.below(128) as usize] ^= 1 << random.below(8);
        }
        let slot = RING + (posted % RING_SIZE) as usize * descriptor::SIZE;
        machine.put(slot, &bytes);
        posted += 1;
        let doorbell = if random.one_in(40) {
            random.next() as u32
        } else {
            posted
        };
        machine.device.write(Register::PRODUCER, doorbell);
        let mut dma = Counting {
            memory: &mut machine.memory,
            accesses: 0,
        };
        let did = machine.device.step(&mut dma);
        assert!(
            dma.accesses <= 4 * 64 + 4,
            "seed {seed}: {} accesses",
            dma.accesses
        );
        assert!(
            did || doorbell == posted - 1,
            "seed {seed}: it stands still"
        );
        let status = machine.memory.as_slice()[slot + descriptor::STATUS];
        if status == Status::OK.0 as u8 {
            good += 1;
            numbers += usize::from(request.operation >= Operation::AUTHENTICATE);
        }
        let halted = machine.device.read(Register::CONTROL) == 0;
        if halted || doorbell != posted {
            machine
                .device
                .write(Register::CONTROL, accel_abi::register::control::RESET);
            machine.enable();
            posted = 0;
        }
    }
    for (at, (now, then)) in machine.memory.as_slice().iter().zip(&before).enumerate() {
        assert!(
            registered(at) || now == then,
            "seed {seed}: byte {at:#x} changed"
        );
    }
    assert_eq!(
        machine.memory.as_slice()[READ_ONLY..READ_ONLY_END],
        before[READ_ONLY..READ_ONLY_END],
        "seed {seed}"
    );
    [good, numbers]
}

fn play_all(seeds: std::ops::Range<u64>) {
    let count = (seeds.end - seeds.start) as usize;
    let outcomes: Vec<[usize; 2]> = seeds.map(play).collect();
    let [good, numbers] =
        [0, 1].map(|at| outcomes.iter().map(|outcome| outcome[at]).sum::<usize>());
    assert!(
        good > count && numbers > count / 6,
        "only {good} requests were good, {numbers} of them tags and powers: the others prove little"
    );
}

#[test]
fn hostile_requests_touch_only_registered_memory() {
    play_all(0..300);
}

#[test]
#[ignore = "minutes: 100000 seeds"]
fn hostile_requests_touch_only_registered_memory_100000() {
    play_all(1_000_000..1_100_000);
}
