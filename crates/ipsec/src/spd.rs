//! The security policy database (RFC 4301 §4.4.1): ordered rules, found by address.
//!
//! The first rule that matches decides, so a lookup must find the smallest rank among all matching
//! rules. Rules lie in tables by the prefixes of their remote range, one table per length of prefix:
//! a lookup asks each length in use for the address, which are few in practice, and 33 or 129 at
//! most. A direct-mapped cache in front answers for flows seen before; a collision in it costs a
//! search, never a wrong answer.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};

use crate::hash::Seeded;
use crate::selector::{Flow, Selector, aligned_bits};

/// Action for matching packets (RFC 4301 §4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Protected by a security association.
    Protect,
    /// Left alone.
    Bypass,
    /// Dropped.
    Discard,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Packets that it is about.
    pub selector: Selector,
    /// Action for them.
    pub action: Action,
    /// Rules are tried from the smallest order to the largest; equal ones in order of insertion.
    pub order: u32,
}

/// Names a rule in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId(u32);

/// Result of the first matching rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The rule.
    pub policy: PolicyId,
    /// The rule's action.
    pub action: Action,
    /// The association that protects its traffic, by its place at the owner's. It lies with the rule,
    /// because each place that has to be looked up is a wait for memory once there are thousands.
    pub(crate) sa: Option<usize>,
}

/// Entries of the cache: a power of two.
const CACHE: usize = 1024;

/// A flow and the answer of its last lookup.
type Cached = (Flow, Option<Decision>);

/// The rules, ordered.
pub struct Spd {
    rules: BTreeMap<PolicyId, Bound>,
    next: u32,
    v4: Table,
    v6: Table,
    cache: Box<[Option<Cached>]>,
    hash: Seeded,
}

impl Spd {
    /// An empty database: nothing matches. `seed` makes the cache's collisions unpredictable.
    pub fn new(seed: u64) -> Self {
        Self {
            rules: BTreeMap::new(),
            next: 0,
            v4: Table::new(seed),
            v6: Table::new(seed),
            cache: vec![None; CACHE].into_boxed_slice(),
            hash: Seeded(seed),
        }
    }

    /// Adds a rule.
    pub fn insert(&mut self, policy: Policy) -> PolicyId {
        let id = PolicyId(self.next);
        self.next += 1;
        self.rules.insert(id, Bound { policy, sa: None });
        let table = self.table_of(&policy);
        for (bits, len) in policy.selector.remote.prefixes() {
            table.insert(
                bits,
                len,
                Ranked {
                    order: policy.order,
                    id,
                    action: policy.action,
                    selector: policy.selector,
                    sa: None,
                },
            );
        }
        self.cache.fill(None);
        id
    }

    /// Removes a rule and returns it.
    pub fn remove(&mut self, id: PolicyId) -> Option<Policy> {
        let Bound { policy, .. } = self.rules.remove(&id)?;
        let table = self.table_of(&policy);
        for (bits, len) in policy.selector.remote.prefixes() {
            table.remove(bits, len, id);
        }
        self.cache.fill(None);
        Some(policy)
    }

    /// Says which association protects a rule's traffic.
    pub(crate) fn bind(&mut self, id: PolicyId, sa: Option<usize>) {
        let Some(bound) = self.rules.get_mut(&id) else {
            return;
        };
        bound.sa = sa;
        let policy = bound.policy;
        let table = self.table_of(&policy);
        for (bits, len) in policy.selector.remote.prefixes() {
            table.bind(bits, len, id, sa);
        }
        self.cache.fill(None);
    }

    /// The rules whose traffic an association protects.
    pub(crate) fn bound_to(&self, sa: usize) -> Vec<PolicyId> {
        let bound = self.rules.iter().filter(|(_, bound)| bound.sa == Some(sa));
        bound.map(|(id, _)| *id).collect()
    }

    fn table_of(&mut self, policy: &Policy) -> &mut Table {
        if policy.selector.remote.first().is_ipv4() {
            &mut self.v4
        } else {
            &mut self.v6
        }
    }

    /// A rule by its name.
    pub fn get(&self, id: PolicyId) -> Option<&Policy> {
        self.rules.get(&id).map(|bound| &bound.policy)
    }

