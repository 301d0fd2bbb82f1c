//! Cameras by the hundred that hold tunnels and notice when their gateway has lost them.
//!
//! Each has an address and an identity of its own, as so many hosts have, and sends an echo request through its
//! tunnel every now and then. One that hears nothing for a second asks its gateway whether it lives, and comes
//! again as soon as it knows that the gateway was restarted: what `cordon vpn up` does. One line to standard input
//! begins a measurement, and one line to standard output says after how many seconds each camera had an answer
//! through a tunnel that it did not have before.

use std::collections::VecDeque;
use std::io::{BufRead as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ikev2::event::{ChildUp, Reason};
use ikev2::{Authorization, Endpoint, Event, Holder, IkeId, Limits, Request, Response, Timestamp};
use rustix::event::epoll;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::ike::{Dialling, Identity, PORTS, System, connection, unexpected};
use crate::tool::SERVER_NAME;

/// How long the gateway may be silent before it is asked, and how long until it is asked again: those of the daemon.
const SILENCE: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Pause after a handshake that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Datagrams that are taken before the timers have their turn.
const BATCH: usize = 256;

/// What the cameras are to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Fleet {
    /// As for clients that come and go.
    #[serde(flatten)]
    pub dialling: Dialling,
    /// The certificate of each camera, PEM, all for the one key.
    pub certificates: Vec<String>,
    /// Whether they resume their sessions (RFC 5723), where the gateway gives tickets.
    pub resume: bool,
    /// Milliseconds between two echo requests of one camera.
    pub echo_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// For each camera the seconds from the beginning to its first answer through a new tunnel.
    pub(crate) times: Vec<f64>,
    /// Cameras that resumed their sessions.
    resumed: usize,
}

/// Holds tunnels until standard input ends: its first line describes them, each further one begins a measurement.
///
/// # Errors
/// The description makes no sense, or the machine refuses sockets.
pub fn hold() -> Result<(), LabError> {
    let mut text = String::new();
    let failed = || LabError::io("the description");
    std::io::stdin().read_line(&mut text).map_err(failed())?;
    let fleet: Fleet = serde_json::from_str(&text).map_err(unexpected)?;
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, all).map_err(|error| LabError::io("files")(error.into()))?;
    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() || sender.send(()).is_err() {
                return;
            }
        }
    });
    let identity = Identity::read(&fleet.dialling)?;
    Cameras::new(&fleet, &identity)?.run(&commands)
}

struct Camera {
    endpoint: Endpoint,
    may: Authorization,
    sockets: [(SocketAddr, UdpSocket); 2],
    inside: Ipv4Addr,
    ike: Option<IkeId>,
    tunnel: Option<Tunnel>,
    retry: Option<Instant>,
    echo: Instant,
    /// Whether its tunnel is one that it did not have when the measurement began.
    fresh: bool,
    /// Whether its session was resumed.
    resumed: bool,
    answered: Option<Instant>,
}

/// A Child SA with AES-GCM (RFC 4106) in UDP.
struct Tunnel {
    spi_in: u32,
    spi_out: u32,
    path: ikev2::Path,
    keys: [(LessSafeKey, [u8; 4]); 2],
    sequence: u32,
    /// Sent since then without an answer.
    waits: Option<Instant>,
    asked: Option<Instant>,
}

fn key(material: &offload::KeyMaterial) -> Option<(LessSafeKey, [u8; 4])> {
    let (key, salt) = material.encryption.split_at_checked(16)?;
    let key = UnboundKey::new(&AES_128_GCM, key).ok()?;
    Some((LessSafeKey::new(key), salt.try_into().ok()?))
}

fn nonce(salt: [u8; 4], sequence: u64) -> Nonce {
    let mut bytes = [0; 12];
    let parts = salt.into_iter().chain(sequence.to_be_bytes());
    bytes
        .iter_mut()
        .zip(parts)
        .for_each(|(place, byte)| *place = byte);
    Nonce::assume_unique_for_key(bytes)
}

/// The ones' complement sum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let (words, _) = bytes.as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0)
}

