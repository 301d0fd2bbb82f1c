//! What the centre counts, for Prometheus.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters of the centre; each clone counts the same things.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub accepted: Counter,
    /// Blocks put into quarantine.
    pub quarantined: Counter,
    /// Uploads whose bytes were not those announced.
    pub discarded: Counter,
    /// Bytes of all settled blocks.
    pub bytes: Counter,
    /// Attempts to settle a block that have to be repeated.
    pub settle_retries: Counter,
    /// Media opened by people.
    pub opened: Counter,
    /// Blocks that wait in quarantine for a person.
    pub quarantine_blocks: Gauge,
    /// Their bytes.
    pub quarantine_bytes: Gauge,
    /// Journals of cameras and gateways without a record for too long.
    pub silent_journals: Gauge,
    /// Blocks whose rows in the index were repaired.
    pub index_repaired: Counter,
    /// Blocks of the index that the log does not know.
    pub index_unknown: Gauge,
    /// Accepted blocks that the archive lacks or has with other bytes.
    pub archive_damaged: Gauge,
    /// Uploads refused because a share is used up, by reason.
    pub refused: Family<Vec<(&'static str, &'static str)>, Counter>,
}

impl Metrics {
    /// Adds the counters to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("cordon_centre");
        let mut add = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        add("blocks_accepted", "Blocks archived", &self.accepted);
        add(
            "blocks_quarantined",
            "Blocks put into quarantine",
            &self.quarantined,
        );
        add(
            "uploads_discarded",
            "Uploads that were not the announced bytes",
            &self.discarded,
        );
        add("block_bytes", "Bytes of all settled blocks", &self.bytes);
        add(
            "settle_retries",
            "Settlements that had to be repeated",
            &self.settle_retries,
        );
        add("media_opened", "Media opened by people", &self.opened);
        registry.register(
            "quarantine_blocks",
            "Blocks that wait in quarantine for a person",
            self.quarantine_blocks.clone(),
        );
        registry.register(
            "quarantine_bytes",
            "Bytes of the blocks in quarantine",
            self.quarantine_bytes.clone(),
        );
        registry.register(
            "silent_journals",
            "Journals of cameras and gateways without a record for too long",
            self.silent_journals.clone(),
        );
        registry.register(
            "index_repaired",
            "Blocks whose rows in the index were repaired from manifest and log",
            self.index_repaired.clone(),
        );
        registry.register(
            "index_unknown_blocks",
            "Blocks of the index that the log does not know",
            self.index_unknown.clone(),
        );
        registry.register(
            "archive_damaged_blocks",
            "Accepted blocks that the archive lacks or has with other bytes",
            self.archive_damaged.clone(),
        );
        registry.register(
            "uploads_refused",
            "Uploads refused because a share is used up, by reason",
            self.refused.clone(),
        );
    }

    pub(crate) fn count_refused(&self, reason: &'static str) {
        let labels = vec![("reason", reason)];
        self.refused.get_or_create(&labels).inc();
    }

    pub(crate) fn count_block(&self, accepted: bool, size: u64) {
        if accepted {
            self.accepted.inc()
        } else {
            self.quarantined.inc()
        };
        self.bytes.inc_by(size);
    }
}
