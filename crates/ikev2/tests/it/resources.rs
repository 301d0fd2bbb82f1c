//! Several Child SAs for the same traffic, each for a resource of its own (RFC 9611).

use std::time::Duration;

use ikev2::wire::{ExchangeType, Notify, NotifyType, Payload};
use ikev2::{Authorization, Connection, Event, Holder, Limits};

use crate::peer::{self, Heard, HostilePeer, unlimited};
use crate::support::{Clock, World, connection};

const SECOND: Duration = Duration::from_secs(1);

fn limits(resources: usize) -> Limits {
    Limits {
        resources,
        ..Limits::default()
    }
}

/// A world whose sides have so many resources, with the tunnel up.
fn up_with(connections: [Connection; 2], resources: [usize; 2], seed: u64) -> World {
    let clocks = [Clock::default(); 2];
    let mut world = World::with_clocks(connections, resources.map(limits), seed, clocks);
    world.initiate();
    world.run(5 * SECOND);
    world.watch = true;
    world
}

fn up(resources: [usize; 2], seed: u64) -> World {
    up_with([connection(0), connection(1)], resources, seed)
}

#[test]
fn there_is_a_child_sa_for_each_resource_of_the_side_with_fewer() {
    for one in 1..=5 {
        for two in 1..=5 {
            let world = up([one, two], 1);
            // One Child SA for each, on both sides at different places.
            world.assert_settled();
            for side in &world.sides {
                assert_eq!(side.saw("failed"), 0, "{:?}", side.log);
                let ups: Vec<_> = side.ups.values().collect();
                let same = |up: &&ikev2::event::ChildUp| {
                    (&up.local, &up.remote) == (&ups[0].local, &ups[0].remote)
                };
                assert!(ups.iter().all(same), "all for the same traffic");
                let first = ups.iter().filter(|up| up.beside.is_none());
                assert_eq!(first.count(), 1, "all others are beside it");
                // Each sends from all of its resources, at least once the other side has shown that it has them.
                assert_eq!(side.outbounds().len(), one.min(two));
            }
        }
    }
}

#[test]
fn there_are_sixteen_at_most() {
    for resources in [16, 17, 64, usize::MAX] {
        let world = up([resources, 64], 1);
        assert_eq!(world.sides[0].children().len(), 16, "{resources} resources");
    }
}

#[test]
fn a_single_resource_is_not_spoken_of() {
    for resources in [[1, 4], [4, 1], [1, 1]] {
        let world = up(resources, 2);
        world.assert_settled();
        for side in &world.sides {
            assert_eq!(side.saw("child up"), 1);
            assert_eq!(side.saw("failed"), 0);
        }
    }
}

#[test]
fn each_is_rekeyed_by_either_side_and_stays_at_its_place() {
    let mut world = up([3, 3], 4);
    for round in 0..12 {
        let side = round % 2;
        let own = &mut world.sides[side];
        let (ike, old) = (own.ike(), own.children()[round % 3]);
        own.endpoint.rekey_child(world.now, ike, old).unwrap();
        world.collect();
        world.run(2 * SECOND);
        world.assert_settled();
        let new = world.sides[side].ups.values();
        let new: Vec<_> = new.filter(|up| up.replaces == Some(old)).collect();
        assert_eq!(new.len(), 1);
        assert_eq!(new[0].spi_in % 3, old % 3, "the same resource");
        assert_eq!(world.sides[side].outbounds().len(), 3);
        let at_peer = &world.sides[1 - side].ups[&new[0].spi_out];
        let replaced = at_peer.replaces.unwrap();
        assert_eq!(at_peer.spi_in % 3, replaced % 3, "and at the peer");
    }
}

#[test]
fn all_are_rekeyed_by_both_sides_at_once() {
    for seed in 0..20 {
        let mut world = up([4, 4], seed);
        world.weather.jitter = 300;
        for side in [0, 1] {
            let own = &mut world.sides[side];
            let ike = own.ike();
            for child in own.children() {
                own.endpoint.rekey_child(world.now, ike, child).unwrap();
            }
        }
        world.collect();
        world.run(40 * SECOND);
        world.assert_settled();
    }
}

#[test]
fn an_ike_sa_that_is_replaced_keeps_all_and_asks_once_more() {
    for rekeys in [0, 1] {
        let mut world = up([4, 2], 5);
        assert_eq!(world.sides[0].children().len(), 2);
        let before = world.sides[1].saw("child up");
        let ike = world.sides[rekeys].ike();
        let now = world.now;
        world.sides[rekeys].endpoint.rekey_ike(now, ike).unwrap();
        world.collect();
        world.run(5 * SECOND);
        world.assert_settled();
        assert_eq!(world.sides[1].saw("child up"), before, "refused once more");
    }
}

