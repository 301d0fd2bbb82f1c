//! CMS: round trips, refusals, and agreement with `openssl cms` in both directions.

use cms::content_info::ContentInfo;
use cms::signed_data::{SignedData, SignerInfos};
use der::asn1::{Any, SetOfVec};
use der::{Decode, Encode};
use evidence::cms::{
    CmsError, Placement, RecipientKey, encrypt, parse_auth_enveloped_data, parse_signed_data, sign,
};
use pki::key::KeyAlgorithm;

use crate::identity::{Identity, NOW, Root};
use crate::tools::Workshop;

const SIGNERS: [KeyAlgorithm; 4] = [
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::Ed25519,
];
const RECIPIENTS: [KeyAlgorithm; 3] = [
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::Rsa2048,
];
const TEXT: &[u8] = b"{\"speed_kmh\":91}";

fn signed(identity: &Identity, placement: Placement) -> Vec<u8> {
    sign(&identity.key, &identity.chain, TEXT, placement, NOW).unwrap()
}

fn recipient(identity: &Identity) -> RecipientKey {
    RecipientKey::new(identity.key.clone(), identity.certificate.clone()).unwrap()
}

fn verify_code(der: &[u8]) -> &'static str {
    match parse_signed_data(der).and_then(|m| m.verify()) {
        Ok(_) => "accepted",
        Err(e) => e.code(),
    }
}

fn decrypt_code(der: &[u8], keys: &[RecipientKey]) -> &'static str {
    match parse_auth_enveloped_data(der).and_then(|m| m.decrypt(keys)) {
        Ok(_) => "accepted",
        Err(e) => e.code(),
    }
}

#[test]
fn signature_of_every_algorithm_verifies() {
    let root = Root::new();
    for algorithm in SIGNERS {
        let signer = root.identity("camera-17", algorithm);
        let attached = parse_signed_data(&signed(&signer, Placement::Attached)).unwrap();
        let verified = attached.verify().unwrap();
        assert_eq!(verified.content, TEXT, "{algorithm}");
        assert_eq!(verified.signing_time, NOW);
        assert_eq!(verified.signer_chain, signer.chain);

        let detached = parse_signed_data(&signed(&signer, Placement::Detached)).unwrap();
        assert_eq!(detached.verify_detached(TEXT).unwrap().content, TEXT);
        assert!(matches!(
            detached.verify_detached(b"other"),
            Err(CmsError::MessageDigest)
        ));
        assert!(matches!(detached.verify(), Err(CmsError::ContentMissing)));
        assert!(matches!(
            attached.verify_detached(TEXT),
            Err(CmsError::ContentPresent)
        ));
    }
}

#[test]
fn openssl_verifies_our_signature_with_cades() {
    let root = Root::new();
    let shop = Workshop::new();
    shop.root(&root);
    for algorithm in SIGNERS {
        // OpenSSL 3.0 fails on every CMS message signed with Ed25519 ("invalid digest").
        if algorithm == KeyAlgorithm::Ed25519 {
            continue;
        }
        let signer = root.identity("camera-17", algorithm);
        shop.write("signed.der", &signed(&signer, Placement::Attached));
        let content = shop.openssl_ok(&format!(
            "cms -verify -cades -binary -inform DER -in signed.der -CAfile root.pem -purpose any -attime {}",
            NOW.unix_timestamp()
        ));
        assert_eq!(content, TEXT, "{algorithm}");
    }
}

