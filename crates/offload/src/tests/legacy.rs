//! Published vectors of the algorithms that exist with the feature `legacy-algorithms` only.

use super::hmac;
use crate::engine::Engine;
use crate::legacy::LegacyCbc;
use crate::slot::Slot;
use crate::suite::{Encryption, Integrity};
use crate::transform::Direction;

/// Decrypts what follows the header and initialisation vector of an otherwise bare packet.
fn opened(encryption: Encryption, key: &[u8], iv: &str, cipher: &str) -> Vec<u8> {
    let mut packet = vec![0; 8];
    packet.extend(hex::decode(iv).unwrap());
    packet.extend(hex::decode(cipher).unwrap());
    let mut slots = [Slot::new(0, packet.len(), 1)];
    let cipher = LegacyCbc::new(encryption, key, Direction::Open)
        .unwrap()
        .unwrap();
    cipher.open(&mut packet, &mut slots, 0);
    assert!(slots[0].valid);
    packet.split_off(16)
}

/// FIPS 81, appendix C; Triple DES with three equal keys is DES.
#[test]
fn fips_81() {
    let key = [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF];
    let iv = "1234567890abcdef";
    let cipher = "e5c7cdde872bf27c43e934008c389c0f683788499a7c05f6";
    let text = b"Now is the time for all ";
    assert_eq!(opened(Encryption::DesCbc, &key, iv, cipher), text);
    assert_eq!(
        opened(Encryption::TripleDesCbc, &key.repeat(3), iv, cipher),
        text
    );
}

/// RFC 2202 §2, cases 1 to 3.
#[test]
fn rfc_2202_md5() {
    let check = |key: &[u8], message: &[u8], value| {
        let made = hmac(Engine::Library, Integrity::HmacMd5_96, key, message);
        assert_eq!(hex::encode(made), value);
    };
    check(&[0x0B; 16], b"Hi There", "9294727a3638bb1c13f48ef8158bfc9d");
    check(
        b"Jefe",
        b"what do ya want for nothing?",
        "750c783e6ab0b503eaa86e310a5db738",
    );
    check(&[0xAA; 16], &[0xDD; 50], "56be34521d144c88dbb8c733f0e8b3f6");
}
