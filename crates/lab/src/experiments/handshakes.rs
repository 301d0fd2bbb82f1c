//! Connections a minute and the time of one, by key: the published Tables 5.1 and 5.2, and today's keys.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::LabError;
use crate::experiment::Experiment;
use crate::experiments::OPENSSL;
use crate::ike::Dialled;
use crate::ike_servers::{IkeServer, add_clients, dialling};
use crate::network::{IP, Network, Side};
use crate::process::{Daemon, Usage};
use crate::record::Better;
use crate::servers::{self, Key, NGINX, Pki, Server};
use crate::session::{Plan, Round, Rounds, Session};
use crate::stats::range;
use crate::tls::{Column, load, reason};
use crate::tunnels::{CHARON, Identity, OPENVPN, SWANCTL, ourselves};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "handshakes",
    title: "Handshakes by key",
    question: "How long does a connection take to be made, and how many can ten clients make in a minute, \
               by kind and size of the server's key?",
    source: "High-level cryptographic protocols on a system on chip (thesis), Tables 5.1 and 5.2",
    needs: &[IP, OPENSSL],
    wants: &[OPENVPN, NGINX, CHARON, SWANCTL],
    seconds: (75, 200),
    run,
};

const TIME: &str = "openvpn-time";
const RATE: &str = "openvpn-rate";
const CPU: &str = "openvpn-cpu";
const TLS: &str = "tls-rate";
const IKE_TIME: &str = "ike-time";
const IKE_RATE: &str = "ike-rate";
const IKE_CPU: &str = "ike-cpu";
const TABLE_1: &str =
    "SoC crypto offload thesis, Table 5.1, software: dual Cortex-A9 at 800 MHz, OpenVPN with DHE";
const TABLE_2: &str = "SoC crypto offload thesis, Table 5.2, software: dual Cortex-A9 at 800 MHz, ten clients that \
                       renegotiate every second, at most 600 a minute";
/// Seconds.
const TIMES: &[(&str, f64)] = &[
    ("OpenVPN, RSA-1024", 0.041_921),
    ("OpenVPN, RSA-2048", 0.202_945),
    ("OpenVPN, RSA-4096", 1.436_743),
];
const RATES: &[(&str, f64)] = &[
    ("OpenVPN, RSA-1024", 445.4),
    ("OpenVPN, RSA-2048", 155.6),
    ("OpenVPN, RSA-4096", 19.6),
];
const BASE: &str = "OpenVPN, RSA-2048";
const TLS_BASE: &str = "nginx, RSA-2048, X25519";
const IKE_BASE: &str = "Cordon (IKEv2), RSA-2048, X25519";
const CLIENTS: u8 = servers::CLIENTS;
/// Tunnels of one client alone, of which the time is taken.
const ALONE: u32 = 15;
/// No connection takes longer.
const LIMIT: Duration = Duration::from_secs(20);

