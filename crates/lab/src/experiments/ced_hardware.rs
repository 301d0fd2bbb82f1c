//! Cost of concurrent error detection in an FPGA: the published figure 6 beside what open tools say of our cores.
//!
//! Machník, Urueña, Niemiec, Stoianov, *Performance evaluation of INDECT security architecture*, section 3. Nothing is
//! placed and routed here, which takes most of an hour: `scripts/hw` does, and keeps its results.

use serde::Deserialize;
use std::collections::BTreeMap;

use crate::LabError;
use crate::experiment::Experiment;
use crate::record::{Better, Figure};
use crate::session::{Plan, Rounds, Session};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ced-hardware",
    title: "Error detection in hardware: clock rates and cells of the INDECT Block Cipher's core",
    question: "What do parity and Berger codes cost in an FPGA?",
    source: "Machník, Urueña, Niemiec, Stoianov, Performance evaluation of INDECT security architecture, \
             section 3, Fig. 6",
    needs: &[],
    wants: &[],
    seconds: (1, 1),
    run,
};

/// Committed results of `scripts/hw record`.
const RESULTS: &str = include_str!("../../../../hw/results.json");

const CLOCK_ECP5: &str = "clock-ecp5";
const CLOCK_ICE40: &str = "clock-ice40";
const RATE: &str = "rate";
const LUTS: &str = "luts";
const MEMORIES: &str = "memories";
const ALARMS: &str = "alarms";
const BITS: f64 = 256.0;
/// INDECT-128: a key of 128 bits, eight rounds.
const CIPHER: &str = "128/8";

/// Variants of the core, in the order of the publication, and how `scripts/hw` names them.
const VARIANTS: [(&str, &str); 3] = [
    ("no detection", "none"),
    ("parity", "parity"),
    ("Berger", "berger"),
];

#[derive(Deserialize)]
struct Results {
    place_and_route: Routed,
    spartan3a: Counts,
    simulation: BTreeMap<String, Simulated>,
}

#[derive(Deserialize)]
struct Routed {
    designs: BTreeMap<String, Design>,
}

#[derive(Deserialize)]
struct Design {
    mhz: Vec<f64>,
}

#[derive(Deserialize)]
struct Counts {
    ibc: BTreeMap<String, Cells>,
}

#[derive(Deserialize)]
struct Cells {
    lut: f64,
    block_ram: f64,
}

#[derive(Deserialize)]
struct Simulated {
    /// By variant of the cipher: bits of the key and rounds.
    cycles_per_block_with_bus: BTreeMap<String, f64>,
    single: BTreeMap<String, Injected>,
}

#[derive(Deserialize)]
struct Injected {
    injected: f64,
    alarmed: f64,
}

impl Simulated {
    /// Per cent of single inverted bits that raised an alarm.
    fn alarms(&self) -> f64 {
        let sum = |of: fn(&Injected) -> f64| self.single.values().map(of).sum::<f64>();
        100.0 * sum(|count| count.alarmed) / sum(|count| count.injected)
    }
}

