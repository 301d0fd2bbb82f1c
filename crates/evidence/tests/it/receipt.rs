//! Receipts: what is accepted, and a reason for each refusal.

use evidence::digest::Sha256Digest;
use evidence::receipt::{self, Receipt, ReceiptError, Verdict, VerifiedReceipt};
use pki::cert::CertificateChain;
use pki::key::KeyAlgorithm;
use time::OffsetDateTime;

use crate::identity::{Identity, NOW, Root};
use crate::tools::Workshop;

pub(crate) fn example() -> Receipt {
    Receipt {
        schema: receipt::SCHEMA.into(),
        block_sha256: Sha256Digest::of(b"block"),
        size: 4_711,
        device: "camera-17".into(),
        sequence: Some(42),
        manifest_sha256: Some(Sha256Digest::of(b"manifest")),
        verdict: Verdict::Accepted,
        reason: None,
        received_at: NOW,
        log_origin: "log.example.org/cordon".into(),
        log_index: 7,
        checkpoint: None,
    }
}

fn with_checkpoint(note: &str) -> Receipt {
    Receipt {
        schema: receipt::SCHEMA_2.into(),
        checkpoint: Some(note.into()),
        ..example()
    }
}

fn trust_all(_: &CertificateChain, _: OffsetDateTime) -> Result<(), std::io::Error> {
    Ok(())
}

fn verify(der: &[u8]) -> Result<VerifiedReceipt, ReceiptError> {
    receipt::verify(der, trust_all)
}

fn centre() -> Identity {
    Root::new().identity("centre", KeyAlgorithm::EcdsaP256)
}

#[test]
fn signed_receipt_comes_back_with_its_signer() {
    let centre = centre();
    for receipt in [
        example(),
        with_checkpoint("log.example.org/cordon\n8\nAAAA\n\n\u{2014} log AAAA\n"),
        Receipt {
            verdict: Verdict::Quarantined,
            reason: Some("chunk-authentication".into()),
            sequence: None,
            manifest_sha256: None,
            ..example()
        },
    ] {
        let der = receipt.sign(&centre.key, &centre.chain).unwrap();
        let verified = verify(&der).unwrap();
        assert_eq!(verified.receipt(), &receipt);
        assert_eq!(verified.der(), der);
        assert_eq!(verified.signer_chain(), &centre.chain);
        assert_eq!(verified.signing_time(), NOW);
    }
}

#[test]
fn openssl_verifies_a_receipt() {
    let root = Root::new();
    let centre = root.identity("centre", KeyAlgorithm::EcdsaP256);
    let shop = Workshop::new();
    shop.root(&root);
    shop.write(
        "receipt.p7m",
        &example().sign(&centre.key, &centre.chain).unwrap(),
    );
    let json = shop.openssl_ok(&format!(
        "cms -verify -cades -binary -inform DER -in receipt.p7m -CAfile root.pem -purpose any -attime {}",
        NOW.unix_timestamp()
    ));
    assert_eq!(json, example().to_canonical().unwrap());
    assert_eq!(Receipt::parse(&json).unwrap(), example());
}

#[test]
fn trust_is_asked_with_chain_and_time() {
    let centre = centre();
    let der = example().sign(&centre.key, &centre.chain).unwrap();
    let refused = receipt::verify(&der, |chain, at| {
        assert_eq!(chain, &centre.chain);
        assert_eq!(at, NOW);
        Err("revoked")
    });
    assert_eq!(refused.unwrap_err().code(), "receipt-signer-untrusted");
}

#[test]
fn every_flip_of_a_signed_receipt_is_refused_or_says_the_same() {
    let centre = centre();
    let der = example().sign(&centre.key, &centre.chain).unwrap();
    for at in 0..der.len() {
        let mut flipped = der.clone();
        flipped[at] ^= 0x10;
        if let Ok(verified) = verify(&flipped) {
            // Only the issuers' certificates, which the trust decision judges, are outside.
            assert_eq!(verified.receipt(), &example());
            assert_eq!(verified.signer_chain().leaf(), &centre.certificate);
        }
        assert!(verify(&der[..at]).is_err());
    }
}

#[test]
fn each_rule_of_the_format_is_kept_when_signing_and_reading() {
    type Change = fn(&mut Receipt);
    let cases: [(Change, &str); 15] = [
        (|r| r.schema = "cordon.receipt/3".into(), "schema"),
        (|r| r.schema = "cordon.receipt/2".into(), "checkpoint"),
        (|r| r.checkpoint = Some("note".into()), "checkpoint"),
        (|r| *r = with_checkpoint(""), "checkpoint"),
        (|r| *r = with_checkpoint("a\tb"), "checkpoint"),
        (
            |r| *r = with_checkpoint(&"a".repeat(4 * 1024 + 1)),
            "checkpoint",
        ),
        (|r| r.size = 1 << 53, "size"),
        (|r| r.sequence = Some(0), "sequence"),
        (|r| r.sequence = None, "sequence"),
        (|r| r.device.clear(), "device"),
        (|r| r.log_origin = "a\nb".into(), "log_origin"),
        (|r| r.reason = Some("why".into()), "reason"),
        (|r| r.verdict = Verdict::Quarantined, "reason"),
        (
            |r| r.received_at -= time::Duration::days(365 * 30),
            "received_at",
        ),
        (
            |r| r.received_at = r.received_at.to_offset(time::macros::offset!(+1)),
            "received_at",
        ),
    ];
    let centre = centre();
    for (change, expected) in cases {
        let mut receipt = example();
        change(&mut receipt);
        match receipt.sign(&centre.key, &centre.chain) {
            Err(ReceiptError::Field { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn json_outside_the_schema_is_refused_by_reason() {
    let good = String::from_utf8(example().to_canonical().unwrap()).unwrap();
    let code = |text: &str| Receipt::parse(text.as_bytes()).unwrap_err().code();
    assert_eq!(code(""), "receipt-malformed");
    assert_eq!(
        code(&good.replacen('{', "{\"extra\":1,", 1)),
        "receipt-malformed"
    );
    assert_eq!(code(&format!("{good} ")), "receipt-not-canonical");
    assert_eq!(
        code(&good.replace("receipt/1", "receipt/9")),
        "receipt-field-invalid"
    );
    assert_eq!(
        code(&" ".repeat(receipt::MAX_RECEIPT_LEN + 1)),
        "receipt-too-large"
    );
    let centre = centre();
    let signed = evidence::cms::sign(
        &centre.key,
        &centre.chain,
        b"{}",
        evidence::cms::Placement::Attached,
        NOW,
    );
    assert_eq!(
        verify(&signed.unwrap()).unwrap_err().code(),
        "receipt-malformed"
    );
    assert_eq!(verify(b"").unwrap_err().code(), "receipt-signature-invalid");
}
