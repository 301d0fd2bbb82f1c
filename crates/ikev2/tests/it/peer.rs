//! A peer built from the codec alone: it holds the keys and keeps none of the rules. The fuzz target
//! `ike_exchange` includes this file as well.

use std::net::SocketAddr;
use std::time::Duration;

use ikev2::auth::SignedOctets;
use ikev2::config::{Addresses, LocalAuth, Mode, PeerId, Psk, RemoteAuth};
use ikev2::crypto::{Group, IkeKeys, OpeningKey, Pending, Prf, SealingKey};
use ikev2::select::{EspProposal, IkeProposal, IkeSuite};
use ikev2::wire::{
    Datagram, ExchangeType, Flags, Header, Identification, KeyExchange, Notify, NotifyType,
    Payload, PayloadType, TrafficSelector, decode_chain, encode_chain, encode_clear,
};
use ikev2::{
    Authorization, ChildConfig, Connection, Endpoint, Event, Holder, Limits, Nonces, Random, Rates,
    Request, Response, SpiPair, Timestamp,
};
use offload::Encryption;

/// Random bytes that repeat from run to run.
pub struct Counter(pub u64);

impl Random for Counter {
    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

pub const SECRET: &[u8] = b"a secret for this test";

fn ike() -> IkeProposal {
    IkeProposal {
        encryption: vec![Encryption::AesGcm128],
        integrity: vec![],
        prf: vec![Prf::HmacSha256],
        groups: vec![Group::X25519],
        additional: vec![],
    }
}

fn esp() -> EspProposal {
    EspProposal {
        encryption: vec![Encryption::AesGcm128],
        integrity: vec![],
        groups: vec![Group::X25519],
        additional: vec![],
        without_group: true,
        extended_sequence: vec![false],
    }
}

/// The same with two further key exchanges.
fn several_ike() -> IkeProposal {
    IkeProposal {
        additional: vec![vec![Group::P256], vec![Group::P384]],
        ..ike()
    }
}

fn several_esp() -> EspProposal {
    EspProposal {
        additional: vec![vec![Group::P256], vec![Group::P384]],
        without_group: false,
        ..esp()
    }
}

/// Only what the endpoint itself bounds.
pub fn unlimited() -> Rates {
    let (ike_sas, most) = (1000, 1_000_000);
    Rates {
        ike_sas,
        handshakes: most,
        rekeys: most,
        requests: most,
    }
}

pub fn network(address: [u8; 4]) -> TrafficSelector {
    TrafficSelector::network(address.into(), 16).unwrap()
}

pub fn connection() -> Connection {
    Connection {
        name: "tunnel".into(),
        remote_address: None,
        local_id: Identification::fqdn("gateway.example.org"),
        remote_id: PeerId::Any,
        local_auth: LocalAuth::Psk(Psk::new(SECRET)),
        remote_auth: RemoteAuth::Psk(Psk::new(SECRET)),
        ppk: None,
        mobility: true,
        further_addresses: vec![],
        addresses: Addresses::None,
        ike: vec![ike(), several_ike()],
        children: vec![ChildConfig {
            name: "net".into(),
            mode: Mode::Tunnel,
            local: vec![network([10, 2, 0, 0])],
            remote: vec![network([10, 1, 0, 0])],
            esp: vec![esp(), several_esp()],
            rekey_after: Some(Duration::from_secs(600)),
        }],
        rekey_after: Some(Duration::from_secs(1000)),
        liveness: Some(Duration::from_secs(60)),
        retransmission: None,
        unique: ikev2::Unique::Replace,
    }
}

/// An endpoint and somebody who talks to it.
pub struct HostilePeer {
    pub endpoint: Endpoint,
    pub now: Timestamp,
    pub next_id: u32,
    /// SPI at which the endpoint's Child SA from IKE_AUTH receives, once there is one.
    pub child: Option<u32>,
    pub events: Vec<Event>,
    /// What the endpoint's caller lets us have.
    pub may: Authorization,
    /// With what a further key exchange would go on.
    pub link: Vec<u8>,
    /// Our IKE_SA_INIT, the endpoint's nonce, and what our proof is made with.
    init: (Vec<u8>, Vec<u8>, Prf, Vec<u8>),
    sealing: SealingKey,
    opening: OpeningKey,
    spis: SpiPair,
    random: Counter,
    local: SocketAddr,
    /// Our address as the endpoint sees it.
    pub remote: SocketAddr,
}

/// What the endpoint sent, opened.
pub struct Heard {
    pub header: Header,
    pub payloads: Vec<Payload>,
}

impl HostilePeer {
    /// Has done IKE_SA_INIT, and if `authenticate` IKE_AUTH as well.
    pub fn new(authenticate: bool) -> Self {
        Self::with(authenticate, Limits::default())
    }