    /// All rules with their names, in order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = (PolicyId, &Policy)> {
        self.rules.iter().map(|(id, bound)| (*id, &bound.policy))
    }

    /// The first rule about this flow.
    pub fn lookup(&mut self, flow: &Flow) -> Option<PolicyId> {
        self.decide(flow).map(|decision| decision.policy)
    }

    /// The first rule about this flow and what it wants.
    pub fn decide(&mut self, flow: &Flow) -> Option<Decision> {
        let place = self.place(flow);
        if let Some(Some((cached, found))) = self.cache.get(place)
            && cached == flow
        {
            return *found;
        }
        let found = self.find(flow);
        if let Some(entry) = self.cache.get_mut(place) {
            *entry = Some((*flow, found));
        }
        found
    }

    /// As [`lookup`](Self::lookup), without the cache.
    pub fn search(&self, flow: &Flow) -> Option<PolicyId> {
        self.find(flow).map(|decision| decision.policy)
    }

    fn find(&self, flow: &Flow) -> Option<Decision> {
        let table = if flow.remote.is_ipv4() {
            &self.v4
        } else {
            &self.v6
        };
        table.find(flow)
    }

    fn place(&self, flow: &Flow) -> usize {
        use crate::ip::Ports;
        let ports = match flow.ports {
            Ports::Known {
                source,
                destination,
            } => (u64::from(source) << 16) | u64::from(destination),
            Ports::None => 1 << 32,
            Ports::Opaque => 2 << 32,
        };
        let mut hash = self.hash.build_hasher();
        hash.write_u128(aligned_bits(flow.local));
        hash.write_u128(aligned_bits(flow.remote));
        hash.write_u64(ports | u64::from(flow.protocol) << 40);
        usize::try_from(hash.finish() >> 32).unwrap_or(0) % CACHE
    }
}

/// A rule and who protects its traffic.
struct Bound {
    policy: Policy,
    sa: Option<usize>,
}

/// A rule as it lies in a table.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    order: u32,
    id: PolicyId,
    action: Action,
    selector: Selector,
    sa: Option<usize>,
}

impl Ranked {
    const fn rank(&self) -> (u32, PolicyId) {
        (self.order, self.id)
    }
}

/// The rules of one family.
struct Table {
    /// Lengths of prefix in use; none without rules.
    levels: Vec<Level>,
    hash: Seeded,
}

/// The rules whose prefixes have one length.
struct Level {
    mask: u128,
    places: HashMap<u128, Place, Seeded>,
}

/// The rules of one prefix, smallest rank first. The first, mostly the only one, lies in the map
/// itself: one place less to wait for.
struct Place {
    first: Ranked,
    others: Vec<Ranked>,
}

impl Place {
    fn insert(&mut self, mut rule: Ranked) {
        if rule.rank() < self.first.rank() {
            std::mem::swap(&mut rule, &mut self.first);
        }
        let at = self.others.partition_point(|o| o.rank() < rule.rank());
        self.others.insert(at, rule);
    }

    /// Takes a rule out. False when there is none left.
    fn remove(&mut self, id: PolicyId) -> bool {
        self.others.retain(|rule| rule.id != id);
        if self.first.id != id {
            return true;
        }
        let next = (!self.others.is_empty()).then(|| self.others.remove(0));
        next.map(|next| self.first = next).is_some()
    }

