//! Two endpoints in virtual time, the network between them, and a data plane that only counts.

mod keys;
mod setup;
mod side;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ikev2::{Connection, IkeId, Limits, Path, Timestamp, Transmit, Transport};

pub(crate) use keys::{Key, Seeded, key_of};
pub(crate) use setup::{
    cbc_ike, certified_by, certify, connection, credential, esp_default, ike_default, net,
    resources_of, with_resources,
};
pub(crate) use side::{Clock, Side};

/// How the network treats datagrams.
#[derive(Clone, Default)]
pub(crate) struct Weather {
    /// Of 100 datagrams.
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    /// Delays lie between one and this many milliseconds.
    pub(crate) jitter: u64,
    /// Side 0 sits behind a NAT with this address.
    pub(crate) nat: Option<IpAddr>,
    pub(crate) nat_port: u16,
}

#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) to: usize,
    pub(crate) from: SocketAddr,
    pub(crate) at: SocketAddr,
    pub(crate) payload: Vec<u8>,
}

/// Port of side 1 for TCP.
pub(crate) const TCP_PORT: u16 = 4443;

/// The TCP connection of side 0 to side 1.
#[derive(Clone, Copy)]
pub(crate) struct TcpConnection {
    /// Its name at side 0, which stays.
    pub(crate) name: Path,
    /// Where side 1 sees it come from.
    pub(crate) from: SocketAddr,
    pub(crate) open: bool,
}

