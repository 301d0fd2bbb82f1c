//! The replay window against a set of all numbers ever accepted (RFC 4303 §3.4.3), and the inference
//! of the upper half (appendix A2.2) against the number that the sender meant.

use std::collections::BTreeSet;

use ipsec::replay::{ReplayWindow, Replayed};

struct Model {
    seen: BTreeSet<u64>,
    size: u64,
}

impl Model {
    fn top(&self) -> u64 {
        self.seen.last().copied().unwrap_or(0)
    }

    fn judge(&self, sequence: u64) -> Result<(), Replayed> {
        if sequence == 0 {
            Err(Replayed::Zero)
        } else if u128::from(sequence) + u128::from(self.size) <= u128::from(self.top()) {
            Err(Replayed::TooOld)
        } else if self.seen.contains(&sequence) {
            Err(Replayed::Duplicate)
        } else {
            Ok(())
        }
    }
}

/// Runs the target on one input.
///
/// # Panics
/// When the property does not hold.
pub fn run(input: &[u8]) {
    let Some((shape, mut rest)) = input.split_first() else {
        return;
    };
    let extended = shape & 1 != 0;
    let sizes = [1, 64, 65, 128, 500, 1024, 4096, u32::MAX];
    let size = sizes[usize::from(shape >> 1 & 7)];
    let mut window = ReplayWindow::new(size, extended);
    let limit = if extended {
        u64::MAX
    } else {
        u64::from(u32::MAX)
    };
    let mut model = Model {
        seen: BTreeSet::new(),
        size: window.size(),
    };
    assert!(model.size >= u64::from(size.min(1 << 20)));
    // Near the ends of rounds, where mistakes would hide.
    let starts = [0, (1 << 32) - 300, (1 << 33) - 3, u64::MAX - 2000];
    let mut at = starts[usize::from(shape >> 4 & 3)].min(limit);
    if at != 0 {
        assert_eq!(window.accept(at), Ok(()));
        model.seen.insert(at);
    }
    // Each step: how far, in which scale and direction, and whether the packet verifies.
    while let [kind, low, high, tail @ ..] = rest {
        rest = tail;
        let distance = u64::from(u16::from_le_bytes([*low, *high]))
            << [0, 0, 3, 16][usize::from(kind >> 1 & 3)];
        at = match kind & 9 {
            1 => model.top().saturating_sub(distance),
            0 => model.top().saturating_add(distance).min(limit),
            // The edges of the window, give or take the distance's lowest bits.
            8 => model
                .top()
                .saturating_sub(model.size - 1)
                .saturating_add(distance & 3)
                .min(limit),
            _ => at.saturating_sub(distance & 3),
        };
        let expected = model.judge(at);
        assert_eq!(window.check(at), expected, "{at} after {}", model.top());
        let verifies = kind & 16 != 0;
        if verifies {
            assert_eq!(window.accept(at), expected, "{at} after {}", model.top());
            if expected.is_ok() {
                model.seen.insert(at);
            }
        }
        assert_eq!(
            window.top(),
            model.top(),
            "only a verified packet moves the window"
        );
        // A packet from within the window up to half of a round ahead is understood as it was meant.
        let from = model.top().saturating_sub(model.size - 1).max(1);
        if extended && at >= from && at - model.top().min(at) < 1 << 31 {
            assert_eq!(window.infer((at & 0xFFFF_FFFF) as u32), Some(at));
        }
    }
}