/// An ICMP echo request in IPv4.
fn echo_request(from: Ipv4Addr, to: Ipv4Addr, sequence: u32) -> Vec<u8> {
    let mut icmp = [8, 0, 0, 0, 0, 7, 0, 0];
    let [.., high, low] = sequence.to_be_bytes();
    (icmp[6], icmp[7]) = (high, low);
    let sum = checksum(&icmp);
    [icmp[2], icmp[3]] = sum.to_be_bytes();
    let [a, b, c, d] = from.octets();
    let [e, f, g, h] = to.octets();
    let mut ip = [
        0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 1, 0, 0, a, b, c, d, e, f, g, h,
    ];
    let sum = checksum(&ip);
    [ip[10], ip[11]] = sum.to_be_bytes();
    [&ip[..], &icmp].concat()
}

impl Tunnel {
    fn new(up: &ChildUp) -> Option<Self> {
        Some(Self {
            spi_in: up.spi_in,
            spi_out: up.spi_out,
            path: up.path,
            keys: [key(&up.inbound)?, key(&up.outbound)?],
            sequence: 0,
            waits: None,
            asked: None,
        })
    }

    fn seal(&mut self, packet: Vec<u8>) -> Option<Vec<u8>> {
        self.sequence = self.sequence.checked_add(1)?;
        let (key, salt) = &self.keys[1];
        let mut out = self.spi_out.to_be_bytes().to_vec();
        out.extend(self.sequence.to_be_bytes());
        let mut body = packet;
        // Two bytes of padding, their number, and IPv4.
        body.extend([1, 2, 2, 4]);
        let iv = u64::from(self.sequence);
        key.seal_in_place_append_tag(nonce(*salt, iv), Aad::from(&out), &mut body)
            .ok()?;
        out.extend(iv.to_be_bytes());
        out.extend(body);
        Some(out)
    }

    /// Whether a packet is one of this tunnel with an answer to an echo request in it.
    fn opens(&self, packet: &[u8]) -> bool {
        let open = || {
            let (head, rest) = packet.split_at_checked(8)?;
            let (iv, body) = rest.split_at_checked(8)?;
            let (key, salt) = &self.keys[0];
            let iv = u64::from_be_bytes(iv.try_into().ok()?);
            let mut body = body.to_vec();
            let plain = key
                .open_in_place(nonce(*salt, iv), Aad::from(head), &mut body)
                .ok()?;
            Some(plain.get(20) == Some(&0))
        };
        packet.get(..4) == Some(&self.spi_in.to_be_bytes()) && open().unwrap_or(false)
    }
}

struct Cameras<'a> {
    fleet: &'a Fleet,
    identity: &'a Identity,
    start: Instant,
    cameras: Vec<Camera>,
    ready: std::os::fd::OwnedFd,
    /// Since when a measurement goes on.
    measuring: Option<Instant>,
}

impl<'a> Cameras<'a> {
    fn new(fleet: &'a Fleet, identity: &'a Identity) -> Result<Self, LabError> {
        let failed = |error: rustix::io::Errno| LabError::io("waiting")(error.into());
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let start = Instant::now();
        let mut cameras = Vec::new();
        for (number, (address, inside)) in fleet.dialling.clients.iter().enumerate() {
            let pem = fleet.certificates.get(number);
            let pem = pem.ok_or_else(|| unexpected("a camera without certificate"))?;
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
            let chain: Vec<_> = chain
                .map_err(unexpected)?
                .iter()
                .map(|der| der.to_vec())
                .collect();
            let open = |port| {
                let local = SocketAddr::new((*address).into(), port);
                let socket = UdpSocket::bind(local)?;
                socket.set_nonblocking(true)?;
                Ok::<_, std::io::Error>((local, socket))
            };
            let failed_port = || LabError::io(format!("a camera's port on {address}"));
            let sockets = [
                open(PORTS[0]).map_err(failed_port())?,
                open(PORTS[1]).map_err(failed_port())?,
            ];
            for (index, (_, socket)) in sockets.iter().enumerate() {
                let place = u64::try_from(number * 2 + index).unwrap_or(u64::MAX);
                let data = epoll::EventData::new_u64(place);
                epoll::add(&ready, socket.as_fd(), data, epoll::EventFlags::IN).map_err(failed)?;
            }
            let mut endpoint =
                Endpoint::new(Limits::default(), Box::new(System), Timestamp::default());
            let connection = connection(&fleet.dialling, (&chain, identity), number, *inside)?;
            let may =
                Authorization::of_connection(&connection, Holder::new(SERVER_NAME.as_bytes()));
            let may = match fleet.resume {
                true => may.with_resumption(Vec::new()),
                false => may,
            };
            endpoint.add_connection(connection);
            cameras.push(Camera {
                endpoint,
                may,
                sockets,
                inside: *inside,
                ike: None,
                tunnel: None,
                retry: Some(start),
                echo: start,
                fresh: true,
                resumed: false,
                answered: None,
            });
        }
        Ok(Self {
            fleet,
            identity,
            start,
            cameras,
            ready,
            measuring: Some(start),
        })
    }

