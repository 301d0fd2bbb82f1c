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

    /// As the worker with this number of several.
    fn of_worker(number: u32, workers: u32) -> Self {
        let mut bench = Self::new();
        bench.children = std::mem::take(&mut bench.children).of_worker(number, workers);
        bench
    }

    fn install(&mut self, number: u32, send_now: bool) {
        self.install_for(number, number + 1000, everything(), send_now);
    }

    /// One that replaces another, or is beside one for the same traffic.
    fn install_related(&mut self, number: u32, (replaces, beside): (u32, u32), send_now: bool) {
        let related = (Spi::new(replaces), Spi::new(beside));
        self.install_with(number, number + 1000, everything(), related, send_now);
    }

    /// A Child SA that receives at `number`, whose peer chose `theirs`.
    fn install_for(&mut self, number: u32, theirs: u32, selector: Selector, send_now: bool) {
        self.install_with(number, theirs, selector, (None, None), send_now);
    }

    fn install_with(
        &mut self,
        number: u32,
        theirs: u32,
        selector: Selector,
        related: (Option<Spi>, Option<Spi>),
        send_now: bool,
    ) {
        let installs = self.prepare(number, theirs, selector, related, send_now);
        self.put(installs);
    }

    fn prepare(
        &self,
        number: u32,
        theirs: u32,
        selector: Selector,
        (replaces, beside): (Option<Spi>, Option<Spi>),
        send_now: bool,
    ) -> Vec<Install> {
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
            replaces,
            beside,
            next_hop: NextHop {
                remote: "127.0.0.1:9".parse().unwrap(),
                source: None,
            },
            order: 0,
            path_mtu: 1500,
            tfc_padding: None,
            send_now,
        };
        Install::for_workers(&child, self.now, NonZeroUsize::MIN, None).unwrap()
    }

    fn put(&mut self, installs: Vec<Install>) {
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
fn child_that_waits_for_a_command_receives_and_does_not_send_until_then() {
    let mut bench = Bench::new();
    bench.install(300, true);
    let installs = bench.prepare(301, 1301, everything(), (None, None), true);
    bench.put(installs.into_iter().map(Install::until_commanded).collect());
    assert!(bench.receives(301));
    assert_eq!(bench.sends(), Some(1300));
    bench.handle(ChildCommand::Switch(Spi::new(301).unwrap()));
    assert_eq!(bench.sends(), Some(1301));
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

fn remove(number: u32) -> ChildCommand {
    ChildCommand::Remove(Spi::new(number).unwrap(), Duration::from_secs(5))
}

/// Gives which of four workers sends with which of the Child SAs that `change` makes, and whether it is its own to answer.
fn senders(change: impl Fn(&mut Bench)) -> [(Option<u32>, bool); 4] {
    [0, 1, 2, 3].map(|number| {
        let mut bench = Bench::of_worker(number, 4);
        change(&mut bench);
        let sends = bench.sends();
        let spi = sends.and_then(|theirs| Spi::new(theirs - 1000));
        (sends, spi.is_some_and(|spi| bench.children.is_spread(spi)))
    })
}

#[test]
fn each_worker_sends_with_its_own_of_several_child_sas() {
    // One: all share it, as without others.
    let one = |bench: &mut Bench| bench.install(402, true);
    assert_eq!(senders(one), [(Some(1402), false); 4]);
    // Two: those without their own share them evenly.
    let two = |bench: &mut Bench| {
        one(bench);
        bench.install_related(407, (0, 402), true);
    };
    let shared = |spis: [u32; 4]| spis.map(|spi| (Some(spi), true));
    assert_eq!(senders(two), shared([1402, 1407, 1402, 1407]));
    let all = |bench: &mut Bench| {
        two(bench);
        bench.install_related(400, (0, 407), true);
        bench.install_related(405, (0, 402), true);
    };
    assert_eq!(senders(all), shared([1400, 1405, 1402, 1407]));
    // One that does not send yet changes nothing.
    let awaited = |bench: &mut Bench| {
        two(bench);
        bench.install_related(404, (0, 402), false);
    };
    assert_eq!(senders(awaited), shared([1402, 1407, 1402, 1407]));
}

#[test]
fn one_of_several_is_rekeyed_and_removed_without_the_others() {
    let two = |bench: &mut Bench| {
        bench.install(400, true);
        bench.install_related(401, (0, 400), true);
    };
    let of = |spis: [u32; 4], spread| spis.map(|spi| (Some(spi), spread));
    // The successor receives, and takes over by command.
    let begun = |bench: &mut Bench| {
        two(bench);
        bench.install_related(405, (401, 400), false);
    };
    assert_eq!(senders(begun), of([1400, 1401, 1400, 1401], true));
    let switched = |bench: &mut Bench| {
        begun(bench);
        bench.handle(ChildCommand::Switch(Spi::new(405).unwrap()));
    };
    assert_eq!(senders(switched), of([1400, 1405, 1400, 1405], true));
    let done = |bench: &mut Bench| {
        switched(bench);
        bench.handle(remove(401));
    };
    assert_eq!(senders(done), of([1400, 1405, 1400, 1405], true));
    // One goes for good: the other carries all, as a single one.
    let left = |bench: &mut Bench| {
        done(bench);
        bench.handle(remove(400));
    };
    assert_eq!(senders(left), of([1405; 4], false));
    let none = |bench: &mut Bench| {
        left(bench);
        bench.handle(remove(405));
        let later = bench.now + Duration::from_secs(6);
        bench.children.poll(&mut bench.plane, later);
        assert!(bench.children.policies.is_empty() && bench.children.table.is_empty());
        assert_eq!(bench.plane.spd().iter().count(), 0);
        assert!([400, 401, 405].iter().all(|spi| !bench.receives(*spi)));
    };
    assert_eq!(senders(none), [(None, false); 4]);
}

#[test]
fn a_new_set_of_child_sas_takes_over_as_a_whole() {
    let before = |bench: &mut Bench| {
        bench.install(400, true);
        bench.install_related(401, (0, 400), true);
    };
    // The peer started anew: none of the old ones is known there any more.
    let anew = |bench: &mut Bench| {
        before(bench);
        bench.install(403, true);
    };
    assert_eq!(senders(anew), [(Some(1403), false); 4]);
    // And back, when the new one goes or the old ones are preferred.
    let gone = |bench: &mut Bench| {
        anew(bench);
        bench.handle(remove(403));
    };
    let both = [1400, 1401, 1400, 1401].map(|spi| (Some(spi), true));
    assert_eq!(senders(gone), both);
    let preferred = |bench: &mut Bench| {
        anew(bench);
        bench.handle(ChildCommand::Switch(Spi::new(400).unwrap()));
    };
    assert_eq!(senders(preferred), both);
}

#[test]
fn answers_of_a_draining_child_sa_come_where_they_came_before() {
    let mut bench = Bench::of_worker(1, 2);
    bench.install(400, true);
    bench.install_related(401, (0, 400), true);
    bench.install_related(403, (401, 0), true);
    bench.handle(remove(401));
    let spread = |bench: &Bench, spi| bench.children.is_spread(Spi::new(spi).unwrap());
    assert!([400, 401, 403].iter().all(|spi| spread(&bench, *spi)));
    let later = bench.now + Duration::from_secs(6);
    bench.children.poll(&mut bench.plane, later);
    assert!(spread(&bench, 403) && !spread(&bench, 401));
    // The number may come again, alone.
    bench.install(401, true);
    assert!(!spread(&bench, 401));
}
