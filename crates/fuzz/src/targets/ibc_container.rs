//! Headers and key files of the cipher: what is read has one spelling, and nothing panics.

use ibc::container::{FIXED_LEN, Header, MAGIC};
use ibc::keyfile;

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    header(data);
    // The checks behind the magic number are met at once.
    header(&[&MAGIC, data].concat());
    for key_size in [16, 24, 32, 40] {
        if let Ok(key) = keyfile::parse(data, key_size) {
            assert_eq!(key.len(), key_size);
            if data.len() == key_size {
                assert_eq!(*key, data);
            } else {
                let again = keyfile::parse(hex(&key).as_bytes(), key_size).unwrap();
                assert_eq!(again, key);
            }
        }
    }
}

fn header(bytes: &[u8]) {
    let Ok((header, rest)) = Header::parse(bytes) else {
        return;
    };
    let mut again = header.encode();
    assert!(again.len() >= FIXED_LEN);
    again.extend_from_slice(rest);
    assert_eq!(again, bytes);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