#[test]
fn we_verify_what_openssl_signs_with_cades() {
    let root = Root::new();
    let shop = Workshop::new();
    shop.write("text", TEXT);
    for algorithm in [
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::EcdsaP384,
        KeyAlgorithm::Rsa2048,
    ] {
        let signer = root.identity("camera-17", algorithm);
        shop.identity("signer", &signer);
        shop.openssl_ok("cms -sign -cades -binary -nodetach -md sha256 -outform DER -in text -out signed.der -signer signer.pem -inkey signer.key");
        let verified = parse_signed_data(&shop.read("signed.der"))
            .and_then(|m| m.verify())
            .unwrap_or_else(|e| panic!("{algorithm}: {e:?}"));
        assert_eq!(verified.content, TEXT);
        assert_eq!(verified.signer_chain.leaf(), &signer.certificate);

        // With the key identifier instead of issuer and serial number.
        shop.openssl_ok("cms -sign -cades -keyid -binary -md sha384 -outform DER -in text -out signed.der -signer signer.pem -inkey signer.key");
        let message = parse_signed_data(&shop.read("signed.der")).unwrap();
        assert_eq!(message.verify_detached(TEXT).unwrap().content, TEXT);
    }
}

#[test]
fn foreign_messages_outside_the_profile_are_refused_by_name() {
    let root = Root::new();
    let shop = Workshop::new();
    shop.write("text", TEXT);
    shop.identity("signer", &root.identity("camera-17", KeyAlgorithm::Rsa2048));
    let cases = [
        ("-nodetach -md sha256", "cms-attribute-missing"),
        ("-nodetach -cades -md sha1", "cms-digest-algorithm"),
        ("-nodetach -noattr -md sha256", "cms-attribute-missing"),
        (
            "-nodetach -cades -nocerts -md sha256",
            "cms-signer-certificate-missing",
        ),
        (
            "-nodetach -stream -cades -md sha256",
            "cms-indefinite-length",
        ),
        ("-cades -md sha256", "cms-content-missing"),
    ];
    for (options, expected) in cases {
        shop.openssl_ok(&format!("cms -sign -binary {options} -outform DER -in text -out signed.der -signer signer.pem -inkey signer.key"));
        assert_eq!(verify_code(&shop.read("signed.der")), expected, "{options}");
    }
}

/// Takes a signed message apart, lets `change` alter it, and puts it together again.
fn altered(der: &[u8], change: impl FnOnce(&mut SignedData)) -> Vec<u8> {
    let mut info = ContentInfo::from_der(der).unwrap();
    let mut data: SignedData = info.content.decode_as().unwrap();
    change(&mut data);
    info.content = Any::encode_from(&data).unwrap();
    info.to_der().unwrap()
}

fn with_attribute(data: &mut SignedData, change: impl Fn(&mut Vec<x509_cert::attr::Attribute>)) {
    let mut info = data.signer_infos.0.get(0).unwrap().clone();
    let mut attributes = info.signed_attrs.take().unwrap().into_vec();
    change(&mut attributes);
    info.signed_attrs = Some(SetOfVec::try_from(attributes).unwrap());
    data.signer_infos = SignerInfos(SetOfVec::try_from(vec![info]).unwrap());
}

