//! The pages of foreign applications in the portal's shell, over a fake registry.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use access::{Principal, Role};
use http::{Request, StatusCode};
use oidc::{AuthorizationRequest, AuthorizeError, Parameters, TokenError};
use pki::clearance::Clearance;
use portal::PageError;
use portal_services::openid::{NoCode, OpenId, PortalLogin};
use portal_services::{ForeignServices, Services, TEXTS};
use portal_testkit::{As, Client, EVIL, assert_headers, assert_sound, assert_translated};
use serde_json::{Value, json};
use services::{Client as Registered, ClientKey, Connection, Icon, SecretHash, Service};

/// A registry whose every text tries to break out of the page.
#[derive(Default)]
struct Fake {
    empty: AtomicBool,
    denied: AtomicBool,
}

fn service(id: &str, name: &str) -> Service {
    Service {
        id: id.to_owned(),
        name: name.to_owned(),
        address: "https://wiki.example.org/start".to_owned(),
        icon: Icon::Document,
        owner: EVIL.to_owned(),
        level: Clearance::Restricted,
        roles: [Role::Officer].into(),
        units: [].into(),
        connection: Connection::Link,
    }
}

impl Services for Fake {
    async fn open_to(&self, _: &Principal) -> Result<Vec<Service>, PageError> {
        Ok(match self.empty.load(Ordering::SeqCst) {
            true => vec![],
            false => vec![service("evil", EVIL), service("wiki", "Wiki")],
        })
    }

    async fn open(&self, _: &Principal, id: &str) -> Result<Service, PageError> {
        match id {
            _ if self.denied.load(Ordering::SeqCst) => Err(PageError::Denied {
                reasons: vec!["its level is above your clearance".to_owned()],
                policies: vec!["service-above-clearance".to_owned()],
            }),
            "wiki" => Ok(service("wiki", "Wiki")),
            _ => Err(PageError::NotFound),
        }
    }
}

impl OpenId for Fake {
    fn issuer(&self) -> &str {
        "https://portal.example.org"
    }

    fn metadata(&self) -> Value {
        json!({ "issuer": self.issuer() })
    }

    fn keys(&self) -> Result<Value, PageError> {
        Ok(json!({ "keys": [] }))
    }

    async fn examine(&self, asked: &Parameters) -> Result<AuthorizationRequest, AuthorizeError> {
        let client = Registered {
            redirects: vec!["https://wiki.example.org/callback".to_owned()],
            key: ClientKey::Secret(SecretHash::of("secret")),
            logout: None,
            logout_trust: None,
        };
        AuthorizationRequest::read(asked, "wiki", &client)
    }

    async fn authorize(
        &self,
        login: PortalLogin,
        _: AuthorizationRequest,
    ) -> Result<String, NoCode> {
        assert!(!login.session.is_empty());
        match self.denied.load(Ordering::SeqCst) {
            true => Err(NoCode::Page(PageError::Denied {
                reasons: vec!["its level is above your clearance".to_owned()],
                policies: vec![],
            })),
            false => Ok("code".to_owned()),
        }
    }

    async fn token(&self, _: Option<&str>, _: &Parameters) -> Result<Value, TokenError> {
        Err(TokenError::InvalidClient("the client secret is wrong"))
    }

    async fn userinfo(&self, token: &str) -> Option<Value> {
        (token == "good").then(|| json!({ "sub": "ana" }))
    }

    async fn log_out(&self, _: PortalLogin) -> Result<usize, PageError> {
        Ok(2)
    }
}

const AUTHORIZE: &str = "/openid/authorize?client_id=wiki&response_type=code&scope=openid&state=s\
    &redirect_uri=https%3A%2F%2Fwiki.example.org%2Fcallback&code_challenge_method=S256\
    &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

fn portal() -> (Client, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let client = Client::new(vec![Arc::new(ForeignServices(fake.clone()))]);
    (client, fake)
}

#[test]
fn every_text_is_there_in_each_language() {
    assert_translated(TEXTS);
}

#[tokio::test]
async fn home_and_list_show_open_services_in_each_language() {
    let (portal, fake) = portal();
    for (path, language) in [
        ("/", "en"),
        ("/", "pl"),
        ("/services", "en"),
        ("/services", "pl"),
    ] {
        let request = || Request::get(path).header("accept-language", language);
        fake.empty.store(false, Ordering::SeqCst);
        let answer = portal.send(As::Certificate, request(), "").await;
        assert_headers(&answer, path);
        assert_sound(&answer.text, path);
        assert!(answer.text.contains("href=\"/services/wiki\""), "{path}");
        fake.empty.store(true, Ordering::SeqCst);
        let empty = portal.send(As::Certificate, request(), "").await;
        assert_sound(&empty.text, path);
        assert!(!empty.text.contains("href=\"/services/"), "{path}");
        assert!(empty.text.contains("class=\"empty\""), "{path}");
    }
    let stranger = portal.get(As::Nobody, "/services").await;
    assert_eq!(stranger.header("location"), "/login");
}

#[tokio::test]
async fn search_finds_by_name_and_says_what_it_did_not_find() {
    let (portal, _) = portal();
    let found = portal.get(As::Certificate, "/services?q=WIKI").await;
    assert!(found.text.contains("href=\"/services/wiki\""));
    assert!(!found.text.contains("href=\"/services/evil\""));
    let none = portal.get(As::Certificate, "/services?q=%3Cb%3E").await;
    assert_sound(&none.text, "search");
    assert!(!none.text.contains("href=\"/services/wiki\""));
}

