//! Which of the agent's events stand in the journal, and how.

use audit::Outcome;
use serde_json::Value;
use untrusted_text::UntrustedText;

use crate::events::CameraEvent;

type Details = Vec<(&'static str, Value)>;

/// Action, outcome, reason and details; `None` for what the site learns from the block itself, or what is
/// no act upon the camera.
pub(super) fn told(
    happened: &CameraEvent,
) -> Option<(&'static str, Outcome, Option<String>, Details)> {
    let failed = |action, reason: &String, details| {
        Some((action, Outcome::Fail, Some(reason.clone()), details))
    };
    match happened {
        CameraEvent::Sealed { .. }
        | CameraEvent::Receipted { .. }
        | CameraEvent::BearerFailed { .. }
        | CameraEvent::RevocationKnown => None,
        CameraEvent::Dropped(dropped) => Some((
            "camera.drop",
            Outcome::Fail,
            None,
            vec![
                ("sequence", dropped.sequence.into()),
                (
                    "manifest_sha256",
                    dropped.manifest_sha256.to_string().into(),
                ),
                (
                    "cause",
                    format!("{:?}", dropped.reason).to_lowercase().into(),
                ),
            ],
        )),
        CameraEvent::Unreadable { sequence, reason } => failed(
            "camera.unreadable",
            reason,
            vec![("sequence", (*sequence).into())],
        ),
        CameraEvent::ReceiptRefused { sequence, reason } => failed(
            "camera.receipt-refused",
            reason,
            vec![("sequence", (*sequence).into())],
        ),
        CameraEvent::RevocationUnknown { reason } => {
            failed("camera.revocation-unknown", reason, vec![])
        }
        CameraEvent::TrustUpdated { version } => Some((
            "camera.trust",
            Outcome::Ok,
            None,
            vec![("version", (*version).into())],
        )),
        CameraEvent::TrustRefused { reason } => failed("camera.trust-refused", reason, vec![]),
        CameraEvent::RecipientExpired { since } => Some((
            "camera.recipient-expired",
            Outcome::Fail,
            None,
            vec![("since", since.unix_timestamp().into())],
        )),
        CameraEvent::LogContradiction(contradiction) => {
            failed("camera.log-contradiction", &contradiction.problem, vec![])
        }
        CameraEvent::Rejected { name, reason } => failed(
            "camera.reject",
            reason,
            vec![("name", UntrustedText::new(name).as_str().into())],
        ),
        CameraEvent::SetAside(summary) => Some((
            "camera.set-aside",
            match summary.count {
                0 => Outcome::Ok,
                _ => Outcome::Fail,
            },
            (!summary.reason.is_empty()).then(|| summary.reason.clone()),
            [
                Some(("count", summary.count.into())),
                summary
                    .since
                    .map(|since| ("since", since.unix_timestamp().into())),
            ]
            .into_iter()
            .flatten()
            .collect(),
        )),
        CameraEvent::BudgetExhausted { bearer } => Some((
            "camera.budget",
            Outcome::Fail,
            None,
            vec![("bearer", bearer.clone().into())],
        )),
        CameraEvent::SpoolFull => Some(("camera.spool-full", Outcome::Fail, None, vec![])),
        CameraEvent::Enrolled { renewed } => {
            let action = if *renewed {
                "camera.renew"
            } else {
                "camera.enrol"
            };
            Some((action, Outcome::Ok, None, vec![]))
        }
        CameraEvent::ClockJumped { seconds } => Some((
            "camera.clock",
            Outcome::Fail,
            Some("the wall clock was moved".to_owned()),
            vec![("seconds", (*seconds).into())],
        )),
    }
}
