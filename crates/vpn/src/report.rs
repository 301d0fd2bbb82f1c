//! What the daemon says about itself: status, failed negotiations, counters.

use std::fmt;

use ikev2::diagnosis::{Difference, Setting};
use ikev2::event::Reason;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tunnel::counters::Snapshot;
use tunnel::metrics;

use super::identity;
use super::journal::JournalStatus;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// The packet path, as a tunnel with manual keys shows it.
    #[serde(flatten)]
    pub path: Snapshot,
    pub ike: IkeStatus,
    /// The crypto device that the file names.
    #[serde(default)]
    pub accelerator: Option<accelerator::Status>,
    /// The audit journal that the file names.
    #[serde(default)]
    pub journal: Option<JournalStatus>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IkeStatus {
    /// Every connection of the file.
    pub connections: Vec<ConnectionStatus>,
    /// Every IKE SA that is up.
    pub sas: Vec<IkeSaStatus>,
    /// Addresses taken, by pool.
    pub pools: Vec<PoolStatus>,
    /// Counts since the start.
    pub counters: IkeCounters,
}

/// A connection of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionStatus {
    pub name: String,
    /// "up", "connecting", "waiting" for traffic or for the peer, "retrying", or "down" by command.
    pub state: String,
    /// IKE SAs of it.
    pub sas: usize,
    /// Seconds until it is tried again.
    pub retry_seconds: Option<u64>,
    /// Our certificates for it.
    #[serde(default)]
    pub certificates: Vec<OwnCertificateStatus>,
}

