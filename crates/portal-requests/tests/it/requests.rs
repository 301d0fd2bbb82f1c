//! Pages of registration requests: who reaches them, what a form does, and what it does not.

use std::sync::atomic::Ordering;

use http::{Request, StatusCode};
use portal::PageError;
use portal_requests::{RequestConflict, StepError};
use portal_testkit::{As, EVIL, PASSWORD, assert_headers, assert_sound};

use crate::fake::{Portal, REQUEST, conflict};

const FORM: &str = "application/x-www-form-urlencoded";

/// Every address below `/requests` that there is, with each method that it has.
fn addresses() -> Vec<(&'static str, String)> {
    let of = |rest: &str| format!("/requests/{REQUEST}{rest}");
    vec![
        ("GET", "/requests".to_owned()),
        ("GET", "/requests?state=x".to_owned()),
        ("POST", "/requests".to_owned()),
        ("GET", "/requests/new".to_owned()),
        ("GET", "/requests/new?act=issue".to_owned()),
        ("GET", "/requests/about/officer-9".to_owned()),
        ("GET", of("")),
        ("GET", of("/edit")),
        ("POST", of("/edit")),
        ("POST", of("/steps")),
        ("POST", of("/approvals")),
        ("GET", of("/statement?seen=3")),
        ("GET", of("/certificate")),
    ]
}

async fn token(portal: &Portal) -> String {
    let page = portal.get(As::Certificate, "/requests/new?act=issue").await;
    let token = page.token();
    portal.calls();
    token
}

