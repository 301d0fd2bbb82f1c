//! IKE_SA_INIT, IKE_INTERMEDIATE, IKE_AUTH.

use std::time::Duration;

use ikev2::config::{KeyKind, LocalAuth, PeerId, Psk, RemoteAuth, Retransmission};
use ikev2::crypto::{Group, Prf};
use ikev2::select::{EspProposal, IkeProposal};
use ikev2::wire::Identification;
use ikev2::{Connection, EventName, Limits, StateName, WrongState};
use offload::{Encryption, Integrity};

use crate::support::{
    Key, Weather, World, cbc_ike, certified_by, connection, credential, esp_default, ike_default,
};

pub(crate) fn run(connections: [Connection; 2]) -> World {
    let mut world = World::with(connections, Limits::default(), 1);
    world.initiate();
    world.run(Duration::from_secs(5));
    world
}

pub(crate) fn both(change: impl Fn(&mut Connection)) -> [Connection; 2] {
    [0, 1].map(|side| {
        let mut connection = connection(side);
        change(&mut connection);
        connection
    })
}

#[test]
fn shared_secret_brings_up_ike_and_child() {
    let world = run([connection(0), connection(1)]);
    world.assert_settled();
    assert_eq!(world.sides[0].saw("up FQDN:gateway.example.org"), 1);
    assert_eq!(world.sides[1].saw("up FQDN:camera-17.example.org"), 1);
    // Two exchanges and no more.
    assert_eq!(world.sizes.len(), 4);
}

/// Ciphers that peers can agree on: all but those of laboratory builds.
fn negotiated() -> impl Iterator<Item = Encryption> {
    let legacy = ["DesCbc", "TripleDesCbc"];
    let all = Encryption::ALL.iter().copied();
    all.filter(move |one| !legacy.contains(&format!("{one:?}").as_str()))
}

#[test]
fn every_suite_comes_up() {
    let known = negotiated().filter(|one| one.encrypts());
    let (combined, others): (Vec<_>, Vec<_>) = known.partition(|one| one.is_combined());
    let combined = combined.into_iter().map(|one| IkeProposal {
        encryption: vec![one],
        ..ike_default()
    });
    let ciphers = others.into_iter().map(|one| IkeProposal {
        encryption: vec![one],
        ..cbc_ike(Integrity::HmacSha256_128, Group::X25519)
    });
    let integrities = [
        Integrity::HmacSha1_96,
        Integrity::HmacSha256_128,
        Integrity::HmacSha384_192,
        Integrity::HmacSha512_256,
        Integrity::AesXcbc96,
    ];
    let separate = integrities.map(|i| cbc_ike(i, Group::P256));
    let groups = [Group::P384, Group::Modp2048].map(|g| cbc_ike(Integrity::HmacSha256_128, g));
    let small = IkeProposal {
        prf: vec![Prf::Aes128Xcbc],
        ..cbc_ike(Integrity::AesXcbc96, Group::X25519)
    };
    let all = combined.chain(ciphers).chain(separate).chain(groups);
    for ike in all.chain([small]) {
        let world = run(both(|connection| connection.ike = vec![ike.clone()]));
        world.assert_settled();
    }
}

#[test]
fn every_suite_of_packets_is_agreed() {
    for encryption in negotiated() {
        let integrity = (!encryption.is_combined()).then_some(Integrity::HmacSha256_128);
        let esp = EspProposal {
            encryption: vec![encryption],
            integrity: integrity.into_iter().collect(),
            ..esp_default()
        };
        let world = run(both(|connection| {
            connection.children[0].esp = vec![esp.clone()]
        }));
        world.assert_settled();
    }
}

#[test]
fn the_responder_chooses_by_its_own_preference() {
    let mut ours = connection(0);
    ours.ike = vec![
        ike_default(),
        cbc_ike(Integrity::HmacSha256_128, Group::X25519),
    ];
    let mut theirs = connection(1);
    theirs.ike = vec![
        cbc_ike(Integrity::HmacSha256_128, Group::X25519),
        ike_default(),
    ];
    let world = run([ours, theirs]);
    world.assert_settled();
    assert_eq!(
        world.sides[0].saw("AES_CBC_256"),
        1,
        "{:?}",
        world.sides[0].log
    );
}

