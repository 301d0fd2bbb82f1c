//! A device or bus that fails: every message is right, and the device is set aside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accel_engine::{Accelerator, Bus};
use offload_policy::{AesCbc, AesGcm, Direction, Policy};

use crate::support::{CONFIG, Fault, FaultyBus, faulty, settings, software};

fn set(device: &Accelerator<FaultyBus>, fault: Fault) {
    device.with_bus(|bus| bus.fault = fault);
}

#[test]
fn sealed_and_opened_messages_survive_every_fault() {
    for (fault, reason) in [
        (
            Fault::FirstByte,
            "AES-GCM open: another result than software's",
        ),
        (Fault::LastByte, "AES-GCM open: a wrong tag"),
        (Fault::Status, "the device has failed: a request ended with"),
        (
            Fault::Doorbell,
            "the device has failed: a request was not completed in time",
        ),
        (Fault::Vanished, "the device has failed: no device answers"),
    ] {
        let device = faulty();
        let policy = Policy::new(Some(device.clone()), settings(1));
        let key = AesGcm::new(&policy, &[3; 16]).unwrap();
        let (nonce, plain) = ([1; 12], [0x5a; 100]);
        let mut data = plain;
        let tag = key.seal(nonce, b"aad", &mut data).unwrap();
        key.open(nonce, b"aad", &mut data, &tag).unwrap();
        assert_eq!((policy.counters().device, policy.quarantine()), (2, None));

        let mut data = plain;
        let tag = AesGcm::new(&software(), &[3; 16])
            .unwrap()
            .seal(nonce, b"aad", &mut data)
            .unwrap();
        set(&device, fault);
        let started = Instant::now();
        key.open(nonce, b"aad", &mut data, &tag).unwrap();
        assert!(data == plain, "{fault:?}");
        // The deadline, and what a busy machine needs.
        assert!(started.elapsed() < CONFIG.deadline + Duration::from_secs(5));
        let found = policy.quarantine().unwrap().to_string();
        assert!(found.starts_with(reason), "{fault:?}: {found}");
        assert_eq!(policy.counters().device, 2);
        // A device that works again does not come back.
        set(&device, Fault::Nothing);
        key.seal([2; 12], b"", &mut data).unwrap();
        assert_eq!(policy.counters().device, 2);
    }
}

#[test]
fn a_fault_in_the_middle_of_a_chain_leaves_the_chain_right() {
    for fault in [
        Fault::FirstByte,
        Fault::Status,
        Fault::Doorbell,
        Fault::Vanished,
    ] {
        let device = faulty();
        let policy = Policy::new(Some(device.clone()), settings(1));
        let mut stream = AesCbc::new(&policy, Direction::Encrypt, &[3; 16], [0; 16]).unwrap();
        let mut reference =
            AesCbc::new(&software(), Direction::Encrypt, &[3; 16], [0; 16]).unwrap();
        for packet in 0..10u8 {
            if packet == 5 {
                set(&device, fault);
            }
            let (mut bytes, mut expected) = ([packet; 64], [packet; 64]);
            stream.process(&mut bytes).unwrap();
            reference.process(&mut expected).unwrap();
            assert_eq!(bytes, expected, "{fault:?}, packet {packet}");
        }
        assert_eq!(policy.counters().device, 5, "{fault:?}");
        assert!(policy.quarantine().is_some());
    }
}

#[test]
fn a_device_that_never_answered_is_not_used() {
    let device = faulty();
    set(&device, Fault::Vanished);
    let bus_reads = device.with_bus(|bus| bus.wait(Duration::ZERO));
    assert!(!bus_reads);
    let policy: Arc<Policy> = Policy::new(Some(device), settings(0));
    let key = AesGcm::new(&policy, &[3; 16]).unwrap();
    let mut data = [1; 32];
    let tag = key.seal([0; 12], b"", &mut data).unwrap();
    key.open([0; 12], b"", &mut data, &tag).unwrap();
    assert_eq!((data, policy.counters().device), ([1; 32], 0));
    assert!(policy.quarantine().is_some());
}
