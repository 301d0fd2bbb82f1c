//! Who may hold the places of a listener. No sockets and no clock: a table of connections.
//!
//! No client waits for a place: every connection is accepted, and where a share is used up, the
//! connection that has been idle longest in that share gives its place up. So an honest client gets
//! in however many silent connections there are. Shares are counted from narrow to wide: address,
//! network, listener. Where the listener is full, the network with most anonymous connections gives one up.
//!
//! Hosts from which a certificate was shown lately are spared while there are others.
//!
//! An *anonymous* connection has shown no certificate in the TLS handshake. They never have more than
//! [`Bounds::anonymous`] places; the rest is for those who have shown one, and each certificate
//! has its own share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Shares of one listener, in connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub total: usize,
    /// Those that have shown no certificate; what is left up to the total is the reserve of those
    /// that have.
    pub anonymous: usize,
    /// Anonymous ones of one address (IPv4) or one /64 (IPv6).
    pub address: usize,
    /// Anonymous ones of one /24 (IPv4) or one /48 (IPv6).
    pub network: usize,
    pub certificate: usize,
    /// Whether a host that opens connections fast waits for its turn.
    pub paced: bool,
}

/// Our choice: memory for a thousand TLS connections (some 60 MB) is always there; a quarter is
/// reserved; a browser opens six connections and a camera four.
pub const BOUNDS: Bounds = Bounds {
    total: 1024,
    anonymous: 768,
    address: 64,
    network: 256,
    certificate: 16,
    paced: true,
};

/// A connection that works on a request gives its place up only after this time: a burst of new
/// connections must not cut every request under way.
const BUSY_GRACE: Duration = Duration::from_secs(5);

/// Hosts remembered because a certificate was shown from there; the one seen longest ago makes room.
/// Our choice: more than the cameras and desks of a site, below 300 KB.
const MAX_KNOWN: usize = 4096;

/// Number of a connection in its table.
pub(crate) type Id = u64;

/// SHA-256 of a certificate.
pub(crate) type Fingerprint = [u8; 32];

#[derive(Clone, Copy, Debug)]
struct Place {
    host: IpAddr,
    network: IpAddr,
    certificate: Option<Fingerprint>,
    /// Requests under way.
    requests: usize,
    /// Since when it is idle, or busy.
    since: Instant,
}

/// All places are taken by connections that cannot be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The connections of a listener.
#[derive(Debug)]
pub(crate) struct Places {
    bounds: Bounds,
    places: HashMap<Id, Place>,
    /// Anonymous connections of each host and of each network that has any: a burst of new connections must
    /// not go through all places for each of them.
    hosts: HashMap<IpAddr, usize>,
    networks: HashMap<IpAddr, usize>,
    /// All anonymous connections.
    unproved: usize,
    next: Id,
    /// When a certificate was last shown from a host.
    known: HashMap<IpAddr, Instant>,
}