/// Two sides and the network.
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) sides: [Side; 2],
    pub(crate) weather: Weather,
    pub(crate) random: Seeded,
    pub(crate) wire: BTreeMap<(Timestamp, u64), Packet>,
    sequence: u64,
    /// Whether to deliver by hand.
    pub(crate) manual: bool,
    /// Addresses that nothing reaches or leaves any more.
    pub(crate) dead: BTreeSet<IpAddr>,
    /// Largest UDP payload that passes.
    pub(crate) mtu: usize,
    pub(crate) sizes: Vec<usize>,
    /// Child SAs whose absence from the invariant is wanted (closing).
    pub(crate) watch: bool,
    /// SPIs with which each side sent when the keys of both sides were compared last.
    agreed: [Cell<Option<(u32, u32)>>; 2],
    pub(crate) tcp: Option<TcpConnection>,
    /// Contents of TCP frames from each side.
    pub(crate) frames: [Vec<Vec<u8>>; 2],
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with([connection(0), connection(1)], Limits::default(), seed)
    }

    pub(crate) fn with(connections: [Connection; 2], limits: Limits, seed: u64) -> Self {
        let limits = [limits.clone(), limits];
        Self::with_clocks(connections, limits, seed, [Clock::default(); 2])
    }

    pub(crate) fn with_clocks(
        connections: [Connection; 2],
        limits: [Limits; 2],
        seed: u64,
        clocks: [Clock; 2],
    ) -> Self {
        let now = Timestamp::default();
        let mut sides =
            [0, 1].map(|index| Side::new(index, limits[index].clone(), seed, clocks[index], now));
        for (side, connection) in sides.iter_mut().zip(connections) {
            side.add_connection(connection);
        }
        Self {
            now: Timestamp::default(),
            sides,
            weather: Weather::default(),
            random: Seeded(seed ^ 0x5eed),
            wire: BTreeMap::new(),
            sequence: 0,
            manual: false,
            dead: BTreeSet::new(),
            mtu: usize::MAX,
            sizes: Vec::new(),
            watch: false,
            agreed: Default::default(),
            tcp: None,
            frames: [Vec::new(), Vec::new()],
        }
    }

    pub(crate) fn initiate(&mut self) -> IkeId {
        let (local, remote) = (self.sides[0].address, self.sides[1].address);
        let now = self.sides[0].clock.local(self.now);
        let endpoint = &mut self.sides[0].endpoint;
        let id = endpoint.initiate(now, "tunnel", local, remote).unwrap();
        self.collect();
        id
    }

    /// One side starts anew and has forgotten everything.
    pub(crate) fn restart(
        &mut self,
        index: usize,
        connection: Connection,
        limits: Limits,
        seed: u64,
    ) {
        let clock = self.sides[index].clock;
        let mut side = Side::new(index, limits, seed, clock, self.now);
        side.address = self.sides[index].address;
        side.add_connection(connection);
        side.log.push("restarted".into());
        self.sides[index] = side;
    }

    /// A world with the tunnel up.
    pub(crate) fn up(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.initiate();
        world.run(Duration::from_secs(5));
        world.assert_up();
        world.watch = true;
        world
    }

    pub(crate) fn assert_up(&self) {
        for side in &self.sides {
            assert_eq!(side.endpoint.established().count(), 1, "{:?}", side.log);
        }
        self.check();
    }

    /// Takes what the endpoints want sent and what they say.
    pub(crate) fn collect(&mut self) {
        for index in [0, 1] {
            loop {
                let side = &mut self.sides[index];
                if let Some(event) = side.endpoint.poll_event() {
                    side.on_event(event, self.now);
                    continue;
                }
                let Some(transmit) = side.endpoint.poll_transmit() else {
                    break;
                };
                self.send(index, transmit);
            }
        }
        if self.watch {
            self.check();
        }
    }

    /// Sends over TCP: nothing is lost or repeated while the connection is open.
    fn send_frame(&mut self, from: usize, transmit: Transmit) {
        self.frames[from].push(transmit.payload.clone());
        let Some(tcp) = self.tcp.filter(|tcp| tcp.open) else {
            return;
        };
        let (expected, source, target) = match from {
            0 => (tcp.name.remote, tcp.from, tcp.name.remote),
            _ => (tcp.from, tcp.name.remote, tcp.name.local),
        };
        if transmit.remote != expected {
            return;
        }
        self.sequence += 1;
        let at = self.now.after(Duration::from_millis(1));
        let packet = Packet {
            to: 1 - from,
            from: source,
            at: target,
            payload: transmit.payload,
        };
        self.wire.insert((at, self.sequence), packet);
    }

    fn send(&mut self, from: usize, transmit: Transmit) {
        if transmit.transport == Transport::Tcp {
            return self.send_frame(from, transmit);
        }
        self.sizes.push(transmit.payload.len());
        if transmit.payload.len() > self.mtu || self.random.below(100) < self.weather.loss {
            return;
        }
        let (mut source, mut target) = (transmit.local, transmit.remote);
        if self.dead.contains(&source.ip()) || self.dead.contains(&target.ip()) {
            return;
        }
        if let Some(nat) = self.weather.nat {
            if from == 0 {
                source = SocketAddr::new(nat, self.weather.nat_port);
            } else if target == SocketAddr::new(nat, self.weather.nat_port) {
                // Back to the port from which side 0 speaks.
                target = SocketAddr::new(self.sides[0].address.ip(), transmit.local.port());
            } else {
                return;
            }
        }
        let packet = Packet {
            to: 1 - from,
            from: source,
            at: target,
            payload: transmit.payload,
        };
        let copies = 1 + u64::from(self.random.below(100) < self.weather.duplication);
        for _ in 0..copies {
            let delay = 1 + self.random.below(self.weather.jitter.max(1));
            self.sequence += 1;
            let at = self.now.after(Duration::from_millis(delay));
            self.wire.insert((at, self.sequence), packet.clone());
        }
    }

    pub(crate) fn deliver(&mut self, packet: &Packet) {
        let side = &mut self.sides[packet.to];
        let now = side.clock.local(self.now);
        let path = match [packet.at, packet.from]
            .map(|end| end.port())
            .contains(&TCP_PORT)
        {
            true => Path::tcp(packet.at, packet.from),
            false => Path::udp(packet.at, packet.from),
        };
        side.endpoint.handle_message(now, path, &packet.payload);
        self.collect();
    }

    /// Takes the oldest datagram to `to` off the wire.
    pub(crate) fn take(&mut self, to: usize) -> Option<Packet> {
        let key = *self.wire.iter().find(|(_, packet)| packet.to == to)?.0;
        self.wire.remove(&key)
    }

    /// Delivers the oldest datagram to `to`.
    pub(crate) fn pass(&mut self, to: usize) {
        let packet = self.take(to).expect("a datagram is on its way");
        self.deliver(&packet);
    }

    /// Loses the oldest datagram to `to`.
    pub(crate) fn lose(&mut self, to: usize) {
        self.take(to).expect("a datagram is on its way");
    }

    /// Lets `time` pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            let wire = self
                .wire
                .keys()
                .next()
                .map(|(at, _)| *at)
                .filter(|_| !self.manual);
            let timers = self
                .sides
                .iter()
                .filter_map(|side| Some(side.clock.world(side.endpoint.poll_timeout()?)));
            let next = timers.chain(wire).min().filter(|next| *next <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            if let Some(((at, _), _)) = self.wire.first_key_value()
                && *at <= self.now
                && !self.manual
            {
                let (_, packet) = self.wire.pop_first().unwrap();
                self.deliver(&packet);
                continue;
            }
            for side in &mut self.sides {
                side.endpoint.handle_timeout(side.clock.local(self.now));
            }
            self.collect();
        }
        self.now = end;
        self.collect();
    }

    /// Each side sends with a Child SA that the other opens, with the same key.
    pub(crate) fn check(&self) {
        for index in [0, 1] {
            let (from, to) = (&self.sides[index], &self.sides[1 - index]);
            let logs = || format!("\n0: {:#?}\n1: {:#?}", self.sides[0].log, self.sides[1].log);
            let Some(child) = from.outbound() else {
                panic!(
                    "side {index} has no Child SA to send with at {:?}{}",
                    self.now,
                    logs()
                )
            };
            for child in from.outbounds() {
                assert!(
                    to.receives(child.spi_out, self.now),
                    "side {index} sends with {:x}, which the other does not open, at {:?}{}",
                    child.spi_out,
                    self.now,
                    logs()
                );
            }
            let pair = Some((child.spi_in, child.spi_out));
            if self.agreed[index].get() != pair {
                let other = &to.ups[&child.spi_out];
                assert_eq!(*child.outbound.encryption, *other.inbound.encryption);
                assert_eq!(*child.outbound.integrity, *other.inbound.integrity);
                self.agreed[index].set(pair);
            }
        }
    }

    /// Child SAs that there are to be: each resource of the side with fewer has one.
    pub(crate) fn resources(&self) -> usize {
        let [one, two] = [0, 1].map(|side: usize| self.sides[side].resources);
        one.min(two)
    }

    /// Both sides have the same Child SAs, one for each resource, and nothing is going on.
    pub(crate) fn assert_settled(&self) {
        self.assert_up();
        let ours: BTreeSet<_> = self.sides[0].children().into_iter().collect();
        let theirs: BTreeSet<_> = self.sides[1]
            .endpoint
            .established()
            .flat_map(|(_, c)| c)
            .map(|(_, out)| out)
            .collect();
        assert_eq!(ours, theirs, "both know the same Child SAs");
        assert_eq!(
            ours.len(),
            self.resources(),
            "{:#?}\n{:#?}",
            self.sides[0].log,
            self.sides[1].log
        );
        for side in &self.sides {
            let places = side.children().into_iter();
            let places: BTreeSet<_> = places.map(|spi| spi as usize % side.resources).collect();
            assert_eq!(
                places.len(),
                self.resources(),
                "one resource each: {:#?}",
                side.log
            );
        }
    }
}
