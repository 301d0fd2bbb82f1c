//! The pages of foreign applications in the portal's shell, over a fake registry.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use access::{Principal, Role};
use http::{Request, StatusCode};
use pki::clearance::Clearance;
use portal::PageError;
use portal_services::{ForeignServices, Services, TEXTS};
use portal_testkit::{As, Client, EVIL, assert_headers, assert_sound, assert_translated};
use services::{Connection, Icon, Service};

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
