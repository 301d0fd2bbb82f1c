//! A tunnel's state as Prometheus text (exposition format 0.0.4).

use std::fmt::Write as _;

use ipsec::drops::DropCause;

use crate::counters::{Drop, Snapshot};

/// The media type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All counters of a snapshot. Every cause of a drop is there from the beginning, so that a rate over
/// it never starts with its first drop.
pub fn prometheus(state: &Snapshot) -> String {
    let mut text = Text {
        out: String::new(),
        interface: escape(&state.interface),
    };
    text.family("info", "gauge", "What the tunnel is.");
    text.sample("info", &[("offload", &state.offload)], 1);
    text.family("inner_mtu_bytes", "gauge", "Largest inner packet.");
    text.sample("inner_mtu_bytes", &[], state.mtu);
    let ways = [("out", &state.sent), ("in", &state.received)];
    text.family("packets_total", "counter", "Inner packets carried.");
    for (way, amount) in ways {
        text.sample("packets_total", &[("direction", way)], amount.packets);
    }
    text.family("bytes_total", "counter", "Bytes of inner packets carried.");
    for (way, amount) in ways {
        text.sample("bytes_total", &[("direction", way)], amount.bytes);
    }
    text.family("drops_total", "counter", "Packets dropped, by cause.");
    for (way, drops) in [("out", &state.outbound_drops), ("in", &state.inbound_drops)] {
        for cause in DropCause::ALL.iter().map(|cause| cause.label()) {
            let labels = [("direction", way), ("cause", cause)];
            text.sample("drops_total", &labels, packets_of(drops, cause));
        }
    }
    associations(&mut text, state);
    text.family("io_total", "counter", "Events of input and output.");
    for (event, count) in state.io.events() {
        text.sample("io_total", &[("event", event)], count);
    }
    text.family(
        "rekey_pending",
        "gauge",
        "1 while new keys wait for the far side.",
    );
    text.sample("rekey_pending", &[], u8::from(state.rekey_pending));
    text.family("workers", "gauge", "Threads that move packets.");
    text.sample("workers", &[], state.workers);
    let name = "worker_cpu_seconds_total";
    text.family(name, "counter", "Processor time of the workers.");
    text.sample(name, &[], state.worker_cpu_seconds);
    text.out
}

fn associations(text: &mut Text, state: &Snapshot) {
    let names = [
        ("sa_packets_total", "counter", "Packets of an association."),
        ("sa_bytes_total", "counter", "Bytes of an association."),
        (
            "sa_sequence",
            "gauge",
            "Highest sequence number of an association.",
        ),
    ];
    for (name, kind, help) in names {
        text.family(name, kind, help);
        for sa in &state.associations {
            let value = match name {
                "sa_packets_total" => sa.amount.packets,
                "sa_bytes_total" => sa.amount.bytes,
                _ => sa.sequence,
            };
            let labels = [("spi", sa.spi.as_str()), ("direction", &*sa.direction)];
            text.sample(name, &labels, value);
        }
    }
}

fn packets_of(drops: &[Drop], cause: &str) -> u64 {
    let found = drops.iter().find(|drop| drop.cause == cause);
    found.map_or(0, |drop| drop.packets)
}

struct Text {
    out: String,
    interface: String,
}

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "# HELP cordon_vpn_{name} {help}");
        let _ = writeln!(self.out, "# TYPE cordon_vpn_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(
            self.out,
            "cordon_vpn_{name}{{interface=\"{}\"",
            self.interface
        );
        for (label, value) in labels {
            let _ = write!(self.out, ",{label}=\"{}\"", escape(value));
        }
        let _ = writeln!(self.out, "}} {value}");
    }
}

/// A label's value: names of interfaces may hold anything.
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Amount, IoCounters, SaState};

    #[test]
    fn metrics_have_a_line_for_every_counter() {
        let state = Snapshot {
            interface: "a\"b".into(),
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
        let text = prometheus(&state);
        for line in [
            r#"cordon_vpn_packets_total{interface="a\"b",direction="out"} 3"#,
            r#"cordon_vpn_drops_total{interface="a\"b",direction="in",cause="unknown_spi"} 7"#,
            r#"cordon_vpn_drops_total{interface="a\"b",direction="out",cause="unknown_spi"} 0"#,
            r#"cordon_vpn_sa_sequence{interface="a\"b",spi="00001001",direction="out"} 9"#,
            r#"cordon_vpn_io_total{interface="a\"b",event="sends"} 2"#,
            r#"cordon_vpn_workers{interface="a\"b"} 2"#,
            r#"cordon_vpn_worker_cpu_seconds_total{interface="a\"b"} 1.5"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for cause in DropCause::ALL {
            assert_eq!(text.matches(&format!("\"{}\"", cause.label())).count(), 2);
        }
    }
}
