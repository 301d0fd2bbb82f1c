//! A client of ACME that signs whatever it is told to.

use std::sync::{Arc, Mutex};

use audit::MemorySink;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use pki::acme::to_base64url;
use pki::clearance::Clearance;
use pki::key::PrivateKey;
use pki::name::{AltName, Subject};
use pki::profile::Profile;
use registry::{Config, Invitation, Invited, Registry, RegistryError, acme, binding_key};
use serde_json::{Value, json};
use store::sqlx::{self, Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use time::OffsetDateTime;
use tower::ServiceExt as _;

use crate::fixture::{NOW, SECRETS, World, an_order, config, key};

pub(crate) const SITE: &str = "https://pki.example:8445";

pub(crate) fn acme_config() -> Config {
    Config {
        acme: true,
        ..config()
    }
}

pub(crate) async fn acme_world() -> World {
    let folder = tempfile::tempdir().unwrap();
    Registry::init(folder.path(), &acme_config(), &SECRETS, NOW).unwrap();
    let audit = Arc::new(MemorySink::default());
    let sink = Arc::<MemorySink>::clone(&audit);
    let opened = Registry::open(folder.path(), acme_config(), &SECRETS.issuing, sink, NOW);
    World {
        registry: opened.await.unwrap(),
        folder,
        audit,
    }
}

/// An invitation of a server by these names.
pub(crate) fn server(names: &[&str], renewals: u8) -> Invitation {
    Invitation {
        profile: Profile::NetworkServer,
        subject: Subject::new(names[0]),
        clearance: Clearance::Unclassified,
        hours: 24,
        renewals,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        account: None,
    }
}

pub(crate) async fn invite(world: &World, names: &[&str], renewals: u8) -> Invited {
    try_invite(world, &server(names, renewals)).await.unwrap()
}

pub(crate) async fn try_invite(
    world: &World,
    invitation: &Invitation,
) -> Result<Invited, RegistryError> {
    world.registry.invite(invitation, an_order(), NOW).await
}

/// A request for a certificate in base64url.
pub(crate) fn csr_for(names: &[&str], key: &PrivateKey) -> String {
    let dns: Vec<AltName> = names
        .iter()
        .map(|name| AltName::Dns((*name).into()))
        .collect();
    let first = names.first().copied().unwrap_or("none.example");
    to_base64url(&pki::csr::build(key, &Subject::new(first), &dns).unwrap())
}

pub(crate) fn jwk(key: &PrivateKey) -> Value {
    let spki = key.spki();
    let point = spki.subject_public_key.raw_bytes();
    json!({ "crv": "P-256", "kty": "EC", "x": to_base64url(&point[1..33]), "y": to_base64url(&point[33..]) })
}

fn part(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => to_base64url(value.to_string().as_bytes()),
    }
}

/// Signs a payload under a header (ES256).
pub(crate) fn signed(key: &PrivateKey, header: &Value, payload: &Value) -> Value {
    let (header, payload) = (part(header), part(payload));
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.to_pkcs8_der());
    let input = format!("{header}.{payload}");
    let signature = pair
        .unwrap()
        .sign(&SystemRandom::new(), input.as_bytes())
        .unwrap();
    json!({ "protected": header, "payload": payload, "signature": to_base64url(signature.as_ref()) })
}

/// The binding of an account, made with a secret in base64url.
pub(crate) fn binding(secret: &str, kid: &str, url: &str, account: &Value) -> Value {
    let header = part(&json!({ "alg": "HS256", "kid": kid, "url": url }));
    let payload = part(account);
    let secret = pki::acme::from_base64url(secret).unwrap();
    let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret);
    let tag = aws_lc_rs::hmac::sign(&secret, format!("{header}.{payload}").as_bytes());
    json!({ "protected": header, "payload": payload, "signature": to_base64url(tag.as_ref()) })
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{} {}", self.status, self.text))
    }

    /// The last part of the problem's type, and the status.
    pub(crate) fn problem(&self) -> (String, u16) {
        let value = self.json();
        let kind = value["type"].as_str().unwrap_or(&self.text).to_owned();
        assert_eq!(
            self.header("content-type"),
            "application/problem+json",
            "{kind}"
        );
        assert_eq!(value["status"], self.status.as_u16());
        let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap();
        (kind.to_owned(), self.status.as_u16())
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(self.status.is_success(), "{} {}", self.status, self.text);
        self
    }
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer {
        status: parts.status,
        headers: parts.headers,
        text: String::from_utf8(body).unwrap(),
    }
}

pub(crate) fn get(path: &str) -> Request<Body> {
    let request = Request::get(path).header("host", "pki.example:8445");
    request.body(Body::empty()).unwrap()
}

/// Whoever has an account, or wants one.
pub(crate) struct Client {
    pub(crate) router: Router,
    pub(crate) key: PrivateKey,
    /// The account's address.
    pub(crate) kid: String,
    pub(crate) clock: Arc<Mutex<OffsetDateTime>>,
}

