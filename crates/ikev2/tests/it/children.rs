//! Child SAs from IKE_AUTH and CREATE_CHILD_SA: selectors, modes, addresses inside the tunnel.

use std::time::Duration;

use ikev2::config::{Addresses, Mode};
use ikev2::wire::{Notify, NotifyType, Payload, TrafficSelector};
use ikev2::{Connection, Event, Limits};
use offload::Encryption;

use crate::handshake::{both, run};
use crate::peer::HostilePeer;
use crate::support::{World, connection, net};

#[test]
fn selectors_are_narrowed_to_what_both_want() {
    let mut ours = connection(0);
    ours.children[0].local = vec![net("10.1.2.0/24")];
    ours.children[0].remote = vec![net("0.0.0.0/0")];
    let world = run([ours, connection(1)]);
    world.assert_settled();
    let up = world.sides[0].outbound().unwrap();
    assert_eq!(
        (up.local.clone(), up.remote.clone()),
        (vec![net("10.1.2.0/24")], vec![net("10.2.0.0/16")])
    );
    let peer = world.sides[1].outbound().unwrap();
    assert_eq!(
        (peer.local.clone(), peer.remote.clone()),
        (up.remote.clone(), up.local.clone())
    );
}

#[test]
fn without_common_selectors_the_ike_sa_stays_up_alone() {
    let mut theirs = connection(1);
    theirs.children[0].local = vec![net("10.3.0.0/16")];
    let world = run([connection(0), theirs]);
    assert_eq!(
        world.sides[0].saw("child failed peer refused with TS_UNACCEPTABLE"),
        1
    );
    assert_eq!(world.sides[1].saw("no traffic selectors in common"), 1);
    assert!(world.sides.iter().all(|side| side.children().is_empty()));
    assert!(
        world
            .sides
            .iter()
            .all(|side| side.endpoint.established().count() == 1)
    );
}

#[test]
fn esp_without_common_proposal_leaves_the_ike_sa_alone() {
    let mut theirs = connection(1);
    theirs.children[0].esp[0].encryption = vec![Encryption::ChaCha20Poly1305];
    let world = run([connection(0), theirs]);
    assert_eq!(
        world.sides[0].saw("child failed peer refused with NO_PROPOSAL_CHOSEN"),
        1
    );
    assert!(
        world.sides[1]
            .log
            .iter()
            .any(|l| l.contains("ENCR: theirs AES_GCM_16_128, ours CHACHA20_POLY1305"))
    );
}

#[test]
fn transport_mode_needs_both_sides() {
    let transport = |connection: &mut Connection| connection.children[0].mode = Mode::Transport;
    let world = run(both(transport));
    assert_eq!(world.sides[0].outbound().unwrap().mode, Mode::Transport);
    assert_eq!(world.sides[1].outbound().unwrap().mode, Mode::Transport);
    let mut ours = connection(0);
    transport(&mut ours);
    let world = run([ours, connection(1)]);
    assert_eq!(world.sides[0].outbound().unwrap().mode, Mode::Tunnel);
    assert_eq!(world.sides[1].outbound().unwrap().mode, Mode::Tunnel);
}

/// RFC 7296 §3.10.1: each side says for itself that it takes no traffic-flow padding; ours does in transport
/// mode, where nothing says where a packet ends.
#[test]
fn traffic_flow_padding_is_for_tunnel_mode_and_peers_that_take_it() {
    let padded = |world: &World| {
        let of = |side: usize| world.sides[side].outbound().unwrap().tfc_padding;
        [of(0), of(1)]
    };
    let transport = |connection: &mut Connection| connection.children[0].mode = Mode::Transport;
    assert_eq!(padded(&run([connection(0), connection(1)])), [true, true]);
    assert_eq!(padded(&run(both(transport))), [false, false]);
    // Tunnel mode comes of it, but the initiator has refused padding with its request.
    let mut ours = connection(0);
    transport(&mut ours);
    assert_eq!(padded(&run([ours, connection(1)])), [true, false]);
    for refuses in [false, true] {
        let kind = NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED;
        let mut peer = HostilePeer::new(false);
        let mut wanted = vec![
            HostilePeer::child_proposal(0x1000),
            Payload::TsI(vec![crate::peer::network([10, 1, 0, 0])]),
            Payload::TsR(vec![crate::peer::network([10, 2, 0, 0])]),
        ];
        wanted.extend(refuses.then(|| Payload::Notify(Notify::new(kind))));
        let heard = peer.authenticate_with(&wanted);
        let told = heard.iter().flat_map(|heard| &heard.payloads);
        let told = told.filter(|one| matches!(one, Payload::Notify(notify) if notify.kind == kind));
        assert_eq!(told.count(), 0, "tunnel mode takes padding");
        let ups = peer.events.iter().filter_map(|event| match event {
            Event::ChildUp(up) => Some(up.tfc_padding),
            _ => None,
        });
        assert_eq!(ups.collect::<Vec<_>>(), [!refuses]);
    }
}

