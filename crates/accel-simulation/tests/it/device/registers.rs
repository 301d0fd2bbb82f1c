//! Registers, interrupts, and single wrong requests.

use accel_abi::descriptor::Completion;
use accel_abi::register::{control, interrupt, state};
use accel_abi::{Descriptor, Mode, Operation, Register, SEGMENTS_MAX, Segment, Status};

use crate::device::support::{
    BASE, LENGTH, Machine, READ_ONLY, RING, RING_SIZE, SHARED, SHARED_END, address, device,
};

fn status(completion: Completion) -> Status {
    completion.status.unwrap()
}

#[test]
fn request_is_completed_with_echo_cycles_and_interrupt() {
    let mut machine = Machine::new();
    machine
        .device
        .write(Register::INTERRUPT_ENABLE, interrupt::COMPLETION);
    let request = machine.ready(64);
    assert!(machine.device.take_interrupt(), "after the key");
    let completion = machine.run(&request.encode());
    assert_eq!(status(completion), Status::OK);
    assert_eq!((completion.echo, completion.produced), (77, 64));
    // The key schedule, then a block: twelve cycles, nine words of bus.
    assert_eq!(completion.cycles, 1 + 4 + 101 + 4 * (12 + 5));
    assert!(
        !machine.device.take_interrupt(),
        "the cause was not cleared"
    );
    machine
        .device
        .write(Register::INTERRUPT_STATUS, interrupt::COMPLETION);
    machine.run(&request.encode());
    assert!(machine.device.take_interrupt());
    assert!(!machine.device.take_interrupt(), "one message");
    assert_eq!(machine.device.read(Register::CONSUMER), 3);
    assert_eq!(machine.device.read(Register::STATE), state::ENABLED);
}

#[test]
fn pending_interrupt_is_sent_when_it_is_enabled() {
    let mut machine = Machine::new();
    machine.ready(16);
    assert!(!machine.device.take_interrupt());
    machine
        .device
        .write(Register::INTERRUPT_ENABLE, interrupt::COMPLETION);
    assert!(machine.device.take_interrupt());
}

#[test]
fn lists_with_links_and_pieces_give_the_same_bytes() {
    let mut machine = Machine::new();
    let request = machine.ready(48);
    machine.put(SHARED + 0x1000, &[5; 48]);
    assert_eq!(status(machine.run(&request.encode())), Status::OK);
    let expected = machine.memory.as_slice()[SHARED + 0x2000..][..48].to_vec();

    let piece = |offset, length, flags| Segment {
        address: address(offset),
        length,
        flags,
    };
    machine.list(
        SHARED,
        &[
            piece(SHARED + 0x1000, 1, 0),
            piece(SHARED + 0x400, 0, Segment::LINK),
        ],
    );
    machine.list(
        SHARED + 0x400,
        &[
            piece(READ_ONLY, 46, 0),
            piece(READ_ONLY + 99, 1, Segment::LAST),
        ],
    );
    machine.put(READ_ONLY, &[5; 100]);
    machine.list(
        SHARED + 0x80,
        &[
            piece(SHARED + 0x3000, 17, 0),
            piece(SHARED + 0x3100, 31, Segment::LAST),
        ],
    );
    assert_eq!(status(machine.run(&request.encode())), Status::OK);
    let memory = machine.memory.as_slice();
    let got = [
        &memory[SHARED + 0x3000..][..17],
        &memory[SHARED + 0x3100..][..31],
    ]
    .concat();
    assert_eq!(got, expected);
}