    fn rules(&self) -> impl Iterator<Item = &Ranked> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Table {
    const fn new(seed: u64) -> Self {
        Self {
            levels: Vec::new(),
            hash: Seeded(seed),
        }
    }

    fn insert(&mut self, bits: u128, len: u8, rule: Ranked) {
        let mask = mask(len);
        let at = self.levels.iter().position(|level| level.mask == mask);
        let at = at.unwrap_or_else(|| {
            self.levels.push(Level {
                mask,
                places: HashMap::with_hasher(self.hash),
            });
            self.levels.len() - 1
        });
        if let Some(level) = self.levels.get_mut(at) {
            let place = level.places.entry(bits & mask);
            place
                .and_modify(|place| place.insert(rule))
                .or_insert_with(|| Place {
                    first: rule,
                    others: Vec::new(),
                });
        }
    }

    fn remove(&mut self, bits: u128, len: u8, id: PolicyId) {
        let mask = mask(len);
        for level in self.levels.iter_mut().filter(|level| level.mask == mask) {
            let place = level.places.get_mut(&(bits & mask));
            if place.is_some_and(|place| !place.remove(id)) {
                level.places.remove(&(bits & mask));
            }
        }
        self.levels.retain(|level| !level.places.is_empty());
    }

    fn bind(&mut self, bits: u128, len: u8, id: PolicyId, sa: Option<usize>) {
        let mask = mask(len);
        for level in self.levels.iter_mut().filter(|level| level.mask == mask) {
            let Some(place) = level.places.get_mut(&(bits & mask)) else {
                continue;
            };
            let rules = std::iter::once(&mut place.first).chain(&mut place.others);
            for rule in rules.filter(|rule| rule.id == id) {
                rule.sa = sa;
            }
        }
    }

    fn find(&self, flow: &Flow) -> Option<Decision> {
        let bits = aligned_bits(flow.remote);
        let mut best: Option<&Ranked> = None;
        for level in &self.levels {
            let Some(place) = level.places.get(&(bits & level.mask)) else {
                continue;
            };
            for rule in place.rules() {
                if best.is_some_and(|best| best.rank() <= rule.rank()) {
                    break;
                }
                if rule.selector.matches(flow) {
                    best = Some(rule);
                    break;
                }
            }
        }
        best.map(|rule| Decision {
            policy: rule.id,
            action: rule.action,
            sa: rule.sa,
        })
    }
}

/// The first `len` of 128 bits.
fn mask(len: u8) -> u128 {
    u128::MAX
        .checked_shl(128_u32.saturating_sub(len.into()))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::ip::Ports;
    use crate::selector::{AddressRange, PortMatch};

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (0_u32..64).prop_map(|low| IpAddr::V4((0x0A00_0000 | low).into())),
            (0_u128..64).prop_map(|low| IpAddr::V6(((0xFD << 120) | low).into())),
        ]
    }

    fn range() -> impl Strategy<Value = AddressRange> {
        (address(), 0_u8..33, any::<u8>()).prop_map(|(first, bits, extra)| match first {
            IpAddr::V4(first) if bits > 20 => {
                let last = u32::from(first).saturating_add(u32::from(extra));
                AddressRange::new(first.into(), IpAddr::V4(last.into())).unwrap()
            }
            first if first.is_ipv6() => AddressRange::prefix(first, 96 + bits.min(32)).unwrap(),
            first => AddressRange::prefix(first, bits).unwrap(),
        })
    }

    fn ports() -> impl Strategy<Value = PortMatch> {
        prop_oneof![
            3 => Just(PortMatch::Any),
            1 => Just(PortMatch::Opaque),
            2 => (0_u16..8, 0_u16..8).prop_map(|(a, b)| PortMatch::Range(a.min(b), a.max(b))),
        ]
    }

    fn policy() -> impl Strategy<Value = Policy> {
        (
            range(),
            range(),
            prop::option::of(16_u8..19),
            ports(),
            ports(),
            0_u32..4,
        )
            .prop_map(
                |(local, remote, protocol, local_ports, remote_ports, order)| Policy {
                    selector: Selector {
                        local,
                        remote,
                        protocol,
                        local_ports,
                        remote_ports,
                    },
                    action: Action::Protect,
                    order,
                },
            )
    }

    fn flow() -> impl Strategy<Value = Flow> {
        let ports = prop_oneof![
            Just(Ports::None),
            Just(Ports::Opaque),
            (0_u16..8, 0_u16..8).prop_map(|(source, destination)| Ports::Known {
                source,
                destination
            }),
        ];
        (address(), address(), 16_u8..19, ports).prop_map(|(local, remote, protocol, ports)| Flow {
            local,
            remote,
            protocol,
            ports,
        })
    }

    /// The rule a linear scan finds.
    fn scan(spd: &Spd, flow: &Flow) -> Option<PolicyId> {
        spd.iter()
            .filter(|(_, policy)| policy.selector.matches(flow))
            .min_by_key(|(id, policy)| (policy.order, *id))
            .map(|(id, _)| id)
    }

    proptest! {
        #[test]
        fn finds_what_a_linear_scan_finds(
            policies in prop::collection::vec(policy(), 0..40),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
            flows in prop::collection::vec(flow(), 1..40),
        ) {
            let mut spd = Spd::new(7);
            let ids: Vec<PolicyId> = policies.into_iter().map(|policy| spd.insert(policy)).collect();
            for index in removed {
                if !ids.is_empty() {
                    // Warm the cache first: a removal must not leave an answer behind.
                    for flow in &flows {
                        spd.lookup(flow);
                    }
                    spd.remove(*index.get(&ids));
                }
            }
            for flow in flows.iter().chain(&flows) {
                prop_assert_eq!(spd.lookup(flow), scan(&spd, flow));
            }
        }
    }

    #[test]
    fn removed_twice_is_none() {
        let everywhere = AddressRange::prefix("0.0.0.0".parse().unwrap(), 0).unwrap();
        let mut spd = Spd::new(0);
        let id = spd.insert(Policy {
            selector: Selector::between(everywhere, everywhere),
            action: Action::Bypass,
            order: 0,
        });
        assert!(spd.remove(id).is_some());
        assert!(spd.remove(id).is_none());
    }
}
