//! Which of our certificates a peer gets, what it hears of their state, and post-quantum preshared keys.

use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, KeyPair};
use ikev2::auth::{AuthError, Scheme, SignedOctets, verify_signature};
use ikev2::config::{KeyKind, LocalAuth, Ppk, Psk, RemoteAuth};
use ikev2::crypto::Prf;
use ikev2::wire::{AuthMethod, Authentication, HashId, Identification};
use ikev2::{Connection, Limits};

use crate::handshake::run;
use crate::support::{Key, World, certified_by, connection, credential};

const A: [u8; 20] = [1; 20];
const B: [u8; 20] = [2; 20];
const C: [u8; 20] = [3; 20];

/// Each side has an ECDSA certificate below authority A and an Ed25519 certificate below B.
fn several(change: impl Fn(usize, &mut Connection)) -> World {
    let mut connections = [connection(0), connection(1)];
    let mut keys = Vec::new();
    for (side, connection) in connections.iter_mut().enumerate() {
        let kinds = [KeyKind::EcdsaP256, KeyKind::Ed25519];
        let pair = kinds.map(Key::generate);
        let mut ours: Vec<_> = pair
            .iter()
            .zip(kinds)
            .map(|(k, kind)| credential(k, kind))
            .collect();
        ours[0].authorities = vec![A];
        ours[1].authorities = vec![B, C];
        ours[1].ocsp = Some(vec![0x30, 0x4b]);
        connection.local_auth = LocalAuth::Certificates(ours);
        connection.remote_auth = certified_by(&[]);
        change(side, connection);
        keys.push(pair);
    }
    let mut world = World::with(connections, Limits::default(), 1);
    for (side, [first, second]) in world.sides.iter_mut().zip(keys) {
        side.key = Some(first);
        side.more_keys = vec![second];
    }
    world.initiate();
    world.run(Duration::from_secs(5));
    world
}

#[test]
fn the_certificate_is_the_one_whose_authority_the_peer_asks_for() {
    for (asked, used) in [
        (vec![], 0),
        (vec![A], 0),
        (vec![B], 1),
        (vec![[9; 20], C], 1),
        (vec![A, B], 0),
        // None of ours: better the first than none at all; the peer decides.
        (vec![[9; 20]], 0),
    ] {
        for asking in [0, 1] {
            let world = several(|side, connection| {
                if side == asking {
                    connection.remote_auth = certified_by(&asked);
                }
            });
            world.assert_settled();
            let other = &world.sides[1 - asking];
            let scheme = ["EcdsaP256", "Ed25519"][used];
            let signed = format!("sign {scheme} with {used}");
            assert_eq!(other.saw(&signed), 1, "{asked:?} {:?}", other.log);
            // The one who does not ask gets the first.
            assert_eq!(world.sides[asking].saw("sign EcdsaP256 with 0"), 1);
        }
    }
}

#[test]
fn questions_about_certificates_name_the_ike_sa() {
    let world = several(|_, _| ());
    for side in &world.sides {
        assert_eq!(side.asked_about, Some(side.ike()));
    }
}

#[test]
fn ocsp_responses_come_with_the_certificate_if_they_are_asked_for() {
    for asks in [false, true] {
        for asking in [0, 1] {
            let world = several(|side, connection| {
                if side == asking {
                    connection.remote_auth = RemoteAuth::Certificate {
                        authorities: vec![B],
                        ocsp: asks,
                    };
                }
            });
            world.assert_settled();
            assert_eq!(world.sides[asking].saw("ocsp [48, 75]"), usize::from(asks));
            assert_eq!(world.sides[1 - asking].saw("ocsp"), 0);
        }
    }
}

fn octets() -> SignedOctets {
    let id = Identification::fqdn("camera-17.example.org");
    SignedOctets::new(
        Prf::HmacSha256,
        &[1; 32],
        b"first message",
        &[2; 32],
        &id,
        None,
    )
}

#[test]
fn ecdsa_on_p521_is_verified_in_both_methods() {
    let id = Identification::fqdn("camera-17.example.org");
    for (scheme, signing) in [
        (
            Scheme::EcdsaP521,
            &signature::ECDSA_P521_SHA512_ASN1_SIGNING,
        ),
        (
            Scheme::EcdsaP521Fixed,
            &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
        ),
    ] {
        let key = EcdsaKeyPair::generate(signing).unwrap();
        let public = key.public_key().as_der().unwrap();
        let made = key.sign(&SystemRandom::new(), octets().as_bytes()).unwrap();
        let mut proof = scheme.payload(made.as_ref());
        verify_signature(public.as_ref(), &octets(), &proof, &id).unwrap();
        *proof.data.last_mut().unwrap() ^= 1;
        let wrong = verify_signature(public.as_ref(), &octets(), &proof, &id);
        assert_eq!(wrong.unwrap_err(), AuthError::Proof);
    }
}

