//! Counters of notices, and what is wrong with them.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Counters of notices and what is wrong with them; clones have the same ones.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    outcomes: Family<Labels, Counter>,
    pub(crate) queue_lost: Counter,
    /// Why nothing can be sent at present.
    trouble: Arc<Mutex<Option<String>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "cordon_notices",
            "Notices by mail: sent, attempts that failed, refused for a recipient, given up for their age or number",
            self.outcomes.clone(),
        );
        registry.register(
            "cordon_notices_queue_lost",
            "Starts at which the queue of notices could not be understood",
            self.queue_lost.clone(),
        );
    }

    /// What of notices a person has to look after.
    pub fn warnings(&self) -> Vec<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble = trouble
            .iter()
            .map(|trouble| format!("notices by mail are not sent: {trouble}"));
        let lost = (self.queue_lost.get() > 0).then(|| {
            "the queue of notices was damaged at the start: notices of the last 48 hours were sent again".to_owned()
        });
        trouble.chain(lost).collect()
    }

    pub(crate) fn count(&self, outcome: &'static str, number: usize) {
        let labels = Labels { outcome };
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        self.outcomes.get_or_create(&labels).inc_by(number);
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}
