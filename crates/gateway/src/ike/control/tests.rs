//! Two daemons' decisions in virtual time, with nothing but a function between them.

mod certificates;

use std::time::Duration;

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::ike::peer_verifier::Refused;
use crate::ike::plan::Loaded;
use crate::ike::signer::Signer;

const CAMERA: &str = r#"
status = "s"
interface = { name = "t" }
[[connection]]
name = "headquarters"
remote = "192.0.2.1"
local_id = "camera-17.example.org"
remote_id = "gateway.example.org"
psk_file = "psk"
start = "start"
lifetime = 300.0
[[connection.child]]
name = "net"
local = ["10.5.1.0/24"]
remote = ["10.5.2.0/24"]
lifetime = 60.0
"#;

const GATEWAY: &str = r#"
status = "s"
interface = { name = "t" }
[[connection]]
name = "cameras"
local_id = "gateway.example.org"
remote_id = "camera-17.example.org"
psk_file = "psk"
[[connection.child]]
name = "net"
local = ["10.5.2.0/24"]
remote = ["10.5.1.0/24"]
"#;

struct Seeded(u64);

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            // SplitMix64: no secret depends on it here.
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            *byte = (z ^ (z >> 31)).to_le_bytes()[0];
        }
    }
}

/// What a side did to its packet path, routes and journal.
#[derive(Default)]
struct Done {
    installed: Vec<u32>,
    removed: Vec<(u32, Duration)>,
    moved: usize,
    links: Vec<LinkOrder>,
    audit: Vec<AuditNote>,
}

struct Side {
    control: Control,
    done: Done,
    trust: Option<Trust>,
    keys: BTreeMap<String, Vec<Key>>,
}

impl Side {
    fn new(text: &str, folder: &std::path::Path, number: usize, start: Instant) -> Self {
        let mut loaded = Loaded::read(text, folder, &Signer::in_thread()).unwrap();
        let trust = loaded.trust.take();
        let own: IpAddr = match number {
            0 => [192, 0, 2, 7].into(),
            other => [192, 0, 2, u8::try_from(other).unwrap()].into(),
        };
        let now = Now::since(start, start);
        let random = Box::new(Seeded(number as u64));
        let host = Host {
            source_of: Box::new(move |_| Some(own)),
            connected: Box::new(|| Ok(vec!["10.6.0.1/16".parse().unwrap()])),
        };
        let path = loaded.config.path.clone();
        let backend = loaded.config.backend;
        let mut control = Control::new(path, NonZeroUsize::MIN, backend, random, host, now);
        control.begin(loaded.plans, &loaded.config, now);
        let done = Done::default();
        Self {
            control,
            done,
            trust,
            keys: BTreeMap::new(),
        }
    }

    /// What other threads do: sign, and look at certificates.
    fn serve(&mut self, effect: Effect, now: Now) {
        match effect {
            Effect::SetKeys(name, keys) => drop(self.keys.insert(name, keys)),
            Effect::Sign(ask, (name, index), scheme, message) => {
                let signed = self.keys[&name][index].sign(scheme, &message);
                self.control
                    .signed(ask, signed.map_err(|error| error.to_string()), now);
            }
            Effect::Verify(ask, shown, id) => {
                let trust = self.trust.as_ref().unwrap();
                let utc = time::OffsetDateTime::now_utc();
                let result = trust.verify(&shown.chain, &[], &id, &shown.requirement, utc);
                self.control
                    .verified(ask, result.map_err(Refused::from), now);
            }
            other => self.done.take(other),
        }
    }
}

struct World {
    folder: tempfile::TempDir,
    start: Instant,
    elapsed: Duration,
    /// Camera, gateway.
    sides: [Side; 2],
    cut: bool,
}

