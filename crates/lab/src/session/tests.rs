//! Rounds, ratios and what is left of an experiment that is cut short.

use super::*;

const EXPERIMENT: Experiment = Experiment {
    name: "test",
    title: "",
    question: "",
    source: "",
    needs: &[],
    wants: &[],
    seconds: (1, 1),
    run: |_| Ok(()),
};
const PLAN: Plan = Plan::bars("speed", "", "", Better::More)
    .base("a")
    .published(&[("c", 6.0), ("a", 3.0)], "Table I");

fn run(measure: impl FnMut(&u32, &mut Round) -> Result<(), LabError>) -> Outcome {
    let mut progress = |_| {};
    let mut session = Session::new(&EXPERIMENT, true, Path::new("/"), &mut progress);
    session.plan(PLAN);
    let cases = [("a".to_owned(), 1), ("b".to_owned(), 2)];
    let rounds = Rounds {
        count: 3,
        warm_up: true,
    };
    session.rounds(rounds, &cases, measure);
    session.finish(Ok(()))
}

#[test]
fn cases_take_turns_and_the_warm_up_does_not_count() {
    let mut order = String::new();
    let outcome = run(|case, round| {
        order.push_str(&case.to_string());
        round.put("speed", order.len() as f64);
        Ok(())
    });
    assert_eq!(order, "21122112");
    let figure = outcome.figures.first().unwrap();
    let names: Vec<_> = figure.rows.iter().map(|row| row.case.as_str()).collect();
    assert_eq!(names, ["c", "a", "b"]);
    let a = figure.row("a", None).unwrap();
    assert_eq!(a.measured.as_ref().unwrap().values, [3.0, 6.0, 7.0]);
    assert_eq!(a.published.as_ref().unwrap().ratio, Some(1.0));
    assert_eq!(
        figure
            .row("c", None)
            .unwrap()
            .published
            .as_ref()
            .unwrap()
            .ratio,
        Some(2.0)
    );
    // 4/3, 5/6, 8/7: within each round.
    let ratio = figure.row("b", None).unwrap().ratio.clone().unwrap();
    assert_eq!(ratio.values, [4.0 / 3.0, 5.0 / 6.0, 8.0 / 7.0]);
    // Three rounds: by the whole width further on both sides, and by a hundredth.
    let width = (4.0 / 3.0) / (5.0 / 6.0);
    let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    assert!(
        close(ratio.interval.low, 5.0 / 6.0 / width / 1.01),
        "{ratio:?}"
    );
    assert!(
        close(ratio.interval.high, 4.0 / 3.0 * width * 1.01),
        "{ratio:?}"
    );
    let itself = figure.row("a", None).unwrap().ratio.clone().unwrap();
    assert_eq!((itself.interval.low, itself.interval.high), (1.0, 1.0));
}

#[test]
fn every_round_leaves_what_there_is() {
    let mut parts: Vec<Outcome> = Vec::new();
    let mut progress = |told: Progress| parts.extend(told.so_far.map(|outcome| *outcome));
    let mut session = Session::new(&EXPERIMENT, true, Path::new("/"), &mut progress);
    session.plan(PLAN);
    let cases = [("a".to_owned(), 1)];
    let rounds = Rounds {
        count: 3,
        warm_up: true,
    };
    session.rounds(rounds, &cases, |_, round| {
        round.put("speed", f64::from(round.number));
        Ok(())
    });
    let whole = session.finish(Ok(()));
    let of = |outcome: &Outcome| {
        let row = outcome.figures.first().unwrap().row("a", None).unwrap();
        row.measured.clone().unwrap().values
    };
    assert_eq!(
        parts.iter().map(of).collect::<Vec<_>>(),
        [vec![1.0], vec![1.0, 2.0]]
    );
    assert!(parts.iter().all(|part| part.state == State::Interrupted));
    assert_eq!((of(&whole), whole.rounds), (vec![1.0, 2.0, 3.0], 3));
}

#[test]
fn a_case_that_fails_twice_is_told_and_not_tried_again() {
    let mut tries = 0;
    let outcome = run(|case, round| {
        if *case == 2 {
            tries += 1;
            return Err(LabError::Unexpected("broken".to_owned()));
        }
        round.put("speed", 1.0);
        Ok(())
    });
    assert_eq!(tries, 2);
    assert_eq!(outcome.state, State::Measured);
    assert_eq!(outcome.missing.first().unwrap().reason, "broken");
}

#[test]
fn a_case_that_fails_once_is_measured_anew_and_that_is_told() {
    let mut tries = 0;
    let outcome = run(|case, round| {
        // What a failed try put does not count.
        round.put("speed", f64::from(tries));
        tries += u32::from(*case == 2);
        match tries {
            1 if *case == 2 => Err(LabError::Unexpected("a hiccup".to_owned())),
            _ => Ok(()),
        }
    });
    assert!(outcome.missing.is_empty());
    let row = outcome.figures.first().unwrap().row("b", None).unwrap();
    assert_eq!(row.measured.as_ref().unwrap().values, [2.0, 3.0, 4.0]);
    assert_eq!(
        outcome.caveats,
        ["b was measured anew in round 0: a hiccup"]
    );
}

#[test]
fn a_coarse_measurement_widens_what_ratios_state() {
    let mut progress = |_| {};
    let mut session = Session::new(&EXPERIMENT, true, Path::new("/"), &mut progress);
    session.plan(PLAN.step(1.0));
    let cases = [("a".to_owned(), 2.0), ("b".to_owned(), 40.0)];
    let rounds = Rounds {
        count: 3,
        warm_up: false,
    };
    session.rounds(rounds, &cases, |value, round| {
        round.put("speed", *value);
        Ok(())
    });
    let outcome = session.finish(Ok(()));
    let row = outcome.figures.first().unwrap().row("b", None).unwrap();
    let ratio = row.ratio.clone().unwrap().interval;
    // A step of 40 and one of 2, and the hundredth of all.
    assert!((ratio.high / 20.0 - (1.0 + 1.0 / 40.0 + 1.0 / 2.0 + 0.01)).abs() < 1e-9);
}

#[test]
fn without_any_value_the_experiment_failed() {
    let outcome = run(|_, _| Err(LabError::Unexpected("broken".to_owned())));
    assert_eq!(outcome.state, State::Failed);
    assert_eq!(outcome.missing.len(), 2);
}

#[test]
fn what_needs_an_absent_program_names_its_package() {
    const ABSENT: &[Program] = &[Program {
        name: "no-such-program",
        package: "no-such-package",
        version: &[],
    }];
    let outcome = not_run(&Experiment {
        needs: ABSENT,
        ..EXPERIMENT
    })
    .unwrap();
    assert_eq!(outcome.state, State::NotRun);
    assert_eq!(outcome.packages, ["no-such-package"]);
    assert!(not_run(&EXPERIMENT).is_none());
}
