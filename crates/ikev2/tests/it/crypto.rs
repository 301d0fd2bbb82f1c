//! Known answers, and what must be refused.

use ikev2::crypto::{ExchangeError, Group, IkeKeys, OpeningKey, Pending, Prf, SealingKey, respond};
use ikev2::select::{IkeProposal, IkeSuite};
use ikev2::wire::{Datagram, ExchangeType, Flags, Header, PayloadType};
use ikev2::{Nonces, Random, SpiPair};
use offload::{Encryption, Integrity, KeyMaterial};

use crate::support::Seeded;

/// Gives out fixed bytes.
struct Fixed(Vec<u8>);

impl Random for Fixed {
    fn fill(&mut self, out: &mut [u8]) {
        out.copy_from_slice(&self.0);
    }
}

fn hex(text: &str) -> Vec<u8> {
    hex::decode(text.replace([' ', '\n'], "")).unwrap()
}

#[test]
fn prf_rfc4231_case_2() {
    let data: &[u8] = b"what do ya want for nothing?";
    let known = [
        (Prf::HmacSha1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (
            Prf::HmacSha256,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            Prf::HmacSha384,
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
             8e2240ca5e69e2c78b3239ecfab21649",
        ),
        (
            Prf::HmacSha512,
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
             9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
        ),
    ];
    for (prf, expected) in known {
        assert_eq!(*prf.compute(b"Jefe", &[data]), hex(expected));
        assert_eq!(
            *prf.compute(b"Jefe", &[&data[..7], &data[7..]]),
            hex(expected)
        );
        assert_eq!(prf.output_len(), hex(expected).len());
    }
}

#[test]
fn prf_rfc4434_takes_keys_of_any_length() {
    let message: Vec<u8> = (0..20).collect();
    let (head, tail) = message.split_at(5);
    let known = [
        (&message[..16], "47f51b4564966215b8985c63055ed308"),
        (&message[..10], "0fa087af7d866e7653434e602fdde835"),
    ];
    for (key, expected) in known {
        assert_eq!(*Prf::Aes128Xcbc.compute(key, &[head, tail]), hex(expected));
    }
    assert_eq!(Prf::Aes128Xcbc.output_len(), 16);
}

/// Of each nonce only the first 64 bits go into SKEYSEED, and all into what expands it.
#[test]
fn keys_with_xcbc_take_half_of_each_nonce() {
    let suite = IkeSuite {
        encryption: Encryption::AesCbc128,
        integrity: Some(Integrity::AesXcbc96),
        prf: Prf::Aes128Xcbc,
        group: Group::X25519,
        additional: vec![],
    };
    let nonces = Nonces {
        initiator: (0..32).collect(),
        responder: (100..132).collect(),
    };
    let spis = SpiPair {
        initiator: 1,
        responder: 2,
    };
    let keys = IkeKeys::initial(&suite, b"shared", &nonces, spis).unwrap();
    let seed = [
        &nonces.initiator[..],
        &nonces.responder[..],
        &1_u64.to_be_bytes(),
        &2_u64.to_be_bytes(),
    ];
    let key = [&nonces.initiator[..8], &nonces.responder[..8]].concat();
    let skeyseed = suite.prf.compute(&key, &[b"shared"]);
    let stream = suite.prf.plus(&skeyseed, &seed, 7 * 16);
    assert_eq!(*keys.sk_d, stream[..16]);
    assert_eq!(*keys.initiator.integrity, stream[16..32]);
    assert_eq!(*keys.sk_pr, stream[96..]);
}

#[test]
fn prf_plus_chains_blocks_and_ends_at_255() {
    let prf = Prf::HmacSha256;
    let (key, seed): (&[u8], &[u8]) = (b"key", b"seed");
    let first = prf.compute(key, &[seed, &[1]]);
    let second = prf.compute(key, &[&first, seed, &[2]]);
    let stream = prf.plus(key, &[seed], 50);
    assert_eq!(stream[..32], first[..]);
    assert_eq!(stream[32..], second[..18]);
    assert_eq!(prf.plus(key, &[seed], 100_000).len(), 255 * 32);
}

#[test]
fn x25519_rfc7748_section_6_1() {
    let alice = hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
    let bob = hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
    let shared = hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    let ours = Pending::start(Group::X25519, &mut Fixed(alice)).unwrap();
    assert_eq!(
        ours.public(),
        hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    );
    let (public, secret) = respond(Group::X25519, ours.public(), &mut Fixed(bob)).unwrap();
    assert_eq!(
        public,
        hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    );
    assert_eq!(*secret, shared);
    assert_eq!(*ours.finish(&public).unwrap(), shared);
}

#[test]
fn p256_rfc5903_section_8_1() {
    let i = hex("C88F01F510D9AC3F70A292DAA2316DE544E9AAB8AFE84049C62A9C57862D1433");
    let r = hex("C6EF9C5D78AE012A011164ACB397CE2088685D8F06BF9BE0B283AB46476BEE53");
    let ours = Pending::start(Group::P256, &mut Fixed(i)).unwrap();
    assert_eq!(
        ours.public(),
        hex(
            "DAD0B65394221CF9B051E1FECA5787D098DFE637FC90B9EF945D0C3772581180
             5271A0461CDB8252D61F1C456FA3E59AB1F45B33ACCF5F58389E0577B8990BB3"
        )
    );
    let (public, secret) = respond(Group::P256, ours.public(), &mut Fixed(r)).unwrap();
    assert_eq!(
        public,
        hex(
            "D12DFB5289C8D4F81208B70270398C342296970A0BCCB74C736FC7554494BF63
             56FBF3CA366CC23E8157854C13C58D6AAC23F046ADA30F8353E74F33039872AB"
        )
    );
    assert_eq!(
        *secret,
        hex("D6840F6B42F6EDAFD13116E0E12565202FEF8E9ECE7DCE03812464D04B9442DE")
    );
}

/// Computed with Python's integers: pow(2, x, p) and pow(pow(2, y, p), x, p), SHA-256 of each, with x
/// = 01 02 03 ... and y = 80 81 82 ..., as many bytes as the group's exponents have.
#[test]
fn modp_agrees_with_another_implementation() {
    let known = [
        (
            Group::Modp2048,
            32,
            "0b9cb9036d2a594a7e3b43169bdf47ee9c7b64a2292203f1bb137b0b648d7e3c",
            "eeef1f117f6cb12d8b5fbf071b9c3ca1d52171c9637c882cb213c52171fbde1f",
        ),
        (
            Group::Modp3072,
            36,
            "8c1d2d6994a618a65f4e412f3c24311c6a45c420544929d21b0c81edd9d96de9",
            "0afda04cdf6897d4f6cf5f1bf91131152667c60331b85b186fdbcebc9090565b",
        ),
        (
            Group::Modp4096,
            44,
            "d50f72e8ccc1614d71f10f5730caf9024991e98e49ac49435734028fb0d0d603",
            "021892ce2bdd3d46aadb39a211f7ff56e465f04dd3cb0173c6af627b29709a62",
        ),
    ];
    for (group, len, public, shared) in known {
        let x: Vec<u8> = (1..=len).collect();
        let y: Vec<u8> = (0x80..0x80 + len).collect();
        let ours = Pending::start(group, &mut Fixed(x)).unwrap();
        let theirs = Pending::start(group, &mut Fixed(y)).unwrap();
        let digest = |bytes: &[u8]| {
            hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes))
        };
        assert_eq!(digest(ours.public()), public);
        assert_eq!(digest(&ours.finish(theirs.public()).unwrap()), shared);
        assert_eq!(ours.finish(theirs.public()), theirs.finish(ours.public()));
    }
}

