//! The tus protocol: what it demands, and what goes wrong on a mobile network.

use std::io;
use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use centre::Limits;
use futures_util::stream;
use http::{Request, StatusCode};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::site::{Answer, FILES, Options, Site, announce, call, patch, tus};
use crate::world::{CAMERA, Shot};

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = evidence::digest::Sha256Digest::of(bytes);
    format!("sha256 {}", BASE64.encode(digest.as_bytes()))
}

impl Site {
    async fn part(&self, at: &str, offset: u64, body: &'static [u8], checksum: &str) -> Answer {
        let mut request = patch(at, CAMERA, offset);
        if !checksum.is_empty() {
            request = request.header("upload-checksum", checksum);
        }
        self.intake(request.body(Body::from(body)).unwrap()).await
    }

    async fn offset(&self, at: &str) -> String {
        let answer = self.head(CAMERA, at).await;
        assert_eq!(answer.status, StatusCode::OK);
        answer.header("upload-offset").to_owned()
    }
}

/// A body that ends in a broken connection after `bytes`.
pub(crate) fn cut_after(bytes: &'static [u8]) -> Body {
    Body::from_stream(stream::iter([
        Ok(Bytes::from_static(bytes)),
        Err(io::Error::from(io::ErrorKind::ConnectionReset)),
    ]))
}

#[tokio::test]
async fn options_tell_what_is_offered() {
    let site = Site::new().await;
    let request = || Request::options(FILES);
    let nobody = site.intake(request().body(Body::empty()).unwrap()).await;
    assert_ne!(nobody.status, StatusCode::NO_CONTENT);
    let request = request().extension(centre::Device(CAMERA.into()));
    let answer = site.intake(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(answer.header("tus-resumable"), "1.0.0");
    assert_eq!(answer.header("tus-version"), "1.0.0");
    assert_eq!(
        answer.header("tus-extension"),
        "creation,creation-with-upload,checksum,expiration,termination"
    );
    assert_eq!(answer.header("tus-checksum-algorithm"), "sha256,sha1");
    assert_eq!(answer.header("tus-max-size"), (64 << 20).to_string());
}

#[tokio::test]
async fn an_upload_is_made_filled_and_asked_for() {
    let site = Site::new().await;
    let metadata = "filename YS5qcGc=,note";
    let answer = site.create(CAMERA, 10, metadata).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let at = answer.header("location").to_owned();
    // RFC 9110 section 5.6.7.
    let expires = answer.header("upload-expires").to_owned();
    assert!(
        expires.ends_with(" GMT") && expires.len() == 29,
        "{expires}"
    );
    let expires = OffsetDateTime::parse(&expires.replace("GMT", "+0000"), &Rfc2822).unwrap();
    let days = (expires - OffsetDateTime::now_utc()).whole_hours();
    assert!((167..=168).contains(&days), "{days} hours");

    let answer = site.head(CAMERA, &at).await;
    assert_eq!(answer.header("upload-offset"), "0");
    assert_eq!(answer.header("upload-length"), "10");
    assert_eq!(answer.header("upload-metadata"), metadata);
    assert_eq!(answer.header("cache-control"), "no-store");

    let answer = site.part(&at, 0, b"0123", &sha256(b"0123")).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(answer.header("upload-offset"), "4");
    assert!(!answer.header("upload-expires").is_empty());
    // By `printf 456 | openssl dgst -sha1 -binary | base64`.
    let answer = site
        .part(&at, 4, b"456", "sha1 UerGtHGihNM0HYwMY9DxooYmKhg=")
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(site.offset(&at).await, "7");
}

#[tokio::test]
async fn a_part_that_was_damaged_on_the_way_is_taken_back() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 10, "").await;
    site.part(&at, 0, b"01", "").await;
    for wrong in [
        sha256(b"xx"),
        "sha1 2jmj7l5rSw0yVb/vlWAYkK/YBwk=".to_owned(),
    ] {
        let answer = site.part(&at, 2, b"2345", &wrong).await;
        assert_eq!(answer.status.as_u16(), 460);
        assert_eq!(answer.code(), "checksum-mismatch");
        assert_eq!(site.offset(&at).await, "2");
    }
    for bad in ["md5 AAAA", "sha256", "sha256 ???", "sha256 AAAA"] {
        let answer = site.part(&at, 2, b"2345", bad).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{bad}");
    }
    assert_eq!(
        site.part(&at, 2, b"2345", &sha256(b"2345"))
            .await
            .header("upload-offset"),
        "6"
    );
}

