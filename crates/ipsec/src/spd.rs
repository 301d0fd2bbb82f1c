//! The security policy database (RFC 4301 §4.4.1): ordered rules, found by address.
//!
//! The first rule that matches decides, so a lookup must find the smallest rank among all matching
//! rules. Rules hang in a binary tree by the prefixes of their remote range; a lookup walks the bits
//! of one address and looks only at rules on that path. A direct-mapped cache in front answers for
//! flows seen before; a collision in it costs a walk, never a wrong answer.

use std::collections::BTreeMap;

use crate::selector::{Flow, Selector, aligned_bits};

/// What happens to matching packets (RFC 4301 §4.4.1).
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
    /// Which packets it is about.
    pub selector: Selector,
    /// What happens to them.
    pub action: Action,
    /// Rules are tried from the smallest order to the largest; equal ones in order of insertion.
    pub order: u32,
}

/// Names a rule in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId(u32);

/// Entries of the cache: a power of two.
const CACHE: usize = 1024;

/// A flow and the answer of its last lookup.
type Cached = (Flow, Option<PolicyId>);

/// The rules, ordered.
pub struct Spd {
    rules: BTreeMap<PolicyId, Policy>,
    next: u32,
    v4: Tree,
    v6: Tree,
    cache: Box<[Option<Cached>]>,
    seed: u64,
}

impl Spd {
    /// An empty database: nothing matches. `seed` makes the cache's collisions unpredictable.
    pub fn new(seed: u64) -> Self {
        Self {
            rules: BTreeMap::new(),
            next: 0,
            v4: Tree::default(),
            v6: Tree::default(),
            cache: vec![None; CACHE].into_boxed_slice(),
            seed,
        }
    }

    /// Adds a rule.
    pub fn insert(&mut self, policy: Policy) -> PolicyId {
        let id = PolicyId(self.next);
        self.next += 1;
        self.rules.insert(id, policy);
        let tree = self.tree_of(&policy);
        for (bits, len) in policy.selector.remote.prefixes() {
            tree.insert(
                bits,
                len,
                Ranked {
                    order: policy.order,
                    id,
                    selector: policy.selector,
                },
            );
        }
        self.cache.fill(None);
        id
    }

    /// Removes a rule and returns it.
    pub fn remove(&mut self, id: PolicyId) -> Option<Policy> {
        let policy = self.rules.remove(&id)?;
        let tree = self.tree_of(&policy);
        for (bits, len) in policy.selector.remote.prefixes() {
            tree.remove(bits, len, id);
        }
        self.cache.fill(None);
        Some(policy)
    }

    fn tree_of(&mut self, policy: &Policy) -> &mut Tree {
        if policy.selector.remote.first().is_ipv4() {
            &mut self.v4
        } else {
            &mut self.v6
        }
    }

    /// A rule by its name.
    pub fn get(&self, id: PolicyId) -> Option<&Policy> {
        self.rules.get(&id)
    }

    /// All rules with their names, in order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = (PolicyId, &Policy)> {
        self.rules.iter().map(|(id, policy)| (*id, policy))
    }

    /// The first rule about this flow.
    pub fn lookup(&mut self, flow: &Flow) -> Option<PolicyId> {
        let place = self.place(flow);
        if let Some(Some((cached, found))) = self.cache.get(place)
            && cached == flow
        {
            return *found;
        }
        let found = self.search(flow);
        if let Some(entry) = self.cache.get_mut(place) {
            *entry = Some((*flow, found));
        }
        found
    }

    /// As [`lookup`](Self::lookup), without the cache.
    pub fn search(&self, flow: &Flow) -> Option<PolicyId> {
        let tree = if flow.remote.is_ipv4() {
            &self.v4
        } else {
            &self.v6
        };
        tree.search(flow)
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
        let local = aligned_bits(flow.local);
        let remote = aligned_bits(flow.remote);
        let words = [
            halves(local),
            halves(remote),
            (ports, u64::from(flow.protocol)),
        ];
        let mut hash = self.seed;
        for (high, low) in words {
            hash = mix(hash ^ high);
            hash = mix(hash ^ low);
        }
        usize::try_from(hash >> 32).unwrap_or(0) % CACHE
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of a number"
)]
const fn halves(value: u128) -> (u64, u64) {
    ((value >> 64) as u64, value as u64)
}

const fn mix(value: u64) -> u64 {
    let product = (value as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let (high, low) = halves(product);
    high ^ low
}

/// A rule as it hangs in the tree.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    order: u32,
    id: PolicyId,
    selector: Selector,
}

impl Ranked {
    const fn rank(&self) -> (u32, PolicyId) {
        (self.order, self.id)
    }
}

#[derive(Default)]
struct Node {
    children: [Option<u32>; 2],
    /// Smallest rank first.
    rules: Vec<Ranked>,
}

struct Tree {
    nodes: Vec<Node>,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
        }
    }
}

impl Tree {
    fn insert(&mut self, bits: u128, len: u8, rule: Ranked) {
        let mut at = 0;
        for depth in 0..len {
            at = match self.child(at, bits, depth) {
                Some(child) => child,
                None => self.grow(at, bits, depth),
            };
        }
        if let Some(node) = self.nodes.get_mut(at) {
            let place = node
                .rules
                .partition_point(|other| other.rank() < rule.rank());
            node.rules.insert(place, rule);
        }
    }

    /// Empty nodes stay: they are few and the next rule for this range needs them again.
    fn remove(&mut self, bits: u128, len: u8, id: PolicyId) {
        let mut at = 0;
        for depth in 0..len {
            let Some(child) = self.child(at, bits, depth) else {
                return;
            };
            at = child;
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.rules.retain(|rule| rule.id != id);
        }
    }

    fn search(&self, flow: &Flow) -> Option<PolicyId> {
        let bits = aligned_bits(flow.remote);
        let mut best: Option<(u32, PolicyId)> = None;
        let mut at = 0;
        for depth in 0..=128 {
            let node = self.nodes.get(at)?;
            for rule in &node.rules {
                if best.is_some_and(|best| best <= rule.rank()) {
                    break;
                }
                if rule.selector.matches(flow) {
                    best = Some(rule.rank());
                    break;
                }
            }
            match self.child(at, bits, depth) {
                Some(child) if depth < 128 => at = child,
                _ => break,
            }
        }
        best.map(|(_, id)| id)
    }

    fn child(&self, at: usize, bits: u128, depth: u8) -> Option<usize> {
        let side = side(bits, depth);
        let child = self.nodes.get(at)?.children.get(side).copied().flatten()?;
        usize::try_from(child).ok()
    }

    fn grow(&mut self, at: usize, bits: u128, depth: u8) -> usize {
        let child = self.nodes.len();
        self.nodes.push(Node::default());
        if let Some(link) = self
            .nodes
            .get_mut(at)
            .and_then(|node| node.children.get_mut(side(bits, depth)))
        {
            *link = u32::try_from(child).ok();
        }
        child
    }
}

fn side(bits: u128, depth: u8) -> usize {
    let shift = 127_u32.saturating_sub(u32::from(depth));
    usize::from((bits >> shift) & 1 == 1)
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
