//! Session resumption (RFC 5723): who may come back without certificates, and who may not.

use std::time::Duration;

use ikev2::config::{LocalAuth, Psk, RemoteAuth};
use ikev2::wire::{
    Datagram, ExchangeType, Flags, Header, Notify, NotifyType, Payload, PayloadType, encode_clear,
};
use ikev2::{Connection, Limits, Rates, TicketKeys};
use zeroize::Zeroizing;

use crate::support::{Packet, World, certify, connection, key_of};

const HOUR: Duration = Duration::from_secs(3600);
const GATEWAY: usize = 1;
/// The gateway's clock when its endpoint began.
const EPOCH: u64 = 1_700_000_000;

/// Two sides with certificates that may resume their sessions.
struct Site {
    connections: [Connection; 2],
    world: World,
    /// What the gateway seals tickets with.
    keys: Vec<[u8; 32]>,
    restarts: u64,
}

fn tickets(keys: &[[u8; 32]], epoch: u64) -> TicketKeys {
    let keys: Vec<_> = keys.iter().map(|key| Zeroizing::new(*key)).collect();
    TicketKeys::new(&keys, HOUR, epoch)
}

impl Site {
    fn new(change: impl Fn(usize, &mut Connection)) -> Self {
        let mut connections = [connection(0), connection(1)];
        for (side, connection) in connections.iter_mut().enumerate() {
            certify(connection, side);
            change(side, connection);
        }
        let mut site = Self {
            world: World::with(connections.clone(), Limits::default(), 1),
            connections,
            keys: vec![[1; 32]],
            restarts: 0,
        };
        site.set_up(0);
        site.set_up(1);
        site
    }

    fn set_up(&mut self, side: usize) {
        let own = &mut self.world.sides[side];
        own.key = Some(key_of(side));
        own.resumption = Some(vec![side as u8; 50]);
        if side == GATEWAY {
            // Virtual time goes on in the new endpoint.
            own.endpoint.set_ticket_keys(tickets(&self.keys, EPOCH));
        }
    }

    fn up(change: impl Fn(usize, &mut Connection)) -> Self {
        let mut site = Self::new(change);
        site.connect();
        site.world.assert_settled();
        site
    }

    fn connect(&mut self) {
        self.world.initiate();
        self.world.run(Duration::from_secs(4));
    }

    /// The gateway forgets everything but its file of keys.
    fn crash(&mut self) {
        self.restarts += 1;
        let own = self.connections[GATEWAY].clone();
        self.world
            .restart(GATEWAY, own, Limits::default(), 90 + self.restarts);
        self.set_up(GATEWAY);
    }

    /// The camera notices that nobody answers.
    fn notice(&mut self) {
        let (ike, now) = (self.world.sides[0].ike(), self.world.now);
        self.world.sides[0].endpoint.probe(now, ike).unwrap();
        self.world.collect();
        self.world.run(Duration::from_secs(120));
        assert_eq!(self.world.sides[0].endpoint.established().count(), 0);
        self.world.sides[0].log.clear();
    }

    fn saw(&self, side: usize, text: &str) -> usize {
        self.world.sides[side].saw(text)
    }

    /// Both have resumed, and neither has signed anything or seen a certificate.
    fn assert_resumed(&self) {
        self.world.assert_settled();
        for side in [0, 1] {
            let log = &self.world.sides[side].log;
            assert_eq!(self.saw(side, "resumed"), 1, "{log:#?}");
            assert_eq!(self.saw(side, "review"), 1, "{log:#?}");
            assert_eq!(
                self.saw(side, "sign") + self.saw(side, "verify"),
                0,
                "{log:#?}"
            );
        }
    }

    /// The ticket was not taken; a whole handshake did, and no more than a request was lost.
    fn assert_whole(&self) {
        self.world.assert_settled();
        assert_eq!(
            self.saw(GATEWAY, "resumed"),
            0,
            "{:#?}",
            self.world.sides[1].log
        );
        assert_eq!(
            self.saw(GATEWAY, "verify"),
            1,
            "{:#?}",
            self.world.sides[1].log
        );
    }
}

#[test]
fn a_camera_resumes_after_a_crash_without_certificates_and_again() {
    let mut site = Site::up(|_, _| {});
    for _ in 0..3 {
        site.crash();
        site.notice();
        site.connect();
        site.assert_resumed();
        // Each side gets back what it wanted to be told, and not the other's.
        assert_eq!(site.saw(GATEWAY, &format!("{:?}", vec![1; 50])), 1);
        assert_eq!(site.saw(0, &format!("{:?}", vec![0; 50])), 1);
    }
}

