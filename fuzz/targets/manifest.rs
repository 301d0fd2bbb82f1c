//! What is accepted as a manifest has exactly one spelling.
#![no_main]

use evidence::manifest::Manifest;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(manifest) = Manifest::parse_canonical(data) {
        assert_eq!(manifest.to_canonical().unwrap(), data);
    }
});