/// libreswan takes the longest hash that was announced, whatever its key.
#[test]
fn ecdsa_is_verified_with_any_announced_hash() {
    let id = Identification::fqdn("camera-17.example.org");
    let all = [Scheme::EcdsaP256, Scheme::EcdsaP384, Scheme::EcdsaP521];
    for (right, signing) in [
        (0, &signature::ECDSA_P521_SHA256_ASN1_SIGNING),
        (1, &signature::ECDSA_P521_SHA384_ASN1_SIGNING),
        (2, &signature::ECDSA_P521_SHA512_ASN1_SIGNING),
    ] {
        let key = EcdsaKeyPair::generate(signing).unwrap();
        let public = key.public_key().as_der().unwrap();
        let made = key.sign(&SystemRandom::new(), octets().as_bytes()).unwrap();
        for (index, scheme) in all.into_iter().enumerate() {
            let proof = scheme.payload(made.as_ref());
            let verified = verify_signature(public.as_ref(), &octets(), &proof, &id);
            assert_eq!(verified.is_ok(), index == right, "{scheme:?}");
        }
    }
}

/// `openssl dgst -sha512 -sign` with a key on P-256, over [`octets`].
#[test]
fn ecdsa_on_p256_with_sha512_is_verified() {
    let id = Identification::fqdn("camera-17.example.org");
    let public = [
        "3059301306072a8648ce3d020106082a8648ce3d03010703420004f4b152540ad9cdb964e481f838d8d43c00c81a0122",
        "a54cc99f774c7a5dafd3099f6a96f3901306cef09fa73411f2339cfea4e723b3e4f187f5b8d192d7342309",
    ];
    let made = [
        "304502205016e7c624953bac9230b4c2283e91c62533d64d716c922f4c08a2673d84ce93022100ef2ad34a13edd2f548",
        "a7d923e829b9102233ce83a008bf23341100b7aa1d0df8",
    ];
    let of = |parts: &[&str]| hex::decode(parts.concat()).unwrap();
    let proof = Scheme::EcdsaP521.payload(&of(&made));
    verify_signature(&of(&public), &octets(), &proof, &id).unwrap();
    let other = Scheme::EcdsaP256.payload(&of(&made));
    let refused = verify_signature(&of(&public), &octets(), &other, &id);
    assert_eq!(refused.unwrap_err(), AuthError::Proof);
}

#[test]
fn without_announced_hashes_only_the_old_methods_of_ecdsa_are_left() {
    let schemes = |hashes| {
        [
            KeyKind::EcdsaP256,
            KeyKind::EcdsaP384,
            KeyKind::Rsa,
            KeyKind::Ed25519,
        ]
        .map(|kind| Scheme::for_peer(kind, hashes))
    };
    let (fixed_256, fixed_384) = (Scheme::EcdsaP256Fixed, Scheme::EcdsaP384Fixed);
    assert_eq!(
        schemes(None),
        [Some(fixed_256), Some(fixed_384), None, None]
    );
    assert_eq!(
        fixed_256.payload(&[0; 64]).method,
        AuthMethod::ECDSA_P256_SHA256
    );
    assert_eq!(
        fixed_384.payload(&[0; 96]).method,
        AuthMethod::ECDSA_P384_SHA384
    );
    // SHA-1 alone is as good as nothing.
    assert_eq!(schemes(Some(&[HashId::SHA1])), [None; 4]);
    let sha256 = [
        Some(Scheme::EcdsaP256),
        None,
        Some(Scheme::RsaPssSha256),
        None,
    ];
    assert_eq!(schemes(Some(&[HashId::SHA2_256])), sha256);
    // RSA's own method means SHA-1, whatever is in it.
    let id = Identification::fqdn("camera-17.example.org");
    let proof = Authentication {
        method: AuthMethod::RSA_SIGNATURE,
        data: vec![0; 256],
    };
    let public = Key::generate(KeyKind::Rsa).public();
    let refused = verify_signature(&public, &octets(), &proof, &id);
    assert_eq!(
        refused.unwrap_err(),
        AuthError::Method(AuthMethod::RSA_SIGNATURE)
    );
}

fn ppk(id: &str, secret: &str) -> Option<Ppk> {
    Some(Ppk {
        id: id.into(),
        secret: Psk::new(secret.as_bytes()),
        required: true,
    })
}