    fn run(mut self, commands: &Receiver<()>) -> Result<(), LabError> {
        let mut events = Vec::with_capacity(BATCH);
        let mut buffer = vec![0; 65_536];
        loop {
            match commands.try_recv() {
                Ok(()) => self.begin(),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            let now = Instant::now();
            for number in 0..self.cameras.len() {
                self.tick(number, now);
            }
            self.report()?;
            events.clear();
            // Echo requests are due all the time.
            let wait = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 2_000_000,
            };
            match epoll::wait(
                &self.ready,
                rustix::buffer::spare_capacity(&mut events),
                Some(&wait),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(LabError::io("waiting")(error.into())),
            }
            let places: VecDeque<u64> = events.iter().map(|event| event.data.u64()).collect();
            for place in places {
                self.receive(usize::try_from(place).unwrap_or(0), &mut buffer);
            }
        }
    }

    fn begin(&mut self) {
        self.measuring = Some(Instant::now());
        for camera in &mut self.cameras {
            (camera.fresh, camera.answered) = (false, None);
        }
    }

    fn report(&mut self) -> Result<(), LabError> {
        let Some(since) = self.measuring else {
            return Ok(());
        };
        let answered: Option<Vec<Instant>> =
            self.cameras.iter().map(|camera| camera.answered).collect();
        let Some(answered) = answered else {
            return Ok(());
        };
        self.measuring = None;
        let times = answered
            .iter()
            .map(|at| at.saturating_duration_since(since).as_secs_f64());
        let measured = Measured {
            times: times.collect(),
            resumed: self.cameras.iter().filter(|camera| camera.resumed).count(),
        };
        let line = serde_json::to_string(&measured).map_err(unexpected)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").map_err(LabError::io("the result"))?;
        out.flush().map_err(LabError::io("the result"))
    }

    fn tick(&mut self, number: usize, now: Instant) {
        let stamp = Timestamp::new(now.saturating_duration_since(self.start));
        let server = SocketAddr::new(self.fleet.dialling.server.into(), PORTS[0]);
        let (inside, every) = (
            self.fleet.dialling.inside,
            Duration::from_millis(self.fleet.echo_ms),
        );
        let Some(camera) = self.cameras.get_mut(number) else {
            return;
        };
        if camera.retry.is_some_and(|at| at <= now) {
            camera.retry = None;
            let local = camera.sockets[0].0;
            camera.ike = camera
                .endpoint
                .initiate(stamp, "server", local, server)
                .ok();
        }
        if camera.endpoint.poll_timeout().is_some_and(|at| at <= stamp) {
            camera.endpoint.handle_timeout(stamp);
        }
        let (own, socket) = (camera.inside, &camera.sockets[1].1);
        if let Some(tunnel) = camera.tunnel.as_mut().filter(|_| camera.echo <= now) {
            camera.echo = now + every;
            let packet = echo_request(own, inside, tunnel.sequence);
            if let Some(packet) = tunnel.seal(packet) {
                tunnel.waits = tunnel.waits.or(Some(now));
                let _ = socket.send_to(&packet, tunnel.path.remote);
            }
            let silent = tunnel.waits.is_some_and(|since| since + SILENCE <= now);
            let patient = tunnel.asked.is_some_and(|at| now < at + ASK_AGAIN);
            if silent && !patient {
                tunnel.asked = Some(now);
                if let Some(ike) = camera.ike {
                    let _ = camera.endpoint.probe(stamp, ike);
                }
            }
        }
        camera.flush(self.identity, stamp, now);
    }

