//! Addresses for peers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ikev2::IkeId;
use tunnel::config::Prefix;

use super::config::PoolConfig;

/// Peers whose last address is remembered.
const REMEMBERED: usize = 10_000;
/// Addresses of one network that are looked at, so that a full one is found out in bounded time.
const LOOKED_AT: u128 = 1 << 20;

/// A pool and who has what of it.
#[derive(Debug)]
pub(super) struct Pool {
    config: PoolConfig,
    taken: BTreeSet<IpAddr>,
    /// Addresses of ours, which no peer gets.
    own: BTreeSet<IpAddr>,
    /// The same peer gets the same address where it is free.
    last: HashMap<(Vec<u8>, bool), IpAddr>,
}

impl Pool {
    fn new(config: PoolConfig, own: BTreeSet<IpAddr>) -> Self {
        Self {
            config,
            taken: BTreeSet::new(),
            own,
            last: HashMap::new(),
        }
    }

    fn take(&mut self, peer: &[u8], v6: bool) -> Option<IpAddr> {
        let key = (peer.to_vec(), v6);
        let inside = |address: &IpAddr| {
            let networks = &self.config.addresses;
            networks
                .iter()
                .any(|network| network.range().contains(*address))
        };
        // The pool may have become another since.
        let known = self.last.get(&key).copied().filter(inside);
        let is_free =
            |address: &IpAddr| !self.taken.contains(address) && !self.own.contains(address);
        let free = known.filter(is_free);
        let address = free.or_else(|| {
            let networks = self.config.addresses.iter();
            networks
                .filter(|network| network.address.is_ipv6() == v6)
                .flat_map(hosts)
                .find(is_free)
        })?;
        self.taken.insert(address);
        // Forgetting costs peers their habitual address and nothing else.
        if self.last.len() >= REMEMBERED {
            self.last.clear();
        }
        self.last.insert(key, address);
        Some(address)
    }
}

/// The addresses of a network that hosts can have: for IPv4 without the first and last one, except in
/// networks of one or two.
fn hosts(network: &Prefix) -> impl Iterator<Item = IpAddr> + use<> {
    let range = network.range();
    let (first, last, wide) = match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let (first, last) = (u128::from(first.to_bits()), u128::from(last.to_bits()));
            (first, last, false)
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits(), last.to_bits(), true),
        // A range is of one family.
        _ => (1, 0, false),
    };
    // The first is the network's own (IPv6: the routers' anycast address, RFC 4291 §2.6.1), the last IPv4's broadcast.
    let edge = u128::from(last.saturating_sub(first) > 1);
    let end = if wide {
        last
    } else {
        last.saturating_sub(edge)
    };
    (first.saturating_add(edge)..=end)
        .take(usize::try_from(LOOKED_AT).unwrap_or(usize::MAX))
        .map(move |bits| match wide {
            true => Ipv6Addr::from_bits(bits).into(),
            false => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(0)).into(),
        })
}

/// All pools, and which IKE SA holds what.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: BTreeMap<String, Pool>,
    held: BTreeMap<IkeId, (String, Vec<IpAddr>)>,
}

impl Pools {
    /// The pools as configured; what peers hold they keep. Nobody gets an address of `own`.
    pub(super) fn configure(&mut self, configs: &[PoolConfig], own: &BTreeSet<IpAddr>) {
        let mut old = std::mem::take(&mut self.pools);
        for config in configs {
            let mut pool = Pool::new(config.clone(), own.clone());
            if let Some(old) = old.remove(&config.name) {
                // Tunnels that stay up keep their addresses, also those that the new networks no longer have.
                (pool.taken, pool.last) = (old.taken, old.last);
            }
            self.pools.insert(config.name.clone(), pool);
        }
    }

    /// Addresses and name servers for the peer of an IKE SA; none if there are none left.
    pub(super) fn assign(
        &mut self,
        pool: &str,
        ike: IkeId,
        peer: &[u8],
        wanted: (bool, bool),
    ) -> Option<(Vec<IpAddr>, Vec<IpAddr>)> {
        let of = self.pools.get_mut(pool)?;
        let families = [(wanted.0, false), (wanted.1, true)];
        let addresses: Vec<IpAddr> = families
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .filter_map(|(_, v6)| of.take(peer, v6))
            .collect();
        let dns = of.config.dns.clone();
        if addresses.is_empty() {
            return None;
        }
        self.held.insert(ike, (pool.to_owned(), addresses.clone()));
        Some((addresses, dns))
    }

    /// An IKE SA has a successor.
    pub(super) fn inherit(&mut self, old: IkeId, new: IkeId) {
        if let Some(held) = self.held.remove(&old) {
            self.held.insert(new, held);
        }
    }

