//! One of the two sides: its clock, its endpoint, and a data plane that only counts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ikev2::eap::NtHash;
use ikev2::event::{ChildUp, Reason};
use ikev2::{
    Authorization, Connection, Endpoint, Event, Holder, IkeId, Limits, Request, Response, Timestamp,
};

use super::{Key, Seeded};

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
    /// Those of further credentials.
    pub(crate) more_keys: Vec<Key>,
    pub(crate) log: Vec<String>,
    pub(crate) ups: BTreeMap<u32, ChildUp>,
    /// Inbound SPIs that open packets, until when (if they are on their way out).
    inbound: BTreeMap<u32, Option<Timestamp>>,
    /// Inbound SPIs of Child SAs in the order in which they began to send.
    sending: Vec<u32>,
    pub(crate) refuse_peer: bool,
    /// The IKE SA of the last question about a certificate.
    pub(crate) asked_about: Option<IkeId>,
    pub(crate) passwords: BTreeMap<String, String>,
    /// Addresses and name servers for the other side.
    pub(crate) give: Option<(Vec<IpAddr>, Vec<IpAddr>)>,
    /// Addresses that the other side gave, as far as they were asked for.
    pub(crate) given: Vec<IpAddr>,
    /// Whether the other side may have what its connection is configured for.
    pub(crate) authorize: bool,
    /// What this side wants to be told again when the other resumes its session, if it may.
    pub(crate) resumption: Option<Vec<u8>>,
    /// Connections on which nobody may resume.
    pub(crate) changed: Vec<String>,
    /// Whether it solves puzzles.
    pub(crate) solves: bool,
    pub(crate) connections: BTreeMap<String, Connection>,
    /// For how many resources it wants Child SAs.
    pub(crate) resources: usize,
    /// Child SAs with the same traffic and their successors: what the first of them is, by inbound SPI.
    group: BTreeMap<u32, u32>,
    /// IKE SAs that ended, and those that got successors, until somebody looks.
    pub(crate) downs: BTreeSet<IkeId>,
    pub(crate) rekeyed: Vec<(IkeId, IkeId)>,
}

impl Side {
    pub(super) fn new(
        index: usize,
        limits: Limits,
        seed: u64,
        clock: Clock,
        now: Timestamp,
    ) -> Self {
        let address = ["192.0.2.1:500", "198.51.100.1:500"][index]
            .parse()
            .unwrap();
        let resources = limits.resources;
        let random = Box::new(Seeded(seed.wrapping_mul(2).wrapping_add(index as u64)));
        Self {
            endpoint: Endpoint::new(limits, random, clock.local(now)),
            clock,
            address,
            key: None,
            more_keys: Vec::new(),
            log: Vec::new(),
            ups: BTreeMap::new(),
            inbound: BTreeMap::new(),
            sending: Vec::new(),
            refuse_peer: false,
            asked_about: None,
            passwords: BTreeMap::new(),
            give: None,
            given: Vec::new(),
            authorize: true,
            resumption: None,
            changed: Vec::new(),
            solves: true,
            connections: BTreeMap::new(),
            resources,
            group: BTreeMap::new(),
            downs: BTreeSet::new(),
            rekeyed: Vec::new(),
        }
    }