#[test]
fn resuming_takes_two_round_trips_and_no_large_message() {
    let mut site = Site::up(|_, _| {});
    site.crash();
    site.notice();
    site.world.sizes.clear();
    site.world.manual = true;
    site.world.initiate();
    for to in [1, 0, 1, 0] {
        site.world.pass(to);
    }
    site.assert_resumed();
    assert!(
        site.world.sizes.iter().all(|size| *size < 600),
        "{:?}",
        site.world.sizes
    );
}

#[test]
fn keys_of_a_resumed_session_are_replaced_within_minutes() {
    let mut site = Site::up(|_, _| {});
    site.crash();
    site.notice();
    site.connect();
    site.assert_resumed();
    site.world.run(Duration::from_secs(200));
    site.world.assert_settled();
    assert_eq!(
        site.saw(0, "ike rekeyed"),
        1,
        "{:#?}",
        site.world.sides[0].log
    );
    assert_eq!(site.saw(0, "child up rekeyed"), 1);
    site.world.run(HOUR);
    assert_eq!(site.saw(0, "ike rekeyed"), 1, "and then no more");
}

#[test]
fn who_is_revoked_does_not_resume_whichever_side_it_is() {
    for refusing in [0, 1] {
        let mut site = Site::up(|_, _| {});
        site.crash();
        site.notice();
        site.world.sides[refusing].refuse_peer = true;
        site.connect();
        assert_eq!(site.saw(refusing, "review"), 1);
        assert_eq!(site.world.sides[0].endpoint.established().count(), 0);
        assert_eq!(
            site.saw(0, "up ") + site.saw(0, "child up"),
            0,
            "{:#?}",
            site.world.sides[0].log
        );
        // Nor does it by a whole handshake.
        site.connect();
        assert_eq!(site.world.sides[0].endpoint.established().count(), 0);
        assert_eq!(site.world.sides[GATEWAY].endpoint.established().count(), 0);
    }
}

#[test]
fn what_a_peer_may_have_is_decided_anew() {
    let mut site = Site::up(|_, _| {});
    site.crash();
    site.notice();
    site.world.sides[GATEWAY].authorize = false;
    site.connect();
    assert_eq!(site.saw(GATEWAY, "down authentication failed: not here"), 1);
    assert_eq!(site.world.sides[0].endpoint.established().count(), 0);
    assert_eq!(
        site.saw(
            0,
            "session not resumed: peer refused with AUTHENTICATION_FAILED"
        ),
        1
    );
}

#[test]
fn a_connection_that_changed_takes_a_whole_handshake() {
    let mut site = Site::up(|_, _| {});
    site.crash();
    site.notice();
    site.world.sides[GATEWAY].changed = vec!["tunnel".into()];
    site.connect();
    assert_eq!(
        site.saw(0, "session not resumed"),
        1,
        "{:#?}",
        site.world.sides[0].log
    );
    site.connect();
    site.assert_whole();
}

#[test]
fn the_connection_is_chosen_anew_among_those_that_fit() {
    let mut site = Site::up(|_, _| {});
    site.crash();
    let mut second = site.connections[GATEWAY].clone();
    second.name = "second".into();
    site.world.sides[GATEWAY].add_connection(second);
    site.world.sides[GATEWAY].changed = vec!["tunnel".into()];
    site.notice();
    site.connect();
    site.world.assert_settled();
    assert_eq!(
        (site.saw(GATEWAY, "review"), site.saw(GATEWAY, "resumed")),
        (2, 1)
    );
}

#[test]
fn tickets_of_other_keys_of_nobody_and_out_of_date_take_a_whole_handshake() {
    type Change = fn(&mut Site);
    let cases: [(&str, Change); 5] = [
        ("other keys", |site| site.keys = vec![[2; 32]]),
        ("no keys", |site| site.keys = vec![]),
        ("later", |site| site.world.run(HOUR)),
        ("others' names", |site| {
            site.connections[GATEWAY].local_id =
                ikev2::wire::Identification::fqdn("other.example.org");
        }),
        ("another suite", |site| {
            site.connections[GATEWAY].ike[0].prf = vec![ikev2::crypto::Prf::HmacSha512];
        }),
    ];
    for (what, change) in cases {
        let mut site = Site::up(|side, connection| {
            if side == 0 {
                connection.remote_id = ikev2::config::PeerId::Any;
                connection.ike[0].prf.push(ikev2::crypto::Prf::HmacSha512);
            }
        });
        change(&mut site);
        site.crash();
        site.notice();
        site.connect();
        site.assert_whole();
        assert_eq!(site.saw(GATEWAY, "review"), 0, "{what}");
    }
}

