//! Concurrent error detection: the published figures and the refusal of faulty blocks.

use ibc::ced::inject::{
    Faults, MAX_FAULTS, Placement, SplitMix64, decrypt_block_with_faults, draw_faults,
    encrypt_block_with_faults,
};
use ibc::ced::{CheckedIbc, Code, Stage};
use ibc::{Block, Variant};

/// The table of the specification, section 5.5: level low, 3000 random blocks. The published
/// figures 3 and 4 are the rows with one stage.
const FIGURES: [(usize, Placement, [&str; 6]); 4] = [
    (
        5,
        Placement::OneStage,
        ["1.000", "1.000", "1.947", "3.061", "1.859", "1.000"],
    ),
    (
        5,
        Placement::Spread,
        ["3.881", "4.395", "4.710", "4.862", "4.402", "4.405"],
    ),
    (
        10,
        Placement::OneStage,
        ["0.000", "0.960", "2.015", "3.793", "2.458", "1.000"],
    ),
    (
        10,
        Placement::Spread,
        ["5.919", "7.647", "8.740", "9.334", "7.808", "7.622"],
    ),
];

const BLOCKS: u32 = 3000;

#[test]
fn the_published_figures_come_out_to_three_decimals() {
    let key: [u8; 16] = core::array::from_fn(|i| i as u8);
    let ciphers = Code::ALL.map(|code| CheckedIbc::new(Variant::Indect128, &key, code).unwrap());
    for (errors, placement, expected) in FIGURES {
        let spread = u64::from(placement == Placement::Spread);
        let mut rng = SplitMix64::new(errors as u64 * 2 + spread);
        let mut data = SplitMix64::new(99);
        let mut totals = [0; 6];
        for _ in 0..BLOCKS {
            let words = [(); 4].map(|()| data.next_u64().to_be_bytes());
            let block: Block = words.concat().try_into().unwrap();
            let faults = draw_faults(&mut rng, 8, errors, placement).unwrap();
            for (cipher, total) in ciphers.iter().zip(&mut totals) {
                *total += encrypt_block_with_faults(cipher, &mut block.clone(), &faults).detected;
            }
        }
        let averages = totals.map(|t| format!("{:.3}", f64::from(t) / f64::from(BLOCKS)));
        assert_eq!(averages, expected, "{errors} errors, {placement:?}");
    }
}

#[test]
fn one_wrong_bit_in_any_stage_is_noticed_by_every_code() {
    for variant in Variant::ALL {
        let key = vec![0x3C; variant.key_size()];
        for code in Code::ALL {
            let cipher = CheckedIbc::new(variant, &key, code).unwrap();
            for round in 0..variant.rounds() {
                for stage in [Stage::Substitution, Stage::Permutation] {
                    let bit = (round * 37 + 11) % 256;
                    let mut mask = [0; 32];
                    mask[bit / 8] = 1 << (bit % 8);
                    let faults = Faults::from([((round, stage), mask)]);
                    let mut block = [0x77; 32];
                    let outcome = encrypt_block_with_faults(&cipher, &mut block, &faults);
                    assert_eq!(
                        (outcome.detected, outcome.alarms),
                        (1, 1),
                        "{variant} {code}"
                    );
                    let outcome = decrypt_block_with_faults(&cipher, &mut block, &faults);
                    assert_eq!(
                        (outcome.detected, outcome.alarms),
                        (1, 1),
                        "{variant} {code}"
                    );
                }
            }
        }
    }
}

#[test]
fn even_numbers_of_wrong_bits_escape_one_parity_bit() {
    // The published weakness; the other codes see these two bits.
    let mut mask = [0; 32];
    mask[3] = 0b11;
    let faults = Faults::from([((2, Stage::Substitution), mask)]);
    for code in Code::ALL {
        let cipher = CheckedIbc::new(Variant::Indect128, &[1; 16], code).unwrap();
        let mut faulty = [0; 32];
        let outcome = encrypt_block_with_faults(&cipher, &mut faulty, &faults);
        let mut good = [0; 32];
        cipher.encrypt_block(&mut good).unwrap();
        assert_ne!(faulty, good);
        match code {
            Code::Parity1 => assert_eq!(outcome.detected, 0),
            Code::Parity2 | Code::Parity4 | Code::Parity8 => assert_eq!(outcome.detected, 2),
            // Berger counts both or none, depending on the values under the mask.
            Code::Berger => assert!(matches!(outcome.detected, 0 | 2)),
            Code::Crc16 => assert_eq!(outcome.detected, 1),
        }
    }
}

#[test]
fn faults_are_bounded() {
    let mut rng = SplitMix64::new(1);
    for placement in [Placement::OneStage, Placement::Spread] {
        let faults = draw_faults(&mut rng, 8, MAX_FAULTS, placement).unwrap();
        let bits: u32 = faults.values().flatten().map(|b| b.count_ones()).sum();
        assert_eq!(bits as usize, MAX_FAULTS);
        assert!(draw_faults(&mut rng, 8, MAX_FAULTS + 1, placement).is_err());
        assert!(draw_faults(&mut rng, 0, 1, placement).is_err());
    }
}
