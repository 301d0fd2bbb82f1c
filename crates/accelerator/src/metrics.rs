//! The state of an accelerator as metrics.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::status::{State, Status};

/// Has a registry show what `state` gives whenever it is read; nothing while that is none.
pub fn register(
    registry: &mut Registry,
    state: impl Fn() -> Option<Status> + Send + Sync + 'static,
) {
    registry.register_collector(Box::new(Live(state)));
}

struct Live<F>(F);

impl<F> fmt::Debug for Live<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl<F: Fn() -> Option<Status> + Send + Sync + 'static> Collector for Live<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(status) = (self.0)() else {
            return Ok(());
        };
        let help = "Whether the accelerator gets what it is quicker at.";
        let value = ConstGauge::new(i64::from(status.state == State::InUse));
        let metric =
            encoder.encode_descriptor("accelerator_in_use", help, None, value.metric_type())?;
        value.encode(metric)?;
        let help = "Signatures and messages of batches, by operation and engine.";
        let mut requests =
            encoder.encode_descriptor("accelerator_requests", help, None, MetricType::Counter)?;
        for one in &status.operations {
            for (engine, count) in [("device", one.device), ("software", one.software)] {
                let labels = [("operation", one.operation.as_str()), ("engine", engine)];
                let count = ConstCounter::new(count);
                count.encode(requests.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
