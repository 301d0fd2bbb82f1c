//! The generations that issue, by the audit log: a start holds the database against it.
//!
//! Whoever can write to the database, or put an older copy of it back, could have an authority issue without the approvals of
//! its act. The log says which generation was put to use last (`authority.activate`), and by which request, whose approvals it
//! has with their signatures. From time to time, and after each change of a generation, `authority.issuing` says so of all of
//! them, and what [rows](crate::rows_log) there are: a start reads backwards no further than to the newest of these, and to the
//! beginning of requests that it has to verify.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use approval::{Act, Policy, RecordedApproval};
use audit::rows::{LOSS, TRANSACTION};
use audit::{Actor, AuditError, Event, Leaf, Outcome, View};
use event_catalogue::registry::{AuthoritiesIssuing, AuthorityActivated, State};
use event_catalogue::request::{PREFIX, Step};
use event_catalogue::{Details as _, Recorded as _};
use pki::cert;
use pki::name::Subject;
use pki::profile::CaKind;
use serde_json::Value;
use time::OffsetDateTime;

use crate::generation::AuthorityId;
use crate::rows_log;
use crate::writing::in_transaction;
use crate::{Registry, RegistryError};

/// Entries of the log that a start reads before it records once more which generations issue. Our choice: reading so many takes
/// a fraction of a second.
const NOTED_EVERY: u64 = 1 << 14;
const NOTED: &str = AuthoritiesIssuing::ACTION;
const ACTIVATED: &str = AuthorityActivated::ACTION;
const OPEN: &str = State::Open.action();
/// Beginnings of actions that say what issues.
const DECIDING: [&str; 4] = [NOTED, ACTIVATED, OPEN, LOSS];
/// What of the log decides, newest first.
#[derive(Default)]
struct Found {
    /// What was noted last; where the log has no note, the first generations. A kind that is missing is not known.
    noted: Option<BTreeMap<CaKind, AuthorityId>>,
    events: Vec<Event>,
    /// Requests of which not all is read yet.
    wanted: BTreeSet<String>,
    entries: u64,
}

/// A generation that was put to use.
struct Takeover {
    id: AuthorityId,
    certificate_sha256: String,
    request: Option<String>,
}

impl Takeover {
    fn is_act(&self, act: &Act) -> bool {
        match act {
            Act::AddAuthority {
                name,
                certificate_sha256,
                ..
            } => *name == self.id.to_string() && *certificate_sha256 == self.certificate_sha256,
            _ => false,
        }
    }
}

impl Found {
    fn read(log: &View) -> Result<Self, AuditError> {
        let mut found = Self::default();
        log.newest_first(|index, bytes| {
            found.entries += 1;
            if found.may_decide(bytes) {
                let leaf = Leaf::decode(bytes);
                let leaf = leaf.map_err(|source| AuditError::Leaf { index, source })?;
                found.take(leaf.event);
            }
            Ok::<_, AuditError>(match found.noted.is_some() && found.wanted.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        if found.noted.is_none() {
            let first = CaKind::ALL.map(|kind| (kind, AuthorityId::first(kind)));
            found.noted = Some(first.into());
        }
        Ok(found)
    }

    /// Whether an entry is to be read: entries are canonical JSON, so that each name has one spelling.
    fn may_decide(&self, bytes: &[u8]) -> bool {
        let names: &[&str] = match self.noted {
            None => &DECIDING,
            Some(_) => &[],
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return true;
        };
        let is_wanted = |rest: &str| {
            names.iter().any(|name| rest.starts_with(name))
                || (!self.wanted.is_empty() && rest.starts_with(PREFIX))
        };
        text.split("\"action\":\"").skip(1).any(is_wanted)
    }

    fn take(&mut self, event: Event) {
        let of_registry = event.role == "registry";
        let action = event.action.as_str();
        if of_registry && let Some(id) = event.resource.strip_prefix("request/") {
            if self.wanted.contains(id) {
                if action == Step::Draft.action() {
                    self.wanted.remove(id);
                }
                self.events.push(event);
            }
            return;
        }
        if self.noted.is_some() {
            return;
        }
        match action {
            NOTED if of_registry => {
                self.noted = Some(noted(&event));
            }
            LOSS if event.role == "site" => self.noted = Some(BTreeMap::new()),
            OPEN if of_registry => self.events.push(event),
            _ if of_registry && event.outcome == Outcome::Ok => {
                if action == ACTIVATED {
                    let request = text(&event, "request").map(str::to_owned);
                    self.wanted.extend(request);
                }
                self.events.push(event);
            }
            _ => {}
        }
    }

    /// The events since the note that took effect, in their order.
    fn effective(&self) -> Vec<&Event> {
        let mut effective: Vec<&Event> = Vec::new();
        for event in self.events.iter().rev() {
            match event.action.as_str() {
                OPEN => effective.retain(|one| transaction_of(one) <= transaction_of(event)),
                _ => effective.push(event),
            }
        }
        effective
    }

    /// Generations that were put to use since the note.
    fn takeovers(&self) -> Vec<Takeover> {
        let takeover = |event: &Event| {
            Some(Takeover {
                id: text(event, "new")?.parse().ok()?,
                certificate_sha256: text(event, "certificate_sha256")
                    .unwrap_or_default()
                    .to_owned(),
                request: text(event, "request").map(str::to_owned),
            })
        };
        let events = self.effective().into_iter();
        let events = events.filter(|event| event.action == ACTIVATED);
        events.filter_map(takeover).collect()
    }

    /// Approvals of a takeover that `request` had when it was carried out, with their times, by approver.
    fn approvals(
        &self,
        request: &str,
        one: &Takeover,
    ) -> BTreeMap<String, (RecordedApproval, OffsetDateTime)> {
        let resource = format!("request/{request}");
        let mut approvals = BTreeMap::new();
        let events = self.events.iter().rev();
        for event in events.filter(|event| event.resource == resource) {
            match event.action.strip_prefix(PREFIX) {
                Some("draft" | "edit" | "return" | "submit") => approvals.clear(),
                Some("approve") => {
                    let approval = RecordedApproval::verify(event).ok();
                    let approval = approval.filter(|approval| one.is_act(&approval.act));
                    approvals.extend(approval.map(|one| (one.uid.clone(), (one, event.at))));
                }
                _ => {}
            }
        }
        approvals
    }
}

fn transaction_of(event: &Event) -> u64 {
    let number = event.details.get(TRANSACTION).and_then(Value::as_u64);
    number.unwrap_or_default()
}

fn text<'a>(event: &'a Event, name: &str) -> Option<&'a str> {
    event.details.get(name).and_then(Value::as_str)
}

fn noted(event: &Event) -> BTreeMap<CaKind, AuthorityId> {
    let of_kind = |kind: CaKind| {
        let id: AuthorityId = text(event, kind.name())?.parse().ok()?;
        (id.kind() == kind).then_some((kind, id))
    };
    CaKind::ALL.into_iter().filter_map(of_kind).collect()
}

impl Registry {
    /// Holds which generations issue against the log of this site, before anything else is done with the registry. Returns whether [`Self::note_issuing`] is due.
    ///
    /// # Errors
    /// [`RegistryError::NotByLog`] or [`RegistryError::NotApproved`], and the site must not issue; [`RegistryError::Log`].
    pub async fn check_issuing(&self, log: View) -> Result<bool, RegistryError> {
        let read = self.inner.pool.run(move || Found::read(&log));
        let read = read.await.map_err(|_| RegistryError::Interrupted)?;
        let found = read.map_err(RegistryError::Log)?;
        let takeovers = found.takeovers();
        for one in &takeovers {
            self.check_takeover(&found, one)?;
        }
        let standings = self.standings();
        for kind in CaKind::ALL {
            let row = standings.issuing(kind)?;
            let last = takeovers.iter().rev().find(|one| one.id.kind() == kind);
            let noted = || found.noted.as_ref()?.get(&kind).copied();
            match last.map(|one| one.id).or_else(noted) {
                Some(logged) if logged != row => {
                    return Err(RegistryError::NotByLog { row, logged });
                }
                _ => {}
            }
        }
        let noted = found.noted.unwrap_or_default();
        Ok(found.entries > NOTED_EVERY || noted.len() < CaKind::ALL.len())
    }

