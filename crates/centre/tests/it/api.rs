//! The people's side over HTTP.

use axum::body::Body;
use http::{Request, StatusCode};
use pki::clearance::Clearance;

use crate::site::{Site, call};
use crate::world::{CAMERA, Shot};

#[tokio::test]
async fn nobody_gets_in_without_a_principal() {
    let site = Site::new().await;
    for (method, path) in [
        ("GET", "/api/v1/violations"),
        ("GET", "/api/v1/violations/v-0"),
        ("GET", "/api/v1/violations/v-0/media/0"),
        ("POST", "/api/v1/violations/v-0/reviews"),
        ("GET", "/api/v1/cameras"),
        ("GET", "/api/v1/openapi.json"),
    ] {
        let request = Request::builder().method(method).uri(path);
        let answer = call(
            site.centre.api_router(),
            request.body(Body::empty()).unwrap(),
        )
        .await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}");
        assert_eq!(answer.code(), "no-certificate");
        assert!(!answer.json()["hint"].as_str().unwrap().is_empty());
    }
    let busy = centre::Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "busy", "wait");
    for (failure, status, code) in [
        (None, StatusCode::FORBIDDEN, "certificate-revoked"),
        (Some(busy), StatusCode::SERVICE_UNAVAILABLE, "busy"),
    ] {
        let refused = centre::DeviceRefused {
            code: "certificate-revoked".into(),
            message: "revoked".into(),
            failure,
        };
        let request = Request::get("/api/v1/cameras").extension(refused);
        let answer = call(
            site.centre.api_router(),
            request.body(Body::empty()).unwrap(),
        )
        .await;
        assert_eq!((answer.status, answer.code().as_ref()), (status, code));
    }
    assert!(site.sink.events().is_empty());
}

#[tokio::test]
async fn lists_details_media_and_reviews() {
    let site = Site::new().await;
    let mut shot = Shot::first();
    let page = b"<script>alert(1)</script>".to_vec();
    shot.media
        .push(("it's.html".into(), "text/html".into(), page.clone()));
    let block = site.world.camera(CAMERA).seal(&shot);
    site.deliver(CAMERA, &block).await;
    let who = site.world.reviewer(Clearance::Secret);
    let id = block.violation();

    let answer = site
        .get(
            &who,
            "/api/v1/violations?plate=4711&from=2020-01-01T00:00:00Z",
        )
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("cache-control"), "no-store");
    let list = answer.json();
    assert_eq!(list["rows"][0]["id"], id.as_str());
    assert_eq!(list["rows"][0]["speed_kmh"], 163);
    let details = site
        .get(&who, &format!("/api/v1/violations/{id}"))
        .await
        .json();
    assert_eq!(details["plate"], "KR 4711");
    assert_eq!(details["latitude_microdeg"], 50_064_650);
    assert_eq!(details["media"][1]["media_type"], "text/html");
    assert_eq!(details["block_sha256"], block.hash().as_str());

    // A medium keeps its type, but the browser must neither show nor run it.
    let answer = site
        .get(&who, &format!("/api/v1/violations/{id}/media/1"))
        .await;
    assert_eq!(answer.body, page);
    assert_eq!(answer.header("content-length"), "25");
    assert_eq!(
        answer.header("content-disposition"),
        "attachment; filename=\"it_s.html\""
    );
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert!(
        answer
            .header("content-security-policy")
            .ends_with("sandbox")
    );
    let answer = site
        .get(&who, &format!("/api/v1/violations/{id}/media/0"))
        .await;
    assert_eq!(answer.body, shot.media[0].2);

    let review = async |body: &str| {
        let path = format!("/api/v1/violations/{id}/reviews");
        let request = Request::post(path)
            .extension(who.clone())
            .header("content-type", "application/json");
        site.people(request.body(Body::from(body.to_owned())).unwrap())
            .await
    };
    let answer = review(r#"{"decision":"accepted","reason":"legible"}"#).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    for (bad, code) in [
        (r#"{"decision":"accepted","reason":"  "}"#, "bad-reason"),
        (r#"{"decision":"perhaps","reason":"x"}"#, "malformed"),
        (
            r#"{"decision":"accepted","reason":"x","more":1}"#,
            "malformed",
        ),
        (r#"{"decision":"rejected","reason":"x"}"#, "stale-decision"),
        (
            r#"{"decision":"rejected","reason":"x","seen":2}"#,
            "stale-decision",
        ),
        (
            r#"{"decision":"rejected","reason":"x","seen":-1}"#,
            "malformed",
        ),
        ("not json", "malformed"),
    ] {
        let answer = review(bad).await;
        assert!(answer.status.is_client_error(), "{bad}");
        assert_eq!(answer.code(), code, "{bad}");
    }
    let long = format!(
        r#"{{"decision":"accepted","seen":1,"reason":"{}"}}"#,
        "ż".repeat(1001)
    );
    assert_eq!(review(&long).await.code(), "bad-reason");
    assert_eq!(
        review(&long.replacen('ż', "", 1)).await.status,
        StatusCode::NO_CONTENT
    );
}

#[tokio::test]
async fn problems_are_json_with_a_code() {
    let site = Site::new().await;
    let mut shot = Shot::first();
    shot.level = Clearance::Secret;
    let block = site.world.camera(CAMERA).seal(&shot);
    site.deliver(CAMERA, &block).await;
    let who = site.world.reviewer(Clearance::Restricted);
    let of = |end: &str| format!("/api/v1/violations/{}{end}", block.violation());
    for (path, status, code) in [
        (of(""), 403, "no-read-up"),
        (of("/media/0"), 403, "no-read-up"),
        ("/api/v1/violations/v-0".into(), 404, "not-found"),
        (of("/media/x"), 404, "not-found"),
        ("/api/v1/violations/%ff".into(), 404, "not-found"),
        ("/api/v1/violations?before=x".into(), 400, "malformed"),
        ("/api/v1/violations?colour=red".into(), 400, "malformed"),
        ("/api/v1/violations?state=lost".into(), 400, "malformed"),
        (of("/reviews"), 405, "method-not-allowed"),
    ] {
        let answer = site.get(&who, &path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert_eq!(answer.code(), code, "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    assert_eq!(
        site.get(&who, "/api/v1/cameras").await.json()[0]["device"],
        CAMERA
    );
}

#[tokio::test]
async fn the_description_names_every_route() {
    let site = Site::new().await;
    let who = site.world.reviewer(Clearance::Restricted);
    let answer = site.get(&who, "/api/v1/openapi.json").await;
    let description = answer.json();
    let paths: Vec<_> = description["paths"].as_object().unwrap().keys().collect();
    let mut paths: Vec<&str> = paths.into_iter().map(String::as_str).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "/api/v1/cameras",
            "/api/v1/openapi.json",
            "/api/v1/violations",
            "/api/v1/violations/{id}",
            "/api/v1/violations/{id}/media/{index}",
            "/api/v1/violations/{id}/reviews"
        ]
    );
    let schemas = description["components"]["schemas"].as_object().unwrap();
    // Every reference leads somewhere.
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
}
