//! Which of the agent's events the journal records, and how.

use audit::{Actor, Event, Outcome};
use event_catalogue::Recorded;
use event_catalogue::camera::{
    AboutBlock, BlockProblem, BudgetExhausted, ClockMoved, Lifecycle, Problem, ProblemKind,
    RecipientExpired, SetAside, SourceRejected, Step, TrustUpdated,
};
use time::OffsetDateTime;
use untrusted_text::UntrustedText;

use super::{about, shortened};
use crate::events::CameraEvent;

/// The event of the journal; `None` for what the site learns from the block itself, or what is not an act upon the camera.
pub(super) fn told(happened: &CameraEvent, device: &str, now: OffsetDateTime) -> Option<Event> {
    let block = |kind, sequence: u64, reason: &str| {
        failed(device, AboutBlock { kind, sequence }, reason, now)
    };
    let problem = |kind, reason: &str| failed(device, Problem { kind }, reason, now);
    let event = match happened {
        CameraEvent::Sealed { .. }
        | CameraEvent::Receipted { .. }
        | CameraEvent::BearerFailed { .. }
        | CameraEvent::RevocationKnown => return None,
        CameraEvent::Dropped(dropped) => {
            let dropped = event_catalogue::camera::Dropped {
                sequence: dropped.sequence,
                manifest_sha256: dropped.manifest_sha256.to_string(),
                cause: format!("{:?}", dropped.reason).to_lowercase(),
            };
            about(device, dropped, now)
        }
        CameraEvent::Unreadable { sequence, reason } => {
            block(BlockProblem::Unreadable, *sequence, reason)
        }
        CameraEvent::ReceiptRefused { sequence, reason } => {
            block(BlockProblem::ReceiptRefused, *sequence, reason)
        }
        CameraEvent::RevocationUnknown { reason } => {
            problem(ProblemKind::RevocationUnknown, reason)
        }
        CameraEvent::TrustUpdated { version } => {
            about(device, TrustUpdated { version: *version }, now)
        }
        CameraEvent::TrustRefused { reason } => problem(ProblemKind::TrustRefused, reason),
        CameraEvent::RecipientExpired { since } => {
            let since = since.unix_timestamp();
            about(device, RecipientExpired { since }, now)
        }
        CameraEvent::LogContradiction(contradiction) => {
            problem(ProblemKind::LogContradiction, &contradiction.problem)
        }
        CameraEvent::Rejected { name, reason } => {
            let name = UntrustedText::new(name).into();
            failed(device, SourceRejected { name }, reason, now)
        }
        CameraEvent::SetAside(summary) => {
            let outcome = match summary.count {
                0 => Outcome::Ok,
                _ => Outcome::Fail,
            };
            let set_aside = SetAside {
                count: summary.count,
                since: summary.since.map(OffsetDateTime::unix_timestamp),
            };
            let object = format!("camera/{device}");
            let event = set_aside.ended(outcome, now, Actor::device(device), object);
            match summary.reason.is_empty() {
                true => event,
                false => event.with_reason(shortened(&summary.reason)),
            }
        }
        CameraEvent::BudgetExhausted { bearer } => {
            let bearer = bearer.clone();
            about(device, BudgetExhausted { bearer }, now)
        }
        CameraEvent::SpoolFull => {
            let kind = ProblemKind::SpoolFull;
            about(device, Problem { kind }, now)
        }
        CameraEvent::Enrolled { renewed } => {
            let kind = match renewed {
                true => Step::Renew,
                false => Step::Enrol,
            };
            about(device, Lifecycle { kind }, now)
        }
        CameraEvent::ClockJumped { seconds } => {
            let seconds = *seconds;
            failed(
                device,
                ClockMoved { seconds },
                "the wall clock was moved",
                now,
            )
        }
    };
    Some(event)
}

fn failed(device: &str, what: impl Recorded, reason: &str, now: OffsetDateTime) -> Event {
    about(device, what, now).with_reason(shortened(reason))
}
