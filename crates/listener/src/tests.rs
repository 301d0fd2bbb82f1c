//! Hostile clients of a real listener, on loopback addresses of their own.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::Router;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::*;

const QUICK: Deadlines = Deadlines {
    first_request: Duration::from_millis(800),
    idle: Duration::from_millis(800),
    stall: Duration::from_millis(800),
};
/// A block of headers: GET, http, "/", authority "x" (RFC 7541, appendix A).
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'x'];
/// Flag of a HEADERS frame after which the request has no body.
const END_STREAM: u8 = 1;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

struct Server {
    address: SocketAddr,
    metrics: Metrics,
    stop: CancellationToken,
    anew: watch::Sender<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn server(bounds: Bounds, deadlines: Deadlines) -> Server {
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/large", get(async || vec![7_u8; 64 << 20]))
        .route("/echo", post(async |body: axum::body::Bytes| body));
    server_of(router, bounds, deadlines).await
}

async fn server_of(router: Router, bounds: Bounds, deadlines: Deadlines) -> Server {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (metrics, stop) = (Metrics::default(), CancellationToken::new());
    let anew = watch::Sender::new(());
    let listener = Listener {
        name: "test",
        socket,
        tls: None,
        service: router.into(),
        bounds,
        deadlines,
        metrics: metrics.clone(),
        anew: Some(anew.subscribe()),
    };
    tokio::spawn(listener.serve(stop.clone()));
    Server {
        address,
        metrics,
        stop,
        anew,
    }
}

#[tokio::test]
async fn connections_are_made_anew_when_they_are_to_be() {
    let server = server(BOUNDS, PEOPLE).await;
    let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    // More than once, and whether anybody is connected or not.
    for _ in 0..3 {
        let mut stream = server.connect([127, 0, 0, 1]).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
        server.anew.send_replace(());
        let rest = tokio::time::timeout(Duration::from_secs(5), stream.read_buf(&mut answer));
        assert_eq!(rest.await.unwrap().unwrap(), 0, "the end of the connection");
        server.anew.send_replace(());
        server.honest([127, 0, 0, 1]).await;
    }
}

impl Server {
    async fn connect(&self, from: [u8; 4]) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(from)), 0))?;
        socket.connect(self.address).await
    }

    /// Measures an honest client's wait for its answer.
    async fn honest(&self, from: [u8; 4]) -> Duration {
        let began = Instant::now();
        let mut stream = self.connect(from).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(answer.ends_with(b"hello"), "{answer:?}");
        began.elapsed()
    }

    fn ended(&self, reason: &str) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let page = testkit::openmetrics::parse(&text).unwrap();
        let labels = [("listener", "test"), ("reason", reason)];
        page.value("cordon_listener_connections_ended_total", &labels)
            .unwrap_or(0.0)
    }
}

/// A HEADERS frame of HTTP/2 that is whole (END_HEADERS).
fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, u8::try_from(block.len()).unwrap(), 1, 4 | flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(block);
    frame
}

/// Reads frames up to a HEADERS that begins with `:status: 200`.
async fn answer(stream: &mut TcpStream) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let [high, middle, low, kind, ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut content = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut content).await.unwrap();
        if kind == 1 && content.first() == Some(&0x88) {
            return;
        }
    }
}

/// Whether the server ends the connection within a few seconds.
async fn cut(mut stream: TcpStream) -> bool {
    let mut sink = Vec::new();
    let read = stream.read_to_end(&mut sink);
    tokio::time::timeout(Duration::from_secs(5), read)
        .await
        .is_ok()
}