#[test]
fn every_alteration_of_a_signature_has_its_own_reason() {
    use const_oid::db::rfc5911 as oid;
    use const_oid::db::rfc5912::{ID_SHA_384, ID_SHA_512};
    let root = Root::new();
    let signer = root.identity("camera-17", KeyAlgorithm::EcdsaP256);
    let other = root.identity("camera-18", KeyAlgorithm::EcdsaP256);
    let der = signed(&signer, Placement::Attached);
    assert_eq!(verify_code(&der), "accepted");
    assert_eq!(verify_code(&altered(&der, |_| ())), "accepted");

    let check = |expected: &str, change: &dyn Fn(&mut SignedData)| {
        assert_eq!(verify_code(&altered(&der, |d| change(d))), expected);
    };
    check("cms-message-digest", &|d| {
        let any = Any::new(der::Tag::OctetString, &b"other"[..]).unwrap();
        d.encap_content_info.econtent = Some(any);
    });
    for (attribute, expected) in [
        (oid::ID_CONTENT_TYPE, "cms-attribute-missing"),
        (oid::ID_MESSAGE_DIGEST, "cms-attribute-missing"),
        (oid::ID_SIGNING_TIME, "cms-attribute-missing"),
        (oid::ID_AA_SIGNING_CERTIFICATE_V_2, "cms-attribute-missing"),
    ] {
        check(expected, &|d| {
            with_attribute(d, |a| a.retain(|x| x.oid != attribute));
        });
    }
    check("cms-content-type-attribute", &|d| {
        with_attribute(d, |a| {
            let value = Any::encode_from(&oid::ID_SIGNED_DATA).unwrap();
            let attribute = a
                .iter_mut()
                .find(|x| x.oid == oid::ID_CONTENT_TYPE)
                .unwrap();
            attribute.values = SetOfVec::try_from(vec![value]).unwrap();
        });
    });
    check("cms-attribute-malformed", &|d| {
        with_attribute(d, |a| {
            let attribute = a
                .iter_mut()
                .find(|x| x.oid == oid::ID_SIGNING_TIME)
                .unwrap();
            attribute.values = SetOfVec::new();
        });
    });
    check("cms-signature", &|d| {
        with_attribute(d, |a| {
            let mut extra = a[0].clone();
            extra.oid = "1.2.3.4".parse().unwrap();
            a.push(extra);
        });
    });
    check("cms-digest-algorithm", &|d| {
        let mut info = d.signer_infos.0.get(0).unwrap().clone();
        info.digest_alg.oid = ID_SHA_384; // not in the list of digest algorithms
        d.signer_infos = SignerInfos(SetOfVec::try_from(vec![info]).unwrap());
    });
    check("cms-message-digest", &|d| {
        set_digest(d, ID_SHA_512); // listed, but the digest has another length
    });
    check("cms-signer-count", &|d| {
        d.signer_infos = SignerInfos(SetOfVec::new())
    });
    check("cms-signer-certificate-missing", &|d| d.certificates = None);
    check("cms-version", &|d| {
        d.version = cms::content_info::CmsVersion::V5
    });
    check("cms-content-type", &|d| {
        d.encap_content_info.econtent_type = oid::ID_SIGNED_DATA;
    });
    // The signature of one camera presented with the certificate of another.
    let stolen = parse_then_swap(&der, &signed(&other, Placement::Attached));
    assert_eq!(verify_code(&stolen), "cms-signing-certificate");
}

fn set_digest(data: &mut SignedData, oid: der::asn1::ObjectIdentifier) {
    let mut info = data.signer_infos.0.get(0).unwrap().clone();
    info.digest_alg.oid = oid;
    data.digest_algorithms = SetOfVec::try_from(vec![info.digest_alg.clone()]).unwrap();
    data.signer_infos = SignerInfos(SetOfVec::try_from(vec![info]).unwrap());
}

/// `der` with signer identifier and certificates taken from `donor`.
fn parse_then_swap(der: &[u8], donor: &[u8]) -> Vec<u8> {
    let donor: SignedData = ContentInfo::from_der(donor)
        .unwrap()
        .content
        .decode_as()
        .unwrap();
    altered(der, |d| {
        let mut info = d.signer_infos.0.get(0).unwrap().clone();
        info.sid = donor.signer_infos.0.get(0).unwrap().sid.clone();
        d.signer_infos = SignerInfos(SetOfVec::try_from(vec![info]).unwrap());
        d.certificates = donor.certificates.clone();
    })
}

#[test]
fn digest_must_belong_to_the_signature_algorithm() {
    use const_oid::db::rfc5912::{ECDSA_WITH_SHA_384, SHA_256_WITH_RSA_ENCRYPTION};
    let root = Root::new();
    let signer = root.identity("camera-17", KeyAlgorithm::EcdsaP256);
    let der = signed(&signer, Placement::Attached);
    for (oid, expected) in [
        (ECDSA_WITH_SHA_384, "cms-digest-for-signature"),
        (SHA_256_WITH_RSA_ENCRYPTION, "cms-signature"),
    ] {
        let changed = altered(&der, |d| {
            let mut info = d.signer_infos.0.get(0).unwrap().clone();
            info.signature_algorithm.oid = oid;
            d.signer_infos = SignerInfos(SetOfVec::try_from(vec![info]).unwrap());
        });
        assert_eq!(verify_code(&changed), expected);
    }
}

