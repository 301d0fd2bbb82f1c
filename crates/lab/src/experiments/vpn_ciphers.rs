//! Throughput and delay of tunnels by cipher: the published Table III, and today's tunnels.

use super::suites::{AES_128_CBC, AES_128_GCM, AES_256_GCM, CHACHA20, SHA2_256};
use crate::LabError;
use crate::experiment::Experiment;
use crate::experiments::OPENSSL;
use crate::network::{IP, Network, Side};
use crate::process::{Call, Daemon};
use crate::program::Program;
use crate::record::Better;
use crate::session::{Plan, Round, Rounds, Session};
use crate::tunnels::{
    Cordon, Identity, Kind, OPENVPN, OpenVpn, PING, Provider, Tunnel, WG, WIREGUARD, WireGuard,
    round_trips,
};
use std::time::Duration;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "vpn-ciphers",
    title: "Throughput and delay of tunnels by cipher",
    question: "What does each cipher cost in an OpenVPN tunnel, and what do other tunnels make of the same \
               machine?",
    source: "Machník, Urueña, Niemiec, Stoianov, Performance evaluation of INDECT security architecture, \
             Table III",
    needs: &[IP, PING, IPERF],
    wants: &[OPENSSL, OPENVPN, WIREGUARD, WG],
    seconds: (135, 330),
    run,
};

const IPERF: Program = Program {
    name: "iperf3",
    package: "iperf3",
    version: &["--version"],
};
const TABLE_3: &str = "INDECT performance evaluation, Table III: two Pentium 4 at 3.06 GHz, gigabit Ethernet, \
                       iperf and ping, OpenSSL 0.9.8v";
const THROUGHPUT: &[(&str, f64)] = &[
    ("OpenVPN, INDECT-128-CBC", 78.3),
    ("OpenVPN, INDECT-192-CBC", 72.6),
    ("OpenVPN, INDECT-320-CBC", 68.7),
    ("OpenVPN, AES-128-CBC", 125.0),
    ("OpenVPN, AES-192-CBC", 123.0),
    ("OpenVPN, AES-256-CBC", 119.0),
    ("OpenVPN, DES-CBC", 126.0),
    ("OpenVPN, DES-EDE-CBC", 116.0),
    ("OpenVPN, DES-EDE3-CBC", 118.0),
    ("OpenVPN, DESX-CBC", 121.0),
    ("OpenVPN, IDEA-CBC", 122.0),
    ("OpenVPN, RC2-CBC", 119.0),
    ("OpenVPN, RC2-40-CBC", 120.0),
    ("OpenVPN, RC2-64-CBC", 124.0),
    ("OpenVPN, BF-CBC", 124.0),
    ("OpenVPN, CAST5-CBC", 123.0),
];
/// Milliseconds.
const DELAY: &[(&str, f64)] = &[
    ("OpenVPN, INDECT-128-CBC", 0.154),
    ("OpenVPN, INDECT-192-CBC", 0.156),
    ("OpenVPN, INDECT-320-CBC", 0.153),
    ("OpenVPN, AES-128-CBC", 0.153),
    ("OpenVPN, AES-192-CBC", 0.156),
    ("OpenVPN, AES-256-CBC", 0.155),
    ("OpenVPN, DES-CBC", 0.153),
    ("OpenVPN, DES-EDE-CBC", 0.155),
    ("OpenVPN, DES-EDE3-CBC", 0.158),
    ("OpenVPN, DESX-CBC", 0.153),
    ("OpenVPN, IDEA-CBC", 0.151),
    ("OpenVPN, RC2-CBC", 0.157),
    ("OpenVPN, RC2-40-CBC", 0.157),
    ("OpenVPN, RC2-64-CBC", 0.152),
    ("OpenVPN, BF-CBC", 0.152),
    ("OpenVPN, CAST5-CBC", 0.156),
];
/// Of one stream, and what of them is warm-up: more rounds say more than longer ones.
const SECONDS: u32 = 1;
const WARM: f64 = 0.25;
const BASE: &str = "OpenVPN, AES-128-CBC";
/// Ciphers that are newer than Table III.
const TODAY: [&str; 3] = ["AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"];

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let pings = session.pick(100, 500);
    session.parameter("seconds of TCP", SECONDS);
    session.parameter("of which do not count, at the start", WARM);
    session.parameter("echo requests of 56 bytes", pings);
    session.plan(
        Plan::bars(
            "throughput",
            "TCP, one stream, client to server",
            "Mbit/s",
            Better::More,
        )
        .base(BASE)
        .published(THROUGHPUT, TABLE_3),
    );
    session.plan(
        Plan::bars("delay", "Average round trip", "ms", Better::Less)
            // `ping` writes three digits.
            .step(0.001)
            .base(BASE)
            .published(DELAY, TABLE_3),
    );
    session.plan(
        Plan::bars(
            "cpu",
            "Processor time of both ends' daemons",
            "s per 10⁹ bytes",
            Better::Less,
        )
        .base(BASE),
    );
    let mut cases = openvpn(session)?;
    cases.extend(others(session));
    let folder = session.folder.clone();
    let network = Network::new()?;
    let rounds = Rounds {
        count: session.pick(2, 5),
        warm_up: false,
    };
    session.rounds(rounds, &cases, |kind, round| {
        let tunnel = kind.start(&network, &folder)?;
        let [_, average, _] = round_trips(&tunnel, 56, pings, round)?;
        round.put("delay", average / 1000.0);
        throughput(&tunnel, round)?;
        tunnel.account(round);
        Ok(())
    });
    session.caveat(
        "OpenVPN runs with its defaults but for the cipher: UDP, HMAC-SHA256 where the cipher does not \
         authenticate, no compression (the publication had LZO on). Both ends, source and sink share the \
         processors.",
    );
    session.caveat(
        "IBC is a research cipher and not secure. DES, 3DES, DESX, IDEA, RC2, Blowfish and CAST5 are broken \
         or worn out; they stand here to repeat the table.",
    );
    Ok(())
}