/// A certificate of ours.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OwnCertificateStatus {
    pub subject: String,
    /// Last second of its validity, since 1970.
    pub not_after: i64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IkeSaStatus {
    /// Our SPI, in hexadecimal.
    pub spi: String,
    pub connection: String,
    /// Identity of the peer.
    pub peer: String,
    /// Subject of the peer's certificate.
    pub certificate: Option<String>,
    pub local: String,
    pub remote: String,
    /// "udp" or "tcp".
    #[serde(default)]
    pub transport: String,
    /// Whether we started it.
    pub initiator: bool,
    pub suite: String,
    /// Seconds since the peer proved who it is.
    pub age_seconds: u64,
    /// Seconds until new keys, at the earliest.
    pub rekey_seconds: u64,
    /// Addresses inside the tunnel that the initiator got.
    pub addresses: Vec<String>,
    pub children: Vec<ChildStatus>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChildStatus {
    /// Its name in the file.
    pub name: String,
    /// SPI at which we receive, in hexadecimal.
    pub spi_in: String,
    /// SPI to which we send.
    pub spi_out: String,
    pub suite: String,
    pub mode: String,
    /// Whether ESP goes in UDP.
    pub in_udp: bool,
    /// Traffic on our side.
    pub local: String,
    /// Traffic on the peer's side.
    pub remote: String,
    /// Seconds since it came up.
    pub age_seconds: u64,
    /// Seconds until new keys, at the earliest.
    pub rekey_seconds: u64,
    /// Whether we send with it.
    pub sending: bool,
    /// The worker to which its packets come, where there are several.
    #[serde(default)]
    pub worker: Option<u32>,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PoolStatus {
    pub name: String,
    /// Addresses that peers have.
    pub taken: usize,
}

/// A negotiation that failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// Seconds since then.
    pub ago_seconds: u64,
    /// "ike", "child", "rekey of ike" or "path".
    pub what: String,
    /// The connection, where one was found.
    pub connection: Option<String>,
    /// The child, where it is about one.
    pub child: Option<String>,
    pub remote: Option<String>,
    /// Why, in one line.
    pub reason: String,
    /// The setting behind it: ours, and the peer's.
    #[serde(default)]
    pub setting: Option<String>,
    pub theirs: Option<String>,
    pub ours: Option<String>,
    /// First difference of the two that come closest.
    pub first_difference: Option<String>,
}

impl Explanation {
    pub(super) fn of(what: &str, reason: &Reason) -> Self {
        let mut out = Self {
            what: what.to_owned(),
            reason: bounded(identity::readable(&reason.to_string())),
            ..Self::default()
        };
        match reason {
            Reason::Negotiation(failure) => {
                out.reason = format!("no proposal in common: {}", failure.first_difference);
                out.theirs = Some(failure.theirs.clone());
                out.ours = Some(failure.ours.clone());
                out.first_difference = Some(failure.first_difference.clone());
            }
            Reason::Selectors { theirs, ours } => {
                out.reason = "no traffic selectors in common".to_owned();
                out.theirs = Some(theirs.clone());
                out.ours = Some(ours.clone());
            }
            Reason::Authentication(failure) => out.differ(failure.difference.as_deref()),
            Reason::RefusedOffer(_, difference) | Reason::NoAddress(difference) => {
                out.differ(Some(difference));
            }
            Reason::TimeoutOfLarge(len) => {
                out.theirs = Some("takes no fragments of IKE".to_owned());
                out.ours = Some(format!("a message of {len} bytes"));
            }
            Reason::Unauthorized(theirs) => out.theirs = Some(theirs.clone()),
            Reason::Held(theirs) => out.theirs = Some(theirs.to_string()),
            Reason::Version(version) => {
                out.theirs = Some(format!("IKEv{version}"));
                out.ours = Some("IKEv2".to_owned());
            }
            _ => {}
        }
        // Apart from the values: it is the file's word, and theirs are the peer's.
        out.setting = setting(what, reason).map(str::to_owned);
        out
    }

    fn differ(&mut self, difference: Option<&Difference>) {
        self.theirs = difference.map(|one| bounded(identity::readable(&one.theirs)));
        self.ours = difference.map(|one| bounded(identity::readable(&one.ours)));
    }
}

/// Characters of a value at most: the peer chooses some, and they are kept and logged.
const VALUE_CHARS: usize = 1024;

fn bounded(text: String) -> String {
    match text.char_indices().nth(VALUE_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// The setting behind a failure, here and at the peer, as the operator finds it in the files.
const fn setting(what: &str, reason: &Reason) -> Option<&'static str> {
    let difference = match reason {
        Reason::Authentication(failure) => match &failure.difference {
            Some(difference) => difference,
            None => return None,
        },
        Reason::RefusedOffer(_, difference) | Reason::NoAddress(difference) => difference,
        Reason::Negotiation(_) if is_child(what) => return Some(CHILD_ALGORITHMS),
        Reason::Negotiation(_) => return Some(IKE_ALGORITHMS),
        Reason::Selectors { .. } | Reason::Unauthorized(_) | Reason::Held(_) => {
            return Some(TRAFFIC);
        }
        Reason::Networks | Reason::Limit => {
            return Some("`peer.networks` and `peer.children` here");
        }
        Reason::TimeoutOfLarge(_) => {
            return Some(
                "certificates or `path.mtu` here, fragments of IKE (RFC 7383) there, firewalls on the way",
            );
        }
        Reason::Timeout => {
            return Some("`remote` here, and whether UDP 500 and 4500 pass on the way");
        }
        Reason::Version(_) => return Some("the version of IKE at the peer"),
        _ => return None,
    };
    Some(match difference.setting {
        Setting::PeerIdentity => "`remote_id` here, the peer's own identity (`local_id`) there",
        Setting::OwnIdentity => "`local_id` here, `remote_id` there",
        Setting::PeerProof => "the proof that is wanted of the peer here, the peer's proof there",
        Setting::Secret => "`psk_file` here, the shared secret there",
        Setting::Ppk => "`ppk` here and there",
        Setting::PeerCertificate => {
            "`trust`, `remote_id` and `peer` here, the peer's certificate there"
        }
        Setting::OwnProof => {
            "`local_id`, `certificate` or `psk_file` here, whom and what the peer wants there"
        }
        Setting::Login => "`login` of the side that logs in, `eap` of the other",
        Setting::IkeAlgorithms => IKE_ALGORITHMS,
        Setting::ChildAlgorithms => CHILD_ALGORITHMS,
        Setting::Traffic => TRAFFIC,
        Setting::Addresses => {
            "`pool` of the side that gives addresses, `request` of the one that asks"
        }
    })
}

const IKE_ALGORITHMS: &str = "`ike` of the connection here and there";
const CHILD_ALGORITHMS: &str = "`esp` of the child here and there";
const TRAFFIC: &str =
    "`local` and `remote` of the child (or the pool) here, the other way round there";

/// Whether a failure is about a Child SA.
const fn is_child(what: &str) -> bool {
    matches!(what.as_bytes(), [b'c', b'h', b'i', b'l', b'd', ..])
}

/// Counts of TCP connections (RFC 9329) since the start, but for the first.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct TcpCounts {
    /// Connections at present.
    pub open: u64,
    pub accepted: u64,
    /// Connections of strangers that made room for others, or were too slow.
    pub displaced: u64,
    /// Connections ended because what came was no IKE and no ESP.
    pub malformed: u64,
    /// Connections of ours that broke and were opened anew.
    pub reopened: u64,
    /// ESP packets of peers that had not proved who they are.
    pub dropped: u64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct IkeCounters {
    /// IKE SAs at present.
    pub ike_sas: u64,
    /// Child SAs at present.
    pub child_sas: u64,
    /// IKE SAs that came up.
    pub established: u64,
    /// Handshakes that failed because somebody could not prove who they are, or is not welcome.
    pub failed_authentication: u64,
    /// Negotiations without algorithms in common.
    pub failed_proposal: u64,
    /// Negotiations without traffic in common.
    pub failed_selectors: u64,
    /// Handshakes and IKE SAs that ended because the peer was silent.
    pub failed_timeout: u64,
    /// Failures for other reasons.
    pub failed_other: u64,
    /// New keys for IKE SAs.
    pub ike_rekeys: u64,
    /// New keys for Child SAs.
    pub child_rekeys: u64,
    /// Changes of address without losing the tunnel.
    pub moves: u64,
    /// IKE SAs closed because the peer's certificate was revoked or expired.
    pub revoked: u64,
    /// Datagrams that were no message of IKE.
    pub malformed: u64,
    /// Messages for IKE SAs that we do not know.
    pub unknown_spi: u64,
    /// First messages dropped because too many handshakes were going on.
    pub half_open_limit: u64,
    /// Handshakes that made room for those of others.
    #[serde(default)]
    pub displaced: u64,
    /// Fragments of strangers for which there was no room.
    #[serde(default)]
    pub fragments_dropped: u64,
    pub cookies_sent: u64,
    /// Puzzles demanded along with them (RFC 8019).
    #[serde(default)]
    pub puzzles_sent: u64,
    /// Datagrams dropped because the protocol half was busy.
    pub busy: u64,
    /// IKE messages that were larger than the path, and went in IP fragments.
    #[serde(default)]
    pub in_fragments: u64,
    /// TCP connections.
    #[serde(default)]
    pub tcp: TcpCounts,
    /// Audit events that could not be written.
    pub audit_errors: u64,
    /// Questions to OCSP responders.
    pub ocsp_questions: u64,
    /// Peers that were decided about without the answer of a responder, though one was to be asked.
    pub ocsp_unanswered: u64,
}

impl IkeCounters {
    pub(super) const fn fail(&mut self, reason: &Reason) {
        let counter = match reason {
            Reason::Authentication(_) => &mut self.failed_authentication,
            Reason::Negotiation(_) | Reason::Version(_) => &mut self.failed_proposal,
            Reason::Selectors { .. } => &mut self.failed_selectors,
            Reason::Timeout | Reason::TimeoutOfLarge(_) => &mut self.failed_timeout,
            _ => &mut self.failed_other,
        };
        *counter = counter.saturating_add(1);
    }

    const fn gauges(&self) -> [(&'static str, u64, &'static str); 3] {
        [
            ("ike_sas", self.ike_sas, "IKE SAs that are up."),
            ("child_sas", self.child_sas, "Child SAs that are up."),
            (
                "tcp_connections",
                self.tcp.open,
                "TCP connections of peers.",
            ),
        ]
    }

    const fn counters(&self) -> [(&'static str, u64, &'static str); 22] {
        [
            ("ike_established", self.established, "IKE SAs that came up."),
            ("ike_rekeys", self.ike_rekeys, "New keys for IKE SAs."),
            ("child_rekeys", self.child_rekeys, "New keys for Child SAs."),
            (
                "ike_moves",
                self.moves,
                "Changes of address without loss of the tunnel.",
            ),
            (
                "ike_revoked",
                self.revoked,
                "IKE SAs closed because of the certificate.",
            ),
            (
                "ike_malformed",
                self.malformed,
                "Datagrams that were no message.",
            ),
            (
                "ike_unknown_spi",
                self.unknown_spi,
                "Messages for unknown IKE SAs.",
            ),
            (
                "ike_half_open_limit",
                self.half_open_limit,
                "First messages dropped.",
            ),
            (
                "ike_displaced",
                self.displaced,
                "Handshakes that made room for others.",
            ),
            (
                "ike_fragments_dropped",
                self.fragments_dropped,
                "Fragments of strangers without room.",
            ),
            ("ike_cookies_sent", self.cookies_sent, "Cookies demanded."),
            ("ike_puzzles_sent", self.puzzles_sent, "Puzzles demanded."),
            (
                "ike_busy",
                self.busy,
                "Datagrams dropped because the daemon was busy.",
            ),
            (
                "ike_ip_fragmented",
                self.in_fragments,
                "IKE messages sent in IP fragments, as the path takes less.",
            ),
            (
                "tcp_accepted",
                self.tcp.accepted,
                "TCP connections that peers opened.",
            ),
            (
                "tcp_displaced",
                self.tcp.displaced,
                "TCP connections of strangers ended for others, or as too slow.",
            ),
            (
                "tcp_malformed",
                self.tcp.malformed,
                "TCP connections with neither IKE nor ESP.",
            ),
            (
                "tcp_reopened",
                self.tcp.reopened,
                "TCP connections of ours that broke and were opened anew.",
            ),
            (
                "tcp_esp_dropped",
                self.tcp.dropped,
                "ESP packets of strangers over TCP.",
            ),
            (
                "audit_errors",
                self.audit_errors,
                "Audit events that were not written.",
            ),
            (
                "ocsp_questions",
                self.ocsp_questions,
                "Questions to OCSP responders.",
            ),
            (
                "ocsp_unanswered",
                self.ocsp_unanswered,
                "Peers decided about without a responder's answer.",
            ),
        ]
    }

    const fn failures(&self) -> [(&'static str, u64); 5] {
        [
            ("authentication", self.failed_authentication),
            ("proposal", self.failed_proposal),
            ("selectors", self.failed_selectors),
            ("timeout", self.failed_timeout),
            ("other", self.failed_other),
        ]
    }
}

/// The state as OpenMetrics text: what [`tunnel::metrics`] has, and the negotiations.
///
/// # Errors
/// A value could not be written.
pub fn openmetrics(status: DaemonStatus) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    metrics::register(&mut registry, status.path);
    let negotiations = registry.sub_registry_with_prefix(metrics::PREFIX);
    negotiations.register_collector(Box::new(Negotiations(status.ike)));
    if let Some(journal) = status.journal {
        negotiations.register_collector(Box::new(journal));
    }
    let device = status.accelerator;
    accelerator::register(negotiations, move || device.clone());
    metrics::encode(&registry)
}

#[derive(Debug)]
struct Negotiations(IkeStatus);

impl Collector for Negotiations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (to, counters) = (&mut encoder, &self.0.counters);
        for (name, value, help) in counters.gauges() {
            metrics::metric(to, name, help, &ConstGauge::new(value))?;
        }
        for (name, value, help) in counters.counters() {
            metrics::metric(to, name, help, &ConstCounter::new(value))?;
        }
        let failures = counters.failures();
        let failures = failures.map(|(reason, n)| ([("reason", reason)], ConstCounter::new(n)));
        let help = "Negotiations that failed, by reason.";
        metrics::family(to, "ike_failures", help, failures)?;
        certificate_ends(to, &self.0.connections)
    }
}

