//! What the shell puts around every page.

use http::{Request, StatusCode};
use portal_testkit::{As, EVIL, assert_headers, assert_sound};

use crate::example::portal;

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let (portal, _) = portal();
    for who in [As::Nobody, As::Certificate] {
        for path in ["/", "/login", "/notes", "/nowhere"] {
            assert_headers(&portal.get(who, path).await, path);
        }
        for path in ["/assets/style.css", "/assets/icon.svg"] {
            let answer = portal.get(who, path).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_headers(&answer, path);
        }
        assert_headers(&portal.post(who, "/login", "x").await, "bad form");
        let wrong = portal.send(who, Request::delete("/notes"), "").await;
        assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_headers(&wrong, "wrong method");
    }
}

#[tokio::test]
async fn pages_are_sound_and_nothing_typed_becomes_markup() {
    let (portal, notes) = portal();
    notes.0.lock().unwrap().push(EVIL.to_owned());
    for path in ["/", "/login", "/notes", "/nowhere"] {
        let html = portal.get(As::Certificate, path).await.text;
        assert_sound(&html, path);
    }
    let missing = portal.get(As::Certificate, "/nowhere").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn tile_and_menu_lead_to_an_application() {
    let (portal, _) = portal();
    let home = portal.get(As::Certificate, "/").await.text;
    assert_eq!(home.matches("href=\"/notes\"").count(), 2, "{home}");
    assert!(home.contains("Write something down."));
    let page = portal.get(As::Certificate, "/notes").await.text;
    assert!(page.contains("<a href=\"/notes\" aria-current=\"page\">Notes</a>"));
}

#[tokio::test]
async fn form_needs_the_token_of_the_person_it_was_made_for() {
    let (portal, notes) = portal();
    let token = portal.get(As::Certificate, "/notes").await.token();
    let (other, _) = crate::example::portal();
    let foreign = other.get(As::Certificate, "/notes").await.token();
    for bad in ["", "00", &foreign] {
        let form = format!("note=x&token={bad}");
        let answer = portal.post(As::Certificate, "/notes", &form).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{bad}");
        assert_sound(&answer.text, bad);
    }
    assert!(notes.0.lock().unwrap().is_empty());
    let form = format!("note=x&token={token}");
    let answer = portal.post(As::Certificate, "/notes", &form).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(*notes.0.lock().unwrap(), ["x"]);
}