enum Work {
    OpenVpn(Identity),
    Tls(Server, Column),
    /// With ML-KEM-768 or without.
    Ike(IkeServer, Key, bool),
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let seconds = session.pick(0.5, 1.0);
    let requests = session.pick(100, 300);
    session.parameter("clients at a time", CLIENTS);
    session.parameter("seconds of OpenVPN and IKEv2 connections", seconds);
    session.parameter("TLS connections in a round", requests);
    let bars = Plan::bars;
    session.plan(
        bars(TIME, "OpenVPN, time of one connection", "s", Better::Less)
            .base(BASE)
            .published(TIMES, TABLE_1),
    );
    session.plan(
        bars(
            RATE,
            "OpenVPN, ten clients",
            "connections per minute",
            Better::More,
        )
        .base(BASE)
        .published(RATES, TABLE_2),
    );
    let title = "OpenVPN server, processor time of a connection";
    session.plan(bars(CPU, title, "ms", Better::Less).base(BASE));
    let title = "HTTPS with TLS 1.3, full handshakes without client certificate, ten clients";
    session.plan(bars(TLS, title, "connections per minute", Better::More).base(TLS_BASE));
    for (id, title, unit, better) in [
        (IKE_TIME, "IKEv2, time of one tunnel", "ms", Better::Less),
        (
            IKE_RATE,
            "IKEv2, ten clients",
            "tunnels per minute",
            Better::More,
        ),
        (
            IKE_CPU,
            "IKEv2 server, processor time of a tunnel, its end included",
            "ms",
            Better::Less,
        ),
    ] {
        session.plan(bars(id, title, unit, better).base(IKE_BASE));
    }
    session.preparing("making keys");
    let mut cases = openvpn(session)?;
    cases.extend(tls(session));
    cases.extend(ike(session));
    let pki = Pki::make(&session.folder.join("pki"), &Key::ALL)?;
    pki.add_tunnels()?;
    let folder = session.folder.clone();
    let network = Network::new()?;
    add_clients(&network, CLIENTS)?;
    let rounds = Rounds {
        count: session.pick(2, 5),
        warm_up: false,
    };
    session.rounds(rounds, &cases, |work, round| match work {
        Work::OpenVpn(identity) => {
            let seconds = Duration::from_secs_f64(seconds);
            let server = server(&network, identity, &folder)?;
            connections(&network, identity, &server, seconds, round)
        }
        Work::Tls(server, column) => {
            let daemon = server.start(&network, &pki)?;
            let clients = CLIENTS.into();
            let unseen = &mut Round::default();
            load(&network, &pki, *column, requests / 10, clients, unseen)?;
            let loaded = load(&network, &pki, *column, requests, clients, round)?;
            round.put(TLS, loaded.rate * 60.0);
            round.used(server.name(), daemon.usage());
            Ok(())
        }
        Work::Ike(server, key, hybrid) => {
            let dial = |clients, count, seconds, round: &mut Round| {
                dial(
                    &network,
                    &pki,
                    (*key, *hybrid),
                    (clients, count, seconds),
                    round,
                )
            };
            let daemon = server.start(&network, &pki, &folder, *key, *hybrid)?;
            // The first ones load what is loaded once.
            dial(1, Some(3), 0.0, &mut Round::default())?;
            let alone = dial(1, Some(ALONE), 0.0, &mut Round::default())?;
            if let Some(times) = range(alone.times) {
                round.put(IKE_TIME, times.median * 1000.0);
            }
            let before = daemon.usage().cpu;
            let all = dial(CLIENTS, None, seconds, round)?;
            if all.count == 0 {
                return Err(LabError::Unexpected(
                    "no tunnel was made in time".to_owned(),
                ));
            }
            let count = f64::from(all.count);
            round.put(IKE_RATE, count / all.seconds * 60.0);
            round.put(IKE_CPU, (daemon.usage().cpu - before) * 1000.0 / count);
            round.used(&format!("{}, server", daemon.name), daemon.usage());
            daemon.stop();
            Ok(())
        }
    });
    session.caveat(
        "The clients of the thesis renegotiate inside of connections that stay, which OpenVPN does only \
         when its coarse timer comes round; ours connect anew as fast as they can, so the published limit \
         of 600 a minute does not apply. A connection is made when both ends have verified each other; \
         starting the client's process counts for the rate and not for the time of one connection.",
    );
    session.caveat(
        "The key exchange is X25519, where the thesis has finite-field Diffie-Hellman. RSA-1024 has been \
         too short for years: OpenVPN takes it when told that anything goes, TLS and IKEv2 of ours not at all.",
    );
    session.caveat(
        "IKEv2: ten clients of ours, each with an address of its own, make a tunnel with certificates on both \
         sides, close it and begin again, with `cordon vpn up` and with strongSwan's charon (ESP in user \
         space, kernel-libipsec) as server. Clients and server share the processors, so the rate is that \
         of both; the server's processor time is its own.",
    );
    Ok(())
}