#[test]
fn another_group_is_asked_for_and_tried() {
    let mut ours = connection(0);
    ours.ike[0].groups = vec![Group::X25519, Group::P256];
    let mut theirs = connection(1);
    theirs.ike[0].groups = vec![Group::P256];
    let world = run([ours, theirs]);
    world.assert_settled();
    assert_eq!(world.sizes.len(), 6);
}

#[test]
fn no_common_proposal_names_the_difference() {
    let mut theirs = connection(1);
    theirs.ike[0].groups = vec![Group::P384];
    let world = run([connection(0), theirs]);
    assert_eq!(
        world.sides[0].log,
        ["down peer refused with NO_PROPOSAL_CHOSEN"]
    );
    assert!(world.sides[1].log[0].contains("KE: theirs CURVE25519, ours ECP_384"));
    assert!(
        world
            .sides
            .iter()
            .all(|side| side.endpoint.established().next().is_none())
    );
}

#[test]
fn wrong_secret_is_refused_and_tells_the_peer_nothing() {
    let mut theirs = connection(1);
    theirs.remote_auth = RemoteAuth::Psk(Psk::new(b"another"));
    let world = run([connection(0), theirs]);
    assert_eq!(
        world.sides[0].log,
        ["down peer refused with AUTHENTICATION_FAILED"]
    );
    assert_eq!(world.sides[1].saw("the proof is wrong"), 1);
    assert_eq!(world.sides[1].saw("child up"), 0);
}

#[test]
fn a_responder_without_the_secret_is_refused() {
    let mut theirs = connection(1);
    theirs.local_auth = LocalAuth::Psk(Psk::new(b"another"));
    let world = run([connection(0), theirs]);
    assert_eq!(world.sides[0].saw("the proof is wrong"), 1);
    assert_eq!(world.sides[0].saw("child up"), 0);
    // It believed to be up and was told otherwise.
    assert_eq!(
        world.sides[1].saw("down peer refused with AUTHENTICATION_FAILED"),
        2
    );
    assert!(world.sides[1].endpoint.established().next().is_none());
}

#[test]
fn unknown_identities_are_refused_on_either_side() {
    let mut theirs = connection(1);
    theirs.remote_id = PeerId::Exactly(Identification::fqdn("camera-18.example.org"));
    let world = run([connection(0), theirs]);
    assert_eq!(
        world.sides[0].log,
        ["down peer refused with AUTHENTICATION_FAILED"]
    );
    assert_eq!(
        world.sides[1].saw("no connection for FQDN:camera-17.example.org"),
        1
    );

    let mut ours = connection(0);
    ours.remote_id = PeerId::Any;
    let mut theirs = connection(1);
    theirs.remote_id = PeerId::Any;
    run([ours, theirs]).assert_settled();
}

fn certificates(kinds: [KeyKind; 2]) -> World {
    let keys = kinds.map(Key::generate);
    let mut connections = [connection(0), connection(1)];
    for (index, connection) in connections.iter_mut().enumerate() {
        let ours = credential(&keys[index], kinds[index]);
        connection.local_auth = LocalAuth::Certificates(vec![ours]);
        connection.remote_auth = certified_by(&[[7; 20]]);
    }
    let mut world = World::with(connections, Limits::default(), 1);
    for (side, key) in world.sides.iter_mut().zip(keys) {
        side.key = Some(key);
    }
    world
}

#[test]
fn signatures_of_every_kind_are_accepted() {
    for kinds in [
        [KeyKind::EcdsaP256, KeyKind::Ed25519],
        [KeyKind::EcdsaP384, KeyKind::Rsa],
    ] {
        let mut world = certificates(kinds);
        world.initiate();
        world.run(Duration::from_secs(5));
        world.assert_settled();
    }
}

