//! SCEP messages from strangers, and those that were altered on the way.

use std::sync::LazyLock;

use pki::key::{KeyAlgorithm, PrivateKey};
use pki::scep::Message;

use crate::support::edit;

/// A first request, whose signature holds: made once, with keys that are nowhere.
const SIGNED: &[u8] = include_bytes!("../../corpus/scep_message/pkcs-req");
/// The certification request in another one.
const REQUEST: &[u8] = include_bytes!("../../corpus/scep_message/csr");
/// The certificate that messages of the corpus are encrypted to.
const AUTHORITY: &[u8] = include_bytes!("../../corpus/scep_message/authority");
/// Not its key: what is unwrapped with it are random bytes.
static KEY: LazyLock<PrivateKey> =
    LazyLock::new(|| PrivateKey::generate(KeyAlgorithm::Rsa2048).unwrap());

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    read(data);
    drop(pki::csr::claims(data));
    drop(pki::csr::claims(&edit(REQUEST, data)));
    let edited = edit(SIGNED, data);
    read(&edited);
    // What is signed cannot be changed; the frame around it may be written in no other way.
    if let Ok(message) = Message::parse(&edited)
        && message.verify().is_ok()
    {
        let original = Message::parse(SIGNED).unwrap();
        let key = |message: &Message| {
            let tbs = &message.signer().tbs_certificate;
            tbs.subject_public_key_info.clone()
        };
        if key(&message) == key(&original) {
            assert_eq!(message.kind(), original.kind());
            assert_eq!(message.transaction_id(), original.transaction_id());
            assert_eq!(message.sender_nonce(), original.sender_nonce());
        }
    }
}

/// Everything that is read of a message; none of it may panic, and nothing can be decrypted with another key.
fn read(der: &[u8]) {
    let Ok(message) = Message::parse(der) else {
        return;
    };
    drop(message.verify());
    let authority = pki::cert::from_der(AUTHORITY).unwrap();
    if let Ok(opened) = message.decrypt(&KEY, &authority) {
        // One in 2^128 would be a request.
        assert!(pki::csr::claims(&opened.content).is_err());
    }
}
