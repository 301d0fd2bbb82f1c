//! A tunnel's state as OpenMetrics text.

use std::fmt;

use ipsec::drops::DropCause;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::counters::{Amount, Drop, Snapshot};

/// The media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Prefix of all names.
pub const PREFIX: &str = "cordon_vpn";

/// All counters of a snapshot, as text.
///
/// # Errors
/// A value could not be written.
pub fn openmetrics(state: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    register(&mut registry, state);
    encode(&registry)
}

/// Everything that is registered, as text.
///
/// # Errors
/// A value could not be written.
pub fn encode(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    Ok(text)
}

/// Adds all counters of a snapshot to `registry`.
pub fn register(registry: &mut Registry, state: Snapshot) {
    let interface = ("interface".into(), state.interface.clone().into());
    let registry = registry.sub_registry_with_label(interface);
    let offload = Info::new([("offload", state.offload.clone())]);
    registry.register(PREFIX, "What the tunnel is", offload);
    let counters = registry.sub_registry_with_prefix(PREFIX);
    counters.register_collector(Box::new(Counters(state)));
}

/// Writes a metric without labels of its own. A counter's name gets `_total` appended.
///
/// # Errors
/// A value could not be written.
pub fn metric(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &impl EncodeMetric,
) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, value.metric_type())?;
    value.encode(metric)
}

/// Writes a metric with labels, in the order given, where the library's own family has none.
///
/// # Errors
/// A value could not be written.
pub fn family<M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (impl EncodeLabelSet, M)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    for (labels, value) in samples {
        value.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[derive(Debug)]
struct Counters(Snapshot);

impl Collector for Counters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (to, state) = (&mut encoder, &self.0);
        let mtu = ConstGauge::new(u32::from(state.mtu));
        metric(to, "inner_mtu_bytes", "Largest inner packet.", &mtu)?;
        let directions = [("out", state.sent), ("in", state.received)];
        let amounts = |of: fn(Amount) -> u64| {
            directions.map(|(way, amount)| ([("direction", way)], ConstCounter::new(of(amount))))
        };
        let packets = amounts(|amount| amount.packets);
        family(to, "packets", "Inner packets carried.", packets)?;
        let bytes = amounts(|amount| amount.bytes);
        family(to, "bytes", "Bytes of inner packets carried.", bytes)?;
        drops(to, state)?;
        associations(to, state)?;
        let events = state.io.events();
        let events = events.map(|(event, n)| ([("event", event)], ConstCounter::new(n)));
        family(to, "io", "Events of input and output.", events)?;
        let pending = ConstGauge::new(u32::from(state.rekey_pending));
        let help = "1 while new keys wait for the far side.";
        metric(to, "rekey_pending", help, &pending)?;
        let workers = ConstGauge::new(state.workers);
        metric(to, "workers", "Threads that move packets.", &workers)?;
        let seconds = ConstCounter::new(state.worker_cpu_seconds);
        let help = "Processor time of the workers.";
        metric(to, "worker_cpu_seconds", help, &seconds)
    }
}

/// Every cause is there from the beginning, so that a rate over it never starts with its first drop.
fn drops(to: &mut DescriptorEncoder<'_>, state: &Snapshot) -> fmt::Result {
    let directions = [("out", &state.outbound_drops), ("in", &state.inbound_drops)];
    let samples = directions.into_iter().flat_map(|(way, drops)| {
        let causes = DropCause::ALL.iter().map(|cause| cause.label());
        causes.map(move |cause| {
            let labels = [("direction", way), ("cause", cause)];
            (labels, ConstCounter::new(packets_of(drops, cause)))
        })
    });
    family(to, "drops", "Packets dropped, by cause.", samples)
}

fn associations(to: &mut DescriptorEncoder<'_>, state: &Snapshot) -> fmt::Result {
    let all = || {
        state.associations.iter().map(|sa| {
            let labels = [("spi", sa.spi.as_str()), ("direction", &*sa.direction)];
            (labels, sa)
        })
    };
    let packets = all().map(|(labels, sa)| (labels, ConstCounter::new(sa.amount.packets)));
    family(to, "sa_packets", "Packets of an association.", packets)?;
    let bytes = all().map(|(labels, sa)| (labels, ConstCounter::new(sa.amount.bytes)));
    family(to, "sa_bytes", "Bytes of an association.", bytes)?;
    let sequences = all().map(|(labels, sa)| (labels, ConstGauge::new(sa.sequence)));
    let help = "Highest sequence number of an association.";
    family(to, "sa_sequence", help, sequences)
}

fn packets_of(drops: &[Drop], cause: &str) -> u64 {
    let found = drops.iter().find(|drop| drop.cause == cause);
    found.map_or(0, |drop| drop.packets)
}

#[cfg(test)]
mod tests {
    use testkit::openmetrics::{self as strict, Kind};

    use super::*;
    use crate::counters::{IoCounters, SaState};

    #[test]
    fn metrics_have_a_sample_for_every_counter() {
        let state = Snapshot {
            interface: "a\"\\\nb".into(),
            offload: "tcp".into(),
            mtu: 1400,
            sent: Amount {
                packets: 3,
                bytes: 400,
            },
            inbound_drops: vec![Drop {
                cause: "unknown_spi".into(),
                packets: 7,
            }],
            associations: vec![SaState {
                spi: "00001001".into(),
                direction: "out".into(),
                amount: Amount {
                    packets: 3,
                    bytes: 400,
                },
                sequence: 9,
            }],
            io: IoCounters {
                sends: 2,
                ..IoCounters::default()
            },
            workers: 2,
            worker_cpu_seconds: 1.5,
            ..Snapshot::default()
        };
        let page = strict::parse(&openmetrics(state).unwrap()).unwrap();
        let value = |name: &str, labels: &[(&'static str, &'static str)]| {
            let labels = [&[("interface", "a\"\\\nb")], labels].concat();
            page.value(&format!("cordon_vpn_{name}"), &labels)
        };
        for (name, labels, expected) in [
            ("info", &[("offload", "tcp")][..], 1.0),
            ("inner_mtu_bytes", &[], 1400.0),
            ("packets_total", &[("direction", "out")], 3.0),
            ("packets_total", &[("direction", "in")], 0.0),
            ("bytes_total", &[("direction", "out")], 400.0),
            (
                "drops_total",
                &[("direction", "in"), ("cause", "unknown_spi")],
                7.0,
            ),
            (
                "drops_total",
                &[("direction", "out"), ("cause", "unknown_spi")],
                0.0,
            ),
            (
                "sa_packets_total",
                &[("spi", "00001001"), ("direction", "out")],
                3.0,
            ),
            (
                "sa_bytes_total",
                &[("spi", "00001001"), ("direction", "out")],
                400.0,
            ),
            (
                "sa_sequence",
                &[("spi", "00001001"), ("direction", "out")],
                9.0,
            ),
            ("io_total", &[("event", "sends")], 2.0),
            ("rekey_pending", &[], 0.0),
            ("workers", &[], 2.0),
            ("worker_cpu_seconds_total", &[], 1.5),
        ] {
            assert_eq!(value(name, labels), Some(expected), "{name} {labels:?}");
        }
        let drops = page.count("cordon_vpn_drops_total");
        assert_eq!(drops, 2 * DropCause::ALL.len());
        assert_eq!(page.families.get("cordon_vpn_drops"), Some(&Kind::Counter));
        assert_eq!(CONTENT_TYPE, strict::CONTENT_TYPE);
    }
}
