use std::time::Duration;

use ipsec::batch::{Arrival, Arrived, InboundPacket, OutboundBatch, Outcome};
use ipsec::selector::{AddressRange, Selector};
use ipsec::spd::{Action, Policy, PolicyId};

use super::*;
use crate::associations::associations;
use crate::config::StaticConfig;

/// One end of a tunnel: its data plane and its keys' way.
struct End {
    plane: DataPlane,
    policies: Vec<PolicyId>,
    rekey: Rekey,
    side: usize,
}

const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

fn config(side: usize, generation: u32) -> StaticConfig {
    let key = |from: usize| format!("{from:02x}{generation:02x}").repeat(18);
    let spi = |from: usize| 0x1000 + 2 * generation + u32::try_from(from).unwrap();
    let (us, them) = (side, 1 - side);
    let text = format!(
        r#"
        [interface]
        name = "cordon0"
        [path]
        local = "{}"
        remote = "{}"
        [sa]
        encryption = "aes-256-gcm"
        outbound = {{ spi = {}, encryption_key = "{}" }}
        inbound = {{ spi = {}, encryption_key = "{}" }}
        "#,
        ADDRESSES[us],
        ADDRESSES[them],
        spi(us),
        key(us),
        spi(them),
        key(them)
    );
    StaticConfig::parse(&text).unwrap()
}

fn pair(side: usize, generation: u32, now: Instant) -> SaPair {
    associations(&config(side, generation), now)
        .unwrap()
        .remove(0)
}

impl End {
    fn new(side: usize, now: Instant) -> Self {
        let mut plane = DataPlane::new(1);
        let any = AddressRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
        let policy = plane.insert_policy(Policy {
            selector: Selector::between(any, any),
            action: Action::Protect,
            order: 0,
        });
        let mut end = Self {
            plane,
            policies: vec![policy],
            rekey: Rekey::new(RekeyConfig::default()),
            side,
        };
        end.begin(0, now).unwrap();
        end.poll(now);
        end
    }

    fn begin(&mut self, generation: u32, now: Instant) -> Result<(), RekeyError> {
        let pair = pair(self.side, generation, now);
        self.rekey.begin(pair, &mut self.plane, now).map(drop)
    }

    /// Does the worker's part of each turn.
    fn poll(&mut self, now: Instant) {
        if let Some(outbound) = self.rekey.poll(&mut self.plane, now) {
            let old: Vec<Spi> = self.plane.outbound_sas().map(OutboundSa::spi).collect();
            self.plane.install_outbound(outbound, &self.policies);
            for old in old {
                self.plane.remove_outbound(old.into());
            }
        }
    }

    fn send(&mut self, now: Instant) -> Vec<u8> {
        let mut batch = OutboundBatch::new(1, 100);
        let packet = [
            0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        assert!(batch.push(&packet));
        self.plane.outbound(&mut batch, now, &mut Vec::new());
        assert!(matches!(
            batch.packets[0].outcome,
            Outcome::Protected { .. }
        ));
        batch.bytes(&batch.packets[0]).to_vec()
    }

    fn receive(&mut self, mut packet: Vec<u8>, now: Instant) -> Arrived {
        let address = ADDRESSES[0].parse().unwrap();
        let mut packets = [InboundPacket {
            start: 0,
            len: packet.len(),
            ip_header: None,
            room_before: 0,
            arrival: Arrival {
                source: address,
                source_port: 4500,
                destination: address,
                traffic_class: 0,
                in_udp: true,
            },
            outcome: Arrived::Pending,
        }];
        self.plane.inbound(&mut packet, &mut packets, now);
        packets[0].outcome
    }

    fn sends_with(&self) -> Vec<u32> {
        self.plane.outbound_sas().map(|sa| sa.spi().get()).collect()
    }

    fn opens(&self) -> usize {
        self.plane.inbound_sas().count()
    }
}

const STEP: Duration = Duration::from_millis(50);

/// Both ends get new keys `gaps[side]` steps after the start; a packet is sent each way at each step
/// and arrives `delay` steps later. Returns the steps after which both sent with the new keys.
fn take_over(gaps: [usize; 2], delay: usize) -> usize {
    let start = Instant::now();
    let mut ends = [End::new(0, start), End::new(1, start)];
    let mut wires = [VecDeque::new(), VecDeque::new()];
    let mut both_new = None;
    for step in 0..400 {
        let now = start + STEP * u32::try_from(step).unwrap();
        for side in 0..2 {
            if gaps[side] == step {
                ends[side].begin(1, now).unwrap();
            }
            ends[side].poll(now);
            let packet = ends[side].send(now);
            wires[side].push_back((step + delay, packet));
        }
        for side in 0..2 {
            while wires[side].front().is_some_and(|(due, _)| *due <= step) {
                let (_, packet) = wires[side].pop_front().unwrap();
                let arrived = ends[1 - side].receive(packet, now);
                assert!(
                    matches!(arrived, Arrived::Delivered { .. }),
                    "{gaps:?} {delay}: lost in step {step}: {arrived:?}"
                );
            }
        }
        if ends[0].sends_with() == [0x1002] && ends[1].sends_with() == [0x1003] {
            both_new.get_or_insert(step);
        }
    }
    // The old keys are gone in the end.
    assert_eq!([ends[0].opens(), ends[1].opens()], [1, 1]);
    both_new.unwrap()
}

#[test]
fn rekey_in_either_order_loses_no_packet() {
    // Within the two seconds of `switch_after`, which are 40 steps.
    for first in 0..2 {
        for gap in [0, 1, 7, 38] {
            for delay in [0, 1, 5] {
                let mut gaps = [10, 10];
                gaps[first] += gap;
                take_over(gaps, delay);
            }
        }
    }
}

#[test]
fn rekey_of_the_later_end_follows_the_first_packet() {
    // The first end waits its two seconds, the second one switches with the first packet it sees.
    let done = take_over([10, 20], 0);
    assert!((50..=51).contains(&done), "{done}");
}

#[test]
fn peer_that_never_rekeys_is_still_received() {
    let start = Instant::now();
    let (mut us, mut them) = (End::new(0, start), End::new(1, start));
    us.begin(1, start).unwrap();
    let later = start + Duration::from_secs(3600);
    us.poll(later);
    assert_eq!(us.sends_with(), [0x1002]);
    let packet = them.send(later);
    assert!(matches!(
        us.receive(packet, later),
        Arrived::Delivered { .. }
    ));
}

#[test]
fn old_keys_beyond_the_bound_are_removed() {
    let start = Instant::now();
    let mut us = End::new(0, start);
    for generation in 1..40 {
        us.begin(generation, start).unwrap();
        us.poll(start);
    }
    assert_eq!(us.opens(), MAX_OLD + 1);
    assert_eq!(us.sends_with(), [0x1000], "none of them was waited for");
}

#[test]
fn spi_or_key_in_use_is_refused() {
    let start = Instant::now();
    let mut us = End::new(0, start);
    let spi = |value| Spi::new(value).unwrap();
    assert_eq!(us.begin(0, start), Err(RekeyError::SpiInUse(spi(0x1000))));
    us.begin(1, start).unwrap();
    assert_eq!(us.begin(1, start), Err(RekeyError::SpiInUse(spi(0x1002))));

    let mut used = UsedKeys::default();
    let take = |used: &mut UsedKeys, generation| {
        let config = config(0, generation);
        used.take([&config.sa.outbound, &config.sa.inbound])
    };
    take(&mut used, 0).unwrap();
    take(&mut used, 1).unwrap();
    assert_eq!(take(&mut used, 0), Err(RekeyError::KeyUsed(spi(0x1000))));
}
