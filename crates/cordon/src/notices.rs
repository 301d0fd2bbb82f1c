//! Notices by mail of what becomes of registration requests.
//!
//! The registry keeps every change in order; `DIR/notices` has the number of the last one that was told. So a crash loses no
//! notice, and repeats at most those of one batch. Mail goes to a relay (RFC 5321), which brings it to mailboxes.

mod message;
mod relay;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use access::Role;
use approval::{Act, HolderKind, Request, State};
use directory::Person;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use registry::NumberedChange;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use self::message::{Line, Notice, Occasion};
pub(crate) use self::relay::Relay;
use self::relay::SendError;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::site::Site;

/// Interval between looks for changes: what came meanwhile is told in one notice for each recipient.
const EVERY: Duration = Duration::from_secs(10);
/// Changes in one batch.
const BATCH: u32 = 50;
/// Pause after the relay failed.
const PAUSE: Duration = Duration::from_secs(60);
/// Age from which a change is not told any more: people have looked into the portal, or never will.
const STALE: time::Duration = time::Duration::hours(48);
/// Attempts for a recipient of whom the relay says "later": whoever has such a mailbox keeps the others' next notices
/// waiting for so many pauses only.
const ATTEMPTS: u32 = 5;
/// Recipients of one batch. Our choice: more people do not share one queue of requests.
const MOST: usize = 200;

/// Counters of notices; clones count the same things.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(Family<Labels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "cordon_notices",
            "Notices by mail: sent, attempts that failed, refused for a recipient, given up for their age",
            self.0.clone(),
        );
    }

    fn count(&self, outcome: &'static str) {
        self.0.get_or_create(&Labels { outcome }).inc();
    }
}

/// What is to be told: recipient's address, then number of the request.
type Pending = BTreeMap<String, BTreeMap<String, Occasion>>;

/// Tells people of changes until `stop`. `portal` is the address of the portal, with a slash at its end.
pub(crate) struct Notices {
    pub(crate) site: Site,
    pub(crate) relay: Relay,
    pub(crate) portal: String,
    pub(crate) metrics: Metrics,
}

/// A batch under way.
struct Batch {
    /// Number of its newest change.
    through: i64,
    /// When its oldest change was made.
    since: OffsetDateTime,
    pending: Pending,
    /// Rounds in which the relay put some recipient off.
    attempts: u32,
}