impl World {
    fn new(camera: &str, gateway: &str) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), camera, gateway)
    }

    fn in_folder(folder: tempfile::TempDir, camera: &str, gateway: &str) -> Self {
        let secret = folder.path().join("psk");
        std::fs::write(&secret, "a secret for this test only").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let start = Instant::now();
        let side = |text: &str, number: usize| Side::new(text, folder.path(), number, start);
        let sides = [side(camera, 0), side(gateway, 1)];
        Self {
            start,
            elapsed: Duration::ZERO,
            sides,
            cut: false,
            folder,
        }
    }

    fn now(&self) -> Now {
        Now::since(self.start, self.start + self.elapsed)
    }

    /// Lets time pass, and everything happen that happens in it.
    fn run(&mut self, duration: Duration) {
        let end = self.elapsed + duration;
        loop {
            self.exchange();
            let next = self
                .sides
                .iter()
                .filter_map(|side| side.control.poll_timeout());
            let next = next.map(Timestamp::since_start).min();
            match next.filter(|at| *at <= end) {
                Some(at) => self.elapsed = self.elapsed.max(at),
                None => break,
            }
            let now = self.now();
            self.sides
                .iter_mut()
                .for_each(|side| side.control.tick(now));
        }
        self.elapsed = end;
    }

    fn exchange(&mut self) {
        let now = self.now();
        loop {
            let mut quiet = true;
            for at in 0..2 {
                while let Some(effect) = self.sides[at].control.poll_effect() {
                    self.sides[at].serve(effect, now);
                }
                while let Some(transmit) = self.sides[at].control.poll_transmit() {
                    quiet = false;
                    if !self.cut {
                        let other = &mut self.sides[1 - at].control;
                        other.datagram(transmit.remote, transmit.local, &transmit.payload, now);
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn order(&mut self, at: usize, order: Order) -> Reply {
        let now = self.now();
        self.sides[at].control.obey(order, now)
    }

    fn status(&mut self, at: usize) -> crate::ike::report::IkeStatus {
        match self.order(at, Order::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn reasons(&mut self, at: usize) -> Vec<String> {
        match self.order(at, Order::Explain) {
            Reply::Explanations(all) => all.into_iter().map(|one| one.reason).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Every side has one child, and they are the two ends of the same.
    fn check_up(&mut self) {
        let ends = [0, 1].map(|at| {
            let status = self.status(at);
            let children: Vec<_> = status
                .sas
                .iter()
                .flat_map(|sa| sa.children.clone())
                .collect();
            assert_eq!((status.sas.len(), children.len()), (1, 1), "side {at}");
            (children[0].spi_in.clone(), children[0].spi_out.clone())
        });
        assert_eq!((&ends[0].0, &ends[0].1), (&ends[1].1, &ends[1].0));
    }
}

impl Done {
    fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Child(ChildOrder::Install(install)) => {
                self.installed.push(install.pairs[0].0.spi().get());
            }
            Effect::Child(ChildOrder::Remove(spi, drain)) => self.removed.push((spi.get(), drain)),
            Effect::Child(ChildOrder::Move(..)) => self.moved += 1,
            Effect::Link(order) => self.links.push(order),
            Effect::Audit(note) => self.audit.push(note),
            _ => {}
        }
    }

    fn actions(&self) -> Vec<&'static str> {
        self.audit.iter().map(|note| note.action).collect()
    }
}

#[test]
fn a_tunnel_comes_up_gets_new_keys_and_ends() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    world.check_up();
    assert_eq!(
        world.sides[0].done.actions(),
        ["tunnel.up", "tunnel.child-up"]
    );
    let first = LinkOrder::AddRoute(route("10.5.2.0/24"));
    assert_eq!(
        world.sides[0].done.links,
        [first],
        "once, for the connection and its child"
    );
    world.run(Duration::from_secs(700));
    world.check_up();
    let counters = world.status(0).counters;
    assert!(
        counters.child_rekeys >= 10 && counters.ike_rekeys >= 2,
        "{counters:?}"
    );
    assert_eq!(counters.established, 1);
    for side in &world.sides {
        let drains: Vec<Duration> = side.done.removed.iter().map(|(_, drain)| *drain).collect();
        assert_eq!(drains.len() + 1, side.done.installed.len());
        assert!(drains.iter().all(|drain| *drain == Duration::from_secs(5)));
    }
    let now = world.now();
    world.sides[0].control.stop(now);
    world.run(Duration::from_secs(1));
    assert!(world.sides.iter().all(|side| side.control.is_over()));
    // The peer's packets are no longer taken, at once.
    assert_eq!(
        world.sides[1].done.removed.last().unwrap().1,
        Duration::ZERO
    );
    let gone = LinkOrder::RemoveRoute(route("10.5.1.0/24"));
    assert!(world.sides[1].done.links.contains(&gone));
}

#[test]
fn a_silent_peer_is_tried_again_with_longer_pauses() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.cut = true;
    world.run(Duration::from_secs(300));
    let tries = world.status(0).counters.failed_timeout;
    // A handshake may take 30 s; pauses grow from 1 s to 60 s.
    assert!((4..=8).contains(&tries), "{tries}");
    assert_eq!(world.reasons(0)[0], "peer does not answer");
    world.cut = false;
    world.run(Duration::from_secs(61));
    world.check_up();
    assert!(world.sides[0].done.actions().contains(&"tunnel.refuse"));
}

#[test]
fn a_lost_peer_is_noticed_and_found_again() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    world.cut = true;
    world.run(Duration::from_secs(200));
    assert_eq!(world.status(0).sas.len(), 0);
    // Routes stay, so that nothing goes in the clear meanwhile.
    let gone = LinkOrder::RemoveRoute(route("10.5.2.0/24"));
    assert!(!world.sides[0].done.links.contains(&gone));
    world.cut = false;
    world.run(Duration::from_secs(100));
    world.check_up();
}

#[test]
fn what_was_closed_by_order_stays_closed() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    let reply = world.order(0, Order::Down("headquarters".into()));
    assert!(matches!(reply, Reply::Closing(1)));
    world.run(Duration::from_secs(600));
    let status = world.status(0);
    assert_eq!(
        (status.sas.len(), status.connections[0].state.as_str()),
        (0, "down")
    );
    let reply = world.order(0, Order::Connect("headquarters".into()));
    assert!(matches!(reply, Reply::Connecting));
    world.run(Duration::from_secs(1));
    world.check_up();
    let reply = world.order(0, Order::Down("nobody".into()));
    assert!(matches!(reply, Reply::Refused(why) if why.contains("nobody")));
}

#[test]
fn a_peer_that_closes_is_asked_again() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    world.order(1, Order::Down("cameras".into()));
    world.run(Duration::from_secs(5));
    world.check_up();
    assert_eq!(world.status(0).counters.established, 2);
}

