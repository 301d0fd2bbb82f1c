//! Random and half-right requests: the device stays inside of registered memory and never stands still.

use accel_abi::descriptor::{self, Iv};
use accel_abi::register::shot;
use accel_abi::{Algorithm, Descriptor, Mode, Operation, Register, Segment, Status};
use accel_simulation::device::{Dma, DmaFault};

use crate::device::support::{
    BASE, LENGTH, Machine, READ_ONLY, READ_ONLY_END, RING, RING_SIZE, Random, SHARED, SHARED_END,
    address,
};

/// Counts accesses of a step.
struct Counting<'a> {
    memory: &'a mut accel_simulation::device::Memory,
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

/// One seed of single shots from registers written at random; how many ended well.
fn shoot(seed: u64) -> usize {
    let mut random = Random(seed);
    let mut machine = Machine::new();
    machine.ready(16);
    machine.device.write(Register::CONTROL, 0);
    let before = machine.memory.as_slice().to_vec();
    let (mut good, mut number) = (0, 0u16);
    for _ in 0..40 {
        let request = some_request(&mut random);
        // Every fourth is as it should be, but for its length.
        let plain = random.one_in(4);
        let (operation, algorithm, mode, slot) = if plain {
            (Operation::ENCRYPT, Algorithm::AES, Mode::CTR, 0)
        } else {
            let slot = 1 + (request.slot & 3);
            (request.operation, request.algorithm, request.mode, slot)
        };
        let iv = if plain { 16 } else { random.below(40) as u8 };
        let source = if random.one_in(8) {
            random.next() as u16
        } else {
            random.below(900) as u16
        };
        let half = |value: u32| value as u16;
        let writes = [
            (
                Register::SHOT_COMMAND,
                shot::command(operation.0, algorithm.0, mode.0, slot),
            ),
            (
                Register::SHOT_LENGTHS,
                shot::lengths(source, if plain { 0 } else { half(request.aad_length) }),
            ),
            (
                Register::SHOT_SIZES,
                shot::sizes(iv, if plain { 0 } else { request.tag_length }),
            ),
        ];
        for (register, value) in writes {
            if !random.one_in(20) {
                machine.device.write(register, value);
            }
        }
        for _ in 0..random.below(300) {
            let at = Register::SHOT_DATA.0 + random.below(1100) as u32;
            machine.device.write(Register(at), random.next() as u32);
        }
        number = number.wrapping_add(1);
        machine.device.write(Register::SHOT_START, number.into());
        // Nothing that is written now changes the request.
        machine
            .device
            .write(Register::SHOT_START, random.next() as u32);
        machine
            .device
            .write(Register::SHOT_LENGTHS, random.next() as u32);
        let mut dma = Counting {
            memory: &mut machine.memory,
            accesses: 0,
        };
        assert!(machine.device.step(&mut dma) && dma.accesses == 0);
        assert!(!machine.device.step(&mut dma), "seed {seed}: once more");
        let (outcome, echo) = shot::halves(machine.device.read(Register::SHOT_STATUS));
        assert_eq!(echo, number, "seed {seed}");
        let produced = machine.device.read(Register::SHOT_PRODUCED);
        let words = (0..).map_while(Register::shot_data);
        let result: Vec<u32> = words.map(|word| machine.device.read(word)).collect();
        let beyond = &result[produced.div_ceil(4) as usize..];
        assert!(beyond.iter().all(|word| *word == 0), "seed {seed}");
        match Status(outcome) {
            Status::OK => good += usize::from(produced > 0),
            Status::UNSUPPORTED | Status::BAD_LENGTH | Status::NO_KEY | Status::BAD_OPERAND => {
                assert_eq!(produced, 0, "seed {seed}");
            }
            other => panic!("seed {seed}: {other}"),
        }
        // Not aligned, or beyond the last word.
        for at in [0x3ff, 0x401, 0x402, 0x800, 0x804, 0xffc] {
            assert_eq!(machine.device.read(Register(at)), 0);
        }
    }
    assert!(machine.memory.as_slice() == before, "seed {seed}");
    good
}

#[test]
fn hostile_single_shots_end_once_and_touch_no_memory() {
    let good: usize = (0..300).map(shoot).sum();
    assert!(good > 300, "only {good} were good: the others prove little");
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
