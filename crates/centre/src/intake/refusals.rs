//! Refused uploads: each is counted, and one of a kind recorded.

use std::time::Instant;

use audit::{Actor, Repeats};
use event_catalogue::context::Repeated;
use event_catalogue::evidence::UploadRefused;
use event_catalogue::{Details as _, Recorded as _};
use time::OffsetDateTime;

use super::Intake;
use super::upload::UploadError;
use crate::problem::tell_disk_full;

impl Intake {
    /// Counts a refused upload, and records it unless the like of it was just recorded.
    pub(super) async fn note_refusal(&self, device: &str, error: &UploadError) {
        let Some(code) = error.quota() else {
            return;
        };
        self.inner.metrics.count_refused(code);
        if matches!(error, UploadError::NoSpace) {
            tell_disk_full(error);
        }
        self.note_refused(device, code).await;
    }

    /// Counts what a device was refused for `code`, and records it unless the like of it was just recorded.
    pub(super) async fn note_refused(&self, device: &str, code: &str) {
        let more = self
            .repeats()
            .note(&format!("{device} {code}"), Instant::now());
        if let Some(more) = more {
            tracing::warn!(device, code, more, "refused at the intake");
            self.record_refusal(device, code, more).await;
        }
    }

    /// Records how many refusals were only counted, once their interval is over.
    pub async fn record_counted_refusals(&self) {
        let due = self.repeats().due(Instant::now());
        for (cause, count) in due {
            let (device, code) = cause.rsplit_once(' ').unwrap_or((&cause, "several"));
            self.record_refusal(device, code, count).await;
        }
    }

    async fn record_refusal(&self, device: &str, code: &str, more: u64) {
        let (now, actor) = (OffsetDateTime::now_utc(), Actor::device(device));
        let event = UploadRefused {}.into_event(now, actor, "intake");
        let not_recorded = (more > 0).then_some(more);
        let event = Repeated { not_recorded }.add_to(event.with_reason(code));
        // The refusal stands, recorded or not.
        if let Err(error) = self.record(event).await {
            tracing::error!(%error, "a refused upload could not be recorded");
        }
    }

    fn repeats(&self) -> std::sync::MutexGuard<'_, Repeats> {
        let repeats = &self.inner.refusals;
        repeats
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
