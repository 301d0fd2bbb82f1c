//! Requests of ACME that no honest client sends, and what goes over HTTP.

use pki::acme::to_base64url;
use serde_json::{Value, json};

use crate::acme_client::{
    Client, SITE, acme_world, at, count, get, invite, jwk, last_code, send, server, signed,
    try_invite,
};
use crate::fixture::key;

const WEB: &str = "web-1.police.example";

/// A request that is refused: what it is, how it is made of address, nonce and client, and the problem and code.
type Wrong = (
    &'static str,
    fn(&Client, &str, &str) -> Value,
    &'static str,
    &'static str,
);

fn header(client: &Client, url: &str, nonce: &str) -> Value {
    json!({ "alg": "ES256", "nonce": nonce, "url": url, "kid": client.kid })
}

fn changed(client: &Client, url: &str, nonce: &str, name: &str, value: Value) -> Value {
    let mut header = header(client, url, nonce);
    header[name] = value;
    signed(&client.key, &header, &json!({}))
}

#[tokio::test]
async fn requests_that_are_not_signed_as_the_standard_has_it_are_refused() {
    let world = acme_world().await;
    let client = Client::enrolled(&world.registry, &invite(&world, &[WEB], 0).await).await;
    let table: [Wrong; 17] = [
        (
            "none",
            |c, u, n| changed(c, u, n, "alg", json!("none")),
            "badSignatureAlgorithm",
            "acme-algorithm",
        ),
        (
            "hmac",
            |c, u, n| changed(c, u, n, "alg", json!("HS256")),
            "badSignatureAlgorithm",
            "acme-algorithm",
        ),
        (
            "other",
            |c, u, n| changed(c, u, n, "alg", json!("ES384")),
            "badSignatureAlgorithm",
            "acme-algorithm",
        ),
        (
            "address",
            |c, u, n| changed(c, u, n, "url", json!(at("new-account"))),
            "unauthorized",
            "acme-other-url",
        ),
        (
            "http",
            |c, u, n| changed(c, u, n, "url", json!(u.replace("https", "http"))),
            "unauthorized",
            "acme-other-url",
        ),
        (
            "both",
            |c, u, n| changed(c, u, n, "jwk", jwk(&c.key)),
            "malformed",
            "acme-request",
        ),
        (
            "crit",
            |c, u, n| changed(c, u, n, "crit", json!(["b64"])),
            "malformed",
            "acme-request",
        ),
        (
            "b64",
            |c, u, n| changed(c, u, n, "b64", json!(false)),
            "malformed",
            "acme-request",
        ),
        (
            "nonce",
            |c, u, n| changed(c, u, n, "nonce", Value::Null),
            "malformed",
            "acme-request",
        ),
        (
            "forged nonce",
            |c, u, n| changed(c, u, n, "nonce", json!(to_base64url(&[7; 32]))),
            "badNonce",
            "acme-nonce",
        ),
        (
            "account",
            |c, u, n| changed(c, u, n, "kid", json!(format!("{}0", c.kid))),
            "accountDoesNotExist",
            "acme-no-account",
        ),
        (
            "account elsewhere",
            |c, u, n| changed(c, u, n, "kid", json!(c.kid.replace("pki", "www"))),
            "accountDoesNotExist",
            "acme-no-account",
        ),
        (
            "key",
            |c, u, n| signed(&key(), &header(c, u, n), &json!({})),
            "unauthorized",
            "acme-signature",
        ),
        (
            "jwk",
            |c, u, n| {
                let header = json!({ "alg": "ES256", "nonce": n, "url": u, "jwk": jwk(&c.key) });
                signed(&c.key, &header, &json!({}))
            },
            "malformed",
            "acme-account-needed",
        ),
        (
            "payload",
            |c, u, n| {
                let mut one = signed(&c.key, &header(c, u, n), &json!({}));
                one["payload"] = json!(to_base64url(b"{ }"));
                one
            },
            "unauthorized",
            "acme-signature",
        ),
        (
            "unprotected",
            |c, u, n| {
                let mut one = signed(&c.key, &header(c, u, n), &json!({}));
                one["header"] = json!({});
                one
            },
            "malformed",
            "acme-request",
        ),
        (
            "general",
            |c, u, n| {
                let one = signed(&c.key, &header(c, u, n), &json!({}));
                json!({ "payload": one["payload"], "signatures": [one] })
            },
            "malformed",
            "acme-request",
        ),
    ];
    let url = at("new-order");
    for (number, (name, make, problem, code)) in table.into_iter().enumerate() {
        let body = make(&client, &url, &client.nonce().await);
        let answer = client.deliver(&url, &body).await;
        assert_eq!(answer.problem().0, problem, "{name}: {}", answer.text);
        let algorithms = answer.json().get("algorithms").is_some();
        assert_eq!(algorithms, problem == "badSignatureAlgorithm");
        assert!(!answer.header("replay-nonce").is_empty());
        // The rest are only counted.
        if number < 10 {
            assert_eq!(last_code(&world), code, "{name}");
        }
    }
    // A nonce is good once, also for another request, and not for one that was refused for its signature.
    let nonce = client.nonce().await;
    let forged = signed(&key(), &header(&client, &url, &nonce), &json!({}));
    client.deliver(&url, &forged).await;
    let good = json!({ "identifiers": [{ "type": "dns", "value": WEB }] });
    let good = signed(&client.key, &header(&client, &url, &nonce), &good);
    client.deliver(&url, &good).await.ok();
    let replayed = client.deliver(&url, &good).await;
    assert_eq!(replayed.problem(), ("badNonce".to_owned(), 400));
    assert_eq!(count(&world, "acme_orders").await, 1);
}