#[test]
fn bad_lists_and_addresses_write_nothing() {
    let good = |offset| Segment {
        address: address(offset),
        length: 16,
        flags: Segment::LAST,
    };
    let at = |address| Segment { address, ..good(0) };
    let source = good(SHARED + 0x1000);
    let cases = [
        // A zero length, too short, too long, unknown flags, a link with a length.
        (
            Segment {
                length: 0,
                ..source
            },
            Status::BAD_LIST,
        ),
        (
            Segment {
                length: 15,
                ..source
            },
            Status::BAD_LIST,
        ),
        (
            Segment {
                length: u32::MAX,
                ..source
            },
            Status::BAD_LIST,
        ),
        (Segment { flags: 7, ..source }, Status::BAD_LIST),
        (
            Segment {
                flags: Segment::LINK,
                ..source
            },
            Status::BAD_LIST,
        ),
        // A link to itself.
        (
            Segment {
                address: address(SHARED),
                length: 0,
                flags: Segment::LINK,
            },
            Status::BAD_LIST,
        ),
        // Before, behind and across the end of what is registered, and around the end of all.
        (at(BASE), Status::BAD_ADDRESS),
        (at(address(SHARED_END)), Status::BAD_ADDRESS),
        (at(address(SHARED_END) - 15), Status::BAD_ADDRESS),
        (at(BASE + LENGTH as u64 + 4), Status::BAD_ADDRESS),
        (at(u64::MAX - 3), Status::BAD_ADDRESS),
    ];
    for (entry, expected) in cases {
        for destination in [false, true] {
            let mut machine = Machine::new();
            let request = machine.ready(16);
            machine.list(if destination { SHARED + 0x80 } else { SHARED }, &[entry]);
            let list_loops = entry.flags == Segment::LINK && entry.length == 0;
            if list_loops && destination {
                let itself = Segment {
                    address: address(SHARED + 0x80),
                    ..entry
                };
                machine.list(SHARED + 0x80, &[itself]);
            }
            let before = machine.memory.as_slice()[SHARED..].to_vec();
            assert_eq!(
                status(machine.run(&request.encode())),
                expected,
                "{entry:?} {destination}"
            );
            assert_eq!(machine.memory.as_slice()[SHARED..], before);
        }
    }
    let mut machine = Machine::new();
    let request = machine.ready(16);
    machine.list(SHARED + 0x80, &[good(READ_ONLY)]);
    assert_eq!(
        status(machine.run(&request.encode())),
        Status::BAD_ADDRESS,
        "read only"
    );
    assert_eq!(machine.device.read(Register::DMA_FAULTS), 1);
}

#[test]
fn destination_with_a_bad_second_piece_gets_no_first() {
    for second in [BASE, address(READ_ONLY), address(SHARED_END) - 8] {
        let mut machine = Machine::new();
        let request = machine.ready(32);
        let piece = |address, flags| Segment {
            address,
            length: 16,
            flags,
        };
        let first = address(SHARED + 0x2000);
        machine.list(
            SHARED + 0x80,
            &[piece(first, 0), piece(second, Segment::LAST)],
        );
        let before = machine.memory.as_slice()[SHARED..].to_vec();
        assert_eq!(status(machine.run(&request.encode())), Status::BAD_ADDRESS);
        assert_eq!(machine.memory.as_slice()[SHARED..], before, "{second:#x}");
    }
}

#[test]
fn list_has_at_most_the_bound_of_entries() {
    for (entries, expected) in [
        (SEGMENTS_MAX, Status::OK),
        (SEGMENTS_MAX + 1, Status::BAD_LIST),
    ] {
        let mut machine = Machine::new();
        let request = machine.ready(16 * entries as u32);
        let list: Vec<Segment> = (0..entries)
            .map(|index| Segment {
                address: address(SHARED + 0x1000 + 16 * index),
                length: 16,
                flags: if index + 1 == entries {
                    Segment::LAST
                } else {
                    0
                },
            })
            .collect();
        machine.list(SHARED + 0x800, &list);
        let request = Descriptor {
            source: address(SHARED + 0x800),
            ..request
        };
        assert_eq!(status(machine.run(&request.encode())), expected);
    }
}

