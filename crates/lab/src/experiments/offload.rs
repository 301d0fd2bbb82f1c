//! Cost of a message by size: software, a modelled device, and its driver.
//!
//! *Offloading cryptographic operations to a SoC* (Université libre de Bruxelles) measured a vendor's
//! unit of which no figure is repeated here: ours is a model, whose cycles become time only by a clock
//! that is assumed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accel_driver::{Completion, Config};
use accel_engine::Accelerator;
use accel_simulation::{MODEL_CONFIG, ModelBus, model};
use offload_policy::{
    AesCbc, AesGcm, Direction, Hash, Hmac, MessageError, Policy, Selection, Settings,
};

use super::timing::nanoseconds;
use super::{offload_rsa, offload_shot};
use crate::LabError;
use crate::experiment::Experiment;
use crate::record::{Better, Figure};
use crate::session::{Plan, Round, Rounds, Session};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "offload",
    title: "Messages for a crypto device: break-even by size",
    question: "From which size on is a device worth its driver?",
    source: "The thesis on offloading cryptography to a SoC, chapter 5 and its conditional offload; \
             the device here is a model of our own cores",
    needs: &[],
    wants: &[],
    seconds: (8, 40),
    run,
};

const SIZES: [usize; 7] = [16, 64, 256, 1024, 4096, 16_384, 65_536];
/// The clock that is assumed for the cores, in MHz. No place and route stands behind it.
const MHZ: f64 = 100.0;
const SOFTWARE: &str = "software (measured)";
const DEVICE: &str = "device: cycles at 100 MHz (projection)";
const DRIVER: &str = "driver's processor time (measured)";
const TOGETHER: &str = "device and driver together (projection)";
/// Interrupts and polling for completions, in a figure of its own.
const COMPLETION: &str = "completion";
const POLLING: &str = "polling";
const INTERRUPT: &str = "an interrupt for each message";
/// Packets: cost of a megabyte by what a packet carries.
const FRAMES: &str = "frames";
/// Bytes of TCP in a frame of 1500 and of 9000 bytes, less what an ESP tunnel with GCM adds.
const PAYLOADS: [usize; 2] = [1400, 8900];
const MEGABYTE: f64 = 1e6;
const KEY: [u8; 16] = [7; 16];

const OPERATIONS: [(&str, &str); 3] = [
    ("gcm", "AES-128-GCM, seal"),
    ("cbc", "AES-128-CBC, encrypt"),
    ("hmac", "HMAC-SHA-256, sign"),
];

/// A figure of the three for each message.
#[derive(Clone, Copy)]
enum Column {
    Software,
    Device,
    Driver,
    Together,
}

