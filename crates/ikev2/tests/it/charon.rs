//! Keys and proofs as another implementation computed them.

use std::collections::BTreeMap;

use ikev2::Nonces;
use ikev2::auth::SignedOctets;
use ikev2::config::Psk;
use ikev2::crypto::{Group, IkeKeys, Prf, Shared, child_keys};
use ikev2::select::IkeSuite;
use ikev2::wire::{Datagram, IdType, Identification, Payload};
use offload::{Encryption, Integrity, Suite};

struct Known(BTreeMap<&'static str, Vec<u8>>);

impl Known {
    fn parse(text: &'static str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.map(|line| line.split_once(' ').unwrap());
        Self(
            pairs
                .map(|(name, value)| (name, hex::decode(value).unwrap()))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> &[u8] {
        &self.0[name]
    }

    /// Empty where the suite has no such key.
    fn opt(&self, name: &str) -> &[u8] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

fn nonce(message: &Datagram) -> Vec<u8> {
    let nonce = message.clear.iter().find_map(|payload| match payload {
        Payload::Nonce(nonce) => Some(nonce.clone()),
        _ => None,
    });
    nonce.unwrap()
}

fn id(body: &[u8]) -> Identification {
    Identification {
        kind: IdType(body[0]),
        data: body[4..].to_vec(),
    }
}

fn check(known: &Known, suite: &IkeSuite, esp: Suite) {
    // Signed octets: message, nonce of the other side, MAC of the identity.
    let message = |name| {
        let octets = known.get(name);
        octets[..octets.len() - 32 - suite.prf.output_len()].to_vec()
    };
    let (first, second) = (message("octets_i"), message("octets_r"));
    let (request, response) = (
        Datagram::parse(&first).unwrap(),
        Datagram::parse(&second).unwrap(),
    );
    let (nonce_i, nonce_r) = (nonce(&request), nonce(&response));
    let nonces = Nonces {
        initiator: nonce_i.clone(),
        responder: nonce_r.clone(),
    };
    let spis = response.header.spis();
    let keys = IkeKeys::initial(suite, known.get("shared"), &nonces, spis).unwrap();
    assert_eq!(*keys.sk_d, known.get("sk_d"));
    assert_eq!(*keys.initiator.encryption, known.get("sk_ei"));
    assert_eq!(*keys.responder.encryption, known.get("sk_er"));
    assert_eq!(*keys.initiator.integrity, known.opt("sk_ai"));
    assert_eq!(*keys.responder.integrity, known.opt("sk_ar"));
    assert_eq!(*keys.sk_pi, known.get("sk_pi"));
    assert_eq!(*keys.sk_pr, known.get("sk_pr"));

    let psk = Psk::new(known.get("secret"));
    for (octets, proof, sk_p, message, nonce, name) in [
        ("octets_i", "auth_i", &keys.sk_pi, &first, &nonce_r, "id_i"),
        ("octets_r", "auth_r", &keys.sk_pr, &second, &nonce_i, "id_r"),
    ] {
        let signed = SignedOctets::new(keys.prf, sk_p, message, nonce, &id(known.get(name)), None);
        assert_eq!(signed.as_bytes(), known.get(octets));
        assert_eq!(signed.shared_key(keys.prf, &psk).data, known.get(proof));
    }

    let (i, r) = child_keys(&keys, esp, &[], &nonces).unwrap();
    let seed = known.get("rekeyed_seed");
    let shared = Shared::new(known.get("rekeyed_shared").to_vec());
    let (nonce_i, nonce_r) = seed[shared.len()..].split_at(32);
    let nonces = Nonces {
        initiator: nonce_i.to_vec(),
        responder: nonce_r.to_vec(),
    };
    let (i2, r2) = child_keys(&keys, esp, &[shared], &nonces).unwrap();
    for (prefix, i, r) in [("child", i, r), ("rekeyed", i2, r2)] {
        let known = |name: &str| known.opt(&format!("{prefix}_{name}")).to_vec();
        assert_eq!(*i.encryption, known("encryption_initiator"));
        assert_eq!(*r.encryption, known("encryption_responder"));
        assert_eq!(*i.integrity, known("integrity_initiator"));
        assert_eq!(*r.integrity, known("integrity_responder"));
    }
}

#[test]
fn keys_and_proofs_with_aes_gcm_equal_strongswans() {
    let suite = IkeSuite {
        encryption: Encryption::AesGcm128,
        integrity: None,
        prf: Prf::HmacSha256,
        group: Group::X25519,
        additional: vec![],
    };
    let esp = Suite::new(Encryption::AesGcm128, None).unwrap();
    check(
        &Known::parse(include_str!("../data/charon-gcm.txt")),
        &suite,
        esp,
    );
}

#[test]
fn keys_and_proofs_with_aes_cbc_equal_strongswans() {
    let suite = IkeSuite {
        encryption: Encryption::AesCbc256,
        integrity: Some(Integrity::HmacSha384_192),
        prf: Prf::HmacSha512,
        group: Group::P256,
        additional: vec![],
    };
    let esp = Suite::new(Encryption::AesCbc256, Some(Integrity::HmacSha256_128)).unwrap();
    check(
        &Known::parse(include_str!("../data/charon-cbc.txt")),
        &suite,
        esp,
    );
}