fn unexpected(what: &str) -> LabError {
    LabError::Unexpected(format!("hw/results.json has no {what}"))
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    let results: Results = serde_json::from_str(RESULTS)
        .map_err(|error| LabError::Unexpected(format!("hw/results.json: {error}")))?;
    let base = VARIANTS.first().map_or("", |(case, _)| case);
    for (id, title, unit, better) in [
        (
            CLOCK_ECP5,
            "Clock rate on an ECP5, eight bytes a cycle (published as Fig. 6 for a Spartan-3AN)",
            "MHz",
            Better::More,
        ),
        (
            CLOCK_ICE40,
            "Clock rate on an iCE40 HX8K, two bytes a cycle",
            "MHz",
            Better::More,
        ),
        (
            RATE,
            "Encryption on an ECP5: bits of a block / cycles with the bus x clock (projection)",
            "Mbit/s",
            Better::More,
        ),
        (LUTS, "Cells of a Spartan-3A", "LUT4", Better::Less),
        (
            MEMORIES,
            "Memories of a Spartan-3A",
            "block RAMs",
            Better::Less,
        ),
        (
            ALARMS,
            "Single inverted bits that raise an alarm, by simulation",
            "%",
            Better::More,
        ),
    ] {
        let plan = Plan::bars(id, title, unit, better);
        // Nothing is a ratio of no alarms.
        session.plan(if id == ALARMS { plan } else { plan.base(base) });
    }
    let cases = VARIANTS.map(|(case, name)| (case.to_owned(), name));
    // A round is a seed of place and route.
    let rounds = Rounds {
        count: 3,
        warm_up: false,
    };
    session.rounds(rounds, &cases, |name, round| {
        let seed = round.number as usize - 1;
        let clock = |place: &str| {
            let design = results
                .place_and_route
                .designs
                .get(&format!("ibc/{place}/{name}"));
            let mhz = design.and_then(|design| design.mhz.get(seed));
            mhz.copied().ok_or_else(|| unexpected("clock rate"))
        };
        let cells = results.spartan3a.ibc.get(*name);
        let cells = cells.ok_or_else(|| unexpected("cells"))?;
        let simulated = results.simulation.get(*name);
        let simulated = simulated.ok_or_else(|| unexpected("simulation"))?;
        round.put(CLOCK_ECP5, clock("ecp5-8-lanes")?);
        round.put(CLOCK_ICE40, clock("ice40-2-lanes")?);
        let cycles = simulated.cycles_per_block_with_bus.get(CIPHER);
        let cycles = cycles.ok_or_else(|| unexpected("cycles of a block"))?;
        round.put(RATE, BITS / cycles * clock("ecp5-8-lanes")?);
        round.put(LUTS, cells.lut);
        round.put(MEMORIES, cells.block_ram);
        round.put(ALARMS, simulated.alarms());
        Ok(())
    });
    session.parameter("warm-up", "none: nothing is timed");
    session.parameter("a round", "a seed of place and route");
    session.parameter("cipher", "INDECT-128 (level low, 8 rounds)");
    for (id, family) in [(CLOCK_ECP5, "ECP5"), (CLOCK_ICE40, "iCE40")] {
        if let Some(figure) = session.figure(id) {
            let (text, holds) = order(&figure);
            session.finding(format!("{family}: {text}"), holds);
        }
    }
    session.caveat(
        "Recorded figures, not measured in this run: `scripts/hw record` made them with yosys, nextpnr and \
         Verilator, and the suite `hw` repeats the simulation. The publication draws the bars of Fig. 6 \
         without their values and for a Spartan-3AN, for which there is no open place and route, so only \
         the order can be compared, and no MHz.",
    );
    session.caveat(
        "iCE40 and ECP5 are not to be compared with each other: the smaller has memory for two bytes a \
         cycle, the larger is built with eight.",
    );
    Ok(())
}

/// The published order, "none = parity > Berger", by medians of three seeds.
fn order(figure: &Figure) -> (String, Option<bool>) {
    let median = |case| figure.median(case, None).unwrap_or(f64::NAN);
    let [none, parity, berger] = VARIANTS.map(|(case, _)| median(case));
    // What three seeds of one design differ by.
    let tie = 0.05;
    let holds = none * (1.0 + tie) >= parity && parity > berger;
    let parity_costs = 100.0 * (1.0 - parity / none);
    let text = format!(
        "{none:.0}, {parity:.0} and {berger:.0} MHz without detection, with parity and with Berger. Published: \
         none = parity > Berger. That no detection is fastest and Berger slowest is {}; parity, published \
         as free, costs {parity_costs:.0} %.",
        if holds { "so here" } else { "not so here" }
    );
    (text, Some(holds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::State;
    use std::path::Path;

    #[test]
    fn recorded_results_are_complete() {
        let mut progress = |_| {};
        let mut session = Session::new(&EXPERIMENT, true, Path::new("/"), &mut progress);
        run(&mut session).unwrap();
        let outcome = session.finish(Ok(()));
        assert_eq!(outcome.state, State::Measured);
        assert_eq!((outcome.figures.len(), outcome.findings.len()), (6, 2));
        for figure in &outcome.figures {
            assert_eq!(figure.rows.len(), 3, "{}", figure.id);
        }
        let alarms = outcome.figures.iter().find(|figure| figure.id == ALARMS);
        let median = |case| alarms.unwrap().median(case, None).unwrap();
        assert_eq!(
            [median("no detection"), median("parity"), median("Berger")],
            [0.0, 100.0, 100.0]
        );
    }
}
