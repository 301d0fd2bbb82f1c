//! When the device is taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use offload_policy::{AesCtr, AesGcm, Operation, Policy, Quarantine, SIZES, Selection, Settings};

use crate::support::{Act, FakeDevice};

fn settings(selection: Selection) -> Settings {
    Settings {
        selection,
        check_one_in: 0,
        ..Settings::default()
    }
}

#[test]
fn without_a_device_everything_is_software() {
    for selection in [Selection::Measured, Selection::From(0), Selection::Software] {
        let policy = Policy::new(None, settings(selection));
        for operation in Operation::MESSAGES {
            assert_eq!(policy.break_even(operation), None);
        }
        let key = AesGcm::new(&policy, &[1; 16]).unwrap();
        key.seal([0; 12], b"", &mut [0; 100]).unwrap();
        assert_eq!(policy.counters().device, 0);
    }
}

#[test]
fn a_size_from_which_the_device_is_taken_is_exact() {
    let device = Arc::new(FakeDevice::default());
    let policy = Policy::new(Some(device.clone()), settings(Selection::From(100)));
    let key = AesGcm::new(&policy, &[1; 16]).unwrap();
    key.seal([0; 12], b"", &mut [0; 99]).unwrap();
    assert_eq!(device.requests(), 0);
    key.seal([1; 12], b"", &mut [0; 100]).unwrap();
    assert_eq!((device.requests(), policy.counters().device), (1, 1));
    policy.select(Selection::Software);
    key.seal([2; 12], b"", &mut [0; 100]).unwrap();
    assert_eq!(device.requests(), 1);
    // No message is empty at the device.
    policy.select(Selection::From(0));
    key.seal([3; 12], b"", &mut []).unwrap();
    assert_eq!(device.requests(), 1);
}

#[test]
fn a_slow_device_is_measured_within_its_time_and_not_taken() {
    let device = Arc::new(FakeDevice::default());
    *device.delay.lock().unwrap() = Duration::from_millis(2);
    let started = Instant::now();
    let policy = Policy::new(Some(device.clone()), settings(Selection::Measured));
    // Five milliseconds and the request under way; the rest is for a busy machine.
    assert!(started.elapsed() < Duration::from_millis(500));
    assert!(device.requests() >= 1 && device.requests() < 42);
    for operation in Operation::MESSAGES {
        assert_eq!(policy.break_even(operation), None, "{}", operation.name());
    }
    let measured = policy.costs(Operation::GcmSeal)[0];
    assert!(measured.device.unwrap() >= Duration::from_millis(2));
    assert!(measured.software.unwrap() < Duration::from_millis(2));
}

#[test]
fn costs_are_known_for_every_operation_and_size_when_there_is_time() {
    let device = Arc::new(FakeDevice::default());
    let mut settings = settings(Selection::Measured);
    settings.measuring = Duration::from_secs(20);
    let policy = Policy::new(Some(device), settings);
    for operation in Operation::MESSAGES {
        for (cost, size) in policy.costs(operation).into_iter().zip(SIZES) {
            assert_eq!(cost.size, size);
            assert!(cost.software.is_some() && cost.device.is_some());
        }
    }
}

#[test]
fn a_device_that_is_wrong_when_it_is_measured_is_set_aside() {
    for act in [Act::Flip, Act::Short, Act::Long, Act::Fail, Act::DenyTag] {
        let device = Arc::new(FakeDevice::default());
        device.act(act);
        let policy = Policy::new(Some(device.clone()), settings(Selection::Measured));
        assert!(policy.quarantine().is_some(), "{act:?}");
        // Nothing brings it back.
        device.act(Act::Right);
        let before = device.requests();
        policy.measure();
        policy.select(Selection::From(0));
        let mut stream = AesCtr::new(&policy, &[1; 16], [0; 16]).unwrap();
        stream.process(&mut [0; 64]).unwrap();
        assert_eq!(device.requests(), before, "{act:?}");
        assert_eq!(policy.break_even(Operation::Ctr), None);
    }
}

