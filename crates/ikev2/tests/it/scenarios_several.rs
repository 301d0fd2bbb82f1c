//! The scenarios of replacing SAs with several key exchanges (RFC 9370), most of them by both sides at
//! once: CREATE_CHILD_SA and two IKE_FOLLOWUP_KE, of which the first carries ML-KEM-768.

use std::time::Duration;

use ikev2::crypto::Group;
use ikev2::wire::{ExchangeType, Notify, NotifyType, Payload};
use ikev2::{Connection, Limits};

use crate::peer::{Heard, HostilePeer};
use crate::rekey::{CloseIke, CreateChild, DeleteChild, RekeyChild, RekeyIke, deliver, start};
use crate::scenarios::{Mixed, SECOND, Scene, Three, closed, finish, late, same_or_none};
use crate::scenarios_child::{self, CHILD, no_child, settled};
use crate::scenarios_ike::{self, IKE};
use crate::support::{World, connection};

const CHILD_3: Scene = Scene {
    check: scenarios_child::once,
    ..CHILD.with(Three)
};
const IKE_3: Scene = IKE.with(Three);

#[test]
fn child_a_rekeys_and_b_answers() {
    CHILD_3.a_rekeys_and_b_answers();
}

#[test]
fn ike_a_rekeys_and_b_answers() {
    IKE_3.a_rekeys_and_b_answers();
}

#[test]
fn child_b_demands_another_group() {
    CHILD_3.b_demands_another_group();
}

#[test]
fn ike_b_demands_another_group() {
    IKE_3.b_demands_another_group();
}

#[test]
fn child_both_rekey() {
    CHILD.with(Three).both_rekey(settled);
}

#[test]
fn ike_both_rekey() {
    IKE_3.both_rekey(scenarios_ike::once);
}

#[test]
fn child_both_rekey_one_with_one_exchange() {
    CHILD.with(Mixed).both_rekey(settled);
    CHILD.with(Mixed).both_rekey_and_one_request_comes_late();
    let scene = CHILD.with(Mixed);
    scene.both_rekey_and_one_answer_comes_late(|_, _| (), settled);
}

#[test]
fn ike_both_rekey_one_with_one_exchange() {
    let scene = IKE.with(Mixed);
    scene.both_rekey(scenarios_ike::once);
    scene.both_rekey_and_one_request_comes_late();
    scene.both_rekey_and_one_answer_comes_late(|_, _| (), scenarios_ike::once);
}

#[test]
fn child_both_rekey_and_both_demand_another_group() {
    CHILD.with(Three).both_rekey_and_both_demand_another_group();
}

#[test]
fn ike_both_rekey_and_both_demand_another_group() {
    IKE_3.both_rekey_and_both_demand_another_group();
}

#[test]
fn child_both_rekey_and_one_answer_comes_late() {
    let scene = CHILD.with(Three);
    scene.both_rekey_and_one_answer_comes_late(|_, _| (), settled);
}

#[test]
fn ike_both_rekey_and_one_answer_comes_late() {
    IKE_3.both_rekey_and_one_answer_comes_late(|_, _| (), scenarios_ike::once);
}

#[test]
fn child_both_rekey_and_one_request_comes_late() {
    CHILD.with(Three).both_rekey_and_one_request_comes_late();
}

#[test]
fn ike_both_rekey_and_one_request_comes_late() {
    IKE_3.both_rekey_and_one_request_comes_late();
}

/// A follow-up of A, or the answer to it, stays away while `after` other datagrams go through.
fn one_followup_comes_late(scene: Scene, step: usize, check: fn(&World)) {
    for order in 0..4 {
        for after in 0..8 {
            scene.either(|mut world, a, b| {
                start(&mut world, a, scene.action);
                start(&mut world, b, scene.action);
                for to in [b, a, b, a].iter().cycle().take(step) {
                    if let Some(packet) = world.take(*to) {
                        world.deliver(&packet);
                    }
                }
                if let Some(held) = world.take(b) {
                    late(&mut world, &held, order, after);
                }
                finish(&mut world);
                check(&world);
            });
        }
    }
}

#[test]
fn child_both_rekey_and_a_followup_comes_late() {
    for step in 3..6 {
        one_followup_comes_late(CHILD.with(Three), step, settled);
    }
}

#[test]
fn ike_both_rekey_and_a_followup_comes_late() {
    for step in 3..6 {
        one_followup_comes_late(IKE_3, step, scenarios_ike::once);
    }
}

#[test]
fn child_a_rekeys_what_b_deletes() {
    let scene = CHILD.with(Three);
    // B's deletion comes before or between A's key exchanges.
    for passed in 0..6 {
        for order in 0..4 {
            scene.either(|mut world, a, b| {
                world.watch = false;
                start(&mut world, a, RekeyChild);
                for step in 0..passed {
                    world.pass(if step % 2 == 0 { b } else { a });
                }
                let old = world.sides[b].children()[0];
                let (now, ike) = (world.now, world.sides[b].ike());
                let endpoint = &mut world.sides[b].endpoint;
                endpoint.delete_child(now, ike, old).unwrap();
                world.collect();
                deliver(&mut world, order, 24);
                finish(&mut world);
                if passed < 5 {
                    no_child(&world);
                } else {
                    same_or_none(&world);
                }
            });
        }
    }
}