#[test]
fn a_signature_by_another_key_is_refused() {
    for cheat in [0, 1] {
        let mut world = certificates([KeyKind::EcdsaP256; 2]);
        world.sides[cheat].key = Some(Key::generate(KeyKind::EcdsaP256));
        world.initiate();
        world.run(Duration::from_secs(5));
        assert_eq!(world.sides[1 - cheat].saw("the proof is wrong"), 1);
        assert!(
            world
                .sides
                .iter()
                .all(|side| side.endpoint.established().next().is_none())
        );
    }
}

#[test]
fn a_peer_whose_certificate_is_refused_stays_out() {
    for strict in [0, 1] {
        let mut world = certificates([KeyKind::EcdsaP256; 2]);
        world.sides[strict].refuse_peer = true;
        world.initiate();
        world.run(Duration::from_secs(5));
        assert_eq!(world.sides[strict].saw("authentication failed: revoked"), 1);
        assert_eq!(world.sides[strict].saw("child up"), 0);
        assert!(
            world
                .sides
                .iter()
                .all(|side| side.endpoint.established().next().is_none())
        );
    }
}

#[test]
fn a_secret_is_no_certificate() {
    let mut world = certificates([KeyKind::EcdsaP256; 2]);
    world.sides[0].add_connection(connection(0));
    world.initiate();
    world.run(Duration::from_secs(5));
    assert_eq!(
        world.sides[0].log,
        ["down peer refused with AUTHENTICATION_FAILED"]
    );
}

#[test]
fn ml_kem_follows_in_ike_intermediate() {
    let hybrid = |connection: &mut Connection| {
        connection.ike[0].additional = vec![vec![Group::MlKem768]];
    };
    let world = run(both(hybrid));
    world.assert_settled();
    assert_eq!(world.sides[1].saw("CURVE25519+ML_KEM_768"), 1);
    // IKE_SA_INIT stays small enough for a datagram; ML-KEM's value goes in fragments.
    assert!(
        world.sizes.iter().all(|size| *size <= 1232),
        "{:?}",
        world.sizes
    );
    // The public key needs two fragments, the ciphertext one.
    assert_eq!(world.sizes.len(), 7, "{:?}", world.sizes);
}

#[test]
fn a_peer_without_ml_kem_gets_the_plain_proposal_only_if_there_is_one() {
    let mut ours = connection(0);
    ours.ike = vec![IkeProposal {
        additional: vec![vec![Group::MlKem768]],
        ..ike_default()
    }];
    let world = run([ours.clone(), connection(1)]);
    assert_eq!(
        world.sides[0].log,
        ["down peer refused with NO_PROPOSAL_CHOSEN"]
    );
    ours.ike.push(ike_default());
    run([ours, connection(1)]).assert_settled();
}

#[test]
fn closing_takes_both_sides_down() {
    for side in [0, 1] {
        let mut world = World::up(4);
        world.watch = false;
        let ike = world.sides[side].ike();
        world.sides[side].endpoint.close(world.now, ike).unwrap();
        world.run(Duration::from_secs(60));
        assert_eq!(world.sides[side].saw("down closed by us"), 2);
        assert_eq!(world.sides[1 - side].saw("down closed by the peer"), 2);
        assert!(world.sides.iter().all(|side| side.endpoint.is_empty()));
    }
}

#[test]
fn a_silent_peer_is_noticed() {
    let mut connections = [connection(0), connection(1)];
    connections[0].liveness = Some(Duration::from_secs(10));
    let mut world = run(connections);
    world.run(Duration::from_secs(60));
    world.assert_settled();
    world.weather.loss = 100;
    world.run(Duration::from_secs(120));
    assert_eq!(world.sides[0].saw("down peer does not answer"), 2);
}

