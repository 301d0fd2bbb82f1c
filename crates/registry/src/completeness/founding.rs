//! The founding of a site, and the certificates that it explains.

use std::collections::BTreeSet;

use audit::Event;
use error_report::Report;
use pki::Certificate;
use pki::cert;

use super::recorded::Recorded;
use crate::founding::Transcript;

/// The founding by the first event of the log; see the [module](self).
#[derive(Default)]
pub(super) struct Founding {
    transcript: Option<Transcript>,
    /// User ids of people of the founding whose certificate was found.
    issued: BTreeSet<String>,
}

impl Founding {
    /// Takes the event of a founding; gives the reason if it does not count.
    pub(super) fn noted(
        &mut self,
        entry: u64,
        event: &Event,
        root: Option<&Certificate>,
    ) -> Option<String> {
        if entry != 0 {
            return Some("a founding that is not the first event of the log".to_owned());
        }
        let transcript = match Transcript::of_event(event) {
            Ok(transcript) => transcript,
            Err(error) => return Some(format!("the founding does not count: {}", Report(&error))),
        };
        let root = root.and_then(|root| cert::to_der(root).ok());
        let root = root.map(|der| cert::fingerprint_sha256(&der));
        if root.as_ref() != Some(&transcript.root_sha256) {
            return Some("the founding is of another root certificate".to_owned());
        }
        self.transcript = Some(transcript);
        None
    }

    /// What the founding says otherwise than the event of a certificate.
    pub(super) fn differs(&self, one: &Recorded) -> Option<String> {
        let Some(transcript) = &self.transcript else {
            return Some("it is of a founding, and the log does not begin with one".to_owned());
        };
        let Some(founder) = transcript.founder(&one.holder) else {
            return Some(format!("the founding does not name {}", one.holder));
        };
        let key = founder.key_sha256().ok();
        let differs = [
            (one.spki_sha256.is_none() || one.spki_sha256 != key, "key"),
            (one.profile != founder.role.profile().to_string(), "profile"),
            (one.clearance != founder.clearance, "clearance"),
        ];
        let found = differs.into_iter().find(|(differs, _)| *differs);
        found.map(|(_, what)| format!("the founding was for another {what}"))
    }

    /// What the founding does not explain of a certificate, of which each person has one.
    pub(super) fn unexplained(&mut self, one: &Recorded) -> Option<String> {
        let differs = self.differs(one);
        if differs.is_none() && !self.issued.insert(one.holder.clone()) {
            return Some("the founding gave this person a certificate before".to_owned());
        }
        differs
    }

    /// People of the founding without a certificate: it was not completed.
    pub(super) fn missing(&self) -> impl Iterator<Item = String> {
        let people = self.transcript.iter().flat_map(|one| &one.people);
        let missing = people.filter(|person| !self.issued.contains(&person.uid));
        missing.map(|person| format!("the founding names {}, who has no certificate", person.uid))
    }
}