#[test]
fn every_group_agrees() {
    for group in [
        Group::X25519,
        Group::P256,
        Group::P384,
        Group::Modp2048,
        Group::MlKem768,
    ] {
        let ours = Pending::start(group, &mut Seeded(1)).unwrap();
        let (public, secret) = respond(group, ours.public(), &mut Seeded(2)).unwrap();
        assert_eq!(ours.finish(&public).unwrap(), secret);
    }
}

#[test]
fn values_that_make_the_secret_predictable_are_refused() {
    // Points of small order on Curve25519: zero, one, and the two of order 8 of RFC 7748 fame.
    let small = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ];
    for point in small {
        refused(Group::X25519, &hex(point));
    }
    // Not on the curve, and of the wrong length.
    refused(Group::P256, &[1; 64]);
    refused(Group::P256, &[4; 63]);
    refused(Group::P384, &[1; 96]);
    refused(Group::X25519, &[9; 31]);
    refused(Group::MlKem768, &[0xff; 1184]);
    refused(Group::MlKem768, &[0; 1183]);
    // 0, 1, p - 1, p, p + 1 and short values.
    let mut prime = vec![0xff; 256];
    let public = Pending::start(Group::Modp2048, &mut Seeded(1)).unwrap();
    let hexadecimal = "C90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD\
        EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
        EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F\
        83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
        E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510\
        15728E5A8AACAA68";
    prime[8..248].copy_from_slice(&hex(hexadecimal));
    let (mut below, mut above) = (prime.clone(), prime.clone());
    below[255] = 0xfe;
    above[248..].fill(0);
    above[247] += 1;
    let small = |value| [vec![0; 255], vec![value]].concat();
    for value in [
        small(0),
        small(1),
        below.clone(),
        prime,
        above,
        vec![2; 255],
        vec![2; 257],
    ] {
        assert!(public.finish(&value).is_err());
        refused(Group::Modp2048, &value);
    }
    below[255] = 0xfd;
    assert!(public.finish(&below).is_ok());
    assert!(public.finish(&small(2)).is_ok());
}

