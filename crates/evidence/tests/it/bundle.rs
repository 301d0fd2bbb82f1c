//! Trust bundles: what is accepted, and a reason for each refusal.

use evidence::bundle::{self, BundleError, TrustBundle, VerifiedBundle};
use evidence::receipt;
use pki::cert::CertificateChain;
use pki::key::KeyAlgorithm;
use time::OffsetDateTime;

use crate::identity::{Identity, NOW, Root};

fn signer(name: &str) -> Identity {
    Root::new().identity(name, KeyAlgorithm::EcdsaP256)
}

fn example() -> TrustBundle {
    let recipient = signer("centre intake");
    let certificate = bundle::encoded(&recipient.certificate).unwrap();
    TrustBundle {
        schema: bundle::SCHEMA.into(),
        version: 3,
        issued_at: NOW,
        recipients: vec![certificate.clone()],
        authorities: vec![certificate],
        lists: vec![bundle::encoded_list(b"list")],
        log_key: "log.example.org+0a0b0c0d+AAAA".into(),
    }
}

fn trust_all(_: &CertificateChain, _: OffsetDateTime) -> Result<(), std::io::Error> {
    Ok(())
}

fn verify(der: &[u8]) -> Result<VerifiedBundle, BundleError> {
    bundle::verify(der, trust_all)
}

#[test]
fn signed_bundle_comes_back() {
    let signer = signer(bundle::SIGNER);
    let der = example_signed(&signer);
    let verified = verify(&der).unwrap();
    assert_eq!(verified.der(), der);
    let bundle = verified.bundle();
    assert_eq!(bundle.recipients().unwrap().len(), 1);
    assert_eq!(bundle.lists().unwrap(), [b"list"]);
    let refused = bundle::verify(&der, |_, _| Err("revoked"));
    assert!(matches!(refused, Err(BundleError::Untrusted(_))));
}

fn example_signed(signer: &Identity) -> Vec<u8> {
    example().sign(&signer.key, &signer.chain).unwrap()
}

#[test]
fn roles_of_bundles_and_receipts_are_not_exchanged() {
    let der = example_signed(&signer("Acquisition Centre"));
    assert!(
        matches!(verify(&der), Err(BundleError::OtherSigner { found }) if found == "Acquisition Centre")
    );
    let other = signer(bundle::SIGNER);
    let receipt = crate::receipt::example()
        .sign(&other.key, &other.chain)
        .unwrap();
    let refused = receipt::verify(&receipt, trust_all).unwrap_err();
    assert!(matches!(refused, receipt::ReceiptError::OtherRole));
}

#[test]
fn every_flip_of_a_signed_bundle_is_refused_or_says_the_same() {
    let signer = signer(bundle::SIGNER);
    let original = example();
    let der = original.sign(&signer.key, &signer.chain).unwrap();
    for at in (0..der.len()).step_by(3) {
        let mut flipped = der.clone();
        flipped[at] ^= 0x10;
        if let Ok(verified) = verify(&flipped) {
            assert_eq!(verified.bundle(), &original);
        }
        assert!(verify(&der[..at]).is_err());
    }
}

#[test]
fn each_rule_of_the_format_is_kept_when_signing_and_reading() {
    type Change = fn(&mut TrustBundle);
    let cases: [(Change, &str); 9] = [
        (|b| b.schema = "cordon.trust-bundle/2".into(), "schema"),
        (|b| b.version = 0, "version"),
        (|b| b.version = 1 << 53, "version"),
        (
            |b| b.issued_at += time::Duration::milliseconds(1),
            "issued_at",
        ),
        (|b| b.recipients.clear(), "recipients"),
        (
            |b| b.recipients = vec![String::new(); bundle::MAX_RECIPIENTS + 1],
            "recipients",
        ),
        (|b| b.authorities.clear(), "authorities"),
        (
            |b| b.lists = vec![String::new(); bundle::MAX_LISTS + 1],
            "lists",
        ),
        (|b| b.log_key = "a\nb".into(), "log_key"),
    ];
    for (change, expected) in cases {
        let mut bundle = example();
        change(&mut bundle);
        match bundle.to_canonical() {
            Err(BundleError::Field { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    let good = String::from_utf8(example().to_canonical().unwrap()).unwrap();
    let parse = |text: &str| TrustBundle::parse(text.as_bytes()).unwrap_err();
    assert!(matches!(
        parse(&format!("{good} ")),
        BundleError::NotCanonical
    ));
    assert!(matches!(
        parse(&good.replacen('{', "{\"extra\":1,", 1)),
        BundleError::Json(_)
    ));
    let long = " ".repeat(bundle::MAX_BUNDLE_LEN + 1);
    assert!(matches!(parse(&long), BundleError::TooLarge { .. }));
}

#[test]
fn content_hash_ignores_version_and_time_only() {
    let one = example();
    let same = TrustBundle {
        version: 9,
        issued_at: NOW + time::Duration::days(1),
        ..one.clone()
    };
    assert_eq!(
        one.content_sha256().unwrap(),
        same.content_sha256().unwrap()
    );
    let other = TrustBundle {
        lists: Vec::new(),
        ..one.clone()
    };
    assert_ne!(
        one.content_sha256().unwrap(),
        other.content_sha256().unwrap()
    );
}

#[test]
fn sample_of_the_fuzz_corpus_is_a_bundle() {
    let sample = include_bytes!("../../../fuzz/corpus/trust_bundle/small");
    assert_eq!(TrustBundle::parse(sample).unwrap().version, 7);
}
