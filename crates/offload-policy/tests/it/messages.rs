//! Messages that are refused, and streams cut anywhere.

use std::sync::Arc;

use aws_lc_rs::cipher::{EncryptingKey, EncryptionContext};
use aws_lc_rs::iv::FixedLength;
use offload_policy::{
    AesCbc, AesCtr, AesGcm, Direction, Hash, Hmac, MessageError, Policy, Selection, Settings,
};

use crate::support::{FakeDevice, Random, cipher};

fn policies() -> [Arc<Policy>; 2] {
    let settings = Settings {
        selection: Selection::From(0),
        ..Settings::default()
    };
    let device = Arc::new(FakeDevice::default());
    [
        Policy::new(None, settings),
        Policy::new(Some(device), settings),
    ]
}

#[test]
fn keys_of_wrong_lengths_are_refused() {
    for policy in policies() {
        for len in 0..40 {
            let key = vec![0; len];
            let aes = matches!(len, 16 | 24 | 32);
            let refused = MessageError::Key(len);
            let made = AesCbc::new(&policy, Direction::Encrypt, &key, [0; 16]);
            assert_eq!(made.err(), (!aes).then_some(refused));
            let made = AesCtr::new(&policy, &key, [0; 16]);
            assert_eq!(made.err(), (!aes).then_some(refused));
            let made = AesGcm::new(&policy, &key);
            assert_eq!(made.err(), (!aes).then_some(refused));
            let made = Hmac::new(&policy, Hash::Sha1, &key);
            assert_eq!(made.err(), (len == 0).then_some(refused));
        }
    }
}

#[test]
fn cbc_takes_whole_blocks_only_and_leaves_the_rest_alone() {
    for policy in policies() {
        let mut stream = AesCbc::new(&policy, Direction::Encrypt, &[1; 16], [2; 16]).unwrap();
        for len in [1, 15, 17, 31] {
            let mut data = vec![7; len];
            assert_eq!(stream.process(&mut data), Err(MessageError::Blocks(len)));
            assert_eq!((data, stream.iv()), (vec![7; len], [2; 16]));
        }
        stream.process(&mut []).unwrap();
        assert_eq!(stream.iv(), [2; 16]);
    }
}

#[test]
fn tags_of_wrong_lengths_are_refused() {
    for policy in policies() {
        for (hash, whole) in [(Hash::Sha1, 20), (Hash::Sha256, 32)] {
            let key = Hmac::new(&policy, hash, b"key").unwrap();
            let mut tag = vec![0; whole];
            key.sign(b"message", &mut tag).unwrap();
            for len in 0..40 {
                let mut cut = vec![0; len];
                let allowed = (10..=whole).contains(&len);
                assert_eq!(key.sign(b"message", &mut cut).is_ok(), allowed);
                if allowed {
                    assert_eq!(cut, tag[..len]);
                }
                assert_eq!(key.verify(b"message", &cut).is_ok(), allowed);
            }
        }
    }
}

#[test]
fn a_counter_runs_over_all_its_bits_however_the_stream_is_cut() {
    let mut random = Random(11);
    let message = random.bytes(1000);
    for low in [
        u128::MAX,
        u128::MAX - 3,
        0xffff_ffff,
        0xffff_fffe,
        u128::from(u64::MAX) - 1,
    ] {
        let counter = low.to_be_bytes();
        let mut expected = message.clone();
        let key = EncryptingKey::ctr(cipher(&[9; 16])).unwrap();
        let context = EncryptionContext::Iv128(FixedLength::from(counter));
        key.less_safe_encrypt(&mut expected, context).unwrap();
        for policy in policies() {
            for most in [1, 5, 16, 33, 400] {
                let mut stream = AesCtr::new(&policy, &[9; 16], counter).unwrap();
                let mut data = message.clone();
                let mut rest = data.as_mut_slice();
                while !rest.is_empty() {
                    let len = (1 + random.below(most)).min(rest.len());
                    let (piece, others) = rest.split_at_mut(len);
                    stream.process(piece).unwrap();
                    rest = others;
                }
                assert!(data == expected, "{low:x} {most}");
                let (position, used) = stream.position();
                assert_eq!(position, low.wrapping_add(1000 / 16).to_be_bytes());
                assert_eq!(used, 1000 % 16);
            }
        }
    }
}

#[test]
fn a_copy_goes_on_from_the_same_place() {
    for policy in policies() {
        let mut first = AesCtr::new(&policy, &[9; 16], [1; 16]).unwrap();
        first.process(&mut [0; 21]).unwrap();
        let mut second = first.clone();
        let (mut a, mut b) = ([0; 50], [0; 50]);
        first.process(&mut a).unwrap();
        second.process(&mut b).unwrap();
        assert_eq!(a, b);
        first.restart([1; 16]);
        let mut again = [0; 21];
        first.process(&mut again).unwrap();
        assert_eq!(
            first.position(),
            (
                ({
                    let mut counter = [1; 16];
                    counter[15] = 2;
                    counter
                }),
                5
            )
        );
    }
}
