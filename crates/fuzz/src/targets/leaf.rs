//! Audit events and leaves: what is read has one spelling.

use audit::{Event, Leaf, VerifierKey};

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    if let Ok(event) = Event::from_canonical(data) {
        assert_eq!(event.to_canonical().unwrap(), data);
    }
    let _ = Leaf::decode(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = text.parse::<VerifierKey>();
    }
}
