//! Sizes from which a device is quicker than software.

use std::time::Duration;

/// Sizes in bytes at which both are measured. A message counts to the largest one that it reaches.
pub const SIZES: [usize; 6] = [64, 256, 1024, 4096, 16_384, 65_536];

// Our choices.
/// The device is taken when it needs less than this share of software's time, in percent: two
/// measurements of the same thing differ by about as much as is missing to 100.
const ENTER: u32 = 80;
/// Parts of the old value in a moving average: one slow request turns nothing around.
const MEMORY: u32 = 7;

/// Time that a caller waits for a message of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of the message.
    pub size: usize,
    /// With software; none before it was measured.
    pub software: Option<Duration>,
    /// With the device; none if it was not measured.
    pub device: Option<Duration>,
}

/// Costs of one thing to do, and which of both does it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) software: Option<Duration>,
    pub(crate) device: Option<Duration>,
    /// The device is the quicker one.
    pub(crate) quicker: bool,
}

impl Choice {
    /// Takes measured costs over and decides.
    pub(crate) fn measured(&mut self, software: Duration, device: Duration) {
        self.software = Some(software);
        self.device = Some(device);
        self.decide();
    }

    /// Takes the time over that the device needed once more.
    pub(crate) fn observe(&mut self, took: Duration) {
        self.device = self.device.map(|old| (old * MEMORY + took) / (MEMORY + 1));
        self.decide();
    }

    /// Between the two bounds it stays as it was.
    fn decide(&mut self) {
        let (Some(software), Some(device)) = (self.software, self.device) else {
            return;
        };
        if device * 100 < software * ENTER {
            self.quicker = true;
        } else if device > software {
            self.quicker = false;
        }
    }
}

/// Costs of one operation, and the size from which the device is taken.
#[derive(Default)]
pub(crate) struct BreakEven([Choice; SIZES.len()]);

impl BreakEven {
    pub(crate) fn costs(&self) -> [Cost; SIZES.len()] {
        std::array::from_fn(|index| {
            let choice = self.0.get(index).copied().unwrap_or_default();
            Cost {
                size: SIZES.get(index).copied().unwrap_or_default(),
                software: choice.software,
                device: choice.device,
            }
        })
    }

    /// Takes the measured cost of a size over and decides for it.
    pub(crate) fn measured(&mut self, index: usize, software: Duration, device: Duration) {
        if let Some(choice) = self.0.get_mut(index) {
            choice.measured(software, device);
        }
    }

    /// Takes the time over that the device needed for a message of `len` bytes.
    pub(crate) fn observe(&mut self, len: usize, took: Duration) {
        let index = SIZES.iter().rposition(|&size| size <= len);
        let Some((index, size)) = index.and_then(|index| Some((index, SIZES.get(index)?))) else {
            return;
        };
        if let Some(choice) = self.0.get_mut(index) {
            // A message between two sizes counts as much as one of the lower size. No duration of a
            // request is near a 2^32nd of what this can hold.
            choice.observe(took.mul_f64(*size as f64 / len as f64));
        }
    }

    /// The least size from which the device is quicker at every measured size; none if it is not so
    /// at the largest.
    pub(crate) fn from(&self) -> Option<usize> {
        let slower = self.0.iter().rposition(|choice| !choice.quicker);
        SIZES.get(slower.map_or(0, |index| index + 1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    /// Software takes a nanosecond a byte, the device 2000 and a quarter of a nanosecond a byte.
    fn measured() -> BreakEven {
        let mut table = BreakEven::default();
        for (index, size) in SIZES.into_iter().enumerate() {
            let size = size as u64;
            table.measured(index, nanos(size), nanos(2000 + size / 4));
        }
        table
    }

    #[test]
    fn break_even_lies_where_the_device_becomes_quicker() {
        assert_eq!(BreakEven::default().from(), None);
        assert_eq!(measured().from(), Some(4096));
    }

    #[test]
    fn a_device_that_is_slower_at_the_largest_size_is_not_taken() {
        let mut table = measured();
        table.measured(SIZES.len() - 1, nanos(100), nanos(101));
        assert_eq!(table.from(), None);
        // A gap in the middle: only what lies above it counts.
        let mut table = measured();
        table.measured(4, nanos(100), nanos(101));
        assert_eq!(table.from(), Some(65_536));
    }

    #[test]
    fn between_the_bounds_the_choice_stays() {
        let mut table = measured();
        for _ in 0..100 {
            table.observe(4096, nanos(4000));
        }
        assert_eq!(
            table.from(),
            Some(4096),
            "slower than 80 % of software, and taken"
        );
        for _ in 0..100 {
            table.observe(4096, nanos(4200));
        }
        assert_eq!(table.from(), Some(16_384));
        for _ in 0..100 {
            table.observe(4096, nanos(3400));
        }
        assert_eq!(table.from(), Some(16_384), "quicker, and not by enough");
        for _ in 0..100 {
            table.observe(4096, nanos(3200));
        }
        assert_eq!(table.from(), Some(4096));
    }

    #[test]
    fn one_slow_request_changes_nothing() {
        let mut table = measured();
        table.observe(16_384, nanos(30_000));
        assert_eq!(table.from(), Some(4096));
        // Less than the smallest size counts nowhere.
        table.observe(63, Duration::MAX);
        table.observe(0, Duration::MAX);
        assert_eq!(table.from(), Some(4096));
    }

    #[test]
    fn sizes_between_are_scaled() {
        let mut table = measured();
        for _ in 0..100 {
            table.observe(8192, nanos(6000));
        }
        let device = table.costs()[3].device.unwrap();
        assert!(device.as_nanos().abs_diff(3000) < 30, "{device:?}");
    }
}
