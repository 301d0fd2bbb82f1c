//! Trust bundles: one spelling, and contents that are read without a panic.

use evidence::bundle::{self, TrustBundle};

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    if let Ok(bundle) = TrustBundle::parse(data) {
        assert_eq!(bundle.to_canonical().unwrap(), data);
        let _ = bundle.recipients();
        let _ = bundle.authorities();
        let _ = bundle.lists();
        bundle.content_sha256().unwrap();
    }
    // No input is signed by the role that may.
    let trusted = bundle::verify(data, |_, _| Ok::<(), std::io::Error>(()));
    assert!(trusted.is_err());
}
