//! What the pages of evidence show, and what they never do.

use std::sync::atomic::Ordering;

use http::{Request, StatusCode};
use portal_evidence::TEXTS;
use portal_testkit::{As, assert_headers, assert_sound, assert_translated};

use crate::fake::{ID, Portal};

fn pages() -> Vec<String> {
    let paths = ["/", "/violations", "/cameras", "/violations?from=x"];
    let mut paths: Vec<String> = paths.map(str::to_owned).into();
    paths.push(format!("/violations/{ID}"));
    paths.push(format!("/violations/{ID}/media/x"));
    paths.push("/violations/v-0".to_owned());
    paths
}

#[tokio::test]
async fn pages_are_sound_in_each_language_and_nothing_typed_becomes_markup() {
    let portal = Portal::new();
    for path in pages() {
        for language in ["en", "pl"] {
            let request = Request::get(&path).header("accept-language", language);
            let answer = portal.send(As::Certificate, request, "").await;
            assert_headers(&answer, &path);
            assert_sound(&answer.text, &path);
            let shown = format!("<html lang=\"{language}\">");
            assert!(answer.text.contains(&shown), "{path}");
        }
    }
}

#[test]
fn every_text_is_there_in_each_language() {
    assert_translated(TEXTS);
}

#[tokio::test]
async fn every_page_wants_somebody() {
    let portal = Portal::new();
    let other = ["/thumbnail", "/media/0"].map(|rest| format!("/violations/{ID}{rest}"));
    for path in pages().iter().chain(&other) {
        let answer = portal.get(As::Nobody, path).await;
        assert_eq!(answer.header("location"), "/login", "{path}");
    }
    for act in ["review", "export"] {
        let path = format!("/violations/{ID}/{act}");
        let form = "token=x&decision=accept&reason=x";
        let answer = portal.post(As::Nobody, &path, form).await;
        assert_eq!(answer.header("location"), "/login", "{path}");
    }
    assert!(portal.calls().is_empty());
}

