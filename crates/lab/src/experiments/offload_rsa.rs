//! The thesis' tables 5.1 and 5.2: what public keys cost with and without hardware.
//!
//! The published columns are connections of OpenVPN and TLS. Ours are the private operation alone, which is what the
//! hardware takes over: in software here, as cycles of our core at a stated clock, and the driver's processor time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accel_driver::Config;
use accel_engine::Accelerator;
use accel_simulation::cores::{Cores, MontCore};
use accel_simulation::{MODEL_CONFIG, ModelBus};
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use offload_policy::{Policy, RsaKey, RsaNumbers, RsaPadding, Selection, Settings, SignedHash};

use super::timing::nanoseconds;
use crate::LabError;
use crate::record::Better;
use crate::session::{Plan, Rounds, Session};

const TABLE_1: &str = "table-5.1";
const TABLE_2: &str = "table-5.2";
const SOURCE_1: &str = "thesis on offloading to a SoC, table 5.1 (a connection of OpenVPN)";
const SOURCE_2: &str = "thesis on offloading to a SoC, table 5.2 (connections of TLS)";
/// Clock rates from three seeds of place and route, for the core with words of 32 bits on an ECP5 (`hw/results.json`), in MHz.
const MHZ: f64 = 59.0;
/// The device computes a private operation at the rate of a simulation.
const CONFIG: Config = Config {
    deadline: Duration::from_secs(120),
    ..MODEL_CONFIG
};

/// Sizes with the names of our three columns.
const SIZES: [(KeySize, [&str; 3]); 2] = [
    (
        KeySize::Rsa2048,
        [
            "RSA-2048: a signature in our software (measured)",
            "RSA-2048: a signature on our device, cycles at 59 MHz (projection)",
            "RSA-2048: our driver's processor time for a signature (measured)",
        ],
    ),
    (
        KeySize::Rsa4096,
        [
            "RSA-4096: a signature in our software (measured)",
            "RSA-4096: a signature on our device, cycles at 59 MHz (projection)",
            "RSA-4096: our driver's processor time for a signature (measured)",
        ],
    ),
];

pub(super) fn plan(session: &mut Session<'_>) {
    session.plan(
        Plan::bars(
            TABLE_1,
            "Table 5.1: time of a connection, and of our private operation",
            "ms",
            Better::Less,
        )
        .published(
            &[
                ("RSA-1024, soft", 41.921),
                ("RSA-1024, hardware", 20.312),
                ("RSA-2048, soft", 202.945),
                ("RSA-2048, hardware", 39.965),
                ("RSA-4096, soft", 1436.743),
                ("RSA-4096, hardware", 183.533),
            ],
            SOURCE_1,
        ),
    );
    session.plan(
        Plan::bars(
            TABLE_2,
            "Table 5.2: connections in a minute, and our private operations if nothing else took time",
            "in a minute",
            Better::More,
        )
        .published(
            &[
                ("RSA-1024, soft: 40.32 % of the processor", 445.4),
                ("RSA-1024, hardware: 13.29 %", 509.3),
                ("RSA-2048, soft: 92.14 %", 155.6),
                ("RSA-2048, hardware: 4.82 %", 420.9),
                ("RSA-4096, soft: 81.97 %", 19.6),
                ("RSA-4096, hardware: 4.34 %", 115.5),
            ],
            SOURCE_2,
        ),
    );
    session.parameter(
        "assumed clock of the core for public keys",
        format!("{MHZ} MHz"),
    );
}

#[derive(Clone, Copy)]
enum Column {
    Software,
    Device,
    Driver,
}

pub(super) fn run(session: &mut Session<'_>, rounds: Rounds) -> Result<(), LabError> {
    let mut keys = Vec::new();
    for (size, names) in SIZES {
        let columns = [Column::Software, Column::Device, Column::Driver];
        let key = Numbers::generate(size)?;
        for (name, column) in names.into_iter().zip(columns) {
            keys.push((name.to_owned(), (key.clone(), column)));
        }
    }
    let budget = session.pick(Duration::from_millis(20), Duration::from_millis(200));
    session.rounds(rounds, &keys, |(key, column), round| {
        let milliseconds = match column {
            Column::Software => software(key, budget)?,
            Column::Device => through_device(key)?.device,
            Column::Driver => through_device(key)?.driver,
        };
        round.put(TABLE_1, milliseconds);
        round.put(TABLE_2, 60_000.0 / milliseconds);
        Ok(())
    });
    if let Some(figure) = session.figure(TABLE_1) {
        for (_, [software, device, driver]) in SIZES {
            let key = software.split(':').next().unwrap_or_default();
            let median = |case| figure.median(case, None).unwrap_or(f64::NAN);
            let (software, device, driver) = (median(software), median(device), median(driver));
            session.finding(
                format!(
                    "{key}: software here takes {software:.2} ms, the device by this projection {device:.0} ms, its \
                     driver {driver:.3} ms of the processor. A caller waits longer for the device; the processor \
                     is free for {:.0} % of software's time.",
                    100.0 * (1.0 - driver / software)
                ),
                None,
            );
        }
    }
    Ok(())
}

