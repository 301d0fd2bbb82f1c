//! When requests are repeated that nobody answers, and how often.

use std::ops::RangeInclusive;
use std::time::Duration;

use ikev2::Limits;
use ikev2::config::Retransmission;
use serde::Deserialize;

// Our choice. A shorter wait than a tenth of a second would repeat what is still on its way on most bearers, and
// add to what a slow one has to carry; a minute is more than the round trip of any.
const TIMEOUT: RangeInclusive<f64> = 0.1..=60.0;
// RFC 7296 §2.1 asks for waits that grow; 1 is for bearers that lose much and are not full.
const FACTOR: RangeInclusive<f64> = 1.0..=10.0;
const LONGEST_LIMIT: f64 = 300.0;
const TRIES: RangeInclusive<u32> = 1..=30;
/// Time after which a peer that is silent must be known as gone: until then its routes stay.
const LONGEST: Duration = Duration::from_secs(3600);

/// Times of the requests of a connection.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "Written")]
pub struct RetransmissionConfig(Retransmission);

impl RetransmissionConfig {
    pub(crate) const fn times(self) -> Retransmission {
        self.0
    }
}

/// As it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    /// Seconds before the first retransmission.
    timeout: f64,
    /// Each further wait is as many times as long as the one before.
    factor: f64,
    /// Seconds of the longest wait.
    limit: f64,
    /// Retransmissions after which the peer counts as gone.
    tries: u32,
}

impl Default for Written {
    fn default() -> Self {
        let usual = Limits::default().retransmission();
        Self {
            timeout: usual.timeout.as_secs_f64(),
            factor: f64::from(usual.factor) / 100.0,
            limit: usual.limit.as_secs_f64(),
            tries: usual.transmissions.saturating_sub(1),
        }
    }
}

impl TryFrom<Written> for RetransmissionConfig {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        let Written {
            timeout,
            factor,
            limit,
            tries,
        } = written;
        // What is not a number is in no range.
        if !TIMEOUT.contains(&timeout) {
            return Err("`timeout` is a number of seconds from 0.1 to 60");
        }
        if !FACTOR.contains(&factor) {
            return Err("`factor` is a number from 1 to 10");
        }
        if !(timeout..=LONGEST_LIMIT).contains(&limit) {
            return Err("`limit` is a number of seconds from `timeout` to 300");
        }
        if !TRIES.contains(&tries) {
            return Err("`tries` is a number from 1 to 30");
        }
        let times = Retransmission {
            timeout: Duration::from_secs_f64(timeout),
            factor: hundredths(factor),
            limit: Duration::from_secs_f64(limit),
            transmissions: tries.saturating_add(1),
        };
        if times.total() > LONGEST {
            return Err("a silent peer would count as gone after more than an hour only");
        }
        Ok(Self(times))
    }
}

/// In whole hundredths; the factor is within its bounds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 100 to 1000"
)]
fn hundredths(factor: f64) -> u32 {
    (factor * 100.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<RetransmissionConfig, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let times = of("").unwrap().times();
        assert_eq!(times, Limits::default().retransmission());
        // As docs/tunnels/settings.md says.
        assert_eq!(times.total(), Duration::from_millis(79_500));
    }

    #[test]
    fn times_are_held_against_their_bounds() {
        for good in [
            "timeout = 0.1",
            "timeout = 60\nlimit = 60",
            "factor = 1",
            "factor = 10.0",
            "limit = 0.5",
            "limit = 300",
            "tries = 1",
            "tries = 30",
        ] {
            assert!(of(good).is_ok(), "{good}");
        }
        for bad in [
            "timeout = 0.09",
            "timeout = 61\nlimit = 100",
            "timeout = -1",
            "timeout = nan",
            "factor = 0.99",
            "factor = 10.1",
            "limit = 0.49",
            "limit = 301",
            "limit = inf",
            "tries = 0",
            "tries = 31",
            "tries = 1.5",
            // 30 times five minutes.
            "timeout = 60\nlimit = 300\ntries = 30",
            "wait = 1",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
