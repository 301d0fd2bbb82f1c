//! Looks for journals of cameras and gateways that do not move, for health, metrics and the audit log.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use centre::{Centre, SilentJournal};
use service_kit::Health;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::failure::{Failure, OrHint as _, Outcome};

/// Interval between two looks.
const EVERY: Duration = Duration::from_mins(1);

/// Looks until `stop`.
pub(crate) async fn follow(silence: Silence, stop: CancellationToken) -> Outcome {
    loop {
        if let Err(failure) = silence.look(OffsetDateTime::now_utc()).await {
            let error = failure.message();
            tracing::error!(error, "silent journals are not known");
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Whose journals are looked at.
pub(crate) struct Silence {
    pub(crate) centre: Centre,
    pub(crate) admission: Arc<dyn Admission>,
    /// Hours without a record after which a journal counts as silent.
    pub(crate) hours: u16,
}

impl Silence {
    /// Looks once. The site refuses some devices, which therefore send no journals.
    pub(crate) async fn look(&self, now: OffsetDateTime) -> Outcome {
        const HINT: &str = "check the disk; see the log";
        let before = now.saturating_sub(time::Duration::hours(i64::from(self.hours)));
        let intake = self.centre.intake();
        let mut silent = intake
            .silent_journals(before)
            .await
            .or_hint("the index", HINT)?;
        if !silent.is_empty() {
            let refused = self.admission.refused_devices().await;
            let refused = refused
                .map_err(|refused| Failure::new(anyhow::anyhow!("{}", refused.message), HINT))?;
            let refused: HashSet<String> = refused.into_iter().collect();
            silent.retain(|one| one.camera().is_none_or(|camera| !refused.contains(camera)));
        }
        let recorded = intake.record_silence(silent, now).await;
        recorded.or_hint("silent journals", HINT)
    }
}

/// Adds what the last look found: a camera that is merely away needs no one at once.
pub(crate) fn assess(silent: &[SilentJournal], health: &mut Health) {
    for journal in silent {
        let (source, since) = (&journal.source, journal.since);
        let (date, time) = (since.date(), since.time());
        let since = format!("{date} {:02}:{:02}", time.hour(), time.minute());
        match (journal.camera(), journal.contact) {
            (Some(_), Some(contact)) => health.problems.push(format!(
                "the journal of {source} does not move since {since} although its blocks come, the last on {}: \
                 see `cordon camera status` there",
                contact.date()
            )),
            (Some(_), None) => health
                .warnings
                .push(format!("nothing came from {source} since {since}, neither journal nor blocks")),
            (None, _) => health.problems.push(format!(
                "the journal of the gateway ({source}) does not move since {since}: see `cordon vpn status`"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_gateway_or_camera_in_contact_is_a_problem_and_an_absent_camera_a_warning() {
        let journal = |source: &str, contact| SilentJournal {
            source: source.to_owned(),
            since: OffsetDateTime::UNIX_EPOCH,
            contact,
            is_recorded: true,
        };
        for (source, contact, expected) in [
            ("camera/a", None, (0, 1)),
            ("camera/a", Some(OffsetDateTime::UNIX_EPOCH), (1, 0)),
            (centre::GATEWAY_JOURNAL, None, (1, 0)),
        ] {
            let mut health = Health::default();
            assess(&[journal(source, contact)], &mut health);
            assert_eq!((health.problems.len(), health.warnings.len()), expected);
            let line = health
                .problems
                .iter()
                .chain(&health.warnings)
                .next()
                .unwrap();
            assert!(
                line.contains(source) && line.contains("1970-01-01 00:00"),
                "{line}"
            );
        }
        let mut health = Health::default();
        assess(&[], &mut health);
        assert!(health.problems.is_empty() && health.warnings.is_empty());
    }
}