fn refused(group: Group, value: &[u8]) {
    let result = respond(group, value, &mut Seeded(3)).map(|(public, _)| public);
    assert_eq!(
        result,
        Err(ExchangeError::PublicValue(group)),
        "{group:?} {value:02x?}"
    );
}

fn suites() -> Vec<IkeSuite> {
    let suite = |encryption, integrity| IkeSuite {
        encryption,
        integrity,
        prf: Prf::HmacSha256,
        group: Group::X25519,
        additional: vec![],
    };
    // AES-GCM with 128 bits first: the tests below take it by its place.
    let encrypting = Encryption::ALL.iter().filter(|one| one.encrypts());
    let combined = encrypting.filter(|one| one.is_combined());
    let separate = [
        Encryption::AesCbc128,
        Encryption::AesCbc192,
        Encryption::AesCbc256,
        Encryption::AesCtr128,
        Encryption::AesCtr192,
        Encryption::AesCtr256,
    ];
    let integrities = [
        Integrity::HmacSha256_128,
        Integrity::HmacSha512_256,
        Integrity::AesXcbc96,
    ]
    .map(Some);
    let mut suites = vec![suite(Encryption::AesGcm128, None)];
    suites.extend(combined.map(|one| suite(*one, None)));
    for integrity in integrities {
        suites.extend(separate.map(|one| suite(one, integrity)));
    }
    suites
}

fn header() -> Header {
    Header {
        spi_i: 1,
        spi_r: 2,
        first: PayloadType::SK,
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags {
            initiator: true,
            response: false,
        },
        message_id: 3,
    }
}

#[test]
fn sealed_messages_open_and_no_changed_bit_passes() {
    for suite in suites() {
        let keys = KeyMaterial::new(
            &vec![7; suite.encryption.key_len()],
            &vec![8; suite.integrity.map_or(0, Integrity::key_len)],
        );
        let mut sealing = SealingKey::new(&suite, &keys).unwrap();
        let opening = OpeningKey::new(&suite, &keys).unwrap();
        for len in 0..40 {
            for fragment in [None, Some((1, 2))] {
                let plain = vec![0x55; len];
                let first = PayloadType::NOTIFY;
                let sealed = sealing
                    .seal(header(), first, &plain, fragment, &mut Seeded(len as u64))
                    .unwrap();
                assert!(sealed.len() <= 28 + sealing.overhead() + len);
                let encrypted = Datagram::parse(&sealed).unwrap().encrypted.unwrap();
                assert_eq!((encrypted.first, encrypted.fragment), (first, fragment));
                assert_eq!(*opening.open(&sealed, &encrypted).unwrap(), plain);
                let bit = (len * 13) % (sealed.len() * 8);
                let mut changed = sealed.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    opening.open(&changed, &encrypted).is_err(),
                    "{suite} bit {bit}"
                );
            }
        }
    }
}

#[test]
fn each_message_has_its_own_counter() {
    // The same random numbers each time: it is no random number that makes them differ.
    for suite in suites()
        .iter()
        .filter(|suite| suite.encryption.iv_len() == 8)
    {
        let keys = KeyMaterial::new(
            &vec![7; suite.encryption.key_len()],
            &vec![8; suite.integrity.map_or(0, Integrity::key_len)],
        );
        let mut sealing = SealingKey::new(suite, &keys).unwrap();
        let mut ivs = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let sealed = sealing
                .seal(header(), PayloadType::NONE, &[], None, &mut Seeded(1))
                .unwrap();
            assert!(ivs.insert(sealed[32..40].to_vec()), "{suite}");
        }
    }
}

