//! A queue that many senders share fairly: each has a lane, lanes take turns, and when it is full the longest
//! lane gives.
//!
//! Whoever sends more than its share fills its own lane only; who sends little waits for at most one of each
//! other sender.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A bounded queue with a lane for each sender.
#[derive(Debug)]
pub(super) struct FairQueue<K, T> {
    lanes: BTreeMap<K, VecDeque<T>>,
    /// Whose turn comes; each lane that is not empty stands here once.
    turns: VecDeque<K>,
    lengths: BTreeSet<(usize, K)>,
    len: usize,
    most: usize,
}

/// What became of something that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It waits.
    Added,
    /// It waits, and the newest of the longest lane does not any more.
    Displaced,
    /// It was dropped: no lane is longer than its own.
    Dropped,
}

impl<K: Copy + Ord, T> FairQueue<K, T> {
    /// A queue for `most` in all.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            lanes: BTreeMap::new(),
            turns: VecDeque::new(),
            lengths: BTreeSet::new(),
            len: 0,
            most,
        }
    }

    fn length(&self, key: K) -> usize {
        self.lanes.get(&key).map_or(0, VecDeque::len)
    }

    pub(super) fn push(&mut self, key: K, item: T) -> Pushed {
        let own = self.length(key);
        let mut pushed = Pushed::Added;
        if self.len >= self.most {
            let Some((longest, giver)) = self.lengths.last().copied() else {
                return Pushed::Dropped;
            };
            if longest <= own.saturating_add(1) {
                return Pushed::Dropped;
            }
            self.change(giver, VecDeque::pop_back);
            pushed = Pushed::Displaced;
        }
        if own == 0 {
            self.turns.push_back(key);
        }
        self.change(key, |lane| {
            lane.push_back(item);
            None
        });
        pushed
    }

    /// The next one: the oldest of the lane whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let key = self.turns.pop_front()?;
        let item = self.change(key, VecDeque::pop_front);
        if self.lanes.contains_key(&key) {
            self.turns.push_back(key);
        }
        item
    }

    fn change(&mut self, key: K, change: impl FnOnce(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let lane = self.lanes.entry(key).or_default();
        let before = lane.len();
        let taken = change(lane);
        let after = lane.len();
        self.lengths.remove(&(before, key));
        if after == 0 {
            self.lanes.remove(&key);
        } else {
            self.lengths.insert((after, key));
        }
        self.len = self.len.saturating_sub(before).saturating_add(after);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut FairQueue<char, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn lanes_take_turns_and_keep_their_order() {
        let mut queue = FairQueue::new(10);
        for (key, item) in [('a', 1), ('a', 2), ('a', 3), ('b', 4), ('c', 5), ('b', 6)] {
            assert_eq!(queue.push(key, item), Pushed::Added);
        }
        assert_eq!(drain(&mut queue), [1, 4, 5, 2, 6, 3]);
        assert!(queue.lengths.is_empty() && queue.lanes.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn a_flood_takes_places_from_itself_only() {
        let mut queue = FairQueue::new(100);
        for item in 0..1000 {
            queue.push('f', item);
        }
        assert_eq!(queue.len, 100);
        assert_eq!(queue.push('h', 7000), Pushed::Displaced);
        assert_eq!(queue.push('f', 1), Pushed::Dropped);
        // The honest one is the second at the latest.
        assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(7000)));
    }

    #[test]
    fn many_senders_with_one_each_keep_none_out_that_was_there() {
        let mut queue = FairQueue::new(3);
        for key in ['a', 'b', 'c'] {
            queue.push(key, u32::from(key));
        }
        assert_eq!(queue.push('d', 1), Pushed::Dropped);
        assert_eq!(drain(&mut queue), [97, 98, 99]);
    }

    #[test]
    fn a_lane_that_gave_its_last_place_loses_its_turn() {
        let mut queue = FairQueue::new(4);
        for item in 0..4 {
            queue.push('a', item);
        }
        for (key, item) in [('b', 10), ('c', 20), ('b', 11)] {
            queue.push(key, item);
        }
        assert_eq!(queue.len, 4);
        let all = drain(&mut queue);
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(queue.turns.is_empty());
    }
}