/// A private key's numbers, in the order of `RSAPrivateKey` after its version.
#[derive(Clone)]
struct Numbers(Vec<Vec<u8>>);

impl Numbers {
    fn generate(size: KeySize) -> Result<Self, LabError> {
        let unexpected = || LabError::Unexpected("no RSA key".to_owned());
        let pair = KeyPair::generate(size).map_err(|_| unexpected())?;
        let document = pair.as_der().map_err(|_| unexpected())?;
        // PrivateKeyInfo (RFC 5208, section 5): version, algorithm, and an octet string with RSAPrivateKey.
        let (_, info, _) = element(document.as_ref()).ok_or_else(unexpected)?;
        let octets = elements(info).nth(2).ok_or_else(unexpected)?;
        let (_, key, _) = element(octets).ok_or_else(unexpected)?;
        let numbers = elements(key).skip(1).map(|number| {
            let zeros = number.iter().take_while(|byte| **byte == 0).count();
            number.get(zeros..).unwrap_or_default().to_vec()
        });
        Ok(Self(numbers.collect()))
    }

    fn key(&self, policy: &Arc<Policy>) -> Result<RsaKey, LabError> {
        let unexpected = || LabError::Unexpected("an RSA key of another form".to_owned());
        let [n, e, d, p, q, dp, dq, qinv] = self.0.as_slice() else {
            return Err(unexpected());
        };
        let numbers = RsaNumbers {
            n,
            e,
            d,
            p,
            q,
            dp,
            dq,
            qinv,
        };
        RsaKey::new(policy, &numbers).map_err(|error| LabError::Unexpected(error.to_string()))
    }
}

/// The first element of DER: its tag, its content, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(*first), rest),
        _ => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// The contents of elements that follow each other.
fn elements(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (_, content, rest) = element(bytes)?;
        bytes = rest;
        Some(content)
    })
}

fn sign(key: &RsaKey) -> Result<(), LabError> {
    key.sign(RsaPadding::Pss, SignedHash::Sha256, &[7; 32])
        .map(drop)
        .map_err(|error| LabError::Unexpected(error.to_string()))
}

fn software(numbers: &Numbers, budget: Duration) -> Result<f64, LabError> {
    let settings = Settings {
        selection: Selection::Software,
        ..Settings::default()
    };
    let key = numbers.key(&Policy::new(None, settings))?;
    sign(&key)?;
    Ok(nanoseconds(budget, || drop(sign(&key))) / 1e6)
}

/// Milliseconds of a signature through the model.
struct Through {
    device: f64,
    driver: f64,
}

fn through_device(numbers: &Numbers) -> Result<Through, LabError> {
    let unexpected = |text: &str| LabError::Unexpected(text.to_owned());
    let cores = Cores {
        modular: MontCore::new(32).map(|core| Box::new(core) as _),
        ..Cores::default()
    };
    let bus = ModelBus::with_cores(&CONFIG, cores).map_err(|_| unexpected("no bus"))?;
    let device: Arc<Accelerator<ModelBus>> =
        Arc::new(Accelerator::new("model", bus, CONFIG).ok_or_else(|| unexpected("no driver"))?);
    let settings = Settings {
        selection: Selection::From(0),
        ..Settings::default()
    };
    let policy = Policy::new(Some(device.clone()), settings);
    let key = numbers.key(&policy)?;
    // The first signature puts the key into its slot.
    sign(&key)?;
    let before = device.usage();
    let simulated = device.with_bus(|bus| bus.simulating());
    let started = Instant::now();
    sign(&key)?;
    let took = started.elapsed();
    let simulated = device.with_bus(|bus| bus.simulating()) - simulated;
    let after = device.usage();
    if after.requests != before.requests + 1 {
        return Err(unexpected("the model did not sign"));
    }
    Ok(Through {
        device: (after.cycles - before.cycles) as f64 / MHZ / 1e3,
        driver: took.saturating_sub(simulated).as_secs_f64() * 1e3,
    })
}
