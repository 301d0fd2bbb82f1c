//! What the pages show, and what they never do.

use std::sync::atomic::Ordering;

use http::{Request, StatusCode};

use crate::client::{Answer, As, Portal};
use crate::fake::{EVIL, ID};

fn pages() -> Vec<String> {
    let paths = [
        "/",
        "/login",
        "/violations",
        "/cameras",
        "/audit",
        "/nowhere",
        "/violations?from=x",
    ];
    let mut paths: Vec<String> = paths.map(str::to_owned).into();
    paths.push(format!("/violations/{ID}"));
    paths.push(format!("/violations/{ID}/media/x"));
    paths.push("/violations/v-0".to_owned());
    paths
}

pub(crate) fn assert_headers(answer: &Answer, what: &str) {
    let policy = answer.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'"), "{what}: {policy}");
    assert!(!policy.contains("unsafe"), "{what}");
    assert_eq!(answer.header("x-content-type-options"), "nosniff", "{what}");
    assert_eq!(answer.header("x-frame-options"), "DENY", "{what}");
    assert_eq!(answer.header("referrer-policy"), "no-referrer", "{what}");
    assert!(
        !answer.header("strict-transport-security").is_empty(),
        "{what}"
    );
    assert!(!answer.header("cache-control").is_empty(), "{what}");
}

/// The values of `attribute` in tags of `name`, and what stands before the tag.
fn tags<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("<{name}");
    let tags = html.split(&start).skip(1);
    let tags = tags.filter(|rest| rest.starts_with([' ', '>', '\n']));
    tags.map(|rest| rest.split('>').next().unwrap()).collect()
}

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let portal = Portal::new();
    for who in [As::Nobody, As::Certificate] {
        for path in pages() {
            assert_headers(&portal.get(who, &path).await, &path);
        }
        for path in ["/assets/style.css", "/assets/icon.svg"] {
            let answer = portal.get(who, path).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_headers(&answer, path);
        }
        assert_headers(&portal.post(who, "/login", "x").await, "bad form");
        let wrong = portal.send(who, Request::delete("/violations"), "").await;
        assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_headers(&wrong, "wrong method");
    }
    portal.fake.broken.store(true, Ordering::SeqCst);
    let answer = portal.get(As::Certificate, "/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_headers(&answer, "failure");
}

#[tokio::test]
async fn pages_are_sound_and_nothing_typed_becomes_markup() {
    let portal = Portal::new();
    for path in pages() {
        let html = portal.get(As::Certificate, &path).await.text;
        assert_sound(&html, &path);
    }
}

/// Well-formed as far as it matters, with a label for every field, and without anybody's markup.
pub(crate) fn assert_sound(html: &str, path: &str) {
    assert!(html.starts_with("<!doctype html>"), "{path}");
    assert_eq!(tags(html, "html"), [" lang=\"en\""], "{path}");
    assert_eq!(tags(html, "title").len(), 1, "{path}");
    assert!(!html.contains("<title> ·"), "{path}");
    assert_eq!(tags(html, "h1").len(), 1, "{path}");
    assert_eq!(tags(html, "main").len(), 1, "{path}");
    assert!(
        tags(html, "script").is_empty() && !html.contains("onerror=alert(1)>"),
        "{path}"
    );
    assert!(!html.contains(EVIL), "{path}");
    for image in tags(html, "img") {
        assert!(image.contains(" alt="), "{path}: {image}");
    }
    for kind in ["input", "select", "textarea"] {
        for part in html
            .split(&format!("<{kind}"))
            .collect::<Vec<_>>()
            .windows(2)
        {
            let hidden = part[1].starts_with(" type=\"hidden\"");
            let (opened, closed) = (part[0].rfind("<label"), part[0].rfind("</label"));
            assert!(
                hidden || opened > closed,
                "{path}: a {kind} without a label"
            );
        }
    }
    for element in [
        "div", "section", "form", "table", "ul", "li", "a", "p", "span", "dl", "tr", "td", "th",
    ] {
        let closed = html.matches(&format!("</{element}>")).count();
        assert_eq!(tags(html, element).len(), closed, "{path}: {element}");
    }
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
    let audit = portal.get(As::Certificate, "/audit?before=5").await.text;
    assert!(audit.contains("href=\"/audit?before=4\""));
}

#[tokio::test]
async fn refusals_name_the_reason_and_the_rule() {
    let portal = Portal::new();
    portal.fake.denied.store(true, Ordering::SeqCst);
    for path in [
        "/violations",
        "/cameras",
        "/audit",
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
        ("from=yesterday", "from: "),
        ("to=2026-13-01", "to: "),
        ("to=9999-12-31", "to: "),
        ("speed=fast", "speed: "),
        ("state=lost", "state: "),
        ("before=x", "before: "),
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
    let answer = portal.get(As::Certificate, "/audit?before=x").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}