const WAIT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_of_many_networks_keep_no_honest_client_out() {
    let bounds = bounds_for_this_process();
    let server = server(bounds, PEOPLE).await;
    let mut held = Vec::new();
    for number in 0..1200_u16 {
        let [high, low] = number.to_be_bytes();
        // Four hundred networks, three connections each; every third says a little.
        let network = (number % 400).to_be_bytes();
        let from = [127, 10 + network[0], network[1], 1 + high * 8 + low / 32];
        let mut stream = server.connect(from).await.unwrap();
        match number % 3 {
            0 => stream.write_all(b"GET / HTTP/1.1\r\nx-a: b").await.unwrap(),
            1 => stream.write_all(PREFACE).await.unwrap(),
            _ => {}
        }
        held.push(stream);
        if number % 100 == 99 {
            let waited = server.honest([127, 0, 0, 1]).await;
            assert!(
                waited < WAIT,
                "{waited:?} after {number} silent connections"
            );
        }
    }
    assert!(server.ended("shed") >= 400.0, "{}", server.ended("shed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_takes_places_from_itself_only() {
    let server = server(bounds_for_this_process(), PEOPLE).await;
    let idle = server.connect([127, 0, 0, 2]).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(server.connect([127, 9, 9, 9]).await.unwrap());
        held.push(server.connect([127, 9, 9, 10]).await.unwrap());
    }
    let waited = server.honest([127, 0, 0, 1]).await;
    assert!(waited < WAIT, "{waited:?}");
    // Who was there before, at another address, still is.
    let mut idle = idle;
    idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    idle.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_without_a_complete_request_is_ended_in_time() {
    let server = server(BOUNDS, QUICK).await;
    let silent = server.connect([127, 0, 0, 1]).await.unwrap();
    let mut preface = server.connect([127, 0, 0, 1]).await.unwrap();
    preface.write_all(PREFACE).await.unwrap();
    let dribble = server.connect([127, 0, 0, 1]).await.unwrap();
    let (mut read, mut write) = dribble.into_split();
    let dribbler = tokio::spawn(async move {
        let mut letters = b"GET / HTTP/1.1\r\nx-"
            .iter()
            .chain(std::iter::repeat(&b'a'));
        while write.write_all(&[*letters.next().unwrap()]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let began = Instant::now();
    assert!(cut(silent).await && cut(preface).await);
    let mut sink = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), read.read_to_end(&mut sink)).await;
    dribbler.await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(server.ended("no-request"), 3.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connection_is_ended_and_dribbling_the_next_request_does_not_help() {
    let server = server(BOUNDS, QUICK).await;
    let mut stream = server.connect([127, 0, 0, 1]).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HT")
        .await
        .unwrap();
    assert!(cut(stream).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_that_is_not_read_is_cut_and_a_slow_reader_is_not() {
    let server = server(BOUNDS, QUICK).await;
    let request = b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut unread = server.connect([127, 0, 0, 1]).await.unwrap();
    unread.write_all(request).await.unwrap();
    let mut slow = server.connect([127, 0, 0, 1]).await.unwrap();
    slow.write_all(request).await.unwrap();
    let mut read = 0;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match slow.read(&mut buffer).await.unwrap() {
            0 => break,
            count => read += count,
        }
        // Some three seconds in all, longer than any deadline.
        if read % (1 << 20) < (1 << 18) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(read > 64 << 20, "{read}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(server.ended("not-read"), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_client_beyond_its_turns_wait_and_all_are_answered() {
    const STREAMS: u32 = 60;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move || {
            most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            now.fetch_sub(1, Relaxed);
        }
    };
    let server = server_of(Router::new().route("/", get(count)), BOUNDS, PEOPLE).await;
    let mut stream = server.connect([127, 0, 0, 1]).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    for number in 0..STREAMS {
        let frame = headers(2 * number + 1, END_STREAM, GET);
        stream.write_all(&frame).await.unwrap();
    }
    for _ in 0..STREAMS {
        answer(&mut stream).await;
    }
    assert_eq!(most.load(Relaxed), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_that_hang_leave_the_same_client_its_turns() {
    let server = server(BOUNDS, PEOPLE).await;
    let mut stream = server.connect([127, 0, 0, 1]).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    // POST, http, "/echo", authority "x": the body never comes.
    let upload = [&[0x83, 0x86, 0x04, 5][..], b"/echo", &[0x41, 1, b'x']].concat();
    for number in 0..20 {
        let frame = headers(2 * number + 1, 0, &upload);
        stream.write_all(&frame).await.unwrap();
    }
    let frame = headers(41, END_STREAM, GET);
    stream.write_all(&frame).await.unwrap();
    tokio::time::timeout(WAIT, answer(&mut stream))
        .await
        .unwrap();
}

#[tokio::test]
async fn tls_begins_when_the_first_record_is_whole_and_is_one_of_a_handshake() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let read = async |sent: &[u8]| {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(sent).await.unwrap();
        let (stream, _) = socket.accept().await.unwrap();
        let record = tokio::time::timeout(WAIT / 10, hello::first_record(stream)).await;
        record.map(|record| (record, client))
    };
    let whole = [&[22, 3, 1, 0, 3], &b"abc"[..], b"rest"].concat();
    for length in 0..8 {
        assert!(read(&whole[..length]).await.is_err(), "{length} octets");
    }
    let (stream, mut client) = read(&whole).await.unwrap();
    let mut stream = stream.unwrap();
    stream.write_all(b"answer").await.unwrap();
    let mut answer = [0; 6];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"answer");
    drop(client);
    let mut content = Vec::new();
    stream.read_to_end(&mut content).await.unwrap();
    assert_eq!(content, whole);
    for wrong in [
        &b"GET / HTTP/1.1"[..],
        &[22, 3, 1, 0, 0],
        &[22, 3, 1, 0x40, 1],
    ] {
        let (refused, _client) = read(wrong).await.unwrap();
        assert_eq!(refused.err().unwrap().kind(), io::ErrorKind::InvalidData);
    }
}

#[test]
fn shares_shrink_with_the_files_that_the_process_may_open() {
    assert_eq!(bounds_for(1 << 20).total, 1024);
    let small = bounds_for(1024);
    assert_eq!((small.total, small.anonymous, small.address), (128, 96, 8));
    assert_eq!(bounds_for(0).total, 8);
}
