//! Whether the journal reaches the central log: what `cordon vpn status` says of it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::{Deserialize, Serialize};
use tunnel::metrics;

/// Time without progress after which a person has to look. Our choice: the site is asked every five seconds, and a restart
/// of it takes a few.
const STALLED: Duration = Duration::from_mins(1);

/// State of a daemon's journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Number of the newest record.
    pub last: u64,
    /// Number of the last record that the central log has; none without a central log.
    pub shipped: Option<u64>,
    /// Seconds since the central log did not take a record that waits.
    pub waiting_seconds: Option<u64>,
    /// Why, by the newest attempt.
    pub refusal: Option<String>,
}

impl JournalStatus {
    /// Tells that a person has to look: records wait, and no attempt succeeded for a minute.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.waiting_seconds
            .is_some_and(|seconds| seconds >= STALLED.as_secs())
    }
}

impl Collector for JournalStatus {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seconds = ConstGauge::new(self.waiting_seconds.unwrap_or(0));
        let help = "Seconds since the central log did not take an audit event that waits.";
        metrics::metric(&mut encoder, "journal_waiting_seconds", help, &seconds)
    }
}

/// State that the journal's thread writes and the daemon's handle reads.
#[derive(Clone, Default)]
pub(crate) struct Progress(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    last: u64,
    shipped: Option<u64>,
    /// First attempt without success, and why the newest one had none.
    refused: Option<(Instant, String)>,
}

impl Progress {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn written(&self, last: u64) {
        self.with(|state| state.last = last);
    }

    /// Notes that the central log has everything up to this number.
    pub(super) fn shipped(&self, seq: u64) {
        self.with(|state| (state.shipped, state.refused) = (Some(seq), None));
    }

    pub(super) fn refused(&self, why: &str, now: Instant) {
        self.with(|state| {
            let since = state.refused.as_ref().map_or(now, |(since, _)| *since);
            state.refused = Some((since, why.to_owned()));
        });
    }

    pub(crate) fn status(&self, now: Instant) -> JournalStatus {
        self.with(|state| JournalStatus {
            last: state.last,
            shipped: state.shipped,
            waiting_seconds: state
                .refused
                .as_ref()
                .map(|(since, _)| now.saturating_duration_since(*since).as_secs()),
            refusal: state.refused.as_ref().map(|(_, why)| why.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_is_stalled_a_minute_after_the_first_refusal_until_it_moves() {
        let (progress, start) = (Progress::default(), Instant::now());
        progress.written(7);
        assert!(!progress.status(start + STALLED).is_stalled());
        progress.refused("not now", start);
        progress.refused("no", start + Duration::from_secs(59));
        let status = progress.status(start + Duration::from_secs(59));
        assert!(!status.is_stalled());
        assert_eq!(
            (status.last, status.shipped, status.refusal.as_deref()),
            (7, None, Some("no"))
        );
        assert!(progress.status(start + STALLED).is_stalled());
        progress.shipped(7);
        let status = progress.status(start + 2 * STALLED);
        assert!(!status.is_stalled() && status.refusal.is_none());
        assert_eq!(status.shipped, Some(7));
    }
}
