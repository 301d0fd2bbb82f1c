//! Packets of ESP that are offered to a device have the bytes and refusals of software alone.

use std::sync::Arc;

use offload::transform::{Direction, HEADER_LEN};
use offload::{Encryption, Integrity, KeyMaterial, Slot, Suite, Transform};
use offload_policy::{Operation, PacketEngine, Policy, Quarantine, Selection, Settings};

use crate::support::{Act, FakeDevice, Random};

/// Messages that the device gets: some packets are shorter.
const FROM: usize = 256;
const PACKETS: usize = 24;

const SUITES: [(Encryption, Option<Integrity>); 9] = [
    (Encryption::AesGcm128, None),
    (Encryption::AesGcm192, None),
    (Encryption::AesGcm256, None),
    (Encryption::AesCbc128, Some(Integrity::HmacSha1_96)),
    (Encryption::AesCbc256, Some(Integrity::HmacSha256_128)),
    // One of both is nothing that the device has.
    (Encryption::AesCbc192, Some(Integrity::HmacSha512_256)),
    (Encryption::Null, Some(Integrity::HmacSha256_128)),
    (Encryption::AesCtr128, Some(Integrity::HmacSha256_128)),
    (Encryption::AesCtr256, Some(Integrity::HmacSha384_192)),
];

/// One direction, with the device and without.
struct Pair {
    with: Transform,
    without: Transform,
}

struct World {
    device: Arc<FakeDevice>,
    policy: Arc<Policy>,
    seal: Pair,
    open: Pair,
    suite: Suite,
    extended: bool,
    random: Random,
}

impl World {
    fn new(number: usize, extended: bool) -> Self {
        let (encryption, integrity) = SUITES[number];
        let suite = Suite::new(encryption, integrity).unwrap();
        let mut random = Random(number as u64);
        let keys = KeyMaterial::new(
            &random.bytes(encryption.key_len()),
            &random.bytes(integrity.map_or(0, Integrity::key_len)),
        );
        let device = Arc::new(FakeDevice::default());
        let settings = Settings {
            selection: Selection::From(FROM),
            check_one_in: 1,
            ..Settings::default()
        };
        let policy = Policy::new(Some(device.clone()), settings);
        let engine = PacketEngine::new(&policy);
        let pair = |direction| {
            let new = || Transform::new(suite, &keys, extended, direction).unwrap();
            Pair {
                with: new().with_accelerator(&engine, &keys),
                without: new(),
            }
        };
        Self {
            device,
            policy,
            seal: pair(Direction::Seal),
            open: pair(Direction::Open),
            suite,
            extended,
            random,
        }
    }

    /// Packets of all sizes, not yet sealed.
    fn packets(&mut self) -> (Vec<u8>, Vec<Slot>) {
        let (mut buffer, mut slots) = (Vec::new(), Vec::new());
        let alignment = self.suite.encryption().alignment();
        for number in 0..PACKETS as u64 {
            let text = alignment * (1 + self.random.below(1400 / alignment));
            let len = self.seal.with.payload_offset() + text + self.suite.icv_len();
            // With 64 bits the upper half is covered, and stands nowhere in the packet.
            let upper = if self.extended { 7 << 32 } else { 0 };
            slots.push(Slot::new(buffer.len(), len, upper + number + 1));
            buffer.extend(self.random.bytes(len));
        }
        (buffer, slots)
    }

    fn long(&self, slot: &Slot) -> bool {
        slot.len - self.seal.with.payload_offset() - self.suite.icv_len() >= FROM
    }

    /// Seals and opens packets with the device; each has software's bytes.
    fn round_trip(&mut self) -> (Vec<u8>, Vec<Slot>) {
        let (plain, slots) = self.packets();
        let (mut sealed, mut marks) = (plain.clone(), slots.clone());
        self.seal.with.seal(&mut sealed, &mut marks);
        let (mut expected, mut expected_marks) = (plain.clone(), slots.clone());
        self.seal.without.seal(&mut expected, &mut expected_marks);
        assert!(sealed == expected && marks == expected_marks);
        let (mut opened, mut marks) = (sealed.clone(), slots.clone());
        self.open.with.open(&mut opened, &mut marks);
        assert_eq!(marks, slots, "every packet is good");
        let text = self.seal.with.payload_offset();
        for slot in &slots {
            let text = slot.start + text..slot.start + slot.len - self.suite.icv_len();
            assert!(opened[text.clone()] == plain[text]);
        }
        (sealed, slots)
    }
}