#[test]
fn a_reload_touches_what_changed_and_nothing_else() {
    let second = CAMERA.split_once("[[connection]]").unwrap().1;
    let second = second
        .replace("headquarters", "second")
        .replace("\"start\"", "\"none\"");
    let both = format!("{CAMERA}[[connection]]{second}");
    let mut world = World::new(&both, GATEWAY);
    world.run(Duration::from_secs(1));
    let spi = world.status(0).sas[0].spi.clone();
    let reload = |world: &mut World, text: &str| {
        let loaded = Loaded::read(text, world.folder.path(), &Signer::in_thread()).unwrap();
        match world.order(0, Order::Reload(Box::new(loaded))) {
            Reply::Reloaded {
                added,
                changed,
                removed,
            } => (added.join(" "), changed.join(" "), removed.join(" ")),
            other => panic!("{other:?}"),
        }
    };
    let none = String::new;
    assert_eq!(reload(&mut world, &both), (none(), none(), none()));
    assert_eq!(
        reload(&mut world, CAMERA),
        (none(), none(), "second".into())
    );
    world.run(Duration::from_secs(5));
    assert_eq!(world.status(0).sas[0].spi, spi);
    let changed = CAMERA.replace("lifetime = 60.0", "lifetime = 50.0");
    assert_eq!(reload(&mut world, &changed).1, "headquarters");
    world.run(Duration::from_secs(5));
    world.check_up();
    assert_ne!(world.status(0).sas[0].spi, spi);
}