#[test]
fn ike_a_rekeys_what_b_closes() {
    for passed in 0..6 {
        for order in 0..4 {
            IKE_3.either(|mut world, a, b| {
                world.watch = false;
                start(&mut world, a, RekeyIke);
                for step in 0..passed {
                    world.pass(if step % 2 == 0 { b } else { a });
                }
                let ike = world.sides[b].endpoint.established().next().unwrap().0;
                let endpoint = &mut world.sides[b].endpoint;
                endpoint.close(world.now, ike).unwrap();
                world.collect();
                deliver(&mut world, order, 24);
                finish(&mut world);
                closed(&world);
            });
        }
    }
}

#[test]
fn one_side_rekeys_the_child_while_the_other_rekeys_the_ike_sa() {
    for scene in [CHILD.with(Three), IKE_3] {
        scene.in_any_order(
            |world, a, b| {
                start(world, a, RekeyChild);
                start(world, b, RekeyIke);
            },
            |world| {
                settled(world);
                for side in &world.sides {
                    assert_eq!(side.saw("ike rekeyed"), 1, "{:?}", side.log);
                    assert_eq!(side.saw("child up rekeyed"), 1, "{:?}", side.log);
                }
            },
        );
    }
}

fn hybrid(change: impl Fn(&mut Connection)) -> World {
    let mut connections = [connection(0), connection(1)];
    for connection in &mut connections {
        connection.ike[0].additional = vec![vec![Group::MlKem768]];
        connection.children[0].esp[0].additional = vec![vec![Group::MlKem768]];
        change(connection);
    }
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(SECOND);
    world.assert_settled();
    world.watch = true;
    world
}

#[test]
fn new_children_and_successors_have_keys_from_every_exchange() {
    let mut world = hybrid(|_| ());
    for action in [RekeyIke, RekeyChild, CreateChild] {
        // A further one is sent with before the other side has the answer.
        world.watch = action != CreateChild;
        for side in [0, 1] {
            let before = world.sizes.len();
            start(&mut world, side, action);
            world.run(SECOND);
            // ML-KEM's values are a kilobyte each, in fragments where they do not fit.
            let bytes: usize = world.sizes[before..].iter().sum();
            assert!(bytes > 2272, "{action:?} {bytes}");
            assert!(world.sizes.iter().all(|size| *size <= 1232));
        }
    }
    for side in &world.sides {
        assert_eq!(side.saw("ike rekeyed"), 2, "{:?}", side.log);
        assert_eq!(side.saw("child up rekeyed"), 2);
        assert_eq!(side.saw("child up new"), 3);
        assert_eq!(side.saw("failed"), 0);
    }
    // Both directions of all of them have the same keys at both ends.
    for up in world.sides[0].ups.values() {
        let other = &world.sides[1].ups[&up.spi_out];
        assert_eq!(*up.outbound.encryption, *other.inbound.encryption);
        assert_eq!(*up.inbound.encryption, *other.outbound.encryption);
    }
}

#[test]
fn a_peer_without_further_exchanges_does_not_lose_the_tunnel() {
    for plain in [0, 1] {
        for by in [0, 1] {
            let mut connections = [connection(0), connection(1)];
            connections[1 - plain].children[0].esp[0].additional = vec![vec![Group::MlKem768]];
            let mut world = World::with(connections, Limits::default(), 1);
            world.initiate();
            world.run(SECOND);
            world.watch = true;
            start(&mut world, by, RekeyChild);
            world.run(SECOND);
            scenarios_child::once(&world);
        }
    }
}

#[test]
fn what_the_peer_does_not_finish_is_forgotten_and_done_by_us() {
    for action in [RekeyChild, RekeyIke] {
        let mut world = hybrid(|_| ());
        world.manual = true;
        start(&mut world, 0, action);
        world.pass(1);
        let answer = world.take(0).unwrap();
        // Side 1 waits with its own until side 0 has had its chance.
        start(&mut world, 1, action);
        assert!(world.take(0).is_none());
        world.run(Duration::from_secs(59));
        world.wire.clear();
        assert_eq!(world.sides[1].saw("rekeyed"), 0);
        world.run(Duration::from_secs(2));
        assert!(world.take(0).is_some(), "side 1 has started");
        // Too late: side 0 hears that its link is not known, or is beaten by side 1.
        world.deliver(&answer);
        finish(&mut world);
        settled(&world);
        let done = world.sides[1].saw("child up rekeyed") + world.sides[1].saw("ike rekeyed");
        assert_eq!(done, 1, "{:?}", world.sides[1].log);
    }
}

#[test]
fn links_that_nobody_gave_are_not_known() {
    let mut peer = HostilePeer::new(true);
    let unknown = |link: &[u8]| {
        let notify = Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE).with_data(link);
        vec![Payload::Notify(notify)]
    };
    for request in [vec![], unknown(b""), unknown(b"12345678")] {
        let heard = peer.request(ExchangeType::IKE_FOLLOWUP_KE, &request);
        let notify = Payload::Notify(Notify::new(NotifyType::STATE_NOT_FOUND));
        assert_eq!(heard[0].payloads, [notify]);
    }
    assert_eq!(peer.endpoint.established().count(), 1);
}

