//! What TLS, client certificates and session reuse cost a web server: the published Table II, and
//! today's suites.

use crate::LabError;
use crate::experiment::Experiment;
use crate::experiments::OPENSSL;
use crate::network::{IP, Network};
use crate::record::Better;
use crate::servers::{APACHE, Key, NGINX, PAGE_BYTES, Pki, Server};
use crate::session::{Plan, Round, Rounds, Session};
use crate::tls::{Column, load};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "https",
    title: "Web servers with TLS, client certificates and session reuse",
    question: "How many pages a second does a server give away, by protection, and what do client \
               certificates, session reuse and today's algorithms change?",
    source: "Machník, Urueña, Niemiec, Stoianov, Performance evaluation of INDECT security architecture, \
             Table II",
    needs: &[IP, OPENSSL],
    wants: &[NGINX, APACHE],
    seconds: (40, 260),
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
const THREADS: u32 = 16;
/// Factor for cases that take a tenth of the time.
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
/// RSA-4096 is a matter of `handshakes`.
const KEYS: [Key; 3] = [Key::Rsa2048, Key::EcdsaP256, Key::Ed25519];
const TODAY: &str = "today";
const BASE: &str = "nginx, RSA-2048, X25519";

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    // Five rounds of it are the 10 000 of the publication.
    let requests = session.pick(120, 2000);
    session.parameter(
        "requests in a round, each on a connection of its own",
        requests,
    );
    session.parameter("times as many without handshakes or with short ones", MANY);
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
    let pki = Pki::make(&session.folder.join("pki"), &KEYS)?;
    let network = Network::new()?;
    let rounds = Rounds {
        count: session.pick(2, 5),
        warm_up: false,
    };
    session.rounds(rounds, &cases, |(subject, column), round| {
        let short = column.key.is_none() || column.reuse;
        let requests = if short { requests * MANY } else { requests };
        measure(&network, &pki, subject, *column, requests, round)
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
    for key in KEYS {
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
    round: &mut Round,
) -> Result<(), LabError> {
    let server = subject.server.start(network, pki)?;
    load(
        network,
        pki,
        column,
        requests / 10,
        THREADS,
        &mut Round::default(),
    )?;
    let loaded = load(network, pki, column, requests, THREADS, round)?;
    if column.today {
        round.put(TODAY, loaded.rate);
    } else {
        round.put(subject.throughput, loaded.rate);
        round.put(subject.latency, loaded.latency);
    }
    // Nearly all have to be what the column says, or it would say something else.
    let share = f64::from(loaded.resumed) / f64::from(requests);
    if (share > 0.9) != column.reuse {
        let text = format!("{:.0} % of the sessions were taken up again", share * 100.0);
        return Err(LabError::Unexpected(text));
    }
    round.used(subject.server.name(), server.usage());
    Ok(())
}
