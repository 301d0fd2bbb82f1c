//! Audit events and leaves: what is read has one spelling.
#![no_main]

use audit::{Event, Leaf, VerifierKey};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(event) = Event::from_canonical(data) {
        assert_eq!(event.to_canonical().unwrap(), data);
    }
    let _ = Leaf::decode(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = text.parse::<VerifierKey>();
    }
});
