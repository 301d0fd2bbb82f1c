//! Prints one table: speed of every back end and mode, beside OpenSSL's AES on the same core.
//!
//! `scripts/bench-ibc` builds and runs this pinned to one processor. Each case runs in short slices
//! of which the lower quartile counts, in several rounds that take turns with `openssl speed`; the
//! table shows medians over the rounds. The last lines compare with the project's goals.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program for developers"
)]
#![expect(clippy::cast_precision_loss, reason = "speeds need no 53 bits")]

use ibc::mode::{CbcDecryptor, CbcEncryptor, CbcJob, Ctr, cbc_encrypt_many};
use ibc::{Backend, Block, Ibc, Iv, Variant};
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Bytes per call, as in the goals.
const SIZE: usize = 16 * 1024;

/// Turns of all cases and of OpenSSL.
const ROUNDS: usize = 5;

/// Time spent on a case in one round.
const PER_CASE: Duration = Duration::from_millis(15);

/// Chains side by side.
const CHAINS: usize = 8;

/// Mbit/s through OpenVPN on the authors' Pentium 4: Machník, Urueña, Niemiec, Stoianov,
/// *Performance evaluation of INDECT security architecture*, Table III.
const PUBLISHED: [(Variant, f64); 3] = [
    (Variant::Indect128, 78.3),
    (Variant::Indect192, 72.6),
    (Variant::Indect320, 68.7),
];

struct Case {
    backend: Backend,
    variant: Variant,
    mode: &'static str,
    run: Box<dyn FnMut()>,
    /// Bytes per run.
    bytes: usize,
    /// Gbit/s of each round.
    speeds: Vec<f64>,
}

