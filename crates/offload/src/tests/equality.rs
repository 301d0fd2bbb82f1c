//! Whatever the fastest engine makes, the library makes as well, byte for byte; and each opens what
//! the other sealed.

use super::{Random, aeads, all_suites, keys};
use crate::engine::{self, Engine};
use crate::mac::{Authenticator, MacSlot};
use crate::slot::Slot;
use crate::suite::{Encryption, Integrity, Suite};
use crate::transform::{Direction, Transform};

/// Packets of a suite with these lengths of payload and trailer, one behind the other with a gap.
fn packets(suite: Suite, texts: &[usize], random: &mut Random) -> (Vec<u8>, Vec<Slot>) {
    let overhead = 8 + suite.encryption().iv_len() + suite.icv_len();
    let (mut slots, mut at) = (Vec::new(), 3);
    for text in texts {
        let sequence = random.number();
        slots.push(Slot::new(at, overhead + text, sequence));
        at += overhead + text + random.below(70);
    }
    (random.bytes(at + 1), slots)
}

fn transform(
    suite: Suite,
    seed: u64,
    extended: bool,
    direction: Direction,
    engine: Engine,
) -> Transform {
    let keys = keys(suite, &mut Random(seed));
    Transform::with_engine(suite, &keys, extended, direction, engine).unwrap()
}

/// Seals by both engines, compares everything in the buffers, opens crosswise.
fn compare(suite: Suite, texts: &[usize], extended: bool, random: &mut Random) {
    let seed = random.number();
    let (plain, slots) = packets(suite, texts, random);
    let run = |engine, direction, input: &[u8]| {
        let (mut buffer, mut slots) = (input.to_vec(), slots.clone());
        let transform = transform(suite, seed, extended, direction, engine);
        match direction {
            Direction::Seal => transform.seal(&mut buffer, &mut slots),
            Direction::Open => transform.open(&mut buffer, &mut slots),
        }
        assert!(slots.iter().all(|slot| slot.valid), "{suite:?} {texts:?}");
        buffer
    };
    let sealed = run(Engine::Library, Direction::Seal, &plain);
    let same = run(Engine::Fastest, Direction::Seal, &plain) == sealed;
    assert!(same, "{suite:?} extended {extended}: {texts:?}");
    for engine in [Engine::Library, Engine::Fastest] {
        let opened = run(engine, Direction::Open, &sealed);
        for slot in &slots {
            let offset = 8 + suite.encryption().iv_len();
            let text = slot.start + offset..slot.range().end - suite.icv_len();
            assert_eq!(opened[text.clone()], plain[text], "{suite:?} {engine:?}");
        }
    }
}

/// What several packets share is no part of what is made of each: sequence numbers, lanes and rests
/// of the batch.
#[test]
fn a_batch_is_as_each_packet_alone() {
    let mut random = Random(9);
    for suite in all_suites() {
        let step = suite.encryption().alignment();
        let texts: Vec<_> = (0..21).map(|_| step * (1 + random.below(90))).collect();
        let seed = random.number();
        let (plain, slots) = packets(suite, &texts, &mut random);
        let seal = transform(suite, seed, true, Direction::Seal, Engine::Fastest);
        let (mut together, mut asked) = (plain.clone(), slots.clone());
        seal.seal(&mut together, &mut asked);
        let mut alone = plain;
        for slot in slots {
            seal.seal(&mut alone, &mut [slot]);
        }
        assert!(together == alone, "{suite:?}");
    }
}

/// Whether there is anything to compare with the library.
fn has_vector_code(suite: &Suite) -> bool {
    let fastest = transform(*suite, 1, false, Direction::Seal, Engine::Fastest);
    fastest.engine_name() != engine::LIBRARY
}

#[test]
fn every_length_in_one_batch() {
    let mut random = Random(1);
    for suite in all_suites() {
        let step = suite.encryption().alignment();
        let lengths: Vec<_> = (step..=2048 + step).step_by(step).collect();
        for extended in [false, true] {
            compare(suite, &lengths, extended, &mut random);
        }
    }
}

#[test]
fn every_length_alone_and_in_equal_batches() {
    let mut random = Random(2);
    for suite in all_suites().into_iter().filter(has_vector_code) {
        let step = suite.encryption().alignment();
        for length in (step..=2048 + step).step_by(step) {
            let count = [1, 2, 5, 16, 17, 45][random.below(6)];
            compare(
                suite,
                &vec![length; count],
                random.below(2) == 1,
                &mut random,
            );
        }
    }
}

