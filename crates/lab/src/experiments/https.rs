//! What TLS, client certificates and session reuse cost a web server: the published Table II, and
//! today's suites.

use std::time::Duration;

use crate::LabError;
use crate::experiment::Experiment;
use crate::experiments::OPENSSL;
use crate::network::{IP, Network, Side};
use crate::process::ProcessError;
use crate::record::Better;
use crate::servers::{APACHE, Key, NGINX, PAGE_BYTES, Pki, Server, address};
use crate::session::{Lap, Plan, Rounds, Session};
use crate::tool::{Load, Loaded, Tls};
use crate::tunnels::ourselves;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "https",
    title: "Web servers with TLS, client certificates and session reuse",
    question: "How many pages a second does a server give away, by protection, and what do client \
               certificates, session reuse and today's algorithms change?",
    source: "Machník, Urueña, Niemiec, Stoianov, Performance evaluation of INDECT security architecture, \
             Table II",
    needs: &[IP, OPENSSL],
    wants: &[NGINX, APACHE],
    seconds: (75, 600),
    run,
};

const TABLE_2: &str = "INDECT performance evaluation, Table II: Apache 2.2 on 4 x Xeon E5420 at 2.5 GHz, JMeter on \
                       i5-3320M, Fast Ethernet";
const HTTP: &str = "HTTP";
/// Pages per second.
const THROUGHPUT: &[(&str, f64)] = &[
    (HTTP, 561.37),
    ("HTTPS -client +reuse", 341.49),
    ("HTTPS -client -reuse", 133.71),
    ("HTTPS +client +reuse", 350.32),
    ("HTTPS +client -reuse", 116.01),
];
/// Milliseconds.
const LATENCY: &[(&str, f64)] = &[
    (HTTP, 25.0),
    ("HTTPS -client +reuse", 43.0),
    ("HTTPS -client -reuse", 114.0),
    ("HTTPS +client +reuse", 41.0),
    ("HTTPS +client -reuse", 133.0),
];
/// As published.
const THREADS: u32 = 16;
/// In quick runs: what takes a tenth of the time is asked for more often.
const MANY: u32 = 8;

/// A server with its figures.
struct Subject {
    server: Server,
    throughput: &'static str,
    latency: &'static str,
}

const SUBJECTS: [Subject; 3] = [
    Subject {
        server: Server::Apache,
        throughput: "apache-throughput",
        latency: "apache-latency",
    },
    Subject {
        server: Server::Nginx,
        throughput: "nginx-throughput",
        latency: "nginx-latency",
    },
    Subject {
        server: Server::Cordon,
        throughput: "cordon-throughput",
        latency: "cordon-latency",
    },
];
const TODAY: &str = "today";
const BASE: &str = "nginx, RSA-2048, X25519";

/// One kind of connection.
#[derive(Clone, Copy)]
struct Column {
    key: Option<Key>,
    client: bool,
    reuse: bool,
    /// Today's TLS 1.3 instead of the published 1.2.
    today: bool,
    hybrid: bool,
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let requests = session.pick(150, 2000);
    session.parameter(
        "requests in a round, each on a connection of its own",
        requests,
    );
    let many = session.pick(MANY, 1);
    session.parameter("times as many without handshakes or with short ones", many);
    session.parameter("connections at a time", THREADS);
    session.parameter("bytes of the page", PAGE_BYTES);
    session.parameter(
        "certificates",
        "server RSA-2048 under two RSA-4096 authorities, client RSA-2048 under one",
    );
    plan(session);
    let mut cases = Vec::new();
    for subject in &SUBJECTS {
        let there = match subject.server {
            Server::Apache => session.has("Apache httpd", &[APACHE]),
            Server::Nginx => session.has("nginx", &[NGINX]),
            Server::Cordon => true,
        };
        if there {
            cases.extend(
                columns()
                    .into_iter()
                    .map(|(name, column)| (name, (subject, column))),
            );
            cases.extend(
                suites(subject.server)
                    .into_iter()
                    .map(|(name, c)| (name, (subject, c))),
            );
        }
    }
    session.preparing("making RSA-4096 keys");
    let pki = Pki::make(&session.folder.join("pki"))?;
    let network = Network::new()?;
    let rounds = Rounds {
        count: session.pick(2, 5),
        warm_up: false,
    };
    session.rounds(rounds, &cases, |(subject, column), lap| {
        let short = column.key.is_none() || column.reuse;
        let requests = if short { requests * many } else { requests };
        measure(&network, &pki, subject, *column, requests, lap)
    });
    session.caveat(
        "The first columns use TLS 1.2, the newest that the publication can have used; reuse there saves \
         all public-key work. TLS 1.3 keeps a fresh key exchange when a session is taken up.",
    );
    session.caveat(
        "The client is ours (rustls), with its 16 threads on the same processors; it checks every \
         certificate and every page. Cordon is its listener with the TLS configuration of the portal, \
         serving the same page.",
    );
    Ok(())
}

