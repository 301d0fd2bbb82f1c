use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, channel};

use ipsec::batch::{OutboundBatch, Outcome};
use ipsec::ip::{IpHeader, protocol};
use ipsec::lifetime::Lifetime;
use ipsec::sa::{
    InboundOptions, Mode, OutboundOptions, OuterHeaders, Protocol, SaParameters, UdpEncapsulation,
};
use ipsec::selector::{AddressRange, Flow};
use ipsec::tunnel::Tunnel;
use offload::{Encryption, KeyMaterial, Suite};

use super::*;
use crate::testing::udp_packet;

struct Bench {
    plane: DataPlane,
    outer: Outer,
    children: Children,
    notes: Receiver<Note>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let (sender, notes) = channel();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Self {
            plane: DataPlane::new(7),
            outer: Outer::shared_udp(socket, false, None, Box::new(|_, _, _| {})).unwrap(),
            children: Children::new(Box::new(move |note| sender.send(note).unwrap())),
            notes,
            now: Instant::now(),
        }
    }

    fn obey(&mut self, order: ChildOrder) {
        let mut tables = Tables {
            plane: &mut self.plane,
            outer: &mut self.outer,
            now: self.now,
        };
        self.children.obey(order, &mut tables);
    }

    fn install(&mut self, number: u32, send_now: bool) {
        self.install_for(number, number + 1000, everything(), send_now);
    }

    /// A Child SA that receives at `number`, whose peer chose `theirs`.
    fn install_for(&mut self, number: u32, theirs: u32, selector: Selector, send_now: bool) {
        let spi = |value| Spi::new(value).unwrap();
        let parameters = |spi| SaParameters {
            engine: offload::Engine::default(),
            spi,
            protocol: Protocol::Esp(Suite::new(Encryption::AesGcm128, None).unwrap()),
            keys: KeyMaterial::new(&[u8::try_from(number & 0xFF).unwrap(); 20], &[]),
            extended_sequence: false,
            mode: Mode::Tunnel(Tunnel::new(
                "192.0.2.1".parse().unwrap(),
                "192.0.2.2".parse().unwrap(),
            )),
            encapsulation: Some(UdpEncapsulation {
                local: 4500,
                remote: 4500,
            }),
            lifetime: Lifetime::default(),
        };
        let options = OutboundOptions {
            outer_headers: OuterHeaders::BySocket,
            handle: Some(spi(number).into()),
            ..OutboundOptions::default()
        };
        let inbound = InboundSa::new(
            &parameters(spi(number)),
            InboundOptions::default(),
            self.now,
        );
        let outbound = OutboundSa::new(&parameters(spi(theirs)), options, self.now);
        let install = Install {
            pairs: vec![(inbound.unwrap(), outbound.unwrap())],
            in_udp: true,
            way: Way {
                remote: "127.0.0.1:9".parse().unwrap(),
                source: None,
            },
            order: 0,
            selectors: vec![selector],
            send_now,
        };
        self.obey(ChildOrder::Install(Box::new(install)));
    }

    /// The Child SA with which a packet would go out, by the number of its peer's SPI without others.
    fn sends(&mut self) -> Option<u32> {
        let packet = udp_packet(false, b"hello");
        let header = IpHeader::parse(&packet).unwrap();
        assert_eq!(header.protocol, protocol::UDP);
        self.plane.frame(&packet).map(|frame| frame.sa.get() + 1000)
    }

    fn receives(&self, number: u32) -> bool {
        self.plane.inbound_sa(Spi::new(number).unwrap()).is_some()
    }

    /// Sends a packet that nothing protects, and what comes of it.
    fn wish(&mut self) -> Vec<Note> {
        let packet = udp_packet(false, b"hello");
        let mut batch = OutboundBatch::new(1, 4096);
        batch
            .place(100, packet.len(), 100)
            .unwrap()
            .copy_from_slice(&packet);
        let mut events = Vec::new();
        self.plane.outbound(&mut batch, self.now, &mut events);
        assert!(matches!(batch.packets[0].outcome, Outcome::Dropped { .. }));
        events
            .into_iter()
            .for_each(|event| self.children.report(event));
        self.notes.try_iter().collect()
    }
}

fn everything() -> Selector {
    let all = AddressRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
    Selector::between(all, all)
}

#[test]
fn new_keys_take_over_and_old_ones_drain() {
    let mut bench = Bench::new();
    bench.install(300, true);
    assert_eq!(bench.sends(), Some(1300));
    // The new one receives at once and sends when it is told to.
    bench.install(301, false);
    assert_eq!(bench.sends(), Some(1300));
    assert!(bench.receives(300) && bench.receives(301));
    bench.obey(ChildOrder::Switch(Spi::new(301).unwrap()));
    assert_eq!(bench.sends(), Some(1301));
    bench.obey(ChildOrder::Remove(
        Spi::new(300).unwrap(),
        Duration::from_secs(5),
    ));
    assert_eq!(bench.sends(), Some(1301));
    assert!(bench.receives(300));
    assert_eq!(
        bench.children.deadline(),
        Some(bench.now + Duration::from_secs(5))
    );
    bench
        .children
        .poll(&mut bench.plane, bench.now + Duration::from_millis(4999));
    assert!(bench.receives(300));
    bench
        .children
        .poll(&mut bench.plane, bench.now + Duration::from_secs(5));
    assert!(!bench.receives(300) && bench.receives(301));
}