/// OpenVPN's cases: those of the table in its order, then today's.
fn openvpn(session: &mut Session<'_>) -> Result<Vec<(String, Kind)>, LabError> {
    let mut cases = Vec::new();
    if !session.has("OpenVPN", &[OPENVPN, OPENSSL]) {
        return Ok(cases);
    }
    let identity = Identity::make(&session.folder.join("openvpn"), &Identity::P256)?;
    let legacy = identity.ciphers(Provider::Legacy)?;
    let ibc = if identity.has_ibc() {
        identity.ciphers(Provider::Ibc)?
    } else {
        Vec::new()
    };
    let table = THROUGHPUT
        .iter()
        .filter_map(|(name, _)| name.strip_prefix("OpenVPN, "));
    for cipher in table.chain(TODAY) {
        let name = format!("OpenVPN, {cipher}");
        let (provider, listed) = match cipher {
            _ if cipher.starts_with("INDECT") => (Provider::Ibc, &ibc),
            _ if cipher.starts_with("AES") || cipher.starts_with("CHACHA") => {
                (Provider::Default, &legacy)
            }
            _ => (Provider::Legacy, &legacy),
        };
        if !listed.iter().any(|listed| listed == cipher) {
            let reason = match provider {
                Provider::Ibc => {
                    "our OpenSSL provider is neither installed (cordon ibc provider) nor beside this \
                     program (cargo build --release -p ibc-provider)"
                }
                _ => "this OpenVPN, with this OpenSSL, does not have it",
            };
            session.missing(&name, reason, None);
            continue;
        }
        let kind = OpenVpn {
            cipher: cipher.to_owned(),
            integrity: "SHA256",
            provider,
            identity: identity.clone(),
        };
        cases.push((name, Kind::OpenVpn(kind)));
    }
    Ok(cases)
}

