//! How the data plane grows with the number of associations: time per packet and memory.
//!
//! `cargo run --release -p ipsec --example scale` prints a line per number of associations and way
//! in which traffic is spread over them:
//!
//! - `runs`: each batch is of one association, as a segmented send is; the next batch of another.
//! - `mixed`: each packet of a batch is of another association: the worst that can come.
//!
//! The same work is measured each time, policies and time limits included; what differs is how much
//! of what it needs is in a cache. Times are medians over batches of 45 packets, three rounds, the
//! sizes taking turns.
#![allow(clippy::disallowed_methods, reason = "a program has a clock")]
#![expect(clippy::print_stdout, reason = "the result")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program of fixed numbers: a panic is how it fails"
)]

#[path = "../tests/it/counting.rs"]
#[expect(dead_code, reason = "only bytes are counted here")]
mod counting;

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ipsec::batch::{Arrival, Arrived, InboundPacket, OutboundBatch, Outcome};
use ipsec::dataplane::DataPlane;
use ipsec::ip::IpHeader;
use ipsec::lifetime::{Lifetime, Limits};
use ipsec::sa::{
    InboundOptions, InboundSa, Mode, OutboundOptions, OutboundSa, OuterHeaders, Protocol,
    SaParameters, Spi, UdpEncapsulation,
};
use ipsec::selector::{AddressRange, Selector};
use ipsec::spd::{Action, Policy};
use ipsec::tunnel::Tunnel;
use offload::{Encryption, KeyMaterial, Suite};

/// Packets of a batch.
const BATCH: usize = 45;
/// Batches of a measurement.
const BATCHES: usize = 4000;
/// Bytes of an inner packet.
const SIZES: [usize; 2] = [64, 1400];
/// Associations in each direction.
const COUNTS: [usize; 5] = [1, 10, 100, 1_000, 10_000];

struct World {
    sender: DataPlane,
    receiver: DataPlane,
    count: usize,
    /// Bytes of heap per association, outbound and inbound, policies included.
    outbound_bytes: i64,
    inbound_bytes: i64,
}

fn host(number: usize) -> Ipv4Addr {
    // A step that is no power of two: neighbours in number are none in address.
    Ipv4Addr::from(0x0A00_0000 | (u32::try_from(number).unwrap().wrapping_mul(1627) & 0xFF_FFFF))
}

fn parameters(number: usize, now_limits: Lifetime) -> SaParameters {
    let mut key = [7; 20];
    key[..8].copy_from_slice(&(number as u64).to_be_bytes());
    SaParameters {
        engine: offload::Engine::default(),
        accelerator: None,
        spi: Spi::new(0x1000 + u32::try_from(number).unwrap()).unwrap(),
        protocol: Protocol::Esp(Suite::new(Encryption::AesGcm128, None).unwrap()),
        keys: KeyMaterial::new(&key, &[]),
        extended_sequence: true,
        mode: Mode::Tunnel(Tunnel::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into())),
        encapsulation: Some(UdpEncapsulation {
            local: 4500,
            remote: 4500,
        }),
        lifetime: now_limits,
    }
}

impl World {
    fn new(count: usize) -> Self {
        let now = Instant::now();
        let here = AddressRange::prefix([10, 255, 0, 0].into(), 16).unwrap();
        let lifetime = Lifetime {
            soft: Limits {
                age: Some(Duration::from_secs(3000)),
                ..Limits::default()
            },
            hard: Limits {
                age: Some(Duration::from_secs(3600)),
                ..Limits::default()
            },
        };
        let start = counting::bytes();
        let mut sender = DataPlane::new(1);
        for number in 0..count {
            let policy = sender.insert_policy(Policy {
                selector: Selector::between(here, AddressRange::host(host(number).into())),
                action: Action::Protect,
                order: 0,
            });
            let options = OutboundOptions {
                outer_headers: OuterHeaders::BySocket,
                ..OutboundOptions::default()
            };
            let sa = OutboundSa::new(&parameters(number, lifetime), options, now).unwrap();
            sender.install_outbound(sa, &[policy]);
        }
        let middle = counting::bytes();
        let mut receiver = DataPlane::new(2);
        for number in 0..count {
            let options = InboundOptions {
                selectors: vec![Selector::between(
                    AddressRange::host(host(number).into()),
                    here,
                )],
                ..InboundOptions::default()
            };
            let sa = InboundSa::new(&parameters(number, lifetime), options, now).unwrap();
            receiver.install_inbound(sa);
        }
        let end = counting::bytes();
        let each = |bytes: i64| bytes / i64::try_from(count).unwrap();
        Self {
            sender,
            receiver,
            count,
            outbound_bytes: each(middle - start),
            inbound_bytes: each(end - middle),
        }
    }

