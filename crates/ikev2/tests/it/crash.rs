//! A responder that has lost its IKE SAs shows that it has (RFC 6290).

use std::time::Duration;

use ikev2::wire::{Datagram, Notify, NotifyType, Payload, encode_clear};
use ikev2::{CrashSecret, Limits};

use crate::support::{World, connection};

const DOWN: &str = "down the peer has crashed and started anew";

fn secret() -> CrashSecret {
    CrashSecret::new([7; 32])
}

fn up() -> World {
    let mut world = World::new(1);
    world.sides[1].endpoint.set_crash_secret(secret());
    world.initiate();
    world.run(Duration::from_secs(1));
    world.assert_up();
    world
}

fn probe(world: &mut World) {
    let (ike, now) = (world.sides[0].ike(), world.now);
    world.sides[0].endpoint.probe(now, ike).unwrap();
    world.collect();
    world.run(Duration::from_millis(500));
}

/// The Child SA and the IKE SA.
fn is_down(world: &World) -> bool {
    world.sides[0].saw(DOWN) == 2
}

fn crash(world: &mut World, keeps_secret: bool) {
    world.restart(1, connection(1), Limits::default(), 99);
    if keeps_secret {
        world.sides[1].endpoint.set_crash_secret(secret());
    }
}

#[test]
fn a_restarted_responder_is_noticed_at_the_first_message() {
    let mut world = up();
    crash(&mut world, true);
    probe(&mut world);
    assert!(is_down(&world), "{:#?}", world.sides[0].log);
    world.initiate();
    world.run(Duration::from_secs(1));
    world.assert_settled();
}

#[test]
fn after_new_keys_by_either_side_the_token_is_that_of_the_successor() {
    for sides in [vec![0], vec![1], vec![0, 1, 1, 0]] {
        let mut world = up();
        for side in &sides {
            let (ike, now) = (world.sides[*side].ike(), world.now);
            world.sides[*side].endpoint.rekey_ike(now, ike).unwrap();
            world.collect();
            world.run(Duration::from_secs(2));
        }
        crash(&mut world, true);
        probe(&mut world);
        assert!(is_down(&world), "{sides:?}");
    }
}

#[test]
fn nobody_without_the_secret_ends_an_ike_sa() {
    let mut world = up();
    crash(&mut world, false);
    probe(&mut world);
    assert_eq!(world.sides[0].saw(DOWN), 0);
    assert_eq!(world.sides[0].endpoint.established().count(), 1);
    // Another token, and one of another IKE SA, do nothing either, to a responder that lives or not.
    let mut world = up();
    world.manual = true;
    let (ike, now) = (world.sides[0].ike(), world.now);
    world.sides[0].endpoint.probe(now, ike).unwrap();
    world.collect();
    let request = world.take(1).unwrap();
    let mut header = Datagram::parse(
        request
            .payload
            .strip_prefix(&[0; 4])
            .unwrap_or(&request.payload),
    )
    .unwrap()
    .header;
    header.flags.response = true;
    header.flags.initiator = false;
    for data in [vec![], vec![0; 16], vec![0; 32], vec![0; 200]] {
        let token = Notify::new(NotifyType::QUICK_CRASH_DETECTION).with_data(data);
        let gone = Notify::new(NotifyType::INVALID_IKE_SPI);
        let forged = encode_clear(header, &[Payload::Notify(token), Payload::Notify(gone)]);
        let (now, from, at) = (world.now, request.at, request.from);
        world.sides[0]
            .endpoint
            .handle_datagram(now, at, from, &forged);
        world.collect();
    }
    assert_eq!(world.sides[0].saw(DOWN), 0);
    assert_eq!(world.sides[0].endpoint.established().count(), 1);
}

#[test]
fn a_responder_that_lives_gives_no_token_away() {
    let mut world = up();
    world.manual = true;
    let (ike, now) = (world.sides[0].ike(), world.now);
    world.sides[0].endpoint.probe(now, ike).unwrap();
    world.collect();
    // Whatever is changed in a message for an IKE SA that there is, its token does not come.
    let request = world.take(1).unwrap();
    for at in 18..request.payload.len() {
        let mut changed = request.clone();
        changed.payload[at] ^= 1;
        world.deliver(&changed);
        while let Some(answer) = world.take(0) {
            let bytes = answer
                .payload
                .strip_prefix(&[0; 4])
                .unwrap_or(&answer.payload);
            let answer = Datagram::parse(bytes).unwrap();
            assert!(answer.clear.is_empty(), "byte {at}: {:?}", answer.clear);
        }
    }
}