#[test]
fn one_that_the_peer_deletes_is_not_made_again_before_the_ike_sa_is_replaced() {
    let mut world = up([3, 3], 6);
    // Who deletes one sends with it until the other side has heard of it.
    world.watch = false;
    let ike = world.sides[1].ike();
    let spi = world.sides[1].children()[2];
    let now = world.now;
    world.sides[1].endpoint.delete_child(now, ike, spi).unwrap();
    world.collect();
    world.run(60 * SECOND);
    assert_eq!(world.sides[0].children().len(), 2);
    world.check();
    let ike = world.sides[1].ike();
    let now = world.now;
    world.sides[1].endpoint.rekey_ike(now, ike).unwrap();
    world.collect();
    world.run(5 * SECOND);
    world.assert_settled();
}

#[test]
fn one_that_we_delete_is_not_made_again() {
    for index in 0..3 {
        let mut world = up([3, 3], 7);
        world.watch = false;
        let ike = world.sides[0].ike();
        let spi = world.sides[0].children()[index];
        let now = world.now;
        world.sides[0].endpoint.delete_child(now, ike, spi).unwrap();
        world.collect();
        world.run(SECOND);
        assert_eq!(world.sides[0].children().len(), 2);
        assert_eq!(world.sides[1].children().len(), 2);
        world.run(60 * SECOND);
        assert_eq!(world.sides[0].children().len(), 2);
    }
}

#[test]
fn a_lossy_network_only_delays() {
    for seed in 0..40 {
        let clocks = [Clock::default(); 2];
        let connections = [connection(0), connection(1)];
        let resources = [1 + seed as usize % 4, 1 + seed as usize / 4 % 4];
        let mut world = World::with_clocks(connections, resources.map(limits), seed, clocks);
        world.weather.loss = 20;
        world.weather.duplication = 20;
        world.weather.jitter = 500;
        world.initiate();
        world.run(120 * SECOND);
        world.weather.loss = 0;
        world.run(60 * SECOND);
        world.assert_settled();
    }
}

#[test]
fn further_key_exchanges_and_disagreeing_groups_make_no_difference() {
    use ikev2::crypto::Group;
    let several = |connection: &mut Connection| {
        let esp = &mut connection.children[0].esp[0];
        esp.additional = vec![vec![Group::MlKem768], vec![Group::P256]];
        esp.without_group = false;
    };
    let mut connections = [connection(0), connection(1)];
    connections.iter_mut().for_each(several);
    up_with(connections, [3, 3], 8).assert_settled();
    let mut connections = [connection(0), connection(1)];
    for (connection, groups) in connections
        .iter_mut()
        .zip([[Group::X25519, Group::P384], [Group::P384, Group::X25519]])
    {
        connection.children[0].esp[0].without_group = false;
        connection.children[0].esp[0].groups = groups.to_vec();
    }
    up_with(connections, [3, 3], 9).assert_settled();
}

/// The responder's half is there before the initiator has the response: until then nothing is sent with it.
#[test]
fn the_responder_sends_with_one_that_the_peer_has_shown_to_have() {
    let mut world = up([1, 1], 10);
    for side in [0, 1] {
        let (connection, seed) = (connection(side), 11 + side as u64);
        world.restart(side, connection, limits(2), seed);
    }
    world.watch = false;
    world.initiate();
    world.manual = true;
    // IKE_SA_INIT and IKE_AUTH in both directions, the request for a further one.
    for to in [1, 0, 1, 0, 1] {
        world.pass(to);
    }
    assert_eq!(world.sides[1].children().len(), 2);
    assert_eq!(world.sides[1].outbounds().len(), 1);
    world.watch = true;
    world.collect();
    world.pass(0);
    assert_eq!(world.sides[0].outbounds().len(), 2);
    assert_eq!(world.sides[1].outbounds().len(), 1);
    // An empty request shows that the response is there.
    world.pass(1);
    assert_eq!(world.sides[1].outbounds().len(), 2);
    world.pass(0);
    assert!(world.wire.is_empty(), "nothing more is said");
}

fn notifies(heard: &[Heard]) -> Vec<NotifyType> {
    let payloads = heard.iter().flat_map(|heard| &heard.payloads);
    let kinds = payloads.filter_map(|payload| match payload {
        Payload::Notify(notify) => Some(notify.kind),
        _ => None,
    });
    kinds.collect()
}

fn info(data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(NotifyType::SA_RESOURCE_INFO).with_data(data))
}

