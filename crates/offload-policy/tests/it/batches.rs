//! Batches have the bytes, tags and refusals of single messages.

use std::sync::Arc;

use offload_policy::{
    AeadMessage, AesCbc, AesCtr, AesGcm, CipherMessage, Direction, Hash, Hmac, MacMessage,
    MessageError, Policy, Quarantine, Selection, Settings,
};

use crate::support::{Act, FakeDevice, Random};

const KEY: [u8; 16] = [7; 16];
/// Some go to the device, some do not, and one is empty.
const SIZES: [usize; 7] = [0, 16, 64, 256, 4096, 48, 1008];
const FROM: usize = 256;
const OFFERED: usize = 3;

fn settings() -> Settings {
    Settings {
        selection: Selection::From(FROM),
        check_one_in: 1,
        ..Settings::default()
    }
}

/// Without a device, and with one.
fn policies() -> [(Arc<Policy>, Option<Arc<FakeDevice>>); 2] {
    let device = Arc::new(FakeDevice::default());
    let policy = Policy::new(Some(device.clone()), settings());
    [
        (Policy::new(None, settings()), None),
        (policy, Some(device)),
    ]
}

fn contents() -> Vec<Vec<u8>> {
    let mut random = Random(21);
    SIZES.iter().map(|size| random.bytes(*size)).collect()
}

fn nonce(number: usize) -> [u8; 12] {
    [u8::try_from(number).unwrap(); 12]
}

fn aead_messages(data: &mut [Vec<u8>]) -> Vec<AeadMessage<'_>> {
    let message = |(number, data)| AeadMessage {
        nonce: nonce(number),
        aad: b"header",
        data,
        tag: [0; 16],
        outcome: Ok(()),
    };
    let data = data.iter_mut().map(Vec::as_mut_slice);
    data.enumerate().map(message).collect()
}

fn cipher_messages(data: &mut [Vec<u8>]) -> Vec<CipherMessage<'_>> {
    let message = |(number, data)| CipherMessage {
        iv: [u8::try_from(number).unwrap(); 16],
        data,
        outcome: Ok(()),
    };
    let data = data.iter_mut().map(Vec::as_mut_slice);
    data.enumerate().map(message).collect()
}

#[test]
fn a_batch_of_gcm_is_its_messages_one_by_one() {
    for (policy, device) in policies() {
        let key = AesGcm::new(&policy, &KEY).unwrap();
        let reference = AesGcm::new(&Policy::new(None, settings()), &KEY).unwrap();
        let (plain, mut data) = (contents(), contents());
        let mut messages = aead_messages(&mut data);
        key.seal_batch(&mut messages);
        for (number, message) in messages.iter().enumerate() {
            let mut expected = plain[number].clone();
            let tag = reference.seal(nonce(number), b"header", &mut expected);
            assert_eq!((message.outcome, message.tag), (Ok(()), tag.unwrap()));
            assert!(message.data == expected);
        }
        messages[1].tag[3] ^= 1;
        messages[4].tag[3] ^= 1;
        key.open_batch(&mut messages);
        for (number, message) in messages.iter().enumerate() {
            let forged = matches!(number, 1 | 4);
            let expected = if forged {
                Err(MessageError::Tag)
            } else {
                Ok(())
            };
            assert_eq!(message.outcome, expected, "message {number}");
            assert!(forged || message.data == plain[number]);
        }
        assert_eq!(policy.quarantine(), None, "forged by a sender");
        if let Some(device) = device {
            assert_eq!(device.requests(), 2 * OFFERED);
        }
    }
}

