//! Certificates of a configuration that are not yet, no more, or not for long valid.

use std::path::Path;

use time::{Duration, OffsetDateTime};

use super::{Finding, Severity};
use crate::resolve::{OwnCertificate, ResolvedConfig, certificates};

/// An authority takes longer to replace than a certificate that renews itself.
const AUTHORITY: Duration = Duration::days(90);

impl ResolvedConfig {
    /// Finds certificates of ours and of authorities, in files beside `folder`, that are out of date or will be soon.
    #[must_use]
    pub fn certificate_findings(&self, folder: &Path, now: OffsetDateTime) -> Vec<Finding> {
        let mut found = Vec::new();
        for connection in &self.connections {
            for own in &connection.own {
                let setting = format!("connection {:?}: certificate", connection.name());
                // Renewal is at two thirds of the life: with a quarter left it is overdue.
                let soon = (own.not_after - own.not_before) / 4;
                let remedy = "renew it: `cordon pki renew`, see docs/tunnels/certificates.md";
                found.extend(ending(own, setting, soon, remedy, now));
            }
        }
        let general = self.config.trust.iter();
        let general = general.map(|t| ("[trust]".to_owned(), &t.anchors, &t.intermediates));
        let connections = self.config.connection.iter();
        let own = connections.filter_map(|one| Some((&one.name, one.trust.as_ref()?)));
        let own = own.map(|(name, t)| {
            (
                format!("connection {name:?}: trust"),
                &t.anchors,
                &t.intermediates,
            )
        });
        for (setting, anchors, intermediates) in general.chain(own) {
            for files in [anchors, intermediates] {
                // What cannot be read was said when the file was resolved.
                let read = certificates(files, folder, &setting).unwrap_or_default();
                for authority in read.iter().map(OwnCertificate::of) {
                    let remedy = "get the authority's next certificate, and name both until then";
                    found.extend(ending(&authority, setting.clone(), AUTHORITY, remedy, now));
                }
            }
        }
        found
    }
}

fn ending(
    certificate: &OwnCertificate,
    setting: String,
    soon: Duration,
    remedy: &str,
    now: OffsetDateTime,
) -> Option<Finding> {
    let OwnCertificate {
        subject,
        not_before,
        not_after,
    } = certificate;
    let days = (*not_after - now).whole_days();
    let (severity, what) = match now {
        _ if now < *not_before => (
            Severity::Error,
            format!("{subject} is valid from {} on", not_before.date()),
        ),
        _ if now > *not_after => (
            Severity::Error,
            format!("{subject} expired on {}", not_after.date()),
        ),
        _ if *not_after - now < soon => (
            Severity::Warning,
            format!("{subject} ends on {}, in {days} days", not_after.date()),
        ),
        _ => return None,
    };
    let remedy = match now < *not_before {
        true => "check the clock of this host",
        false => remedy,
    };
    Some(Finding {
        severity,
        setting,
        found: what,
        remedy: remedy.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_reported_before_and_after_their_end() {
        let start = OffsetDateTime::UNIX_EPOCH;
        let own = OwnCertificate {
            subject: "CN=gw".into(),
            not_before: start,
            not_after: start + Duration::days(100),
        };
        let at = |days, seconds| {
            let now = start + Duration::days(days) + Duration::seconds(seconds);
            let found = ending(&own, "c".into(), Duration::days(25), "renew it", now);
            found.map(|one| one.severity)
        };
        assert_eq!(at(0, -1), Some(Severity::Error));
        assert_eq!(at(0, 0), None);
        assert_eq!(at(75, 0), None);
        assert_eq!(at(75, 1), Some(Severity::Warning));
        assert_eq!(at(100, 0), Some(Severity::Warning));
        assert_eq!(at(100, 1), Some(Severity::Error));
    }
}
