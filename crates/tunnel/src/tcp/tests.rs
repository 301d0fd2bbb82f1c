//! The thread between sockets of loopback: peers in TCP, a worker's UDP socket, and who speaks IKE.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::stream::{Encoder, PREFIX};
use super::*;

const IKE: &[u8] = b"\0\0\0\0 a message";
const ESP: &[u8] = b"\x01\x02\x03\x04 a packet";
const SOON: Duration = Duration::from_secs(5);

#[derive(Debug, PartialEq)]
enum Seen {
    Ike(ConnectionName, Vec<u8>),
    Reopened(ConnectionName),
    Ended(ConnectionName),
}

struct World {
    handle: TcpHandle,
    seen: Receiver<Seen>,
    worker: UdpSocket,
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl World {
    fn new() -> Self {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let worker = UdpSocket::bind(any).unwrap();
        worker.set_read_timeout(Some(SOON)).unwrap();
        let listener = listen(any, Families::One).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::channel();
        let sink: TcpSink = Box::new(move |event| {
            let _ = sender.send(match event {
                TcpEvent::Ike(name, message) => Seen::Ike(name, message.to_vec()),
                TcpEvent::Reopened(name) => Seen::Reopened(name),
                TcpEvent::Ended(name) => Seen::Ended(name),
            });
        });
        let made = relay(Some(listener), worker.local_addr().unwrap(), sink);
        let (relay, handle) = made.unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = Some(thread::spawn(move || relay.run(&until)));
        Self {
            handle,
            seen,
            worker,
            address,
            over,
            thread,
        }
    }

    fn peer(&self) -> TcpStream {
        let peer = TcpStream::connect(self.address).unwrap();
        peer.set_read_timeout(Some(SOON)).unwrap();
        peer
    }

    fn heard(&self) -> (ConnectionName, Vec<u8>) {
        match self.seen.recv_timeout(SOON).unwrap() {
            Seen::Ike(name, message) => (name, message),
            other => panic!("no message: {other:?}"),
        }
    }

    /// A peer that has spoken IKE and has proved who it is.
    fn known(&self) -> (TcpStream, ConnectionName, NextHop) {
        let mut peer = self.peer();
        peer.write_all(&[&PREFIX[..], &frame(IKE)].concat())
            .unwrap();
        let (name, message) = self.heard();
        assert_eq!(message, IKE);
        assert_eq!(name, (self.address, peer.local_addr().unwrap()));
        let next_hop = self.handle.attach(name).unwrap();
        (peer, name, next_hop)
    }

    fn count(&self, of: impl Fn(&TcpCounters) -> &AtomicU64) -> u64 {
        of(&self.handle.counters).load(Ordering::Relaxed)
    }

    fn wait(&self, what: &str, of: impl Fn(&TcpCounters) -> &AtomicU64, value: u64) {
        let end = Instant::now() + SOON;
        while self.count(&of) != value {
            assert!(Instant::now() < end, "{what}: {}", self.count(&of));
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap().unwrap();
        }
    }
}

fn frame(content: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    assert!(encoder.push(content, usize::MAX));
    encoder.pending().to_vec()
}

fn receive(peer: &mut TcpStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(got, expected);
}

/// Whether the other side has closed.
fn is_closed(peer: &mut TcpStream) -> bool {
    matches!(peer.read(&mut [0; 16]), Ok(0))
        || peer.take_error().is_ok_and(|error| error.is_some())
        || peer.write_all(b"x").is_err()
}

#[test]
fn esp_reaches_the_worker_only_after_its_peer_is_known() {
    let world = World::new();
    let mut peer = world.peer();
    peer.write_all(&[&PREFIX[..], &frame(ESP), &frame(IKE)].concat())
        .unwrap();
    let (name, _) = world.heard();
    assert_eq!(world.count(|counters| &counters.dropped), 1);
    let next_hop = world.handle.attach(name).unwrap();
    world.handle.send(name, IKE.to_vec());
    receive(&mut peer, &frame(IKE));
    // Of one size, a smaller one and a larger one: whole in any case.
    let packets: Vec<Vec<u8>> = [40, 40, 40, 20, 60, 60, 10]
        .iter()
        .map(|len| vec![u8::try_from(*len).unwrap(); *len])
        .collect();
    let stream: Vec<u8> = packets.iter().flat_map(|packet| frame(packet)).collect();
    peer.write_all(&stream).unwrap();
    let mut buffer = [0; 2048];
    for packet in &packets {
        let (len, from) = world.worker.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&packet[..], next_hop.remote));
    }
    for packet in &packets {
        world.worker.send_to(packet, next_hop.remote).unwrap();
        receive(&mut peer, &frame(packet));
    }
    // Somebody else on this host.
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.send_to(b"intruder", next_hop.remote).unwrap();
    world.worker.send_to(ESP, next_hop.remote).unwrap();
    receive(&mut peer, &frame(ESP));
    // Its end is told, since another one may come from the same port.
    drop(peer);
    assert_eq!(world.seen.recv_timeout(SOON).unwrap(), Seen::Ended(name));
}