#[tokio::test]
async fn home_shows_figures_and_the_latest_and_says_when_they_fail() {
    let portal = Portal::new();
    let home = portal.get(As::Certificate, "/").await.text;
    for text in [
        "<b>7</b> open violations",
        "<b>1</b> camera with missing blocks",
        ID,
    ] {
        assert!(home.contains(text), "{text}");
    }
    portal.fake.broken.store(true, Ordering::SeqCst);
    let answer = portal.get(As::Certificate, "/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_headers(&answer, "failure");
}

#[tokio::test]
async fn a_violation_shows_facts_forms_and_proofs() {
    let portal = Portal::new();
    let answer = portal
        .get(As::Certificate, &format!("/violations/{ID}"))
        .await;
    for text in [
        "163 km/h",
        "50.064650° N",
        "19.944980° W",
        "2026-11-21 11:12:07 UTC",
        "datetime=\"2026-11-21T11:12:07Z\"",
        "640.2 kB",
        "entry 3 of the audit log",
        "restricted (1)",
        &"11".repeat(32),
    ] {
        assert!(answer.text.contains(text), "{text}");
    }
    let list = portal.get(As::Certificate, "/violations").await.text;
    assert!(list.contains("2 are not shown"));
    let cameras = portal.get(As::Certificate, "/cameras").await.text;
    assert!(cameras.contains("3, 5–6") && cameras.contains("2 declared lost"));
    assert!(cameras.contains("4 not sealed"));
}

#[tokio::test]
async fn refusals_name_the_reason_and_the_rule() {
    let portal = Portal::new();
    portal.fake.denied.store(true, Ordering::SeqCst);
    for path in [
        "/violations",
        "/cameras",
        &format!("/violations/{ID}/thumbnail"),
    ] {
        let answer = portal.get(As::Certificate, path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(answer.text.contains("above your clearance"), "{path}");
        assert!(answer.text.contains("<code>no-read-up</code>"), "{path}");
    }
    let missing = Portal::new().get(As::Certificate, "/violations/v-0").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn forms_need_the_token_of_the_person_they_were_made_for() {
    let portal = Portal::new();
    let page = format!("/violations/{ID}");
    let token = portal.get(As::Certificate, &page).await.token();
    let (review, export) = (format!("{page}/review"), format!("{page}/export"));
    portal.calls();
    let other = Portal::new().get(As::Certificate, &page).await.token();
    for bad in ["", "&token=", "&token=00", &format!("&token={other}")] {
        let form = format!("decision=accept&reason=x{bad}");
        let answer = portal.post(As::Certificate, &review, &form).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{bad}");
        let answer = portal.post(As::Certificate, &export, &form).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{bad}");
    }
    assert!(portal.calls().is_empty());

    let form = format!("decision=reject&reason=+blurred+&token={token}");
    let answer = portal.post(As::Certificate, &review, &form).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (StatusCode::SEE_OTHER, page.as_str())
    );
    assert_eq!(portal.calls(), [format!("review {ID} rejected blurred")]);
    for bad in [
        "decision=perhaps&reason=x",
        "decision=accept&reason=++",
        "reason=x",
    ] {
        let form = format!("{bad}&token={token}");
        let answer = portal.post(As::Certificate, &review, &form).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{bad}");
    }
    for (seen, status) in [
        ("1", StatusCode::SEE_OTHER),
        ("7", StatusCode::CONFLICT),
        ("-1", StatusCode::BAD_REQUEST),
        ("one", StatusCode::BAD_REQUEST),
    ] {
        let form = format!("decision=accept&reason=x&seen={seen}&token={token}");
        let answer = portal.post(As::Certificate, &review, &form).await;
        assert_eq!(answer.status, status, "{seen}");
    }
    let shown = portal.get(As::Certificate, &page).await;
    assert!(shown.text.contains("name=\"seen\" value=\"1\""));
    for (length, status) in [
        (1000, StatusCode::SEE_OTHER),
        (1001, StatusCode::BAD_REQUEST),
    ] {
        let reason = "%C5%BC".repeat(length);
        let form = format!("decision=accept&reason={reason}&token={token}");
        let answer = portal.post(As::Certificate, &review, &form).await;
        assert_eq!(answer.status, status, "{length}");
    }
    let answer = portal
        .post(As::Certificate, &export, &format!("token={token}"))
        .await;
    assert_eq!(answer.text, "PK");
    let disposition = format!("attachment; filename=\"{ID}.zip\"");
    assert_eq!(answer.header("content-disposition"), disposition);
}

#[tokio::test]
async fn only_pictures_and_films_are_shown_in_place() {
    let portal = Portal::new();
    let path = format!("/violations/{ID}/media/0");
    for (given, shown, disposition) in [
        ("image/jpeg", "image/jpeg", "inline"),
        ("video/mp4", "video/mp4", "inline"),
        ("text/html", "application/octet-stream", "attachment"),
        ("image/svg+xml", "application/octet-stream", "attachment"),
    ] {
        given.clone_into(&mut portal.fake.medium_type.lock().unwrap());
        let answer = portal.get(As::Certificate, &path).await;
        assert_eq!(answer.header("content-type"), shown);
        let expected = format!("{disposition}; filename=\"a__b___x__y.jpg\"");
        assert_eq!(answer.header("content-disposition"), expected);
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.text, "bytes");
    }
    let answer = portal
        .get(As::Certificate, &format!("/violations/{ID}/thumbnail"))
        .await;
    assert_eq!(answer.header("content-type"), "image/jpeg");
    assert_eq!(answer.header("cache-control"), "private, max-age=60");
}

#[tokio::test]
async fn the_filter_goes_to_the_backend_or_says_what_is_wrong() {
    let portal = Portal::new();
    let answer = portal
        .get(As::Certificate, "/violations?plate=+KR+&before=30")
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(portal.calls(), ["list KR Some(30)"]);
    assert!(
        answer
            .text
            .contains("/violations?before=4&#38;plate=%20KR%20"),
        "{}",
        answer.text
    );
    for (query, word) in [
        ("from=yesterday", "From: "),
        ("to=2026-13-01", "To: "),
        ("to=9999-12-31", "To: "),
        ("speed=fast", "From km/h: "),
        ("state=lost", "State: "),
        ("before=x", "Older: "),
        ("plate=a&plate=b", "plate"),
        ("speed=%3Cscript%3E", "&#60;script&#62;"),
    ] {
        let answer = portal
            .get(As::Certificate, &format!("/violations?{query}"))
            .await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        assert!(answer.text.contains(word), "{query}: {}", answer.text);
        assert!(portal.calls().is_empty());
    }
    // As large as it gets.
    let answer = portal
        .get(As::Certificate, "/violations?before=9223372036854775807")
        .await;
    assert_eq!(answer.status, StatusCode::OK);
}
