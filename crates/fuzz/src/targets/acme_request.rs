//! Signed requests of ACME from strangers, and those that were altered on the way.

use pki::acme::{
    AccountUpdate, Binding, Finalize, Jwk, KeyChange, NewAccount, NewOrder, Revoke, SignedRequest,
    SigningKey,
};

use crate::support::edit;

/// A new account with its binding, whose signature holds: made once, with a key that is nowhere.
const NEW_ACCOUNT: &[u8] = include_bytes!("../../corpus/acme_request/new-account");
/// The secret of its binding.
const SECRET: &[u8] = b"secret";
/// The change of a key, of which both signatures hold.
const KEY_CHANGE: &[u8] = include_bytes!("../../corpus/acme_request/key-change");

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    read(data);
    payloads(data);
    drop(Jwk::parse(data));
    read(&edit(KEY_CHANGE, data));
    let edited = edit(NEW_ACCOUNT, data);
    read(&edited);
    // What is signed cannot be changed; the JSON around it may be written in another way.
    let original = SignedRequest::parse(NEW_ACCOUNT).unwrap();
    let SigningKey::Jwk(key) = original.key() else {
        panic!("it brings its key");
    };
    let bound = NewAccount::parse(original.payload()).unwrap().binding;
    assert!(bound.is_some_and(|bound| bound.verify(SECRET) && bound.key == *key));
    if let Ok(request) = SignedRequest::parse(&edited)
        && request.verify(key).is_ok()
    {
        assert_eq!(request.url(), original.url());
        assert_eq!(request.nonce(), original.nonce());
        assert_eq!(request.payload(), original.payload());
    }
}

/// Everything that is read of a request; none of it may panic.
fn read(json: &[u8]) {
    if let Ok(binding) = Binding::parse(json) {
        let _ = binding.verify(b"another");
    }
    drop(KeyChange::parse(json));
    let Ok(request) = SignedRequest::parse(json) else {
        return;
    };
    if let SigningKey::Jwk(key) = request.key() {
        drop(request.verify(key));
        // A key has one form.
        let again = Jwk::parse(key.canonical().as_bytes()).unwrap();
        assert_eq!(again.thumbprint(), key.thumbprint());
        assert_eq!(again.spki_sha256(), key.spki_sha256());
    }
    payloads(request.payload());
}

fn payloads(json: &[u8]) {
    drop(NewAccount::parse(json));
    drop(AccountUpdate::parse(json));
    drop(NewOrder::parse(json));
    drop(Revoke::parse(json));
    drop(KeyChange::parse(json));
    if let Ok(finalize) = Finalize::parse(json) {
        drop(pki::csr::parse_and_verify(&finalize.csr));
    }
}