/// A peer that may have so many Child SAs, towards an endpoint with so many resources.
fn hostile(resources: usize, children: usize) -> HostilePeer {
    let connection = peer::connection();
    let may = Authorization::of_connection(&connection, Holder::new(b"peer"))
        .with_limits(children, 1000)
        .with_rates(unlimited());
    let mut peer = HostilePeer::towards(connection, may, limits(resources));
    let heard = peer.authenticate_with(&[
        HostilePeer::child_proposal(0x1000),
        Payload::TsI(vec![peer::network([10, 1, 0, 0])]),
        Payload::TsR(vec![peer::network([10, 2, 0, 0])]),
        info(&[]),
    ]);
    let agrees = notifies(&heard).contains(&NotifyType::SA_RESOURCE_INFO);
    assert_eq!(agrees, resources > 1);
    peer
}

fn children_of(peer: &HostilePeer) -> usize {
    peer.endpoint.established().flat_map(|(_, c)| c).count()
}

#[test]
fn one_more_than_there_are_resources_is_refused_with_ts_max_queue() {
    for resources in [1, 2, 3, 16] {
        let mut peer = hostile(resources, 4);
        // What identifies the peer's resource may be anything.
        let data = [vec![], vec![0; 4], vec![0xFF; 200]];
        for number in 1..resources {
            let mut request = peer.child_request(None, 0x2000 + number as u32);
            request.push(info(&data[number % 3]));
            let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
            assert_eq!(notifies(&heard), [NotifyType::SA_RESOURCE_INFO], "{number}");
        }
        assert_eq!(children_of(&peer), resources);
        for number in 0..50 {
            let mut request = peer.child_request(None, 0x3000 + number);
            request.push(info(&[]));
            let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
            assert_eq!(notifies(&heard), [NotifyType::TS_MAX_QUEUE]);
        }
        assert_eq!(children_of(&peer), resources);
        // The protocol's normal course: nothing has failed.
        let failed = |event: &&Event| matches!(event, Event::ChildFailed { .. });
        assert_eq!(peer.events.iter().filter(failed).count(), 0);
    }
}

/// Those for further resources do not count against the Child SAs that a peer may have, but have their own bound;
/// others count as ever.
#[test]
fn a_peer_has_its_child_sas_and_one_set_of_resources() {
    let (resources, may) = (3, 4);
    let mut peer = hostile(resources, may);
    let mut made = 1;
    for number in 0..100 {
        let mut request = peer.child_request(None, 0x2000 + number);
        if number % 2 == 0 {
            request.push(info(&[]));
        }
        let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
        let kinds = notifies(&heard);
        let refusals = [NotifyType::TS_MAX_QUEUE, NotifyType::NO_ADDITIONAL_SAS];
        made += usize::from(!kinds.iter().any(|kind| refusals.contains(kind)));
    }
    assert_eq!(children_of(&peer), made);
    assert!(made < may + resources, "{made} Child SAs");
    // Other traffic of the same child is not beside it, so it counts.
    let mut peer = hostile(resources, 1);
    let mut request = peer.child_request(None, 0x2000);
    for payload in &mut request {
        if let Payload::TsI(selectors) = payload {
            let inside = ikev2::wire::TrafficSelector::network([10, 1, 7, 0].into(), 24);
            *selectors = vec![inside.unwrap()];
        }
    }
    request.push(info(&[]));
    let heard = peer.request(ExchangeType::CREATE_CHILD_SA, &request);
    assert_eq!(notifies(&heard), [NotifyType::NO_ADDITIONAL_SAS]);
    assert_eq!(children_of(&peer), 1);
}

/// Rekeying is no way around the bound: a successor takes a place, and does not bring one.
#[test]
fn rekeying_makes_no_room_beside_the_bound() {
    let mut peer = hostile(2, 1);
    let mut request = peer.child_request(None, 0x2001);
    request.push(info(&[]));
    peer.request(ExchangeType::CREATE_CHILD_SA, &request);
    assert_eq!(children_of(&peer), 2);
    for number in 0..300 {
        let old = 0x2001 + number;
        let mut request = peer.child_request(Some(old), old + 1);
        request.push(info(&[]));
        peer.request(ExchangeType::CREATE_CHILD_SA, &request);
        let mut request = peer.child_request(None, 0x9000 + number);
        request.push(info(&[]));
        peer.request(ExchangeType::CREATE_CHILD_SA, &request);
        // What was replaced waits for its deletion, within the endpoint's own bound.
        assert!(children_of(&peer) <= 2 * Limits::default().children);
    }
    peer.wait(Duration::from_secs(60));
    let live = children_of(&peer);
    assert!(live <= 2 * Limits::default().children, "{live}");
}