#[test]
fn a_batch_of_cbc_and_ctr_is_its_messages_one_by_one() {
    for (policy, device) in policies() {
        let software = Policy::new(None, settings());
        let begin = |policy| AesCbc::new(policy, Direction::Encrypt, &KEY, [9; 16]).unwrap();
        let (cbc, mut reference) = (begin(&policy), begin(&software));
        let open = AesCbc::new(&policy, Direction::Decrypt, &KEY, [0; 16]).unwrap();
        let ctr = AesCtr::new(&policy, &KEY, [9; 16]).unwrap();
        let mut counted = AesCtr::new(&software, &KEY, [0; 16]).unwrap();
        let (plain, mut data) = (contents(), contents());
        let mut messages = cipher_messages(&mut data);
        cbc.process_batch(&mut messages);
        for (message, plain) in messages.iter().zip(&plain) {
            let mut expected = plain.clone();
            reference.restart(message.iv);
            reference.process(&mut expected).unwrap();
            assert!(message.outcome.is_ok() && message.data == expected);
        }
        open.process_batch(&mut messages);
        let restored = messages.iter().zip(&plain);
        restored.for_each(|(message, plain)| assert!(message.data == plain));
        ctr.process_batch(&mut messages);
        for (message, plain) in messages.iter().zip(&plain) {
            let (mut expected, mut single) = (plain.clone(), plain.clone());
            counted.restart(message.iv);
            counted.process(&mut expected).unwrap();
            ctr.process_message(&message.iv, &mut single).unwrap();
            assert!(message.data == expected && single == expected);
        }
        // Streams stay where they were.
        assert_eq!((cbc.iv(), ctr.position()), ([9; 16], ([9; 16], 0)));
        if let Some(device) = device {
            assert_eq!(device.requests(), 4 * OFFERED);
        }
    }
}

#[test]
fn a_message_that_is_refused_leaves_the_rest_of_its_batch_alone() {
    for (policy, _) in policies() {
        let cbc = AesCbc::new(&policy, Direction::Encrypt, &KEY, [9; 16]).unwrap();
        for wrong in [0, 1, 2] {
            let mut data = vec![vec![1; 32], vec![1; 32], vec![1; 32]];
            data[wrong].push(1);
            let mut messages = cipher_messages(&mut data);
            cbc.process_batch(&mut messages);
            for (number, message) in messages.iter().enumerate() {
                let refused = number == wrong;
                assert_eq!(message.outcome.is_err(), refused);
                assert_eq!(message.data.iter().all(|byte| *byte == 1), refused);
            }
            let mut one = [1; 17];
            let single = cbc.process_message(&[0; 16], &mut one);
            assert_eq!(single, Err(MessageError::Blocks(17)));
        }
        let key = Hmac::new(&policy, Hash::Sha256, b"key").unwrap();
        let content = vec![3; 1000];
        let mut tags = [vec![0; 32], vec![0; 9], vec![0; 10], vec![0; 33]];
        let mut messages: Vec<_> = tags
            .iter_mut()
            .map(|tag| MacMessage {
                data: &content,
                tag,
                outcome: Ok(()),
            })
            .collect();
        key.sign_batch(&mut messages);
        let outcomes: Vec<_> = messages.iter().map(|message| message.outcome).collect();
        let wrong = Err(MessageError::Tag);
        assert_eq!(outcomes, [Ok(()), wrong, Ok(()), wrong]);
        let mut whole = [0; 32];
        key.sign(&content, &mut whole).unwrap();
        assert_eq!((&tags[0][..], &tags[2][..]), (&whole[..], &whole[..10]));
    }
}

#[test]
fn a_device_that_fails_in_the_middle_of_a_batch_costs_no_message() {
    for act in [Act::Flip, Act::Short, Act::Long, Act::Busy, Act::Fail] {
        let device = Arc::new(FakeDevice::default());
        let policy = Policy::new(Some(device.clone()), settings());
        let key = AesGcm::new(&policy, &KEY).unwrap();
        let reference = AesGcm::new(&Policy::new(None, settings()), &KEY).unwrap();
        let (plain, mut data) = (contents(), contents());
        let mut messages = aead_messages(&mut data);
        device.act(act);
        key.seal_batch(&mut messages);
        for (number, message) in messages.iter().enumerate() {
            let mut expected = plain[number].clone();
            let tag = reference.seal(nonce(number), b"header", &mut expected);
            assert_eq!((message.outcome, message.tag), (Ok(()), tag.unwrap()));
            assert!(message.data == expected, "{act:?}");
        }
        let reason = policy.quarantine();
        assert_eq!(reason.is_none(), act == Act::Busy, "{act:?}: {reason:?}");
        // The first fault is the last request of this batch, although the batch was decided before it.
        let asked = if act == Act::Busy { OFFERED } else { 1 };
        assert_eq!(device.requests(), asked, "{act:?}");
        assert!(!matches!(reason, Some(Quarantine::Tag(_))));
    }
}