/// An IKE SA without encryption would give the identities away: AES-GMAC is for packets only.
#[test]
fn ciphers_that_do_not_encrypt_protect_no_messages() {
    for encryption in [Encryption::Null, Encryption::AesGmac128] {
        let integrity = (encryption == Encryption::Null).then_some(Integrity::HmacSha256_128);
        let suite = IkeSuite {
            encryption,
            integrity,
            ..suites().remove(0)
        };
        let keys = KeyMaterial::new(&vec![7; encryption.key_len()], &[8; 32]);
        assert!(SealingKey::new(&suite, &keys).is_none());
        assert!(OpeningKey::new(&suite, &keys).is_none());
        let proposal = IkeProposal {
            encryption: vec![encryption],
            integrity: integrity.into_iter().collect(),
            prf: vec![suite.prf],
            groups: vec![suite.group],
            additional: vec![],
        };
        assert_eq!(IkeSuite::from_wire(&proposal.to_wire(1, &[])), None);
    }
}

#[test]
fn padding_longer_than_the_content_is_refused() {
    // AES-GCM with a pad length of 9 behind 3 bytes, as only the key's holder can make it.
    let suite = &suites()[0];
    let keys = KeyMaterial::new(&[7; 20], &[]);
    let key = aws_lc_rs::aead::UnboundKey::new(&aws_lc_rs::aead::AES_128_GCM, &[7; 16]).unwrap();
    let key = aws_lc_rs::aead::LessSafeKey::new(key);
    let opening = OpeningKey::new(suite, &keys).unwrap();
    for (pad, opens) in [(3, true), (4, false), (9, false)] {
        let mut text = vec![1, 2, 3, pad];
        let total = 28 + 4 + 8 + text.len() + 16;
        let mut message = header().encode(total).to_vec();
        message.extend([0, 0, 0, (total - 28) as u8]);
        let nonce = aws_lc_rs::aead::Nonce::assume_unique_for_key(
            [&[7; 4][..], &[0; 8]].concat().try_into().unwrap(),
        );
        let aad = aws_lc_rs::aead::Aad::from(message.clone());
        key.seal_in_place_append_tag(nonce, aad, &mut text).unwrap();
        message.extend([0; 8]);
        message.extend(text);
        let encrypted = Datagram::parse(&message).unwrap().encrypted.unwrap();
        assert_eq!(opening.open(&message, &encrypted).is_ok(), opens, "{pad}");
    }
}

/// Values of another implementation of HMAC and prf+, with the formula of RFC 5723 §5.1.
#[test]
fn keys_of_a_resumed_session_come_from_the_old_ones_and_fresh_nonces() {
    let suite = IkeSuite {
        encryption: Encryption::AesGcm128,
        integrity: None,
        prf: Prf::HmacSha256,
        group: Group::X25519,
        additional: vec![],
    };
    let sk_d: Vec<u8> = (0..32).collect();
    let nonces = Nonces {
        initiator: vec![0x11; 32],
        responder: vec![0x22; 32],
    };
    let spis = SpiPair {
        initiator: 0x0102_0304_0506_0708,
        responder: 0x1112_1314_1516_1718,
    };
    let keys = IkeKeys::resumed(&suite, &sk_d, &nonces, spis).unwrap();
    assert_eq!(
        hex::encode(&*keys.sk_d),
        "d9f3f1b7d45adeaaf316c9e8527642b9f08ea8721de596975dce42bcbab835ec"
    );
    assert_eq!(
        hex::encode(&*keys.initiator.encryption),
        "9379336565297bd00a7128cac3af09c0d4ca25d0"
    );
    assert_eq!(
        hex::encode(&*keys.responder.encryption),
        "53cd565bd73c635d36f98d1e60159ff6afa9d22a"
    );
    assert_eq!(
        hex::encode(&*keys.sk_pi),
        "3e4c63f2e4385e38c25eaa0daad8e9b0ffa17105131546ed3c37d0132abd384a"
    );
    assert_eq!(
        hex::encode(&*keys.sk_pr),
        "7b063e8c8d0a0d7e013050e4e91afc7729c472530f0472ddb2cdea5de66d4e68"
    );
}
