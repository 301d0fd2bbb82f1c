//! Media on a violation's page, whole and in parts.

use http::{Request, StatusCode};
use portal_testkit::As;

use crate::fake::{ID, Portal};

#[tokio::test]
async fn page_shows_pictures_and_films_and_links_anything_else() {
    let portal = Portal::new();
    let page = portal
        .get(As::Certificate, &format!("/violations/{ID}"))
        .await;
    let of = |index: usize| format!("src=\"/violations/{ID}/media/{index}\"");
    for (index, tag) in [
        (0, Some("<img ")),
        (1, Some("<video ")),
        (2, None),
        (3, Some("<img ")),
        (4, None),
    ] {
        let found = page.text.lines().find(|line| line.contains(&of(index)));
        let is_shown = |tag: &str| found.is_some_and(|line| line.contains(tag));
        assert_eq!(found.is_some(), tag.is_some(), "{index}");
        assert!(tag.is_none_or(is_shown), "{index}: {found:?}");
    }
}

#[tokio::test]
async fn medium_is_given_in_parts() {
    let portal = Portal::new();
    let get = async |name: &str, value: &str| {
        let path = format!("/violations/{ID}/media/0");
        let request = Request::get(path).header(name, value);
        portal.send(As::Certificate, request, "").await
    };
    for (range, place, text) in [
        ("bytes=0-1", "bytes 0-1/5", "by"),
        ("bytes=1-", "bytes 1-4/5", "ytes"),
        ("bytes=-2", "bytes 3-4/5", "es"),
        ("bytes=9-,0-0", "bytes 0-0/5", "b"),
    ] {
        let part = get("range", range).await;
        assert_eq!(part.status, StatusCode::PARTIAL_CONTENT, "{range}");
        assert_eq!(
            (part.header("content-range"), part.text.as_str()),
            (place, text)
        );
        assert_eq!(part.header("content-length"), text.len().to_string());
        assert_eq!(part.header("accept-ranges"), "bytes");
    }
    for range in ["bytes=5-", "bytes=-0"] {
        let none = get("range", range).await;
        assert_eq!(none.status, StatusCode::RANGE_NOT_SATISFIABLE, "{range}");
        assert_eq!(
            (none.header("content-range"), none.text.as_str()),
            ("bytes */5", "")
        );
    }
    for (name, value) in [
        ("range", "bytes=0-0,2-2"),
        ("range", "x"),
        ("if-range", "\"00\""),
    ] {
        let whole = get(name, value).await;
        assert_eq!(
            (whole.status, whole.text.as_str()),
            (StatusCode::OK, "bytes"),
            "{value}"
        );
        assert_eq!(
            (whole.header("accept-ranges"), whole.header("etag")),
            ("bytes", "\"00\"")
        );
    }
}