impl Places {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            places: HashMap::new(),
            hosts: HashMap::new(),
            networks: HashMap::new(),
            unproved: 0,
            next: 0,
            known: HashMap::new(),
        }
    }

    /// Gives a new connection from `address` a place; the connection in the second field, if any,
    /// has lost its own and is to be ended.
    pub(crate) fn enter(
        &mut self,
        address: IpAddr,
        now: Instant,
    ) -> Result<(Id, Option<Id>), Full> {
        let (host, network) = (audit::host_of(address), network(address));
        let victim = self.make_room(host, network, now)?;
        if let Some(victim) = victim {
            self.leave(victim);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let place = Place {
            host,
            network,
            certificate: None,
            requests: 0,
            since: now,
        };
        self.places.insert(id, place);
        *self.hosts.entry(host).or_default() += 1;
        *self.networks.entry(network).or_default() += 1;
        self.unproved += 1;
        Ok((id, victim))
    }

    /// Notes that `id` has shown a certificate; as with [`Self::enter`], another connection of
    /// that certificate may lose its place for it.
    pub(crate) fn prove(
        &mut self,
        id: Id,
        certificate: Fingerprint,
        now: Instant,
    ) -> Result<Option<Id>, Full> {
        let same = |place: &Place| place.certificate == Some(certificate);
        let mut victim = None;
        if self.count(same) >= self.bounds.certificate {
            victim = Some(self.victim(same, now).ok_or(Full)?);
        }
        if let Some(victim) = victim {
            self.leave(victim);
        }
        if let Some(place) = self.places.get_mut(&id) {
            let before = *place;
            place.certificate = Some(certificate);
            self.discount(before);
            self.remember(before.host, now);
        }
        Ok(victim)
    }

    /// Notes that a request of `id` begins.
    pub(crate) fn begin(&mut self, id: Id, now: Instant) {
        if let Some(place) = self.places.get_mut(&id) {
            if place.requests == 0 {
                place.since = now;
            }
            place.requests += 1;
        }
    }

    /// Notes that a request of `id` has ended, answer included.
    pub(crate) fn end(&mut self, id: Id, now: Instant) {
        if let Some(place) = self.places.get_mut(&id) {
            place.requests = place.requests.saturating_sub(1);
            if place.requests == 0 {
                place.since = now;
            }
        }
    }

    /// Gives the place of `id` back.
    pub(crate) fn leave(&mut self, id: Id) {
        if let Some(place) = self.places.remove(&id) {
            self.discount(place);
        }
    }

    /// Connections that have shown no certificate, and those that have.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let proved = self.places.len().saturating_sub(self.unproved);
        (self.unproved, proved)
    }

    /// Takes a connection that is no longer there, or no longer anonymous, off the counts.
    fn discount(&mut self, place: Place) {
        if !anonymous(&place) {
            return;
        }
        self.unproved = self.unproved.saturating_sub(1);
        for (counts, key) in [
            (&mut self.hosts, place.host),
            (&mut self.networks, place.network),
        ] {
            if let Some(count) = counts.get_mut(&key) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
    }

    fn remember(&mut self, host: IpAddr, now: Instant) {
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&host) {
            let oldest = self.known.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(host, _)| *host) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(host, now);
    }

    fn make_room(&self, host: IpAddr, network: IpAddr, now: Instant) -> Result<Option<Id>, Full> {
        let of = |counts: &HashMap<IpAddr, usize>, key| counts.get(&key).copied().unwrap_or(0);
        if of(&self.hosts, host) >= self.bounds.address {
            let near = |place: &Place| anonymous(place) && place.host == host;
            return self.victim(near, now).map(Some).ok_or(Full);
        }
        if of(&self.networks, network) >= self.bounds.network {
            let around = |place: &Place| anonymous(place) && place.network == network;
            return self.victim(around, now).map(Some).ok_or(Full);
        }
        if self.unproved < self.bounds.anonymous && self.places.len() < self.bounds.total {
            return Ok(None);
        }
        let most = self.networks.values().copied().max().unwrap_or(0);
        let largest_network =
            |place: &Place| anonymous(place) && of(&self.networks, place.network) == most;
        if let Some(victim) = self
            .victim(largest_network, now)
            .or_else(|| self.victim(anonymous, now))
        {
            return Ok(Some(victim));
        }
        // Certificates fill the listener: the one with most connections pays, if one is idle.
        let mut certificates: HashMap<Fingerprint, usize> = HashMap::new();
        for certificate in self.places.values().filter_map(|place| place.certificate) {
            *certificates.entry(certificate).or_default() += 1;
        }
        let most = certificates.values().copied().max().unwrap_or(0);
        let largest = |place: &Place| {
            let certificate = place.certificate.as_ref();
            place.requests == 0 && certificate.and_then(|c| certificates.get(c)) == Some(&most)
        };
        self.victim(largest, now).map(Some).ok_or(Full)
    }

    fn count(&self, wanted: impl Fn(&Place) -> bool) -> usize {
        self.places.values().filter(|place| wanted(place)).count()
    }

    /// The connection that is idle longest; without an idle one, that which is busy longest. One of
    /// a known host only if there is no other.
    fn victim(&self, wanted: impl Fn(&Place) -> bool, now: Instant) -> Option<Id> {
        self.places
            .iter()
            .filter(|(_, place)| wanted(place))
            .filter(|(_, place)| {
                place.requests == 0 || now.saturating_duration_since(place.since) >= BUSY_GRACE
            })
            .min_by_key(|(id, place)| {
                let known = self.known.contains_key(&place.host);
                (known, place.requests > 0, place.since, **id)
            })
            .map(|(id, _)| *id)
    }
}

