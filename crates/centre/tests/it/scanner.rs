//! The malware scanner, played by a small server that speaks clamd's INSTREAM command. It is a
//! fake: it "finds" one fixed word.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use centre::ScannerAddress;
use evidence::receipt::Verdict;
use http::StatusCode;

use crate::site::{Options, Site, tus};
use crate::world::{CAMERA, Shot, picture};

const WORD: &[u8] = b"FAKE-MALWARE-FOR-TESTS";

/// Serves scans on `listener`, each of at most `limit` bytes; counts them.
fn fake_clamd(listener: TcpListener, limit: usize) -> Arc<AtomicUsize> {
    let scans = Arc::new(AtomicUsize::new(0));
    let counter = scans.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
            // A client that breaks off is no business of the others.
            let _ = serve(stream.unwrap(), limit);
        }
    });
    scans
}

fn serve(mut stream: TcpStream, limit: usize) -> std::io::Result<()> {
    let mut command = [0; 10];
    stream.read_exact(&mut command)?;
    assert_eq!(&command, b"zINSTREAM\0");
    let mut content = Vec::new();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 {
            break;
        }
        let start = content.len();
        content.resize(start + length, 0);
        stream.read_exact(&mut content[start..])?;
        if content.len() > limit {
            return stream.write_all(b"INSTREAM size limit exceeded. ERROR\0");
        }
    }
    let found = content.windows(WORD.len()).any(|w| w == WORD);
    stream.write_all(if found {
        b"stream: Fake.Test FOUND\0"
    } else {
        b"stream: OK\0"
    })
}

pub(crate) async fn site(limit: usize) -> (Site, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let scans = fake_clamd(listener, limit);
    let scanner = Some(ScannerAddress::Tcp(address));
    (
        Site::with(Options {
            scanner,
            ..Options::default()
        })
        .await,
        scans,
    )
}

pub(crate) fn shot(content: Vec<u8>) -> Shot {
    let picture = (
        "front.jpg".into(),
        "image/jpeg".into(),
        picture(320, 200, 3),
    );
    let film = ("film.mp4".into(), "video/mp4".into(), content);
    Shot {
        media: vec![picture, film],
        ..Shot::first()
    }
}

#[tokio::test]
async fn malware_is_set_apart_and_every_medium_is_scanned() {
    let (site, scans) = site(usize::MAX).await;
    let camera = site.world.camera(CAMERA);
    let clean = camera.seal(&shot(vec![7; 200_000]));
    assert_eq!(
        site.deliver(CAMERA, &clean).await.verdict,
        Verdict::Accepted
    );
    assert_eq!(scans.load(Ordering::SeqCst), 2);
    let mut content = vec![7; 200_000];
    content[70_000..70_000 + WORD.len()].copy_from_slice(WORD);
    let infected = Shot {
        media: shot(content).media,
        ..Shot::after(&clean)
    };
    let infected = camera.seal(&infected);
    let receipt = site.deliver(CAMERA, &infected).await;
    assert_eq!(receipt.reason.as_deref(), Some("malware"));
    assert!(site.object("quarantine", &infected.hash()).exists());
    assert_eq!(
        site.events("evidence.quarantine")[0].reason.as_deref(),
        Some("malware")
    );
}

#[tokio::test]
async fn what_the_scanner_will_not_take_is_set_apart() {
    let (site, _) = site(100_000).await;
    let block = site.world.camera(CAMERA).seal(&shot(vec![7; 3_000_000]));
    let receipt = site.deliver(CAMERA, &block).await;
    assert_eq!(receipt.reason.as_deref(), Some("not-scanned"));
}

#[tokio::test]
async fn without_its_scanner_a_block_waits() {
    // A port that nobody listens on, until later.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let scanner = Some(ScannerAddress::Tcp(address.to_string()));
    let site = Site::with(Options {
        scanner,
        ..Options::default()
    })
    .await;
    let block = site.world.camera(CAMERA).seal(&Shot::first());
    let at = site.send(CAMERA, &block.bytes).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(site.centre.metrics().settle_retries.get() > 0);
    // The upload is whole, held, and not lost.
    let answer = site.head(CAMERA, &at).await;
    assert_eq!(
        answer.header("upload-offset"),
        block.bytes.len().to_string()
    );
    assert_eq!(site.objects("archive"), 0);
    fake_clamd(TcpListener::bind(address).unwrap(), usize::MAX);
    let path = format!("{at}/receipt");
    let request = tus("GET", &path, CAMERA).body(Body::empty()).unwrap();
    let answer = site.intake(request).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(site.verified(&answer.body).reason, None);
}