fn run(session: &mut Session<'_>) -> Result<(), LabError> {
    session.parameter("assumed clock of the cores", format!("{MHZ} MHz"));
    session.parameter("messages for each value of the driver", session.pick(5, 25));
    for (id, title) in OPERATIONS {
        session.plan(
            Plan::bars(id, title, "µs for a message", Better::Less)
                .over("bytes of a message")
                .logarithmic()
                .base(SOFTWARE),
        );
    }
    session.plan(
        Plan::bars(
            COMPLETION,
            "AES-128-GCM: the driver's processor time by how a completion is noticed",
            "µs for a message",
            Better::Less,
        )
        .over("bytes of a message")
        .logarithmic()
        .base(POLLING),
    );
    session.plan(
        Plan::bars(
            FRAMES,
            "AES-128-GCM: a megabyte in packets of a standard frame and of a jumbo frame",
            "µs for a megabyte",
            Better::Less,
        )
        .over("bytes of a packet")
        .base(SOFTWARE),
    );
    offload_rsa::plan(session);
    offload_shot::plan(session);
    let cases = [
        (SOFTWARE.to_owned(), Column::Software),
        (DEVICE.to_owned(), Column::Device),
        (DRIVER.to_owned(), Column::Driver),
        (TOGETHER.to_owned(), Column::Together),
    ];
    let budget = session.pick(Duration::from_millis(10), Duration::from_millis(60));
    let messages = session.pick(5, 25);
    let rounds = Rounds {
        count: session.pick(3, 5),
        warm_up: true,
    };
    session.rounds(rounds, &cases, |column, round| {
        let measure = |id, size| match column {
            Column::Software => software(id, size, budget),
            Column::Device => Ok(through_device(id, size, 1, MODEL_CONFIG)?.device),
            Column::Driver => Ok(through_device(id, size, messages, MODEL_CONFIG)?.driver),
            Column::Together => {
                let through = through_device(id, size, messages, MODEL_CONFIG)?;
                Ok(through.device + through.driver)
            }
        };
        for (id, _) in OPERATIONS {
            for size in SIZES {
                let value = measure(id, size)?;
                round_put(round, id, size, value);
            }
        }
        for size in PAYLOADS {
            let value = measure("gcm", size)? * MEGABYTE / size as f64;
            round_put(round, FRAMES, size, value);
        }
        Ok(())
    });
    let ways = [
        (POLLING, Completion::Polling),
        (INTERRUPT, Completion::Interrupt),
    ];
    let ways = ways.map(|(name, completion)| (name.to_owned(), completion));
    session.rounds(rounds, &ways, |completion, round| {
        let config = Config {
            completion: *completion,
            ..MODEL_CONFIG
        };
        for size in SIZES {
            let value = through_device("gcm", size, messages, config)?.driver;
            round_put(round, COMPLETION, size, value);
        }
        Ok(())
    });
    offload_rsa::run(session, rounds)?;
    offload_shot::run(session, rounds, messages)?;
    for (id, title) in OPERATIONS {
        if let Some(figure) = session.figure(id) {
            conclude(session, title, &figure);
        }
    }
    if let Some(figure) = session.figure(FRAMES) {
        conclude_frames(session, &figure);
    }
    session.caveat(
        "The device's column is a projection: cycles of the modelled cores divided by an assumed clock, \
         without memory access, ring and bus. Nobody has placed and routed the cores for AES and HMAC at \
         that clock. The driver's column is the time that passes in policy and driver outside of the \
         simulation, on one thread that never waits: keys are in their slots, and no interrupt, cache \
         maintenance or bus costs anything, so that a board's driver would cost more.",
    );
    session.caveat(
        "Interrupts and polling: the model has computed when the doorbell returns, so polling never waits \
         and an interrupt is a function call. The figure has what the driver does for each, not what a \
         processor pays for taking an interrupt.",
    );
    session.caveat(
        "On the source: the bars of its figures 5.2 to 5.8 (pings by size and files of 128 MB over SSH, \
         OpenVPN and IPsec) have no values in its text, so nothing stands beside ours: `latency` and `transfer` \
         measure the same in software, and the suite `accelerator` moves files through the simulated cores, \
         whose time is that of the simulation.",
    );
    session.caveat(
        "On the source: software with 0.24 and hardware with 24 connections for each per cent of processor \
         are a factor of 100 in its text, which says 1000. Its own table (115.5 at 4.34 %, 19.6 at \
         81.97 %) gives 26.6, 0.24 and a factor of 111. Its Table 5.1 names the unit for public keys \
         BA411E, which is that for AES: BA414E is meant.",
    );
    session.caveat(
        "On the source: its break-even \u{201c}around 1024kB\u{201d} stands beside an argument with packets of 1500 \
         bytes, so 1024 bytes are meant.",
    );
    Ok(())
}

fn round_put(round: &mut Round, id: &'static str, size: usize, value: f64) {
    round.put_at(id, size as f64, value);
}

/// One operation on one message, again and again.
enum Work {
    Gcm(AesGcm),
    Cbc(AesCbc),
    Hmac(Hmac),
}

impl Work {
    fn new(id: &str, policy: &Arc<Policy>) -> Result<Self, LabError> {
        let made = match id {
            "gcm" => AesGcm::new(policy, &KEY).map(Self::Gcm),
            "cbc" => AesCbc::new(policy, Direction::Encrypt, &KEY, [3; 16]).map(Self::Cbc),
            _ => Hmac::new(policy, Hash::Sha256, &KEY).map(Self::Hmac),
        };
        made.map_err(|error| LabError::Unexpected(error.to_string()))
    }

