//! Bearers: the ways to the centre, their order, their failures and their monthly budgets.

mod ledger;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::config::{self, MAX_CHUNK_LEN, Uplink};

pub use ledger::LedgerError;
pub(crate) use ledger::{Exhausted, Ledger, Purpose, ReserveError};

/// One bearer at run time.
pub(crate) struct Bearer {
    pub(crate) index: usize,
    pub(crate) settings: config::Bearer,
    pub(crate) ledger: Arc<Ledger>,
    health: Mutex<Health>,
    /// Parts under way.
    sending: AtomicU32,
}

/// A part under way; counted until it is dropped.
pub(crate) struct Sending {
    bearer: Arc<Bearer>,
    begun: Instant,
    /// Parts that shared the bearer, as seen when this one began.
    beside: u32,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.bearer.sending.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Health {
    failures: u32,
    not_before: Option<Instant>,
    told_exhausted: bool,
    /// Bytes a second, of the last parts.
    speed: Option<f64>,
    /// Bytes of a part at most: twice as many after each that went through.
    longest: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            failures: 0,
            not_before: None,
            told_exhausted: false,
            speed: None,
            longest: LONG_PART,
        }
    }
}

/// Length of the first part, while nothing is known of a bearer: five seconds of a very slow one. Longer ones wait in its queue
/// until the connection seems to have stalled.
const FIRST_PART: u32 = 4 * 1024;
/// Shortest part: below it, requests and their answers would weigh more than what they carry.
const SHORTEST_PART: u32 = 128 * 1024;
/// Longest part while the bearer has not shown that it takes longer ones.
const LONG_PART: u32 = 1024 * 1024;
/// Longest part on a bearer with a budget, whose room is used up part by part.
const LONG_PART_OF_BUDGET: u32 = 256 * 1024;
/// Seconds that a block takes at most that is sent with its announcement, and its bytes: of a cut nothing is kept.
const AT_ONCE_SECONDS: f64 = 2.0;
const AT_ONCE_LEN: u32 = 8 * 1024 * 1024;
/// Seconds that a part takes. What it waits for at its end, its answer and segments that were lost among the last ones, is then a
/// few hundredths. Of a part that is cut the centre keeps what arrived.
const PART_SECONDS: f64 = 120.0;
/// Below these bytes a second three uploads at a time fill the bearer: while one waits for the centre's answer, or for a lost
/// segment at the end of its part, the others send. More of them only make the queue before the bearer longer.
const THREE_UPLOADS: f64 = 64_000.0;
/// Below these (30 kbit/s) two do: with a third, TCP takes for lost what waits in the queue, and sends it again.
const TWO_UPLOADS: f64 = 3800.0;
/// Below these bytes a second (24 kbit/s) a connection has only so much ahead of it as takes these seconds, some round trips of the
/// longest kind; and at least three segments, so that a lost one is noticed by those behind it.
const SHORT_QUEUE: f64 = 3000.0;
const AHEAD_SECONDS: f64 = 6.0;
const LEAST_AHEAD: usize = 3 * SEGMENT;
/// Payload bytes of a full segment in a packet of 1500.
pub(crate) const SEGMENT: usize = 1448;
/// Bytes that wait in a modem when all goes well, and the seconds that they are waited for at most.
const QUEUE: f64 = 32_768.0;
const LONGEST_QUEUE: f64 = 120.0;
/// Part of the newest measurement in the speed.
const NEWEST: f64 = 0.4;

/// All bearers, most preferred first.
pub(crate) struct Bearers {
    all: Vec<Arc<Bearer>>,
    min: Duration,
    max: Duration,
    /// Uploads that make sense at the same time.
    parallel: watch::Sender<usize>,
}

/// Choice of a bearer.
pub(crate) enum Choice {
    Use(Arc<Bearer>),
    /// None before this instant.
    Wait(Instant),
}

impl Bearers {
    /// Opens the counters of all bearers in `folder`.
    pub(crate) fn open(
        settings: &[config::Bearer],
        uplink: &Uplink,
        folder: &Path,
        now: OffsetDateTime,
    ) -> Result<Self, LedgerError> {
        std::fs::create_dir_all(folder).map_err(LedgerError::Io)?;
        let mut all = Vec::new();
        for (index, s) in settings.iter().enumerate() {
            let path = folder.join(format!("{}.json", s.name));
            let ledger = Ledger::open(&path, s.monthly_byte_budget, s.overhead_percent, now)?;
            all.push(Arc::new(Bearer {
                index,
                settings: s.clone(),
                ledger: Arc::new(ledger),
                health: Mutex::default(),
                sending: AtomicU32::new(0),
            }));
        }
        all.sort_by_key(|b| b.settings.priority);
        Ok(Self {
            all,
            min: Duration::from_millis(uplink.backoff_min_ms),
            max: Duration::from_millis(uplink.backoff_max_ms),
            // Handshakes side by side would keep each other from ending.
            parallel: watch::Sender::new(1),
        })
    }