/// Waits of 1 s, 1.5 s and twice 2 s, then the peer counts as gone; the other side's connection has nothing to
/// do with it.
#[test]
fn requests_are_repeated_as_the_connection_says() {
    let mut ours = connection(0);
    ours.retransmission = Some(Retransmission {
        timeout: Duration::from_secs(1),
        factor: 150,
        limit: Duration::from_secs(2),
        transmissions: 4,
    });
    let mut world = World::with([ours, connection(1)], Limits::default(), 3);
    world.weather.loss = 100;
    world.initiate();
    let mut sent = Vec::new();
    // Just behind each half second.
    world.run(Duration::from_millis(10));
    for _ in 0..13 {
        world.run(Duration::from_millis(500));
        sent.push(world.sizes.len());
    }
    assert_eq!(sent, [1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4]);
    assert_eq!(world.sides[0].saw("down peer does not answer"), 1);
}

#[test]
fn a_lost_datagram_is_sent_again_whichever_it_is() {
    for lost in 0..4 {
        let mut world = World::new(9);
        world.manual = true;
        world.initiate();
        for step in 0..4 {
            let to = 1 - step % 2;
            if step == lost {
                world.lose(to);
                world.run(Duration::from_millis(600));
                if to == 0 {
                    // The request comes again, and the kept answer goes out.
                    world.pass(1);
                }
            }
            world.pass(to);
        }
        world.assert_settled();
        assert_eq!(world.sides[1].saw("child up"), 1);
    }
}

#[test]
fn a_nat_is_found_and_followed() {
    let mut world = World::new(5);
    let nat = Some("203.0.113.9".parse().unwrap());
    world.weather = Weather {
        nat,
        nat_port: 4711,
        ..Weather::default()
    };
    world.initiate();
    world.run(Duration::from_secs(5));
    world.assert_settled();
    for side in &world.sides {
        let up = side.outbound().unwrap();
        assert!(up.udp_encapsulation);
        assert_eq!(up.path.local.port(), 4500);
    }
    // A keepalive within the time, and then the NAT forgets and gives another port.
    world.run(Duration::from_secs(25));
    assert!(world.sizes.contains(&1), "{:?}", world.sizes);
    world.weather.nat_port = 4712;
    let ike = world.sides[0].ike();
    world.sides[0].endpoint.probe(world.now, ike).unwrap();
    world.run(Duration::from_secs(5));
    assert_eq!(
        world.sides[1].saw("path 203.0.113.9:4712"),
        1,
        "{:?}",
        world.sides[1].log
    );
    world.assert_settled();
}

#[test]
fn without_nat_esp_is_bare() {
    let world = World::up(6);
    assert!(!world.sides[0].outbound().unwrap().udp_encapsulation);
}

#[test]
fn esp_goes_in_udp_where_one_side_wants_it() {
    let of = |always_udp| Limits {
        always_udp,
        ..Limits::default()
    };
    for wanted in [[true, true], [true, false], [false, true]] {
        let mut world = World::with([connection(0), connection(1)], of(wanted[0]), 6);
        world.restart(1, connection(1), of(wanted[1]), 7);
        world.initiate();
        world.run(Duration::from_secs(5));
        world.assert_settled();
        for side in &world.sides {
            let up = side.outbound().unwrap();
            assert!(up.udp_encapsulation, "{wanted:?}");
            assert_eq!((up.path.local.port(), up.path.remote.port()), (4500, 4500));
        }
    }
}

#[test]
fn a_removed_connection_keeps_its_tunnel_and_takes_no_new_one() {
    let mut world = World::up(8);
    world.sides[1].endpoint.remove_connection("tunnel");
    world.run(Duration::from_secs(5));
    world.assert_up();
    let mut fresh = World::new(8);
    fresh.sides[1].endpoint.remove_connection("tunnel");
    fresh.initiate();
    fresh.run(Duration::from_secs(5));
    assert_eq!(
        fresh.sides[0].saw("down peer refused with NO_PROPOSAL_CHOSEN"),
        1
    );
    assert!(
        fresh
            .sides
            .iter()
            .all(|side| side.endpoint.established().count() == 0)
    );
}