    /// Frees what an IKE SA had.
    pub(super) fn release(&mut self, ike: IkeId) {
        let Some((pool, addresses)) = self.held.remove(&ike) else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(&pool) {
            for address in addresses {
                pool.taken.remove(&address);
            }
        }
    }

    /// For each pool its name and how many addresses are taken.
    pub(super) fn usage(&self) -> impl Iterator<Item = (&str, usize)> {
        self.pools
            .iter()
            .map(|(name, pool)| (name.as_str(), pool.taken.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> Vec<IkeId> {
        // An endpoint is the only place where they come from.
        struct Counting(u8);
        impl ikev2::Random for Counting {
            fn fill(&mut self, out: &mut [u8]) {
                self.0 = self.0.wrapping_add(1);
                out.fill(self.0);
            }
        }
        let now = ikev2::Timestamp::default();
        let limits = ikev2::Limits::default();
        let mut endpoint = ikev2::Endpoint::new(limits, Box::new(Counting(0)), now);
        endpoint.add_connection(ikev2::Connection {
            name: "c".into(),
            remote_address: None,
            local_id: ikev2::wire::Identification::fqdn("a"),
            remote_id: ikev2::config::PeerId::Any,
            local_auth: ikev2::config::LocalAuth::Psk(ikev2::config::Psk::new(b"secret")),
            remote_auth: ikev2::config::RemoteAuth::Psk(ikev2::config::Psk::new(b"secret")),
            ppk: None,
            mobility: false,
            further_addresses: vec![],
            addresses: ikev2::config::Addresses::None,
            ike: super::super::config::usual_ike().split_off(1),
            children: vec![],
            rekey_after: None,
            liveness: None,
            retransmission: None,
            unique: ikev2::Unique::Replace,
        });
        let path = (
            "192.0.2.1:500".parse().unwrap(),
            "192.0.2.2:500".parse().unwrap(),
        );
        (0..3)
            .map(|_| endpoint.initiate(now, "c", path.0, path.1).unwrap())
            .collect()
    }

    fn pools(networks: &[&str]) -> Pools {
        let mut pools = Pools::default();
        pools.configure(
            &[PoolConfig {
                name: "p".into(),
                addresses: networks.iter().map(|text| text.parse().unwrap()).collect(),
                dns: vec![],
            }],
            &BTreeSet::from(["10.9.1.1".parse().unwrap()]),
        );
        pools
    }

    #[test]
    fn pool_address_is_assigned_once_and_returned() {
        let (mut pools, ids) = (pools(&["10.9.0.0/30"]), ids());
        let take = |pools: &mut Pools, id: usize, peer: &[u8]| {
            let taken = pools.assign("p", ids[id], peer, (true, false));
            taken.map(|(addresses, _)| addresses[0].to_string())
        };
        assert_eq!(take(&mut pools, 0, b"a").as_deref(), Some("10.9.0.1"));
        assert_eq!(take(&mut pools, 1, b"b").as_deref(), Some("10.9.0.2"));
        assert_eq!(take(&mut pools, 2, b"c"), None);
        pools.release(ids[0]);
        pools.release(ids[1]);
        // Each gets its own again.
        assert_eq!(take(&mut pools, 1, b"b").as_deref(), Some("10.9.0.2"));
        assert_eq!(take(&mut pools, 0, b"a").as_deref(), Some("10.9.0.1"));
        assert_eq!(pools.usage().collect::<Vec<_>>(), [("p", 2)]);
    }

    #[test]
    fn pool_never_assigns_an_address_of_ours() {
        let (mut pools, ids) = (pools(&["10.9.1.0/30"]), ids());
        let (addresses, _) = pools.assign("p", ids[0], b"a", (true, false)).unwrap();
        assert_eq!(addresses, ["10.9.1.2".parse::<IpAddr>().unwrap()]);
        assert!(pools.assign("p", ids[1], b"b", (true, false)).is_none());
    }

    #[test]
    fn rekeyed_ike_sa_keeps_its_pool_addresses() {
        let (mut pools, ids) = (pools(&["10.9.0.0/30", "fd09::/126"]), ids());
        let (addresses, _) = pools.assign("p", ids[0], b"a", (true, true)).unwrap();
        assert_eq!(addresses.len(), 2);
        pools.inherit(ids[0], ids[1]);
        pools.release(ids[0]);
        assert_eq!(pools.usage().next(), Some(("p", 2)));
        pools.release(ids[1]);
        assert_eq!(pools.usage().next(), Some(("p", 0)));
    }
}