fn openvpn(session: &mut Session<'_>) -> Result<Vec<(String, Work)>, LabError> {
    let mut cases = Vec::new();
    if !session.has("OpenVPN", &[OPENVPN]) {
        return Ok(cases);
    }
    for (name, key) in [
        ("RSA-1024", &["rsa:1024"][..]),
        ("RSA-2048", &["rsa:2048"]),
        ("RSA-4096", &["rsa:4096"]),
        ("ECDSA P-256", &Identity::P256),
        ("Ed25519", &["ed25519"]),
    ] {
        let identity = Identity::make(&session.folder.join(name), key)?;
        cases.push((format!("OpenVPN, {name}"), Work::OpenVpn(identity)));
    }
    Ok(cases)
}

fn tls(session: &mut Session<'_>) -> Vec<(String, Work)> {
    let mut servers = vec![Server::Cordon];
    if session.has("nginx", &[NGINX]) {
        servers.insert(0, Server::Nginx);
    }
    let mut cases = Vec::new();
    for server in servers {
        for key in Key::ALL {
            let mut add = |exchange, hybrid| {
                let column = Column {
                    key: Some(key),
                    client: false,
                    reuse: false,
                    today: true,
                    hybrid,
                };
                let name = format!("{}, {}, {exchange}", server.name(), key.name());
                cases.push((name, Work::Tls(server, column)));
            };
            add("X25519", false);
            if server == Server::Cordon {
                add("X25519MLKEM768", true);
            }
        }
    }
    cases
}

/// Lets IKEv2 clients make and close tunnels: how many clients, how many times or for how long.
fn dial(
    network: &Network,
    pki: &Pki,
    (key, hybrid): (Key, bool),
    (clients, count, seconds): (u8, Option<u32>, f64),
    round: &mut Round,
) -> Result<Dialled, LabError> {
    let unclear = |error: serde_json::Error| LabError::Unexpected(error.to_string());
    let text = dialling(pki, key, hybrid, clients, count, seconds)?;
    let done = network
        .call(Side::Client, ourselves()?)
        .arg("ike-clients")
        .input(serde_json::to_string(&text).map_err(unclear)?)
        .run()
        .map_err(|error| LabError::Unexpected(reason(&error)))?;
    round.used("clients", done.usage);
    serde_json::from_str(&done.stdout).map_err(unclear)
}

fn ike(session: &mut Session<'_>) -> Vec<(String, Work)> {
    let mut kinds = vec![IkeServer::Cordon];
    if session.has("strongSwan (IKEv2)", &[CHARON, SWANCTL]) {
        kinds.push(IkeServer::StrongSwan);
    }
    let mut cases = Vec::new();
    for server in kinds {
        let name =
            |key: Key, exchange| format!("{} (IKEv2), {}, {exchange}", server.name(), key.name());
        for key in Key::ALL {
            cases.push((name(key, "X25519"), Work::Ike(server, key, false)));
        }
        let (key, exchange) = (Key::EcdsaP256, "X25519 + ML-KEM-768");
        if server == IkeServer::Cordon {
            cases.push((name(key, exchange), Work::Ike(server, key, true)));
        } else {
            session.missing(
                &name(key, exchange),
                "strongSwan has several key exchanges from version 6 on, Debian 12 has 5.9",
                None,
            );
        }
    }
    cases
}

/// Settings of both ends.
fn common(identity: &Identity) -> Vec<String> {
    let mut words: Vec<String> = [
        "--proto",
        "udp4",
        "--cert",
        "cert.pem",
        "--key",
        "key.pem",
        "--data-ciphers",
        "AES-256-CBC",
        "--verb",
        "3",
        "--machine-readable-output",
        "--tls-cert-profile",
        "insecure",
        "--disable-dco",
        "--peer-fingerprint",
    ]
    .map(str::to_owned)
    .into();
    words.push(identity.fingerprint().to_owned());
    words
}