#[test]
fn wrong_numbers_and_lengths_have_their_outcomes() {
    let mut machine = Machine::new();
    let good = machine.ready(16);
    let wrong = [
        (
            Descriptor {
                operation: Operation(0),
                ..good.clone()
            },
            Status::UNSUPPORTED,
        ),
        (
            Descriptor {
                mode: Mode(99),
                ..good.clone()
            },
            Status::UNSUPPORTED,
        ),
        (
            Descriptor {
                slot: 16,
                ..good.clone()
            },
            Status::UNSUPPORTED,
        ),
        (
            Descriptor {
                slot: 1,
                ..good.clone()
            },
            Status::NO_KEY,
        ),
        (
            Descriptor {
                source_length: 0,
                destination_length: 0,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                source_length: u32::MAX,
                destination_length: u32::MAX,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                aad_length: 17,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                destination_length: 17,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                source: address(SHARED) + 1,
                ..good.clone()
            },
            Status::BAD_LIST,
        ),
        (
            Descriptor {
                operation: Operation::LOAD_KEY,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
        (
            Descriptor {
                operation: Operation::ZEROISE_KEY,
                ..good.clone()
            },
            Status::BAD_LENGTH,
        ),
    ];
    for (request, expected) in wrong {
        let completion = machine.run(&request.encode());
        assert_eq!(
            (status(completion), completion.produced),
            (expected, 0),
            "{request:?}"
        );
    }
    let mut damaged = good.encode();
    damaged[30] ^= 4;
    assert_eq!(status(machine.run(&damaged)), Status::BAD_DESCRIPTOR);
    assert_eq!(
        status(machine.run(&good.encode())),
        Status::OK,
        "it goes on"
    );
}

#[test]
fn broken_ring_halts_the_device_until_a_reset() {
    let breakages: [&dyn Fn(&mut Machine); 3] = [
        // More posted than the ring has.
        &|machine| machine.device.write(Register::PRODUCER, RING_SIZE + 2),
        // A descriptor that the device does not own.
        &|machine| {
            machine.put(RING + 128, &[0; 128]);
            machine.device.write(Register::PRODUCER, 2);
        },
        // A ring outside of registered memory.
        &|machine| {
            machine.device.write(Register::CONTROL, control::RESET);
            machine
                .device
                .write(Register::INTERRUPT_ENABLE, interrupt::HALT);
            machine.device.write(Register::RING_SIZE, 8);
            machine.device.write(Register::CONTROL, control::ENABLE);
            machine.device.write(Register::PRODUCER, 1);
        },
    ];
    for breakage in breakages {
        let mut machine = Machine::new();
        machine
            .device
            .write(Register::INTERRUPT_ENABLE, interrupt::HALT);
        let good = machine.ready(16);
        breakage(&mut machine);
        let before = machine.memory.as_slice().to_vec();
        assert!(machine.device.step(&mut machine.memory));
        assert_eq!(machine.device.read(Register::STATE), state::HALTED);
        assert!(machine.device.take_interrupt());
        assert!(!machine.device.step(&mut machine.memory), "it stands still");
        assert_eq!(machine.memory.as_slice(), before);

        machine.device.write(Register::CONTROL, control::RESET);
        machine.enable();
        assert_eq!(
            status(machine.run(&good.encode())),
            Status::NO_KEY,
            "keys are gone"
        );
    }
}

#[test]
fn unusable_ring_sizes_halt_instead_of_enabling() {
    for size in [0, 1, 3, 6, 1023, 2048, u32::MAX] {
        let mut device = device();
        device.write(Register::RING_SIZE, size);
        device.write(Register::CONTROL, control::ENABLE);
        assert_eq!(device.read(Register::STATE), state::HALTED, "{size}");
    }
}

#[test]
fn zeroise_command_takes_all_keys() {
    let mut machine = Machine::new();
    let request = machine.ready(16);
    machine
        .device
        .write(Register::CONTROL, control::ENABLE | control::ZEROISE);
    assert_eq!(status(machine.run(&request.encode())), Status::NO_KEY);
}
