//! One association on several workers: threads that share numbers, window and lifetime.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ipsec::batch::{Arrived, OutboundBatch, Outcome};
use ipsec::dataplane::{DataPlane, Event};
use ipsec::lifetime::{Expiry, Lifetime, Limits};
use ipsec::sa::{InboundOptions, InboundSa, OutboundOptions, OutboundSa};
use ipsec::spd::{Action, Policy};
use offload::{Encryption, Suite};

use crate::support::{Case, arrived, open, protect};

const WORKERS: usize = 4;
const BATCH: usize = 7;

fn case(esn: bool) -> Case {
    Case {
        protocol: ipsec::sa::Protocol::Esp(Suite::new(Encryption::AesGcm128, None).unwrap()),
        tunnel: true,
        udp: false,
        v6: false,
        esn,
    }
}

fn workers() -> NonZeroUsize {
    NonZeroUsize::new(WORKERS).unwrap()
}

/// Workers whose first packet has the number behind `last`.
fn senders(case: &Case, lifetime: Lifetime, last: u64) -> Vec<DataPlane> {
    let mut parameters = case.parameters();
    parameters.lifetime = lifetime;
    let options = OutboundOptions::default();
    let sas = OutboundSa::for_workers(&parameters, options, Instant::now(), workers()).unwrap();
    let plane = |mut sa: OutboundSa| {
        sa.advance_to(last);
        let mut plane = DataPlane::new(1);
        let policy = plane.insert_policy(Policy {
            selector: case.selector(),
            action: Action::Protect,
            order: 0,
        });
        plane.install_outbound(sa, &[policy]);
        plane
    };
    sas.into_iter().map(plane).collect()
}

fn receivers(case: &Case, window: u32) -> Vec<DataPlane> {
    let options = InboundOptions {
        selectors: vec![case.selector()],
        replay_window: window,
        ..InboundOptions::default()
    };
    let sas =
        InboundSa::for_workers(&case.parameters(), &options, Instant::now(), workers()).unwrap();
    let plane = |sa| {
        let mut plane = DataPlane::new(2);
        plane.install_inbound(sa);
        plane
    };
    sas.into_iter().map(plane).collect()
}

/// Sends `batches` batches; the packets that were protected and what was reported come back.
fn send(plane: &mut DataPlane, inner: &[u8], batches: usize) -> (Vec<Vec<u8>>, Vec<Event>) {
    let (mut sent, mut events) = (Vec::new(), Vec::new());
    for _ in 0..batches {
        let mut batch = OutboundBatch::new(BATCH, inner.len());
        while batch.push(inner) {}
        plane.outbound(&mut batch, Instant::now(), &mut events);
        plane.poll_expiries(Instant::now(), &mut events);
        let protected =
            |p: &&ipsec::batch::OutboundPacket| matches!(p.outcome, Outcome::Protected { .. });
        let packets = batch.packets.iter().filter(protected);
        sent.extend(packets.map(|packet| batch.bytes(packet).to_vec()));
    }
    (sent, events)
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[24..28].try_into().unwrap())
}

