//! What a report says, before it is HTML or Markdown.

use crate::record::{Better, Figure, Finding, Outcome, Results, Row, State};
use crate::report::part::{Part, Table};
use crate::report::text::{duration, interval, number};
use crate::report::{advice, echo, load, plot};

pub(super) fn build(results: &Results) -> Vec<Part> {
    let mut parts = vec![Part::Heading(
        1,
        "What protection costs on this machine".to_owned(),
        None,
    )];
    opening(&mut parts, results);
    advice::write(&mut parts, results);
    for outcome in &results.experiments {
        experiment(&mut parts, outcome);
    }
    method(&mut parts);
    parts
}

fn heading(parts: &mut Vec<Part>, level: u8, text: &str, name: &str) {
    parts.push(Part::Heading(level, text.to_owned(), Some(name.to_owned())));
}

fn opening(parts: &mut Vec<Part>, results: &Results) {
    let host = &results.host;
    let length = if results.quick {
        "quick: few, short rounds"
    } else {
        "full"
    };
    parts.push(Part::Facts(vec![
        (
            "Measured".to_owned(),
            format!("{}, in {}", results.started, duration(results.seconds)),
        ),
        ("Kind of run".to_owned(), length.to_owned()),
        (
            "Processor".to_owned(),
            format!("{}, {} to use", host.cpu, host.cpus),
        ),
        ("Instructions".to_owned(), host.cpu_flags.join(" ")),
        ("Memory".to_owned(), format!("{} MiB", host.memory_mib)),
        (
            "System".to_owned(),
            format!("{}, {}", host.system, host.kernel),
        ),
        ("Cordon".to_owned(), version(results)),
    ]));
    if !results.build.optimised {
        parts.push(Part::Warning(
            "The measuring program was built without optimisation: figures of Cordon's own code say \
             nothing about it."
                .to_owned(),
        ));
    }
    if host.load > 0.5 {
        parts.push(Part::Warning(format!(
            "Other work ran when this began (load {}): only ratios may be quoted, and those with care.",
            number(host.load)
        )));
    }
    if !results.complete {
        parts.push(Part::Warning(
            "This run was interrupted: it has what was measured until then, and no more."
                .to_owned(),
        ));
    }
    if results.quick {
        parts.push(Part::Text(
            "A quick run shows orders of magnitude. Quote figures of a full run.".to_owned(),
        ));
    }
    let rows = results.experiments.iter().map(|outcome| {
        let state = match outcome.state {
            State::Measured => format!("measured in {}", duration(outcome.seconds)),
            State::NotRun => format!("not run: {}", why(outcome)),
            State::Failed => format!("failed: {}", why(outcome)),
            State::Interrupted => why(outcome),
        };
        vec![outcome.name.clone(), outcome.question.clone(), state]
    });
    parts.push(Part::Table(Table {
        head: ["Experiment", "Question", "State"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        words: true,
    }));
}

fn version(results: &Results) -> String {
    let kind = if results.build.laboratory {
        "laboratory build"
    } else {
        "ordinary build"
    };
    format!("{}, {kind}", results.cordon)
}

fn why(outcome: &Outcome) -> String {
    let reason = outcome.reason.as_deref().unwrap_or("no reason given");
    if outcome.packages.is_empty() {
        return reason.to_owned();
    }
    format!("{reason}; install {}", outcome.packages.join(", "))
}

fn experiment(parts: &mut Vec<Part>, outcome: &Outcome) {
    heading(parts, 2, &outcome.title, &outcome.name);
    parts.push(Part::Text(outcome.question.clone()));
    parts.push(Part::Text(format!("Published: {}.", outcome.source)));
    if outcome.state != State::Measured {
        let state = match outcome.state {
            State::NotRun => "Not run",
            State::Interrupted => "Not complete",
            State::Failed | State::Measured => "Failed",
        };
        parts.push(Part::Warning(format!("{state}: {}.", why(outcome))));
    }
    if !outcome.findings.is_empty() {
        parts.push(Part::List(outcome.findings.iter().map(finding).collect()));
    }
    for shown in outcome
        .figures
        .iter()
        .filter(|figure| !figure.rows.is_empty())
    {
        figure(parts, shown);
    }
    echo::write(parts, outcome);
    load::write(parts, outcome);
    processes(parts, outcome);
    if !outcome.missing.is_empty() {
        parts.push(Part::Text("Without figures:".to_owned()));
        let lines = outcome.missing.iter().map(|missing| {
            let package = missing.package.as_ref();
            let package = package.map_or_else(String::new, |p| format!("; install {p}"));
            format!("{}: {}{package}", missing.case, missing.reason)
        });
        parts.push(Part::List(lines.collect()));
    }
    conditions(parts, outcome);
}

fn finding(finding: &Finding) -> String {
    match finding.holds {
        Some(true) => format!("✓ holds here. {}", finding.text),
        Some(false) => format!("✗ does not hold here. {}", finding.text),
        None => finding.text.clone(),
    }
}

fn conditions(parts: &mut Vec<Part>, outcome: &Outcome) {
    if outcome.figures.is_empty() {
        return;
    }
    let mut facts = vec![("rounds".to_owned(), outcome.rounds.to_string())];
    let of = |map: &std::collections::BTreeMap<String, String>| map.clone().into_iter();
    facts.extend(of(&outcome.parameters));
    facts.extend(of(&outcome.versions));
    heading(
        parts,
        3,
        "Conditions",
        &format!("{}-conditions", outcome.name),
    );
    parts.push(Part::Facts(facts));
    if !outcome.caveats.is_empty() {
        parts.push(Part::List(outcome.caveats.clone()));
    }
}

fn figure(parts: &mut Vec<Part>, figure: &Figure) {
    let better = match figure.better {
        Better::More => "more is better",
        Better::Less => "less is better",
    };
    let title = format!("{} ({}, {better})", figure.title, figure.unit);
    parts.push(Part::Heading(3, title, None));
    parts.extend(plot::draw(figure).into_iter().map(Part::Picture));
    let source = figure.rows.iter().find_map(|row| row.published.as_ref());
    if let Some(published) = source {
        parts.push(Part::Text(format!(
            "Published values: {}.",
            published.source
        )));
    }
    parts.push(Part::Table(match &figure.x_label {
        Some(x) => by_x(figure, x),
        None => by_case(figure),
    }));
}

/// One line for each case, ratios and published values beside.
fn by_case(figure: &Figure) -> Table {
    let ratios = figure.base.is_some();
    let published = figure.rows.iter().any(|row| row.published.is_some());
    let mut head = vec!["case".to_owned(), "here".to_owned()];
    if let Some(base) = &figure.base {
        head.push(format!("ratio to {base}"));
    }
    if published {
        head.push("published".to_owned());
        if ratios {
            head.push("published ratio".to_owned());
        }
    }
    let dash = || "–".to_owned();
    let line = |row: &Row| {
        let mut cells = vec![row.case.clone()];
        cells.push(
            row.measured
                .as_ref()
                .map_or_else(dash, |m| interval(&m.interval)),
        );
        if ratios {
            cells.push(
                row.ratio
                    .as_ref()
                    .map_or_else(dash, |ratio| interval(&ratio.interval)),
            );
        }
        if published {
            let value = row.published.as_ref();
            cells.push(value.map_or_else(dash, |p| number(p.value)));
            if ratios {
                cells.push(value.and_then(|p| p.ratio).map_or_else(dash, number));
            }
        }
        cells
    };
    Table {
        head,
        rows: figure.rows.iter().map(line).collect(),
        words: false,
    }
}

/// One line for each case, one column for each `x`: medians.
fn by_x(figure: &Figure, x_label: &str) -> Table {
    let mut places: Vec<f64> = figure.rows.iter().filter_map(|row| row.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let mut cases: Vec<&str> = figure.rows.iter().map(|row| row.case.as_str()).collect();
    cases.dedup();
    let mut head = vec![format!("medians by {x_label}")];
    head.extend(places.iter().map(|x| number(*x)));
    let line = |case: &&str| {
        let mut cells = vec![(*case).to_owned()];
        for x in &places {
            let median = figure.median(case, Some(*x));
            cells.push(median.map_or_else(|| "–".to_owned(), number));
        }
        cells
    };
    Table {
        head,
        rows: cases.iter().map(line).collect(),
        words: false,
    }
}

fn processes(parts: &mut Vec<Part>, outcome: &Outcome) {
    if outcome.processes.is_empty() {
        return;
    }
    heading(
        parts,
        3,
        "What the processes used",
        &format!("{}-processes", outcome.name),
    );
    let head = [
        "case",
        "process",
        "processor seconds a round",
        "largest memory, MiB",
    ];
    parts.push(Part::Table(Table {
        head: head.map(str::to_owned).to_vec(),
        rows: outcome
            .processes
            .iter()
            .map(|used| {
                vec![
                    used.case.clone(),
                    used.process.clone(),
                    interval(&used.cpu_seconds),
                    number(used.peak_mib),
                ]
            })
            .collect(),
        words: false,
    }));
}

fn method(parts: &mut Vec<Part>) {
    heading(parts, 2, "Method", "method");
    parts.push(Part::List(
        [
            "All cases of an experiment take turns in every round, forwards and backwards, so that a slow \
             minute hits all alike. A warm-up comes before what counts.",
            "A value is the median of the rounds; the range beside it is the least and the greatest of \
             them. A ratio is made within each round, to the case that its column names; its median has \
             an interval beside it that reaches further than the rounds did: on either side by 2/(n - 1) \
             of their width on a logarithmic scale with n rounds, and by one per cent or the step of the \
             measurement. Another run of the same kind on the same machine has to meet it: \
             `cordon lab compare --same` looks.",
            "Everything, both ends of a connection included, shares the processors of this one machine. \
             Absolute values of a network with two machines are other ones; ratios carry further.",
            "Processor seconds are those of the process and its children, user and system, with a clock \
             of 10 ms; memory is the largest resident set, seen every 20 ms for short-lived programs.",
            "Published values come from other machines and other years. They stand beside ours to compare \
             ratios and orders, not speeds.",
            "The results themselves are embedded in the HTML page, in the element with the id `results`, \
             in the form that crates/lab/schema.json describes.",
        ]
        .map(str::to_owned)
        .to_vec(),
    ));
}
