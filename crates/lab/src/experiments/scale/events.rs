//! The audit log as it grows.

use std::path::Path;

use audit::verify::Verifier;
use audit::{Actor, AuditSink as _, Event, LogKey, Outcome, SharedLog};
use error_report::Report;
use time::{Duration, OffsetDateTime};

use super::{EVENT_PROOF, EVENT_RECORD};
use crate::LabError;
use crate::process::Usage;
use crate::session::Round;

/// Events of one call.
const BATCH: u32 = 1000;
/// Memory that the files of an event take, with its journal.
pub(super) const EVENT_BYTES: u64 = 900;

/// Processor time to record an event, and to verify it, in logs with so many.
pub(super) fn measure(folder: &Path, sizes: &[u32], round: &mut Round) -> Result<(), LabError> {
    let folder = folder.join("log");
    for &events in sizes {
        let done = one(&folder, events, round);
        let removed = std::fs::remove_dir_all(&folder);
        done?;
        removed.map_err(LabError::io("a log that was measured"))?;
    }
    Ok(())
}

fn one(folder: &Path, events: u32, round: &mut Round) -> Result<(), LabError> {
    let failed = |error: &dyn std::error::Error| LabError::Unexpected(Report(error).to_string());
    let each = |cpu: f64| cpu * 1e6 / f64::from(events);
    let key = LogKey::generate("lab.example.org/log").map_err(|e| failed(&e))?;
    let before = Usage::own().cpu;
    let log = SharedLog::open(folder, key).map_err(|e| failed(&e))?;
    let role = log.role("lab").map_err(|e| failed(&e))?;
    for first in (0..events).step_by(BATCH as usize) {
        let batch = (first..events.min(first + BATCH)).map(event).collect();
        role.record_all(batch).map_err(|e| failed(&e))?;
    }
    let recorded = Usage::own().cpu;
    let verifier = Verifier::new(&log.verifier().to_string()).map_err(|e| failed(&e))?;
    let size = verifier
        .verify(&log.log_dir())
        .map_err(|e| failed(&e))?
        .size;
    if size < u64::from(events) {
        let text = format!("the log has {size} of {events} events");
        return Err(LabError::Unexpected(text));
    }
    let proven = Usage::own().cpu;
    round.put_at(EVENT_RECORD, events.into(), each(recorded - before));
    round.put_at(EVENT_PROOF, events.into(), each(proven - recorded));
    Ok(())
}

fn event(number: u32) -> Event {
    let at = OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(number.into());
    Event::new(
        at,
        Actor::user("u4711", "Example Officer"),
        "evidence.open",
        format!("evidence/{number:032x}"),
        Outcome::Permit,
    )
    .with_policies(["evidence-view-need-to-know".to_owned()])
    .with_detail("classification", 2)
}