    /// Median times per packet, out and in.
    fn measure(&mut self, size: usize, mixed: bool) -> (Duration, Duration) {
        let mut packet = vec![0x45, 0];
        packet.extend(u16::try_from(size).unwrap().to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 255, 0, 1, 0, 0, 0, 0]);
        packet.extend([0x30, 0x39, 0x00, 0x35]);
        packet.resize(size, 9);
        let mut batch = OutboundBatch::new(BATCH, size);
        let mut arrivals = Vec::with_capacity(BATCH);
        let (mut out, mut inward) = (Vec::new(), Vec::new());
        let mut events = Vec::new();
        let arrival = Arrival {
            source: IpAddr::from([192, 0, 2, 1]),
            source_port: 4500,
            destination: IpAddr::from([192, 0, 2, 2]),
            traffic_class: 0,
            in_udp: true,
        };
        // A walk over all associations that no prefetcher follows.
        let mut at = 0;
        for _ in 0..BATCHES {
            let now = Instant::now();
            batch.clear();
            at = (at + 7919) % self.count;
            let mut frame = None;
            for _ in 0..BATCH {
                if mixed {
                    at = (at + 7919) % self.count;
                }
                packet[16..20].copy_from_slice(&host(at).octets());
                // As the worker does: asked once for all segments of what the host hands over.
                if mixed || frame.is_none() {
                    let header = IpHeader::parse(&packet).unwrap();
                    frame = self.sender.frame(&header).map(|f| batch.add_frame(f));
                }
                let place = batch.place_framed(frame.unwrap(), packet.len());
                place.unwrap().copy_from_slice(&packet);
            }
            self.sender.outbound(&mut batch, now, &mut events);
            self.sender.poll_expiries(now, &mut events);
            out.push(now.elapsed());
            arrivals.clear();
            for packet in &batch.packets {
                let Outcome::Protected { payload, .. } = packet.outcome else {
                    panic!("not protected: {:?}", packet.outcome);
                };
                arrivals.push(InboundPacket {
                    start: payload,
                    len: packet.range().end - payload,
                    ip_header: None,
                    room_before: 0,
                    arrival,
                    outcome: Arrived::Pending,
                });
            }
            let now = Instant::now();
            self.receiver.inbound(&mut batch.buffer, &mut arrivals, now);
            self.receiver.poll_expiries(now, &mut events);
            inward.push(now.elapsed());
            assert!(events.is_empty());
            for packet in &arrivals {
                assert!(matches!(packet.outcome, Arrived::Delivered { .. }));
            }
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2] / u32::try_from(BATCH).unwrap()
        };
        (median(&mut out), median(&mut inward))
    }
}

fn main() {
    println!("associations  spread  bytes     out      in   Mpackets/s  heap per association");
    let mut worlds: Vec<_> = COUNTS.into_iter().map(World::new).collect();
    for (mixed, name) in [(false, "runs"), (true, "mixed")] {
        for size in SIZES {
            let mut least = vec![(Duration::MAX, Duration::MAX); worlds.len()];
            for _ in 0..3 {
                for (world, least) in worlds.iter_mut().zip(&mut least) {
                    let (out, inward) = world.measure(size, mixed);
                    *least = (least.0.min(out), least.1.min(inward));
                }
            }
            for (world, (out, inward)) in worlds.iter().zip(&least) {
                let rate = 1e3 / (out.as_nanos() + inward.as_nanos()) as f64;
                println!(
                    "{:12} {name:>7} {size:6} {:4} ns {:4} ns {rate:12.2}  {} out, {} in",
                    world.count,
                    out.as_nanos(),
                    inward.as_nanos(),
                    world.outbound_bytes,
                    world.inbound_bytes,
                );
            }
        }
    }
}
