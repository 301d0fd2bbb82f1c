//! Parts of films, and the event of a look at one.

use access::Principal;
use centre::{Asked, Part, ReviewError};
use futures_util::StreamExt as _;
use http::{Request, StatusCode};
use pki::clearance::Clearance;

use crate::review::deliver;
use crate::site::Site;
use crate::world::{Block, CAMERA};

/// Several pieces of 256 KiB, and a last chunk that is not full.
const SIZE: usize = 700_001;

fn film() -> Vec<u8> {
    (0..SIZE).map(|n| (n % 251) as u8).collect()
}

async fn site() -> (Site, Block, Principal) {
    let site = Site::new().await;
    let mut blocks = deliver(&site, &site.world.camera(CAMERA), 1, |_, shot| {
        let other = ("a.mp4".into(), "video/mp4".into(), vec![7; 100_000]);
        shot.media = vec![other, ("b.mp4".into(), "video/mp4".into(), film())];
    })
    .await;
    let who = site.world.reviewer(Clearance::Secret);
    (site, blocks.remove(0), who)
}

fn asked(range: &str) -> Asked {
    Asked {
        range: Some(range.into()),
        if_range: None,
    }
}

async fn read(
    site: &Site,
    who: &Principal,
    id: &str,
    asked: &Asked,
) -> Result<(Option<Part>, Vec<u8>), ReviewError> {
    let review = site.centre.review();
    let mut medium = review.medium_stream(who, id, 1, asked).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = medium.pieces.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(medium.served.length(), bytes.len() as u64);
    Ok((medium.served.part, bytes))
}

fn looks(site: &Site) -> usize {
    site.events("evidence.open-medium").len()
}

#[tokio::test]
async fn parts_are_those_of_the_film() {
    let (site, block, who) = site().await;
    let (id, film) = (block.violation(), film());
    let end = SIZE as u64 - 1;
    for (range, first, last) in [
        ("bytes=0-1", 0, 1),
        ("bytes=0-", 0, end),
        ("bytes=65535-65536", 65_535, 65_536),
        ("bytes=65536-65536", 65_536, 65_536),
        ("bytes=100000-600000", 100_000, 600_000),
        ("bytes=-1", end, end),
        ("bytes=700000-", 700_000, end),
        ("bytes=655360-", 655_360, end),
    ] {
        let (part, bytes) = read(&site, &who, &id, &asked(range)).await.unwrap();
        assert_eq!(part, Some(Part { first, last }), "{range}");
        assert!(bytes == film[first as usize..=last as usize], "{range}");
    }
    for whole in ["bytes=0-1,5-6", "bytes=5-1", "chapters=1"] {
        let (part, bytes) = read(&site, &who, &id, &asked(whole)).await.unwrap();
        assert!(part.is_none() && bytes == film, "{whole}");
    }
    let refused = read(&site, &who, &id, &asked("bytes=700001-")).await;
    assert!(matches!(refused, Err(ReviewError::Range { size: 700_001 })));
}

#[tokio::test]
async fn film_read_in_parts_is_one_look_and_a_whole_one_another() {
    let (site, block, who) = site().await;
    let id = block.violation();
    for range in ["bytes=0-", "bytes=500000-500100", "bytes=0-1", "bytes=-9"] {
        read(&site, &who, &id, &asked(range)).await.unwrap();
        assert_eq!(looks(&site), 1, "{range}");
    }
    read(&site, &who, &id, &Asked::default()).await.unwrap();
    assert_eq!(looks(&site), 2);
    // Another film, and another address.
    let review = site.centre.review();
    review
        .medium_stream(&who, &id, 0, &asked("bytes=0-1"))
        .await
        .unwrap();
    assert_eq!(looks(&site), 3);
    let other = who.at_address(Some([192, 0, 2, 7].into()));
    read(&site, &other, &id, &asked("bytes=0-1")).await.unwrap();
    assert_eq!(looks(&site), 4);
}

#[tokio::test]
async fn part_of_a_film_that_may_not_be_seen_is_refused() {
    let (site, block, _) = site().await;
    let id = block.violation();
    let low = site.world.person(
        Clearance::Unclassified,
        &[access::Role::Officer],
        &["traffic"],
    );
    for _ in 0..2 {
        let refused = read(&site, &low, &id, &asked("bytes=0-1")).await;
        assert!(
            matches!(refused, Err(ReviewError::Denied { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn damage_after_the_first_part_is_found_before_the_next() {
    let (site, block, who) = site().await;
    let id = block.violation();
    read(&site, &who, &id, &asked("bytes=0-1")).await.unwrap();
    let object = site.object("archive", &block.hash());
    let mut damaged = block.bytes.clone();
    damaged[block.bytes.len() / 2] ^= 1;
    std::fs::remove_file(&object).unwrap();
    std::fs::write(&object, &damaged).unwrap();
    // The part itself is not the damaged one.
    let refused = read(&site, &who, &id, &asked("bytes=0-1")).await;
    assert!(
        matches!(refused, Err(ReviewError::Damaged(_))),
        "{refused:?}"
    );
    std::fs::remove_file(&object).unwrap();
    std::fs::write(&object, &block.bytes).unwrap();
    read(&site, &who, &id, &asked("bytes=0-1")).await.unwrap();
}

#[tokio::test]
async fn interface_answers_206_and_416_with_their_headers() {
    let (site, block, who) = site().await;
    let get = async |name: &str, value: &str| {
        let path = format!("/api/v1/violations/{}/media/1", block.violation());
        let request = Request::get(path)
            .extension(who.clone())
            .header(name, value);
        site.people(request.body(axum::body::Body::empty()).unwrap())
            .await
    };
    let part = get("range", "bytes=5-9").await;
    assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.body, film()[5..10]);
    let headers =
        ["content-range", "content-length", "accept-ranges"].map(|name| part.header(name));
    assert_eq!(headers, ["bytes 5-9/700001", "5", "bytes"]);
    let none = get("range", "bytes=700001-").await;
    assert_eq!(none.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(none.header("content-range"), "bytes */700001");
    let whole = get("x", "y").await;
    assert_eq!(
        (whole.status, whole.header("accept-ranges")),
        (StatusCode::OK, "bytes")
    );
    assert_eq!(whole.header("etag"), part.header("etag"));
}