#[test]
fn refusals_are_explained_to_both_operators() {
    let gateway = GATEWAY.replace("10.5.2.0/24", "10.6.2.0/24");
    let mut world = World::new(CAMERA, &gateway);
    world.run(Duration::from_secs(1));
    assert_eq!(world.reasons(1), ["no traffic selectors in common"]);
    assert_eq!(world.reasons(0), ["peer refused with TS_UNACCEPTABLE"]);
    assert!(
        world.sides[1]
            .done
            .actions()
            .contains(&"tunnel.child-refuse")
    );
    // The IKE SA stays, and the child is asked for again.
    world.run(Duration::from_secs(30));
    assert!(world.reasons(1).len() > 2);
    assert_eq!(world.status(0).counters.established, 1);
}

#[test]
fn strangers_cannot_fill_log_and_journal() {
    let gateway = GATEWAY.replace(
        "psk_file",
        "ike = [{ encryption = [\"aes-128-gcm\"], prf = [\"hmac-sha1\"], groups = [\"modp2048\"] }]\npsk_file",
    );
    let mut world = World::new(CAMERA, &gateway);
    let now = world.now();
    world.sides[0].control.tick(now);
    let first = world.sides[0].control.poll_transmit().unwrap();
    for port in 1..200 {
        let sender = SocketAddr::new("198.51.100.9".parse().unwrap(), port);
        world.sides[1]
            .control
            .datagram(first.remote, sender, &first.payload, now);
    }
    world.exchange();
    let refused = world.sides[1].done.actions();
    assert_eq!(refused.len(), usize::try_from(LOUD).unwrap());
    assert_eq!(world.status(1).counters.failed_proposal, 199);
    assert_eq!(world.reasons(1).len(), EXPLANATIONS);
}

#[test]
fn our_new_address_moves_the_tunnel() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    let other: IpAddr = "192.0.2.8".parse().unwrap();
    world.sides[0].control.source_of = Box::new(move |_| Some(other));
    world.run(Duration::from_secs(3));
    world.check_up();
    assert_eq!(world.status(0).sas[0].local, "192.0.2.8:4500");
    assert_eq!(world.status(1).sas[0].remote, "192.0.2.8:4500");
    assert!(world.sides.iter().all(|side| side.done.moved == 1));
    assert_eq!([0, 1].map(|at| world.status(at).counters.moves), [1, 1]);
    assert_eq!(world.status(0).counters.established, 1);
}

#[test]
fn without_mobike_a_new_address_means_a_new_tunnel() {
    let camera = CAMERA.replace("start = ", "mobike = false\nstart = ");
    let mut world = World::new(&camera, GATEWAY);
    world.run(Duration::from_secs(1));
    let other: IpAddr = "192.0.2.8".parse().unwrap();
    world.sides[0].control.source_of = Box::new(move |_| Some(other));
    world.run(Duration::from_secs(30));
    world.check_up();
    assert_eq!(world.status(0).sas[0].local, "192.0.2.8:4500");
    assert_eq!(world.status(0).counters.established, 2);
}

const POOL: &str = r#"
status = "s"
interface = { name = "t", addresses = ["10.9.0.1/24"] }
[[pool]]
name = "inside"
addresses = ["10.9.0.0/24"]
[[connection]]
name = "cameras"
local_id = "gateway.example.org"
remote_id = "camera-17.example.org"
psk_file = "psk"
pool = "inside"
[[connection.child]]
name = "net"
local = ["10.5.2.0/24"]
"#;

fn route(text: &str) -> Route {
    Route::configured(text.parse().unwrap())
}

fn routes(side: &Side) -> Vec<LinkOrder> {
    let orders = side.done.links.iter().copied();
    orders
        .filter(|order| matches!(order, LinkOrder::AddRoute(_)))
        .collect()
}

#[test]
fn a_pool_peer_without_request_gets_no_child_and_no_route() {
    for wanted in ["10.9.0.3/32", "8.8.8.0/24", "192.0.2.7/32", "0.0.0.0/0"] {
        let camera = CAMERA.replace("10.5.1.0/24", wanted);
        let mut world = World::new(&camera, POOL);
        // It goes on asking, by CREATE_CHILD_SA.
        world.run(Duration::from_secs(60));
        let status = world.status(1);
        assert_eq!(status.sas.len(), 1, "{wanted}");
        assert!(status.sas[0].children.is_empty(), "{wanted}");
        assert!(world.sides[1].done.installed.is_empty(), "{wanted}");
        assert!(routes(&world.sides[1]).is_empty(), "{wanted}");
        assert!(world.reasons(1).len() > 2, "{wanted}");
    }
}