    /// The same towards an endpoint with other limits.
    pub fn with(authenticate: bool, limits: Limits) -> Self {
        let connection = connection();
        let holder = Holder::new(b"camera-17.example.org");
        // Only the endpoint's own bounds count.
        let may = Authorization::of_connection(&connection, holder)
            .with_limits(1000, 1000)
            .with_rates(unlimited());
        let mut peer = Self::towards(connection, may, limits);
        if authenticate {
            peer.authenticate();
            assert!(peer.child.is_some());
        }
        peer
    }

    /// Has done IKE_SA_INIT towards an endpoint with this connection, which lets us have this.
    pub fn towards(connection: Connection, may: Authorization, limits: Limits) -> Self {
        let mut random = Counter(1);
        let now = Timestamp::default();
        let mut endpoint = Endpoint::new(limits, Box::new(Counter(2)), now);
        endpoint.add_connection(connection);
        let (local, remote) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let (local, remote) = (SocketAddr::new(local, 500), SocketAddr::new(remote, 500));
        let pending = Pending::start(Group::X25519, &mut random).unwrap();
        let nonce_i = vec![0x11; 32];
        let spi_i = 0xaaaa_0000_0000_0001;
        let request = encode_clear(
            Header {
                spi_i,
                spi_r: 0,
                first: PayloadType::NONE,
                exchange: ExchangeType::IKE_SA_INIT,
                flags: Flags {
                    initiator: true,
                    response: false,
                },
                message_id: 0,
            },
            &[
                Payload::Sa(vec![ike().to_wire(1, &[])]),
                Payload::Ke(KeyExchange {
                    method: Group::X25519.id(),
                    data: pending.public().to_vec(),
                }),
                Payload::Nonce(nonce_i.clone()),
            ],
        );
        endpoint.handle_datagram(now, local, remote, &request);
        let response = endpoint.poll_transmit().unwrap().payload;
        let datagram = Datagram::parse(&response).unwrap();
        let (mut sa, mut ke, mut nonce_r) = (None, None, None);
        for payload in datagram.clear {
            match payload {
                Payload::Sa(proposals) => sa = proposals.into_iter().next(),
                Payload::Ke(exchange) => ke = Some(exchange.data),
                Payload::Nonce(nonce) => nonce_r = Some(nonce),
                _ => {}
            }
        }
        let (suite, nonce_r) = (IkeSuite::from_wire(&sa.unwrap()).unwrap(), nonce_r.unwrap());
        let shared = pending.finish(&ke.unwrap()).unwrap();
        let spis = datagram.header.spis();
        let nonces = Nonces {
            initiator: nonce_i,
            responder: nonce_r,
        };
        let keys = IkeKeys::initial(&suite, &shared, &nonces, spis).unwrap();
        Self {
            endpoint,
            now,
            next_id: 1,
            child: None,
            events: Vec::new(),
            may,
            init: (request, nonces.responder, keys.prf, keys.sk_pi.to_vec()),
            link: Vec::new(),
            sealing: SealingKey::new(&suite, &keys.initiator).unwrap(),
            opening: OpeningKey::new(&suite, &keys.responder).unwrap(),
            spis,
            random,
            local,
            remote,
        }
    }

    /// IKE_AUTH with the usual Child SA.
    pub fn authenticate(&mut self) -> Vec<Heard> {
        let wanted = [
            Payload::Sa(vec![esp().to_wire(1, 0x1000, false)]),
            Payload::TsI(vec![network([10, 1, 0, 0])]),
            Payload::TsR(vec![network([10, 2, 0, 0])]),
            Payload::Notify(Notify::new(NotifyType::MOBIKE_SUPPORTED)),
        ];
        self.authenticate_with(&wanted)
    }

    /// IKE_AUTH with our proof and whatever else.
    pub fn authenticate_with(&mut self, wanted: &[Payload]) -> Vec<Heard> {
        let id = Identification::fqdn("camera-17.example.org");
        let (request, nonce_r, prf, sk_pi) = &self.init;
        let octets = SignedOctets::new(*prf, sk_pi, request, nonce_r, &id, None);
        let auth = octets.shared_key(*prf, &Psk::new(SECRET));
        let mut payloads = vec![Payload::IdI(id), Payload::Auth(auth)];
        payloads.extend(wanted.iter().cloned());
        let heard = self.request(ExchangeType::IKE_AUTH, &payloads);
        let up = self.endpoint.established().flat_map(|(_, c)| c);
        self.child = up.map(|(spi_in, _)| spi_in).next();
        heard
    }

    /// What a Child SA in IKE_AUTH is asked for with.
    pub fn child_proposal(spi: u32) -> Payload {
        Payload::Sa(vec![esp().to_wire(1, spi, false)])
    }