#[test]
fn closing_in_the_middle_leaves_nothing_behind() {
    for passed in 1..6 {
        let mut world = hybrid(|_| ());
        world.watch = false;
        world.manual = true;
        start(&mut world, 0, RekeyChild);
        for step in 0..passed {
            if let Some(packet) = world.take(1 - step % 2) {
                world.deliver(&packet);
            }
        }
        start(&mut world, 1, CloseIke);
        finish(&mut world);
        closed(&world);
    }
}

#[test]
fn a_deleted_child_is_not_brought_back_by_the_rest_of_its_rekeying() {
    let mut world = hybrid(|_| ());
    world.watch = false;
    world.manual = true;
    start(&mut world, 0, RekeyChild);
    world.pass(1);
    world.pass(0);
    start(&mut world, 1, DeleteChild);
    finish(&mut world);
    no_child(&world);
    assert!(world.sides.iter().all(|side| side.saw("child up") == 1));
}

const FOLLOWUP: ExchangeType = ExchangeType::IKE_FOLLOWUP_KE;

fn errors(heard: &[Heard]) -> Vec<NotifyType> {
    let payloads = heard.iter().flat_map(|heard| &heard.payloads);
    let kinds = payloads.filter_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind.is_error() => Some(notify.kind),
        _ => None,
    });
    kinds.collect()
}

/// Child SAs of the endpoint after each of these follow-ups, and what it answered with last.
fn follow(peer: &mut HostilePeer, groups: &[Group]) -> (Vec<usize>, Vec<NotifyType>) {
    let (mut counts, mut last) = (Vec::new(), Vec::new());
    for group in groups {
        let request = peer.followup(*group);
        last = errors(&peer.request(FOLLOWUP, &request));
        counts.push(peer.endpoint.established().map(|(_, c)| c.len()).sum());
    }
    (counts, last)
}

#[test]
fn a_promise_is_kept_once_and_in_order() {
    let create = ExchangeType::CREATE_CHILD_SA;
    let begun = || {
        let mut peer = HostilePeer::new(true);
        let request = peer.several_child_request(None, 0x2000);
        assert!(errors(&peer.request(create, &request)).is_empty());
        peer
    };
    // In order: there is a second Child SA after the last, and nothing left to follow.
    let (counts, last) = follow(&mut begun(), &[Group::P256, Group::P384, Group::P384]);
    assert_eq!(counts, [1, 2, 2]);
    assert_eq!(last, [NotifyType::STATE_NOT_FOUND]);
    // Another group than agreed ends it.
    for wrong in [Group::P384, Group::X25519] {
        let (counts, last) = follow(&mut begun(), &[wrong]);
        assert_eq!((counts, last), (vec![1], vec![NotifyType::INVALID_SYNTAX]));
        let mut peer = begun();
        follow(&mut peer, &[wrong]);
        let (_, last) = follow(&mut peer, &[Group::P256]);
        assert_eq!(last, [NotifyType::STATE_NOT_FOUND]);
    }
    // The link of an earlier step, and of a request that another has replaced.
    let mut peer = begun();
    let old = peer.link.clone();
    follow(&mut peer, &[Group::P256]);
    let new = std::mem::replace(&mut peer.link, old.clone());
    assert_eq!(
        follow(&mut peer, &[Group::P384]).1,
        [NotifyType::STATE_NOT_FOUND]
    );
    peer.link = new;
    assert_eq!(follow(&mut peer, &[Group::P384]).0, [2]);
    let mut peer = begun();
    let request = peer.several_child_request(None, 0x2001);
    peer.request(create, &request);
    peer.link = old;
    assert_eq!(
        follow(&mut peer, &[Group::P256]).1,
        [NotifyType::STATE_NOT_FOUND]
    );
}

#[test]
fn an_spi_in_use_is_refused() {
    let mut peer = HostilePeer::new(true);
    let request = peer.several_child_request(None, 0x1000);
    let no = [NotifyType::NO_PROPOSAL_CHOSEN];
    assert_eq!(
        errors(&peer.request(ExchangeType::CREATE_CHILD_SA, &request)),
        no
    );
    assert_eq!(
        peer.endpoint
            .established()
            .map(|(_, c)| c.len())
            .sum::<usize>(),
        1
    );
}

#[test]
fn a_promised_ike_sa_is_made_after_the_last_exchange() {
    let mut peer = HostilePeer::new(true);
    let old = peer.endpoint.established().next().unwrap().0;
    let request = peer.several_ike_request();
    peer.request(ExchangeType::CREATE_CHILD_SA, &request);
    follow(&mut peer, &[Group::P256]);
    assert_eq!(peer.endpoint.established().next().unwrap().0, old);
    follow(&mut peer, &[Group::P384]);
    assert_ne!(peer.endpoint.established().next().unwrap().0, old);
}