#[test]
fn encodings_other_than_der_are_refused() {
    let root = Root::new();
    let signer = root.identity("camera-17", KeyAlgorithm::EcdsaP256);
    let der = signed(&signer, Placement::Attached);
    let mut trailing = der.clone();
    trailing.push(0);
    assert_eq!(verify_code(&trailing), "cms-trailing-data");
    assert_eq!(verify_code(&der[..der.len() - 1]), "cms-malformed");
    assert_eq!(verify_code(&[]), "cms-malformed");
    let mut indefinite = der.clone();
    indefinite[1] = 0x80;
    assert_eq!(verify_code(&indefinite), "cms-indefinite-length");
    let large = vec![0x30; evidence::cms::MAX_MESSAGE_LEN + 1];
    assert_eq!(verify_code(&large), "cms-too-large");
    let enveloped = encrypt(TEXT, std::slice::from_ref(&signer.certificate)).unwrap();
    assert_eq!(verify_code(&enveloped), "cms-content-type");
    assert_eq!(
        decrypt_code(&der, &[recipient(&signer)]),
        "cms-content-type"
    );
}

#[test]
fn truncated_and_altered_messages_never_panic() {
    let root = Root::new();
    let signer = root.identity("camera-17", KeyAlgorithm::EcdsaP256);
    let keys = [recipient(&signer)];
    let message = signed(&signer, Placement::Attached);
    let envelope = encrypt(TEXT, std::slice::from_ref(&signer.certificate)).unwrap();
    for len in 0..message.len() {
        assert_ne!(verify_code(&message[..len]), "accepted");
    }
    for at in 0..envelope.len() {
        assert_ne!(decrypt_code(&envelope[..at], &keys), "accepted");
        let mut flipped = envelope.clone();
        flipped[at] ^= 0x40;
        // The tag covers the content only, so the outcome may be the content itself, never other.
        if let Ok(text) = parse_auth_enveloped_data(&flipped).and_then(|m| m.decrypt(&keys)) {
            assert_eq!(text.as_slice(), TEXT);
        }
    }
}

#[test]
fn envelope_opens_for_each_recipient_and_nobody_else() {
    let root = Root::new();
    let people: Vec<Identity> = RECIPIENTS.map(|a| root.identity("centre", a)).into();
    let certificates: Vec<_> = people.iter().map(|p| p.certificate.clone()).collect();
    let der = encrypt(TEXT, &certificates).unwrap();
    for person in &people {
        let message = parse_auth_enveloped_data(&der).unwrap();
        let text = message.decrypt(&[recipient(person)]).unwrap();
        assert_eq!(text.as_slice(), TEXT);
    }
    let stranger = root.identity("centre", KeyAlgorithm::EcdsaP256);
    assert_eq!(
        decrypt_code(&der, &[recipient(&stranger)]),
        "cms-not-for-us"
    );
    assert_eq!(decrypt_code(&der, &[]), "cms-not-for-us");
    assert!(matches!(
        RecipientKey::new(stranger.key, people[0].certificate.clone()),
        Err(CmsError::RecipientEntry)
    ));
}

#[test]
fn unusable_recipients_are_refused() {
    let root = Root::new();
    let signer_only = root.identity("camera-17", KeyAlgorithm::Ed25519);
    assert!(matches!(
        encrypt(TEXT, &[signer_only.certificate]),
        Err(CmsError::Key(_))
    ));
    assert!(matches!(
        encrypt(TEXT, &[]),
        Err(CmsError::RecipientCount { count: 0, .. })
    ));
    let one = root.identity("centre", KeyAlgorithm::EcdsaP256).certificate;
    assert!(encrypt(TEXT, &vec![one.clone(); 33]).is_err());
}