    /// A CREATE_CHILD_SA request that replaces our Child SA `old`, or asks for a further one.
    pub fn child_request(&mut self, old: Option<u32>, spi: u32) -> Vec<Payload> {
        let pending = Pending::start(Group::X25519, &mut self.random).unwrap();
        let rekey = old.map(|spi| Payload::Notify(Notify::about_esp(NotifyType::REKEY_SA, spi)));
        let mut payloads: Vec<_> = rekey.into_iter().collect();
        payloads.extend([
            Payload::Sa(vec![esp().to_wire(1, spi, true)]),
            Payload::Nonce(vec![0x22; 32]),
            Payload::Ke(KeyExchange {
                method: Group::X25519.id(),
                data: pending.public().to_vec(),
            }),
            Payload::TsI(vec![network([10, 1, 0, 0])]),
            Payload::TsR(vec![network([10, 2, 0, 0])]),
        ]);
        payloads
    }

    /// The same with further key exchanges.
    pub fn several_child_request(&mut self, old: Option<u32>, spi: u32) -> Vec<Payload> {
        let several = Payload::Sa(vec![several_esp().to_wire(1, spi, true)]);
        with_sa(self.child_request(old, spi), &several)
    }

    pub fn several_ike_request(&mut self) -> Vec<Payload> {
        let spi = 0xaaaa_0000_0000_0003_u64.to_be_bytes();
        let several = Payload::Sa(vec![several_ike().to_wire(1, &spi)]);
        with_sa(self.ike_request(), &several)
    }

    /// One of the further key exchanges, with the last link.
    pub fn followup(&mut self, group: Group) -> Vec<Payload> {
        let pending = Pending::start(group, &mut self.random).unwrap();
        let link = Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE).with_data(self.link.clone());
        vec![
            Payload::Ke(KeyExchange {
                method: group.id(),
                data: pending.public().to_vec(),
            }),
            Payload::Notify(link),
        ]
    }

    /// A CREATE_CHILD_SA request that replaces the IKE SA.
    pub fn ike_request(&mut self) -> Vec<Payload> {
        let pending = Pending::start(Group::X25519, &mut self.random).unwrap();
        let spi = 0xaaaa_0000_0000_0002_u64.to_be_bytes();
        vec![
            Payload::Sa(vec![ike().to_wire(1, &spi)]),
            Payload::Nonce(vec![0x33; 32]),
            Payload::Ke(KeyExchange {
                method: Group::X25519.id(),
                data: pending.public().to_vec(),
            }),
        ]
    }

    /// Sends a request with the next number and gives what comes back.
    pub fn request(&mut self, exchange: ExchangeType, payloads: &[Payload]) -> Vec<Heard> {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.say(exchange, false, id, payloads)
    }

    /// Sends any message.
    pub fn say(
        &mut self,
        exchange: ExchangeType,
        response: bool,
        message_id: u32,
        payloads: &[Payload],
    ) -> Vec<Heard> {
        let mut chain = Vec::new();
        let first = encode_chain(payloads, &mut chain);
        self.say_bytes(exchange, response, message_id, (first, &chain), None)
    }

    /// Sends any bytes, protected.
    pub fn say_bytes(
        &mut self,
        exchange: ExchangeType,
        response: bool,
        message_id: u32,
        (first, chain): (PayloadType, &[u8]),
        fragment: Option<(u16, u16)>,
    ) -> Vec<Heard> {
        let header = Header {
            spi_i: self.spis.initiator,
            spi_r: self.spis.responder,
            first,
            exchange,
            flags: Flags {
                initiator: true,
                response,
            },
            message_id,
        };
        let sealed = self
            .sealing
            .seal(header, first, chain, fragment, &mut self.random)
            .unwrap();
        self.endpoint
            .handle_datagram(self.now, self.local, self.remote, &sealed);
        self.hear()
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) -> Vec<Heard> {
        self.now = self.now.after(time);
        self.endpoint.handle_timeout(self.now);
        self.hear()
    }

    fn hear(&mut self) -> Vec<Heard> {
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Request(pending, Request::Authorize { .. }) = event {
                let may = Box::new(self.may.clone());
                self.endpoint
                    .respond(self.now, pending, Response::Authorized(may));
            } else {
                self.events.push(event);
            }
        }
        let mut heard = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit() {
            let Ok(datagram) = Datagram::parse(&transmit.payload) else {
                continue;
            };
            let Some(encrypted) = datagram.encrypted else {
                continue;
            };
            // Messages of a successor have other keys.
            let Ok(chain) = self.opening.open(&transmit.payload, &encrypted) else {
                continue;
            };
            if encrypted.fragment.is_none() {
                let payloads = decode_chain(encrypted.first, &chain).unwrap();
                for payload in &payloads {
                    if let Payload::Notify(notify) = payload
                        && notify.kind == NotifyType::ADDITIONAL_KEY_EXCHANGE
                    {
                        self.link.clone_from(&notify.data);
                    }
                }
                heard.push(Heard {
                    header: datagram.header,
                    payloads,
                });
            }
        }
        heard
    }
}

fn with_sa(mut payloads: Vec<Payload>, sa: &Payload) -> Vec<Payload> {
    for payload in &mut payloads {
        if matches!(payload, Payload::Sa(_)) {
            payload.clone_from(sa);
        }
    }
    payloads
}