/// When our certificates end. The time is the sample's business, so that what is read does not depend on
/// when it was asked.
fn certificate_ends(
    to: &mut DescriptorEncoder<'_>,
    connections: &[ConnectionStatus],
) -> fmt::Result {
    let samples = connections.iter().flat_map(|connection| {
        let certificates = connection.certificates.iter().enumerate();
        certificates.map(|(number, own)| {
            let labels = [
                ("connection", connection.name.clone()),
                ("number", number.to_string()),
            ];
            (labels, ConstGauge::new(own.not_after))
        })
    });
    let help = "Last second of our certificate, since 1970.";
    metrics::family(to, "certificate_not_after_seconds", help, samples)
}

#[cfg(test)]
mod tests {
    use testkit::openmetrics as strict;

    use super::*;

    #[test]
    fn failures_are_counted_and_exported_by_reason() {
        let mut status = DaemonStatus::default();
        status.ike.counters.ocsp_unanswered = 3;
        let selectors = Reason::Selectors {
            theirs: "a".into(),
            ours: "b".into(),
        };
        let reasons = [
            Reason::Authentication("no".into()),
            selectors.clone(),
            selectors.clone(),
            Reason::Timeout,
            Reason::Protocol("x"),
        ];
        reasons
            .iter()
            .for_each(|reason| status.ike.counters.fail(reason));
        status.path.interface = "tunnel0".into();
        status.ike.connections.push(ConnectionStatus {
            name: "a\"b".into(),
            certificates: vec![OwnCertificateStatus {
                subject: "CN=gateway".into(),
                not_after: 1_800_000_000,
            }],
            ..ConnectionStatus::default()
        });
        let text = openmetrics(status).unwrap();
        let page = strict::parse(&text).unwrap();
        for (reason, count) in [
            ("authentication", 1.0),
            ("proposal", 0.0),
            ("selectors", 2.0),
            ("timeout", 1.0),
            ("other", 1.0),
        ] {
            let labels = [("reason", reason)];
            let found = page.value("cordon_vpn_ike_failures_total", &labels);
            assert_eq!(found, Some(count), "{reason}");
        }
        assert_eq!(page.value("cordon_vpn_ike_sas", &[]), Some(0.0));
        let value = |name: &str| page.value(&format!("cordon_vpn_{name}"), &[]);
        assert_eq!(value("ocsp_questions_total"), Some(0.0));
        assert_eq!(value("ocsp_unanswered_total"), Some(3.0));
        let end = "cordon_vpn_certificate_not_after_seconds";
        let labels = [("connection", "a\"b"), ("number", "0")];
        assert_eq!(page.value(end, &labels), Some(1_800_000_000.0));
        let workers = [("interface", "tunnel0")];
        assert_eq!(page.value("cordon_vpn_workers", &workers), Some(0.0));
        // As scrapers without a parser look for it.
        assert!(text.contains("\ncordon_vpn_child_sas 0\n"), "{text}");
        let explained = Explanation::of("child", &selectors);
        assert_eq!(explained.theirs.as_deref(), Some("a"));
        assert_eq!(explained.reason, "no traffic selectors in common");
    }
}