#[test]
fn a_restarted_peer_replaces_its_old_ike_sa() {
    let mut world = World::up(7);
    world.watch = false;
    let fresh = World::new(77);
    let [camera, _] = fresh.sides;
    world.sides[0] = camera;
    world.initiate();
    world.run(Duration::from_secs(5));
    assert_eq!(world.sides[1].saw("down peer started anew"), 2);
    world.assert_settled();
}

#[test]
fn many_small_fragments_are_put_together() {
    let limits = Limits {
        datagram_bytes: 170,
        ..Limits::default()
    };
    let keys = [KeyKind::Rsa, KeyKind::Rsa];
    let generated = keys.map(Key::generate);
    let mut connections = [connection(0), connection(1)];
    for (index, connection) in connections.iter_mut().enumerate() {
        // A long chain, as if of large certificates.
        let mut ours = credential(&generated[index], KeyKind::Rsa);
        ours.chain.extend([vec![1; 3000], vec![2; 3000]]);
        connection.local_auth = LocalAuth::Certificates(vec![ours]);
        connection.remote_auth = certified_by(&[]);
    }
    let mut world = World::with(connections, limits, 1);
    for (side, key) in world.sides.iter_mut().zip(generated) {
        side.key = Some(key);
    }
    world.weather = Weather {
        loss: 0,
        duplication: 20,
        jitter: 30,
        ..Weather::default()
    };
    world.initiate();
    world.run(Duration::from_secs(10));
    world.assert_settled();
    assert!(
        world.sizes.len() > 130,
        "at least 64 fragments each way: {}",
        world.sizes.len()
    );
}

#[test]
fn fragments_beyond_the_limit_are_refused() {
    let mut world = World::up(8);
    drop(std::mem::take(&mut world.sizes));
    let limits = |fragments| Limits {
        datagram_bytes: 170,
        fragments,
        ..Limits::default()
    };
    for (fragments, comes_up) in [(64, true), (2, false)] {
        let mut connections = [connection(0), connection(1)];
        connections[1].ike = vec![ike_default()];
        // Different ones: what is the same is offered once.
        use Encryption::{AesGcm128, AesGcm256, ChaCha20Poly1305};
        let ciphers = [
            vec![AesGcm128],
            vec![AesGcm256],
            vec![ChaCha20Poly1305],
            vec![AesGcm128, AesGcm256],
            vec![AesGcm128, ChaCha20Poly1305],
            vec![AesGcm256, ChaCha20Poly1305],
        ];
        let esp = ciphers.map(|encryption| EspProposal {
            encryption,
            ..esp_default()
        });
        connections[0].children[0].esp = esp.into();
        let mut world = World::with(connections, limits(fragments), 2);
        world.initiate();
        world.run(Duration::from_secs(5));
        assert_eq!(world.sides[1].endpoint.established().count() == 1, comes_up);
    }
}

#[test]
fn cookies_are_demanded_when_many_are_half_open_and_answered() {
    let limits = Limits {
        cookie_threshold: 0,
        ..Limits::default()
    };
    let mut world = World::with([connection(0), connection(1)], limits, 3);
    world.initiate();
    world.run(Duration::from_secs(5));
    world.assert_settled();
    assert_eq!(world.sides[1].endpoint.counters().cookies_sent, 1);
    assert_eq!(world.sizes.len(), 6);
}

#[test]
fn a_late_repetition_of_the_first_response_changes_nothing_and_is_counted() {
    let mut world = World::new(1);
    world.manual = true;
    world.initiate();
    // HDR, SAi1, KEi, Ni -->
    world.pass(1);
    // <-- HDR, SAr1, KEr, Nr, twice
    let response = world.take(0).unwrap();
    world.deliver(&response);
    world.deliver(&response);
    let endpoint = &world.sides[0].endpoint;
    assert_eq!(endpoint.counters().wrong_state, 1);
    let wrong = WrongState {
        state: StateName::AuthSent,
        event: EventName::InitResponse,
    };
    assert_eq!(endpoint.wrong_states().collect::<Vec<_>>(), [(wrong, 1)]);
    world.manual = false;
    world.run(Duration::from_secs(5));
    world.assert_settled();
}
