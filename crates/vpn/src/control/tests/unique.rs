//! One IKE SA with each peer, whoever starts.

use std::time::Duration;

use super::*;

/// The gateway starts as well.
fn starting_gateway() -> String {
    GATEWAY.replace(
        "psk_file",
        "remote = \"192.0.2.7\"\nstart = \"start\"\npsk_file",
    )
}

fn established(world: &mut World) -> [u64; 2] {
    [0, 1].map(|at| world.status(at).counters.established)
}

#[test]
fn both_sides_start_and_one_ike_sa_stays() {
    let mut world = World::new(CAMERA, &starting_gateway());
    world.run(Duration::from_secs(30));
    world.check_up();
    let before = established(&mut world);
    assert!(before.iter().all(|count| *count <= 2), "{before:?}");
    world.run(Duration::from_secs(600));
    world.check_up();
    assert_eq!(established(&mut world), before, "nobody starts again");
}

#[test]
fn side_that_lost_the_tie_holds_the_other_one_for_its_own() {
    let mut world = World::new(CAMERA, &starting_gateway());
    world.run(Duration::from_secs(30));
    world.cut = true;
    world.run(Duration::from_secs(300));
    assert!([0, 1].iter().all(|at| world.status(*at).sas.is_empty()));
    world.cut = false;
    world.run(Duration::from_secs(130));
    world.check_up();
}

#[test]
fn tunnel_of_the_peer_is_adopted_instead_of_another_start() {
    let mut world = World::new(CAMERA, &starting_gateway());
    // Ours are lost on the way, and the next one is a second away.
    let now = world.now();
    world.sides[0].control.tick(now);
    while world.sides[0].control.poll_transmit().is_some() {}
    world.run(Duration::from_secs(90));
    world.check_up();
    for at in [0, 1] {
        assert!(world.status(at).counters.established <= 2, "side {at}");
    }
}

#[test]
fn both_sides_restart_at_once_and_one_ike_sa_stays() {
    let gateway = starting_gateway();
    let mut world = World::new(CAMERA, &gateway);
    world.run(Duration::from_secs(30));
    for pause in [0, 300, 1000, 2500] {
        // Neither knows anything of the other, and what was on its way is lost.
        let (start, seed) = (world.start, 100 + pause);
        world.sides[0] = Side::with_seed(CAMERA, world.folder.path(), 0, seed, start);
        world.run(Duration::from_millis(pause));
        world.sides[1] = Side::with_seed(&gateway, world.folder.path(), 1, seed + 1, start);
        world.run(Duration::from_secs(30));
        world.check_up();
        let before = established(&mut world);
        assert!(before.iter().all(|count| *count <= 3), "{before:?}");
        world.run(Duration::from_secs(300));
        world.check_up();
        assert_eq!(established(&mut world), before, "nobody starts again");
    }
}

#[test]
fn both_start_and_either_may_close_and_open() {
    let mut world = World::new(CAMERA, &starting_gateway());
    world.run(Duration::from_secs(30));
    for (at, name) in [(0, "headquarters"), (1, "cameras")] {
        world.command(at, Command::Down(name.into()));
        // The other side wants it, and this one lets it.
        world.run(Duration::from_secs(30));
        world.check_up();
        world.command(at, Command::Connect(name.into()));
        world.run(Duration::from_secs(30));
        world.check_up();
    }
}

#[test]
fn second_child_comes_once_though_both_sides_want_it() {
    let second = |local: &str, remote: &str| {
        format!(
            "[[connection.child]]\nname = \"more\"\nlocal = [\"{local}\"]\nremote = [\"{remote}\"]\n"
        )
    };
    let camera = CAMERA.to_owned() + &second("10.7.1.0/24", "10.7.2.0/24");
    let gateway = starting_gateway() + &second("10.7.2.0/24", "10.7.1.0/24");
    let mut world = World::new(&camera, &gateway);
    world.run(Duration::from_secs(60));
    for at in [0, 1] {
        let status = world.status(at);
        assert_eq!(status.sas.len(), 1, "side {at}");
        let mut names: Vec<_> = status.sas[0]
            .children
            .iter()
            .map(|child| &child.name)
            .collect();
        names.sort();
        assert_eq!(names, ["more", "net"], "side {at}");
    }
}

#[test]
fn peer_that_authenticates_anew_leaves_one_tunnel() {
    let mut world = World::new(CAMERA, GATEWAY);
    world.run(Duration::from_secs(1));
    let now = world.now();
    let spis = world.status(1).sas[0].children[0].spi_in.clone();
    let control = &mut world.sides[0].control;
    control.desired.get_mut("headquarters").unwrap().ike = None;
    control.start("headquarters", now);
    world.run(Duration::from_secs(5));
    world.check_up();
    assert_ne!(world.status(1).sas[0].children[0].spi_in, spis);
    assert_eq!(established(&mut world), [2, 2]);
    for side in &world.sides {
        // What was on its way with the former keys was still taken.
        assert_eq!(side.done.removed.len(), 1);
        assert_eq!(side.done.removed[0].1, Duration::from_secs(5));
    }
}

#[test]
fn never_lets_a_peer_have_several() {
    let never = |text: &str| text.replace("psk_file", "unique = \"never\"\npsk_file");
    let mut world = World::new(&never(CAMERA), &never(&starting_gateway()));
    world.run(Duration::from_secs(60));
    assert_eq!([0, 1].map(|at| world.status(at).sas.len()), [2, 2]);
}

#[test]
fn unknown_policy_is_refused() {
    let text = CAMERA.replace("psk_file", "unique = \"no\"\npsk_file");
    let folder = tempfile::tempdir().unwrap();
    let read = ResolvedConfig::read(&text, folder.path(), &KeyHost::in_thread().unwrap());
    let error = read.err().expect("refused").to_string();
    assert!(error.contains("replace"), "{error}");
}