    /// The most preferred bearer that is neither pausing nor without room for `need` bytes.
    pub(crate) fn choose(&self, now: OffsetDateTime, need: u64) -> Choice {
        let instant = Instant::now();
        let mut soonest = instant + self.max;
        for bearer in &self.all {
            let pause = bearer.lock().not_before.filter(|at| *at > instant);
            if let Some(at) = pause {
                soonest = soonest.min(at);
            } else if bearer.ledger.has_room(need, now) {
                return Choice::Use(Arc::clone(bearer));
            }
        }
        Choice::Wait(soonest)
    }

    /// Bearers whose budget has no room for `need` bytes.
    pub(crate) fn without_room(
        &self,
        now: OffsetDateTime,
        need: u64,
    ) -> impl Iterator<Item = &Arc<Bearer>> {
        self.all
            .iter()
            .filter(move |b| !b.ledger.has_room(need, now))
    }

    /// Pauses a bearer that failed, twice as long each time, with jitter.
    pub(crate) fn failed(&self, bearer: &Bearer) {
        let mut health = bearer.lock();
        let pause = backoff(health.failures, self.min, self.max);
        health.failures = health.failures.saturating_add(1);
        health.not_before = Some(Instant::now() + pause);
        // What it takes when it is back, nobody knows.
        health.speed = health.speed.map(|speed| speed / 2.0);
        health.longest = LONG_PART;
    }

    /// Notes that a part of `bytes` is through.
    pub(crate) fn measured(&self, part: &Sending, bytes: u64) {
        let bearer = &part.bearer;
        // Each of several parts has its share of what the bearer takes.
        let at_end = bearer.sending.load(Ordering::Relaxed).max(1);
        let shares = f64::from(part.beside + at_end) / 2.0;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let now = shares * bytes as f64 / part.begun.elapsed().as_secs_f64().max(0.001);
        let mut health = bearer.lock();
        let speed = health
            .speed
            .map_or(now, |before| before * (1.0 - NEWEST) + now * NEWEST);
        health.speed = Some(speed);
        if bytes > u64::from(health.longest / 2) {
            health.longest = health.longest.saturating_mul(2).min(MAX_CHUNK_LEN);
        }
        drop(health);
        let parallel = match speed {
            speed if speed < TWO_UPLOADS => 2,
            speed if speed < THREE_UPLOADS => 3,
            _ => usize::MAX,
        };
        self.parallel
            .send_if_modified(|before| std::mem::replace(before, parallel) != parallel);
    }

    /// Waits until upload `index` (from 0) makes sense beside those before it.
    pub(crate) async fn turn(&self, index: usize) {
        let mut parallel = self.parallel.subscribe();
        // The sender lives as long as `self`.
        let _ = parallel.wait_for(|parallel| index < *parallel).await;
    }
}

