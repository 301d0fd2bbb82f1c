//! Stored results: read again, shown, compared.

mod chart;

use lab::compare::{What, compare, ratios, table};
use lab::record::{ReadError, Results, State};
use lab::report;

/// The stored form, version 2.
const GOLDEN: &str = include_str!("../data/results.json");

fn golden() -> Results {
    Results::parse(GOLDEN).expect("the golden file is in this form")
}

#[test]
fn the_stored_form_stays_as_it_is() {
    assert_eq!(golden().to_json().unwrap(), GOLDEN.trim_end());
}

#[test]
fn other_versions_and_other_files_are_refused() {
    let other = GOLDEN.replacen("\"schema\": 2", "\"schema\": 1", 1);
    assert!(matches!(Results::parse(&other), Err(ReadError::Version(1))));
    let unknown = GOLDEN.replacen("\"quick\"", "\"quicker\"", 1);
    assert!(matches!(Results::parse(&unknown), Err(ReadError::Form(_))));
}

#[test]
fn names_from_results_are_no_markup() {
    let html = report::html(&golden());
    assert!(
        !html.contains("<script>alert"),
        "a processor's name became a script"
    );
    assert_eq!(html.matches("</script>").count(), 1);
    assert!(report::markdown(&golden()).contains("Tunnels \\| by cipher"));
}

#[test]
fn the_page_says_what_was_measured_published_and_missing() {
    for page in [report::html(&golden()), report::markdown(&golden())] {
        for text in [
            "850 (800 … 900)",
            "1.7 (1.6 … 1.8)",
            "INDECT, Table III",
            "OpenVPN, IDEA-CBC: this OpenVPN does not have it",
            "install iputils-ping",
            "does not hold here",
            "OpenVPN 2.6.14",
        ] {
            assert!(page.contains(text), "{text:?} is not in {page}");
        }
    }
}

/// Neither what is fastest without protection nor what is broken; what overlaps is equal.
#[test]
fn the_choice_follows_its_rule() {
    let page = report::markdown(&golden());
    let question = "Which tunnel carries most?";
    let line = page.lines().find(|line| line.contains(question)).unwrap();
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    assert_eq!(cells[2], "Cordon, AES-256-GCM");
    assert_eq!(cells[4], "OpenVPN, AES-256-GCM");
}

#[test]
fn two_runs_are_compared_by_ratios_where_there_are_some() {
    let mut second = golden();
    let row = &mut second.experiments[0].figures[0].rows[1];
    let ratio = &mut row.ratio.as_mut().unwrap().interval;
    (ratio.median, ratio.low, ratio.high) = (2.0, 1.9, 2.1);
    let lines = compare(&golden(), &second);
    let whats: Vec<_> = lines.iter().map(|line| line.what).collect();
    assert_eq!(whats, [What::Value, What::Ratio, What::Ratio, What::Value]);
    let changed: Vec<_> = lines.iter().filter(|line| !line.agrees).collect();
    assert_eq!(changed.len(), 1);
    assert!(changed[0].better && changed[0].case == "OpenVPN, AES-256-GCM");
    let text = table(&lines);
    assert!(text.contains("1 of 2 ratios agree"), "{text}");
    assert_eq!(ratios(&lines), (2, 1));
}

#[test]
fn an_interrupted_run_says_so_on_its_page() {
    let mut results = golden();
    results.complete = false;
    let outcome = &mut results.experiments[0];
    outcome.state = State::Interrupted;
    outcome.reason = Some("interrupted after round 2 of 5".to_owned());
    for page in [report::html(&results), report::markdown(&results)] {
        assert!(page.contains("This run was interrupted"), "{page}");
        assert!(
            page.contains("Not complete: interrupted after round 2 of 5"),
            "{page}"
        );
        // What there is stands there all the same, with its conditions.
        assert!(
            page.contains("850 (800 … 900)") && page.contains("OpenVPN 2.6.14"),
            "{page}"
        );
    }
}