fn server(
    network: &Network,
    identity: &Identity,
    folder: &std::path::Path,
) -> Result<Daemon, LabError> {
    let program = OPENVPN.path().unwrap_or_else(|| OPENVPN.name.into());
    let [address, first, last] = ["10.208.0.1", "10.208.0.2", "10.208.0.250"];
    let call = network
        .call(Side::Server, program)
        .args(common(identity))
        .args([
            // From 2.6 on it answers a hundred clients in ten seconds and leaves out the others; before that it
            // does not know the option.
            "--setenv",
            "opt",
            "connect-freq-initial",
            "1000000",
            "1",
            "--mode",
            "server",
            "--tls-server",
            "--dh",
            "none",
            "--duplicate-cn",
            "--dev",
            "tun",
        ])
        .args([
            "--port",
            "1194",
            "--topology",
            "subnet",
            "--ifconfig",
            address,
            "255.255.255.0",
        ])
        .args(["--ifconfig-pool", first, last])
        .folder(identity.folder());
    let mut daemon = call.start(&folder.join("openvpn-server.log"))?;
    daemon.wait_for(LIMIT, |d| {
        d.said().contains("Initialization Sequence Completed")
    })?;
    Ok(daemon)
}

/// One client after the other, then ten at a time.
fn connections(
    network: &Network,
    identity: &Identity,
    server: &Daemon,
    time: Duration,
    round: &mut Round,
) -> Result<(), LabError> {
    // The first one warms up.
    connect(network, identity)?;
    let mut alone = Vec::new();
    for _ in 0..5 {
        alone.push(connect(network, identity)?.0);
    }
    let median = range(alone).map_or(f64::NAN, |spread| spread.median);
    round.put(TIME, median);
    let before = server.usage().cpu;
    let began = Instant::now();
    let clients = std::thread::scope(|scope| {
        let client = || {
            let mut done = Vec::new();
            while began.elapsed() < time {
                done.push(connect(network, identity)?.1);
            }
            Ok::<_, LabError>(done)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let lost = |_| LabError::Unexpected("a client thread died".to_owned());
        clients
            .into_iter()
            .map(|c| c.join().map_err(lost)?)
            .collect::<Result<Vec<_>, _>>()
    })?;
    let clients = clients.concat();
    if clients.is_empty() {
        return Err(LabError::Unexpected(
            "no connection was made in time".to_owned(),
        ));
    }
    let count = clients.len() as f64;
    round.put(RATE, count / began.elapsed().as_secs_f64() * 60.0);
    round.put(CPU, (server.usage().cpu - before) * 1000.0 / count);
    for usage in clients {
        round.used("openvpn, clients", usage);
    }
    round.used("openvpn, server", server.usage());
    Ok(())
}

/// A client's port that no other one had for long. The server keeps clients that are gone, and takes one that comes
/// from the same port for the old one, which has its address already and waits for nothing: among a hundred random
/// ports two are the same in every fourth case.
fn port() -> String {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    (FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT).to_string()
}

/// Connects once and gives the seconds from the first packet to the verified peer, by the client's log, and
/// what the client used.
fn connect(network: &Network, identity: &Identity) -> Result<(f64, Usage), LabError> {
    let program = OPENVPN.path().unwrap_or_else(|| OPENVPN.name.into());
    let server = Side::Server.outside().to_string();
    // Without an interface it ends by itself as soon as the server gives it an address for one.
    let done = network
        .call(Side::Client, program)
        .args(common(identity))
        .args([
            "--dev",
            "null",
            "--tls-client",
            "--pull",
            "--lport",
            &port(),
            "--remote",
            &server,
            "1194",
        ])
        .folder(identity.folder())
        .limit(LIMIT)
        .any_exit()
        .run()?;
    let at = |words: &str| {
        let line = done.stdout.lines().find(|line| line.contains(words))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    match (at("link remote"), at("Peer Connection Initiated")) {
        (Some(start), Some(end)) => Ok((end - start, done.usage)),
        _ => {
            let last = done.stdout.lines().last().unwrap_or_default();
            Err(LabError::Unexpected(format!(
                "openvpn did not connect: {last}"
            )))
        }
    }
}
