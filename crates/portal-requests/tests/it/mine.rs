//! Pages of applicants: everybody who is let in reaches them, and a form asks for no more than it says.

use http::{Request, StatusCode};
use portal::PageError;
use portal_requests::{StepError, TEXTS};
use portal_testkit::{As, EVIL, PASSWORD, assert_headers, assert_sound, assert_translated};

use crate::fake::{Portal, REQUEST, conflict};

/// Every address below `/certificates` that there is, with each method that it has.
fn addresses() -> Vec<(&'static str, String)> {
    let of = |rest: &str| format!("/certificates/{REQUEST}{rest}");
    vec![
        ("GET", "/certificates".to_owned()),
        ("GET", "/certificates?before=3.ab".to_owned()),
        ("POST", "/certificates".to_owned()),
        ("GET", "/certificates/new".to_owned()),
        ("GET", of("")),
        ("GET", of("/edit")),
        ("POST", of("/edit")),
        ("POST", of("/steps")),
        ("GET", of("/certificate")),
    ]
}

async fn cookie(portal: &Portal) -> String {
    let login = format!("uid=officer-4711&password={}", PASSWORD.replace(' ', "+"));
    let answer = portal.post(As::Nobody, "/login", &login).await;
    let cookie = answer.header("set-cookie").split(['=', ';']).nth(1);
    portal.calls();
    cookie.unwrap().to_owned()
}

async fn token(portal: &Portal, cookie: &str) -> String {
    let page = portal.get(As::Cookie(cookie), "/certificates/new").await;
    let token = page.token();
    portal.calls();
    token
}

fn changes(call: &str) -> bool {
    call.starts_with("apply") || call.starts_with("own ")
}

#[tokio::test]
async fn pages_are_sound_for_a_password_and_a_certificate_and_nothing_typed_becomes_markup() {
    let portal = Portal::new();
    let cookie = cookie(&portal).await;
    for (method, path) in addresses() {
        if method != "GET" || path.ends_with("/certificate") {
            continue;
        }
        for who in [As::Certificate, As::Cookie(&cookie)] {
            let answer = portal.get(who, &path).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}");
            assert_headers(&answer, &path);
            assert_sound(&answer.text, &path);
        }
    }
    for wrong in ["/certificates?before=x", "/certificates?before=1.%2e%2e"] {
        let answer = portal.get(As::Cookie(&cookie), wrong).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[test]
fn every_text_is_there_in_each_language() {
    assert_translated(TEXTS);
}

#[tokio::test]
async fn strangers_are_sent_to_the_login_and_reading_changes_nothing() {
    let portal = Portal::new();
    for (method, path) in addresses() {
        let request = Request::builder().method(method).uri(&path);
        let stranger = portal.send(As::Nobody, request, "").await;
        assert_eq!(stranger.status, StatusCode::SEE_OTHER, "{method} {path}");
        assert_eq!(stranger.header("location"), "/login", "{method} {path}");
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let request = Request::builder().method(method).uri(&path);
            let answer = portal.send(As::Certificate, request, "").await;
            let known = matches!(answer.status.as_u16(), 200 | 400 | 404);
            assert!(known, "{method} {path}: {}", answer.status);
        }
    }
    let calls = portal.calls();
    assert_eq!(calls.iter().find(|call| changes(call)), None, "{calls:?}");
}

#[tokio::test]
async fn a_form_without_the_persons_token_does_nothing() {
    let portal = Portal::new();
    let cookie = cookie(&portal).await;
    let own = token(&portal, &cookie).await;
    let posted = addresses();
    for (_, path) in posted.iter().filter(|(method, _)| *method == "POST") {
        for token in ["", "token=&", &format!("token={}&", "0".repeat(64))] {
            let body = format!("{token}seen=3&step=submit&reason=x&csr=x");
            let answer = portal.post(As::Cookie(&cookie), path, &body).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {token}");
        }
        // The token of one login is none of another.
        let body = format!("token={own}&seen=3&step=submit&reason=x&csr=x");
        let answer = portal.post(As::Certificate, path, &body).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    let calls = portal.calls();
    assert_eq!(calls.iter().find(|call| changes(call)), None, "{calls:?}");
}

#[tokio::test]
async fn steps_name_the_version_that_was_seen_and_what_is_against_one_is_shown() {
    let portal = Portal::new();
    let cookie = cookie(&portal).await;
    let token = token(&portal, &cookie).await;
    let who = || As::Cookie(&cookie);
    let own = format!("/certificates/{REQUEST}");
    for (step, expected) in [
        ("submit", "Submit"),
        ("withdraw", "Withdraw"),
        ("carry-out", "CarryOut"),
    ] {
        let body = format!("token={token}&seen=3&step={step}");
        let answer = portal.post(who(), &format!("{own}/steps"), &body).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{step}");
        assert_eq!(answer.header("location"), own);
        let call = portal.calls().pop().unwrap();
        assert_eq!(call, format!("own {REQUEST} 3 {expected}"));
    }
    // An applicant cannot approve, return or refuse.
    for (seen, step) in [
        ("", "submit"),
        ("x", "submit"),
        ("3", "approve"),
        ("3", "return"),
        ("3", "refuse"),
    ] {
        let body = format!("token={token}&seen={seen}&step={step}&signature=AAAA");
        let answer = portal.post(who(), &format!("{own}/steps"), &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{seen:?} {step:?}");
        let calls = portal.calls();
        assert_eq!(calls.iter().find(|call| changes(call)), None, "{calls:?}");
    }
    for (error, status) in [
        (
            StepError::Refused {
                code: "csr-refused".to_owned(),
                message: EVIL.to_owned(),
            },
            StatusCode::BAD_REQUEST,
        ),
        (StepError::Conflict(conflict()), StatusCode::CONFLICT),
        (StepError::Page(PageError::NotFound), StatusCode::NOT_FOUND),
    ] {
        for path in [
            "/certificates".to_owned(),
            format!("{own}/edit"),
            format!("{own}/steps"),
        ] {
            *portal.fake.step_error.lock().unwrap() = Some(error.clone());
            let body = format!("token={token}&seen=3&step=submit&reason=x&csr=typed-before");
            let answer = portal.post(who(), &path, &body).await;
            assert_eq!(answer.status, status, "{path}");
            assert_sound(&answer.text, &path);
            let is_form = !path.ends_with("steps") && status != StatusCode::NOT_FOUND;
            assert_eq!(answer.text.contains("typed-before"), is_form, "{path}");
        }
    }
}