#[tokio::test]
async fn every_refusal_has_its_status() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 4, "").await;
    let answer = site.part(&at, 1, b"12", "").await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::CONFLICT, "wrong-offset")
    );
    let answer = site.part(&at, 0, b"01234", "").await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(site.offset(&at).await, "0");
    for bad in ["-1", "+0", "", "1.0", "99999999999999999999"] {
        let request = tus("PATCH", &at, CAMERA)
            .header("content-type", "application/offset+octet-stream")
            .header("upload-offset", bad);
        let answer = site.intake(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{bad:?}");
    }
    let request = tus("PATCH", &at, CAMERA).header("upload-offset", 0);
    let answer = site.intake(request.body(Body::from("0")).unwrap()).await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let request = Request::post(FILES)
        .extension(centre::Device(CAMERA.into()))
        .header("tus-resumable", "0.2.2")
        .header("upload-length", 1);
    let answer = site.intake(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(answer.header("tus-version"), "1.0.0");
    assert_eq!(
        site.create(CAMERA, (64 << 20) + 1, "").await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(
        site.create(CAMERA, 1, "sha256 AAAA").await.status,
        StatusCode::BAD_REQUEST
    );
    let long = format!("x {}", "A".repeat(5000));
    assert_eq!(
        site.create(CAMERA, 1, &long).await.status,
        StatusCode::BAD_REQUEST
    );
    let request = tus("GET", &at, CAMERA).body(Body::empty()).unwrap();
    assert_eq!(
        site.intake(request).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test]
async fn nobody_touches_the_upload_of_another_device() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 4, "").await;
    for method in ["HEAD", "DELETE"] {
        let request = tus(method, &at, "camera-18").body(Body::empty()).unwrap();
        assert_eq!(
            site.intake(request).await.status,
            StatusCode::NOT_FOUND,
            "{method}"
        );
    }
    let request = patch(&at, "camera-18", 0).body(Body::from("0123")).unwrap();
    assert_eq!(site.intake(request).await.status, StatusCode::NOT_FOUND);
    let answer = site.receipt("camera-18", &at).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let request = Request::head(&at).header("tus-resumable", "1.0.0");
    let answer = call(
        site.centre.intake_router(),
        request.body(Body::empty()).unwrap(),
    )
    .await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(site.offset(&at).await, "0");
}

#[tokio::test]
async fn a_terminated_upload_is_gone() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 4, "").await;
    let delete = || tus("DELETE", &at, CAMERA).body(Body::empty()).unwrap();
    assert_eq!(site.intake(delete()).await.status, StatusCode::NO_CONTENT);
    assert_eq!(site.parts(), 0);
    assert_eq!(site.intake(delete()).await.status, StatusCode::NOT_FOUND);
    assert_eq!(site.head(CAMERA, &at).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_cut_keeps_what_needs_no_checksum() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 10, "").await;
    let request = patch(&at, CAMERA, 0).body(cut_after(b"012")).unwrap();
    let answer = site.intake(request).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::BAD_REQUEST, "upload-cut")
    );
    assert_eq!(site.offset(&at).await, "3");
    let request = patch(&at, CAMERA, 3)
        .header("upload-checksum", sha256(b"3456789"))
        .body(cut_after(b"345"));
    site.intake(request.unwrap()).await;
    assert_eq!(site.offset(&at).await, "3");
    let answer = site.part(&at, 3, b"3456789", &sha256(b"3456789")).await;
    assert_eq!(answer.header("upload-offset"), "10");
}

