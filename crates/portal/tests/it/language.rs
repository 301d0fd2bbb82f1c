//! The language of a page, and the choice of another.

use http::{Request, StatusCode};
use portal_testkit::{As, assert_sound};

use crate::example::portal;

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn pages_speak_the_language_of_the_browser() {
    let (portal, notes) = portal();
    notes
        .0
        .lock()
        .unwrap()
        .extend(["a".to_owned(), "b".to_owned()]);
    for (accepted, shown, count) in [
        ("pl-PL,pl;q=0.9", "pl", "2 notatki"),
        ("de,en;q=0.5", "en", "2 notes"),
    ] {
        for path in ["/", "/login", "/notes", "/nowhere"] {
            for who in [As::Nobody, As::Certificate] {
                let request = Request::get(path).header("accept-language", accepted);
                let answer = portal.send(who, request, "").await;
                if answer.status == StatusCode::SEE_OTHER {
                    continue;
                }
                assert_sound(&answer.text, path);
                let html = format!("<html lang=\"{shown}\">");
                assert!(answer.text.contains(&html), "{path} {accepted}");
                let is_page = path == "/notes";
                assert_eq!(answer.text.contains(count), is_page, "{path} {accepted}");
            }
        }
    }
    let revoked = &portal.people.certificate_revoked;
    revoked.store(true, std::sync::atomic::Ordering::SeqCst);
    let request = Request::get("/").header("accept-language", "pl");
    let answer = portal.send(As::Certificate, request, "").await;
    assert!(answer.text.contains("Brak dostępu"));
}

#[tokio::test]
async fn choice_of_a_language_is_kept_by_the_browser_and_leads_back() {
    let (portal, _) = portal();
    let page = portal.get(As::Certificate, "/notes?x=1").await.text;
    assert!(page.contains("name=\"back\" value=\"/notes\""), "{page}");
    let post = |form: &'static str| {
        let request = Request::post("/language").header("content-type", FORM);
        portal.send(As::Nobody, request, form)
    };
    let answer = post("language=pl&back=%2Fnotes%3Fx%3D1").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(answer.header("location"), "/notes?x=1");
    let cookie = answer.header("set-cookie").to_owned();
    assert!(cookie.starts_with("__Host-cordon-language=pl; Path=/; Secure; HttpOnly"));
    let foreign = post("language=pl&back=https%3A%2F%2Fexample.org%2F").await;
    assert_eq!(foreign.header("location"), "/");
    let unknown = post("language=%3Cscript%3E&back=/").await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST);
    assert_eq!(unknown.header("set-cookie"), "");
    assert_sound(&unknown.text, "unknown language");

    let request = Request::get("/login").header("accept-language", "en");
    let value = cookie.split(';').next().unwrap();
    let request = request.header("cookie", value);
    let answer = portal.send(As::Nobody, request, "").await;
    assert!(answer.text.contains("<html lang=\"pl\">"));
}
