//! Two endpoints in virtual time, the network between them, and a data plane that only counts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use ikev2::auth::Scheme;
use ikev2::config::{Addresses, KeyKind, LocalAuth, Mode, PeerId, Psk, RemoteAuth};
use ikev2::crypto::{Group, Prf};
use ikev2::eap::NtHash;
use ikev2::event::{ChildUp, Reason};
use ikev2::select::{EspProposal, IkeProposal};
use ikev2::wire::{Identification, TrafficSelector};
use ikev2::{
    Answer, Ask, ChildConfig, Connection, Endpoint, Event, IkeId, Limits, Random, Timestamp,
    Transmit,
};
use offload::{Encryption, Integrity};

/// A generator for tests: splitmix64.
#[derive(Clone)]
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// Keys for certificates. A "certificate" here is the bare public key: chains are the caller's work.
pub(crate) enum Key {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Key {
    pub(crate) fn generate(kind: KeyKind) -> Self {
        match kind {
            KeyKind::EcdsaP256 => Self::Ecdsa(
                EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).unwrap(),
            ),
            KeyKind::EcdsaP384 => Self::Ecdsa(
                EcdsaKeyPair::generate(&signature::ECDSA_P384_SHA384_ASN1_SIGNING).unwrap(),
            ),
            KeyKind::Ed25519 => Self::Ed25519(Ed25519KeyPair::generate().unwrap()),
            KeyKind::Rsa => {
                Self::Rsa(RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap())
            }
        }
    }

    pub(crate) fn public(&self) -> Vec<u8> {
        match self {
            Self::Ecdsa(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::Ed25519(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
            Self::Rsa(key) => key.public_key().as_der().unwrap().as_ref().to_vec(),
        }
    }

    pub(crate) fn sign(&self, scheme: Scheme, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Ecdsa(key) => key
                .sign(&SystemRandom::new(), message)
                .unwrap()
                .as_ref()
                .to_vec(),
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Self::Rsa(key) => {
                let padding: &dyn signature::RsaEncoding = match scheme {
                    Scheme::RsaPssSha256 => &signature::RSA_PSS_SHA256,
                    Scheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_SHA256,
                    other => panic!("unexpected {other:?}"),
                };
                let mut out = vec![0; key.public_modulus_len()];
                key.sign(padding, &SystemRandom::new(), message, &mut out)
                    .unwrap();
                out
            }
        }
    }
}

pub(crate) fn ike_default() -> IkeProposal {
    IkeProposal {
        encryption: vec![Encryption::AesGcm128],
        integrity: vec![],
        prf: vec![Prf::HmacSha256],
        groups: vec![Group::X25519],
        additional: vec![],
    }
}

pub(crate) fn esp_default() -> EspProposal {
    EspProposal {
        encryption: vec![Encryption::AesGcm128],
        integrity: vec![],
        groups: vec![Group::X25519],
        additional: vec![],
        without_group: true,
        extended_sequence: vec![true, false],
    }
}

pub(crate) fn cbc_ike(integrity: Integrity, group: Group) -> IkeProposal {
    IkeProposal {
        encryption: vec![Encryption::AesCbc256],
        integrity: vec![integrity],
        prf: vec![Prf::HmacSha384],
        groups: vec![group],
        additional: vec![],
    }
}

pub(crate) fn net(text: &str) -> TrafficSelector {
    let (address, prefix) = text.split_once('/').unwrap();
    TrafficSelector::network(address.parse().unwrap(), prefix.parse().unwrap()).unwrap()
}

/// A connection of side `me` (0 or 1) to the other, with a shared secret.
pub(crate) fn connection(me: usize) -> Connection {
    let names = ["camera-17.example.org", "gateway.example.org"];
    let nets = ["10.1.0.0/16", "10.2.0.0/16"];
    Connection {
        name: "tunnel".into(),
        remote_address: None,
        local_id: Identification::fqdn(names[me]),
        remote_id: PeerId::Exactly(Identification::fqdn(names[1 - me])),
        local_auth: LocalAuth::Psk(Psk::new(b"a secret for this test")),
        remote_auth: RemoteAuth::Psk(Psk::new(b"a secret for this test")),
        ppk: None,
        mobility: false,
        further_addresses: vec![],
        addresses: Addresses::None,
        ike: vec![ike_default()],
        children: vec![ChildConfig {
            name: "net".into(),
            mode: Mode::Tunnel,
            local: vec![net(nets[me])],
            remote: vec![net(nets[1 - me])],
            esp: vec![esp_default()],
            rekey_after: None,
        }],
        rekey_after: None,
        liveness: None,
    }
}

/// How long a replaced Child SA still receives.
const LINGER: Duration = Duration::from_secs(5);

/// How one side's clock differs from the world's: where it starts, and how fast it goes.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) ahead: Duration,
    /// 1000 is right.
    pub(crate) permille: u32,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            ahead: Duration::ZERO,
            permille: 1000,
        }
    }
}