/// Each suite, with sequence numbers of 32 and of 64 bits.
fn kinds() -> impl Iterator<Item = (usize, bool)> {
    (0..SUITES.len()).flat_map(|suite| [(suite, false), (suite, true)])
}

fn worlds() -> impl Iterator<Item = World> {
    kinds().map(|(suite, extended)| World::new(suite, extended))
}

#[test]
fn packets_have_the_bytes_of_software() {
    for mut world in worlds() {
        for _ in 0..4 {
            world.round_trip();
        }
        assert_eq!(world.policy.quarantine(), None);
        let counters = world.policy.counters();
        assert!(counters.device > 0, "{:?}", world.suite);
        assert_eq!((counters.busy, counters.repeated), (0, 0));
        let sum = |of: fn(offload_policy::Requests) -> u64| -> u64 {
            let requests = Operation::ALL.map(|operation| world.policy.requests(operation));
            requests.into_iter().map(of).sum()
        };
        // Everything that the device has was offered, and short packets stayed with software.
        let messages = 4 * 2 * PACKETS as u64;
        let all = sum(|requests| requests.device) + sum(|requests| requests.software);
        assert!(all == messages || all == 2 * messages, "{all}");
        assert!(sum(|requests| requests.software) > 0);
    }
}

#[test]
fn forged_packets_are_refused_and_the_device_is_not_blamed() {
    for mut world in worlds() {
        let (mut sealed, mut slots) = world.round_trip();
        for slot in &slots {
            let at = slot.start + HEADER_LEN + world.random.below(slot.len - HEADER_LEN);
            sealed[at] ^= 1 << world.random.below(8);
        }
        world.open.with.open(&mut sealed, &mut slots);
        assert!(slots.iter().all(|slot| !slot.valid), "{:?}", world.suite);
        assert_eq!(world.policy.quarantine(), None);
    }
}

#[test]
fn every_fault_of_the_device_costs_no_packet_and_sets_it_aside() {
    for (suite, extended) in kinds() {
        for act in [Act::Flip, Act::Short, Act::Long, Act::Fail, Act::DenyTag] {
            let mut world = World::new(suite, extended);
            world.round_trip();
            world.device.act(act);
            world.round_trip();
            let what = (act, world.suite);
            assert!(world.policy.quarantine().is_some(), "{what:?}");
            let requests = world.device.requests();
            world.round_trip();
            assert_eq!(world.device.requests(), requests, "{what:?}: asked again");
        }
    }
}

#[test]
fn a_busy_device_costs_no_packet_and_is_not_set_aside() {
    for mut world in worlds() {
        world.device.act(Act::Busy);
        world.round_trip();
        assert_eq!(world.policy.quarantine(), None);
        assert!(world.policy.counters().busy > 0);
    }
}

#[test]
fn a_device_that_denies_a_right_tag_is_set_aside() {
    let mut world = World::new(0, true);
    let (mut sealed, mut slots) = world.round_trip();
    world.device.act(Act::DenyTag);
    let before = slots.clone();
    assert!(slots.iter().any(|slot| world.long(slot)));
    world.open.with.open(&mut sealed, &mut slots);
    assert_eq!(slots, before);
    let reason = Quarantine::Tag(Operation::GcmOpen);
    assert_eq!(world.policy.quarantine(), Some(reason));
}

#[test]
fn keys_leave_the_device_with_their_association() {
    let world = World::new(4, false);
    let device = world.device.clone();
    drop(world);
    // Encryption and integrity of both directions.
    assert_eq!(device.forgotten.lock().unwrap().len(), 4);
}