#[tokio::test]
async fn pages_are_sound_and_nothing_typed_becomes_markup() {
    let portal = Portal::new();
    for path in [
        "/requests",
        "/requests/new",
        "/requests/new?act=issue",
        "/requests/new?act=renew",
        "/requests/new?act=revoke",
        "/requests/new?act=holder",
        "/requests/new?act=person",
        "/requests/new?act=recover",
        "/requests/new?act=profile",
        "/requests/new?act=authority",
        "/requests/about/officer-9",
        &format!("/requests/{REQUEST}"),
        &format!("/requests/{REQUEST}/edit"),
    ] {
        let answer = portal.get(As::Certificate, path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_headers(&answer, path);
        assert_sound(&answer.text, path);
    }
}

#[tokio::test]
async fn others_than_officers_get_the_answer_of_a_missing_address() {
    let portal = Portal::new();
    portal.fake.not_officer.store(true, Ordering::SeqCst);
    let nowhere = portal.get(As::Certificate, "/nowhere").await;
    assert_eq!(nowhere.status, StatusCode::NOT_FOUND);
    for (method, path) in addresses() {
        for (kind, body) in [
            (FORM, "token=x&seen=3&step=submit"),
            ("text/plain", "x"),
            (FORM, &"x".repeat(200_000)),
        ] {
            let request = Request::builder().method(method).uri(&path);
            let request = request.header("content-type", kind);
            let answer = portal.send(As::Certificate, request, body).await;
            assert_eq!(answer.status, nowhere.status, "{method} {path}");
            assert_eq!(answer.text, nowhere.text, "{method} {path}");
        }
    }
    let calls = portal.calls();
    assert!(
        calls.iter().all(|call| call.starts_with("officer ")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn password_opens_no_request_and_strangers_go_to_the_login() {
    let portal = Portal::new();
    let login = format!("uid=officer-4711&password={}", PASSWORD.replace(' ', "+"));
    let answer = portal.post(As::Nobody, "/login", &login).await;
    let cookie = answer.header("set-cookie").split(['=', ';']).nth(1);
    let cookie = cookie.unwrap().to_owned();
    portal.calls();
    for (method, path) in addresses() {
        let request = || Request::builder().method(method).uri(&path);
        let known = portal.send(As::Cookie(&cookie), request(), "").await;
        assert_eq!(known.status, StatusCode::NOT_FOUND, "{method} {path}");
        let stranger = portal.send(As::Nobody, request(), "").await;
        assert_eq!(stranger.status, StatusCode::SEE_OTHER, "{method} {path}");
        assert_eq!(stranger.header("location"), "/login", "{method} {path}");
    }
    assert_eq!(portal.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn reading_changes_nothing_and_what_is_posted_to_is_not_there_otherwise() {
    let portal = Portal::new();
    for (_, path) in addresses() {
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let request = Request::builder().method(method).uri(&path);
            let answer = portal.send(As::Certificate, request, "").await;
            let known = matches!(answer.status.as_u16(), 200 | 400 | 404);
            assert!(known, "{method} {path}: {}", answer.status);
        }
    }
    let calls = portal.calls();
    let changing = |call: &&String| call.starts_with("begin") || call.starts_with("step");
    assert_eq!(calls.iter().find(changing), None, "{calls:?}");
}

#[tokio::test]
async fn a_form_without_the_persons_token_does_nothing() {
    let portal = Portal::new();
    let own = token(&portal).await;
    let other = "0".repeat(64);
    let posted = addresses()
        .into_iter()
        .filter(|(method, _)| *method == "POST");
    for (_, path) in posted {
        for token in ["", "token=&", &format!("token={other}&")] {
            let body = format!("{token}seen=3&step=submit&reason=x&act=issue&signature=AAAA");
            let answer = portal.post(As::Certificate, &path, &body).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {token}");
        }
        // A token in the address is none.
        let address = format!("{path}?token={own}");
        let answer = portal.post(As::Certificate, &address, "seen=3&step=submit");
        assert_eq!(answer.await.status, StatusCode::FORBIDDEN, "{path}");
    }
    let calls = portal.calls();
    assert!(
        calls.iter().all(|call| call.starts_with("officer ")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn steps_name_the_version_that_was_seen_and_lead_back_to_the_request() {
    let portal = Portal::new();
    let token = token(&portal).await;
    let steps = format!("/requests/{REQUEST}/steps");
    for (step, expected) in [
        ("submit", "Submit"),
        ("withdraw", "Withdraw"),
        ("carry-out", "CarryOut"),
        ("return", "Return { reason: \"which unit?\" }"),
        ("refuse", "Refuse { reason: \"which unit?\" }"),
    ] {
        let body = format!("token={token}&seen=3&step={step}&reason=which+unit%3F");
        let answer = portal.post(As::Certificate, &steps, &body).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{step}");
        assert_eq!(answer.header("location"), format!("/requests/{REQUEST}"));
        let call = portal.calls().pop().unwrap();
        assert_eq!(call, format!("step {REQUEST} 3 {expected}"));
    }
    for (seen, step) in [
        ("", "submit"),
        ("-1", "submit"),
        ("x", "submit"),
        ("3", "approve"),
        ("3", ""),
    ] {
        let body = format!("token={token}&seen={seen}&step={step}&signature=AAAA");
        let answer = portal.post(As::Certificate, &steps, &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{seen:?} {step:?}");
        assert!(!portal.calls().iter().any(|call| call.starts_with("step")));
    }
}

#[tokio::test]
async fn an_approval_is_a_signature_and_a_click_is_none() {
    let portal = Portal::new();
    let token = token(&portal).await;
    let path = format!("/requests/{REQUEST}/approvals");
    let long = "A".repeat(2052);
    for signature in ["", "++", "%2B%2B%2B", "not+base64%21", &long] {
        let body = format!("token={token}&seen=3&signature={signature}");
        let answer = portal.post(As::Certificate, &path, &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{signature}");
        assert!(
            answer.text.contains("no signature in base64"),
            "{signature}"
        );
        assert!(!portal.calls().iter().any(|call| call.starts_with("step")));
    }
    // As `openssl base64` prints it: in lines.
    let body = format!("token={token}&seen=3&signature=AQID%0D%0ABAUG%0A");
    let answer = portal.post(As::Certificate, &path, &body).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    let call = portal.calls().pop().unwrap();
    let expected = "Approve { signature: [1, 2, 3, 4, 5, 6] }";
    assert_eq!(call, format!("step {REQUEST} 3 {expected}"));
}

#[tokio::test]
async fn the_second_of_two_is_told_who_changed_what_and_keeps_what_was_typed() {
    let portal = Portal::new();
    let token = token(&portal).await;
    let path = format!("/requests/{REQUEST}/edit");
    let body = format!("token={token}&seen=3&act=issue&holder=person&name=mine&csr=x&reason=typed");
    *portal.fake.step_error.lock().unwrap() = Some(StepError::Conflict(conflict()));
    let answer = portal.post(As::Certificate, &path, &body).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_sound(&answer.text, &path);
    for text in [
        "You saw version 3; version 4 is current",
        "value=\"mine\"",
        "typed</textarea>",
        "name=\"seen\" value=\"4\"",
    ] {
        assert!(answer.text.contains(text), "{text}");
    }
    assert!(!answer.text.contains(EVIL));
    // The other steps: the request as it is, and what was typed.
    *portal.fake.step_error.lock().unwrap() = Some(StepError::Conflict(conflict()));
    let body = format!("token={token}&seen=2&step=refuse&reason=typed");
    let steps = format!("/requests/{REQUEST}/steps");
    let answer = portal.post(As::Certificate, &steps, &body).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(answer.text.contains("typed</textarea>"));
    // A signature is not lost either; and what is not known is not said to be the same.
    for (changes, text) in [
        (Some(Vec::new()), "The content is the same"),
        (None, "was not kept"),
    ] {
        let conflict = StepError::Conflict(RequestConflict {
            changes,
            ..conflict()
        });
        *portal.fake.step_error.lock().unwrap() = Some(conflict);
        let body = format!("token={token}&seen=2&step=submit");
        let answer = portal.post(As::Certificate, &steps, &body).await;
        assert!(answer.text.contains(text), "{text}");
    }
    *portal.fake.step_error.lock().unwrap() = Some(StepError::Conflict(conflict()));
    let body = format!("token={token}&seen=2&signature=AQID");
    let approvals = format!("/requests/{REQUEST}/approvals");
    let answer = portal.post(As::Certificate, &approvals, &body).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(answer.text.contains("AQID</textarea>"));
    *portal.fake.step_error.lock().unwrap() = Some(StepError::Conflict(conflict()));
    let statement = format!("/requests/{REQUEST}/statement?seen=2");
    let answer = portal.get(As::Certificate, &statement).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_refusal_keeps_the_form_and_a_fault_is_no_refusal() {
    let portal = Portal::new();
    let token = token(&portal).await;
    let refused = || StepError::Refused {
        code: "key-in-use".to_owned(),
        message: format!("the key has a certificate {EVIL}"),
    };
    let body = format!("token={token}&act=issue&holder=device&name=camera-17&csr=pem&reason=typed");
    *portal.fake.step_error.lock().unwrap() = Some(refused());
    let answer = portal.post(As::Certificate, "/requests", &body).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_sound(&answer.text, "refused");
    for text in [
        "the key has a certificate",
        "camera-17",
        "pem</textarea>",
        "typed</textarea>",
    ] {
        assert!(answer.text.contains(text), "{text}");
    }
    assert_eq!(portal.calls().pop().unwrap(), "begin issue false pem");
    let failed = StepError::Page(PageError::Failed("the log is full".to_owned()));
    *portal.fake.step_error.lock().unwrap() = Some(failed);
    let answer = portal.post(As::Certificate, "/requests", &body).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let body = format!("{body}&submit=yes");
    let answer = portal.post(As::Certificate, "/requests", &body).await;
    assert_eq!(answer.header("location"), format!("/requests/{REQUEST}"));
    assert_eq!(portal.calls().pop().unwrap(), "begin issue true pem");
}

#[tokio::test]
async fn a_form_beyond_its_bound_is_not_read() {
    let portal = Portal::new();
    let token = token(&portal).await;
    let start = format!("token={token}&act=issue&csr=");
    let fits = format!("{start}{}", "A".repeat(96 * 1024 - start.len()));
    let answer = portal.post(As::Certificate, "/requests", &fits).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    portal.calls();
    let answer = portal
        .post(As::Certificate, "/requests", &format!("{fits}A"))
        .await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(!portal.calls().iter().any(|call| call.starts_with("begin")));
}

#[tokio::test]
async fn a_link_fills_in_neither_keys_nor_reasons() {
    let portal = Portal::new();
    let link =
        "/requests/new?act=issue&holder=device&name=camera-17&csr=THEIRS&reason=THEIRS&clearance=4";
    let page = portal.get(As::Certificate, link).await.text;
    assert!(
        page.contains("value=\"camera-17\"") && page.contains("<option value=\"device\" selected>")
    );
    assert!(!page.contains("THEIRS") && !page.contains("<option value=\"4\" selected>"));
}

#[tokio::test]
async fn downloads_are_files_and_places_in_lists_are_checked() {
    let portal = Portal::new();
    let path = format!("/requests/{REQUEST}/statement?seen=3");
    let statement = portal.get(As::Certificate, &path).await;
    assert_eq!(statement.text, "{}");
    assert_eq!(
        statement.header("content-disposition"),
        format!("attachment; filename=\"request-{REQUEST}-3.json\"")
    );
    let path = format!("/requests/{REQUEST}/certificate");
    let certificate = portal.get(As::Certificate, &path).await;
    assert!(
        certificate
            .header("content-disposition")
            .starts_with("attachment")
    );
    let queue = portal
        .get(As::Certificate, "/requests?state=refused")
        .await
        .text;
    assert!(
        queue.contains(&format!("/requests?state=refused&#38;before=17.{REQUEST}")),
        "{queue}"
    );
    for query in [
        "state=x",
        "before=x",
        "before=1",
        "before=x.ab",
        "before=1.a%27b",
        "state=%00",
    ] {
        for path in ["/requests", "/requests/about/x"] {
            let answer = portal
                .get(As::Certificate, &format!("{path}?{query}"))
                .await;
            let bad = answer.status == StatusCode::BAD_REQUEST;
            assert!(
                bad || path.ends_with('x') && query.starts_with("state"),
                "{path} {query}"
            );
        }
    }
}
