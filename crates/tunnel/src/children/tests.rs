use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, channel};

use ipsec::batch::{OutboundBatch, Outcome};
use ipsec::ip::{IpHeader, protocol};
use ipsec::lifetime::Lifetime;
use ipsec::sa::{Mode, Protocol, SaParameters, UdpEncapsulation};
use ipsec::selector::{AddressRange, Flow};
use ipsec::tunnel::Tunnel;
use offload::{Encryption, KeyMaterial, Suite};

use super::*;
use crate::testing::udp_packet;

struct Bench {
    plane: DataPlane,
    outer: Outer,
    children: Children,
    events: Receiver<ChildEvent>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let (sender, events) = channel();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Self {
            plane: DataPlane::new(7),
            outer: Outer::shared_udp(socket, false, None, Box::new(|_, _, _| {})).unwrap(),
            children: Children::new(Box::new(move |event| sender.send(event).unwrap())),
            events,
            now: Instant::now(),
        }
    }

    fn handle(&mut self, command: ChildCommand) {
        let mut tables = Tables {
            plane: &mut self.plane,
            outer: &mut self.outer,
            now: self.now,
        };
        self.children.handle(command, &mut tables);
    }

    fn install(&mut self, number: u32, send_now: bool) {
        self.install_for(number, number + 1000, everything(), send_now);
    }

    /// A Child SA that receives at `number`, whose peer chose `theirs`.
    fn install_for(&mut self, number: u32, theirs: u32, selector: Selector, send_now: bool) {
        let spi = |value| Spi::new(value).unwrap();
        let parameters = |spi| SaParameters {
            engine: offload::Engine::default(),
            accelerator: None,
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
        let child = ChildSa {
            inbound: parameters(spi(number)),
            outbound: parameters(spi(theirs)),
            selectors: vec![selector],
            replaces: None,
            next_hop: NextHop {
                remote: "127.0.0.1:9".parse().unwrap(),
                source: None,
            },
            order: 0,
            path_mtu: 1500,
            tfc_padding: None,
            send_now,
        };
        let installs = Install::for_workers(&child, self.now, NonZeroUsize::MIN, None).unwrap();
        let mut tables = Tables {
            plane: &mut self.plane,
            outer: &mut self.outer,
            now: self.now,
        };
        for install in installs {
            self.children.install(install, &mut tables);
        }
    }

    /// The Child SA with which a packet would go out, by the number of its peer's SPI without others.
    fn sends(&mut self) -> Option<u32> {
        let packet = udp_packet(false, b"hello");
        let header = IpHeader::parse(&packet).unwrap();
        assert_eq!(header.protocol, protocol::UDP);
        self.plane.frame(&header).map(|frame| frame.sa.get() + 1000)
    }

    fn receives(&self, number: u32) -> bool {
        self.plane.inbound_sa(Spi::new(number).unwrap()).is_some()
    }

    /// Sends a packet that nothing protects, and what comes of it.
    fn wish(&mut self) -> Vec<ChildEvent> {
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
        self.events.try_iter().collect()
    }
}

fn everything() -> Selector {
    let all = AddressRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
    Selector::between(all, all)
}

