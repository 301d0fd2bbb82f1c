//! The device without descriptors under the policy.

use std::sync::Arc;

use accel_engine::Accelerator;
use accel_simulation::single_shot_model;
use offload_policy::{AesCbc, AesCtr, AesGcm, Device as _, Direction, Hash, Hmac, Policy};

use crate::support::{Fault, FaultyBus, Random, faulty_shots, settings, software};

/// Bytes of a message that fits one single shot.
const MOST: usize = 960;

#[test]
fn messages_of_all_sizes_have_the_bytes_of_software() {
    let device = Arc::new(single_shot_model().unwrap());
    let policy = Policy::new(Some(device.clone()), settings(0));
    assert_eq!(device.max_len(), MOST);
    let mut random = Random(6);
    for key_len in [16, 24, 32] {
        let key = random.bytes(key_len);
        let gcm = [&policy, &software()].map(|policy| AesGcm::new(policy, &key).unwrap());
        let mac = [&policy, &software()].map(|p| Hmac::new(p, Hash::Sha256, &key).unwrap());
        for len in [1, 15, 16, 17, 100, MOST - 1, MOST, MOST + 1, 5000] {
            let plain = random.bytes(len);
            let before = policy.counters().device;
            let [one, other] = gcm.each_ref().map(|key| {
                let mut data = plain.clone();
                let tag = key.seal([2; 12], b"", &mut data).unwrap();
                (data, tag)
            });
            assert!(one == other, "{len}");
            let (mut data, tag) = one;
            gcm[0].open([2; 12], b"", &mut data, &tag).unwrap();
            assert!(data == plain);
            let tags = mac.each_ref().map(|key| {
                let mut tag = [0; 32];
                key.sign(&plain, &mut tag).unwrap();
                tag
            });
            assert_eq!(tags[0], tags[1]);
            // Longer ones fit no single shot.
            let used = policy.counters().device - before;
            assert_eq!(used, if len <= MOST { 3 } else { 0 }, "{len}");
            // Streams are cut into pieces that do.
            let blocks = &plain[..len / 16 * 16];
            let cut = [&policy, &software()].map(|policy| {
                let (mut cbc, mut ctr) = (blocks.to_vec(), plain.clone());
                let stream = AesCbc::new(policy, Direction::Encrypt, &key, [3; 16]);
                stream.unwrap().process(&mut cbc).unwrap();
                let stream = AesCtr::new(policy, &key, [0xff; 16]);
                stream.unwrap().process(&mut ctr).unwrap();
                (cbc, ctr)
            });
            assert!(cut[0] == cut[1], "{len}");
        }
    }
    assert_eq!(policy.quarantine(), None);
    let usage = device.usage();
    assert!(usage.cycles > 0 && usage.key_loads > 0, "{usage:?}");
}

fn set(device: &Accelerator<FaultyBus>, fault: Fault) {
    device.with_bus(|bus| bus.fault = fault);
}

#[test]
fn a_faulty_device_costs_no_message() {
    for (fault, reason) in [
        (Fault::FirstByte, "another result than software's"),
        (Fault::Status, "a request ended with"),
        (Fault::Doorbell, "a request was not completed in time"),
        (Fault::Vanished, "no device answers"),
    ] {
        let device = faulty_shots();
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
        let found = policy.quarantine().unwrap().to_string();
        assert!(found.contains(reason), "{fault:?}: {found}");
    }
}
