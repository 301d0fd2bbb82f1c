//! CMP messages from strangers, and those that were altered on the way.

use pki::cmp::{Message, Protection};

use crate::support::edit;

/// A renewal by OpenSSL, whose signature holds: made once, with keys that are nowhere.
const SIGNED: &[u8] = include_bytes!("../../corpus/cmp_message/kur-signed");
/// A first request by OpenSSL, protected by the secret `secret`.
const BY_SECRET: &[u8] = include_bytes!("../../corpus/cmp_message/ir-by-secret");

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    read(data);
    read(&edit(BY_SECRET, data));
    let edited = edit(SIGNED, data);
    read(&edited);
    // What is signed cannot be changed; the frame around it may be written in no other way.
    if let Ok(message) = Message::parse(&edited)
        && message.verify_signature().is_ok()
    {
        let original = Message::parse(SIGNED).unwrap();
        let signer = |message: &Message<'_>| message.signer().map(|der| der.to_vec());
        if signer(&message) == signer(&original) {
            assert_eq!(message.kind(), original.kind());
            let id = |message: &Message<'_>| message.envelope().unwrap().transaction_id.to_vec();
            assert_eq!(id(&message), id(&original));
        }
    }
}

/// Everything that is read of a message; none of it may panic.
fn read(der: &[u8]) {
    let Ok(message) = Message::parse(der) else {
        return;
    };
    let _ = message.envelope();
    if let Ok(Protection::Secret(protection)) = message.protection() {
        let _ = protection.verify(b"another");
    }
    drop(message.verify_signature());
    if let Ok(request) = message.certificate_request() {
        drop(request.verify());
        drop(request.old_certificate());
    }
    drop(pki::csr::parse_and_verify(message.pkcs10()));
    drop(message.revocation());
    drop(message.confirmation());
    let _ = message.wants_implicit_confirm();
}
