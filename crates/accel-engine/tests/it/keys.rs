//! Sixteen slots for any number of keys and threads.

use std::sync::Arc;

use accel_simulation::{MODEL_CONFIG, model};
use offload_policy::{AesGcm, Hash, Hmac, Operation, Policy, Selection, Settings};

use crate::support::{settings, software};

#[test]
fn more_keys_than_slots_take_turns() {
    let device = Arc::new(model(MODEL_CONFIG).unwrap());
    let policy = Policy::new(Some(device.clone()), settings(1));
    let keys: Vec<_> = (0..20u8)
        .map(|n| AesGcm::new(&policy, &[n; 16]).unwrap())
        .collect();
    for turn in 0..3u8 {
        for (n, key) in (0u8..).zip(&keys) {
            let (mut data, mut expected) = ([n; 40], [n; 40]);
            let reference = AesGcm::new(&software(), &[n; 16]).unwrap();
            let tag = key.seal([turn; 12], b"", &mut data).unwrap();
            assert_eq!(tag, reference.seal([turn; 12], b"", &mut expected).unwrap());
            assert_eq!(data, expected);
        }
    }
    assert_eq!((device.usage().requests, policy.quarantine()), (60, None));
    assert_eq!(device.usage().key_loads, 60);
    // The last sixteen are still there.
    for key in &keys[4..] {
        key.seal([9; 12], b"", &mut [0; 40]).unwrap();
    }
    assert_eq!(device.usage().key_loads, 60);
}

#[test]
fn keys_that_the_device_does_not_take_stay_with_software() {
    let device = Arc::new(model(MODEL_CONFIG).unwrap());
    let policy = Policy::new(Some(device.clone()), settings(1));
    for (len, taken) in [(1, 1), (64, 2), (65, 2), (1000, 2)] {
        let key = vec![5; len];
        let (mut tag, mut expected) = ([0; 32], [0; 32]);
        let hmac = Hmac::new(&policy, Hash::Sha256, &key).unwrap();
        hmac.sign(b"message", &mut tag).unwrap();
        let reference = Hmac::new(&software(), Hash::Sha256, &key).unwrap();
        reference.sign(b"message", &mut expected).unwrap();
        assert_eq!(tag, expected);
        assert_eq!(
            (device.usage().requests, policy.quarantine()),
            (taken, None)
        );
    }
}

#[test]
fn associated_data_beyond_the_devices_bound_are_no_fault() {
    let device = Arc::new(model(MODEL_CONFIG).unwrap());
    let policy = Policy::new(Some(device), settings(1));
    let key = AesGcm::new(&policy, &[1; 16]).unwrap();
    for (len, device) in [(65_279, 1), (65_280, 1)] {
        let mut data = [0; 16];
        let tag = key.seal([0; 12], &vec![1; len], &mut data).unwrap();
        let reference = AesGcm::new(&software(), &[1; 16]).unwrap();
        let expected = reference.seal([0; 12], &vec![1; len], &mut [0; 16]);
        assert_eq!(tag, expected.unwrap());
        assert_eq!(
            (policy.counters().device, policy.quarantine()),
            (device, None)
        );
    }
}

#[test]
fn threads_share_the_device() {
    let device = Arc::new(model(MODEL_CONFIG).unwrap());
    let policy = Policy::new(Some(device.clone()), settings(1));
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let policy = &policy;
            scope.spawn(move || {
                for n in 0..100 {
                    let key = AesGcm::new(policy, &[thread; 32]).unwrap();
                    let mut data = [thread; 50];
                    let tag = key.seal([n; 12], b"", &mut data).unwrap();
                    key.open([n; 12], b"", &mut data, &tag).unwrap();
                    assert_eq!(data, [thread; 50]);
                }
            });
        }
    });
    let counters = policy.counters();
    assert_eq!(counters.device + counters.busy, 1200, "{counters:?}");
    assert_eq!(policy.quarantine(), None);
}

#[test]
fn the_model_is_measured_and_is_slower() {
    let device = Arc::new(model(MODEL_CONFIG).unwrap());
    let policy = Policy::new(Some(device), Settings::default());
    assert_eq!(policy.quarantine(), None);
    // A model on this processor cannot be quicker than the processor.
    for operation in Operation::MESSAGES {
        assert_eq!(policy.break_even(operation), None);
    }
    policy.select(Selection::From(0));
    assert_eq!(policy.break_even(Operation::Ctr), Some(0));
}
