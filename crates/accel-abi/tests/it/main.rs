//! The tables against one another and against the committed header and manual.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

use accel_abi::descriptor::{self, Completion, FIELDS, Iv};
use accel_abi::register::{PAGE, REGISTERS};
use accel_abi::{Algorithm, Descriptor, DescriptorError, Mode, Operation, Segment, Status, print};

fn sample() -> Descriptor {
    Descriptor {
        operation: Operation::DECRYPT,
        algorithm: Algorithm::AES,
        mode: Mode::GCM,
        slot: 3,
        sequence: 0x0102_0304,
        source: 0x1122_3344_5566_7788,
        destination: 0x99aa_bbcc_ddee_ff00,
        source_length: 1500,
        aad_length: 20,
        destination_length: 1496,
        iv: Iv::new(&[7; 12]).unwrap(),
        tag_length: 16,
    }
}

#[test]
fn committed_header_and_manual_are_those_of_the_tables() {
    // To renew them: cargo run --workspace --example print header (and manual).
    let header = include_str!("../../include/cordon_accel.h");
    assert_eq!(header, print::c_header());
    let manual = include_str!("../../../../docs/accelerator.md");
    assert_eq!(manual, print::manual());
}

#[test]
fn descriptor_fields_have_no_gaps_and_fill_it() {
    let mut end = 0;
    for field in FIELDS {
        let size = match field.c_type {
            "uint8_t" => 1,
            "uint32_t" => 4,
            "uint64_t" => 8,
            other => panic!("{other}"),
        };
        assert_eq!(field.offset, end, "{}", field.name);
        assert_eq!(field.offset % size, 0, "{} is aligned", field.name);
        end += size * field.count;
    }
    assert_eq!(end, descriptor::SIZE);
}

#[test]
fn registers_ascend_in_the_page_and_their_bits_do_not_overlap() {
    for pair in REGISTERS.windows(2) {
        assert!(pair[0].register < pair[1].register);
    }
    for entry in REGISTERS {
        assert!(entry.register.0.is_multiple_of(4) && entry.register.0 < PAGE);
        let mut seen = 0;
        for field in entry.fields {
            assert_eq!(seen & field.mask(), 0, "{}", field.name);
            seen |= field.mask();
        }
    }
}

#[test]
fn descriptor_survives_encoding_and_stands_at_its_offsets() {
    let bytes = sample().encode();
    assert_eq!(Descriptor::decode(&bytes), Ok(sample()));
    assert_eq!(bytes[4..8], [4, 3, 2, 1]);
    assert_eq!(bytes[36..40], [12, 16, 0, 0]);
    assert_eq!(bytes[120..124], [0, 0, 0, 0x80]);
    assert_eq!(Completion::decode(&bytes).status, None);
}

#[test]
fn every_flipped_bit_of_the_drivers_part_is_noticed() {
    let bytes = sample().encode();
    for bit in 0..8 * (descriptor::CHECK + 4) {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Descriptor::decode(&damaged), Err(DescriptorError::Check));
    }
}

#[test]
fn reserved_bytes_and_bytes_behind_the_vector_must_be_zero() {
    for at in [38, 39, 52, 71, 72, 95] {
        let mut bytes = sample().encode();
        bytes[at] = 1;
        let check = accel_abi::crc32(&bytes[..descriptor::CHECKED]);
        bytes[descriptor::CHECK..][..4].copy_from_slice(&check.to_le_bytes());
        assert_eq!(
            Descriptor::decode(&bytes),
            Err(DescriptorError::Reserved),
            "{at}"
        );
    }
    assert_eq!(Iv::new(&[0; 33]), None);
}

#[test]
fn completion_is_read_as_written() {
    let written = Completion {
        produced: 1496,
        cycles: 1 << 40,
        status: Some(Status::OK),
        echo: 0x0102_0304,
    };
    let mut bytes = sample().encode();
    bytes[descriptor::PRODUCED..][..12].copy_from_slice(&written.results());
    bytes[descriptor::STATUS..].copy_from_slice(&written.status_and_echo());
    assert_eq!(Completion::decode(&bytes), written);
    assert_eq!(format!("{} {}", Status::OK, Status(77)), "OK status 0x004d");
}

#[test]
fn segment_survives_encoding_and_every_flipped_bit_is_noticed() {
    let segment = Segment {
        address: 0x1234_5678_9abc,
        length: 4096,
        flags: Segment::LAST,
    };
    let bytes = segment.encode();
    assert_eq!(Segment::decode(&bytes), Some(segment));
    for bit in 0..8 * Segment::SIZE {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Segment::decode(&damaged), None);
    }
}