#[tokio::test]
async fn a_block_whose_last_request_was_cut_is_settled_when_asked_for() {
    let site = Site::new().await;
    let block = site.world.camera(CAMERA).seal(&Shot::first());
    let at = site.upload(CAMERA, block.bytes.len(), "").await;
    let body = Body::from_stream(stream::iter([
        Ok(Bytes::from(block.bytes.clone())),
        Err(io::Error::from(io::ErrorKind::ConnectionReset)),
    ]));
    let answer = site.intake(patch(&at, CAMERA, 0).body(body).unwrap()).await;
    assert_eq!(answer.code(), "upload-cut");
    let answer = site.receipt(CAMERA, &at).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(site.verified(&answer.body).reason, None);
}

#[tokio::test]
async fn one_request_at_a_time_writes_to_an_upload() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 10, "").await;
    site.part(&at, 0, b"01", "").await;
    // A connection that sends two bytes and then hangs.
    let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(1);
    let body = stream::unfold(receiver, async |mut r| Some((r.recv().await?, r)));
    let request = patch(&at, CAMERA, 2).header("upload-checksum", sha256(b"23"));
    let request = request.body(Body::from_stream(body)).unwrap();
    let hanging = tokio::spawn(call(site.centre.intake_router(), request));
    sender.send(Ok(Bytes::from_static(b"23"))).await.unwrap();
    while sender.capacity() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let answer = site.part(&at, 2, b"xy", "").await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::LOCKED, "upload-locked")
    );
    let delete = tus("DELETE", &at, CAMERA).body(Body::empty()).unwrap();
    assert_eq!(site.intake(delete).await.status, StatusCode::LOCKED);
    // Bytes that are not checked yet do not count.
    assert_eq!(site.offset(&at).await, "2");
    drop(sender);
    assert_eq!(hanging.await.unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(site.offset(&at).await, "4");
}