fn others(session: &mut Session<'_>) -> Vec<(String, Kind)> {
    let ours = [
        ("AES-128-GCM", Cordon::new(AES_128_GCM, None)),
        ("AES-256-GCM", Cordon::new(AES_256_GCM, None)),
        ("ChaCha20-Poly1305", Cordon::new(CHACHA20, None)),
        (
            "AES-128-CBC, SHA-256",
            Cordon::new(AES_128_CBC, Some(SHA2_256)),
        ),
    ];
    let mut cases: Vec<_> = ours
        .map(|(name, kind)| (format!("Cordon, {name}"), Kind::Cordon(kind)))
        .into();
    let unprotected = "Cordon, unprotected";
    if cfg!(feature = "legacy") {
        let kind = Cordon::new(("null", 0), None);
        cases.push((unprotected.to_owned(), Kind::Cordon(kind)));
    } else {
        session.lacks_legacy(unprotected);
    }
    if session.has("WireGuard", &[WIREGUARD, WG]) {
        cases.push((
            "WireGuard (wireguard-go)".to_owned(),
            Kind::WireGuard(WireGuard),
        ));
    }
    cases.push(("no tunnel".to_owned(), Kind::Plain));
    cases
}

/// One TCP stream, and what the tunnel's daemons used for it.
fn throughput(tunnel: &Tunnel<'_>, round: &mut Round) -> Result<(), LabError> {
    let server = tunnel.server.to_string();
    let sink = tunnel.network.call(Side::Server, IPERF.name);
    let sink = sink.args(["-s", "--forceflush", "-i", "0", "-B", &server]);
    let mut sink: Daemon = sink.start(&tunnel.log("iperf3"))?;
    let limit = Duration::from_secs(10);
    sink.wait_for(limit, |sink| sink.said().contains("listening"))?;
    let before = tunnel.cpu();
    let source: Call = tunnel.network.call(Side::Client, IPERF.name);
    let (seconds, step) = (SECONDS.to_string(), WARM.to_string());
    let done = source
        .args([
            "-c", &server, "-J", "-C", "cubic", "-i", &step, "-t", &seconds,
        ])
        .limit(Duration::from_secs(60))
        .run()?;
    let used = tunnel.cpu() - before;
    let report: serde_json::Value = serde_json::from_str(&done.stdout).map_err(|_| unclear())?;
    round.put("throughput", steady(&report).ok_or_else(unclear)?);
    let received = report.pointer("/end/sum_received/bytes");
    let received = received
        .and_then(serde_json::Value::as_f64)
        .ok_or_else(unclear)?;
    if used > 0.0 {
        round.put("cpu", used / received * 1e9);
    }
    round.used("iperf3, client", done.usage);
    round.used("iperf3, server", sink.usage());
    Ok(())
}

fn unclear() -> LabError {
    LabError::Unexpected("iperf3 gave no rate".to_owned())
}

/// Mbit/s of what was sent after the warm-up.
fn steady(report: &serde_json::Value) -> Option<f64> {
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for interval in report.get("intervals")?.as_array()? {
        let number = |name: &str| interval.pointer(&format!("/sum/{name}"))?.as_f64();
        if number("start")? >= WARM / 2.0 {
            bytes += number("bytes")?;
            seconds += number("seconds")?;
        }
    }
    (seconds > 0.0).then_some(bytes * 8.0 / seconds / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_does_not_count() {
        let interval = |start, bytes| serde_json::json!({ "sum": { "start": start, "seconds": 0.25, "bytes": bytes } });
        let intervals = [
            interval(0.0, 1.0),
            interval(0.2501, 25e6),
            interval(0.5, 37.5e6),
        ];
        let report = serde_json::json!({ "intervals": intervals });
        assert_eq!(steady(&report), Some(1000.0));
        assert_eq!(steady(&serde_json::json!({ "intervals": [] })), None);
    }
}
