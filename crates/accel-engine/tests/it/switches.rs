//! Streams whose engine changes between any two packets.
//!
//! `SWITCH_SEED=7 cargo test -p accel-engine` runs them with another seed.

use std::sync::Arc;

use accel_simulation::{MODEL_CONFIG, model};
use offload_policy::{AesCbc, AesCtr, AesGcm, Direction, Hash, Hmac, Policy, Selection};

use crate::support::{Random, settings, software};

/// Packets of each stream: the engine is drawn anew before each.
const PACKETS: usize = 100_000;

fn seed() -> u64 {
    let seed = std::env::var("SWITCH_SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("SWITCH_SEED={seed}");
    seed
}

/// A stream under a policy with the model, and how often it changed its engine.
struct Switching {
    policy: Arc<Policy>,
    random: Random,
    device: bool,
    switches: usize,
}

impl Switching {
    fn new(seed: u64) -> Self {
        let device = Arc::new(model(MODEL_CONFIG).unwrap());
        Self {
            policy: Policy::new(Some(device), settings(64)),
            random: Random(seed),
            device: true,
            switches: 0,
        }
    }

    fn draw(&mut self) {
        let device = self.random.below(2) == 1;
        self.switches += usize::from(device != self.device);
        self.device = device;
        self.policy.select(if device {
            Selection::From(0)
        } else {
            Selection::Software
        });
    }

    /// Half of the packets went to the device, and it was right.
    fn check(&self) {
        let counters = self.policy.counters();
        assert_eq!(self.policy.quarantine(), None);
        assert!(self.switches > PACKETS * 9 / 20, "{}", self.switches);
        assert!(counters.device > PACKETS as u64 * 9 / 20, "{counters:?}");
        assert!(
            counters.checked > 0 && counters.repeated == 0,
            "{counters:?}"
        );
    }
}

#[test]
fn a_cbc_stream_is_the_same_bytes_with_every_switch() {
    let mut switching = Switching::new(seed());
    let key = switching.random.bytes(32);
    let begin = |policy, direction| AesCbc::new(policy, direction, &key, [7; 16]).unwrap();
    let mut sealing = begin(&switching.policy, Direction::Encrypt);
    let mut opening = begin(&switching.policy, Direction::Decrypt);
    let mut reference = begin(&software(), Direction::Encrypt);
    for packet in 0..PACKETS {
        let len = 16 * (1 + switching.random.below(6));
        let plain = switching.random.bytes(len);
        let (mut bytes, mut expected) = (plain.clone(), plain.clone());
        reference.process(&mut expected).unwrap();
        switching.draw();
        sealing.process(&mut bytes).unwrap();
        assert!(bytes == expected, "packet {packet}");
        if packet % 8 == 0 {
            switching.draw();
        }
        opening.process(&mut bytes).unwrap();
        assert!(bytes == plain, "packet {packet}");
    }
    switching.check();
}

#[test]
fn a_ctr_stream_is_the_same_bytes_with_every_switch() {
    let mut switching = Switching::new(seed());
    let key = switching.random.bytes(24);
    // The low word of the counter overflows on the way, and then the whole.
    let counter = (u128::MAX - 50_000).to_be_bytes();
    let mut stream = AesCtr::new(&switching.policy, &key, counter).unwrap();
    let mut reference = AesCtr::new(&software(), &key, counter).unwrap();
    for packet in 0..PACKETS {
        let len = switching.random.below(100);
        let plain = switching.random.bytes(len);
        let (mut bytes, mut expected) = (plain.clone(), plain);
        reference.process(&mut expected).unwrap();
        switching.draw();
        stream.process(&mut bytes).unwrap();
        assert!(bytes == expected, "packet {packet}");
    }
    switching.check();
}

#[test]
fn packets_of_gcm_and_hmac_are_the_same_with_every_switch() {
    let mut switching = Switching::new(seed());
    let key = switching.random.bytes(16);
    let gcm = AesGcm::new(&switching.policy, &key).unwrap();
    let reference = AesGcm::new(&software(), &key).unwrap();
    let hmac = Hmac::new(&switching.policy, Hash::Sha1, &key).unwrap();
    let reference_hmac = Hmac::new(&software(), Hash::Sha1, &key).unwrap();
    for packet in 0..PACKETS as u64 {
        let len = 1 + switching.random.below(80);
        let plain = switching.random.bytes(len);
        let (mut bytes, mut expected) = (plain.clone(), plain.clone());
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&packet.to_be_bytes());
        let aad = &nonce[..usize::from(nonce[7] % 12)];
        switching.draw();
        if packet % 4 == 0 {
            let (mut tag, mut expected) = ([0; 12], [0; 12]);
            reference_hmac.sign(&plain, &mut expected).unwrap();
            hmac.sign(&plain, &mut tag).unwrap();
            assert_eq!(tag, expected, "packet {packet}");
            hmac.verify(&plain, &tag).unwrap();
            continue;
        }
        let expected_tag = reference.seal(nonce, aad, &mut expected).unwrap();
        let tag = gcm.seal(nonce, aad, &mut bytes).unwrap();
        assert!(bytes == expected && tag == expected_tag, "packet {packet}");
        gcm.open(nonce, aad, &mut bytes, &tag).unwrap();
        assert!(bytes == plain, "packet {packet}");
    }
    switching.check();
}
