//! Requests to the OpenID Connect provider: queries, forms, headers and assertions of strangers.

use oidc::{AuthorizationRequest, AuthorizeError, ClientProof, Parameters, jose};
use services::{Client, ClientKey, SecretHash, Service, is_https};

/// The only address of the client.
const REDIRECT: &str = "https://wiki.example.org/callback";
const ISSUER: &str = "https://portal.example.org";

fn client(key: ClientKey) -> Client {
    Client {
        redirects: vec![REDIRECT.to_owned()],
        key,
        logout: None,
        logout_trust: None,
    }
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let secret = client(ClientKey::Secret(SecretHash::of("s+cret")));
    let key = ClientKey::from_jwk(text);
    let parameters = Parameters::parse(text).unwrap_or_default();
    match AuthorizationRequest::read(&parameters, "wiki", &secret) {
        Ok(request) => {
            // An answer goes to the registered address only.
            assert!(request.answer(ISSUER, "c").starts_with(REDIRECT));
            assert_eq!(request.redirect, REDIRECT);
            assert_eq!(request.challenge.len(), 43);
        }
        Err(AuthorizeError::Redirect(error)) => {
            let location = error.location(ISSUER);
            assert!(location.starts_with(REDIRECT) && location.is_ascii());
        }
        Err(AuthorizeError::Page(_)) => {}
    }
    for proof in [
        ClientProof::read(Some(text), &Parameters::default()),
        ClientProof::read(None, &parameters),
    ] {
        let Ok(proof) = proof else { continue };
        // Nothing but the secret is accepted, and no signature is known.
        let by_secret = proof.verify(&secret, &[ISSUER], 100);
        assert!(by_secret.is_err() || text.len() > "Basic ".len());
        if let Ok(key) = &key {
            assert!(proof.verify(&client(key.clone()), &[ISSUER], 100).is_err());
        }
    }
    let point = key.ok().and_then(|key| key.point()).unwrap_or_default();
    assert!(jose::verify(text, &point).is_err());
    drop(Service::from_record(text));
    if is_https(text) {
        // As browsers read it: one host, nothing before it.
        let rest = text.strip_prefix("https://").unwrap();
        let host = rest.split(['/', '?']).next().unwrap();
        assert!(!host.is_empty() && !host.contains(['@', '\\', '#']));
    }
}