fn main() -> ExitCode {
    let json = std::env::args().any(|a| a == "--json");
    let mut cases = cases();
    let mut baselines = [("aes-128-cbc", Vec::new()), ("aes-256-gcm", Vec::new())];
    let mut clocks = Vec::new();
    let mut setups: Vec<Setup> = Backend::available()
        .flat_map(|backend| {
            Variant::ALL.map(|variant| Setup {
                backend,
                variant,
                times: vec![],
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        clocks.push(clock_ghz());
        for (name, speeds) in &mut baselines {
            speeds.push(openssl_speed(name));
        }
        for case in &mut cases {
            case.speeds
                .push(case.bytes as f64 * 8.0 / nanoseconds(PER_CASE, &mut case.run));
        }
        for setup in &mut setups {
            setup
                .times
                .push(setup_nanoseconds(setup.backend, setup.variant));
        }
    }
    let clock = median(&mut clocks);
    let aes = median(&mut baselines[0].1);
    let gcm = median(&mut baselines[1].1);
    let rows: Vec<Row> = cases
        .iter_mut()
        .map(|c| Row::new(c, clock, aes, gcm))
        .collect();
    let setups: Vec<(Backend, Variant, f64)> = setups
        .iter_mut()
        .map(|s| (s.backend, s.variant, median(&mut s.times)))
        .collect();
    let goals = goals(&rows, &setups);
    if json {
        print_json(&rows, &setups, &goals, clock, aes, gcm);
    } else {
        print_table(&rows, &setups, &goals, clock, aes, gcm);
    }
    if goals.iter().all(|g| g.holds()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Variants measured on every back end; the others only on the fastest.
const EVERYWHERE: [Variant; 2] = [Variant::Indect128, Variant::Indect320];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for backend in Backend::available() {
        for variant in Variant::ALL {
            if backend == Backend::best() || EVERYWHERE.contains(&variant) {
                let key = &[0x5A; 40][..variant.key_size()];
                let cipher = Ibc::with_backend(variant, key, backend).unwrap();
                for (mode, bytes, run) in modes(&cipher) {
                    cases.push(Case {
                        backend,
                        variant,
                        mode,
                        run,
                        bytes,
                        speeds: Vec::new(),
                    });
                }
            }
        }
    }
    cases
}

type Mode = (&'static str, usize, Box<dyn FnMut()>);

fn modes(cipher: &Ibc) -> Vec<Mode> {
    let iv = Iv::Full([7; 32]);
    let blocks = || vec![[0x33; 32]; SIZE / 32];
    let mut modes: Vec<Mode> = Vec::new();
    let (c, mut b) = (cipher.clone(), blocks());
    modes.push((
        "ecb-encrypt",
        SIZE,
        Box::new(move || c.encrypt_blocks(b.as_mut_slice().into())),
    ));
    let (c, mut b) = (cipher.clone(), blocks());
    modes.push((
        "ecb-decrypt",
        SIZE,
        Box::new(move || c.decrypt_blocks(b.as_mut_slice().into())),
    ));
    let (mut ctr, mut bytes) = (Ctr::new(cipher.clone(), iv), vec![0; SIZE]);
    modes.push((
        "ctr",
        SIZE,
        Box::new(move || ctr.apply(bytes.as_mut_slice().into())),
    ));
    let (mut cbc, mut b) = (CbcDecryptor::new(cipher.clone(), iv), blocks());
    modes.push((
        "cbc-decrypt",
        SIZE,
        Box::new(move || cbc.decrypt(b.as_mut_slice().into())),
    ));
    let (mut cbc, mut b) = (CbcEncryptor::new(cipher.clone(), iv), blocks());
    modes.push((
        "cbc-encrypt",
        SIZE,
        Box::new(move || cbc.encrypt(b.as_mut_slice().into())),
    ));
    let mut chains: Vec<(CbcEncryptor, Vec<Block>)> = (0..CHAINS)
        .map(|_| (CbcEncryptor::new(cipher.clone(), iv), blocks()))
        .collect();
    modes.push((
        "cbc-encrypt-8",
        SIZE * CHAINS,
        Box::new(move || {
            let mut jobs: Vec<CbcJob<'_>> = chains
                .iter_mut()
                .map(|(e, b)| CbcJob::new(e, b.as_mut_slice().into()))
                .collect();
            cbc_encrypt_many(&mut jobs);
        }),
    ));
    modes
}

/// Lower quartile of the time of one run.
fn nanoseconds(budget: Duration, run: &mut dyn FnMut()) -> f64 {
    let mut slices = Vec::new();
    let start = Instant::now();
    run();
    while start.elapsed() < budget || slices.len() < 8 {
        let slice = Instant::now();
        run();
        slices.push(slice.elapsed().as_nanos() as f64);
    }
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 4]
}

/// Times of key set-up in nanoseconds.
struct Setup {
    backend: Backend,
    variant: Variant,
    times: Vec<f64>,
}

fn setup_nanoseconds(backend: Backend, variant: Variant) -> f64 {
    let key = vec![0xA7; variant.key_size()];
    let batch = 200;
    let mut run = || {
        for _ in 0..batch {
            black_box(Ibc::with_backend(variant, black_box(&key), backend).unwrap());
        }
    };
    nanoseconds(Duration::from_millis(10), &mut run) / f64::from(batch)
}

/// Gbit/s of `openssl speed` with 16 KiB, encryption, one thread, in processor time.
fn openssl_speed(cipher: &str) -> f64 {
    let output = Command::new("openssl")
        .args([
            "speed",
            "-seconds",
            "1",
            "-bytes",
            &SIZE.to_string(),
            "-evp",
            cipher,
        ])
        .output()
        .expect("openssl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let kilobytes = text.lines().rev().find_map(|line| {
        line.split_whitespace()
            .last()?
            .strip_suffix('k')?
            .parse::<f64>()
            .ok()
    });
    kilobytes.expect("openssl speed prints a figure") * 8e-6
}

/// Clock of the core in GHz, from a chain of instructions of one cycle each.
fn clock_ghz() -> f64 {
    const STEPS: u32 = 100_000;
    let mut x = black_box(1u64);
    let key = black_box(0x9E37_79B9_7F4A_7C15u64);
    let mut run = || {
        for _ in 0..STEPS {
            x = x.rotate_left(7) ^ key;
        }
        black_box(x);
    };
    f64::from(2 * STEPS) / nanoseconds(Duration::from_millis(20), &mut run)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Row {
    backend: Backend,
    variant: Variant,
    mode: &'static str,
    gbits: f64,
    cycles_per_byte: f64,
    to_aes_cbc: f64,
    to_aes_gcm: f64,
}

impl Row {
    fn new(case: &mut Case, clock: f64, aes: f64, gcm: f64) -> Self {
        let gbits = median(&mut case.speeds);
        Self {
            backend: case.backend,
            variant: case.variant,
            mode: case.mode,
            gbits,
            cycles_per_byte: clock * 8.0 / gbits,
            to_aes_cbc: gbits / aes,
            to_aes_gcm: gbits / gcm,
        }
    }
}

/// A goal of the project, measured.
struct Goal {
    text: String,
    value: f64,
    limit: f64,
    /// Whether the value must not be above (or else not below) the limit.
    at_most: bool,
}

impl Goal {
    fn holds(&self) -> bool {
        if self.at_most {
            self.value <= self.limit
        } else {
            self.value >= self.limit
        }
    }
}

fn goals(rows: &[Row], setups: &[(Backend, Variant, f64)]) -> Vec<Goal> {
    let find = |backend, mode| {
        rows.iter()
            .find(|r| r.backend == backend && r.mode == mode && r.variant == Variant::Indect128)
    };
    let mut goals = Vec::new();
    let mut at_least = |text: String, value: f64, limit: f64| {
        goals.push(Goal {
            text,
            value,
            limit,
            at_most: false,
        });
    };
    for (mode, limit) in [
        ("ctr", 2.5),
        ("ecb-encrypt", 2.5),
        ("ecb-decrypt", 2.5),
        ("cbc-decrypt", 2.5),
        ("cbc-encrypt", 0.45),
    ] {
        if let Some(row) = find(Backend::Avx512, mode) {
            at_least(
                format!("avx512 {mode} to AES-128-CBC encryption"),
                row.to_aes_cbc,
                limit,
            );
        }
    }
    if let (Some(one), Some(many)) = (
        find(Backend::Avx512, "cbc-encrypt"),
        find(Backend::Avx512, "cbc-encrypt-8"),
    ) {
        at_least(
            "avx512 8 chains to one chain".into(),
            many.gbits / one.gbits,
            4.0,
        );
    }
    for mode in ["ecb-encrypt", "ctr"] {
        if let Some(row) = find(Backend::Portable, mode) {
            at_least(
                format!("portable {mode} in Mbit/s"),
                row.gbits * 1000.0,
                4.0 * 78.3,
            );
        }
    }
    let eight_rounds = setups
        .iter()
        .filter(|(_, variant, _)| *variant == Variant::Indect128);
    for (backend, variant, time) in eight_rounds {
        goals.push(Goal {
            text: format!("{backend} key set-up of {variant} in microseconds"),
            value: time / 1000.0,
            limit: 2.0,
            at_most: true,
        });
    }
    goals
}

fn print_table(
    rows: &[Row],
    setups: &[(Backend, Variant, f64)],
    goals: &[Goal],
    clock: f64,
    aes: f64,
    gcm: f64,
) {
    println!("{SIZE} bytes per call, one core at {clock:.2} GHz, medians of {ROUNDS} rounds");
    println!("OpenSSL encryption: AES-128-CBC {aes:.2} Gbit/s, AES-256-GCM {gcm:.2} Gbit/s");
    println!();
    println!("back end  cipher         mode            Gbit/s  cycles/B  to AES-CBC  to AES-GCM");
    for r in rows {
        println!(
            "{:<8}  {:<13}  {:<13}  {:>8.3}  {:>8.2}  {:>10.2}  {:>10.2}",
            r.backend, r.variant, r.mode, r.gbits, r.cycles_per_byte, r.to_aes_cbc, r.to_aes_gcm
        );
    }
    println!();
    for (backend, variant, time) in setups {
        println!("key set-up of {variant}, {backend}: {time:.0} ns");
    }
    println!();
    println!("published, through OpenVPN on a Pentium 4 (AES-128-CBC: 125 Mbit/s):");
    for (variant, mbits) in PUBLISHED {
        println!("  {variant}-CBC: {mbits} Mbit/s");
    }
    println!();
    for g in goals {
        let verdict = if g.holds() { "PASS" } else { "FAIL" };
        let relation = if g.at_most { "at most" } else { "at least" };
        println!(
            "{verdict}  {}: {:.2}, {relation} {:.2}",
            g.text, g.value, g.limit
        );
    }
}

fn print_json(
    rows: &[Row],
    setups: &[(Backend, Variant, f64)],
    goals: &[Goal],
    clock: f64,
    aes: f64,
    gcm: f64,
) {
    let rows: Vec<_> = rows
        .iter()
        .map(|r| {
            serde_json::json!({
                "backend": r.backend.name(), "cipher": r.variant.name(), "mode": r.mode,
                "gbit_per_s": r.gbits, "cycles_per_byte": r.cycles_per_byte,
                "ratio_aes_128_cbc": r.to_aes_cbc, "ratio_aes_256_gcm": r.to_aes_gcm,
            })
        })
        .collect();
    let setups: Vec<_> = setups
        .iter()
        .map(|(b, v, t)| {
            serde_json::json!({ "backend": b.name(), "cipher": v.name(), "nanoseconds": t })
        })
        .collect();
    let published: Vec<_> = PUBLISHED
        .iter()
        .map(|(v, m)| serde_json::json!({ "cipher": v.name(), "mbit_per_s": m }))
        .collect();
    let goals: Vec<_> = goals
        .iter()
        .map(|g| {
            serde_json::json!({
                "goal": g.text, "value": g.value, "limit": g.limit,
                "relation": if g.at_most { "at most" } else { "at least" }, "holds": g.holds(),
            })
        })
        .collect();
    let report = serde_json::json!({
        "bytes_per_call": SIZE, "clock_ghz": clock,
        "openssl_gbit_per_s": { "aes_128_cbc_encrypt": aes, "aes_256_gcm_encrypt": gcm },
        "results": rows, "key_setup": setups, "published_openvpn": published, "goals": goals,
    });
    println!("{report:#}");
}
