//! Receipts: one spelling, and no edit of a signed one that says something else.

use std::sync::OnceLock;

use crate::support::{edit, world};
use evidence::digest::Sha256Digest;
use evidence::receipt::{self, Receipt, Verdict};

fn sample() -> &'static (Receipt, Vec<u8>) {
    static SAMPLE: OnceLock<(Receipt, Vec<u8>)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let w = world();
        let receipt = Receipt {
            schema: receipt::SCHEMA.into(),
            block_sha256: Sha256Digest::of(b"block"),
            size: 5,
            device: "camera-17".into(),
            sequence: Some(1),
            manifest_sha256: Some(Sha256Digest::of(b"manifest")),
            verdict: Verdict::Accepted,
            reason: None,
            received_at: w.now,
            log_origin: "example.org/log".into(),
            log_index: 7,
            checkpoint: None,
        };
        let der = receipt.sign(&w.signer_key, &w.signer).unwrap();
        (receipt, der)
    })
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    if let Ok(receipt) = Receipt::parse(data) {
        assert_eq!(receipt.to_canonical().unwrap(), data);
    }
    let (original, der) = sample();
    let ours = |chain: &pki::cert::CertificateChain, _| {
        if chain.leaf() == world().signer.leaf() {
            Ok(())
        } else {
            Err("not ours")
        }
    };
    if let Ok(verified) = receipt::verify(&edit(der, data), ours) {
        assert_eq!(verified.receipt(), original);
    }
}