impl Notices {
    pub(crate) async fn run(self, stop: CancellationToken) -> Outcome {
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut batch, mut paused_until) = (None, None);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => return Ok(()),
            }
            if paused_until.is_some_and(|until| Instant::now() < until) {
                continue;
            }
            let worked = tokio::select! {
                worked = self.work(&mut batch) => worked,
                () = stop.cancelled() => return Ok(()),
            };
            paused_until = worked.err().map(|failure| {
                tracing::error!("notices are not sent, trying again: {}", failure.message());
                Instant::now() + PAUSE
            });
        }
    }

    /// Goes on with `batch`, or begins one.
    async fn work(&self, batch: &mut Option<Batch>) -> Outcome {
        if batch.is_none() {
            *batch = self.next().await?;
        }
        let Some(under_way) = batch else {
            return Ok(());
        };
        let now = OffsetDateTime::now_utc();
        if under_way.since < now.saturating_sub(STALE) {
            for recipient in under_way.pending.keys() {
                tracing::error!(
                    recipient,
                    "a notice is given up: it could not be sent in time"
                );
                self.metrics.count("given-up");
            }
            under_way.pending.clear();
        }
        let (mut failed, mut deferred) = (None, None);
        for recipient in under_way.pending.keys().cloned().collect::<Vec<_>>() {
            match self.tell(under_way, &recipient, now).await {
                Ok(()) => self.metrics.count("sent"),
                Err(SendError::Recipient(error)) => {
                    tracing::warn!(recipient, error, "the relay refuses a recipient of notices");
                    self.metrics.count("refused");
                }
                Err(SendError::Deferred(_)) if under_way.attempts.saturating_add(1) >= ATTEMPTS => {
                    tracing::error!(
                        recipient,
                        "a notice is given up: the relay put it off again and again"
                    );
                    self.metrics.count("given-up");
                }
                Err(SendError::Deferred(error)) => {
                    self.metrics.count("failed");
                    deferred = Some(error);
                    continue;
                }
                Err(SendError::Relay(error)) => {
                    self.metrics.count("failed");
                    failed = Some(error);
                    break;
                }
            }
            under_way.pending.remove(&recipient);
        }
        if deferred.is_some() {
            under_way.attempts = under_way.attempts.saturating_add(1);
        }
        if let Some(error) = failed.or(deferred) {
            return Err(anyhow::anyhow!(error)).or_hint("the mail relay", "see [mail] and its log");
        }
        let through = under_way.through;
        self.write(through).await?;
        *batch = None;
        Ok(())
    }

    async fn tell(&self, batch: &Batch, to: &str, at: OffsetDateTime) -> Result<(), SendError> {
        let requests = batch.pending.get(to).into_iter().flatten();
        let lines: Vec<Line> = requests
            .map(|(request, occasion)| Line {
                request: request.clone(),
                occasion: *occasion,
            })
            .collect();
        let notice = Notice {
            from: self.relay.from(),
            to,
            lines: &lines,
            portal: &self.portal,
            through: batch.through,
            at,
        };
        self.relay.send(to, &notice.text()).await
    }

    /// The changes that nobody was told of yet.
    async fn next(&self) -> Outcome<Option<Batch>> {
        let registry = &self.site.registry;
        let newest = registry.newest_request_change().await;
        let newest = newest.or_hint("cannot read changes of requests", "check registry.sqlite")?;
        let told = match self.read().await? {
            // At the first start with a relay nobody is told of what is over; nor after an older database came back.
            None => None,
            Some(told) if told > newest => {
                tracing::warn!(
                    told,
                    newest,
                    "the registry has fewer changes than were told"
                );
                None
            }
            told => told,
        };
        let Some(told) = told else {
            self.write(newest).await?;
            return Ok(None);
        };
        if told == newest {
            return Ok(None);
        }
        let changes = registry.request_changes(told, BATCH).await;
        let changes =
            changes.or_hint("cannot read changes of requests", "check registry.sqlite")?;
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else {
            return Ok(None);
        };
        let (since, through) = (first.at, last.number);
        let people = self.site.directory.list().await;
        let people = people.or_hint("cannot read the directory", "check directory.sqlite")?;
        let mut pending = Pending::new();
        for change in &changes {
            let record = registry.request(&change.request).await;
            let record = record.or_hint("cannot read a request", "check registry.sqlite")?;
            for (person, occasion) in recipients(change, &record.request, &people) {
                if pending.len() < MOST || pending.contains_key(&person.email) {
                    let lines = pending.entry(person.email.clone()).or_default();
                    lines.insert(change.request.clone(), occasion);
                } else {
                    tracing::warn!(
                        recipient = person.uid,
                        "too many recipients of notices at once"
                    );
                }
            }
        }
        Ok(Some(Batch {
            through,
            since,
            pending,
            attempts: 0,
        }))
    }

    fn path(&self) -> PathBuf {
        self.site.data.join("notices")
    }

    async fn read(&self) -> Outcome<Option<i64>> {
        let path = self.path();
        let what = format!("cannot read {}", path.display());
        match tokio::fs::read_to_string(&path).await {
            Ok(text) => {
                let number = text.trim().parse();
                number
                    .map(Some)
                    .or_hint(what, "remove it: notices go on from then")
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).or_hint(what, "check the folder's rights and its disk"),
        }
    }

    async fn write(&self, number: i64) -> Outcome {
        let path = self.path();
        let what = format!("cannot write {}", path.display());
        let text = format!("{number}\n");
        let write = move || durable::write_atomic(&path, text.as_bytes(), 0o600);
        let written = tokio::task::spawn_blocking(write).await;
        let written = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        written.or_hint(what, "make room on the disk")
    }
}

/// Sends one mail that tells nothing, to see whether the relay takes it.
pub(crate) async fn send_test(relay: &Relay, to: &str) -> Outcome {
    let notice = Notice {
        from: relay.from(),
        to,
        lines: &[],
        portal: "",
        through: 0,
        at: OffsetDateTime::now_utc(),
    };
    relay
        .send(to, &notice.text())
        .await
        .map_err(|error| match error {
            SendError::Recipient(error) => Failure::new(
                anyhow::anyhow!("the relay does not take mail to {to}: {error}"),
                "give an address of which the relay knows",
            ),
            SendError::Deferred(error) | SendError::Relay(error) => Failure::new(
                anyhow::anyhow!("the mail relay: {error}"),
                "compare [mail] with what the relay demands; its own log says more",
            ),
        })
}

/// Who is told of a change, and as what. Whoever made it is not, nor who may not log in.
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
