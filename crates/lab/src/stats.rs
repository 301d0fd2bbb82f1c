//! Medians and ranges. The range of values is the least and the greatest of the rounds: with the few
//! rounds that fit a patient reader's time nothing finer can be said honestly. That of ratios, which
//! another run is to confirm, is wider ([`ratio_interval`]).

use crate::record::Interval;

/// Median, least and greatest of some values; nothing of none. Values that are not numbers are left out.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> Option<Interval> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (*values.first()?, *values.last()?);
    Some(Interval {
        median: median(&values)?,
        low,
        high,
    })
}

/// Median of ratios, and the interval that another run's interval has to meet.
///
/// The least and the greatest of `n` rounds miss those of another `n` by chance: in a tenth of all cases
/// with three rounds, in one of 120 with five, and a run has hundreds of ratios. So the interval reaches
/// further on both sides, by 2/(n - 1) of its width (on a logarithmic scale): then, whatever the
/// distribution, at most one in 300 misses with three rounds, one in several thousand with five. And by
/// `resolution`, relative, below which the measurement cannot tell. One round alone knows no range: a
/// factor of two is taken.
pub(crate) fn ratio_interval(
    values: impl IntoIterator<Item = f64>,
    resolution: f64,
) -> Option<Interval> {
    let values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    let range = range(values.iter().copied())?;
    let (low, high) = match values.len() {
        0 | 1 => (range.low / 2.0, range.high * 2.0),
        count => {
            let share = 2.0 / (count as f64 - 1.0);
            if range.low > 0.0 {
                let further = (range.high / range.low).powf(share);
                (range.low / further, range.high * further)
            } else {
                let further = (range.high - range.low) * share;
                ((range.low - further).max(0.0), range.high + further)
            }
        }
    };
    Some(Interval {
        low: low / (1.0 + resolution),
        high: high * (1.0 + resolution),
        ..range
    })
}

/// Median of sorted values.
fn median(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(half.checked_sub(1)?)?;
    Some(lower.midpoint(upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stated_reaches_further_with_fewer_rounds() {
        let of =
            |values: &[f64]| ratio_interval(values.iter().copied(), 0.0).map(|s| (s.low, s.high));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some((1.5, 6.0)));
        // Twice, once, half of the width to each side.
        assert_eq!(of(&[1.0, 2.0]), Some((0.25, 8.0)));
        assert_eq!(of(&[1.0, 2.0, 1.5]), Some((0.5, 4.0)));
        assert_eq!(of(&[1.0, 4.0, 2.0, 2.0, 2.0]), Some((0.5, 8.0)));
        assert_eq!(of(&[0.0, 1.0, 0.5]), Some((0.0, 2.0)));
        let fine = ratio_interval([2.0, 2.0], 0.25).unwrap();
        assert_eq!((fine.median, fine.low, fine.high), (2.0, 1.6, 2.5));
    }

    /// Seeded rounds of a skewed distribution: two runs of five miss each other hardly ever, and by the
    /// bare ranges often.
    #[test]
    fn two_runs_of_the_same_agree() {
        let mut state = 7_u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let uniform = ((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
            // Ten per cent beyond the least, seldom much more.
            1.0 - 0.1 * uniform.ln()
        };
        let (mut missed, mut bare) = (0, 0);
        for _ in 0..20_000 {
            let runs: [Vec<f64>; 2] = std::array::from_fn(|_| (0..5).map(|_| draw()).collect());
            let apart = |a: Interval, b: Interval| u32::from(a.low > b.high || b.low > a.high);
            let [one, two] = runs.clone().map(|run| ratio_interval(run, 0.0).unwrap());
            missed += apart(one, two);
            let [one, two] = runs.map(|run| range(run).unwrap());
            bare += apart(one, two);
        }
        assert!(missed <= 8 && bare > 80, "{missed} {bare}");
    }

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        let of = |values: &[f64]| range(values.iter().copied());
        assert_eq!(of(&[]), None);
        let odd = of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.low, odd.high), (2.0, 1.0, 3.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(of(&[f64::NAN, 7.0]).unwrap().median, 7.0);
    }
}
