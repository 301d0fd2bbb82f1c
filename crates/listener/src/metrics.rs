//! What listeners count, and the warning when one is full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::activity::Overdue;

/// Least time between two warnings of one listener: an attacker must not fill the log.
const QUIET: Duration = Duration::from_secs(10);

type Labels = Vec<(&'static str, &'static str)>;

/// Counters of all listeners; clones count the same things.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    ended: Family<Labels, Counter>,
    open: Family<Labels, Gauge>,
}

impl Metrics {
    /// Adds the counters to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("cordon_listener");
        registry.register(
            "connections",
            "Open connections, by whether a certificate was shown",
            self.open.clone(),
        );
        registry.register(
            "connections_ended",
            "Connections ended or refused by the listener, by reason",
            self.ended.clone(),
        );
    }

    pub(super) fn of(&self, listener: &'static str) -> Counters {
        Counters {
            metrics: self.clone(),
            listener,
            full: Arc::default(),
            warned: Arc::default(),
        }
    }
}

/// Why a connection was ended or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Another one needed its place.
    Shed,
    /// There was no place.
    Refused,
    /// Its host opens connections too fast.
    TooFast,
    /// Something took too long.
    Overdue(Overdue),
}

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::Shed => "shed",
            Self::Refused => "refused",
            Self::TooFast => "too-fast",
            Self::Overdue(Overdue::FirstRequest) => "no-request",
            Self::Overdue(Overdue::Idle) => "idle",
            Self::Overdue(Overdue::Stalled) => "not-read",
        }
    }
}

/// The counters of one listener.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    metrics: Metrics,
    listener: &'static str,
    /// Connections shed or refused since the last warning.
    full: Arc<AtomicU64>,
    warned: Arc<Mutex<Option<Instant>>>,
}

impl Counters {
    pub(super) fn count(&self, reason: Reason) {
        let labels = vec![("listener", self.listener), ("reason", reason.name())];
        self.metrics.ended.get_or_create(&labels).inc();
        if matches!(reason, Reason::Shed | Reason::Refused | Reason::TooFast) {
            self.warn();
        }
    }

    pub(super) fn open(&self, anonymous: usize, proved: usize) {
        for (certificate, count) in [("no", anonymous), ("yes", proved)] {
            let labels = vec![("listener", self.listener), ("certificate", certificate)];
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.metrics.open.get_or_create(&labels).set(count);
        }
    }

    fn warn(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_some_and(|at| now.saturating_duration_since(at) < QUIET) {
            return;
        }
        *warned = Some(now);
        let connections = self.full.swap(0, Ordering::Relaxed);
        tracing::error!(
            listener = self.listener,
            connections,
            "a share of connections is used up: idle ones are ended for new ones, and a host that opens \
             many is turned away; somebody may be holding connections open"
        );
    }
}
