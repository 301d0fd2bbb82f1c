//! One IKE peer on real sockets, for tests against other people's daemons. Not a daemon: it moves no
//! packets and has no limits on what its operator may ask.
//!
//! ```text
//! ike_peer --local 10.5.0.1 --remote 10.5.0.2 --local-id a.test --remote-id b.test \
//!     --psk secret --ike aes128gcm16-prfsha256-x25519 --esp aes128gcm16-x25519 \
//!     --local-ts 10.5.1.0/24 --remote-ts 10.5.2.0/24 [--cert a.pem --key a.key --ca ca.pem]
//! ```
//!
//! `--eap-client mschapv2 --user NAME --password PASSWORD` logs in with EAP, `--eap-server` takes it;
//! `tls` instead of `mschapv2` uses the certificate. `--remote-id any` takes anybody; `--often yes` takes them without a bound
//! on how often they come, for benchmarks.
//!
//! Commands come line by line on standard input (`initiate`, `rekey-child`, `rekey-ike`,
//! `delete-child`, `close`, `storm COUNT`, `quit`), events go to standard output.
#![allow(clippy::disallowed_methods, reason = "a program has a clock")]
#![allow(clippy::print_stdout, reason = "standard output is its interface")]

mod identity;
mod options;

use std::io::BufRead;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use identity::Identity;
use ikev2::eap::NtHash;
use ikev2::event::Reason;
use ikev2::{Authorization, Endpoint, Event, Holder, IkeId, Random, Request, Response, Timestamp};
use options::Options;

type Failure = Box<dyn std::error::Error>;

struct System;

impl Random for System {
    fn fill(&mut self, out: &mut [u8]) {
        aws_lc_rs::rand::fill(out).unwrap_or_else(|_| std::process::abort());
    }
}

enum Input {
    Datagram(SocketAddr, SocketAddr, Vec<u8>),
    Command(String),
}

struct Peer {
    endpoint: Endpoint,
    options: Options,
    identity: Option<Identity>,
    sockets: Vec<(SocketAddr, Arc<UdpSocket>)>,
    start: Instant,
    /// Handshakes that are still to be made, one after the other.
    storm: u32,
}

fn main() -> Result<(), Failure> {
    let options = Options::parse()?;
    let identity = Identity::load(&options)?;
    let (sender, receiver) = channel();
    let open = |local, port| -> Result<_, Failure> {
        let address = SocketAddr::new(local, port);
        let socket = Arc::new(UdpSocket::bind(address)?);
        spawn_reader(address, Arc::clone(&socket), sender.clone());
        Ok((address, socket))
    };
    let mut sockets = vec![open(options.local, 500)?, open(options.local, 4500)?];
    if let Some(other) = options.get("also") {
        sockets.push(open(other.parse()?, 4500)?);
    }
    let mut endpoint = Endpoint::new(options.limits(), Box::new(System), Timestamp::default());
    endpoint.add_connection(options.connection(identity.as_ref())?);
    let commands = sender.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if commands.send(Input::Command(line)).is_err() {
                return;
            }
        }
        let _ = commands.send(Input::Command("quit".into()));
    });
    println!("ready");
    Peer {
        endpoint,
        options,
        identity,
        sockets,
        start: Instant::now(),
        storm: 0,
    }
    .run(&receiver)
}

fn spawn_reader(local: SocketAddr, socket: Arc<UdpSocket>, sender: Sender<Input>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok((len, remote)) = socket.recv_from(&mut buffer) {
            let bytes = buffer.get(..len).unwrap_or_default().to_vec();
            if sender.send(Input::Datagram(local, remote, bytes)).is_err() {
                return;
            }
        }
    });
}

impl Peer {
    fn now(&self) -> Timestamp {
        Timestamp::new(self.start.elapsed())
    }