#[test]
fn child_rekey_takes_over_and_the_old_one_drains() {
    let mut bench = Bench::new();
    bench.install(300, true);
    assert_eq!(bench.sends(), Some(1300));
    // The new one receives at once and sends when it is seen to.
    bench.install(301, false);
    assert_eq!(bench.sends(), Some(1300));
    assert!(bench.receives(300) && bench.receives(301));
    bench.handle(ChildCommand::Switch(Spi::new(301).unwrap()));
    assert_eq!(bench.sends(), Some(1301));
    bench.handle(ChildCommand::Remove(
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
fn child_that_sends_is_preferred_by_another_switch() {
    let mut bench = Bench::new();
    bench.install(300, true);
    bench.install(301, true);
    assert_eq!(bench.sends(), Some(1301));
    bench.handle(ChildCommand::Switch(Spi::new(300).unwrap()));
    assert_eq!(bench.sends(), Some(1300));
    assert!(bench.receives(300) && bench.receives(301));
    bench.handle(ChildCommand::Remove(Spi::new(301).unwrap(), Duration::ZERO));
    assert_eq!(bench.sends(), Some(1300));
}

#[test]
fn removed_child_hands_its_policies_to_the_one_before() {
    let mut bench = Bench::new();
    bench.install(300, true);
    bench.install(301, true);
    assert_eq!(bench.sends(), Some(1301));
    bench.handle(ChildCommand::Remove(Spi::new(301).unwrap(), Duration::ZERO));
    assert_eq!(bench.sends(), Some(1300));
    bench.handle(ChildCommand::Remove(Spi::new(300).unwrap(), Duration::ZERO));
    assert_eq!(bench.sends(), None);
    // Nothing is left behind.
    assert!(bench.children.policies.is_empty() && bench.children.rules.is_empty());
    assert_eq!(bench.plane.spd().iter().count(), 0);
}

#[test]
fn acquire_is_reported_once_until_rearmed() {
    let mut bench = Bench::new();
    bench.handle(ChildCommand::Trap(7, 0, vec![everything()]));
    assert_eq!(bench.wish(), [ChildEvent::Acquire(7)]);
    assert_eq!(bench.wish(), []);
    bench.handle(ChildCommand::Rearm(7));
    assert_eq!(bench.wish(), [ChildEvent::Acquire(7)]);
    // The policy outlives the Child SA, so that the next packet is seen of again.
    bench.install(300, true);
    assert_eq!(bench.sends(), Some(1300));
    bench.handle(ChildCommand::Remove(Spi::new(300).unwrap(), Duration::ZERO));
    assert_eq!(bench.wish(), [ChildEvent::Acquire(7)]);
    bench.handle(ChildCommand::Untrap(7));
    assert_eq!(bench.wish(), []);
    assert_eq!(bench.plane.spd().iter().count(), 0);
}

#[test]
fn smaller_path_mtu_is_learned_for_its_remote() {
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
fn unknown_spi_is_reported_when_it_persists() {
    use std::sync::{Arc, Mutex};
    let seen: Arc<Mutex<Vec<ChildEvent>>> = Arc::default();
    let into = Arc::clone(&seen);
    let mut children = Children::new(Box::new(move |note| into.lock().unwrap().push(note)));
    let source: IpAddr = "192.0.2.7".parse().unwrap();
    let start = Instant::now();
    let mut at = |millis, spi| {
        children.unknown_spi(source, spi, start + Duration::from_millis(millis));
        std::mem::take(&mut *seen.lock().unwrap())
    };
    assert_eq!(at(0, 5), []);
    // Keys that come a moment after the packets are no reason.
    assert_eq!(at(1999, 5), []);
    assert_eq!(at(2000, 5), [ChildEvent::Unknown(source, 5)]);
    // Told of again only when it goes on for as long again.
    assert_eq!(at(2001, 5), []);
    assert_eq!(at(4000, 5), []);
    assert_eq!(at(4001, 5), [ChildEvent::Unknown(source, 5)]);
    // Many others push it out, and take no more room than it did.
    at(5000, 5);
    for spi in 100..1000 {
        assert_eq!(at(5001, spi), []);
    }
    assert_eq!(at(9000, 5), []);
    assert_eq!(children.unknown.len(), UNKNOWN);
}

#[test]
fn peers_with_the_same_spi_do_not_disturb_each_other() {
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
        let header = IpHeader::parse(&packet).unwrap();
        bench.plane.frame(&header).map(|frame| frame.sa.get())
    };
    assert_eq!(
        [1, 2].map(|low| sender(&mut bench, low)),
        [Some(300), Some(301)]
    );
    // When one goes, the other stays.
    bench.handle(ChildCommand::Remove(Spi::new(301).unwrap(), Duration::ZERO));
    assert_eq!([1, 2].map(|low| sender(&mut bench, low)), [Some(300), None]);
    assert_eq!(bench.plane.outbound_sas().count(), 1);
}
