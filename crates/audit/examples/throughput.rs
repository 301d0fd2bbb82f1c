//! Measures the log: batched appends, single records from many threads, proof of the whole log.
//!
//! `cargo run --release -p audit --example throughput -- [EVENTS] [FOLDER]`
#![allow(clippy::disallowed_methods, reason = "a program has a clock")]
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "printing figures is its purpose")]

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use audit::log::LogError;
use audit::verify::Verifier;
use audit::{Actor, AuditSink, Event, LogKey, Outcome, SharedLog};

const BATCH: usize = 1000;
const SINGLE_PER_THREAD: u64 = 500;

fn event(n: u64) -> Event {
    let at = time::OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(n as i64);
    Event::new(
        at,
        Actor::user("u4711", "Example Officer"),
        "evidence.open",
        format!("evidence/{n:032x}"),
        Outcome::Permit,
    )
    .with_policies(["evidence-view-need-to-know".to_owned()])
    .with_detail("classification", 2)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let events: u64 = arguments.next().map_or(Ok(100_000), |n| n.parse())?;
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .next()
        .map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let key = LogKey::generate("audit.example.org/log")?;
    println!("key {}", key.verifier());
    let log = SharedLog::open(&folder, key)?;
    let role = log.role("centre")?;

    let start = Instant::now();
    for first in (0..events).step_by(BATCH) {
        role.record_all(
            (first..(first + BATCH as u64).min(events))
                .map(event)
                .collect(),
        )?;
    }
    report("batches of 1000", events, start);

    for threads in [1, 4, 64] {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    (0..SINGLE_PER_THREAD).try_for_each(|n| role.record(event(n)).map(drop))
                });
            }
        });
        let name = format!("single records, {threads} threads");
        report(&name, threads * SINGLE_PER_THREAD, start);
    }

    let verifier = Verifier::new(&log.verifier().to_string())?;
    let start = Instant::now();
    let size = verifier.verify(&log.log_dir())?.size;
    report("verified", size, start);
    let start = Instant::now();
    let verifier = verifier.with_journals(&log.journal_dir());
    let size = verifier.verify(&log.log_dir())?.size;
    report("verified with journals", size, start);

    let start = Instant::now();
    let mut read = 0;
    log.view()?.newest_first::<LogError>(|_, _| {
        read += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    report("read backwards", read, start);

    let start = Instant::now();
    for i in 0..1000 {
        log.view()?.entry(i * 7919 % size)?;
    }
    report("single events, each from a view of its own", 1000, start);

    let start = Instant::now();
    let view = log.view()?;
    for i in 0..1000 {
        view.inclusion_proof(i * 7919 % size)?;
    }
    report("inclusion proofs", 1000, start);
    Ok(())
}

fn report(what: &str, count: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what}: {count} in {seconds:.3} s, {:.0}/s",
        count as f64 / seconds
    );
}
