//! The source of notices by mail: changes of registration requests, and the people who have to know of them.
//!
//! The registry keeps every change in order. The crate `notices` has the queue (`DIR/notices`) and the relay.

use std::sync::Arc;

use access::Role;
use approval::{Act, HolderKind, Request, State};
use directory::Person;
use notices::{Change, Occasion, Source};
pub use notices::{Metrics, Relay, send_test};
use registry::NumberedChange;
use service_kit::{Place, Task};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::failure::{OrHint as _, Outcome};
use crate::parts::Site;

const CHANGES: &str = "cannot read changes of requests";
const REGISTRY: &str = "check registry.sqlite";

/// Tells people of changes by mail.
pub struct Notices {
    site: Site,
    portal: Arc<Place>,
    pub metrics: Metrics,
}

impl Notices {
    /// Mails of changes in the registry of `site`, with links to the portal at this place.
    pub fn new(site: &Site, portal: Arc<Place>) -> Self {
        Self {
            site: site.clone(),
            portal,
            metrics: Metrics::default(),
        }
    }

    /// The task that sends mails until `stop`; none where no relay is configured.
    pub fn task(&self, stop: CancellationToken) -> Outcome<Option<Task>> {
        let Some(relay) = Relay::open(&self.site.config.mail)? else {
            return Ok(None);
        };
        let (site, metrics) = (self.site.clone(), self.metrics.clone());
        let portal = Arc::clone(&self.portal);
        Ok(Some(Task::new("notices", async move {
            let notices = notices::Notices {
                file: site.data.join("notices"),
                // The portal listens once tasks run.
                portal: site.portal_url(portal.address()),
                source: site,
                relay,
                metrics,
            };
            notices.run(stop).await
        })))
    }
}

impl Source for Site {
    type People = Vec<Person>;

    async fn people(&self) -> Outcome<Vec<Person>> {
        let people = self.directory.list().await;
        people.or_hint("cannot read the directory", "check directory.sqlite")
    }

    fn is_recipient(&self, people: &Vec<Person>, address: &str) -> bool {
        people
            .iter()
            .any(|person| person.active && person.email == address)
    }

    async fn newest(&self) -> Outcome<i64> {
        let newest = self.registry.newest_request_change().await;
        newest.or_hint(CHANGES, REGISTRY)
    }

    async fn newest_before(&self, time: OffsetDateTime) -> Outcome<i64> {
        let newest = self.registry.newest_request_change_before(time).await;
        newest.or_hint(CHANGES, REGISTRY)
    }

    async fn changes(&self, after: i64, most: u32, people: &Vec<Person>) -> Outcome<Vec<Change>> {
        let changes = self.registry.request_changes(after, most).await;
        let changes = changes.or_hint(CHANGES, REGISTRY)?;
        let mut found = Vec::with_capacity(changes.len());
        let mut record = None;
        for change in changes {
            // Several changes of one request mostly follow each other.
            if record.as_ref().is_none_or(|(id, _)| id != &change.request) {
                let request = self.registry.request(&change.request).await;
                let request = request.or_hint("cannot read a request", REGISTRY)?;
                record = Some((change.request.clone(), request));
            }
            let Some((_, of)) = &record else { continue };
            let recipients = recipients(&change, &of.request, people)
                .into_iter()
                .map(|(person, occasion)| (person.email.clone(), occasion))
                .collect();
            found.push(Change {
                number: change.number,
                at: change.at,
                request: change.request,
                recipients,
            });
        }
        Ok(found)
    }
}

/// Recipients of a notice of a change, and in which part. The person who made it gets none, nor who may not log in.
fn recipients<'a>(
    change: &NumberedChange,
    request: &Request,
    people: &'a [Person],
) -> Vec<(&'a Person, Occasion)> {
    let second = matches!(
        request.state(),
        State::Issued {
            confirm_by: Some(_),
            ..
        }
    );
    // What was approved or withdrawn meanwhile waits no more.
    let waits = request.state().name() == change.state;
    let act = request.act();
    let of = |person: &Person| {
        let uid = person.uid.as_str();
        let own = request.requester() == uid;
        match (change.step.as_str(), change.state.as_str()) {
            ("submit" | "edit", "submitted") if waits => {
                may_approve(request, person).then_some(Occasion::Waits)
            }
            (_, "returned") => own.then_some(Occasion::Returned),
            (_, "refused") => own.then_some(Occasion::Refused),
            ("approve", "approved") => own.then_some(Occasion::Approved),
            (step, "issued") if step != "approve" => {
                if second && may_approve(request, person) {
                    Some(Occasion::WaitsForSecond)
                } else if concerns(act, uid) {
                    Some(Occasion::Concerns)
                } else {
                    own.then_some(Occasion::CarriedOut)
                }
            }
            _ => None,
        }
    };
    people
        .iter()
        .filter(|person| person.active && person.uid != change.by)
        .filter_map(|person| Some((person, of(person)?)))
        .collect()
}

/// Whether an approval of this person may still count: a hint for the reader, no permission.
fn may_approve(request: &Request, person: &Person) -> bool {
    let act = request.act();
    let role: Role = act.approver_role();
    let mut approvals = request.state().approvals().iter();
    person.roles.contains(&role)
        && person.clearance >= act.clearance()
        && !request.authors().contains(&person.uid)
        && !concerns(act, &person.uid)
        && !approvals.any(|approval| approval.uid() == person.uid)
}

/// Whether the act is about the person of this user id; devices and gateways may have the same names.
fn concerns(act: &Act, uid: &str) -> bool {
    let device = match act {
        Act::ChangeHolder { holder, .. } => *holder != HolderKind::Person,
        _ => false,
    };
    !device && act.subject() == Some(uid)
}
