//! How long short calls take.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::LabError;
use crate::experiments::OPENSSL;
use crate::process::{Call, Usage};
use crate::stats::range;

/// Nanoseconds of one call of `run`: the median of many slices, because other work on the machine
/// interrupts some of them.
pub(super) fn nanoseconds(budget: Duration, mut run: impl FnMut()) -> f64 {
    run();
    // Slices are long beside the clock's step.
    let trial = Instant::now();
    run();
    let one = trial.elapsed().max(Duration::from_nanos(1));
    let calls = (20_000 / one.as_nanos().max(1)).clamp(1, 1000);
    let mut slices = Vec::new();
    let began = Instant::now();
    while began.elapsed() < budget || slices.len() < 5 {
        let slice = Instant::now();
        for _ in 0..calls {
            run();
        }
        slices.push(slice.elapsed().as_nanos() as f64 / calls as f64);
    }
    black_box(&mut run);
    range(slices).map_or(f64::NAN, |spread| spread.median)
}

/// Bytes per second of `openssl speed` in processor time, with requests of `bytes`.
///
/// With `aead` a request is a whole message with its integrity value.
pub(super) fn openssl_speed(
    cipher: &str,
    aead: bool,
    bytes: usize,
) -> Result<(f64, Usage), LabError> {
    let program = OPENSSL.path().unwrap_or_else(|| OPENSSL.name.into());
    let done = Call::new(program)
        .args([
            "speed",
            "-mr",
            "-seconds",
            "1",
            "-bytes",
            &bytes.to_string(),
        ])
        .args(aead.then_some("-aead"))
        .args(["-evp", cipher])
        .run()?;
    let value = done.stdout.lines().find_map(|line| {
        let fields = line.strip_prefix("+F:")?;
        fields.rsplit(':').next()?.parse().ok()
    });
    let value = value.ok_or_else(|| {
        LabError::Unexpected(format!("openssl speed gave no figure for {cipher}"))
    })?;
    Ok((value, done.usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_takes_as_long_as_it_says() {
        let pause = || std::thread::sleep(Duration::from_millis(2));
        let time = nanoseconds(Duration::from_millis(20), pause);
        assert!((2e6..2e7).contains(&time), "{time}");
    }
}
