//! Metrics of the host.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels = Vec<(&'static str, String)>;

/// Gauges of a host; clones have the same values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    sizes: Family<Labels, Gauge>,
    silent: Family<Labels, Gauge>,
    open_alarms: Gauge,
}

impl Metrics {
    /// Adds them to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "cordon_audit_host_entries",
            "Entries of a source's log that are on this host's disk",
            self.sizes.clone(),
        );
        registry.register(
            "cordon_audit_host_silent_seconds",
            "Seconds since a source was last heard",
            self.silent.clone(),
        );
        registry.register(
            "cordon_audit_host_open_alarms",
            "Open alarms",
            self.open_alarms.clone(),
        );
    }

    pub(crate) fn taken(&self, source: &str, size: u64) {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        self.sizes.get_or_create(&labels(source)).set(size);
    }

    /// Notes for how long a source was silent.
    pub fn silent(&self, source: &str, seconds: u64) {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        self.silent.get_or_create(&labels(source)).set(seconds);
    }

    pub(crate) fn open_alarms(&self, number: usize) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.open_alarms.set(number);
    }
}

fn labels(source: &str) -> Labels {
    vec![("source", source.to_owned())]
}