#[tokio::test]
async fn transport_is_as_the_standard_has_it() {
    let world = acme_world().await;
    let client = Client::new(&world.registry);
    let directory = send(&client.router, get("/acme/directory"))
        .await
        .ok()
        .json();
    assert_eq!(directory["newOrder"], at("new-order"));
    assert_eq!(directory["renewalInfo"], at("renewal-info"));
    assert_eq!(directory["meta"]["externalAccountRequired"], true);
    let nonce = send(&client.router, get("/acme/new-nonce")).await;
    assert_eq!(
        (nonce.status.as_u16(), nonce.header("cache-control")),
        (204, "no-store")
    );
    assert_eq!(
        nonce.header("link"),
        format!("<{SITE}/acme/directory>;rel=\"index\"")
    );
    let with = |method: &str, path: &str, host: &str, kind: &str, len: usize| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", host);
        let body = axum::body::Body::from("x".repeat(len));
        request.header("content-type", kind).body(body).unwrap()
    };
    let jose = "application/jose+json";
    let host = "pki.example:8445";
    for (request, status) in [
        (with("HEAD", "/acme/new-nonce", host, "", 0), 200),
        (with("GET", "/acme/directory", "[::1]:8445", "", 0), 200),
        (with("GET", "/acme/directory", "www.example", "", 0), 421),
        (
            with("GET", "/acme/directory", "pki.example.evil:8445", "", 0),
            421,
        ),
        (with("POST", "/acme/new-order", "www.example", jose, 2), 421),
        (with("GET", "/acme/new-order", host, "", 0), 405),
        (with("PUT", "/acme/new-order", host, jose, 2), 405),
        (
            with("POST", "/acme/new-order", host, "application/json", 2),
            415,
        ),
        (
            with(
                "POST",
                "/acme/new-order",
                host,
                "application/jose+json; charset=utf-8",
                2,
            ),
            415,
        ),
        (with("POST", "/acme/new-order", host, jose, 2), 400),
        (
            with("POST", "/acme/new-order", host, jose, 32 * 1024 + 1),
            413,
        ),
        (with("POST", "/acme/challenge/1", host, jose, 2), 404),
        (with("POST", "/acme/account/1/2/3", host, jose, 2), 404),
    ] {
        let what = format!("{} {}", request.method(), request.uri());
        let answer = send(&client.router, request).await;
        assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.text);
    }
    // Nothing of it is there unless it is switched on.
    let off = crate::fixture::world().await;
    let client = Client::new(&off.registry);
    assert_eq!(client.register("a", "AAAA").await.status.as_u16(), 500);
    let refused = try_invite(&off, &server(&[WEB], 0)).await;
    assert!(matches!(refused, Err(registry::RegistryError::AcmeOff)));
}