#[tokio::test]
async fn part_of_a_silent_connection_is_kept_for_the_next_one() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 10, "").await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(1);
    let body = stream::unfold(receiver, async |mut r| Some((r.recv().await?, r)));
    let request = patch(&at, CAMERA, 0).body(Body::from_stream(body)).unwrap();
    let hanging = tokio::spawn(call(site.centre.intake_router(), request));
    // The bearer is gone after four bytes; nobody tells the centre.
    sender.send(Ok(Bytes::from_static(b"0123"))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Not while bytes may still come.
    assert_eq!(site.offset(&at).await, "0");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(site.offset(&at).await, "4");
    assert_eq!(hanging.await.unwrap().code(), "upload-cut");
    let answer = site.part(&at, 4, b"456789", "").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    // Nobody else ends it: to another device there is no such upload.
    assert_eq!(
        site.head("camera-18", &at).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn unfinished_uploads_are_bounded_and_expire() {
    let limits = Limits {
        max_open_per_device: 2,
        upload_lifetime: Duration::from_secs(3600),
        ..Limits::default()
    };
    let site = Site::with(Options {
        limits,
        ..Options::default()
    })
    .await;
    let first = site.upload(CAMERA, 4, "").await;
    site.upload(CAMERA, 4, "").await;
    let answer = site.create(CAMERA, 4, "").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        site.create("camera-18", 4, "").await.status,
        StatusCode::CREATED
    );
    let now = OffsetDateTime::now_utc();
    let minutes = |n: i64| now + time::Duration::minutes(n);
    assert_eq!(site.centre.intake().sweep(minutes(58)).await.unwrap(), 0);
    assert_eq!(site.offset(&first).await, "0");
    assert_eq!(site.centre.intake().sweep(minutes(61)).await.unwrap(), 3);
    assert_eq!(site.parts(), 0);
    assert_eq!(
        site.head(CAMERA, &first).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(site.create(CAMERA, 4, "").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn an_announced_block_that_is_known_needs_no_upload() {
    let site = Site::new().await;
    let block = site.world.camera(CAMERA).seal(&Shot::first());
    let receipt = site.deliver(CAMERA, &block).await;
    let hash = block.hash();
    let answer = site
        .create(CAMERA, block.bytes.len(), &announce(&hash.to_uppercase()))
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    let path = answer.header("cordon-receipt").to_owned();
    let request = tus("GET", &path, CAMERA).body(Body::empty()).unwrap();
    let answer = site.intake(request).await;
    assert_eq!(answer.header("content-type"), "application/pkcs7-mime");
    assert_eq!(site.verified(&answer.body), receipt);
    // Another device learns nothing of it.
    let request = tus("GET", &path, "camera-18").body(Body::empty()).unwrap();
    assert_eq!(site.intake(request).await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        site.create("camera-18", 4, &announce(&hash)).await.status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn an_empty_upload_is_settled_too() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 0, "").await;
    let answer = site.receipt(CAMERA, &at).await;
    let receipt = site.verified(&answer.body);
    assert_eq!(
        (receipt.size, receipt.reason.as_deref()),
        (0, Some("not-a-block"))
    );
}

#[tokio::test]
async fn settled_upload_is_complete_to_clients_that_know_tus_only() {
    let site = Site::new().await;
    let block = site.world.camera(CAMERA).seal(&Shot::first());
    let at = site.send(CAMERA, &block.bytes).await;
    assert_eq!(site.receipt(CAMERA, &at).await.status, StatusCode::OK);
    let size = block.bytes.len();
    let head = site.head(CAMERA, &at).await;
    assert_eq!(head.status, StatusCode::OK);
    assert_eq!(head.header("upload-offset"), size.to_string());
    assert_eq!(head.header("upload-length"), size.to_string());
    let nothing = site.part(&at, size as u64, b"", "").await;
    assert_eq!(nothing.status, StatusCode::NO_CONTENT);
    assert_eq!(nothing.header("upload-offset"), size.to_string());
    assert_eq!(
        site.part(&at, 0, b"x", "").await.status,
        StatusCode::CONFLICT
    );
    let more = site.part(&at, size as u64, b"x", "").await;
    assert_eq!(more.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(
        site.head("camera-18", &at).await.status,
        StatusCode::NOT_FOUND
    );
    // Without the header of ours an announced block that is known is an upload like any other.
    let create = tus("POST", FILES, CAMERA)
        .header("upload-length", size)
        .header("upload-metadata", announce(&block.hash()));
    let created = site.intake(create.body(Body::empty()).unwrap()).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(
        site.head(CAMERA, created.header("location"))
            .await
            .header("upload-offset"),
        "0"
    );
}

#[tokio::test]
async fn nothing_of_a_refused_part_is_kept() {
    let site = Site::new().await;
    let at = site.upload(CAMERA, 10, "").await;
    site.part(&at, 0, b"01", "").await;
    // Its length is known: refused before the first byte.
    let answer = site.part(&at, 2, b"23456789ab", "").await;
    assert_eq!(answer.code(), "too-long");
    assert_eq!(site.offset(&at).await, "2");
    // It comes in pieces, of which the first would fit.
    let pieces = [b"2345".as_slice(), b"6789ab"];
    let pieces = pieces.map(|piece| Ok::<_, io::Error>(Bytes::from_static(piece)));
    let body = Body::from_stream(stream::iter(pieces));
    let answer = site.intake(patch(&at, CAMERA, 2).body(body).unwrap()).await;
    assert_eq!(answer.code(), "too-long");
    assert_eq!(site.offset(&at).await, "2");
    assert_eq!(
        site.part(&at, 2, b"23456789", "").await.status,
        StatusCode::NO_CONTENT
    );
}