    fn check_takeover(&self, found: &Found, one: &Takeover) -> Result<(), RegistryError> {
        // An order, where that was enough: the log has no request to look at.
        let Some(request) = &one.request else {
            return Ok(());
        };
        let approvals = found.approvals(request, one);
        let good = approvals
            .values()
            .filter(|(approval, at)| self.is_of_user(approval, *at));
        let good: Vec<&Act> = good.map(|(approval, _)| &approval.act).collect();
        // What every policy demands at least: the numbers may have been higher, or be higher by now.
        let needed = good
            .iter()
            .map(|act| Policy::default().approvals(act))
            .max();
        let needed = needed.unwrap_or(2);
        match good.len() >= needed {
            true => Ok(()),
            false => Err(RegistryError::NotApproved {
                id: one.id,
                request: request.clone(),
                found: good.len(),
                needed,
            }),
        }
    }

    /// Whether the approver's certificate is of this site's users, valid then, and the approver's own. The paths of then are not
    /// looked for: an authority's certificate may have been renewed since.
    fn is_of_user(&self, approval: &RecordedApproval, at: OffsetDateTime) -> bool {
        let Ok(certificate) = cert::from_der(&approval.certificate) else {
            return false;
        };
        let tbs = &certificate.tbs_certificate;
        let begin = OffsetDateTime::from(tbs.validity.not_before.to_system_time());
        let end = OffsetDateTime::from(tbs.validity.not_after.to_system_time());
        let subject = Subject::from_name(&tbs.subject);
        let uid = subject.ok().and_then(|subject| subject.uid);
        let held = self.held();
        let mut users = held.of_kind(CaKind::Users);
        begin <= at
            && at <= end
            && uid.as_deref() == Some(&approval.uid)
            && users.any(|one| cert::is_signed_by(&certificate, one.certificate()))
    }

    /// Records which generations issue, and what rows there are.
    ///
    /// # Errors
    /// [`RegistryError::Audit`], [`RegistryError::Store`].
    pub async fn note_issuing(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let mut turn = self.inner.turn.wait().await;
        // So that nothing that failed comes to light at a later start.
        self.inner.sql.settle().await?;
        let (committed, rows) = self.committed(&mut turn).await?;
        let who = Actor::service("registry");
        let standings = self.standings();
        let issuing = |kind| Ok::<_, RegistryError>(Some(standings.issuing(kind)?.to_string()));
        let noted = AuthoritiesIssuing {
            users: issuing(CaKind::Users)?,
            devices: issuing(CaKind::Devices)?,
            services: issuing(CaKind::Services)?,
        };
        let event = noted.into_event(now, who, "authorities");
        let rows_sha256 = Some(rows_log::hash(&rows));
        let event = in_transaction(committed, rows_sha256).add_to(event);
        self.record_in_turn(turn, self.told(vec![event])).await?;
        Ok(())
    }
}