#[test]
fn openssl_decrypts_our_envelope() {
    let root = Root::new();
    let shop = Workshop::new();
    let people: Vec<Identity> = RECIPIENTS.map(|a| root.identity("centre", a)).into();
    let certificates: Vec<_> = people.iter().map(|p| p.certificate.clone()).collect();
    shop.write("envelope.der", &encrypt(TEXT, &certificates).unwrap());
    for person in &people {
        shop.identity("centre", person);
        let text = shop.openssl_ok(
            "cms -decrypt -binary -inform DER -in envelope.der -recip centre.pem -inkey centre.key",
        );
        assert_eq!(text, TEXT);
    }
}

#[test]
fn we_decrypt_what_openssl_encrypts() {
    let root = Root::new();
    let shop = Workshop::new();
    shop.write("text", TEXT);
    let cases = [
        (KeyAlgorithm::EcdsaP256, "-keyopt ecdh_kdf_md:sha256"),
        (KeyAlgorithm::EcdsaP256, "-keyopt ecdh_kdf_md:sha512"),
        (KeyAlgorithm::EcdsaP384, "-keyopt ecdh_kdf_md:sha384"),
        (KeyAlgorithm::EcdsaP384, ""), // its default, SHA-1 in the derivation
        (
            KeyAlgorithm::Rsa2048,
            "-keyopt rsa_padding_mode:oaep -keyopt rsa_oaep_md:sha256",
        ),
    ];
    for (algorithm, options) in cases {
        let centre = root.identity("centre", algorithm);
        shop.identity("centre", &centre);
        shop.openssl_ok(&format!(
            "cms -encrypt -binary -aes-256-gcm -outform DER -in text -out envelope.der -recip centre.pem {options}"
        ));
        let text = parse_auth_enveloped_data(&shop.read("envelope.der"))
            .and_then(|m| m.decrypt(&[recipient(&centre)]))
            .unwrap_or_else(|e| panic!("{algorithm} {options}: {e:?}"));
        assert_eq!(text.as_slice(), TEXT);
    }
}

#[test]
fn weak_foreign_envelopes_are_refused_by_name() {
    let root = Root::new();
    let shop = Workshop::new();
    shop.write("text", TEXT);
    let rsa = root.identity("centre", KeyAlgorithm::Rsa2048);
    let ec = root.identity("centre", KeyAlgorithm::EcdsaP256);
    let cases = [
        (&rsa, "-aes-256-gcm", "cms-key-management-algorithm"), // PKCS#1 v1.5
        (
            &rsa,
            "-aes-256-gcm -keyopt rsa_padding_mode:oaep", // SHA-1
            "cms-key-management-algorithm",
        ),
        (
            &rsa,
            "-aes-256-gcm -keyopt rsa_padding_mode:oaep -keyopt rsa_oaep_md:sha256 -keyopt rsa_mgf1_md:sha1",
            "cms-key-management-algorithm",
        ),
        (&ec, "-aes-128-gcm", "cms-content-encryption-algorithm"),
        (&ec, "-aes-256-cbc", "cms-content-type"), // EnvelopedData, not authenticated
        (&ec, "-aes-256-gcm -stream", "cms-indefinite-length"),
    ];
    for (person, options, expected) in cases {
        shop.identity("centre", person);
        shop.openssl_ok(&format!(
            "cms -encrypt -binary -outform DER -in text -out envelope.der {} -recip centre.pem {}",
            options.split(' ').next().unwrap(),
            options.split_once(' ').map_or("", |o| o.1),
        ));
        let code = decrypt_code(&shop.read("envelope.der"), &[recipient(person)]);
        assert_eq!(code, expected, "{options}");
    }
}
