//! What to choose, by rules that are printed beside their answers.

use crate::record::{Better, Figure, Interval, Results, Row};
use crate::report::part::{Part, Table};
use crate::report::text::interval;

/// A question that one figure answers: the best of its cases.
struct Rule {
    question: &'static str,
    experiment: &'static str,
    figure: &'static str,
    x: Option<f64>,
    /// Only cases with one of these in their names; all, if empty.
    only: &'static [&'static str],
    /// No cases with one of these in their names, and why.
    without: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        question: "Which engine protects packets of a full Ethernet frame most cheaply?",
        experiment: "block-size",
        figure: "aes-256-gcm",
        x: Some(1440.0),
        only: &[],
        without: &[],
        why: "",
    },
    Rule {
        question: "Which authenticated cipher does this processor run fastest?",
        experiment: "ibc",
        figure: "speed",
        x: None,
        only: &["GCM", "Poly1305"],
        without: &[],
        why: "only ciphers that authenticate",
    },
    Rule {
        question: "Which tunnel carries most?",
        experiment: "vpn-ciphers",
        figure: "throughput",
        x: None,
        only: &["GCM", "Poly1305", "POLY1305", "WireGuard", "SHA-256"],
        without: &[],
        why: "only what is neither broken nor unprotected",
    },
    Rule {
        question: "Which tunnel needs least processor time for the same bytes?",
        experiment: "vpn-ciphers",
        figure: "cpu",
        x: None,
        only: &["GCM", "Poly1305", "POLY1305", "WireGuard", "SHA-256"],
        without: &[],
        why: "only what is neither broken nor unprotected",
    },
    Rule {
        question: "Which tunnel answers soonest, with packets of a full Ethernet frame?",
        experiment: "latency",
        figure: "average",
        x: Some(1400.0),
        only: &[],
        without: &["no tunnel"],
        why: "only protected ways",
    },
    Rule {
        question: "Which server, key and key exchange let most people with certificates in?",
        experiment: "https",
        figure: "today",
        x: None,
        only: &[],
        without: &[],
        why: "",
    },
    Rule {
        question: "And which of those that also withstand a quantum computer's later reading?",
        experiment: "https",
        figure: "today",
        x: None,
        only: &["MLKEM"],
        without: &[],
        why: "only with ML-KEM",
    },
    Rule {
        question: "Which key costs an OpenVPN server least for a connection?",
        experiment: "handshakes",
        figure: "openvpn-cpu",
        x: None,
        only: &[],
        without: &["RSA-1024"],
        why: "without keys that are too short",
    },
    Rule {
        question: "Which certificate and key exchange cost an IKEv2 server of ours least for a tunnel?",
        experiment: "handshakes",
        figure: "ike-cpu",
        x: None,
        only: &["Cordon"],
        without: &[],
        why: "",
    },
    Rule {
        question: "Which tunnel carries most live cameras of 4 Mbit/s?",
        experiment: "cctv",
        figure: "cameras-4",
        x: None,
        only: &[],
        without: &["no tunnel"],
        why: "only protected ways",
    },
    Rule {
        question: "Which kind of IPsec carries many pictures fastest, without UDP around it?",
        experiment: "ipsec-modes",
        figure: "tunnel-files",
        x: None,
        only: &["GCM", "Poly1305", "SHA-256"],
        without: &["AH", "uploader"],
        why: "only what encrypts, and neither broken nor worn out",
    },
    Rule {
        question: "Which protected way carries a large file fastest?",
        experiment: "transfer",
        figure: "rate",
        x: None,
        only: &["gcm", "chacha", "GCM", "ChaCha", "sha2", "SHA-256"],
        without: &[],
        why: "only what is neither broken nor unprotected",
    },
    Rule {
        question: "Which check notices most faults that hit one byte with two wrong bits?",
        experiment: "ced",
        figure: "one-byte",
        x: Some(2.0),
        only: &[],
        without: &[],
        why: "",
    },
];

pub(super) fn write(parts: &mut Vec<Part>, results: &Results) {
    let name = Some("choose".to_owned());
    parts.push(Part::Heading(2, "What to choose".to_owned(), name));
    parts.push(Part::Text(
        "The rule for every line: of the cases that may be chosen, the one with the best median wins, and \
         every case whose range overlaps the winner's range counts as equal. Nothing is chosen that is \
         broken or unprotected, however fast."
            .to_owned(),
    ));
    let rows: Vec<_> = RULES
        .iter()
        .filter_map(|rule| line(rule, results))
        .collect();
    if rows.is_empty() {
        parts.push(Part::Text(
            "None of the experiments that answer was measured.".to_owned(),
        ));
        return;
    }
    let head = [
        "Question",
        "Answer here",
        "Its value",
        "As good, within the spread",
        "From",
    ];
    parts.push(Part::Table(Table {
        head: head.map(str::to_owned).to_vec(),
        rows,
        words: true,
    }));
}

fn line(rule: &Rule, results: &Results) -> Option<Vec<String>> {
    let outcome = results.outcome(rule.experiment)?;
    let figure = outcome
        .figures
        .iter()
        .find(|figure| figure.id == rule.figure)?;
    let named = |row: &Row, parts: &[&str]| parts.iter().any(|part| row.case.contains(part));
    let allowed: Vec<(&Row, Interval)> = figure
        .rows
        .iter()
        .filter(|row| rule.x.is_none() || row.x == rule.x)
        .filter(|row| (rule.only.is_empty() || named(row, rule.only)) && !named(row, rule.without))
        .filter_map(|row| Some((row, row.measured.as_ref()?.interval)))
        .collect();
    let (winner, best) = choose(figure, &allowed)?;
    let equal: Vec<&str> = allowed
        .iter()
        .filter(|(row, spread)| {
            row.case != winner.case && spread.low <= best.high && best.low <= spread.high
        })
        .map(|(row, _)| row.case.as_str())
        .collect();
    let mut from = format!("{}: {}", rule.experiment, figure.title);
    if let (Some(x), Some(label)) = (rule.x, &figure.x_label) {
        from = format!("{from}, at {x} {label}");
    }
    if !rule.why.is_empty() {
        from = format!("{from}; {}", rule.why);
    }
    Some(vec![
        rule.question.to_owned(),
        winner.case.clone(),
        format!("{} {}", interval(&best), figure.unit),
        if equal.is_empty() {
            "none".to_owned()
        } else {
            equal.join("; ")
        },
        from,
    ])
}

fn choose<'a>(figure: &Figure, rows: &[(&'a Row, Interval)]) -> Option<(&'a Row, Interval)> {
    let by_median =
        |a: &&(&Row, Interval), b: &&(&Row, Interval)| a.1.median.total_cmp(&b.1.median);
    let best = match figure.better {
        // The first of equals, so that the answer does not depend on how a maximum is found.
        Better::More => rows.iter().rev().max_by(by_median),
        Better::Less => rows.iter().min_by(by_median),
    };
    best.copied()
}
