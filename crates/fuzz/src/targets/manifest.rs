//! What is accepted as a manifest has exactly one spelling.

use evidence::manifest::Manifest;

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    if let Ok(manifest) = Manifest::parse_canonical(data) {
        assert_eq!(manifest.to_canonical().unwrap(), data);
    }
}
