//! The site's floor under the clock, in `DIR/last-time`.
//!
//! A clock that went back, for want of a battery or because a person set it, stops nothing and harms nothing:
//! the site starts, says so in log and `/healthz`, and issues nothing and settles no block until the
//! clock is past the latest time that was known. Cameras keep what they have meanwhile.
//!
//! The floor rises only while wall clock and monotonic clock have agreed for an hour: a passing jump ahead
//! must not stand in the way once it is corrected.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use audit::SharedLog;
use event_catalogue::Recorded as _;
use event_catalogue::site::ClockAccepted;
use store::ClockFloor;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;

use crate::failure::{OrHint as _, Outcome};

/// Interval between comparisons of the clocks and, once they agree, writes of the time.
const EVERY: Duration = Duration::from_secs(60);
/// Time for which they must have agreed.
const STEADY: Duration = Duration::from_secs(3_600);
/// Difference between the clocks that counts as a jump.
const JUMP: time::Duration = time::Duration::seconds(30);

fn path(data: &Path) -> PathBuf {
    data.join("last-time")
}

/// Reads the floor: the latest time written down, and the making of the site. A root list that cannot be
/// read stops the start elsewhere.
pub fn floor(data: &Path) -> Outcome<ClockFloor> {
    let floor = ClockFloor::default();
    let path = path(data);
    let what = || format!("cannot read {}", path.display());
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let at = OffsetDateTime::parse(text.trim(), &Rfc3339);
            floor.raise(at.or_hint(what(), "`cordon audit accept-clock` writes it anew")?);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).or_hint(what(), "check the folder's rights and its disk"),
    }
    // The root's list is as old as the site, or as the last act of the root's key. The other lists do
    // not count: a clock that was ahead for a night would be the floor from then on.
    if let Ok(der) = std::fs::read(data.join("pki/crl/root.crl"))
        && let Ok(list) = pki::crl::parse(&der)
    {
        floor.raise(list.tbs_cert_list.this_update.to_system_time().into());
    }
    Ok(floor)
}

fn write(data: &Path, at: OffsetDateTime) -> Outcome {
    let path = path(data);
    let text = at.format(&Rfc3339).or_hint("the time", "report this")?;
    durable::write_atomic(&path, text.as_bytes(), 0o600).or_hint(
        format!("cannot write {}", path.display()),
        "make room on the disk",
    )
}

/// Lets a site continue whose floor is wrong because its clock was ahead; recorded first.
pub fn accept(data: &Path, audit: &SharedLog, reason: &str) -> Outcome {
    let now = OffsetDateTime::now_utc();
    let before = floor(data).ok().and_then(|floor| floor.known());
    let floor = before.map(OffsetDateTime::unix_timestamp);
    let event = ClockAccepted { floor }
        .into_event(now, crate::console::this_process(), "site/clock")
        .with_reason(reason);
    let recorded = crate::parts::role(audit, "site")?.record(event);
    recorded.or_hint("the event cannot be recorded", "make room on the disk")?;
    write(data, now)
}

/// Whether the two clocks have agreed for long enough.
struct Steadiness {
    monotonic: Instant,
    wall: OffsetDateTime,
    since: Instant,
}

impl Steadiness {
    fn new(monotonic: Instant, wall: OffsetDateTime) -> Self {
        Self {
            monotonic,
            wall,
            since: monotonic,
        }
    }

    fn look(&mut self, monotonic: Instant, wall: OffsetDateTime) -> bool {
        let passed = monotonic.saturating_duration_since(self.monotonic);
        let passed = time::Duration::try_from(passed).unwrap_or(time::Duration::MAX);
        if (wall - self.wall - passed).abs() > JUMP {
            self.since = monotonic;
        }
        (self.monotonic, self.wall) = (monotonic, wall);
        monotonic.saturating_duration_since(self.since) >= STEADY
    }
}

/// Raises the floor and writes it down until `stop`.
pub async fn follow(data: PathBuf, clock: ClockFloor, stop: CancellationToken) -> Outcome {
    let mut tick = tokio::time::interval(EVERY);
    let mut clocks = Steadiness::new(Instant::now(), OffsetDateTime::now_utc());
    let mut warned = false;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let now = OffsetDateTime::now_utc();
        if let Err(behind) = clock.check(now) {
            if !std::mem::replace(&mut warned, true) {
                tracing::error!("{behind}: nothing is issued and no block is settled until then");
            }
            continue;
        }
        warned = false;
        if clocks.look(Instant::now(), now) {
            clock.raise(now);
            let data = data.clone();
            let written = tokio::task::spawn_blocking(move || write(&data, now)).await;
            if let Ok(Err(failure)) = written {
                tracing::error!("{}", failure.message());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_steady_after_an_hour_without_a_jump() {
        let (start, wall) = (Instant::now(), OffsetDateTime::now_utc());
        let mut clocks = Steadiness::new(start, wall);
        let at = |minutes: u64| Duration::from_secs(minutes * 60);
        for minute in 1..60 {
            assert!(!clocks.look(start + at(minute), wall + at(minute)));
        }
        assert!(clocks.look(start + at(60), wall + at(60)));
        // Forty days ahead: for an hour it is not believed, and not if it is corrected within.
        let ahead = wall + Duration::from_secs(40 * 86_400);
        assert!(!clocks.look(start + at(61), ahead + at(61)));
        assert!(!clocks.look(start + at(120), ahead + at(120)));
        assert!(!clocks.look(start + at(122), wall + at(122)));
        assert!(!clocks.look(start + at(181), wall + at(181)));
        assert!(clocks.look(start + at(182), wall + at(182)));
    }

    #[test]
    fn floor_is_the_time_written_down_and_damage_is_no_new_beginning() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(floor(folder.path()).unwrap().known(), None);
        let at = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        write(folder.path(), at).unwrap();
        assert_eq!(floor(folder.path()).unwrap().known(), Some(at));
        std::fs::write(path(folder.path()), "soon").unwrap();
        assert!(floor(folder.path()).is_err());
    }
}
