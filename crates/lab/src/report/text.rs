//! Measurements as people read them.

pub(crate) use crate::chart::number;

use crate::record::Interval;

/// Median, and the range where there is one.
pub(crate) fn interval(interval: &Interval) -> String {
    let (median, low, high) = (
        number(interval.median),
        number(interval.low),
        number(interval.high),
    );
    if low == high {
        median
    } else {
        format!("{median} ({low} … {high})")
    }
}

/// Minutes and seconds.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        return format!("{seconds:.0} s");
    }
    format!(
        "{:.0} min {:.0} s",
        (seconds / 60.0).floor(),
        seconds % 60.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_minutes_from_two_on() {
        assert_eq!(duration(119.4), "119 s");
        assert_eq!(duration(125.0), "2 min 5 s");
    }
}