    fn process(&mut self, data: &mut [u8]) -> Result<(), MessageError> {
        match self {
            Self::Gcm(key) => key.seal([9; 12], &[], data).map(drop),
            Self::Cbc(stream) => stream.process(data),
            Self::Hmac(key) => key.sign(data, &mut [0; 32]),
        }
    }
}

/// Microseconds of a message in software.
fn software(id: &str, size: usize, budget: Duration) -> Result<f64, LabError> {
    let settings = Settings {
        selection: Selection::Software,
        ..Settings::default()
    };
    let mut work = Work::new(id, &Policy::new(None, settings))?;
    let mut data = vec![0x5a; size];
    let mut failed = None;
    let time = nanoseconds(budget, || failed = failed.or(work.process(&mut data).err()));
    match failed {
        Some(error) => Err(LabError::Unexpected(error.to_string())),
        None => Ok(time / 1000.0),
    }
}

/// Microseconds of a message through the model, and the driver's accesses to registers.
pub(super) struct Through {
    device: f64,
    pub(super) driver: f64,
    pub(super) accesses: f64,
}

fn through_device(
    id: &str,
    size: usize,
    messages: u32,
    config: Config,
) -> Result<Through, LabError> {
    let device = model(config).map_err(|error| LabError::Unexpected(error.to_string()))?;
    through(id, size, messages, device)
}

pub(super) fn through(
    id: &str,
    size: usize,
    messages: u32,
    device: Accelerator<ModelBus>,
) -> Result<Through, LabError> {
    let unexpected = |error: String| LabError::Unexpected(error);
    let device = Arc::new(device);
    let settings = Settings {
        selection: Selection::From(0),
        check_one_in: 0,
        ..Settings::default()
    };
    let policy = Policy::new(Some(device.clone()), settings);
    let mut work = Work::new(id, &policy)?;
    let mut data = vec![0x5a; size];
    let mut process = || {
        work.process(&mut data)
            .map_err(|error| unexpected(error.to_string()))
    };
    // The first message puts the key into its slot.
    process()?;
    let before = device.usage();
    let accesses = device.with_bus(|bus| bus.accesses());
    let mut times = Vec::new();
    for _ in 0..messages {
        let simulated = device.with_bus(|bus| bus.simulating());
        let started = Instant::now();
        process()?;
        let took = started.elapsed();
        let simulated = device.with_bus(|bus| bus.simulating()) - simulated;
        times.push(took.saturating_sub(simulated).as_secs_f64() * 1e6);
    }
    let after = device.usage();
    let done = after.requests - before.requests;
    if done != u64::from(messages) || policy.quarantine().is_some() {
        return Err(unexpected(format!(
            "the model did {done} of {messages} requests"
        )));
    }
    times.sort_by(f64::total_cmp);
    let driver = times.get(times.len() / 2).copied();
    let accesses = device.with_bus(|bus| bus.accesses()) - accesses;
    Ok(Through {
        accesses: accesses as f64 / f64::from(messages),
        device: (after.cycles - before.cycles) as f64 / f64::from(messages) / MHZ,
        driver: driver.unwrap_or(f64::NAN),
    })
}

/// The least size from which on `cost` is below software's at all sizes.
fn break_even(figure: &Figure, cost: impl Fn(f64) -> Option<f64>) -> Option<usize> {
    let cheaper = |size: usize| {
        let x = size as f64;
        matches!(
            (cost(x), figure.median(SOFTWARE, Some(x))),
            (Some(cost), Some(software)) if cost < software
        )
    };
    let dearer = SIZES.iter().rposition(|&size| !cheaper(size));
    SIZES.get(dearer.map_or(0, |index| index + 1)).copied()
}