#[test]
fn a_rotated_key_still_opens_what_it_sealed() {
    let mut site = Site::up(|_, _| {});
    site.keys = vec![[2; 32], [1; 32]];
    site.crash();
    site.notice();
    site.connect();
    site.assert_resumed();
}

#[test]
fn only_certificates_give_tickets() {
    let secret = Psk::new(b"a secret for this test");
    let mut site = Site::up(|_, connection| {
        connection.local_auth = LocalAuth::Psk(secret.clone());
        connection.remote_auth = RemoteAuth::Psk(secret.clone());
    });
    site.crash();
    site.notice();
    site.connect();
    site.world.assert_settled();
    assert_eq!(site.saw(0, "resumed") + site.saw(GATEWAY, "resumed"), 0);
}

#[test]
fn a_session_that_was_closed_is_not_resumed() {
    for closing in [0, 1] {
        let mut site = Site::up(|_, _| {});
        let (ike, now) = (site.world.sides[closing].ike(), site.world.now);
        site.world.sides[closing].endpoint.close(now, ike).unwrap();
        site.world.collect();
        site.world.run(Duration::from_secs(60));
        site.world
            .sides
            .iter_mut()
            .for_each(|side| side.log.clear());
        site.connect();
        site.assert_whole();
    }
}

/// The request with the ticket, as it is on the wire.
fn resume_request(site: &mut Site) -> Packet {
    site.crash();
    site.notice();
    site.world.manual = true;
    site.world.initiate();
    let request = site.world.take(GATEWAY).unwrap();
    assert_eq!(header(&request).exchange, ExchangeType::IKE_SESSION_RESUME);
    request
}

fn bytes(packet: &Packet) -> &[u8] {
    packet
        .payload
        .strip_prefix(&[0; 4])
        .unwrap_or(&packet.payload)
}

fn header(packet: &Packet) -> Header {
    Datagram::parse(bytes(packet)).unwrap().header
}

fn notifies(packet: &Packet) -> Vec<NotifyType> {
    let datagram = Datagram::parse(bytes(packet)).unwrap();
    let kinds = datagram.clear.iter().filter_map(|payload| match payload {
        Payload::Notify(notify) => Some(notify.kind),
        _ => None,
    });
    kinds.collect()
}

#[test]
fn a_ticket_makes_one_session() {
    let mut site = Site::up(|_, _| {});
    let request = resume_request(&mut site);
    site.world.deliver(&request);
    for to in [0, 1, 0] {
        site.world.pass(to);
    }
    site.assert_resumed();
    // Shown again, by somebody with another SPI, as it would be by whoever has recorded it.
    for _ in 0..2 {
        let mut replayed = request.clone();
        replayed.payload[0] ^= 1;
        site.world.deliver(&replayed);
        let answer = site.world.take(0).unwrap();
        assert_eq!(notifies(&answer), [NotifyType::TICKET_NACK]);
        assert_eq!(header(&answer).exchange, ExchangeType::IKE_SESSION_RESUME);
    }
    assert_eq!(site.world.sides[GATEWAY].endpoint.len(), 1);
}

#[test]
fn a_ticket_alone_opens_nothing_and_is_not_used_up() {
    let mut site = Site::up(|_, _| {});
    let request = resume_request(&mut site);
    // Somebody who has seen the ticket is quicker, and cannot prove that it is its own.
    let mut stolen = request.clone();
    stolen.payload[0] ^= 1;
    site.world.deliver(&stolen);
    let answer = site.world.take(0).unwrap();
    let header = header(&answer);
    assert_ne!(header.spi_r, 0);
    let forged = Header {
        exchange: ExchangeType::IKE_AUTH,
        flags: Flags {
            initiator: true,
            response: false,
        },
        message_id: 1,
        first: PayloadType::NONE,
        ..header
    };
    let id = Payload::IdI(site.connections[0].local_id.clone());
    let payload = encode_clear(forged, &[id]);
    let (at, from) = (request.at, request.from);
    site.world.deliver(&Packet {
        to: GATEWAY,
        at,
        from,
        payload,
    });
    assert_eq!(site.saw(GATEWAY, "review"), 0);
    // The one whose it is comes in.
    site.world.deliver(&request);
    for to in [0, 1, 0] {
        site.world.pass(to);
    }
    site.assert_resumed();
}