fn anonymous(place: &Place) -> bool {
    place.certificate.is_none()
}

fn network(address: IpAddr) -> IpAddr {
    masked(address, 24, 48)
}

fn masked(address: IpAddr, v4: u32, v6: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(a) => IpAddr::V4((a.to_bits() & u32::MAX.unbounded_shl(32 - v4)).into()),
        IpAddr::V6(a) => IpAddr::V6((a.to_bits() & u128::MAX.unbounded_shl(128 - v6)).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const SMALL: Bounds = Bounds {
        total: 8,
        anonymous: 6,
        address: 2,
        network: 4,
        certificate: 2,
        paced: false,
    };

    fn ip(last: [u8; 4]) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(last))
    }

    struct Scene {
        places: Places,
        now: Instant,
    }

    impl Scene {
        fn new(bounds: Bounds) -> Self {
            Self {
                places: Places::new(bounds),
                now: Instant::now(),
            }
        }

        /// Enters a second after what came before.
        fn enter(&mut self, address: [u8; 4]) -> (Id, Option<Id>) {
            self.now += Duration::from_secs(1);
            self.places.enter(ip(address), self.now).unwrap()
        }
    }

    #[test]
    fn counts_are_those_of_the_places_after_any_turns() {
        let mut scene = Scene::new(SMALL);
        let mut random = 1_u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [act, a, b, c] = random.to_be_bytes();
            scene.now += Duration::from_millis(u64::from(a));
            let id = scene.places.next.saturating_sub(u64::from(b % 16));
            let address = ip([10, 0, b % 3, c % 4]);
            match act % 8 {
                0..4 => drop(scene.places.enter(address, scene.now)),
                4 => drop(scene.places.prove(id, [c % 4; 32], scene.now)),
                5 => scene.places.begin(id, scene.now),
                6 => scene.places.end(id, scene.now),
                _ => scene.places.leave(id),
            }
            let (mut hosts, mut networks) = (HashMap::new(), HashMap::new());
            for place in scene.places.places.values().filter(|p| anonymous(p)) {
                *hosts.entry(place.host).or_default() += 1;
                *networks.entry(place.network).or_default() += 1;
            }
            assert_eq!(scene.places.counts().0, hosts.values().sum::<usize>());
            assert_eq!(
                (&scene.places.hosts, &scene.places.networks),
                (&hosts, &networks)
            );
        }
        assert!(scene.places.next > 9000);
    }

    #[test]
    fn address_at_its_share_loses_its_own_oldest_connection() {
        let mut scene = Scene::new(SMALL);
        let (other, _) = scene.enter([10, 0, 1, 1]);
        let (first, none) = scene.enter([10, 0, 0, 1]);
        assert_eq!(none, None);
        assert_eq!(scene.enter([10, 0, 0, 1]).1, None);
        assert_eq!(scene.enter([10, 0, 0, 1]).1, Some(first));
        assert!(scene.places.places.contains_key(&other));
    }

    #[test]
    fn network_at_its_share_loses_its_own_oldest_connection() {
        let mut scene = Scene::new(SMALL);
        scene.enter([10, 0, 1, 1]);
        let (first, _) = scene.enter([10, 0, 0, 1]);
        for last in 2..5 {
            assert_eq!(scene.enter([10, 0, 0, last]).1, None);
        }
        assert_eq!(scene.enter([10, 0, 0, 9]).1, Some(first));
    }

    #[test]
    fn full_listener_takes_from_the_most_largest_network_network() {
        let mut scene = Scene::new(SMALL);
        let (honest, _) = scene.enter([192, 0, 2, 1]);
        let (oldest, _) = scene.enter([10, 0, 0, 1]);
        for last in 2..5 {
            scene.enter([10, 0, 0, last]);
        }
        let (_, none) = scene.enter([10, 0, 1, 1]);
        assert_eq!(none, None);
        assert_eq!(scene.enter([172, 16, 0, 1]).1, Some(oldest));
        assert!(scene.places.places.contains_key(&honest));
    }

    #[test]
    fn anonymous_connections_leave_the_reserve_to_certificates() {
        let mut scene = Scene::new(SMALL);
        for network in 0..50 {
            scene.enter([10, network, 0, 1]);
        }
        assert_eq!(scene.places.counts(), (6, 0));
        for certificate in 0..2 {
            let (id, _) = scene.enter([172, 16, certificate, 1]);
            scene
                .places
                .prove(id, [certificate; 32], scene.now)
                .unwrap();
        }
        for network in 0..50 {
            scene.enter([10, network, 0, 1]);
        }
        assert_eq!(scene.places.counts(), (6, 2));
    }

    #[test]
    fn known_host_is_spared_while_many_networks_connect() {
        let mut scene = Scene::new(SMALL);
        let (id, _) = scene.enter([192, 0, 2, 1]);
        scene.places.prove(id, [1; 32], scene.now).unwrap();
        scene.places.leave(id);
        // It connects again and is slow to show its certificate.
        let (again, _) = scene.enter([192, 0, 2, 1]);
        for network in 0..50 {
            let (_, lost) = scene.enter([10, network, 0, 1]);
            assert_ne!(lost, Some(again));
        }
        assert!(scene.places.places.contains_key(&again));
        for number in (0..u32::MAX).take(2 * MAX_KNOWN) {
            let host = IpAddr::V4(Ipv4Addr::from(number));
            scene.places.remember(host, scene.now);
        }
        assert_eq!(scene.places.known.len(), MAX_KNOWN);
    }

    #[test]
    fn certificate_at_its_share_loses_its_own_idle_connection_or_is_refused() {
        let mut scene = Scene::new(SMALL);
        let proved = |scene: &mut Scene| {
            let (id, _) = scene.enter([10, 0, 0, 1]);
            (id, scene.places.prove(id, [7; 32], scene.now))
        };
        let (first, none) = proved(&mut scene);
        assert_eq!(none, Ok(None));
        let (second, _) = proved(&mut scene);
        let (third, lost) = proved(&mut scene);
        assert_eq!(lost, Ok(Some(first)));
        for id in [second, third] {
            scene.places.begin(id, scene.now);
        }
        assert_eq!(proved(&mut scene).1, Err(Full));
        scene.places.end(second, scene.now);
        assert_eq!(proved(&mut scene).1, Ok(Some(second)));
    }

    #[test]
    fn requests_under_way_are_spared_while_others_are_idle_and_for_their_grace() {
        let bounds = Bounds {
            address: 3,
            ..SMALL
        };
        let mut scene = Scene::new(bounds);
        let (busy, _) = scene.enter([10, 0, 0, 1]);
        scene.places.begin(busy, scene.now);
        let (idle, _) = scene.enter([10, 0, 0, 1]);
        let (other, _) = scene.enter([10, 0, 0, 1]);
        let (next, lost) = scene.enter([10, 0, 0, 1]);
        assert_eq!(lost, Some(idle));
        for id in [other, next] {
            scene.places.begin(id, scene.now);
        }
        let address = ip([10, 0, 0, 1]);
        let soon = scene.now + BUSY_GRACE - Duration::from_secs(4);
        assert_eq!(scene.places.enter(address, soon), Err(Full));
        let later = scene.now + BUSY_GRACE;
        assert_eq!(scene.places.enter(address, later).unwrap().1, Some(busy));
    }

    #[test]
    fn listener_full_of_certificates_takes_an_idle_one_of_the_greediest() {
        let mut scene = Scene::new(SMALL);
        let mut first = None;
        for number in 0..8_u8 {
            let (id, _) = scene.enter([10, number, 0, 1]);
            // Certificate 0 has two connections, the others one each.
            let certificate = [number.saturating_sub(1); 32];
            scene.places.prove(id, certificate, scene.now).unwrap();
            first.get_or_insert(id);
        }
        let (_, lost) = scene.enter([192, 0, 2, 1]);
        assert_eq!(lost, first);
    }

    #[test]
    fn hosts_and_networks_follow_the_family() {
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(
            audit::host_of(parse("2001:db8:1:2:3::4")),
            parse("2001:db8:1:2::")
        );
        assert_eq!(network(parse("2001:db8:1:2:3::4")), parse("2001:db8:1::"));
        assert_eq!(network(parse("192.0.2.77")), parse("192.0.2.0"));
        // A mapped address is an IPv4 address: else one host had two shares.
        assert_eq!(
            audit::host_of(parse("::ffff:192.0.2.77")),
            parse("192.0.2.77")
        );
    }
}
