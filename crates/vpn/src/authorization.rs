//! What peers may have by configuration: from a connection to the [`Authorization`] of one peer.

use std::fmt;
use std::net::IpAddr;

use ikev2::config::PeerId;
use ikev2::wire::{Identification, TrafficSelector};
use ikev2::{Authorization, Connection, Holder, Rates};
use ipsec::selector::AddressRange;
use tunnel::config::Prefix;

use super::config::{ConnectionConfig, PoolConfig};

/// Child SAs of one peer at once at most: replaced ones do not count.
const CHILDREN: usize = 64;
/// IKE SAs of one peer at most.
const IKE_SAS: usize = 1000;
/// Networks of one peer at most: each may become a route.
const NETWORKS: usize = 1024;

/// Bounds of a connection's peers, apart from addresses of a pool.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// Under whose authority peers prove who they are: the same name under another one is another peer.
    realm: String,
    /// Connections of which any may hold the networks: several ways to one site.
    group: Option<String>,
    /// Networks on our side; none where our side is the address that the peer gives us.
    own: Vec<Option<Vec<TrafficSelector>>>,
    limits: (usize, usize),
    rates: Rates,
    default_route: bool,
}

impl Allowance {
    /// Reads what a connection says. `realm` is under whose authority its peers prove who they are.
    ///
    /// # Errors
    /// A text for the operator.
    pub(super) fn new(
        config: &ConnectionConfig,
        connection: &Connection,
        realm: String,
    ) -> Result<Self, &'static str> {
        let peer = config.peer.clone().unwrap_or_default();
        let children = peer.children.max(connection.children.len());
        if children == 0 || children > CHILDREN || peer.networks == 0 || peer.networks > NETWORKS {
            return Err("peer: `children` is from 1 to 64, `networks` from 1 to 1024");
        }
        let rates = [
            peer.handshakes_per_minute,
            peer.rekeys_per_minute,
            peer.requests_per_second,
        ];
        if !(1..=IKE_SAS).contains(&peer.ike_sas) || rates.contains(&0) {
            return Err("peer: `ike_sas` is from 1 to 1000, and rates are 1 or more");
        }
        let own = config.child.iter().zip(&connection.children);
        let own = own.map(|(child, made)| {
            let assigned = child.local.is_empty() && !config.request.is_empty();
            (!assigned).then(|| made.local.clone())
        });
        Ok(Self {
            realm,
            group: config.redundancy_group.clone(),
            own: own.collect(),
            limits: (children, peer.networks),
            rates: peer.rates(),
            default_route: peer.default_route,
        })
    }

    /// Whether most of the address space may be routed to a peer.
    pub(super) const fn default_route(&self) -> bool {
        self.default_route
    }

    pub(super) fn realm(&self) -> &str {
        &self.realm
    }

    /// Returns the holder of this peer's addresses: the peer, or the group of connections to its site.
    pub(super) fn holder(&self, peer: &Identification) -> Holder {
        let name = match &self.group {
            Some(group) => format!("group {group}").into_bytes(),
            // The type of the identity is in its key.
            None => {
                let peer = peer.key().to_bytes();
                [format!("peer {} ", self.realm).as_bytes(), &peer].concat()
            }
        };
        Holder::new(&name)
    }

    /// Builds this peer's authorization. `given` are the addresses inside the tunnel that it gives us.
    pub(super) fn authorization(
        &self,
        connection: &Connection,
        peer: &Identification,
        given: &[IpAddr],
    ) -> Authorization {
        let hosts = || given.iter().copied().map(TrafficSelector::host).collect();
        let own = self.own.iter();
        let own = own.flat_map(|own| own.clone().unwrap_or_else(hosts));
        Authorization::nothing(self.holder(peer))
            .with_own_networks(own)
            .with_peer_networks(connection.peer_networks())
            .with_limits(self.limits.0, self.limits.1)
            .with_rates(self.rates)
    }
}

/// Networks that one peer, or the peers of one connection or pool, may be the source of.
pub(super) struct Source {
    what: String,
    /// The same for those that may share them.
    key: String,
    networks: Vec<Prefix>,
}

impl Source {
    /// Those of a connection's peers. A connection whose peers get addresses of a pool has none of its own.
    pub(super) fn of_connection(
        config: &ConnectionConfig,
        remote_id: &PeerId,
        realm: &str,
        networks: Vec<Prefix>,
    ) -> Self {
        let key = match (&config.redundancy_group, remote_id) {
            (Some(group), _) => format!("group {group}"),
            // The same peer by two connections is one peer.
            (None, PeerId::Exactly(id)) => {
                format!("peer {realm} {}", hex::encode(id.key().to_bytes()))
            }
            (None, PeerId::Matching(_) | PeerId::Any) => format!("connection {}", config.name),
        };
        Self {
            what: format!("connection {:?}", config.name),
            key,
            networks,
        }
    }

    /// Those of a pool.
    pub(super) fn of_pool(config: &PoolConfig) -> Self {
        Self {
            what: format!("pool {:?}", config.name),
            key: format!("pool {}", config.name),
            networks: config.addresses.clone(),
        }
    }
}

/// Two peers, or kinds of peers, that may be the source of the same packets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    one: (String, Prefix),
    two: (String, Prefix),
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, two] = [&self.one.1, &self.two.1].map(|p| format!("{}/{}", p.address, p.bits));
        write!(
            f,
            "{} may send from {one} and {} from {two}: each address belongs to one peer; connections \
             to the same site share a `redundancy_group`",
            self.one.0, self.two.0
        )
    }
}

/// Looks for two sources that have an address in common. Sorted by their first addresses, it is enough to
/// compare each network with the one of another source that reaches furthest so far.
pub(super) fn overlap(sources: &[Source]) -> Option<Overlap> {
    let all = sources.iter().flat_map(|source| {
        let ranges = source.networks.iter();
        ranges.map(move |network| (network.range(), source, *network))
    });
    let mut all: Vec<(AddressRange, &Source, Prefix)> = all.collect();
    all.sort_by_key(|(range, ..)| (range.first(), range.last()));
    // The two that reach furthest, of different sources.
    let mut furthest: Vec<(AddressRange, &Source, Prefix)> = Vec::new();
    for (range, source, network) in all {
        let same_family = |other: &AddressRange| other.first().is_ipv4() == range.first().is_ipv4();
        let meets = |(other, of, _): &&(AddressRange, &Source, Prefix)| {
            of.key != source.key && same_family(other) && other.last() >= range.first()
        };
        if let Some((_, of, other)) = furthest.iter().find(meets) {
            return Some(Overlap {
                one: (of.what.clone(), *other),
                two: (source.what.clone(), network),
            });
        }
        match furthest.iter_mut().find(|(_, of, _)| of.key == source.key) {
            Some(place) if place.0.last() < range.last() || !same_family(&place.0) => {
                *place = (range, source, network);
            }
            Some(_) => {}
            None => furthest.push((range, source, network)),
        }
        furthest.sort_by_key(|(range, ..)| std::cmp::Reverse(range.last()));
        furthest.truncate(2);
    }
    None
}

#[cfg(test)]
mod tests;
