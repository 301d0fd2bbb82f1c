//! The anti-replay window of an inbound security association (RFC 4303 §3.4.3, appendix A).
//!
//! The window is a ring of 64-bit words, one more than the window needs, so that moving forward
//! clears whole words instead of shifting bits (the idea of RFC 6479). With extended sequence
//! numbers only the lower 32 bits travel; [`ReplayWindow::infer`] finds the upper half.

/// Smallest window offered, in packets.
pub const MIN_WINDOW: u32 = 64;
/// Largest window offered, in packets: 128 KiB of memory.
pub const MAX_WINDOW: u32 = 1 << 20;

/// Why a sequence number is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Replayed {
    /// Number zero is never sent.
    #[error("sequence number zero")]
    Zero,
    /// Further behind the newest packet than the window is wide.
    #[error("sequence number older than the replay window")]
    TooOld,
    /// Seen before.
    #[error("sequence number seen before")]
    Duplicate,
}

/// Remembers which sequence numbers were accepted.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    words: Box<[u64]>,
    size: u64,
    /// The highest number accepted so far; zero before the first.
    top: u64,
    extended: bool,
}

impl ReplayWindow {
    /// A window of `size` packets, rounded up to a multiple of 64 within
    /// [`MIN_WINDOW`]..=[`MAX_WINDOW`].
    pub fn new(size: u32, extended: bool) -> Self {
        let size = size.clamp(MIN_WINDOW, MAX_WINDOW).next_multiple_of(64);
        let words = vec![0; size as usize / 64 + 1].into_boxed_slice();
        Self {
            words,
            size: u64::from(size),
            top: 0,
            extended,
        }
    }

    /// No window, in the place of one that is elsewhere: refuses everything.
    pub(crate) fn absent() -> Self {
        Self {
            words: Box::default(),
            size: 0,
            top: u64::MAX,
            extended: false,
        }
    }

    /// Packets the window is wide.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The highest number accepted so far; zero before the first.
    pub const fn top(&self) -> u64 {
        self.top
    }

    /// The whole sequence number of a packet that carries `low` (RFC 4303 appendix A2.2). None where
    /// that number would lie before the first.
    pub fn infer(&self, low: u32) -> Option<u64> {
        if !self.extended {
            return Some(u64::from(low));
        }
        // The window's lower edge as it would be without an end at zero.
        let edge = self.top.wrapping_sub(self.size).wrapping_add(1);
        let high = self.top >> 32;
        let number = (high << 32) | u64::from(low);
        if self.top & 0xFFFF_FFFF >= self.size - 1 {
            // The window lies within one round of the lower half: what is below is of the next.
            if u64::from(low) >= edge & 0xFFFF_FFFF {
                return Some(number);
            }
            return number.checked_add(1 << 32);
        }
        // The window reaches back into the round before.
        if u64::from(low) >= edge & 0xFFFF_FFFF {
            return number.checked_sub(1 << 32);
        }
        Some(number)
    }

    /// Whether a packet with this number may be new. Changes nothing: the packet is not verified yet.
    ///
    /// # Errors
    /// [`Replayed`] says why not.
    pub fn check(&self, sequence: u64) -> Result<(), Replayed> {
        if sequence == 0 {
            return Err(Replayed::Zero);
        }
        if sequence > self.top {
            return Ok(());
        }
        if self.top - sequence >= self.size {
            return Err(Replayed::TooOld);
        }
        let (word, bit) = self.place(sequence);
        if self.words.get(word).is_some_and(|word| word & bit != 0) {
            return Err(Replayed::Duplicate);
        }
        Ok(())
    }

    /// Marks a number as seen and moves the window; only for packets whose integrity value matched.
    ///
    /// # Errors
    /// As [`check`](Self::check), which it repeats: an equal packet may have been accepted since.
    pub fn accept(&mut self, sequence: u64) -> Result<(), Replayed> {
        self.check(sequence)?;
        if sequence > self.top {
            self.forget(sequence);
            self.top = sequence;
        }
        let (word, bit) = self.place(sequence);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
        Ok(())
    }

    /// Clears the words between the old top's and the new one's.
    fn forget(&mut self, sequence: u64) {
        let count = self.words.len() as u64;
        let (old, new) = (self.top / 64, sequence / 64);
        for word in (old + 1..=new).rev().take(self.words.len()) {
            let index = usize::try_from(word % count).unwrap_or(0);
            if let Some(word) = self.words.get_mut(index) {
                *word = 0;
            }
        }
    }