    fn receive(&mut self, place: usize, buffer: &mut [u8]) {
        let Some(camera) = self.cameras.get_mut(place / 2) else {
            return;
        };
        loop {
            let Some((local, socket)) = camera.sockets.get(place % 2) else {
                return;
            };
            let local = *local;
            let Ok((count, remote)) = socket.recv_from(buffer) else {
                return;
            };
            let now = Instant::now();
            let stamp = Timestamp::new(now.saturating_duration_since(self.start));
            let bytes = buffer.get(..count).unwrap_or_default();
            if local.port() == PORTS[1] && bytes.get(..4) != Some(&[0; 4]) {
                if let Some(tunnel) = camera.tunnel.as_mut().filter(|tunnel| tunnel.opens(bytes)) {
                    tunnel.waits = None;
                    if camera.fresh && camera.answered.is_none() {
                        camera.answered = Some(now);
                    }
                }
                continue;
            }
            camera.endpoint.handle_datagram(stamp, local, remote, bytes);
            camera.flush(self.identity, stamp, now);
        }
    }
}

impl Camera {
    /// Sends what there is to send and answers what is asked.
    fn flush(&mut self, identity: &Identity, stamp: Timestamp, now: Instant) {
        loop {
            if let Some(event) = self.endpoint.poll_event() {
                self.event(event, identity, stamp, now);
                continue;
            }
            let Some(transmit) = self.endpoint.poll_transmit() else {
                return;
            };
            let mut sockets = self.sockets.iter();
            if let Some((_, socket)) = sockets.find(|(local, _)| *local == transmit.local) {
                // What does not go out is repeated like what gets lost.
                let _ = socket.send_to(&transmit.payload, transmit.remote);
            }
        }
    }

    fn event(&mut self, event: Event, identity: &Identity, stamp: Timestamp, now: Instant) {
        match event {
            Event::Request(id, request) => {
                let answer = match request {
                    Request::Sign {
                        scheme, message, ..
                    } => identity.sign(scheme, &message),
                    Request::VerifyPeer { chain, .. } => identity.verify(&chain),
                    Request::Authorize { .. } => {
                        Ok(Response::Authorized(Box::new(self.may.clone())))
                    }
                    Request::ReviewPeer { .. } => Ok(Response::Welcome),
                    _ => Err("not here".to_owned()),
                };
                let answer = answer.unwrap_or_else(|why| Response::Refused(why.into()));
                self.endpoint.respond(stamp, id, answer);
            }
            Event::IkeUp { resumed, .. } => self.resumed = resumed,
            Event::ChildUp(up) => {
                self.tunnel = Tunnel::new(&up);
                self.fresh = true;
                self.echo = now;
            }
            Event::ChildDown { spi_in, .. } => {
                let gone = self
                    .tunnel
                    .as_ref()
                    .is_some_and(|tunnel| tunnel.spi_in == spi_in);
                self.tunnel = self.tunnel.take().filter(|_| !gone);
            }
            Event::IkeDown { ike, reason, .. } if self.ike == Some(ike) => {
                self.ike = None;
                self.retry = Some(match reason {
                    Reason::PeerCrashed | Reason::NotResumed(_) => now,
                    _ => now + RETRY,
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_is_one() {
        let [from, to] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let packet = echo_request(from, to, 0x1234);
        // A header and a message that carry their own checksums sum up to nothing.
        assert_eq!((checksum(&packet[..20]), checksum(&packet[20..])), (0, 0));
        assert_eq!(
            (packet.len(), packet[20], &packet[26..]),
            (28, 8, &[0x12, 0x34][..])
        );
    }
}