#[tokio::test]
async fn open_service_leads_to_its_address_and_others_nowhere() {
    let (portal, fake) = portal();
    let answer = portal.get(As::Certificate, "/services/wiki").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(answer.header("location"), "https://wiki.example.org/start");
    let unknown = portal.get(As::Certificate, "/services/other").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let stranger = portal.get(As::Nobody, "/services/wiki").await;
    assert_eq!(stranger.header("location"), "/login");
    fake.denied.store(true, Ordering::SeqCst);
    let denied = portal.get(As::Certificate, "/services/wiki").await;
    assert_eq!(denied.status, StatusCode::FORBIDDEN);
    assert!(denied.text.contains("its level is above your clearance"));
    assert!(denied.text.contains("<code>service-above-clearance</code>"));
}

#[tokio::test]
async fn authorization_redirects_or_shows_the_reason() {
    let (portal, fake) = portal();
    let answer = portal.get(As::Certificate, AUTHORIZE).await;
    let callback = "https://wiki.example.org/callback?";
    let rest = answer.header("location").strip_prefix(callback).unwrap();
    assert_eq!(
        rest,
        "code=code&iss=https%3A%2F%2Fportal.example.org&state=s"
    );
    fake.denied.store(true, Ordering::SeqCst);
    let denied = portal.get(As::Certificate, AUTHORIZE).await;
    assert_eq!(denied.status, StatusCode::FORBIDDEN);
    assert_sound(&denied.text, "authorize");
    let silent = format!("{AUTHORIZE}&prompt=none");
    let silent = portal.get(As::Certificate, &silent).await;
    assert!(silent.header("location").contains("error=access_denied"));
    let foreign = AUTHORIZE.replace("callback", "other");
    let foreign = portal.get(As::Certificate, &foreign).await;
    assert_eq!(foreign.status, StatusCode::BAD_REQUEST);
    assert_eq!(foreign.header("location"), "");
}

#[tokio::test]
async fn stranger_logs_in_first_and_a_foreign_site_gets_no_silent_login() {
    let (portal, _) = portal();
    let stranger = portal.get(As::Nobody, AUTHORIZE).await;
    assert!(
        stranger
            .header("location")
            .starts_with("/login?next=%2Fopenid%2Fauthorize")
    );
    let silent = portal
        .get(As::Nobody, &format!("{AUTHORIZE}&prompt=none"))
        .await;
    assert!(silent.header("location").contains("error=login_required"));
    let begun = Request::get(AUTHORIZE).header("sec-fetch-site", "cross-site");
    let again = portal.send(As::Nobody, begun, "").await;
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.header("refresh"), format!("0; url={AUTHORIZE}"));
    assert_sound(&again.text, "continue");
    portal
        .people
        .certificate_revoked
        .store(true, Ordering::SeqCst);
    let revoked = portal.get(As::Certificate, AUTHORIZE).await;
    assert_eq!(revoked.status, StatusCode::FORBIDDEN);
    let silent = portal
        .get(As::Certificate, &format!("{AUTHORIZE}&prompt=none"))
        .await;
    assert!(silent.header("location").contains("error=access_denied"));
    portal
        .people
        .certificate_revoked
        .store(false, Ordering::SeqCst);
    // No handshake is known: the certificate may have been proved long ago.
    let fresh = portal
        .get(As::Certificate, &format!("{AUTHORIZE}&max_age=60"))
        .await;
    assert!(fresh.header("location").contains("error=login_required"));
}

#[tokio::test]
async fn token_and_userinfo_refuse_in_their_protocol() {
    let (portal, _) = portal();
    let refused = portal
        .post(As::Nobody, "/openid/token", "grant_type=x")
        .await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(refused.header("www-authenticate").starts_with("Basic"));
    assert!(refused.text.contains(r#""error":"invalid_client""#));
    let twice = portal
        .post(As::Nobody, "/openid/token", "code=1&code=2")
        .await;
    assert_eq!(twice.status, StatusCode::BAD_REQUEST);
    let json = Request::post("/openid/token").header("content-type", "application/json");
    let json = portal.send(As::Nobody, json, "{}").await;
    assert!(json.text.contains("the body is not a form"));
    let info = |token: &str| Request::get("/openid/userinfo").header("authorization", token);
    let good = portal.send(As::Nobody, info("Bearer good"), "").await;
    assert_eq!(good.status, StatusCode::OK);
    for token in ["Bearer bad", "Basic good", "good"] {
        let refused = portal.send(As::Nobody, info(token), "").await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{token}");
    }
}

#[tokio::test]
async fn logout_asks_first_and_takes_own_forms_only() {
    let (portal, _) = portal();
    let asked = portal.get(As::Certificate, "/openid/logout").await;
    assert_sound(&asked.text, "logout");
    let forged = portal
        .post(As::Certificate, "/openid/logout", "token=x")
        .await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let form = format!("token={}", asked.token());
    let done = portal.post(As::Certificate, "/openid/logout", &form).await;
    assert!(
        done.text
            .contains("Your logins to 2 applications have ended.")
    );
}
