//! Drives a device with messages of all sizes, by every way to learn of completions, and holds each
//! result against software: `exercise /dev/uio0`.
//!
//! Prints a line of JSON for each way.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is what this program is for"
)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use accel_driver::{Completion, Config};
use accel_engine::Accelerator;
use accel_transport::Link;
use offload_policy::{
    AesCbc, AesCtr, AesGcm, Direction, Hash, Hmac, MessageError, Policy, Selection, Settings,
};

type Problem = Box<dyn std::error::Error>;

/// Bytes of messages: whole blocks, from one to 16 KiB.
const SIZES: [usize; 9] = [16, 32, 64, 256, 1024, 1504, 4096, 8192, 16384];

const WAYS: [(&str, Completion); 3] = [
    ("interrupt", Completion::Interrupt),
    ("polling", Completion::Polling),
    ("adaptive", Completion::Adaptive(Duration::from_millis(1))),
];

fn config(completion: Completion, first_sequence: u32) -> Config {
    Config {
        ring_size: 4,
        buffer: 16384 + 4096,
        completion,
        deadline: Duration::from_secs(20),
        watchdog: Duration::from_secs(10),
        poll_interval: Duration::from_micros(100),
        first_sequence,
    }
}

/// Outputs of one policy for a message, by all operations.
fn messages(policy: &Arc<Policy>, data: &[u8]) -> Result<Vec<Vec<u8>>, MessageError> {
    let (key, iv) = ([0x2b; 16], [0x5a; 16]);
    let mut results = Vec::new();
    for direction in [Direction::Encrypt, Direction::Decrypt] {
        let mut bytes = data.to_vec();
        AesCbc::new(policy, direction, &key, iv)?.process(&mut bytes)?;
        results.push(bytes);
    }
    let mut bytes = data.to_vec();
    AesCtr::new(policy, &key, iv)?.process(&mut bytes)?;
    results.push(bytes);
    let gcm = AesGcm::new(policy, &key)?;
    let mut bytes = data.to_vec();
    let tag = gcm.seal([7; 12], b"associated", &mut bytes)?;
    let mut opened = bytes.clone();
    gcm.open([7; 12], b"associated", &mut opened, &tag)?;
    bytes.extend_from_slice(&tag);
    results.extend([bytes, opened]);
    let mut tag = vec![0; 32];
    Hmac::new(policy, Hash::Sha256, &key)?.sign(data, &mut tag)?;
    results.push(tag);
    Ok(results)
}

fn exercise(link: Link, name: &str, completion: Completion, first: u32) -> Result<(), Problem> {
    let accelerator = Accelerator::new("accelerator", link, config(completion, first))
        .ok_or("the settings do not fit the device's memory")?;
    let device = Arc::new(accelerator);
    let settings = |selection| Settings {
        selection,
        check_one_in: 0,
        ..Settings::default()
    };
    let policy = Policy::new(Some(device.clone()), settings(Selection::From(0)));
    let software = Policy::new(None, settings(Selection::Software));
    let before = device.with_bus(|bus| bus.interrupts());
    let (mut count, mut equal) = (0, 0);
    let started = Instant::now();
    for size in SIZES {
        let data: Vec<u8> = (0..size).map(|at| (at % 251).to_le_bytes()[0]).collect();
        let expected = messages(&software, &data)?;
        for (result, expected) in messages(&policy, &data)?.iter().zip(&expected) {
            count += 1;
            equal += usize::from(result == expected);
        }
    }
    let milliseconds = started.elapsed().as_millis();
    let interrupts = device.with_bus(|bus| bus.interrupts()) - before;
    let statistics = device.statistics();
    let quarantine = policy
        .quarantine()
        .map_or("null".to_owned(), |reason| format!("\"{reason:?}\""));
    println!(
        "{{\"completion\": \"{name}\", \"messages\": {count}, \"equal\": {equal}, \"requests\": {}, \"interrupts\": {interrupts}, \
         \"missed_interrupts\": {}, \"milliseconds\": {milliseconds}, \"quarantine\": {quarantine}}}",
        statistics.completed, statistics.missed_interrupts,
    );
    Ok(())
}

fn run(path: &Path) -> Result<(), Problem> {
    for (first, (name, completion)) in (1..).zip(WAYS) {
        exercise(Link::uio(path)?, name, completion, first << 16)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: exercise DEVICE");
        return ExitCode::from(2);
    };
    match run(Path::new(&path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("exercise: {error}");
            ExitCode::FAILURE
        }
    }
}