#[test]
fn requests_beyond_the_queue_go_to_software() {
    let device = Arc::new(FakeDevice::default());
    let mut settings = settings(Selection::From(0));
    (settings.queue_full, settings.queue_free) = (2, 0);
    let policy = Policy::new(Some(device.clone()), settings);
    *device.delay.lock().unwrap() = Duration::from_millis(100);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let policy = &policy;
            scope.spawn(move || {
                let key = AesGcm::new(policy, &[thread; 16]).unwrap();
                let mut data = [7; 100];
                let tag = key.seal([9; 12], b"", &mut data).unwrap();
                key.open([9; 12], b"", &mut data, &tag).unwrap();
                assert_eq!(data, [7; 100]);
            });
        }
    });
    assert!(device.most_under_way.load(Ordering::Relaxed) <= 2);
    let counters = policy.counters();
    assert!(counters.busy >= 1, "{counters:?}");
    assert_eq!(counters.busy + counters.device, 16, "{counters:?}");
    // It is free again, and taken again.
    *device.delay.lock().unwrap() = Duration::ZERO;
    let key = AesGcm::new(&policy, &[1; 16]).unwrap();
    key.seal([1; 12], b"", &mut [0; 100]).unwrap();
    assert_eq!(policy.counters().device, counters.device + 1);
}

#[test]
fn a_busy_device_is_no_broken_one() {
    let device = Arc::new(FakeDevice::default());
    device.act(Act::Busy);
    let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
    let key = AesGcm::new(&policy, &[1; 16]).unwrap();
    key.seal([1; 12], b"", &mut [0; 100]).unwrap();
    assert_eq!((policy.counters().busy, policy.quarantine()), (1, None));
    device.act(Act::Right);
    key.seal([2; 12], b"", &mut [0; 100]).unwrap();
    assert_eq!(policy.counters().device, 1);
}

#[test]
fn messages_too_long_for_the_device_are_cut_or_stay() {
    let device = Arc::new(FakeDevice {
        max_len: 64,
        ..FakeDevice::default()
    });
    let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
    let key = AesGcm::new(&policy, &[1; 16]).unwrap();
    key.seal([1; 12], b"", &mut [0; 64]).unwrap();
    assert_eq!(device.requests(), 1);
    // Associated data count as well.
    key.seal([2; 12], b"1", &mut [0; 64]).unwrap();
    key.seal([3; 12], b"", &mut [0; 65]).unwrap();
    assert_eq!(device.requests(), 1);
    let mut stream = AesCtr::new(&policy, &[1; 16], [0; 16]).unwrap();
    stream.process(&mut [0; 129]).unwrap();
    assert_eq!(device.requests(), 4);
}

#[test]
fn keys_are_forgotten_with_their_last_user() {
    let device = Arc::new(FakeDevice::default());
    let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
    let first = AesGcm::new(&policy, &[1; 16]).unwrap();
    let second = first.clone();
    drop(first);
    assert!(device.forgotten.lock().unwrap().is_empty());
    drop(second);
    assert_eq!(device.forgotten.lock().unwrap().len(), 1);
}

#[test]
fn a_selection_changes_nothing_about_quarantine() {
    let device = Arc::new(FakeDevice::default());
    let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
    device.act(Act::Fail);
    let key = AesGcm::new(&policy, &[1; 16]).unwrap();
    key.seal([1; 12], b"", &mut [0; 100]).unwrap();
    let reason = Quarantine::Failed("a missed deadline".into());
    assert_eq!(policy.quarantine(), Some(reason.clone()));
    device.act(Act::Right);
    for selection in [Selection::Software, Selection::From(1), Selection::Measured] {
        policy.select(selection);
        assert_eq!(policy.break_even(Operation::GcmSeal), None);
    }
    assert_eq!(policy.quarantine(), Some(reason));
}
