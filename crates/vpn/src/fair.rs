//! A queue that many senders share fairly, by branch of the address space: at each level branches take turns,
//! and when the queue is full the heaviest branch gives.
//!
//! Whoever sends more than its share fills its own branch only, however many addresses it has there; who sends
//! little waits for at most one of each other branch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// Prefixes that hold an address, the widest first, and the address: where a sender waits.
pub(super) type Place = [u128; 4];

/// The place of an address: /8, /16, /24 of IPv4, /32, /48, /56 of IPv6.
pub(super) fn place(address: IpAddr) -> Place {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let bits = u128::from(address.to_bits());
            [bits >> 24, bits >> 16, bits >> 8, bits]
        }
        // The top bit is set in no IPv4 entry.
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [bits >> 96, bits >> 80, bits >> 72, bits].map(|prefix| prefix | 1 << 127)
        }
    }
}

/// A bounded queue with a tree of senders.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    root: Node<T>,
    most: usize,
}

/// A branch, or a sender with what waits of it.
#[derive(Debug)]
struct Node<T> {
    len: usize,
    items: VecDeque<T>,
    below: BTreeMap<u128, (u64, Self)>,
    /// By the number of the turn.
    turns: BTreeSet<(u64, u128)>,
    next_turn: u64,
    weights: BTreeSet<(usize, u128)>,
}

/// Result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Added,
    /// It waits, and the newest of the heaviest sender does not any more.
    Displaced,
    /// It was dropped: no branch is heavier than its own.
    Dropped,
}

impl<T> Node<T> {
    const fn new() -> Self {
        Self {
            len: 0,
            items: VecDeque::new(),
            below: BTreeMap::new(),
            turns: BTreeSet::new(),
            next_turn: 0,
            weights: BTreeSet::new(),
        }
    }

    /// Works on a branch below and counts anew; with `served` its next turn comes after those of all others.
    fn with<R>(&mut self, key: u128, served: bool, work: impl FnOnce(&mut Self) -> R) -> R {
        let fresh = self.next_turn;
        let (turn, mut node) = self.below.remove(&key).unwrap_or((fresh, Self::new()));
        self.turns.remove(&(turn, key));
        self.weights.remove(&(node.len, key));
        self.len = self.len.saturating_sub(node.len);
        let result = work(&mut node);
        // Only who was served goes to the end; a push keeps its turn.
        let turn = if served { fresh } else { turn };
        if turn == fresh {
            self.next_turn = fresh.wrapping_add(1);
        }
        self.len = self.len.saturating_add(node.len);
        if node.len > 0 {
            self.turns.insert((turn, key));
            self.weights.insert((node.len, key));
            self.below.insert(key, (turn, node));
        }
        result
    }

    fn push(&mut self, place: &[u128], item: T) {
        if let [key, rest @ ..] = place {
            return self.with(*key, false, |node| node.push(rest, item));
        }
        self.items.push_back(item);
        self.len = self.items.len();
    }

    fn pop(&mut self) -> Option<T> {
        if let Some((_, key)) = self.turns.first().copied() {
            return self.with(key, true, Self::pop);
        }
        let item = self.items.pop_front();
        self.len = self.items.len();
        item
    }

    /// Drops the newest of the heaviest sender.
    fn drop_heaviest(&mut self) {
        if let Some((_, key)) = self.weights.last().copied() {
            return self.with(key, false, Self::drop_heaviest);
        }
        // The newest: what waited longest is nearest to being answered.
        self.items.pop_back();
        self.len = self.items.len();
    }

    /// Makes room for a sender at `place`; false if no branch is heavier than its own.
    fn make_room(&mut self, place: &[u128]) -> bool {
        let [own, rest @ ..] = place else {
            return false;
        };
        let weight = self.below.get(own).map_or(0, |(_, node)| node.len);
        let mut others = self.weights.iter().rev();
        let heaviest = others.find(|(_, key)| key != own).copied();
        match heaviest {
            // Heavier by more than the newcomer, or two senders would displace each other in turn.
            Some((other, key)) if other > weight.saturating_add(1) => {
                self.with(key, false, Self::drop_heaviest);
                true
            }
            _ if weight > 0 => self.with(*own, false, |node| node.make_room(rest)),
            _ => false,
        }
    }
}

impl<T> FairQueue<T> {
    /// A queue for `most` in all.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            root: Node::new(),
            most,
        }
    }

    pub(super) fn push(&mut self, place: &Place, item: T) -> Pushed {
        let full = self.root.len >= self.most;
        if full && !self.root.make_room(place) {
            return Pushed::Dropped;
        }
        self.root.push(place, item);
        match full {
            true => Pushed::Displaced,
            false => Pushed::Added,
        }
    }

    /// The next one: the oldest of the sender whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.root.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Place {
        place(text.parse().unwrap())
    }

    fn drain(queue: &mut FairQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn senders_take_turns_and_keep_their_order() {
        let mut queue = FairQueue::new(10);
        let [a, b, c] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(from);
        for (place, item) in [(a, 1), (a, 2), (a, 3), (b, 4), (c, 5), (b, 6)] {
            assert_eq!(queue.push(&place, item), Pushed::Added);
        }
        assert_eq!(drain(&mut queue), [1, 4, 5, 2, 6, 3]);
        let root = queue.root;
        assert!(root.len == 0 && root.below.is_empty());
        assert!(root.turns.is_empty() && root.weights.is_empty());
    }

    #[test]
    fn branches_take_turns_before_their_senders_do() {
        let mut queue = FairQueue::new(10);
        for item in 0..5 {
            queue.push(&from(&format!("10.0.{item}.1")), item);
        }
        queue.push(&from("11.0.0.1"), 7);
        queue.push(&from("2001:db8::1"), 8);
        assert_eq!(drain(&mut queue), [0, 7, 8, 1, 2, 3, 4]);
    }

    #[test]
    fn flood_of_one_sender_displaces_itself_only() {
        let mut queue = FairQueue::new(100);
        for item in 0..1000 {
            queue.push(&from("10.0.0.1"), item);
        }
        assert_eq!(queue.root.len, 100);
        assert_eq!(queue.push(&from("10.0.0.2"), 7000), Pushed::Displaced);
        assert_eq!(queue.push(&from("10.0.0.1"), 1), Pushed::Dropped);
        // The honest one is the second at the latest.
        assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(7000)));
    }

    #[test]
    fn flood_from_many_addresses_displaces_itself_only() {
        let mut queue = FairQueue::new(100);
        for item in 0..1000_u32 {
            let [.., high, low] = item.to_be_bytes();
            queue.push(&from(&format!("203.{high}.113.{low}")), item);
        }
        assert_eq!(queue.push(&from("10.0.0.2"), 7000), Pushed::Displaced);
        assert_eq!(queue.push(&from("10.0.0.3"), 7001), Pushed::Displaced);
        let first = [queue.pop(), queue.pop()];
        assert!(first.contains(&Some(7000)), "{first:?}");
        assert_eq!(drain(&mut queue).len(), 98);
    }

    #[test]
    fn waiting_sender_is_not_displaced_by_equals() {
        let mut queue = FairQueue::new(3);
        for item in 1..=3 {
            queue.push(&from(&format!("{item}.0.0.1")), item);
        }
        assert_eq!(queue.push(&from("4.0.0.1"), 4), Pushed::Dropped);
        assert_eq!(drain(&mut queue), [1, 2, 3]);
    }
}
