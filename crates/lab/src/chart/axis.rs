//! Where values lie, and which round numbers stand beside them.

/// Ticks of a logarithmic axis at most; beyond that only powers of ten are shown.
const LOGARITHMIC_TICKS: usize = 8;
/// Parts into which ticks divide a linear axis, about.
const PARTS: f64 = 5.0;

/// A map from values to places between 0 and 1.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
}

#[derive(Clone, Copy, Debug)]
enum Scale {
    Linear {
        /// From one tick to the next.
        step: f64,
    },
    Logarithmic,
}

impl Axis {
    /// An axis that ends at round numbers, which enclose `low` and `high`.
    #[must_use]
    pub fn rounded(low: f64, high: f64) -> Self {
        let span = if high > low { high - low } else { 1.0 };
        let step = round_step(span / PARTS);
        let low = (low / step).floor() * step;
        let high = (high / step).ceil() * step;
        Self {
            low,
            high: if high > low { high } else { low + step },
            scale: Scale::Linear { step },
        }
    }

    /// An axis from 0 to the greatest of `values`. Nothing without values.
    pub fn linear(values: impl Iterator<Item = f64>) -> Option<Self> {
        let high = values.filter(|v| v.is_finite()).reduce(f64::max)?;
        let high = if high > 0.0 { high } else { 1.0 };
        let step = round_step(high / PARTS);
        Some(Self {
            low: 0.0,
            high,
            scale: Scale::Linear { step },
        })
    }

    /// An axis from the least to the greatest of `values`, of which only those above 0 count. Nothing
    /// without any.
    pub fn logarithmic(values: impl Iterator<Item = f64>) -> Option<Self> {
        let usable = values.filter(|v| v.is_finite() && *v > 0.0);
        let (low, high) = usable.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), v| {
            (low.min(v), high.max(v))
        });
        (high > 0.0).then_some(Self {
            low,
            high: if high > low { high } else { low + 1.0 },
            scale: Scale::Logarithmic,
        })
    }

    /// The place of a value; values beyond an end are at that end.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| match self.scale {
            Scale::Linear { .. } => value,
            Scale::Logarithmic => value.max(f64::MIN_POSITIVE).ln(),
        };
        let (low, high) = (scaled(self.low), scaled(self.high));
        let place = (scaled(value) - low) / (high - low);
        // NaN has no place on the axis; at the start it is easiest to see.
        if place.is_nan() {
            0.0
        } else {
            place.clamp(0.0, 1.0)
        }
    }

    /// Round numbers on the axis, upwards.
    #[must_use]
    pub fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear { step } => {
                let from = (self.low / step).ceil();
                let ticks = (0..=20_u8).map(|index| (from + f64::from(index)) * step);
                ticks
                    .take_while(|tick| *tick <= self.high + step / 1000.0)
                    .collect()
            }
            Scale::Logarithmic => {
                let decades = (-9..=12).map(|exponent| 10_f64.powi(exponent));
                let within = |tick: &f64| (self.low..=self.high).contains(tick);
                let fine = decades.clone().flat_map(|d| [d, 2.0 * d, 5.0 * d]);
                let fine: Vec<f64> = fine.filter(within).collect();
                if fine.len() <= LOGARITHMIC_TICKS {
                    fine
                } else {
                    decades.filter(within).collect()
                }
            }
        }
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not below `rough`.
fn round_step(rough: f64) -> f64 {
    let rough = rough.max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    // 0.6 / 3 is a little more than 0.2.
    let fits = |factor: &f64| factor * power >= rough * 0.999;
    let factor = [1.0, 2.0, 5.0].into_iter().find(fits);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::number::number;

    fn ticks(axis: Axis) -> Vec<String> {
        axis.ticks().into_iter().map(number).collect()
    }

    #[test]
    fn rounded_axis_encloses_the_values() {
        assert_eq!(ticks(Axis::rounded(0.0, 3.061)), ["0", "1", "2", "3", "4"]);
        let negative = ticks(Axis::rounded(-40.1, 0.0));
        assert_eq!(negative, ["-50", "-40", "-30", "-20", "-10", "0"]);
        let small = ticks(Axis::rounded(0.0, 0.03));
        assert_eq!(small, ["0", "0.01", "0.02", "0.03"]);
        assert_eq!(Axis::rounded(5.0, 5.0).ticks().first(), Some(&5.0));
    }

    #[test]
    fn axis_over_values_has_round_ticks_within() {
        let linear = Axis::linear([0.3, 3.06].into_iter()).unwrap();
        assert_eq!(linear.ticks(), [0.0, 1.0, 2.0, 3.0]);
        let logarithmic = Axis::logarithmic([16.0, 65_000.0, 0.0].into_iter()).unwrap();
        assert_eq!(logarithmic.ticks(), [100.0, 1000.0, 10_000.0]);
        assert!((logarithmic.place(16.0), logarithmic.place(65_000.0)) == (0.0, 1.0));
        let narrow = Axis::logarithmic([20.0, 70.0].into_iter()).unwrap();
        assert_eq!(narrow.ticks(), [20.0, 50.0]);
        assert!(Axis::linear(std::iter::empty()).is_none());
        assert!(Axis::logarithmic([0.0, -1.0, f64::NAN].into_iter()).is_none());
    }

    #[test]
    fn place_of_any_value_is_between_0_and_1() {
        let axes = [
            Axis::rounded(-3.0, 7.0),
            Axis::linear([0.0].into_iter()).unwrap(),
            Axis::logarithmic([5.0].into_iter()).unwrap(),
        ];
        for axis in axes {
            for value in [f64::NEG_INFINITY, -1.0, 0.0, 5.0, f64::INFINITY, f64::NAN] {
                let place = axis.place(value);
                assert!((0.0..=1.0).contains(&place), "{axis:?} {value} {place}");
            }
        }
    }
}