#[test]
fn stream_that_is_no_ike_is_closed() {
    let world = World::new();
    let mut bad = world.peer();
    bad.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(is_closed(&mut bad));
    world.wait("malformed", |counters| &counters.malformed, 1);
    let mut bad = world.peer();
    bad.write_all(&[&PREFIX[..], &frame(IKE), &[0, 1, 7]].concat())
        .unwrap();
    assert_eq!(world.heard().1, IKE);
    assert!(is_closed(&mut bad));
    world.wait("malformed", |counters| &counters.malformed, 2);
    world.wait("open", |counters| &counters.open, 0);
}

#[test]
fn connection_of_ours_is_opened_anew_and_begins_with_the_prefix() {
    let world = World::new();
    let gateway = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = gateway.local_addr().unwrap();
    let local = world
        .handle
        .dial("127.0.0.1".parse().unwrap(), remote)
        .unwrap();
    let name = (local, remote);
    // Before it is open.
    world.handle.send(name, IKE.to_vec());
    let (mut first, from) = gateway.accept().unwrap();
    assert_eq!(from, local);
    receive(&mut first, &[&PREFIX[..], &frame(IKE)].concat());
    let next_hop = world.handle.attach(name).unwrap();
    // A message of which the rest never comes.
    first.write_all(&frame(IKE)[..7]).unwrap();
    let broken = Instant::now();
    // Unread bytes in its queue make the kernel reset it.
    world.worker.send_to(ESP, next_hop.remote).unwrap();
    thread::sleep(Duration::from_millis(50));
    drop(first);
    let (mut second, _) = gateway.accept().unwrap();
    assert_eq!(
        world.seen.recv_timeout(SOON).unwrap(),
        Seen::Reopened(name),
        "under the same name"
    );
    assert!(broken.elapsed() < Duration::from_secs(2));
    receive(&mut second, &PREFIX);
    second.write_all(&frame(IKE)).unwrap();
    assert_eq!(world.heard(), (name, IKE.to_vec()));
    world.worker.send_to(ESP, next_hop.remote).unwrap();
    receive(&mut second, &frame(ESP));
    world.wait("reopened", |counters| &counters.reopened, 1);
    // Closed by us, it stays closed.
    world.handle.send(name, IKE.to_vec());
    world.handle.close(name);
    receive(&mut second, &frame(IKE));
    drop(second);
    world.wait("open", |counters| &counters.open, 0);
    gateway.set_nonblocking(true).unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(gateway.accept().is_err());
}

#[test]
fn peer_that_reads_nothing_holds_up_nobody() {
    let world = World::new();
    let (slow, slow_name, slow_hop) = world.known();
    let (mut other, _, next_hop) = world.known();
    let packet = vec![9; 1400];
    for _ in 0..20_000 {
        // 28 MB, more than all queues take.
        let _ = world.worker.send_to(&packet, slow_hop.remote);
    }
    for _ in 0..3 {
        let asked = Instant::now();
        world.worker.send_to(ESP, next_hop.remote).unwrap();
        receive(&mut other, &frame(ESP));
        assert!(asked.elapsed() < Duration::from_secs(1));
    }
    // Messages of IKE wait in a queue that has an end, and with it the connection ends.
    for _ in 0..20 {
        world.handle.send(slow_name, vec![0; 60_000]);
    }
    world.wait("open", |counters| &counters.open, 1);
    drop(slow);
}

#[test]
fn crowd_of_strangers_leaves_room_for_one_that_speaks() {
    let world = World::new();
    let (mut known, _, next_hop) = world.known();
    let mut honest = world.peer();
    honest
        .write_all(&[&PREFIX[..], &frame(IKE)].concat())
        .unwrap();
    let (name, _) = world.heard();
    let crowd: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut one = world.peer();
            let begun = &PREFIX[..number % PREFIX.len()];
            one.write_all(begun).unwrap();
            one
        })
        .collect();
    world.wait("accepted", |counters| &counters.accepted, 202);
    let most = strangers::OF_NETWORK as u64;
    world.wait("open", |counters| &counters.open, most + 1);
    // Neither who is known nor who has spoken made room.
    world.handle.send(name, IKE.to_vec());
    receive(&mut honest, &frame(IKE));
    world.worker.send_to(ESP, next_hop.remote).unwrap();
    receive(&mut known, &frame(ESP));
    drop(crowd);
}