#[test]
fn a_post_quantum_preshared_key_is_mixed_in_or_nothing_comes_up() {
    let good = ppk("lab", "32 bytes of randomness, say we.");
    for (theirs, comes_up) in [
        (good.clone(), true),
        (ppk("lab", "another"), false),
        (ppk("other", "32 bytes of randomness, say we."), false),
        (None, false),
    ] {
        for swapped in [false, true] {
            let mut connections = [connection(0), connection(1)];
            connections[usize::from(swapped)].ppk = good.clone();
            connections[usize::from(!swapped)].ppk = theirs.clone();
            let world = run(connections);
            let up = world
                .sides
                .iter()
                .all(|side| side.endpoint.established().count() == 1);
            assert_eq!(up, comes_up, "{:?}", world.sides[1].log);
            if comes_up {
                world.assert_settled();
            } else {
                assert!(world.sides.iter().all(|side| side.children().is_empty()));
            }
        }
    }
}

/// Whether the tunnel comes up with these keys, and whether the key is in it: the responder says so.
fn with_ppks(keys: [Option<Ppk>; 2], certificates: bool) -> World {
    let mut connections = [connection(0), connection(1)];
    for (connection, ppk) in connections.iter_mut().zip(keys) {
        connection.ppk = ppk;
    }
    if !certificates {
        return run(connections);
    }
    let keys = [KeyKind::EcdsaP256, KeyKind::Rsa].map(|kind| (kind, Key::generate(kind)));
    for (connection, (kind, key)) in connections.iter_mut().zip(&keys) {
        connection.local_auth = LocalAuth::Certificates(vec![credential(key, *kind)]);
        connection.remote_auth = certified_by(&[]);
    }
    let mut world = World::with(connections, Limits::default(), 1);
    for (side, (_, key)) in world.sides.iter_mut().zip(keys) {
        side.key = Some(key);
    }
    world.initiate();
    world.run(Duration::from_secs(5));
    world
}

#[test]
fn an_optional_post_quantum_preshared_key_is_used_where_both_have_it() {
    let optional = |id: &str, secret: &str| {
        ppk(id, secret).map(|ppk| Ppk {
            required: false,
            ..ppk
        })
    };
    let secret = "32 bytes of randomness, say we.";
    let (lab, other) = (optional("lab", secret), optional("other", secret));
    let required = ppk("lab", secret);
    for (keys, up) in [
        ([lab.clone(), lab.clone()], true),
        ([lab.clone(), required.clone()], true),
        ([required.clone(), lab.clone()], true),
        // Another name, or none: without, unless somebody insists.
        ([lab.clone(), other.clone()], true),
        ([lab.clone(), None], true),
        ([None, lab.clone()], true),
        ([required.clone(), other.clone()], false),
        ([other.clone(), required.clone()], false),
        ([required.clone(), None], false),
        ([None, required.clone()], false),
        // The same name for another key is a mistake, not a fallback.
        ([lab.clone(), optional("lab", "another")], false),
    ] {
        for certificates in [false, true] {
            let names = keys
                .clone()
                .map(|ppk| ppk.map(|ppk| (ppk.id, ppk.required)));
            let world = with_ppks(keys.clone(), certificates);
            let count = world.sides[0].endpoint.established().count();
            assert_eq!(count == 1, up, "{names:?} {:?}", world.sides[1].log);
            if up {
                world.assert_settled();
            } else {
                assert!(world.sides.iter().all(|side| side.children().is_empty()));
            }
            // An initiator that can do without makes two proofs.
            if certificates && up && keys[1].is_some() {
                let two = keys[0].as_ref().is_some_and(|ppk| !ppk.required);
                assert_eq!(
                    world.sides[0].saw("sign"),
                    1 + usize::from(two),
                    "{names:?}"
                );
            }
        }
    }
}

#[test]
fn the_optional_key_is_in_the_keys_of_the_child_where_both_have_it() {
    let secret = "32 bytes of randomness, say we.";
    let optional = |id| {
        ppk(id, secret).map(|ppk| Ppk {
            required: false,
            ..ppk
        })
    };
    // The same seed, so that the key alone makes the difference.
    let key = |theirs| {
        let world = with_ppks([optional("lab"), theirs], false);
        world.assert_settled();
        world.sides[0]
            .outbound()
            .unwrap()
            .outbound
            .encryption
            .to_vec()
    };
    assert_ne!(key(optional("lab")), key(optional("other")));
    assert_eq!(key(optional("other")), key(optional("another one")));
}
