//! Medians and spreads. The spread is always the least and the greatest of the rounds: with the few
//! rounds that fit a patient reader's time nothing finer can be said honestly.

use crate::record::Spread;

/// Median, least and greatest of some values; nothing of none. Values that are not numbers are left out.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (*values.first()?, *values.last()?);
    Some(Spread {
        median: middle(&values)?,
        low,
        high,
    })
}

/// The middle of sorted values, or between the two middle ones.
fn middle(sorted: &[f64]) -> Option<f64> {
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
    fn the_middle_of_an_even_number_lies_between_two() {
        let of = |values: &[f64]| spread(values.iter().copied());
        assert_eq!(of(&[]), None);
        let odd = of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.low, odd.high), (2.0, 1.0, 3.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(of(&[f64::NAN, 7.0]).unwrap().median, 7.0);
    }
}
