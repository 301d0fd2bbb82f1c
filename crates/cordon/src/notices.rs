//! Notices by mail of what becomes of registration requests.
//!
//! The registry keeps every change in order. What of it others have to know waits in a queue (`DIR/notices`) until the relay
//! (RFC 5321) has taken the mail: a crash loses no notice, and repeats one mail at most.

mod message;
mod queue;
mod relay;
mod smtp;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::Role;
use approval::{Act, HolderKind, Request, State};
use directory::Person;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use registry::NumberedChange;
use service_kit::{Place, Task};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use self::message::{Notice, Occasion};
use self::queue::{Queue, STALE, pause};
pub(crate) use self::relay::Relay;
use self::relay::SendError;
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::site::Site;

/// Interval between looks for changes: what came meanwhile is told in one mail for each recipient.
const EVERY: Duration = Duration::from_secs(10);
/// Changes that are read at once; the next ones follow without a pause.
const BATCH: u32 = 500;
/// Longest pause after the relay failed.
const PAUSE: Duration = Duration::from_secs(60);

/// Counters of notices and what is wrong with them; clones have the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    outcomes: Family<Labels, Counter>,
    queue_lost: Counter,
    /// Why nothing can be sent at present.
    trouble: Arc<Mutex<Option<String>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "cordon_notices",
            "Notices by mail: sent, attempts that failed, refused for a recipient, given up for their age or number",
            self.outcomes.clone(),
        );
        registry.register(
            "cordon_notices_queue_lost",
            "Starts at which the queue of notices could not be understood",
            self.queue_lost.clone(),
        );
    }

    /// What of notices a person has to look after.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble = trouble
            .iter()
            .map(|trouble| format!("notices by mail are not sent: {trouble}"));
        let lost = (self.queue_lost.get() > 0).then(|| {
            "the queue of notices was damaged at the start: notices of the last 48 hours were sent again".to_owned()
        });
        trouble.chain(lost).collect()
    }

    fn count(&self, outcome: &'static str, number: usize) {
        let labels = Labels { outcome };
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        self.outcomes.get_or_create(&labels).inc_by(number);
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// Tells people of changes by mail.
pub(crate) struct Notices {
    site: Site,
    portal: Arc<Place>,
    pub(crate) metrics: Metrics,
}

impl Notices {
    /// Mails of changes in the registry of `site`, with links to the portal at this place.
    pub(crate) fn new(site: &Site, portal: Arc<Place>) -> Self {
        Self {
            site: site.clone(),
            portal,
            metrics: Metrics::default(),
        }
    }

    /// The task that sends mails until `stop`; none where no relay is configured.
    pub(crate) fn task(&self, stop: CancellationToken) -> Outcome<Option<Task>> {
        let relay = Relay::open(&self.site.config.mail)?;
        Ok(relay.map(|relay| {
            let sender = Sender {
                site: self.site.clone(),
                relay,
                portal: Arc::clone(&self.portal),
                metrics: self.metrics.clone(),
            };
            Task::new("notices", sender.run(stop))
        }))
    }
}

struct Sender {
    site: Site,
    relay: Relay,
    portal: Arc<Place>,
    metrics: Metrics,
}

impl Sender {
    pub(crate) async fn run(self, stop: CancellationToken) -> Outcome {
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut queue, mut failures, mut paused_until) = (None, 0_u32, None);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => return Ok(()),
            }
            if paused_until.is_some_and(|until| Instant::now() < until) {
                continue;
            }
            let worked = tokio::select! {
                worked = self.work(&mut queue) => worked,
                () = stop.cancelled() => return Ok(()),
            };
            let trouble = worked.err().map(|failure| failure.message());
            paused_until = None;
            if let Some(trouble) = &trouble {
                tracing::error!("notices are not sent, trying again: {trouble}");
                failures = failures.saturating_add(1);
                paused_until = Some(Instant::now() + pause(failures, PAUSE));
            } else {
                failures = 0;
            }
            self.metrics.set_trouble(trouble);
        }
    }

    /// Reads what is new, and sends what waits.
    async fn work(&self, queue: &mut Option<Queue>) -> Outcome {
        let queue = match queue {
            Some(queue) => queue,
            None => queue.insert(self.open().await?),
        };
        let people = self.site.directory.list().await;
        let people = people.or_hint("cannot read the directory", "check directory.sqlite")?;
        self.read_changes(queue, &people).await?;
        self.keep(queue).await?;
        for address in queue.due(Instant::now()) {
            let told = self.tell(queue, &address, &people).await;
            // Also of what failed: attempts count over restarts.
            self.keep(queue).await?;
            told?;
        }
        Ok(())
    }

    /// Sends one recipient what waits, if its time has come. Fails only for what concerns others as well.
    async fn tell(&self, queue: &mut Queue, to: &str, people: &[Person]) -> Outcome {
        let now = OffsetDateTime::now_utc();
        let over = queue.expire(to, now, Instant::now());
        if over > 0 {
            tracing::error!(
                recipient = to,
                over,
                "notices are given up: they could not be sent in time"
            );
            self.metrics.count("given-up", over);
        }
        if !people
            .iter()
            .any(|person| person.active && person.email == to)
        {
            queue.forget(to);
            return Ok(());
        }
        let lines = queue.lines(to);
        if lines.is_empty() {
            return Ok(());
        }
        let notice = Notice {
            from: self.relay.from(),
            to,
            lines: &lines,
            portal: &self.site.portal_url(self.portal.address()),
            at: now,
        };
        let failed = |error: String| {
            Err(anyhow::anyhow!(error)).or_hint("the mail relay", "see [mail] and its log")
        };
        match self.relay.send(to, &notice.text()).await {
            Ok(taken) => {
                self.metrics.count("sent", 1);
                queue.done(to, &lines);
                // Before the end of the session, which the relay may draw out.
                let kept = self.keep(queue).await;
                taken.end().await;
                kept
            }
            Err(SendError::Refused(error)) => {
                let recipient = to;
                tracing::warn!(recipient, error, "the relay refuses a recipient of notices");
                self.metrics.count("refused", 1);
                queue.done(to, &lines);
                Ok(())
            }
            Err(SendError::Deferred(error)) => {
                let recipient = to;
                tracing::warn!(
                    recipient,
                    error,
                    "the relay puts a recipient of notices off"
                );
                self.metrics.count("failed", 1);
                queue.put_off(to, Instant::now());
                Ok(())
            }
            Err(SendError::Broken(error)) => {
                self.metrics.count("failed", 1);
                // If it is this recipient's doing, others come first the next time.
                queue.put_off(to, Instant::now());
                failed(error)
            }
            Err(SendError::Relay(error)) => {
                self.metrics.count("failed", 1);
                failed(error)
            }
        }
    }

    /// Puts what others have to know of new changes into the queue.
    async fn read_changes(&self, queue: &mut Queue, people: &[Person]) -> Outcome {
        let hint = "check registry.sqlite";
        let registry = &self.site.registry;
        loop {
            let newest = registry.newest_request_change().await;
            let newest = newest.or_hint("cannot read changes of requests", hint)?;
            if newest < queue.through() {
                let told = queue.through();
                tracing::warn!(
                    told,
                    newest,
                    "the registry has fewer changes than were told"
                );
                // An older database came back: what waits is of requests that it may not have.
                *queue = Queue::after(newest);
            }
            let changes = registry.request_changes(queue.through(), BATCH).await;
            let changes = changes.or_hint("cannot read changes of requests", hint)?;
            let mut record = None;
            for change in &changes {
                // Several changes of one request mostly follow each other.
                if record.as_ref().is_none_or(|(id, _)| id != &change.request) {
                    let found = registry.request(&change.request).await;
                    let found = found.or_hint("cannot read a request", hint)?;
                    record = Some((change.request.clone(), found));
                }
                let Some((id, found)) = &record else { continue };
                for (person, occasion) in recipients(change, &found.request, people) {
                    if !queue.add(&person.email, id, occasion, change.number, change.at) {
                        let recipient = &person.email;
                        tracing::error!(recipient, "a notice is given up: too many wait");
                        self.metrics.count("given-up", 1);
                    }
                }
            }
            let last = changes.last().map_or(newest, |change| change.number);
            if changes.len() < usize::try_from(BATCH).unwrap_or(usize::MAX) {
                queue.advance(last.max(newest));
                return Ok(());
            }
            queue.advance(last);
        }
    }

    fn path(&self) -> PathBuf {
        self.site.data.join("notices")
    }

    /// The queue as it was kept. At the first start with a relay nobody is told of what is over.
    async fn open(&self) -> Outcome<Queue> {
        let path = self.path();
        let registry = &self.site.registry;
        let newest = match tokio::fs::read(&path).await {
            Ok(text) => match std::str::from_utf8(&text).ok().and_then(Queue::parse) {
                Some(queue) => return Ok(queue),
                None => {
                    let file = path.display();
                    tracing::error!(
                        "{file} is no queue of notices: notices of the last 48 hours are sent again"
                    );
                    self.metrics.queue_lost.inc();
                    // Nobody knows what was told: a second mail is better than none, of what may still matter.
                    let since = OffsetDateTime::now_utc()
                        .saturating_sub(STALE.try_into().unwrap_or_default());
                    registry.newest_request_change_before(since).await
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                registry.newest_request_change().await
            }
            Err(error) => {
                let what = format!("cannot read {}", path.display());
                return Err(error).or_hint(what, "check the folder's rights and its disk");
            }
        };
        let newest = newest.or_hint("cannot read changes of requests", "check registry.sqlite")?;
        Ok(Queue::after(newest))
    }

    /// Writes the queue, if it changed.
    async fn keep(&self, queue: &mut Queue) -> Outcome {
        let path = self.path();
        let what = format!("cannot write {}", path.display());
        let hint = "make room on the disk";
        let Some(text) = queue.text().or_hint(&what, hint)? else {
            return Ok(());
        };
        let write = move || durable::write_atomic(&path, text.as_bytes(), 0o600);
        let written = tokio::task::spawn_blocking(write).await;
        let written = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        written.or_hint(what, hint)?;
        queue.kept();
        Ok(())
    }
}

/// Sends one mail that tells nothing, to see whether the relay takes it.
pub(crate) async fn send_test(relay: &Relay, to: &str) -> Outcome {
    let notice = Notice {
        from: relay.from(),
        to,
        lines: &[],
        portal: "",
        at: OffsetDateTime::now_utc(),
    };
    match relay.send(to, &notice.text()).await {
        Ok(taken) => {
            taken.end().await;
            Ok(())
        }
        Err(SendError::Refused(error)) => Err(Failure::new(
            anyhow::anyhow!("the relay does not take mail to {to}: {error}"),
            "give an address of which the relay knows",
        )),
        Err(SendError::Deferred(error) | SendError::Broken(error) | SendError::Relay(error)) => {
            Err(Failure::new(
                anyhow::anyhow!("the mail relay: {error}"),
                "compare [mail] with what the relay demands; its own log says more",
            ))
        }
    }
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