fn plan(session: &mut Session<'_>) {
    for (subject, throughput, latency) in [
        (
            &SUBJECTS[0],
            "Apache httpd: pages",
            "Apache httpd: average time of a page",
        ),
        (
            &SUBJECTS[1],
            "nginx: pages",
            "nginx: average time of a page",
        ),
        (
            &SUBJECTS[2],
            "Cordon: pages",
            "Cordon: average time of a page",
        ),
    ] {
        session.plan(
            Plan::bars(
                subject.throughput,
                throughput,
                "pages per second",
                Better::More,
            )
            .base(HTTP)
            .published(THROUGHPUT, TABLE_2),
        );
        session.plan(
            Plan::bars(subject.latency, latency, "ms", Better::Less)
                .base(HTTP)
                .published(LATENCY, TABLE_2),
        );
    }
    let title = "Today: TLS 1.3, client certificate, no reuse, by key and key exchange";
    session.plan(Plan::bars(TODAY, title, "pages per second", Better::More).base(BASE));
}

/// The published columns.
fn columns() -> Vec<(String, Column)> {
    let https = |client, reuse| Column {
        key: Some(Key::Rsa2048),
        client,
        reuse,
        today: false,
        hybrid: false,
    };
    let plain = Column {
        key: None,
        ..https(false, false)
    };
    let columns = [
        plain,
        https(false, true),
        https(false, false),
        https(true, true),
        https(true, false),
    ];
    THROUGHPUT
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .zip(columns)
        .collect()
}

fn suites(server: Server) -> Vec<(String, Column)> {
    let mut suites = Vec::new();
    for key in Key::ALL {
        let column = |hybrid| Column {
            key: Some(key),
            client: true,
            reuse: false,
            today: true,
            hybrid,
        };
        let name = |exchange| format!("{}, {}, {exchange}", server.name(), key.name());
        suites.push((name("X25519"), column(false)));
        // OpenSSL knows it from version 3.5 on; ours always does.
        if server == Server::Cordon {
            suites.push((name("X25519MLKEM768"), column(true)));
        }
    }
    suites
}

fn measure(
    network: &Network,
    pki: &Pki,
    subject: &Subject,
    column: Column,
    requests: u32,
    lap: &mut Lap,
) -> Result<(), LabError> {
    let server = subject.server.start(network, pki)?;
    let loaded = load(network, pki, column, requests, lap)?;
    if column.today {
        lap.put(TODAY, loaded.rate);
    } else {
        lap.put(subject.throughput, loaded.rate);
        lap.put(subject.latency, loaded.latency);
    }
    // Nearly all have to be what the column says, or it would say something else.
    let share = f64::from(loaded.resumed) / f64::from(requests);
    if (share > 0.9) != column.reuse {
        let text = format!("{:.0} % of the sessions were taken up again", share * 100.0);
        return Err(LabError::Unexpected(text));
    }
    lap.used(subject.server.name(), server.usage());
    Ok(())
}

fn load(
    network: &Network,
    pki: &Pki,
    column: Column,
    requests: u32,
    lap: &mut Lap,
) -> Result<Loaded, LabError> {
    let tls = match column.key {
        None => None,
        Some(key) => {
            let file = |end| pki.read(&format!("client-{}.{end}", key.file()));
            Some(Tls {
                roots: pki.read("root.pem")?,
                identity: if column.client {
                    Some((file("pem")?, file("key")?))
                } else {
                    None
                },
                reuse: column.reuse,
                old: !column.today,
                hybrid: column.hybrid,
            })
        }
    };
    let load = Load {
        address: address(column.key, column.client),
        requests,
        threads: THREADS,
        body: PAGE_BYTES,
        tls,
    };
    let text = serde_json::to_string(&load).map_err(|e| LabError::Unexpected(e.to_string()))?;
    let done = network
        .call(Side::Client, ourselves()?)
        .args(["lab", "load"])
        .input(text)
        .limit(Duration::from_secs(300))
        .run()
        .map_err(|error| LabError::Unexpected(reason(&error)))?;
    lap.used("client", done.usage);
    serde_json::from_str(&done.stdout).map_err(|error| LabError::Unexpected(error.to_string()))
}

/// What our own client said, without what is meant for people who start it by hand.
fn reason(error: &ProcessError) -> String {
    let text = error.to_string();
    let text = text
        .split_once("client: ")
        .map_or(text.as_str(), |(_, rest)| rest);
    text.split_once(" to do: ")
        .map_or(text, |(reason, _)| reason)
        .to_owned()
}