#[test]
fn a_pool_peer_gets_its_address_and_the_route_to_it() {
    let camera = CAMERA.replace("start = ", "request = [\"ipv4\"]\nstart = ");
    let camera = camera.replace("local = [\"10.5.1.0/24\"]\n", "");
    let mut world = World::new(&camera, POOL);
    world.run(Duration::from_secs(700));
    world.check_up();
    // Not the gateway's own; the first that is free.
    let address = LinkOrder::AddRoute(route("10.9.0.2/32"));
    assert_eq!(routes(&world.sides[1]), [address]);
    let child = world.status(1).sas[0].children[0].clone();
    assert_eq!(child.remote, "10.9.0.2-10.9.0.2");
    assert!(world.status(1).counters.child_rekeys >= 10);
    assert_eq!(world.status(0).sas[0].addresses, ["10.9.0.2"]);
}

#[test]
fn networks_of_the_host_and_of_other_peers_outside_are_not_routed_to_a_peer() {
    // The gateway is connected to 10.6.0.0/16, and 203.0.113.9 is another peer.
    let refused = [
        ("10.6.7.0/24", "to which this host is connected"),
        ("64.0.0.0/2", "most of the address space"),
        (
            "203.0.113.0/24",
            "the outer address 203.0.113.9 of another peer",
        ),
    ];
    for (network, reason) in refused {
        let camera = CAMERA.replace("10.5.1.0/24", network);
        let gateway = GATEWAY.replace("10.5.1.0/24", network);
        let mut world = World::new(&camera, &gateway);
        world.sides[1]
            .control
            .outer
            .add("203.0.113.9".parse().unwrap());
        world.run(Duration::from_secs(2));
        assert!(routes(&world.sides[1]).is_empty(), "{network}");
        let audit = &world.sides[1].done.audit;
        let why = audit
            .iter()
            .filter(|note| note.action == "tunnel.child-refuse");
        let why: Vec<_> = why.filter_map(|note| note.reason.clone()).collect();
        assert!(
            why.iter().any(|why| why.contains(reason)),
            "{network}: {why:?}"
        );
        assert!(world.status(1).sas[0].children.is_empty(), "{network}");
    }
}

#[test]
fn a_peer_that_moves_into_a_network_behind_the_tunnel_is_closed() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    let inside: IpAddr = "10.5.1.9".parse().unwrap();
    world.sides[0].control.source_of = Box::new(move |_| Some(inside));
    world.run(Duration::from_secs(3));
    let actions = world.sides[1].done.actions();
    assert!(actions.contains(&"tunnel.revoke"), "{actions:?}");
}

#[test]
fn a_restarted_gateway_has_its_camera_back_within_three_seconds_of_the_next_message() {
    let camera = CAMERA.replace("start = ", "liveness = 10.0\nstart = ");
    for (keeps_secret, limit) in [(true, 3), (false, 60)] {
        let mut world = World::new(&camera, GATEWAY);
        let secret = || CrashSecret::new([7; 32]);
        world.sides[1].control.set_crash_secret(secret());
        world.run(Duration::from_secs(1));
        world.check_up();
        let start = world.start;
        let mut fresh = Side::new(GATEWAY, world.folder.path(), 1, start);
        if keeps_secret {
            fresh.control.set_crash_secret(secret());
        }
        world.sides[1] = fresh;
        // The camera is silent, and asks whether the gateway lives.
        world.run(Duration::from_secs(10));
        let began = world.elapsed;
        while world.status(1).sas.is_empty() && world.elapsed < began + Duration::from_secs(200) {
            world.run(Duration::from_millis(100));
        }
        let took = (world.elapsed - began).as_secs();
        assert_eq!(took <= limit, keeps_secret, "{took} s");
        world.check_up();
    }
}