    fn run(mut self, inputs: &Receiver<Input>) -> Result<(), Failure> {
        loop {
            let now = self.now();
            let wait = self.endpoint.poll_timeout().map(|at| at.since(now));
            match inputs.recv_timeout(wait.unwrap_or(Duration::from_secs(3600))) {
                Ok(Input::Datagram(local, remote, bytes)) => {
                    let now = self.now();
                    self.endpoint.handle_datagram(now, local, remote, &bytes);
                }
                Ok(Input::Command(command)) if command == "quit" => return Ok(()),
                Ok(Input::Command(command)) => self.command(&command)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let now = self.now();
            self.endpoint.handle_timeout(now);
            self.flush()?;
        }
    }

    fn current(&self) -> Option<(IkeId, Option<u32>)> {
        let (ike, children) = self.endpoint.established().next()?;
        Some((ike, children.first().map(|(spi_in, _)| *spi_in)))
    }

    fn initiate(&mut self) -> Result<(), Failure> {
        let local = SocketAddr::new(self.options.local, 500);
        let remote = SocketAddr::new(self.options.remote, 500);
        self.endpoint.initiate(self.now(), "peer", local, remote)?;
        Ok(())
    }

    /// In a storm each tunnel is closed once it is up, and then comes the next.
    fn storm(&mut self, event: &Event) -> Result<bool, Failure> {
        match event {
            _ if self.storm == 0 => return Ok(false),
            Event::ChildUp(up) => self.endpoint.close(self.now(), up.ike)?,
            Event::IkeDown { reason, .. } if *reason != Reason::Local => {
                return Err(format!("a handshake failed: {reason}").into());
            }
            Event::IkeDown { .. } => {
                self.storm = self.storm.saturating_sub(1);
                if self.storm > 0 {
                    self.initiate()?;
                } else {
                    println!("storm-over");
                }
            }
            Event::Request(..) => return Ok(false),
            _ => {}
        }
        Ok(true)
    }

    fn command(&mut self, command: &str) -> Result<(), Failure> {
        if command == "initiate" {
            return self.initiate();
        }
        if let Some(count) = command.strip_prefix("storm ") {
            self.storm = count.parse()?;
            return self.initiate();
        }
        let now = self.now();
        let Some((ike, child)) = self.current() else {
            println!("nothing is up");
            return Ok(());
        };
        if let Some(address) = command.strip_prefix("move ") {
            let local = SocketAddr::new(address.parse()?, 4500);
            let remote = SocketAddr::new(self.options.remote, 4500);
            if let Err(error) = self.endpoint.change_path(now, ike, local, remote) {
                println!("refused: {error}");
            }
            return Ok(());
        }
        let result = match (command, child) {
            ("rekey-child", Some(child)) => self.endpoint.rekey_child(now, ike, child),
            ("delete-child", Some(child)) => self.endpoint.delete_child(now, ike, child),
            ("create-child", _) => self.endpoint.create_child(now, ike, "net"),
            ("rekey-ike", _) => self.endpoint.rekey_ike(now, ike),
            ("probe", _) => self.endpoint.probe(now, ike),
            ("close", _) => self.endpoint.close(now, ike),
            _ => {
                println!("unknown command {command}");
                return Ok(());
            }
        };
        if let Err(error) = result {
            println!("refused: {error}");
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        loop {
            if let Some(event) = self.endpoint.poll_event() {
                self.event(event)?;
                continue;
            }
            let Some(transmit) = self.endpoint.poll_transmit() else {
                return Ok(());
            };
            let socket = self
                .sockets
                .iter()
                .find(|(address, _)| *address == transmit.local);
            if let Some((_, socket)) = socket {
                // What does not go out is repeated like what gets lost.
                let _ = socket.send_to(&transmit.payload, transmit.remote);
            }
        }
    }

    fn password(&self, user: &str) -> Result<Response, String> {
        let known = self.options.get("user") == Some(user);
        let password = self.options.get("password").filter(|_| known);
        let password = password.ok_or("no such user")?;
        Ok(Response::Password(NtHash::of_password(password)))
    }

    fn event(&mut self, event: Event) -> Result<(), Failure> {
        if self.storm(&event)? {
            return Ok(());
        }
        match event {
            Event::Request(pending, Request::Authorize { id, v4, v6, .. }) => {
                let address = self
                    .options
                    .get("virtual")
                    .and_then(|text| text.parse().ok());
                let addresses: Vec<_> = address.into_iter().filter(|_| v4 || v6).collect();
                let holder = Holder::new(id.to_string().as_bytes());
                let connection = self.options.connection(self.identity.as_ref())?;
                let may = Authorization::of_connection(&connection, holder);
                let may = may.assigning(&addresses, &[]).with_resumption(Vec::new());
                let may = may.with_rates(self.options.rates());
                let may = Box::new(may);
                let now = self.now();
                self.endpoint
                    .respond(now, pending, Response::Authorized(may));
            }
            Event::Request(id, Request::Solve(puzzle)) => {
                println!("puzzle {}", puzzle.bits());
                let refused = || Response::Refused("no solution".into());
                let answer = puzzle.solve().map_or_else(refused, Response::Solved);
                let now = self.now();
                self.endpoint.respond(now, id, answer);
            }
            Event::Request(id, Request::Tls(step)) => {
                step.run();
                let now = self.now();
                self.endpoint.respond(now, id, Response::Tls);
            }
            Event::Request(id, request) => {
                let identity = self
                    .identity
                    .as_ref()
                    .ok_or("a question without certificate")?;
                let answer = match request {
                    Request::Sign {
                        scheme, message, ..
                    } => identity.sign(scheme, &message),
                    Request::VerifyPeer { chain, id, .. } => identity.verify(&chain, &id),
                    Request::Password { user, .. } => self.password(&user),
                    Request::ReviewPeer { .. } => Ok(Response::Welcome),
                    Request::Authorize { .. } | Request::Tls(_) | Request::Solve(_) => {
                        Err("asked elsewhere".into())
                    }
                };
                let now = self.now();
                self.endpoint.respond(
                    now,
                    id,
                    answer.unwrap_or_else(|why| Response::Refused(why.into())),
                );
            }
            Event::IkeUp {
                peer,
                suite,
                addresses,
                resumed,
                ..
            } => {
                let how = if resumed { " resumed" } else { "" };
                println!("ike-up {peer} {suite} {addresses:?}{how}");
            }
            Event::IkeRekeyed { .. } => println!("ike-rekeyed"),
            Event::IkeRekeyFailed { reason, .. } => println!("ike-rekey-failed {reason}"),
            Event::IkeDown { reason, .. } => println!("ike-down {reason}"),
            Event::ChildUp(up) => println!(
                "child-up {:08x} {:08x} {:?} udp={} {}",
                up.spi_in,
                up.spi_out,
                up.suite,
                up.udp_encapsulation,
                if up.replaces.is_some() {
                    "rekeyed"
                } else {
                    "new"
                }
            ),
            Event::ChildOutbound { spi_in, .. } => println!("child-outbound {spi_in:08x}"),
            Event::ChildDown { spi_in, reason, .. } => println!("child-down {spi_in:08x} {reason}"),
            Event::ChildFailed { reason, .. } => println!("child-failed {reason}"),
            Event::PathChanged { local, remote, .. } => println!("path {local} {remote}"),
            Event::PathRefused { reason, .. } => println!("path-refused {reason}"),
        }
        Ok(())
    }
}
