//! Two daemons' decisions in virtual time, with nothing but a function between them.

mod certificates;
mod explained;
mod proofs;
mod resumption;
mod unique;
mod world;

use std::time::Duration;

use keyhost::KeyHost;

use super::*;
use crate::command::{Command, Reply};
use crate::resolve::ResolvedConfig;
use world::{CAMERA, GATEWAY, Side, World};

#[test]
fn tunnel_comes_up_rekeys_and_ends() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    world.check_up();
    assert_eq!(
        world.sides[0].done.actions(),
        ["tunnel.up", "tunnel.child-up"]
    );
    let first = LinkCommand::AddRoute(route("10.5.2.0/24"));
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
        assert_eq!(drains.len() + 1, side.done.installed.lock().unwrap().len());
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
    let gone = LinkCommand::RemoveRoute(route("10.5.1.0/24"));
    assert!(world.sides[1].done.links.contains(&gone));
}

#[test]
fn silent_peer_is_retried_with_longer_pauses() {
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
fn lost_peer_is_noticed_and_reconnected() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    world.cut = true;
    world.run(Duration::from_secs(200));
    assert_eq!(world.status(0).sas.len(), 0);
    // Routes stay, so that nothing goes in the clear meanwhile.
    let gone = LinkCommand::RemoveRoute(route("10.5.2.0/24"));
    assert!(!world.sides[0].done.links.contains(&gone));
    world.cut = false;
    world.run(Duration::from_secs(100));
    world.check_up();
}

#[test]
fn connection_closed_by_command_stays_closed() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    let reply = world.command(0, Command::Down("headquarters".into()));
    assert!(matches!(reply, Reply::Closing(1)));
    world.run(Duration::from_secs(600));
    let status = world.status(0);
    assert_eq!(
        (status.sas.len(), status.connections[0].state.as_str()),
        (0, "down")
    );
    let reply = world.command(0, Command::Connect("headquarters".into()));
    assert!(matches!(reply, Reply::Connecting));
    world.run(Duration::from_secs(1));
    world.check_up();
    let reply = world.command(0, Command::Down("nobody".into()));
    assert!(matches!(reply, Reply::Refused(why) if why.contains("nobody")));
}

#[test]
fn connection_closed_by_the_peer_is_started_again() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    world.command(1, Command::Down("cameras".into()));
    world.run(Duration::from_secs(5));
    world.check_up();
    assert_eq!(world.status(0).counters.established, 2);
}