impl Client {
    pub(crate) fn new(registry: &Registry) -> Self {
        let clock = Arc::new(Mutex::new(NOW));
        let shown = clock.clone();
        let hosts = vec!["PKI.example".to_owned(), "::1".to_owned()];
        Self {
            router: acme::router(
                registry.clone(),
                Arc::new(move || *shown.lock().unwrap()),
                hosts,
            ),
            key: key(),
            kid: String::new(),
            clock,
        }
    }

    /// A client with the account of this invitation.
    pub(crate) async fn enrolled(registry: &Registry, invited: &Invited) -> Self {
        let mut client = Self::new(registry);
        let account = client.register(&invited.id, &secret(invited)).await.ok();
        assert_eq!(account.status, StatusCode::CREATED);
        client.kid = account.header("location").to_owned();
        client
    }

    pub(crate) async fn nonce(&self) -> String {
        let answer = send(&self.router, get("/acme/new-nonce")).await;
        answer.header("replay-nonce").to_owned()
    }

    pub(crate) async fn deliver(&self, url: &str, body: &Value) -> Answer {
        self.deliver_text(url, body.to_string()).await
    }

    pub(crate) async fn deliver_text(&self, url: &str, body: String) -> Answer {
        let path = url.strip_prefix(SITE).unwrap();
        let request = Request::post(path)
            .header("host", "pki.example:8445")
            .header("content-type", "application/jose+json");
        send(&self.router, request.body(Body::from(body)).unwrap()).await
    }

    /// Sends a request with the account's key; a payload of null only reads.
    pub(crate) async fn post(&self, url: &str, payload: &Value) -> Answer {
        let header =
            json!({ "alg": "ES256", "nonce": self.nonce().await, "url": url, "kid": self.kid });
        self.deliver(url, &signed(&self.key, &header, payload))
            .await
    }

    pub(crate) async fn post_with_jwk(&self, url: &str, payload: &Value) -> Answer {
        let header = json!({ "alg": "ES256", "nonce": self.nonce().await, "url": url, "jwk": jwk(&self.key) });
        self.deliver(url, &signed(&self.key, &header, payload))
            .await
    }

    pub(crate) async fn register(&self, kid: &str, secret: &str) -> Answer {
        let url = at("new-account");
        let bound = binding(secret, kid, &url, &jwk(&self.key));
        self.post_with_jwk(&url, &json!({ "externalAccountBinding": bound }))
            .await
    }

    pub(crate) async fn order(&self, names: &[&str]) -> Answer {
        let dns = |name: &&str| json!({ "type": "dns", "value": name });
        let identifiers: Vec<Value> = names.iter().map(dns).collect();
        self.post(&at("new-order"), &json!({ "identifiers": identifiers }))
            .await
    }

    pub(crate) async fn finalize(&self, order: &Answer, csr: &str) -> Answer {
        let url = order.json()["finalize"].as_str().unwrap().to_owned();
        self.post(&url, &json!({ "csr": csr })).await
    }

    /// Orders, finalizes and downloads; the chain in PEM, or the problem of finalizing.
    pub(crate) async fn certificate(
        &self,
        names: &[&str],
        key: &PrivateKey,
    ) -> Result<String, (String, u16)> {
        let order = self.order(names).await.ok();
        let done = self.finalize(&order, &csr_for(names, key)).await;
        if !done.status.is_success() {
            return Err(done.problem());
        }
        let url = done.json()["certificate"].as_str().unwrap().to_owned();
        Ok(self.post(&url, &Value::Null).await.ok().text)
    }
}

pub(crate) fn at(name: &str) -> String {
    format!("{SITE}/acme/{name}")
}

/// What an invitation has for clients to bind an account with.
pub(crate) fn secret(invited: &Invited) -> String {
    binding_key(invited.code.as_str()).unwrap().to_string()
}

/// The log's events, as the registry's.
pub(crate) fn events(world: &World) -> Vec<audit::Event> {
    let of_registry = |event| audit::Event {
        role: "registry".to_owned(),
        ..event
    };
    world.audit.events().into_iter().map(of_registry).collect()
}

/// The `code` of the last event.
pub(crate) fn last_code(world: &World) -> String {
    let event = world.audit.events().pop().unwrap();
    assert_eq!(event.details["protocol"], "acme", "{event:?}");
    event.details["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Changes the registry's database behind its back.
pub(crate) async fn execute(world: &World, statement: &str) {
    let file = SqliteConnectOptions::new().filename(world.folder.path().join("registry.sqlite"));
    let mut sql = SqliteConnection::connect_with(&file).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(statement.to_owned()))
        .execute(&mut sql)
        .await
        .unwrap();
}

/// Rows of a table of the registry.
pub(crate) async fn count(world: &World, table: &str) -> i64 {
    let file = SqliteConnectOptions::new().filename(world.folder.path().join("registry.sqlite"));
    let mut sql = SqliteConnection::connect_with(&file.read_only(true))
        .await
        .unwrap();
    let query = format!("SELECT count(*) FROM {table}");
    let count = sqlx::query_scalar(sqlx::AssertSqlSafe(query));
    count.fetch_one(&mut sql).await.unwrap()
}
