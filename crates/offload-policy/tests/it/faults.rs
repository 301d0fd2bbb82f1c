//! A device that is wrong: whatever it does, results are right.

use std::sync::Arc;

use offload_policy::{
    AesCbc, AesCtr, AesGcm, Direction, Hash, Hmac, MessageError, Operation, Policy, Quarantine,
    Selection, Settings,
};

use crate::support::{Act, FakeDevice};

fn policy(check_one_in: u32) -> (Arc<FakeDevice>, Arc<Policy>) {
    let device = Arc::new(FakeDevice::default());
    let settings = Settings {
        selection: Selection::From(0),
        check_one_in,
        ..Settings::default()
    };
    let policy = Policy::new(Some(device.clone()), settings);
    (device, policy)
}

fn software() -> Arc<Policy> {
    Policy::new(None, Settings::default())
}

/// Results of every operation on one message.
fn results(policy: &Arc<Policy>, operation: Operation, data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    let cbc = |direction| AesCbc::new(policy, direction, &[3; 24], [4; 16]).unwrap();
    match operation {
        Operation::GcmSeal => {
            let key = AesGcm::new(policy, &[5; 32]).unwrap();
            let tag = key.seal([6; 12], b"aad", &mut data).unwrap();
            data.extend_from_slice(&tag);
        }
        Operation::GcmOpen => {
            let sealing = AesGcm::new(&software(), &[5; 32]).unwrap();
            let tag = sealing.seal([6; 12], b"aad", &mut data).unwrap();
            let key = AesGcm::new(policy, &[5; 32]).unwrap();
            key.open([6; 12], b"aad", &mut data, &tag).unwrap();
        }
        Operation::CbcEncrypt => cbc(Direction::Encrypt).process(&mut data).unwrap(),
        Operation::CbcDecrypt => cbc(Direction::Decrypt).process(&mut data).unwrap(),
        Operation::Ctr => AesCtr::new(policy, &[3; 32], [0xff; 16])
            .unwrap()
            .process(&mut data)
            .unwrap(),
        Operation::HmacSha1 | Operation::HmacSha256 => {
            let (hash, len) = match operation {
                Operation::HmacSha1 => (Hash::Sha1, 20),
                _ => (Hash::Sha256, 32),
            };
            let message = data.clone();
            data = vec![0; len];
            let key = Hmac::new(policy, hash, b"key").unwrap();
            key.sign(&message, &mut data).unwrap();
            key.verify(&message, &data).unwrap();
        }
        Operation::RsaPrivate => unreachable!("no operation on messages"),
    }
    data
}

#[test]
fn a_failed_request_is_done_again_and_the_device_set_aside() {
    for operation in Operation::MESSAGES {
        for act in [Act::Fail, Act::Short, Act::Long, Act::Flip, Act::DenyTag] {
            let (device, policy) = policy(1);
            let data = [0x35; 160];
            let expected = results(&software(), operation, &data);
            assert_eq!(results(&policy, operation, &data), expected);
            assert_eq!(policy.quarantine(), None, "{operation:?}");
            let before = device.requests();
            device.act(act);
            assert_eq!(
                results(&policy, operation, &data),
                expected,
                "{operation:?} {act:?}"
            );
            let reason = policy.quarantine().unwrap();
            let name = operation.name();
            let (found, expected_len) = (reason.to_string(), operation.result_len(160));
            let wanted = match act {
                Act::Fail => "a missed deadline".into(),
                Act::Short => format!(
                    "{name}: a result of {} bytes, expected {expected_len}",
                    expected_len - 1
                ),
                Act::Long => format!(
                    "{name}: a result of {} bytes, expected {expected_len}",
                    expected_len + 1
                ),
                Act::DenyTag => format!("{name}: a wrong tag"),
                _ => format!("{name}: another result than software's"),
            };
            assert_eq!(found, wanted);
            assert_eq!(
                device.requests(),
                before + 1,
                "asked once more and never again"
            );
            assert_eq!(results(&policy, operation, &data), expected);
            assert_eq!(device.requests(), before + 1);
        }
    }
}

#[test]
fn a_wrong_tag_of_a_message_is_the_senders() {
    let (device, policy) = policy(0);
    let key = AesGcm::new(&policy, &[5; 16]).unwrap();
    let mut data = *b"a message of some bytes";
    let mut tag = key.seal([1; 12], b"", &mut data).unwrap();
    tag[15] ^= 1;
    let opened = key.open([1; 12], b"", &mut data.clone(), &tag);
    assert_eq!(opened, Err(MessageError::Tag));
    assert_eq!((policy.quarantine(), device.requests()), (None, 2));
    tag[15] ^= 1;
    key.open([1; 12], b"", &mut data, &tag).unwrap();
    let hmac = Hmac::new(&policy, Hash::Sha1, b"key").unwrap();
    assert_eq!(hmac.verify(b"message", &[0; 20]), Err(MessageError::Tag));
    assert_eq!(policy.quarantine(), None);
}

#[test]
fn a_false_tag_of_the_device_is_noticed_without_any_sample() {
    let (device, policy) = policy(0);
    let mut tag = [0; 32];
    let hmac = Hmac::new(&policy, Hash::Sha256, b"key").unwrap();
    hmac.sign(b"message", &mut tag).unwrap();
    device.act(Act::Flip);
    hmac.verify(b"message", &tag).unwrap();
    assert_eq!(
        policy.quarantine(),
        Some(Quarantine::Tag(Operation::HmacSha256))
    );
}

#[test]
fn the_sample_has_the_size_that_the_settings_say() {
    let data = [0; 64];
    let (_, never) = policy(0);
    let (_, always) = policy(1);
    let (_, some) = policy(16);
    for _ in 0..4000 {
        for policy in [&never, &always, &some] {
            results(policy, Operation::Ctr, &data);
        }
    }
    assert_eq!(
        (never.counters().checked, always.counters().checked),
        (0, 4000)
    );
    // 250 expected, with a standard deviation of 15.
    let checked = some.counters().checked;
    assert!((150..350).contains(&checked), "{checked}");
}

#[test]
fn wrong_bytes_without_a_tag_are_noticed_by_the_sample() {
    let (device, policy) = policy(16);
    device.act(Act::Flip);
    let data = [0; 64];
    let right = results(&software(), Operation::CbcEncrypt, &data);
    let mut wrong = 0;
    // The chance to be looked at at none of these is below 10^-28.
    for _ in 0..1000 {
        if results(&policy, Operation::CbcEncrypt, &data) == right {
            break;
        }
        wrong += 1;
    }
    assert!(wrong < 1000);
    assert_eq!(
        policy.quarantine(),
        Some(Quarantine::Result(Operation::CbcEncrypt))
    );
}
