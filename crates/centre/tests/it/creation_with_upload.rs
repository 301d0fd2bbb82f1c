//! Uploads whose bytes come with their announcement.

use axum::body::Body;
use evidence::digest::Sha256Digest;
use http::StatusCode;

use crate::site::{Answer, FILES, Options, Site, announce, tus};
use crate::tus::{cut_after, sha256};
use crate::world::{CAMERA, Shot};

const STREAM: &str = "application/offset+octet-stream";

fn creation(size: usize, hash: &str) -> http::request::Builder {
    tus("POST", FILES, CAMERA)
        .header("upload-length", size)
        .header("upload-metadata", announce(hash))
        .header("content-type", STREAM)
}

impl Site {
    /// Brings `bytes` of a block of `size` bytes with the announcement, as a camera does.
    async fn at_once(&self, size: usize, hash: &str, bytes: &[u8]) -> Answer {
        let request = creation(size, hash).header("cordon-receipt", "1");
        let body = Body::from(bytes.to_vec());
        self.intake(request.body(body).unwrap()).await
    }
}

#[tokio::test]
async fn whole_block_is_answered_with_its_receipt() {
    let site = Site::new().await;
    let camera = site.world.camera(CAMERA);
    let block = camera.seal(&Shot::first());
    let size = block.bytes.len();
    let answer = site.at_once(size, &block.hash(), &block.bytes).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(answer.header("upload-offset"), size.to_string());
    assert_eq!(answer.header("content-type"), "application/pkcs7-mime");
    let receipt = site.verified(&answer.body);
    assert_eq!(receipt.block_sha256, Sha256Digest::of(&block.bytes));
    assert_eq!((site.parts(), site.objects("archive")), (0, 1));
    // The same receipt is at the upload's address.
    let at = answer.header("location").to_owned();
    let again = site.receipt(CAMERA, &at).await;
    assert_eq!(again.body, answer.body);

    // A block that is here already: its receipt's address, whatever came with the announcement.
    let answer = site.at_once(size, &block.hash(), &block.bytes).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.header("cordon-receipt").ends_with("/receipt"));
    assert_eq!(site.events("evidence.receive").len(), 1);
}

#[tokio::test]
async fn foreign_client_gets_no_body_and_the_receipt_at_the_address() {
    let site = Site::new().await;
    let block = site.world.camera(CAMERA).seal(&Shot::first());
    let request = creation(block.bytes.len(), &block.hash());
    let body = Body::from(block.bytes.clone());
    let answer = site.intake(request.body(body).unwrap()).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert!(answer.body.is_empty());
    let at = answer.header("location").to_owned();
    assert_eq!(site.receipt(CAMERA, &at).await.status, StatusCode::OK);
}

#[tokio::test]
async fn first_part_of_a_block_may_come_with_the_announcement() {
    let site = Site::new().await;
    let block = site.world.camera(CAMERA).seal(&Shot::first());
    let (first, rest) = block.bytes.split_at(1000);
    let answer = site.at_once(block.bytes.len(), &block.hash(), first).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(answer.header("upload-offset"), "1000");
    assert!(answer.body.is_empty());
    let at = answer.header("location").to_owned();
    let patch = crate::site::patch(&at, CAMERA, 1000);
    let answer = site.intake(patch.body(Body::from(rest.to_vec())).unwrap());
    assert_eq!(answer.await.status, StatusCode::NO_CONTENT);
    assert_eq!(site.receipt(CAMERA, &at).await.status, StatusCode::OK);
}

#[tokio::test]
async fn bytes_that_are_not_the_announced_block_are_discarded() {
    let site = Site::new().await;
    let answer = site.at_once(4, &"0".repeat(64), b"0123").await;
    assert_eq!(answer.status, StatusCode::CREATED);
    assert!(answer.body.is_empty());
    let at = answer.header("location").to_owned();
    let answer = site.receipt(CAMERA, &at).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer.code(), "hash-mismatch");
    assert_eq!((site.parts(), site.objects("archive")), (0, 0));
}

#[tokio::test]
async fn nothing_stays_of_an_announcement_that_was_cut_damaged_or_refused() {
    let mut options = Options::default();
    options.limits.quota.uploads_per_hour = 3;
    let site = Site::with(options).await;
    let hash = "0".repeat(64);
    // (size, content type, checksum, body, status, code)
    type Case = (usize, &'static str, String, Body, u16, &'static str);
    let cases: [Case; 5] = [
        (
            8,
            "text/plain",
            String::new(),
            Body::from("0123"),
            415,
            "wrong-content-type",
        ),
        (
            3,
            STREAM,
            String::new(),
            Body::from("0123"),
            413,
            "too-long",
        ),
        (
            8,
            STREAM,
            String::new(),
            cut_after(b"0123"),
            400,
            "upload-cut",
        ),
        (
            4,
            STREAM,
            sha256(b"xxxx"),
            Body::from("0123"),
            460,
            "checksum-mismatch",
        ),
        // The size of this one is known only when it has come.
        (
            3,
            STREAM,
            String::new(),
            cut_after(b"0123"),
            413,
            "too-long",
        ),
    ];
    for (size, media_type, checksum, body, status, code) in cases {
        let mut request = tus("POST", FILES, CAMERA)
            .header("upload-length", size)
            .header("upload-metadata", announce(&hash))
            .header("content-type", media_type);
        if !checksum.is_empty() {
            request = request.header("upload-checksum", checksum);
        }
        let answer = site.intake(request.body(body).unwrap()).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code)
        );
        assert_eq!(site.parts(), 0, "{code}");
    }
    // Three of these counted as uploads begun.
    let answer = site.at_once(4, &hash, b"0123").await;
    assert_eq!(answer.code(), "too-fast");
    assert_eq!(site.parts(), 0);
}
