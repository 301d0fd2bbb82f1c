//! Batches of packets through the ring, several under way at once.

use std::sync::Arc;

use accel_engine::Accelerator;
use accel_simulation::ModelBus;
use offload::transform::Direction;
use offload::{Encryption, Integrity, KeyMaterial, Slot, Suite, Transform};
use offload_policy::{PacketEngine, Policy, Quarantine};

use crate::support::{CONFIG, Fault, FaultyBus, Random, faulty, settings};

/// Of a super-packet: more than the ring holds.
const PACKETS: usize = 43;

const SUITES: [(Encryption, Option<Integrity>); 3] = [
    (Encryption::AesGcm256, None),
    (Encryption::AesCbc128, Some(Integrity::HmacSha1_96)),
    (Encryption::AesCtr128, Some(Integrity::HmacSha256_128)),
];

struct Association {
    seal: [Transform; 2],
    open: Transform,
    suite: Suite,
}

impl Association {
    /// Sealing with the device and without, opening with it.
    fn new(policy: &Arc<Policy>, (encryption, integrity): (Encryption, Option<Integrity>)) -> Self {
        let suite = Suite::new(encryption, integrity).unwrap();
        let mut random = Random(5);
        let keys = KeyMaterial::new(
            &random.bytes(encryption.key_len()),
            &random.bytes(integrity.map_or(0, Integrity::key_len)),
        );
        let new = |direction| Transform::new(suite, &keys, true, direction).unwrap();
        let engine = PacketEngine::new(policy);
        let with = |direction| new(direction).with_accelerator(&engine, &keys);
        Self {
            seal: [with(Direction::Seal), new(Direction::Seal)],
            open: with(Direction::Open),
            suite,
        }
    }

    fn round_trip(&self, random: &mut Random, first: u64) {
        let (mut plain, mut slots) = (Vec::new(), Vec::new());
        let [with, without] = &self.seal;
        let alignment = self.suite.encryption().alignment();
        for number in 0..PACKETS as u64 {
            let text = alignment * (1 + random.below(1400 / alignment));
            let len = with.payload_offset() + text + self.suite.icv_len();
            slots.push(Slot::new(plain.len(), len, first + number));
            plain.extend(random.bytes(len));
        }
        let (mut sealed, mut expected) = (plain.clone(), plain.clone());
        with.seal(&mut sealed, &mut slots.clone());
        without.seal(&mut expected, &mut slots.clone());
        assert!(sealed == expected, "{:?}", self.suite);
        let mut marks = slots.clone();
        self.open.open(&mut sealed, &mut marks);
        assert_eq!(marks, slots);
        for slot in &slots {
            let text = slot.start + with.payload_offset();
            let text = text..slot.start + slot.len - self.suite.icv_len();
            assert!(sealed[text.clone()] == plain[text], "{:?}", self.suite);
        }
    }
}

#[test]
fn batches_longer_than_the_ring_have_the_bytes_of_software() {
    for suite in SUITES {
        let device = faulty();
        let policy = Policy::new(Some(device.clone()), settings(1));
        let association = Association::new(&policy, suite);
        let mut random = Random(11);
        for round in 0..8 {
            association.round_trip(&mut random, 1 + 100 * round);
        }
        assert_eq!(policy.quarantine(), None);
        let messages = 8 * 2 * PACKETS as u64 * if suite.1.is_some() { 2 } else { 1 };
        assert_eq!(policy.counters().device, messages);
        assert_eq!(device.usage().requests, messages);
        // Cipher and integrity of each direction: a key is loaded once, however long a batch is.
        assert!(device.usage().key_loads <= 4, "{:?}", device.usage());
    }
}

#[test]
fn a_fault_in_the_middle_of_a_batch_costs_no_packet() {
    for suite in SUITES {
        for fault in [
            Fault::FirstByte,
            Fault::LastByte,
            Fault::Status,
            Fault::Vanished,
            Fault::Doorbell,
        ] {
            let bus = FaultyBus::over(ModelBus::new(&CONFIG).unwrap());
            let device = Arc::new(Accelerator::new("faulty", bus, CONFIG).unwrap());
            let policy = Policy::new(Some(device.clone()), settings(1));
            let association = Association::new(&policy, suite);
            let mut random = Random(12);
            association.round_trip(&mut random, 1);
            // Not at the beginning: what is under way already is right.
            device.with_bus(|bus| bus.after(9, fault));
            association.round_trip(&mut random, 1000);
            let reason = policy.quarantine();
            assert!(reason.is_some(), "{fault:?} {suite:?}");
            if matches!(fault, Fault::Vanished | Fault::Doorbell | Fault::Status) {
                assert!(matches!(reason, Some(Quarantine::Failed(_))), "{reason:?}");
            }
            let done = policy.counters().device;
            association.round_trip(&mut random, 2000);
            assert_eq!(policy.counters().device, done, "used after its fault");
        }
    }
}