/// Compares usual frames with jumbo frames.
fn conclude_frames(session: &mut Session<'_>, figure: &Figure) {
    let [standard, jumbo] = PAYLOADS.map(|size| Some(size as f64));
    let saved = |case| {
        let ratio = figure.median(case, jumbo)? / figure.median(case, standard)?;
        Some(100.0 * (1.0 - ratio))
    };
    if let (Some(software), Some(driver)) = (saved(SOFTWARE), saved(DRIVER)) {
        session.finding(
            format!(
                "In packets of a jumbo frame a megabyte costs software {software:.0} % and the driver {driver:.0} % less than in \
                 those of a standard frame: the driver's cost is by the packet, so large frames are worth \
                 more with a device."
            ),
            Some(driver > software),
        );
    }
}

fn conclude(session: &mut Session<'_>, title: &str, figure: &Figure) {
    let at = |case, x| figure.median(case, Some(x));
    let words = |size: Option<usize>| match size {
        Some(size) => format!("from {size} bytes on"),
        None => "at no size measured".to_owned(),
    };
    let quicker = break_even(figure, |x| at(TOGETHER, x));
    let relieved = break_even(figure, |x| at(DRIVER, x));
    session.finding(
        format!(
            "{title}: by this projection, device and driver together are quicker than software {}; the \
             driver alone takes less of the processor than software {}.",
            words(quicker),
            words(relieved)
        ),
        None,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::State;
    use std::path::Path;

    #[test]
    fn all_columns_are_measured_and_the_device_has_the_cycles_of_its_cores() {
        let mut progress = |_| {};
        let mut session = Session::new(&EXPERIMENT, true, Path::new("/"), &mut progress);
        run(&mut session).unwrap();
        let outcome = session.finish(Ok(()));
        assert_eq!(outcome.state, State::Measured);
        assert_eq!((outcome.findings.len(), outcome.figures.len()), (7, 9));
        for figure in outcome.figures.iter().take(OPERATIONS.len()) {
            for case in [SOFTWARE, DEVICE, DRIVER, TOGETHER] {
                for size in SIZES {
                    let value = figure.median(case, Some(size as f64)).unwrap();
                    assert!(value > 0.0, "{} {case} {size}", figure.id);
                }
            }
        }
        // A single shot's words are accesses, a message in memory has none.
        let accesses = outcome.figures.last().unwrap();
        assert_eq!(accesses.id, "single-shot-accesses");
        let at = |case: &str, size| accesses.median(case, Some(size)).unwrap();
        let (ring, shot) = (
            "ring: descriptor, lists, memory",
            "single shot: registers only",
        );
        assert_eq!(at(ring, 16.0), at(ring, 960.0));
        assert_eq!(at(shot, 960.0) - at(shot, 16.0), 2.0 * (960.0 - 16.0) / 4.0);
        // A block of CBC takes twelve cycles and the words of the bus, whatever the message.
        let cbc = outcome.figures.iter().find(|figure| figure.id == "cbc");
        let at = |size| cbc.unwrap().median(DEVICE, Some(size)).unwrap();
        let block = (at(65_536.0) - at(16_384.0)) / (3.0 * 1024.0) * MHZ;
        assert!((12.0..30.0).contains(&block), "{block} cycles");
    }

    #[test]
    fn a_break_even_needs_all_larger_sizes() {
        let mut progress = |_| {};
        let mut session = Session::new(&EXPERIMENT, true, Path::new("/"), &mut progress);
        session.plan(
            Plan::bars("gcm", "", "µs for a message", Better::Less)
                .over("bytes of a message")
                .base(SOFTWARE),
        );
        let rounds = Rounds {
            count: 1,
            warm_up: false,
        };
        session.rounds(rounds, &[(SOFTWARE.to_owned(), ())], |(), round| {
            SIZES
                .iter()
                .for_each(|&size| round_put(round, "gcm", size, 10.0));
            Ok(())
        });
        let figure = session.figure("gcm").unwrap();
        let from =
            |least: f64| break_even(&figure, move |x| Some(if x < least { 10.0 } else { 9.0 }));
        assert_eq!(from(0.0), Some(16));
        assert_eq!(from(1024.0), Some(1024));
        assert_eq!(from(65_536.0), Some(65_536));
        assert_eq!(from(1e9), None);
        assert_eq!(
            break_even(&figure, |x| (x > 64.0).then_some(1.0)),
            Some(256)
        );
    }
}
