//! From changes to mails that the relay has taken.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use commandline::{Failure, OrHint as _, Outcome};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::message::Notice;
use crate::metrics::Metrics;
use crate::queue::{Queue, STALE, pause};
use crate::relay::{Relay, SendError};
use crate::source::Source;

/// Interval between looks for changes. Each recipient gets one mail for all changes of an interval.
const EVERY: Duration = Duration::from_secs(10);
/// Changes that are read at once; the next ones follow without a pause.
const BATCH: u32 = 500;
/// Longest pause after the relay failed.
const PAUSE: Duration = Duration::from_secs(60);

/// Tells people of changes until it is stopped.
pub struct Notices<S> {
    pub source: S,
    pub relay: Relay,
    /// Address of the portal, with a slash at its end.
    pub portal: String,
    pub metrics: Metrics,
    /// File of the queue.
    pub file: PathBuf,
}

impl<S: Source> Notices<S> {
    /// Runs until `stop`.
    ///
    /// # Errors
    /// None; what fails is tried again.
    pub async fn run(self, stop: CancellationToken) -> Outcome {
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
        let people = self.source.people().await?;
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
    async fn tell(&self, queue: &mut Queue, to: &str, people: &S::People) -> Outcome {
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
        if !self.source.is_recipient(people, to) {
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
            portal: &self.portal,
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
    async fn read_changes(&self, queue: &mut Queue, people: &S::People) -> Outcome {
        loop {
            let newest = self.source.newest().await?;
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
            let changes = self.source.changes(queue.through(), BATCH, people).await?;
            for change in &changes {
                for (recipient, occasion) in &change.recipients {
                    if !queue.add(
                        recipient,
                        &change.request,
                        *occasion,
                        change.number,
                        change.at,
                    ) {
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

    /// Reads the queue. At the first start with a relay, earlier changes are not sent.
    async fn open(&self) -> Outcome<Queue> {
        let path = &self.file;
        let newest = match tokio::fs::read(path).await {
            Ok(text) => match std::str::from_utf8(&text).ok().and_then(Queue::parse) {
                Some(queue) => return Ok(queue),
                None => {
                    let file = path.display();
                    tracing::error!(
                        "{file} is not a queue of notices: notices of the last 48 hours are sent again"
                    );
                    self.metrics.queue_lost.inc();
                    // The record of sent notices is lost. A second mail is better than none, for changes that may still matter.
                    let since = OffsetDateTime::now_utc()
                        .saturating_sub(STALE.try_into().unwrap_or_default());
                    self.source.newest_before(since).await?
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.source.newest().await?
            }
            Err(error) => {
                let what = format!("cannot read {}", path.display());
                return Err(error).or_hint(what, "check the folder's rights and its disk");
            }
        };
        Ok(Queue::after(newest))
    }

    /// Writes the queue, if it changed.
    async fn keep(&self, queue: &mut Queue) -> Outcome {
        let path = self.file.clone();
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
pub async fn send_test(relay: &Relay, to: &str) -> Outcome {
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