impl Clock {
    /// What this clock shows.
    pub(crate) fn local(self, world: Timestamp) -> Timestamp {
        Timestamp::new(self.ahead + world.since_start() * self.permille / 1000)
    }

    /// The first moment of the world at which this clock shows `local`.
    pub(crate) fn world(self, local: Timestamp) -> Timestamp {
        let since = local.since_start().saturating_sub(self.ahead).as_nanos() * 1000;
        let nanos = since.div_ceil(u128::from(self.permille));
        Timestamp::new(Duration::from_nanos(nanos as u64))
    }
}

/// One side: endpoint, data plane, what it saw.
pub(crate) struct Side {
    pub(crate) clock: Clock,
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) key: Option<Key>,
    pub(crate) log: Vec<String>,
    pub(crate) ups: BTreeMap<u32, ChildUp>,
    /// Inbound SPIs that open packets, until when (if they are on their way out).
    inbound: BTreeMap<u32, Option<Timestamp>>,
    /// Inbound SPIs of Child SAs in the order in which they began to send.
    sending: Vec<u32>,
    pub(crate) refuse_peer: bool,
    /// Of users.
    pub(crate) passwords: BTreeMap<String, String>,
    /// Addresses and name servers for the other side.
    pub(crate) give: Option<(Vec<IpAddr>, Vec<IpAddr>)>,
}

impl Side {
    fn new(index: usize, limits: Limits, seed: u64, clock: Clock, now: Timestamp) -> Self {
        let address = ["192.0.2.1:500", "198.51.100.1:500"][index]
            .parse()
            .unwrap();
        let random = Box::new(Seeded(seed.wrapping_mul(2).wrapping_add(index as u64)));
        Self {
            endpoint: Endpoint::new(limits, random, clock.local(now)),
            clock,
            address,
            key: None,
            log: Vec::new(),
            ups: BTreeMap::new(),
            inbound: BTreeMap::new(),
            sending: Vec::new(),
            refuse_peer: false,
            passwords: BTreeMap::new(),
            give: None,
        }
    }

    pub(crate) fn ike(&self) -> IkeId {
        let all: Vec<_> = self.endpoint.established().map(|(id, _)| id).collect();
        assert_eq!(all.len(), 1, "one IKE SA is up");
        all[0]
    }

    /// Inbound SPIs of the Child SAs.
    pub(crate) fn children(&self) -> Vec<u32> {
        self.endpoint
            .established()
            .flat_map(|(_, c)| c)
            .map(|(spi_in, _)| spi_in)
            .collect()
    }

    /// The Child SA with which this side sends.
    pub(crate) fn outbound(&self) -> Option<&ChildUp> {
        self.ups.get(self.sending.last()?)
    }

    pub(crate) fn receives(&self, spi: u32, now: Timestamp) -> bool {
        self.inbound
            .get(&spi)
            .is_some_and(|until| until.is_none_or(|until| now <= until))
    }

