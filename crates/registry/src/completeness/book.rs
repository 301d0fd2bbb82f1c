//! What the registry's book and certificates from elsewhere have, compared with the events.

use pki::cert;

use super::{Completeness, Gap};

impl Completeness {
    pub(super) fn compare(&mut self, der: &[u8], of_book: bool) {
        self.report.looked_for += 1;
        let fingerprint = cert::fingerprint_sha256(der);
        let Ok(certificate) = cert::from_der(der) else {
            let what = format!("{fingerprint}: this is no certificate");
            return self.report.gaps.push(Gap { entry: None, what });
        };
        let name = || {
            let serial = cert::serial_hex(&certificate);
            format!(
                "certificate {serial} of {}",
                certificate.tbs_certificate.subject
            )
        };
        if let Some(recorded) = self.recorded.get_mut(&fingerprint) {
            recorded.in_book |= of_book;
            let issuer = certificate.tbs_certificate.issuer.to_string();
            if !self.generations.is_called(recorded.issuer, &issuer) {
                let (entry, what) = (recorded.entry, name());
                return self.gap(entry, format!("{what}: its event names another authority"));
            }
            if let Some(field) = recorded.differs_from(der, &certificate, &self.trust) {
                let (entry, what) = (
                    recorded.entry,
                    format!("{}: its event has another {field}", name()),
                );
                self.gap(entry, what);
            }
            return;
        }
        let mut authorities = self.authorities.iter();
        if authorities.any(|authority| cert::is_signed_by(&certificate, authority)) {
            let what = format!("{} is in no event of the log", name());
            self.report.gaps.push(Gap { entry: None, what });
        }
    }

    pub(super) fn compare_archived(&mut self, serial: &str, digest: &str) {
        let what = match self.archived.get_mut(serial) {
            Some(archived) if archived.digest == digest => {
                archived.in_book = true;
                return;
            }
            Some(archived) => {
                archived.in_book = true;
                "is another than its event says"
            }
            None => "is in no event of the log",
        };
        let what = format!("the archived key of certificate {serial} {what}");
        self.report.gaps.push(Gap { entry: None, what });
    }

    /// Looks for the rows of the registry's book, as they were before the log was read. The log of a version that did not note
    /// them has none.
    pub fn look_for_rows(&mut self, rows: &str) {
        if !self.rows.is_empty() && !self.rows.iter().any(|known| known == rows) {
            let what =
                "the rows of the registry's book are those of no event: somebody else changed some";
            self.report.gaps.push(Gap {
                entry: None,
                what: what.to_owned(),
            });
        }
    }
}