/// Runs `work` with each plane on a thread of its own, all at once.
fn at_once<R: Send>(
    planes: &mut [DataPlane],
    work: impl Fn(usize, &mut DataPlane) -> R + Sync,
) -> Vec<R> {
    let (waiting, work) = (AtomicUsize::new(planes.len()), &work);
    std::thread::scope(|scope| {
        let start = |(index, plane)| {
            let waiting = &waiting;
            scope.spawn(move || {
                waiting.fetch_sub(1, Ordering::SeqCst);
                while waiting.load(Ordering::SeqCst) > 0 {
                    std::hint::spin_loop();
                }
                work(index, plane)
            })
        };
        let threads: Vec<_> = planes.iter_mut().enumerate().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

#[test]
fn no_number_is_given_out_twice_and_no_packet_accepted_twice() {
    const BATCHES: usize = 600;
    for esn in [false, true] {
        let case = case(esn);
        let inner = case.inner(40);
        let mut senders = senders(&case, Lifetime::default(), 0);
        let sent = at_once(&mut senders, |_, plane| send(plane, &inner, BATCHES).0);
        let packets: Vec<Vec<u8>> = sent.into_iter().flatten().collect();
        let mut numbers: Vec<u32> = packets.iter().map(|packet| number(packet)).collect();
        numbers.sort_unstable();
        let all = u32::try_from(WORKERS * BATCHES * BATCH).unwrap();
        assert!(numbers.into_iter().eq(1..=all), "each number once");
        for plane in &senders {
            let sa = plane.outbound_sas().next().unwrap();
            assert_eq!(
                (sa.sequence(), sa.usage().packets()),
                (all.into(), all.into())
            );
        }

        // Every worker gets every packet, each in another order.
        let mut receivers = receivers(&case, 1 << 20);
        let delivered = at_once(&mut receivers, |worker, plane| {
            let mut delivered = 0;
            for at in 0..packets.len() {
                let packet = &packets[(at * 11 + worker * 1001) % packets.len()];
                let mut buffer = packet.clone();
                let mut list = [arrived(&buffer, 0, packet.len())];
                plane.inbound(&mut buffer, &mut list, Instant::now());
                delivered += u32::from(matches!(list[0].outcome, Arrived::Delivered { .. }));
            }
            delivered
        });
        assert_eq!(delivered.iter().sum::<u32>(), all, "{delivered:?}");
        for plane in &receivers {
            let sa = plane.inbound_sas().next().unwrap();
            assert_eq!(
                (sa.sequence(), sa.usage().packets()),
                (all.into(), all.into())
            );
        }
    }
}

#[test]
fn a_limit_counts_for_all_workers() {
    const LIMIT: u64 = 1000;
    let case = case(true);
    let inner = case.inner(40);
    let limits = |packets| Limits {
        packets: Some(packets),
        ..Limits::default()
    };
    let lifetime = Lifetime {
        soft: limits(LIMIT / 2),
        hard: limits(LIMIT),
    };
    let mut senders = senders(&case, lifetime, 0);
    let sent = at_once(&mut senders, |_, plane| send(plane, &inner, 200));
    let packets: usize = sent.iter().map(|(packets, _)| packets.len()).sum();
    // Each of the others may have had a batch in hand.
    let most = usize::try_from(LIMIT).unwrap() + (WORKERS - 1) * BATCH;
    assert!((1000..=most).contains(&packets), "{packets} packets");
    for (_, events) in &sent {
        let hard = |event: &Event| matches!(event, Event::OutboundExpired(_, Expiry::Hard));
        assert_eq!(
            events.iter().filter(|event| hard(event)).count(),
            1,
            "{events:?}"
        );
    }
}

#[test]
fn the_last_numbers_are_shared_out_and_then_it_ends() {
    let case = case(false);
    let inner = case.inner(40);
    let mut senders = senders(&case, Lifetime::default(), u64::from(u32::MAX) - 10);
    let sent = at_once(&mut senders, |_, plane| send(plane, &inner, 4).0);
    let mut numbers: Vec<u32> = sent.iter().flatten().map(|packet| number(packet)).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(u32::MAX - 9..=u32::MAX));
}

#[test]
fn a_worker_sees_what_another_received() {
    let case = case(true);
    let mut senders = senders(&case, Lifetime::default(), 0);
    let mut receivers = receivers(&case, 64);
    let first = protect(&mut senders[0], &case.inner(40)).unwrap();
    let second = protect(&mut senders[1], &case.inner(40)).unwrap();
    assert!(open(&mut receivers[2], &second).is_ok());
    assert!(open(&mut receivers[3], &second).is_err());
    assert!(open(&mut receivers[3], &first).is_ok());
    for plane in &receivers {
        let sa = plane.inbound_sas().next().unwrap();
        assert_eq!((sa.sequence(), sa.usage().packets()), (2, 2));
    }
}