#[test]
fn reload_changes_only_changed_connections() {
    let second = CAMERA.split_once("[[connection]]").unwrap().1;
    let second = second
        .replace("headquarters", "second")
        .replace("\"start\"", "\"none\"");
    let both = format!("{CAMERA}[[connection]]{second}");
    let mut world = World::new(&both, GATEWAY);
    world.run(Duration::from_secs(1));
    let spi = world.status(0).sas[0].spi.clone();
    let reload = |world: &mut World, text: &str| {
        let loaded =
            ResolvedConfig::read(text, world.folder.path(), &KeyHost::in_thread().unwrap())
                .unwrap();
        match world.command(0, Command::Reload(Box::new(loaded))) {
            Reply::Reloaded {
                added,
                changed,
                removed,
                ..
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
fn refusal_is_explained_on_both_sides() {
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

/// The gateway's only proposal for keys of Child SAs, as peers of other make may have it.
fn insist(world: &mut World, additional: Vec<Vec<ikev2::crypto::Group>>) {
    let control = &mut world.sides[1].control;
    let mut connection = control.connections[0].connection.clone();
    let esp = &mut connection.children[0].esp;
    esp.truncate(1);
    esp[0].additional = additional;
    esp[0].without_group = false;
    control.endpoint.add_connection(connection);
}

#[test]
fn peer_that_insists_on_ml_kem_replaces_keys() {
    let mut world = World::new(CAMERA, GATEWAY);
    insist(&mut world, vec![vec![ikev2::crypto::Group::MlKem768]]);
    world.run(Duration::from_secs(700));
    world.check_up();
    let counters = world.status(0).counters;
    assert!(counters.child_rekeys >= 10, "{counters:?}");
    assert_eq!(world.reasons(0), Vec::<String>::new());
}

#[test]
fn refused_new_keys_end_the_traffic_when_it_was_said() {
    let esp = "esp = [{ encryption = [\"aes-128-gcm\"], groups = [\"modp2048\"] }]\n";
    let gateway = GATEWAY.to_owned() + esp;
    let camera = CAMERA.to_owned() + &esp.replace("modp2048", "p384");
    let mut world = World::new(&camera, &gateway);
    insist(&mut world, vec![]);
    let camera_too = &mut world.sides[0].control;
    let mut connection = camera_too.connections[0].connection.clone();
    connection.children[0].esp[0].without_group = false;
    camera_too.endpoint.add_connection(connection);
    world.run(Duration::from_secs(59));
    world.check_up();
    let spi = world.sides[0].control.children.keys().next().copied();
    let spi = spi.expect("a Child SA");
    assert!(
        world.sides[0].control.children[&spi].ending,
        "said at the first refusal"
    );
    // The packet path holds the limit that was said.
    world.run(Duration::from_secs(100));
    assert!(world.sides[0].control.children.contains_key(&spi));
}

#[test]
fn strangers_failures_are_rate_limited_in_log_and_journal() {
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
            .message(Path::udp(first.remote, sender), &first.payload, now);
    }
    world.exchange();
    let refused = world.sides[1].done.actions();
    assert_eq!(refused.len(), usize::try_from(LOGGED_PER_SECOND).unwrap());
    assert_eq!(world.status(1).counters.failed_proposal, 199);
    assert_eq!(world.reasons(1).len(), EXPLANATIONS);
}

#[test]
fn new_local_address_moves_the_tunnel() {
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
fn ike_sa_without_its_child_is_where_it_is_and_stays() {
    for mobike in [true, false] {
        let camera = CAMERA.replace("start = ", &format!("mobike = {mobike}\nstart = "));
        let gateway = GATEWAY.replace("10.5.2.0/24", "10.6.2.0/24");
        let mut world = World::new(&camera, &gateway);
        world.run(Duration::from_secs(60));
        for (at, local) in [(0, "192.0.2.7"), (1, "192.0.2.1")] {
            let status = world.status(at);
            let counters = status.counters;
            assert_eq!((counters.established, counters.moves), (1, 0), "{mobike}");
            assert!(
                status.sas[0].local.starts_with(local),
                "{}",
                status.sas[0].local
            );
        }
    }
}

#[test]
fn new_local_address_without_mobike_makes_a_new_tunnel() {
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

#[test]
fn rekey_by_command_replaces_every_key_once() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    for at in [0, 1] {
        let before = world.status(at).counters;
        let name = world.status(at).connections[0].name.clone();
        let reply = world.command(at, Command::Rekey(name));
        let expected = Reply::Rekeying {
            ike_sas: 1,
            children: 1,
        };
        assert_eq!(format!("{reply:?}"), format!("{expected:?}"));
        world.run(Duration::from_secs(2));
        world.check_up();
        let after = world.status(at).counters;
        assert_eq!(
            (after.child_rekeys, after.ike_rekeys, after.established),
            (
                before.child_rekeys + 1,
                before.ike_rekeys + 1,
                before.established
            )
        );
    }
    let unknown = world.command(0, Command::Rekey("nobody".into()));
    assert!(matches!(unknown, Reply::Refused(_)));
}

#[test]
fn reauthentication_by_command_is_for_whoever_started() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    let name = world.status(0).connections[0].name.clone();
    let reply = world.command(0, Command::Reauthenticate(name.clone()));
    assert!(matches!(reply, Reply::Connecting), "{reply:?}");
    world.run(Duration::from_secs(8));
    world.check_up();
    assert_eq!(world.status(0).counters.established, 2);
    let theirs = world.status(1).connections[0].name.clone();
    let reply = world.command(1, Command::Reauthenticate(theirs));
    let Reply::Refused(why) = reply else {
        panic!("{reply:?}");
    };
    assert!(why.contains("started by the peer"), "{why}");
    // What the operator has closed is neither rekeyed nor authenticated anew.
    world.command(0, Command::Down(name.clone()));
    world.run(Duration::from_secs(1));
    for command in [Command::Rekey(name.clone()), Command::Reauthenticate(name)] {
        let reply = world.command(0, command);
        assert!(
            matches!(&reply, Reply::Refused(why) if why.contains("not up")),
            "{reply:?}"
        );
    }
}

fn route(text: &str) -> Route {
    Route::configured(text.parse().unwrap())
}

fn routes(side: &Side) -> Vec<LinkCommand> {
    let commands = side.done.links.iter().copied();
    commands
        .filter(|command| matches!(command, LinkCommand::AddRoute(_)))
        .collect()
}

#[test]
fn pool_peer_without_request_gets_no_child_and_no_route() {
    for wanted in ["10.9.0.3/32", "8.8.8.0/24", "192.0.2.7/32", "0.0.0.0/0"] {
        let camera = CAMERA.replace("10.5.1.0/24", wanted);
        let mut world = World::new(&camera, POOL);
        // It goes on asking, by CREATE_CHILD_SA.
        world.run(Duration::from_secs(60));
        let status = world.status(1);
        assert_eq!(status.sas.len(), 1, "{wanted}");
        assert!(status.sas[0].children.is_empty(), "{wanted}");
        assert!(
            world.sides[1].done.installed.lock().unwrap().is_empty(),
            "{wanted}"
        );
        assert!(routes(&world.sides[1]).is_empty(), "{wanted}");
        assert!(world.reasons(1).len() > 2, "{wanted}");
    }
}

#[test]
fn pool_peer_gets_its_address_and_a_route() {
    let camera = CAMERA.replace("start = ", "request = [\"ipv4\"]\nstart = ");
    let camera = camera.replace("local = [\"10.5.1.0/24\"]\n", "");
    let mut world = World::new(&camera, POOL);
    world.run(Duration::from_secs(700));
    world.check_up();
    // Not the gateway's own; the first that is free.
    let address = LinkCommand::AddRoute(route("10.9.0.2/32"));
    assert_eq!(routes(&world.sides[1]), [address]);
    let child = world.status(1).sas[0].children[0].clone();
    assert_eq!(child.remote, "10.9.0.2/32");
    assert!(world.status(1).counters.child_rekeys >= 10);
    assert_eq!(world.status(0).sas[0].addresses, ["10.9.0.2"]);
}

#[test]
fn networks_of_the_host_or_other_peers_are_not_routed_to_a_peer() {
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
            .filter(|event| event.action.action() == "tunnel.child-refuse");
        let why: Vec<_> = why.filter_map(|event| event.reason.clone()).collect();
        assert!(
            why.iter().any(|why| why.contains(reason)),
            "{network}: {why:?}"
        );
        assert!(world.status(1).sas[0].children.is_empty(), "{network}");
    }
}

#[test]
fn peer_moving_into_a_tunnelled_network_is_closed() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    let inside: IpAddr = "10.5.1.9".parse().unwrap();
    world.sides[0].control.source_of = Box::new(move |_| Some(inside));
    world.run(Duration::from_secs(3));
    let actions = world.sides[1].done.actions();
    assert!(actions.contains(&"tunnel.revoke"), "{actions:?}");
}