#[test]
fn random_lengths_up_to_the_largest_packet() {
    let mut random = Random(3);
    for suite in all_suites().into_iter().filter(has_vector_code) {
        let step = suite.encryption().alignment();
        for _ in 0..4 {
            let count = 1 + random.below(24);
            let mut length = || (1 + random.below(65_000 / step)) * step;
            let lengths: Vec<_> = (0..count).map(|_| length()).collect();
            compare(suite, &lengths, true, &mut random);
        }
    }
}

/// The combined modes for any nonce, additional data and length of text, none included.
#[test]
fn combined_modes_at_every_length_and_additional_data() {
    let mut random = Random(4);
    for encryption in [
        Encryption::AesGcm128,
        Encryption::AesGcm192,
        Encryption::AesGcm256,
    ] {
        let key = random.bytes(encryption.key_len() - 4);
        let engines = aeads(encryption, &key);
        for length in (0..=2048).chain([4095, 4096, 4097, 65_000, 65_535]) {
            let nonce: [u8; 12] = random.bytes(12).try_into().unwrap();
            let aad = match length % 4 {
                0 => random.bytes(8),
                1 => random.bytes(12),
                _ => {
                    let length = random.below(70);
                    random.bytes(length)
                }
            };
            let plain = random.bytes(length);
            let sealed = engines.iter().map(|aead| {
                let (mut text, mut tag) = (plain.clone(), [0; 16]);
                aead.seal(nonce, &aad, &mut text, &mut tag).unwrap();
                (text, tag)
            });
            let sealed: Vec<_> = sealed.collect();
            assert!(
                sealed.windows(2).all(|two| two[0] == two[1]),
                "{encryption:?} {length} {}",
                aad.len()
            );
            let (cipher, tag) = &sealed[0];
            for aead in &engines {
                let mut text = cipher.clone();
                aead.open(nonce, &aad, &mut text, tag).unwrap();
                assert!(text == plain);
                let mut wrong = *tag;
                wrong[random.below(16)] ^= 1 << random.below(8);
                let mut text = cipher.clone();
                assert!(aead.open(nonce, &aad, &mut text, &wrong).is_none());
                assert!(aead.open(nonce, &aad, &mut text, &tag[..15]).is_none());
            }
        }
    }
}

/// A change anywhere in a packet, or of what only the receiver knows, is refused by each engine, and
/// the packets beside it are not affected.
#[test]
fn a_changed_packet_is_refused_and_its_neighbours_are_not() {
    let mut random = Random(5);
    for suite in all_suites() {
        let step = suite.encryption().alignment();
        let texts: Vec<_> = (1..=20).map(|n| n * 3 * step).collect();
        let seed = random.number();
        let (mut sealed, mut slots) = packets(suite, &texts, &mut random);
        transform(suite, seed, true, Direction::Seal, Engine::Library)
            .seal(&mut sealed, &mut slots);
        for engine in [Engine::Library, Engine::Fastest] {
            let open = transform(suite, seed, true, Direction::Open, engine);
            for _ in 0..200 {
                let victim = random.below(slots.len());
                let (mut buffer, mut asked) = (sealed.clone(), slots.clone());
                match random.below(4) {
                    0 => asked[victim].sequence ^= 1 << (32 + random.below(32)),
                    // Cut at the end: the integrity value is read from the wrong place.
                    1 => asked[victim].len -= step,
                    _ => {
                        let at = slots[victim].start + random.below(slots[victim].len);
                        buffer[at] ^= 1 << random.below(8);
                    }
                }
                open.open(&mut buffer, &mut asked);
                for (at, slot) in asked.iter().enumerate() {
                    assert_eq!(slot.valid, at != victim, "{suite:?} {engine:?} slot {at}");
                }
            }
        }
    }
}