    fn place(&self, sequence: u64) -> (usize, u64) {
        let word = (sequence / 64) % self.words.len() as u64;
        (usize::try_from(word).unwrap_or(0), 1 << (sequence % 64))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The same rules over a plain set.
    struct Model {
        seen: BTreeSet<u64>,
        size: u64,
    }

    impl Model {
        fn accept(&mut self, sequence: u64) -> Result<(), Replayed> {
            let top = self.seen.last().copied().unwrap_or(0);
            if sequence == 0 {
                Err(Replayed::Zero)
            } else if sequence + self.size <= top {
                Err(Replayed::TooOld)
            } else if !self.seen.insert(sequence) {
                Err(Replayed::Duplicate)
            } else {
                Ok(())
            }
        }
    }

    #[test]
    fn size_is_rounded_within_bounds() {
        for (asked, given) in [
            (0, 64),
            (64, 64),
            (65, 128),
            (4096, 4096),
            (u32::MAX, 1 << 20),
        ] {
            assert_eq!(ReplayWindow::new(asked, false).size(), given);
        }
    }

    #[test]
    fn edges_of_the_window() {
        let mut window = ReplayWindow::new(64, false);
        assert_eq!(window.accept(0), Err(Replayed::Zero));
        window.accept(100).unwrap();
        assert_eq!(window.accept(100), Err(Replayed::Duplicate));
        assert_eq!(window.accept(36), Err(Replayed::TooOld));
        window.accept(37).unwrap();
        assert_eq!(window.accept(37), Err(Replayed::Duplicate));
        window.accept(u64::from(u32::MAX)).unwrap();
        assert_eq!(window.accept(100), Err(Replayed::TooOld));
        window.accept(u64::from(u32::MAX) - 63).unwrap();
    }

    /// All short sequences of small steps: every state of a 64-packet window's edge is met.
    #[test]
    fn exhaustive_short_histories() {
        let steps: [i64; 8] = [1, 2, 63, 64, 65, 128, -1, -63];
        for history in 0..8_u32.pow(5) {
            let mut window = ReplayWindow::new(64, true);
            let mut model = Model {
                seen: BTreeSet::new(),
                size: 64,
            };
            let (mut history, mut at) = (history, 70_i64);
            for _ in 0..5 {
                at = (at + steps[history as usize % 8]).max(0);
                history /= 8;
                let sequence = at as u64;
                assert_eq!(
                    window.accept(sequence),
                    model.accept(sequence),
                    "at {sequence}"
                );
            }
        }
    }

    /// A window of any size up to 64, which the public constructor rounds up, after one packet.
    fn window_of(size: u64, first: u64) -> ReplayWindow {
        let mut window = ReplayWindow {
            words: vec![0; 2].into_boxed_slice(),
            size,
            top: 0,
            extended: true,
        };
        window.accept(first).unwrap();
        window
    }

    /// Bit n is number `base + n`: all that was accepted.
    fn judge(seen: u128, base: u64, size: u64, sequence: u64) -> Result<(), Replayed> {
        let top = base + u64::from(127 - seen.leading_zeros().min(127));
        if sequence + size <= top {
            Err(Replayed::TooOld)
        } else if seen & (1 << (sequence - base)) != 0 {
            Err(Replayed::Duplicate)
        } else {
            Ok(())
        }
    }

    /// Tries every number on every window that can be reached by `depth` accepted ones.
    fn explore(window: &ReplayWindow, seen: u128, numbers: &[u64], depth: u32, tried: &mut u64) {
        let base = numbers[0];
        for number in numbers {
            let expected = judge(seen, base, window.size, *number);
            assert_eq!(
                window.check(*number),
                expected,
                "{number} after {seen:b} from {base}"
            );
            *tried += 1;
            if depth > 0 && expected.is_ok() {
                let mut next = window.clone();
                assert_eq!(next.accept(*number), Ok(()));
                explore(
                    &next,
                    seen | 1 << (number - base),
                    numbers,
                    depth - 1,
                    tried,
                );
            }
        }
    }

    /// Every history of up to five numbers out of ten in a row, across the edge of a word of the
    /// ring, for every window up to ten wide.
    #[test]
    fn exhaustive_histories_of_narrow_windows() {
        let numbers: Vec<u64> = (60..70).collect();
        let mut tried = 0;
        for size in 1..=10 {
            explore(&window_of(size, 60), 1, &numbers, 5, &mut tried);
        }
        assert!(tried > 500_000, "{tried}");
    }

    /// For every width up to 64, every history of three numbers around all edges that there are: of
    /// the window, of the words, and of two windows after another.
    #[test]
    fn exhaustive_edges_of_every_width() {
        let mut tried = 0;
        for size in 1..=64 {
            let mut numbers: Vec<u64> = vec![64];
            for edge in [size, 2 * size, 64_u64] {
                numbers.extend((edge.saturating_sub(2)..edge + 2).map(|n| 64 + n.min(127)));
            }
            numbers.sort_unstable();
            numbers.dedup();
            explore(&window_of(size, 64), 1, &numbers, 3, &mut tried);
        }
        assert!(tried > 200_000, "{tried}");
    }

    proptest! {
        #[test]
        fn equals_a_set(
            size in 1_u32..600,
            start in prop::sample::select(vec![1_u64, 60, u64::from(u32::MAX) - 300]),
            steps in prop::collection::vec(-700_i64..700, 1..300),
        ) {
            let mut window = ReplayWindow::new(size, true);
            let mut model = Model { seen: BTreeSet::new(), size: window.size() };
            let mut at = start;
            for step in steps {
                at = at.saturating_add_signed(step);
                prop_assert_eq!(window.accept(at), model.accept(at));
            }
        }

        /// A receiver that is at most half a round away finds the sender's whole number.
        #[test]
        fn infers_the_upper_half(
            top in prop_oneof![1_u64..5000, (1_u64 << 32) - 5000..(1_u64 << 32) + 5000, 1_u64 << 40..1_u64 << 41],
            ahead in prop_oneof![-63_i64..200, 0_i64..(1 << 31)],
        ) {
            let mut window = ReplayWindow::new(64, true);
            window.accept(top).unwrap();
            let sent = top.saturating_add_signed(ahead);
            let low = u32::try_from(sent & 0xFFFF_FFFF).unwrap();
            prop_assert_eq!(window.infer(low), Some(sent));
        }
    }

    #[test]
    fn numbers_before_the_first_round_are_refused() {
        let mut window = ReplayWindow::new(64, true);
        assert_eq!(window.infer(5), Some(5));
        window.accept(10).unwrap();
        assert_eq!(window.infer(u32::MAX), None);
    }
}
