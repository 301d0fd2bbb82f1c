//! Round trips by packet size through tunnels.

use super::suites::{AES_256_CBC, AES_256_GCM, SHA2_256};
use crate::LabError;
use crate::experiment::Experiment;
use crate::experiments::OPENSSL;
use crate::network::{IP, Network};
use crate::record::Better;
use crate::session::{Plan, Round, Rounds, Session};
use crate::tunnels::{
    CHARON, Cordon, Identity, Kind, OPENVPN, OpenVpn, PING, Provider, SWANCTL, StrongSwan, WG,
    WIREGUARD, WireGuard, round_trips,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    title: "Round trip by packet size",
    question: "How long does a packet take there and back, by its size, without protection and through \
               each tunnel?",
    source: "High-level cryptographic protocols on a system on chip (thesis), Fig. 5.2 to 5.4; the bars' \
             values are not in the text",
    needs: &[IP, PING],
    wants: &[OPENSSL, OPENVPN, WIREGUARD, WG, CHARON, SWANCTL],
    seconds: (25, 140),
    run,
};

const FIGURES: [(&str, &str); 3] = [
    ("minimum", "Least round trip"),
    ("average", "Average round trip (published form: Fig. 5.4)"),
    ("maximum", "Greatest round trip"),
];
/// Microseconds: `ping` writes milliseconds with three digits.
const PING_STEP: f64 = 1.0;
const PLAIN: &str = "no tunnel";
/// Bytes of data of an echo request, between the ends that the thesis has.
const SIZES: [usize; 8] = [16, 64, 256, 1024, 1400, 4096, 16_384, 65_000];

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let count = session.pick(100, 1000);
    session.parameter(
        "echo requests for each size, as fast as they come back",
        count,
    );
    for (id, title) in FIGURES {
        session.plan(
            Plan::bars(id, title, "µs", Better::Less)
                .over("bytes of data")
                .logarithmic()
                .step(PING_STEP)
                .base(PLAIN),
        );
    }
    let cases = tunnels(session)?;
    let folder = session.folder.clone();
    let network = Network::new()?;
    let rounds = Rounds {
        count: session.pick(2, 5),
        warm_up: false,
    };
    session.rounds(rounds, &cases, |kind, round| {
        let tunnel = kind.start(&network, &folder)?;
        // The first packets fill caches and queues.
        round_trips(&tunnel, 64, count, &mut Round::default())?;
        for size in SIZES {
            let times = round_trips(&tunnel, size, count, round)?;
            for ((id, _), time) in FIGURES.into_iter().zip(times) {
                round.put_at(id, size as f64, time);
            }
        }
        tunnel.account(round);
        Ok(())
    });
    session.caveat(
        "Packets above the path's 1500 bytes travel in fragments. The thesis measured a board over a \
         100 Mbit/s switch, so only order and growth can be compared.",
    );
    session.caveat(
        "Processor time counts each daemon from its start, the making of its keys included.",
    );
    Ok(())
}

fn tunnels(session: &mut Session<'_>) -> Result<Vec<(String, Kind)>, LabError> {
    let mut cases = vec![(PLAIN.to_owned(), Kind::Plain)];
    let cbc = Cordon::new(AES_256_CBC, Some(SHA2_256));
    cases.push((
        "Cordon, AES-256-GCM".to_owned(),
        Kind::Cordon(Cordon::new(AES_256_GCM, None)),
    ));
    cases.push(("Cordon, AES-256-CBC, SHA-256".to_owned(), Kind::Cordon(cbc)));
    if session.has("OpenVPN", &[OPENVPN, OPENSSL]) {
        let identity = Identity::make(&session.folder.join("openvpn"), &Identity::P256)?;
        for cipher in ["AES-256-GCM", "AES-256-CBC"] {
            let name = match cipher {
                "AES-256-CBC" => "OpenVPN, AES-256-CBC, SHA-256".to_owned(),
                other => format!("OpenVPN, {other}"),
            };
            cases.push((
                name,
                Kind::OpenVpn(OpenVpn {
                    cipher: cipher.to_owned(),
                    integrity: "SHA256",
                    provider: Provider::Default,
                    identity: identity.clone(),
                }),
            ));
        }
    }
    if session.has("strongSwan", &[CHARON, SWANCTL]) {
        for (name, proposal) in [
            ("AES-256-GCM", "aes256gcm16"),
            ("AES-256-CBC, SHA-256", "aes256-sha256"),
        ] {
            cases.push((
                format!("strongSwan, {name}"),
                Kind::StrongSwan(StrongSwan { proposal }),
            ));
        }
    }
    if session.has("WireGuard", &[WIREGUARD, WG]) {
        cases.push((
            "WireGuard (wireguard-go)".to_owned(),
            Kind::WireGuard(WireGuard),
        ));
    }
    Ok(cases)
}