    fn on_event(&mut self, event: Event, world: Timestamp) {
        let now = self.clock.local(world);
        match event {
            Event::Ask(
                id,
                Ask::Sign {
                    scheme, message, ..
                },
            ) => {
                let signature = self.key.as_ref().unwrap().sign(scheme, &message);
                self.log.push(format!("sign {scheme:?}"));
                self.endpoint.answer(now, id, Answer::Signature(signature));
            }
            Event::Ask(id, Ask::VerifyPeer { chain, id: who, .. }) => {
                self.log.push(format!("verify {who}"));
                let answer = if self.refuse_peer {
                    Answer::Refused("revoked".into())
                } else {
                    Answer::PeerKey(chain[0].clone())
                };
                self.endpoint.answer(now, id, answer);
            }
            Event::Ask(id, Ask::Password { user, .. }) => {
                self.log.push(format!("asked for the password of {user}"));
                let answer = self.passwords.get(&user).map_or_else(
                    || Answer::Refused("no such user".into()),
                    |password| Answer::Password(NtHash::of_password(password)),
                );
                self.endpoint.answer(now, id, answer);
            }
            Event::Ask(id, Ask::Addresses { v4, v6, .. }) => {
                let answer = self.give.clone().map(|(addresses, dns)| {
                    self.log.push(format!("asked for addresses {v4} {v6}"));
                    Answer::Addresses { addresses, dns }
                });
                let answer = answer.unwrap_or_else(|| Answer::Refused("none left".into()));
                self.endpoint.answer(now, id, answer);
            }
            Event::IkeUp {
                peer,
                suite,
                addresses,
                dns,
                ..
            } => {
                self.log.push(format!("up {peer} {suite}"));
                if !addresses.is_empty() {
                    self.log.push(format!("addresses {addresses:?} {dns:?}"));
                }
            }
            Event::IkeRekeyed { .. } => self.log.push("ike rekeyed".into()),
            Event::IkeRekeyFailed { reason, .. } => {
                self.log.push(format!("ike rekey failed {reason}"))
            }
            Event::IkeDown { reason, .. } => self.log.push(format!("down {reason}")),
            Event::ChildUp(up) => {
                self.log.push(format!(
                    "child up {}",
                    up.replaces.map_or("new", |_| "rekeyed")
                ));
                self.inbound.insert(up.spi_in, None);
                if up.send_now {
                    self.sending.push(up.spi_in);
                }
                self.ups.insert(up.spi_in, *up);
            }
            Event::ChildOutbound { spi_in, .. } => {
                self.log.push("child outbound".into());
                self.sending.push(spi_in);
            }
            Event::ChildDown { spi_in, reason, .. } => {
                self.log.push(format!("child down {reason}"));
                self.sending.retain(|spi| *spi != spi_in);
                if reason == Reason::Replaced {
                    self.inbound.insert(spi_in, Some(world.after(LINGER)));
                } else {
                    self.inbound.remove(&spi_in);
                }
            }
            Event::ChildFailed { reason, .. } => self.log.push(format!("child failed {reason}")),
            Event::PathChanged {
                local,
                remote,
                udp_encapsulation,
                ..
            } => {
                self.log.push(format!(
                    "path {remote} from {local} udp {udp_encapsulation}"
                ));
            }
            Event::PathRefused { reason, .. } => self.log.push(format!("path refused {reason}")),
        }
    }

    pub(crate) fn saw(&self, text: &str) -> usize {
        self.log.iter().filter(|line| line.contains(text)).count()
    }
}

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
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with([connection(0), connection(1)], Limits::default(), seed)
    }

    pub(crate) fn with(connections: [Connection; 2], limits: Limits, seed: u64) -> Self {
        Self::with_clocks(connections, limits, seed, [Clock::default(); 2])
    }

    pub(crate) fn with_clocks(
        connections: [Connection; 2],
        limits: Limits,
        seed: u64,
        clocks: [Clock; 2],
    ) -> Self {
        let now = Timestamp::default();
        let mut sides =
            [0, 1].map(|index| Side::new(index, limits.clone(), seed, clocks[index], now));
        for (side, connection) in sides.iter_mut().zip(connections) {
            side.endpoint.add_connection(connection);
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
        side.endpoint.add_connection(connection);
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

    fn send(&mut self, from: usize, transmit: Transmit) {
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
        side.endpoint
            .handle_datagram(now, packet.at, packet.from, &packet.payload);
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
            assert!(
                to.receives(child.spi_out, self.now),
                "side {index} sends with {:x}, which the other does not open, at {:?}{}",
                child.spi_out,
                self.now,
                logs()
            );
            let other = &to.ups[&child.spi_out];
            assert_eq!(*child.outbound.encryption, *other.inbound.encryption);
            assert_eq!(*child.outbound.integrity, *other.inbound.integrity);
        }
    }

    /// Both sides have the same Child SAs, one of them, and nothing is going on.
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
            1,
            "{:#?}\n{:#?}",
            self.sides[0].log,
            self.sides[1].log
        );
    }
}