#[test]
fn no_changed_bit_of_a_ticket_resumes_anything() {
    let mut site = Site::up(|_, _| {});
    let request = resume_request(&mut site);
    let ticket = request
        .payload
        .windows(2)
        .position(|pair| pair == 16413_u16.to_be_bytes())
        .unwrap();
    let mut nacks = 0;
    for at in (ticket + 2..ticket + 150).step_by(3) {
        let mut changed = request.clone();
        changed.payload[0] ^= at as u8;
        changed.payload[1] ^= (at >> 8) as u8 | 0x80;
        changed.payload[at] ^= 4;
        site.world.deliver(&changed);
        if let Some(answer) = site.world.take(0) {
            nacks += usize::from(notifies(&answer) == [NotifyType::TICKET_NACK]);
        }
    }
    assert_eq!(nacks, 50, "each one is refused");
    assert_eq!(site.world.sides[GATEWAY].endpoint.len(), 0);
}

#[test]
fn under_load_a_ticket_takes_a_cookie_too() {
    let mut site = Site::up(|_, _| {});
    site.crash();
    site.notice();
    let limits = Limits {
        cookie_threshold: 0,
        ..Limits::default()
    };
    let own = site.connections[GATEWAY].clone();
    site.world.restart(GATEWAY, own, limits, 77);
    site.set_up(GATEWAY);
    site.connect();
    site.assert_resumed();
    assert_eq!(
        site.world.sides[GATEWAY].endpoint.counters().cookies_sent,
        1
    );
}

#[test]
fn a_peer_that_knows_no_tickets_any_more_costs_two_seconds() {
    let mut site = Site::up(|_, _| {});
    site.crash();
    site.notice();
    site.world.manual = true;
    site.world.initiate();
    // An older program takes no such exchange and says nothing.
    let mut resumes = 0;
    for _ in 0..40 {
        site.world.run(Duration::from_millis(100));
        while let Some(packet) = site.world.take(GATEWAY) {
            if header(&packet).exchange == ExchangeType::IKE_SESSION_RESUME {
                resumes += 1;
            } else {
                site.world.deliver(&packet);
            }
        }
        while let Some(packet) = site.world.take(0) {
            site.world.deliver(&packet);
        }
    }
    assert_eq!(resumes, 3);
    site.assert_whole();
}

#[test]
fn nobody_is_talked_out_of_anything_but_the_ticket() {
    let mut site = Site::up(|_, _| {});
    let request = resume_request(&mut site);
    let mut forged = header(&request);
    forged.flags = Flags {
        initiator: false,
        response: true,
    };
    let refusal = encode_clear(
        forged,
        &[Payload::Notify(Notify::new(NotifyType::TICKET_NACK))],
    );
    site.world.deliver(&Packet {
        to: 0,
        at: request.from,
        from: request.at,
        payload: refusal,
    });
    let next = site.world.take(GATEWAY).unwrap();
    assert_eq!(header(&next).exchange, ExchangeType::IKE_SA_INIT);
    site.world.deliver(&next);
    site.world.manual = false;
    site.world.run(Duration::from_secs(4));
    site.assert_whole();
}

#[test]
fn resuming_is_charged_to_the_same_budget() {
    let most = Rates::default().handshakes;
    let mut site = Site::up(|_, _| {});
    let mut resumed = 0;
    for _ in 0..most + 10 {
        // The camera crashes in its sleep, and comes again at once.
        site.world.sides[GATEWAY].log.clear();
        site.world.initiate();
        site.world.run(Duration::from_millis(50));
        resumed += site.saw(GATEWAY, "resumed");
        if site.saw(GATEWAY, "more often than it may") > 0 {
            break;
        }
    }
    // The first was a whole handshake; a few came back in these seconds.
    let most = most as usize;
    assert!((most - 1..most + 8).contains(&resumed), "{resumed}");
    assert_eq!(site.saw(GATEWAY, "more often than it may"), 1);
}

#[test]
fn datagrams_that_are_lost_repeated_or_late_change_nothing() {
    for seed in 0..40 {
        let mut site = Site::up(|_, _| {});
        site.crash();
        site.notice();
        site.world.weather.loss = 20;
        site.world.weather.duplication = 20;
        site.world.weather.jitter = 300;
        site.world.random.0 = seed;
        site.world.initiate();
        site.world.run(Duration::from_secs(60));
        if site.world.sides[0].endpoint.established().count() == 0 {
            // Tickets that nobody answers are given up for a whole handshake.
            site.world.initiate();
            site.world.run(Duration::from_secs(60));
        }
        site.world.weather = Default::default();
        site.world.run(Duration::from_secs(200));
        site.world.assert_up();
    }
}
