//! Which generation of each authority issued when, by the log.

use std::collections::BTreeMap;

use audit::Event;
use pki::profile::{CaKind, Profile};
use serde_json::Value;

use crate::generation::AuthorityId;

/// A generation that took over.
struct Takeover {
    entry: u64,
    transaction: u64,
    new: AuthorityId,
    request: Option<String>,
    by: String,
}

#[derive(Default)]
pub(super) struct Generations {
    /// In the order of their events.
    takeovers: Vec<Takeover>,
    /// The name of each in the certificates that it issued.
    names: BTreeMap<AuthorityId, String>,
}

impl Generations {
    /// Takes the event of a generation that took over; `false` if it names none.
    pub(super) fn activated(&mut self, entry: u64, transaction: u64, event: &Event) -> bool {
        let text = |name: &str| event.details.get(name).and_then(Value::as_str);
        let Some(Ok(new)) = text("new").map(str::parse) else {
            return false;
        };
        self.takeovers.push(Takeover {
            entry,
            transaction,
            new,
            request: text("request").map(str::to_owned),
            by: event.actor.id.clone(),
        });
        true
    }

    /// Of what was recorded so far, transactions after `committed` have no effect.
    pub(super) fn opened(&mut self, committed: u64) {
        self.takeovers.retain(|one| one.transaction <= committed);
    }

    fn issuing(&self, kind: CaKind) -> AuthorityId {
        let mut of_kind = self.takeovers.iter().rev();
        let last = of_kind.find(|one| one.new.kind() == kind);
        last.map(|one| one.new)
            .unwrap_or_else(|| AuthorityId::first(kind))
    }

    /// Explains that a certificate of this profile, by its name, cannot be of `issuer` now; `None` if it can.
    pub(super) fn unexplained(&self, profile: &str, issuer: Option<AuthorityId>) -> Option<String> {
        let Some(issuer) = issuer else {
            return Some("its event names no authority".to_owned());
        };
        let issuing = self.issuing(issuer.kind());
        // Each generation certifies who signs OCSP responses for it.
        let is_its_own = profile == Profile::OcspSigner(issuer.kind()).to_string();
        (issuer != issuing && !is_its_own)
            .then(|| format!("it is of the {issuer} authority, and {issuing} issued"))
    }

    /// Tells whether `name` is that of `issuer` in all certificates that were seen, and of no other one.
    pub(super) fn is_called(&mut self, issuer: Option<AuthorityId>, name: &str) -> bool {
        let Some(issuer) = issuer else { return false };
        let others = self.names.iter().filter(|(id, _)| **id != issuer);
        if others.map(|(_, other)| other).any(|other| other == name) {
            return false;
        }
        self.names.entry(issuer).or_insert_with(|| name.to_owned()) == name
    }

    /// Entry and reason of each that took over without enough approvals. `approved` says whether a request was carried out, with
    /// enough of them and this result.
    pub(super) fn unapproved(
        &self,
        approved: impl Fn(&str, &str) -> bool,
    ) -> impl Iterator<Item = (u64, String)> {
        self.takeovers.iter().filter_map(move |one| {
            let new = one.new.to_string();
            let what = match &one.request {
                None => format!(
                    "{} had the {new} authority issue, without a request",
                    one.by
                ),
                Some(request) if approved(request, &new) => return None,
                Some(request) => {
                    format!("request {request} was not carried out with the {new} authority")
                }
            };
            Some((one.entry, what))
        })
    }
}

#[cfg(test)]
mod tests {
    use audit::{Actor, Outcome};
    use time::OffsetDateTime;

    use super::*;

    const FIRST: AuthorityId = AuthorityId::first(CaKind::Devices);

    fn takeover(new: &str, request: Option<&str>) -> Event {
        let (at, who) = (OffsetDateTime::UNIX_EPOCH, Actor::user("clerk", "C. Lerk"));
        let event = Event::new(
            at,
            who,
            "authority.activate",
            "authority/devices",
            Outcome::Ok,
        );
        let event = event.with_detail("new", new);
        match request {
            Some(request) => event.with_detail("request", request),
            None => event,
        }
    }

    #[test]
    fn certificate_of_a_generation_that_did_not_issue_is_unexplained() {
        let second = FIRST.next().unwrap();
        let mut generations = Generations::default();
        let device =
            |generations: &Generations, id| generations.unexplained("device", id).is_none();
        assert!(device(&generations, Some(FIRST)) && !device(&generations, Some(second)));
        assert!(!device(&generations, None));
        assert!(generations.activated(7, 3, &takeover("devices-g2", None)));
        assert!(!generations.activated(8, 4, &takeover("cars-g2", None)));
        assert!(!device(&generations, Some(FIRST)) && device(&generations, Some(second)));
        let signer = Profile::OcspSigner(CaKind::Devices).to_string();
        assert_eq!(generations.unexplained(&signer, Some(FIRST)), None);
        // Of another kind nothing has changed.
        let users = AuthorityId::first(CaKind::Users);
        assert_eq!(generations.unexplained("user", Some(users)), None);
        // Recorded, and never committed.
        generations.opened(2);
        assert!(device(&generations, Some(FIRST)));
    }

    #[test]
    fn takeover_without_its_approvals_is_a_gap() {
        let mut generations = Generations::default();
        generations.activated(7, 1, &takeover("devices-g2", None));
        generations.activated(8, 2, &takeover("devices-g3", Some("0b")));
        generations.activated(9, 3, &takeover("devices-g4", Some("0c")));
        let approved = |id: &str, result: &str| id == "0c" && result == "devices-g4";
        let gaps: Vec<_> = generations.unapproved(approved).collect();
        assert_eq!(gaps.iter().map(|gap| gap.0).collect::<Vec<_>>(), [7, 8]);
        assert!(
            gaps[0]
                .1
                .contains("clerk had the devices-g2 authority issue"),
            "{gaps:?}"
        );
    }

    #[test]
    fn two_generations_have_two_names() {
        let second = FIRST.next();
        let mut generations = Generations::default();
        assert!(generations.is_called(Some(FIRST), "CN=devices CA"));
        assert!(generations.is_called(Some(FIRST), "CN=devices CA"));
        assert!(!generations.is_called(second, "CN=devices CA"));
        assert!(generations.is_called(second, "CN=devices CA G2"));
        assert!(!generations.is_called(Some(FIRST), "CN=devices CA G2"));
        assert!(!generations.is_called(None, "CN=users CA"));
    }
}