    pub(crate) fn add_connection(&mut self, connection: Connection) {
        let name = connection.name.clone();
        self.connections.insert(name, connection.clone());
        self.endpoint.add_connection(connection);
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

    /// The Child SAs with which this side sends from its resources, of those that belong to the last one.
    pub(crate) fn outbounds(&self) -> Vec<&ChildUp> {
        let group = self.sending.last().and_then(|spi| self.group.get(spi));
        let mut of_resource = BTreeMap::new();
        for spi in self
            .sending
            .iter()
            .filter(|spi| self.group.get(spi) == group)
        {
            // The newer of two for one resource.
            of_resource.insert(*spi as usize % self.resources, &self.ups[spi]);
        }
        of_resource.into_values().collect()
    }

    pub(crate) fn receives(&self, spi: u32, now: Timestamp) -> bool {
        self.inbound
            .get(&spi)
            .is_some_and(|until| until.is_none_or(|until| now <= until))
    }

    pub(super) fn on_event(&mut self, event: Event, world: Timestamp) {
        let now = self.clock.local(world);
        match event {
            Event::Request(
                id,
                Request::Sign {
                    credential,
                    scheme,
                    message,
                    ..
                },
            ) => {
                let mut keys = self.key.iter().chain(&self.more_keys);
                let signature = keys.nth(credential).unwrap().sign(scheme, &message);
                self.log.push(format!("sign {scheme:?} with {credential}"));
                self.endpoint
                    .respond(now, id, Response::Signature(signature));
            }
            Event::Request(
                id,
                Request::VerifyPeer {
                    chain,
                    id: who,
                    ike,
                    ocsp,
                    ..
                },
            ) => {
                self.log.push(format!("verify {who}"));
                self.log
                    .extend(ocsp.iter().map(|der| format!("ocsp {der:?}")));
                self.asked_about = Some(ike);
                let answer = if self.refuse_peer {
                    Response::Refused("revoked".into())
                } else {
                    Response::PeerKey(chain[0].clone())
                };
                self.endpoint.respond(now, id, answer);
            }
            Event::Request(
                id,
                Request::ReviewPeer {
                    connection,
                    id: who,
                    state,
                    ..
                },
            ) => {
                self.log.push(format!("review {who} {state:?}"));
                let answer = match self.refuse_peer {
                    _ if self.changed.contains(&connection) => {
                        Response::OtherConnection("changed".into())
                    }
                    true => Response::Refused("revoked".into()),
                    false => Response::Welcome,
                };
                self.endpoint.respond(now, id, answer);
            }
            Event::Request(id, Request::Solve(puzzle)) => {
                self.log.push(format!("puzzle of {} bits", puzzle.bits()));
                let answer = match self.solves {
                    true => Response::Solved(puzzle.solve().unwrap()),
                    false => Response::Refused("not now".into()),
                };
                self.endpoint.respond(now, id, answer);
            }
            Event::Request(id, Request::Tls(step)) => {
                step.run();
                self.endpoint.respond(now, id, Response::Tls);
            }
            Event::Request(id, Request::Password { user, .. }) => {
                self.log.push(format!("asked for the password of {user}"));
                let answer = self.passwords.get(&user).map_or_else(
                    || Response::Refused("no such user".into()),
                    |password| Response::Password(NtHash::of_password(password)),
                );
                self.endpoint.respond(now, id, answer);
            }
            Event::Request(
                pending,
                Request::Authorize {
                    connection,
                    id,
                    v4,
                    v6,
                    given,
                    ..
                },
            ) => {
                let connection = &self.connections[&connection];
                let holder = Holder::new(id.to_string().as_bytes());
                let mut may = Authorization::of_connection(connection, holder);
                if let Some(state) = &self.resumption {
                    may = may.with_resumption(state.clone());
                }
                if v4 || v6 {
                    self.log.push(format!("asked for addresses {v4} {v6}"));
                    if let Some((addresses, dns)) = &self.give {
                        may = may.assigning(addresses, dns);
                    }
                }
                self.given = given;
                let answer = match self.authorize {
                    true => Response::Authorized(Box::new(may)),
                    false => Response::Refused("not here".into()),
                };
                self.endpoint.respond(now, pending, answer);
            }
            Event::IkeUp {
                peer,
                suite,
                addresses,
                dns,
                resumed,
                ..
            } => {
                self.log.push(format!("up {peer} {suite}"));
                if resumed {
                    self.log.push("resumed".into());
                }
                if !addresses.is_empty() {
                    self.log.push(format!("addresses {addresses:?} {dns:?}"));
                }
            }
            Event::IkeRekeyed { old, new } => {
                self.log.push("ike rekeyed".into());
                self.rekeyed.push((old, new));
            }
            Event::IkeRekeyFailed { reason, .. } => {
                self.log.push(format!("ike rekey failed {reason}"))
            }
            Event::IkeDown { ike, reason, .. } => {
                self.log.push(format!("down {reason}"));
                self.downs.insert(ike);
            }
            Event::ChildUp(up) => {
                self.log.push(format!(
                    "child up {}",
                    up.replaces.map_or("new", |_| "rekeyed")
                ));
                self.inbound.insert(up.spi_in, None);
                let before = up.replaces.or(up.beside);
                let group = before.and_then(|before| self.group.get(&before).copied());
                self.group.insert(up.spi_in, group.unwrap_or(up.spi_in));
                if up.send_now {
                    self.sending.push(up.spi_in);
                }
                self.ups.insert(up.spi_in, *up);
            }
            Event::ChildOutbound { spi_in, .. } => {
                self.log.push("child outbound".into());
                // What sends already is preferred from now on.
                self.sending.retain(|spi| *spi != spi_in);
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