#[test]
fn sequence_numbers_of_64_bits_are_negotiated() {
    let world = run([connection(0), connection(1)]);
    assert!(
        world
            .sides
            .iter()
            .all(|side| side.outbound().unwrap().extended_sequence)
    );
    let mut theirs = connection(1);
    theirs.children[0].esp[0].extended_sequence = vec![false];
    let world = run([connection(0), theirs]);
    assert!(
        world
            .sides
            .iter()
            .all(|side| !side.outbound().unwrap().extended_sequence)
    );
}

#[test]
fn an_ike_sa_without_child_comes_up_and_gets_one_later() {
    let mut ours = connection(0);
    ours.children.clear();
    let mut world = run([ours, connection(1)]);
    assert!(
        world
            .sides
            .iter()
            .all(|side| side.endpoint.established().count() == 1)
    );
    assert!(world.sides.iter().all(|side| side.children().is_empty()));
    // The peer's configuration has the child, so it makes it.
    let ike = world.sides[1].ike();
    world.sides[1]
        .endpoint
        .create_child(world.now, ike, "net")
        .unwrap();
    world.run(Duration::from_secs(1));
    // Side 0 has no configuration that fits.
    assert_eq!(world.sides[1].saw("TS_UNACCEPTABLE"), 1);
}

#[test]
fn further_child_sas_are_made_and_deleted_by_either_side() {
    let mut world = World::up(3);
    // The responder of a further Child SA may send before the initiator has the answer: it replaces
    // none that could carry the packet meanwhile.
    world.watch = false;
    for side in [0, 1] {
        let ike = world.sides[side].ike();
        world.sides[side]
            .endpoint
            .create_child(world.now, ike, "net")
            .unwrap();
        world.run(Duration::from_secs(1));
        assert_eq!(world.sides[1 - side].children().len(), 2);
        let spi = *world.sides[side].children().last().unwrap();
        world.sides[side]
            .endpoint
            .delete_child(world.now, ike, spi)
            .unwrap();
        world.run(Duration::from_secs(1));
        world.assert_settled();
    }
}

fn addresses(request: Addresses) -> [Connection; 2] {
    let mut connections = [connection(0), connection(1)];
    connections[0].addresses = request;
    connections[0].children[0].local = vec![net("0.0.0.0/0"), net("::/0")];
    connections[1].children[0].remote = vec![net("0.0.0.0/0"), net("::/0")];
    connections[1].addresses = Addresses::Assign;
    connections
}

#[test]
fn addresses_inside_the_tunnel_are_given_and_bound_the_traffic() {
    let both = Addresses::Request { v4: true, v6: true };
    let mut connections = addresses(both);
    connections[0].children[0]
        .remote
        .push(net("2001:db8:2::/48"));
    connections[1].children[0]
        .local
        .push(net("2001:db8:2::/48"));
    let mut world = World::with(connections, Limits::default(), 1);
    let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let given = vec![ip("10.9.0.17"), ip("2001:db8:9::17")];
    world.sides[1].give = Some((given.clone(), vec![ip("10.2.0.53"), ip("2001:db8:2::53")]));
    world.initiate();
    world.run(Duration::from_secs(5));
    world.assert_settled();
    let expected = "addresses [10.9.0.17, 2001:db8:9::17] [10.2.0.53, 2001:db8:2::53]";
    assert!(world.sides.iter().all(|side| side.saw(expected) == 1));
    assert_eq!(world.sides[1].saw("asked for addresses true true"), 1);
    world.watch = true;
    // After rekeying by either side, of either kind, it is still these addresses and no other.
    for step in 0..5 {
        let up = world.sides[1].outbound().unwrap();
        let hosts: Vec<_> = given.iter().copied().map(TrafficSelector::host).collect();
        assert_eq!(up.remote, hosts);
        assert_eq!(world.sides[0].outbound().unwrap().local, hosts);
        let (side, now) = (step % 2, world.now);
        let (ike, child) = (world.sides[side].ike(), world.sides[side].children()[0]);
        let endpoint = &mut world.sides[side].endpoint;
        if step == 2 {
            endpoint.rekey_ike(now, ike).unwrap();
        } else {
            endpoint.rekey_child(now, ike, child).unwrap();
        }
        world.run(Duration::from_secs(2));
        world.assert_settled();
    }
}

#[test]
fn without_an_address_there_is_no_child_sa() {
    let one = Addresses::Request {
        v4: true,
        v6: false,
    };
    for (request, refusal) in [
        (one, "INTERNAL_ADDRESS_FAILURE"),
        (Addresses::None, "FAILED_CP_REQUIRED"),
    ] {
        let world = run(addresses(request));
        assert_eq!(
            world.sides[0].saw(&format!("child failed peer refused with {refusal}")),
            1
        );
        assert_eq!(world.sides[1].saw("no address inside the tunnel"), 1);
        assert!(world.sides.iter().all(|side| side.children().is_empty()));
        assert!(
            world
                .sides
                .iter()
                .all(|side| side.endpoint.established().count() == 1)
        );
    }
}