impl Bearer {
    fn lock(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a part begins.
    pub(crate) fn send_part(self: &Arc<Self>) -> Sending {
        let beside = self
            .sending
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        Sending {
            bearer: Arc::clone(self),
            begun: Instant::now(),
            beside,
        }
    }

    /// Longest part that the bearer may have now.
    fn longest(&self, health: &Health) -> u32 {
        match self.settings.monthly_byte_budget {
            Some(_) => LONG_PART_OF_BUDGET,
            None => health.longest,
        }
    }

    /// Length of the next part, at most `most`.
    pub(crate) fn part_len(&self, most: u32) -> u32 {
        let health = self.lock();
        let Some(speed) = health.speed else {
            return FIRST_PART.min(most);
        };
        let most = most.min(self.longest(&health));
        let shortest = SHORTEST_PART.min(most);
        let len = self.share(speed) * PART_SECONDS;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to values of this type"
        )]
        let len = len.clamp(f64::from(shortest), f64::from(most)) as u32;
        len
    }

    /// Whether `size` bytes make one part of at most `most`, and are through so soon that it does not matter
    /// if a cut loses them.
    pub(crate) fn takes_at_once(&self, size: u64, most: u32) -> bool {
        let health = self.lock();
        let Some(speed) = health.speed else {
            return false;
        };
        let Ok(size) = u32::try_from(size) else {
            return false;
        };
        size <= most.min(AT_ONCE_LEN).min(self.longest(&health))
            && f64::from(size) <= self.share(speed) * AT_ONCE_SECONDS
    }

    /// Bytes a second of `speed` for one part more.
    fn share(&self, speed: f64) -> f64 {
        speed / f64::from(self.sending.load(Ordering::Relaxed).saturating_add(1))
    }

    /// Time without progress after which a connection has stalled, at least `least`: on slow bearers not before what others
    /// have queued has crossed.
    pub(crate) fn patience(&self, least: Duration) -> Duration {
        let Some(speed) = self.lock().speed else {
            return least;
        };
        let queue = Duration::from_secs_f64((QUEUE / speed.max(1.0)).min(LONGEST_QUEUE));
        least.max(queue)
    }

    /// Bytes that a connection should have given to the kernel and not yet acknowledged; `None` leaves that to the kernel.
    pub(crate) fn ahead(&self) -> Option<usize> {
        let speed = self.lock().speed.filter(|speed| *speed < SHORT_QUEUE)?;
        let shares = f64::from(self.sending.load(Ordering::Relaxed).max(1));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive and bounded by what is slow"
        )]
        let bytes = (speed / shares * AHEAD_SECONDS) as usize;
        Some(bytes.max(LEAST_AHEAD))
    }

    pub(crate) fn succeeded(&self) {
        let mut health = self.lock();
        health.failures = 0;
        health.not_before = None;
        health.told_exhausted = false;
    }

    /// Whether this is the first time since the last success that the budget is found used up.
    pub(crate) fn first_exhaustion(&self) -> bool {
        !std::mem::replace(&mut self.lock().told_exhausted, true)
    }
}

/// Pause before attempt `failures + 1`: `min * 2^failures` up to `max`, of which a random half.
pub(crate) fn backoff(failures: u32, min: Duration, max: Duration) -> Duration {
    let factor = 2_u32.saturating_pow(failures.min(30));
    let full = min.saturating_mul(factor).min(max);
    let half = full / 2;
    let mut random = [0; 4];
    // Without randomness all cameras behind one mast would come back together; no harm otherwise.
    let _ = rand::fill(&mut random);
    half + half.mul_f64(f64::from(u32::from_be_bytes(random)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_differ() {
        let (min, max) = (Duration::from_secs(1), Duration::from_secs(300));
        for (failures, full) in [(0, 1), (1, 2), (5, 32), (8, 256), (9, 300), (4_000, 300)] {
            let full = Duration::from_secs(full);
            let pauses: Vec<Duration> = (0..20).map(|_| backoff(failures, min, max)).collect();
            assert!(pauses.iter().all(|p| *p >= full / 2 && *p <= full));
            assert!(pauses.iter().any(|p| p != &pauses[0]));
        }
    }

    fn settings(name: &str, priority: u32, budget: Option<u64>) -> config::Bearer {
        config::Bearer {
            name: name.into(),
            source: None,
            interface: None,
            priority,
            monthly_byte_budget: budget,
            overhead_percent: 0,
        }
    }

    #[test]
    fn preference_failure_and_budget_decide() {
        let folder = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let all = [
            settings("lte", 2, None),
            settings("fibre", 1, Some(300_000)),
        ];
        let bearers = Bearers::open(&all, &Uplink::default(), folder.path(), now).unwrap();
        let name = |choice| match choice {
            Choice::Use(b) => b.settings.name.clone(),
            Choice::Wait(_) => "wait".into(),
        };
        let Choice::Use(fibre) = bearers.choose(now, 1_000) else {
            panic!("no bearer");
        };
        assert_eq!(fibre.settings.name, "fibre");
        bearers.failed(&fibre);
        assert_eq!(name(bearers.choose(now, 1_000)), "lte");
        fibre.succeeded();
        assert_eq!(name(bearers.choose(now, 1_000)), "fibre");
        drop(
            fibre
                .ledger
                .reserve(299_000, Purpose::Control, now)
                .unwrap(),
        );
        fibre.ledger.charge(299_000);
        let Choice::Use(lte) = bearers.choose(now, 1_000) else {
            panic!("no bearer");
        };
        assert_eq!(lte.settings.name, "lte");
        bearers.failed(&lte);
        assert_eq!(name(bearers.choose(now, 1_000)), "wait");
    }
}