#[test]
fn who_was_there_before_takes_over_again() {
    let mut bench = Bench::new();
    bench.install(300, true);
    bench.install(301, true);
    assert_eq!(bench.sends(), Some(1301));
    bench.obey(ChildOrder::Remove(Spi::new(301).unwrap(), Duration::ZERO));
    assert_eq!(bench.sends(), Some(1300));
    bench.obey(ChildOrder::Remove(Spi::new(300).unwrap(), Duration::ZERO));
    assert_eq!(bench.sends(), None);
    // Nothing is left behind.
    assert!(bench.children.policies.is_empty() && bench.children.rules.is_empty());
    assert_eq!(bench.plane.spd().iter().count(), 0);
}

#[test]
fn traffic_is_told_of_once_until_armed_again() {
    let mut bench = Bench::new();
    bench.obey(ChildOrder::Trap(7, 0, vec![everything()]));
    assert_eq!(bench.wish(), [Note::Acquire(7)]);
    assert_eq!(bench.wish(), []);
    bench.obey(ChildOrder::Rearm(7));
    assert_eq!(bench.wish(), [Note::Acquire(7)]);
    // The policy outlives the Child SA, so that the next packet is told of again.
    bench.install(300, true);
    assert_eq!(bench.sends(), Some(1300));
    bench.obey(ChildOrder::Remove(Spi::new(300).unwrap(), Duration::ZERO));
    assert_eq!(bench.wish(), [Note::Acquire(7)]);
    bench.obey(ChildOrder::Untrap(7));
    assert_eq!(bench.wish(), []);
    assert_eq!(bench.plane.spd().iter().count(), 0);
}

#[test]
fn a_smaller_path_is_learned_by_its_remote() {
    let mut bench = Bench::new();
    bench.install(300, true);
    let nowhere = "0.0.0.0:0".parse().unwrap();
    let probe = PathMtu::new(nowhere, nowhere, None).unwrap();
    // Loopback takes more than anything that can be configured.
    bench
        .children
        .ask_paths(&mut bench.plane, &probe, 1500, bench.now);
    assert_eq!(bench.children.deadline(), None);
    let flow = Flow {
        local: "10.0.0.1".parse().unwrap(),
        remote: "10.0.0.2".parse().unwrap(),
        protocol: 17,
        ports: ipsec::ip::Ports::None,
    };
    assert!(bench.plane.spd().search(&flow).is_some());
}

#[test]
fn spis_that_are_not_ours_are_told_of_when_they_go_on() {
    use std::sync::{Arc, Mutex};
    let told: Arc<Mutex<Vec<Note>>> = Arc::default();
    let into = Arc::clone(&told);
    let mut children = Children::new(Box::new(move |note| into.lock().unwrap().push(note)));
    let source: IpAddr = "192.0.2.7".parse().unwrap();
    let start = Instant::now();
    let mut at = |millis, spi| {
        children.unknown_spi(source, spi, start + Duration::from_millis(millis));
        std::mem::take(&mut *told.lock().unwrap())
    };
    assert_eq!(at(0, 5), []);
    // Keys that come a moment after the packets are no reason.
    assert_eq!(at(1999, 5), []);
    assert_eq!(at(2000, 5), [Note::Unknown(source, 5)]);
    // Told of again only when it goes on for as long again.
    assert_eq!(at(2001, 5), []);
    assert_eq!(at(4000, 5), []);
    assert_eq!(at(4001, 5), [Note::Unknown(source, 5)]);
    // Many others push it out, and take no more room than it did.
    at(5000, 5);
    for spi in 100..1000 {
        assert_eq!(at(5001, spi), []);
    }
    assert_eq!(at(9000, 5), []);
    assert_eq!(children.unknown.len(), UNKNOWN);
}

#[test]
fn peers_that_chose_the_same_spi_do_not_disturb_each_other() {
    let mut bench = Bench::new();
    let towards = |text: &str| {
        let all = AddressRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
        Selector::between(all, AddressRange::host(text.parse().unwrap()))
    };
    bench.install_for(300, 0x1000, towards("10.9.0.1"), true);
    bench.install_for(301, 0x1000, towards("10.9.0.2"), true);
    let spis: Vec<u32> = bench
        .plane
        .outbound_sas()
        .map(|sa| sa.spi().get())
        .collect();
    assert_eq!(spis, [0x1000, 0x1000]);
    let sender = |bench: &mut Bench, low: u8| {
        let mut packet = udp_packet(false, b"hello");
        packet[16..20].copy_from_slice(&[10, 9, 0, low]);
        bench.plane.frame(&packet).map(|frame| frame.sa.get())
    };
    assert_eq!(
        [1, 2].map(|low| sender(&mut bench, low)),
        [Some(300), Some(301)]
    );
    // When one goes, the other stays.
    bench.obey(ChildOrder::Remove(Spi::new(301).unwrap(), Duration::ZERO));
    assert_eq!([1, 2].map(|low| sender(&mut bench, low)), [Some(300), None]);
    assert_eq!(bench.plane.outbound_sas().count(), 1);
}
