//! Who gets in, and how sessions begin and end.

use std::sync::atomic::Ordering;

use http::{Request, StatusCode};

use portal_testkit::{Answer, As, Client, assert_sound};

use crate::example::portal;

async fn log_in(portal: &Client) -> (Answer, String) {
    let form = "uid=officer-4711&password=correct+horse";
    let answer = portal.post(As::Nobody, "/login", form).await;
    let cookie = answer.header("set-cookie").to_owned();
    let value = cookie.strip_prefix("__Host-cordon=").unwrap();
    let value = value.split(';').next().unwrap().to_owned();
    (answer, value)
}

#[tokio::test]
async fn login_leads_back_to_own_addresses_only() {
    let (portal, _) = portal();
    let form = portal
        .get(As::Nobody, "/login?next=%2Faudit%3Fbefore%3D4")
        .await;
    assert!(form.text.contains(r#"name="next" value="/audit?before=4""#));
    let log_in = async |next: &str| {
        let form = format!("uid=a&password=correct+horse&next={next}");
        portal.post(As::Nobody, "/login", &form).await
    };
    let back = log_in("%2Faudit%3Fbefore%3D4").await;
    assert_eq!(back.header("refresh"), "0; url=/audit?before=4");
    assert_sound(&back.text, "continue");
    for foreign in [
        "%2F%2Fevil.example",
        "https%3A%2F%2Fevil.example",
        "%2F%5Cevil.example",
        "%2Fa%0D%0Ab",
        "",
    ] {
        let home = log_in(foreign).await;
        assert_eq!(
            (home.header("location"), home.header("refresh")),
            ("/", ""),
            "{foreign}"
        );
        let form = portal
            .get(As::Nobody, &format!("/login?next={foreign}"))
            .await;
        assert!(!form.text.contains("evil.example"), "{foreign}");
    }
}

#[tokio::test]
async fn every_page_wants_somebody() {
    let (portal, _) = portal();
    for path in ["/", "/notes", "/nowhere"] {
        for who in [As::Nobody, As::Cookie("00"), As::Cookie("")] {
            let answer = portal.get(who, path).await;
            assert_eq!(answer.status, StatusCode::SEE_OTHER, "{path}");
            assert_eq!(answer.header("location"), "/login", "{path}");
            assert!(answer.text.is_empty());
        }
    }
    let answer = portal.post(As::Nobody, "/notes", "token=x&note=x").await;
    assert_eq!(answer.header("location"), "/login");
    assert!(portal.calls().is_empty());
}

#[tokio::test]
async fn a_refused_certificate_says_why_on_every_page() {
    let (portal, _) = portal();
    portal
        .people
        .certificate_revoked
        .store(true, Ordering::SeqCst);
    for path in ["/", "/notes", "/nowhere"] {
        let answer = portal.get(As::Certificate, path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(answer.text.contains("<code>certificate-revoked</code>"));
        assert!(
            answer.text.contains("was revoked &#60;today&#62;"),
            "{}",
            answer.text
        );
    }
    // An old session does not hide it.
    let (_, cookie) = log_in(&portal).await;
    let request =
        Request::get("/").extension(pki::tls::PeerCertificates(std::sync::Arc::new(vec![])));
    let answer = portal.send(As::Cookie(&cookie), request, "").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_password_opens_a_session() {
    let (portal, _) = portal();
    let (answer, cookie) = log_in(&portal).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (StatusCode::SEE_OTHER, "/")
    );
    let attributes = answer.header("set-cookie").split_once(';').unwrap().1;
    assert_eq!(attributes, " Path=/; Secure; HttpOnly; SameSite=Strict");
    assert_eq!(cookie.len(), 64);
    assert_eq!(
        portal.calls(),
        ["login officer-4711 None", "session.start officer-4711"]
    );
    let answer = portal.get(As::Cookie(&cookie), "/").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.text.contains("Log out"));
    // A certificate needs no session, so there is nothing to log out of.
    assert!(
        !portal
            .get(As::Certificate, "/")
            .await
            .text
            .contains("Log out")
    );
}

#[tokio::test]
async fn a_wrong_password_shows_the_form_again() {
    let (portal, _) = portal();
    let form = "uid=%22%3E%3Cscript%3E&password=wrong";
    let answer = portal.post(As::Nobody, "/login", form).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(answer.header("set-cookie"), "");
    assert!(answer.text.contains("user name or password is wrong"));
    assert!(!answer.text.contains("<script"));
    assert!(
        !answer.text.contains("wrong\""),
        "the password must not come back"
    );
    let answer = portal.post(As::Nobody, "/login", "uid=officer-4711").await;
    assert!(answer.status.is_client_error());
    assert!(answer.text.contains("<h1>Not understood</h1>"));
}

#[tokio::test]
async fn logging_in_again_ends_the_old_session() {
    let (portal, _) = portal();
    let (_, old) = log_in(&portal).await;
    let form = "uid=officer-4711&password=correct+horse";
    portal.post(As::Cookie(&old), "/login", form).await;
    assert_eq!(
        portal.get(As::Cookie(&old), "/").await.header("location"),
        "/login"
    );
}

#[tokio::test]
async fn logging_out_needs_the_own_token() {
    let (portal, _) = portal();
    let (_, cookie) = log_in(&portal).await;
    let who = As::Cookie(&cookie);
    let token = portal.get(who, "/").await.token();
    for form in ["", "token=", "token=00"] {
        let answer = portal.post(who, "/logout", form).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{form:?}");
        assert_eq!(answer.header("set-cookie"), "");
        assert_eq!(portal.get(who, "/").await.status, StatusCode::OK);
    }
    portal.calls();
    let answer = portal.post(who, "/logout", &format!("token={token}")).await;
    assert_eq!(answer.header("location"), "/login");
    assert!(answer.header("set-cookie").starts_with("__Host-cordon=; "));
    assert!(answer.header("set-cookie").ends_with("Max-Age=0"));
    assert_eq!(portal.calls(), ["session.end officer-4711"]);
    assert_eq!(portal.get(who, "/").await.header("location"), "/login");
}

#[tokio::test]
async fn a_session_ends_when_the_directory_says_so() {
    let (portal, _) = portal();
    let (_, cookie) = log_in(&portal).await;
    portal.people.session_over.store(true, Ordering::SeqCst);
    let answer = portal.get(As::Cookie(&cookie), "/notes").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.text.contains("account-disabled"));
    // It stays ended when the account comes back.
    portal.people.session_over.store(false, Ordering::SeqCst);
    assert_eq!(
        portal
            .get(As::Cookie(&cookie), "/")
            .await
            .header("location"),
        "/login"
    );
}

#[tokio::test]
async fn session_of_an_older_epoch_has_ended() {
    let (portal, _) = portal();
    let (_, cookie) = log_in(&portal).await;
    assert_eq!(
        portal.get(As::Cookie(&cookie), "/").await.status,
        StatusCode::OK
    );
    portal.people.epoch.fetch_add(1, Ordering::SeqCst);
    let answer = portal.get(As::Cookie(&cookie), "/notes").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.text.contains("session-ended"));
    let again = portal.get(As::Cookie(&cookie), "/").await;
    assert_eq!(again.header("location"), "/login");
    // A new login is of the new epoch.
    let (_, cookie) = log_in(&portal).await;
    assert_eq!(
        portal.get(As::Cookie(&cookie), "/").await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn directory_that_cannot_be_read_ends_no_session() {
    let (portal, _) = portal();
    let (_, cookie) = log_in(&portal).await;
    portal.people.unreadable.store(true, Ordering::SeqCst);
    let answer = portal.get(As::Cookie(&cookie), "/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    portal.people.unreadable.store(false, Ordering::SeqCst);
    let answer = portal.get(As::Cookie(&cookie), "/").await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn login_that_cannot_be_recorded_opens_no_session() {
    let (portal, _) = portal();
    portal.people.unrecorded.store(true, Ordering::SeqCst);
    let form = "uid=officer-4711&password=correct+horse";
    let answer = portal.post(As::Nobody, "/login", form).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("set-cookie"), "");
}

#[tokio::test]
async fn what_another_site_posts_is_refused() {
    let (portal, _) = portal();
    let form = "uid=officer-4711&password=correct+horse";
    for (site, status) in [
        ("cross-site", StatusCode::FORBIDDEN),
        ("same-site", StatusCode::FORBIDDEN),
        ("same-origin", StatusCode::SEE_OTHER),
        ("none", StatusCode::SEE_OTHER),
    ] {
        let request = Request::post("/login")
            .header("content-type", "application/x-www-form-urlencoded")
            .header("sec-fetch-site", site);
        let answer = portal.send(As::Nobody, request, form).await;
        assert_eq!(answer.status, status, "{site}");
    }
}