/// Slots that are marked, too short, not aligned or outside are left alone, and the others are done
/// as without them.
#[test]
fn invalid_slots_in_a_batch() {
    let mut random = Random(6);
    for suite in all_suites() {
        let step = suite.encryption().alignment();
        let texts: Vec<_> = (0..40).map(|_| step * (1 + random.below(60))).collect();
        let (plain, slots) = packets(suite, &texts, &mut random);
        let seed = random.number();
        let mut damaged = slots.clone();
        for (at, slot) in damaged.iter_mut().enumerate() {
            match at % 7 {
                1 => slot.valid = false,
                2 => slot.len = random.below(8 + suite.encryption().iv_len() + suite.icv_len() + 1),
                3 => slot.len -= 1,
                4 => slot.start = plain.len() - 5,
                5 => slot.start = usize::MAX - 3,
                _ => {}
            }
        }
        let results = [Engine::Library, Engine::Fastest].map(|engine| {
            let seal = transform(suite, seed, false, Direction::Seal, engine);
            let (mut buffer, mut slots) = (plain.clone(), damaged.clone());
            seal.seal(&mut buffer, &mut slots);
            for (at, slot) in slots.iter().enumerate() {
                assert_eq!(
                    slot.valid,
                    matches!(at % 7, 0 | 6),
                    "{suite:?} {engine:?} {at}"
                );
            }
            buffer
        });
        assert!(results[0] == results[1], "{suite:?}");
        for (at, slot) in slots
            .iter()
            .enumerate()
            .filter(|(at, _)| !matches!(at % 7, 0 | 6))
        {
            assert_eq!(
                results[1][slot.range()],
                plain[slot.range()],
                "{suite:?} slot {at}"
            );
        }
    }
}

#[test]
fn a_key_works_in_its_direction_only() {
    let mut random = Random(7);
    for suite in all_suites() {
        for engine in [Engine::Library, Engine::Fastest] {
            let (plain, slots) = packets(suite, &[64; 3], &mut random);
            let (mut buffer, mut asked) = (plain.clone(), slots.clone());
            transform(suite, 9, false, Direction::Seal, engine).open(&mut buffer, &mut asked);
            assert!(asked.iter().all(|slot| !slot.valid));
            let mut asked = slots;
            transform(suite, 9, false, Direction::Open, engine).seal(&mut buffer, &mut asked);
            assert!(asked.iter().all(|slot| !slot.valid));
            assert!(buffer == plain);
        }
    }
}

/// Integrity values inside of packets, as AH has them.
#[test]
fn authenticators_agree() {
    let mut random = Random(8);
    for integrity in Integrity::ALL.iter().copied() {
        let key = random.bytes(integrity.key_len());
        for extended in [false, true] {
            let authenticators = [Engine::Library, Engine::Fastest].map(|engine| {
                Authenticator::with_engine(integrity, &key, extended, engine).unwrap()
            });
            let (mut slots, mut at) = (Vec::new(), 0);
            for len in 44..600 {
                let icv = at + random.below(len - integrity.icv_len() + 1);
                let packet = Slot::new(at, len, random.number());
                slots.push(MacSlot { packet, icv });
                at += len;
            }
            let plain = random.bytes(at);
            let signed = authenticators.each_ref().map(|authenticator| {
                let (mut buffer, mut slots) = (plain.clone(), slots.clone());
                authenticator.sign(&mut buffer, &mut slots);
                assert!(slots.iter().all(|slot| slot.packet.valid));
                buffer
            });
            assert!(signed[0] == signed[1], "{integrity:?}");
            for authenticator in &authenticators {
                let (mut buffer, mut asked) = (signed[0].clone(), slots.clone());
                buffer[slots[100].packet.start] ^= 1;
                let before = buffer.clone();
                authenticator.verify(&mut buffer, &mut asked);
                assert!(buffer == before, "the values stay in place");
                for (at, slot) in asked.iter().enumerate() {
                    assert_eq!(slot.packet.valid, at != 100, "{integrity:?} {at}");
                }
            }
        }
    }
}

#[test]
fn engines_say_what_they_are() {
    for suite in all_suites() {
        let library = transform(suite, 1, false, Direction::Seal, Engine::Library);
        assert_eq!(library.engine_name(), engine::LIBRARY);
        let name = transform(suite, 1, false, Direction::Seal, Engine::Fastest).engine_name();
        use Encryption::{AesCbc128, AesCbc256, AesGcm128, AesGcm256, Null};
        use Integrity::{HmacSha1_96, HmacSha256_128};
        let hash = matches!(suite.integrity(), Some(HmacSha1_96 | HmacSha256_128));
        let expected = match suite.encryption() {
            AesGcm128 | AesGcm256 if !has_kernels() && has_pairs() => engine::PAIRS,
            _ if !has_kernels() => engine::LIBRARY,
            AesGcm128 | AesGcm256 => engine::VECTOR,
            AesCbc128 | AesCbc256 | Null if hash => engine::VECTOR,
            AesCbc128 | AesCbc256 => engine::MIXED,
            _ if hash => engine::MIXED,
            _ => engine::LIBRARY,
        };
        assert_eq!(name, expected, "{suite:?}");
    }
}

#[cfg(target_arch = "x86_64")]
fn has_kernels() -> bool {
    is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
}

#[cfg(target_arch = "x86_64")]
fn has_pairs() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_pairs() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_kernels() -> bool {
    false
}
