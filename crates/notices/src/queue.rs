//! Notices that wait for delivery, over restarts.
//!
//! The queue is a file: the number of the newest change that was read, and for each address what waits for it, with the attempts so
//! far. So the mailbox of one recipient does not delay the notices of others, and a restart neither loses nor repeats a notice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::message::{Line, Occasion};

/// Age from which a change is not told any more: people have looked into the portal, or never will.
pub(crate) const STALE: Duration = Duration::from_hours(48);
/// Time for which a change must have been too old without a break before it is given up. Until then it only waits: a clock that is
/// wrong for a while makes nothing old.
const CERTAIN: Duration = Duration::from_hours(1);
/// Pause after the first attempt that failed; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause between attempts for one recipient.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// Addresses that may wait. Our choice: more people do not share one queue of requests.
const ADDRESSES: usize = 200;
/// Requests that may wait for one address: as many as may be open.
const REQUESTS: usize = 2000;
/// Requests in one mail.
const LINES: usize = 100;

/// Waiting notices by recipient.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Queue {
    /// Number of the newest change that was read.
    through: i64,
    /// By address.
    waiting: BTreeMap<String, Mailbox>,
    #[serde(skip)]
    changed: bool,
}

/// What waits for one address.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Mailbox {
    /// Attempts since a mail was taken last.
    attempts: u32,
    /// The newest change of each request, by the request's number.
    changes: BTreeMap<String, Waiting>,
    #[serde(skip)]
    not_before: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Waiting {
    number: i64,
    /// When the change was made, in seconds since 1970.
    at: i64,
    occasion: Occasion,
    /// When this process saw it first.
    #[serde(skip)]
    seen: Option<Instant>,
    /// Since when it has been too old.
    #[serde(skip)]
    old: Option<Instant>,
}

impl Waiting {
    /// Looks at the age of a change; false when it is to be given up.
    fn look(&mut self, now: OffsetDateTime, tick: Instant) -> bool {
        let seen = *self.seen.get_or_insert(tick);
        if now.unix_timestamp().saturating_sub(self.at) <= STALE.as_secs().cast_signed() {
            self.old = None;
            // Of a change from the future, after a clock was set back, this clock alone knows the age.
            return tick.saturating_duration_since(seen) <= STALE;
        }
        let old = *self.old.get_or_insert(tick);
        tick.saturating_duration_since(old) < CERTAIN
    }
}

/// Pause after so many attempts failed in a row.
pub(crate) fn pause(attempts: u32, longest: Duration) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(longest)
}

impl Queue {
    /// An empty queue of which everything up to the change of this number was read.
    pub(crate) fn after(through: i64) -> Self {
        Self {
            through,
            changed: true,
            ..Self::default()
        }
    }

    /// The queue of a file; of earlier versions' too, which had the number alone. None for what is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let queue = match serde_json::from_str::<Self>(text) {
            Ok(queue) => queue,
            Err(_) => Self {
                through: serde_json::from_str(text).ok()?,
                ..Self::default()
            },
        };
        let mut changes = queue.waiting.values().flat_map(|m| m.changes.values());
        let possible = changes.all(|change| (1..=queue.through).contains(&change.number));
        (queue.through >= 0 && possible).then_some(queue)
    }

    /// The file's text, if the queue changed since the last [`Queue::kept`].
    pub(crate) fn text(&self) -> serde_json::Result<Option<String>> {
        self.changed
            .then(|| serde_json::to_string(self).map(|text| text + "\n"))
            .transpose()
    }

    /// Notes that the file has what the queue has.
    pub(crate) fn kept(&mut self) {
        self.changed = false;
    }

    pub(crate) fn through(&self) -> i64 {
        self.through
    }

    /// Notes that changes up to this number were read.
    pub(crate) fn advance(&mut self, through: i64) {
        self.changed |= through != self.through;
        self.through = through;
    }

    /// Has a change of `request` wait for `address`, in the place of an older one. False: something was dropped for it, or it
    /// itself, as more waits than may.
    pub(crate) fn add(
        &mut self,
        address: &str,
        request: &str,
        occasion: Occasion,
        number: i64,
        at: OffsetDateTime,
    ) -> bool {
        if self.waiting.len() >= ADDRESSES && !self.waiting.contains_key(address) {
            return false;
        }
        self.changed = true;
        let mailbox = self.waiting.entry(address.to_owned()).or_default();
        let waiting = Waiting {
            number,
            at: at.unix_timestamp(),
            occasion,
            seen: None,
            old: None,
        };
        mailbox.changes.insert(request.to_owned(), waiting);
        if mailbox.changes.len() <= REQUESTS {
            return true;
        }
        let oldest = mailbox.changes.iter().min_by_key(|(_, w)| w.number);
        if let Some(oldest) = oldest.map(|(request, _)| request.clone()) {
            mailbox.changes.remove(&oldest);
        }
        false
    }

    /// Addresses whose turn it is. Those that failed most often come last: they may take time.
    pub(crate) fn due(&self, tick: Instant) -> Vec<String> {
        let due = |mailbox: &Mailbox| mailbox.not_before.is_none_or(|until| until <= tick);
        let mut addresses: Vec<_> = self.waiting.iter().filter(|(_, m)| due(m)).collect();
        addresses.sort_by_key(|(_, mailbox)| {
            let oldest = mailbox.changes.values().map(|change| change.number).min();
            (mailbox.attempts, oldest)
        });
        addresses
            .into_iter()
            .map(|(address, _)| address.clone())
            .collect()
    }

    /// Gives up what is certainly too old, and returns how much that is.
    pub(crate) fn expire(&mut self, address: &str, now: OffsetDateTime, tick: Instant) -> usize {
        let Some(mailbox) = self.waiting.get_mut(address) else {
            return 0;
        };
        let before = mailbox.changes.len();
        mailbox.changes.retain(|_, change| change.look(now, tick));
        let gone = before.saturating_sub(mailbox.changes.len());
        if gone > 0 {
            self.tidy(address);
        }
        gone
    }

    /// Lines of the next mail, and the newest changes' numbers in them. What is too old, though not certainly, stays out of it.
    pub(crate) fn lines(&self, address: &str) -> Vec<Line> {
        let changes = self.waiting.get(address).map(|mailbox| &mailbox.changes);
        let mut lines: Vec<Line> = changes
            .into_iter()
            .flatten()
            .filter(|(_, change)| change.old.is_none())
            .map(|(request, change)| Line {
                request: request.clone(),
                occasion: change.occasion,
                number: change.number,
            })
            .collect();
        lines.sort_by_key(|line| line.number);
        lines.truncate(LINES);
        lines
    }

    /// Notes that these lines need not be told any more: they were, or the relay refuses them.
    pub(crate) fn done(&mut self, address: &str, lines: &[Line]) {
        if let Some(mailbox) = self.waiting.get_mut(address) {
            for line in lines {
                mailbox.changes.remove(&line.request);
            }
            (mailbox.attempts, mailbox.not_before) = (0, None);
        }
        self.tidy(address);
    }

    /// Notes that an attempt failed: the next one comes later.
    pub(crate) fn put_off(&mut self, address: &str, tick: Instant) {
        if let Some(mailbox) = self.waiting.get_mut(address) {
            mailbox.attempts = mailbox.attempts.saturating_add(1);
            mailbox.not_before = Some(tick + pause(mailbox.attempts, LONGEST_PAUSE));
            self.changed = true;
        }
    }

    /// Drops the notices for an address that has no recipient any more.
    pub(crate) fn forget(&mut self, address: &str) {
        self.waiting.remove(address);
        self.changed = true;
    }

    fn tidy(&mut self, address: &str) {
        self.changed = true;
        let empty = |mailbox: &Mailbox| mailbox.changes.is_empty();
        if self.waiting.get(address).is_some_and(empty) {
            self.waiting.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn requests(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.request.as_str()).collect()
    }

    fn told(queue: &mut Queue, address: &str, now: OffsetDateTime, tick: Instant) -> Vec<String> {
        queue.expire(address, now, tick);
        let lines = queue.lines(address);
        requests(&lines).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn fresh_change_is_told_beside_an_old_one() {
        let (now, tick) = (OffsetDateTime::now_utc(), Instant::now());
        let mut queue = Queue::after(0);
        queue.add("a@b", "old", Occasion::Waits, 1, now - 49 * 60 * MINUTE);
        queue.add("a@b", "fresh", Occasion::Waits, 2, now);
        assert_eq!(told(&mut queue, "a@b", now, tick), ["fresh"]);
        let lines = queue.lines("a@b");
        queue.done("a@b", &lines);
        assert_eq!(queue.expire("a@b", now, tick + 59 * MINUTE), 0);
        assert_eq!(queue.expire("a@b", now, tick + 61 * MINUTE), 1);
        assert!(queue.due(tick).is_empty());
    }

    #[test]
    fn change_outlives_a_clock_that_is_wrong_for_a_while() {
        let (now, tick) = (OffsetDateTime::now_utc(), Instant::now());
        let mut queue = Queue::after(0);
        queue.add("a@b", "one", Occasion::Waits, 1, now);
        let nobody: [&str; 0] = [];
        let wrong = now + 100 * 24 * 60 * MINUTE;
        assert_eq!(told(&mut queue, "a@b", wrong, tick), nobody);
        assert_eq!(told(&mut queue, "a@b", wrong, tick + 30 * MINUTE), nobody);
        assert_eq!(told(&mut queue, "a@b", now, tick + 31 * MINUTE), ["one"]);
        assert_eq!(told(&mut queue, "a@b", wrong, tick + 70 * MINUTE), nobody);
        assert_eq!(told(&mut queue, "a@b", now, tick + 71 * MINUTE), ["one"]);
        // Set back for good: the change has a time that never comes, and still does not wait for ever.
        let back = now - 1000 * 24 * 60 * MINUTE;
        assert_eq!(queue.expire("a@b", back, tick + 47 * 60 * MINUTE), 0);
        assert_eq!(queue.expire("a@b", back, tick + 49 * 60 * MINUTE), 1);
    }

    #[test]
    fn recipient_that_is_put_off_waits_alone_also_after_a_restart() {
        let (now, tick) = (OffsetDateTime::now_utc(), Instant::now());
        let mut queue = Queue::after(2);
        queue.add("a@b", "one", Occasion::Waits, 1, now);
        queue.add("c@d", "one", Occasion::Waits, 1, now);
        queue.put_off("a@b", tick);
        assert_eq!(queue.due(tick), ["c@d"]);
        let lines = queue.lines("c@d");
        queue.done("c@d", &lines);
        queue.add("c@d", "two", Occasion::Waits, 2, now);
        assert_eq!(queue.due(tick), ["c@d"]);
        assert_eq!(queue.due(tick + MINUTE), ["c@d", "a@b"]);
        let mut queue = Queue::parse(&queue.text().unwrap().unwrap()).unwrap();
        assert!(queue.text().unwrap().is_none());
        assert_eq!(queue.due(tick), ["c@d", "a@b"]);
        // The second failure in a row, with the longer pause, though the first was before the restart.
        queue.put_off("a@b", tick);
        assert_eq!(queue.due(tick + Duration::from_secs(8)), ["c@d"]);
        assert_eq!(pause(1, MINUTE), FIRST_PAUSE);
        assert_eq!(pause(40, MINUTE), MINUTE);
        assert_eq!(pause(u32::MAX, LONGEST_PAUSE), LONGEST_PAUSE);
    }

    #[test]
    fn changes_of_one_request_are_one_line_and_no_mail_has_too_many() {
        let now = OffsetDateTime::now_utc();
        let mut queue = Queue::after(0);
        for number in 1..=500 {
            let added = queue.add("a@b", "one", Occasion::Waits, number, now);
            assert!(added);
        }
        assert_eq!(requests(&queue.lines("a@b")), ["one"]);
        for number in 501..=2499 {
            let request = format!("r{number}");
            assert!(queue.add("a@b", &request, Occasion::Returned, number, now));
        }
        // The oldest gives way.
        assert!(!queue.add("a@b", "last", Occasion::Returned, 2500, now));
        let lines = queue.lines("a@b");
        assert_eq!((lines.len(), requests(&lines)[0]), (LINES, "r501"));
        queue.done("a@b", &lines);
        assert_eq!(requests(&queue.lines("a@b"))[0], "r601");
    }

    #[test]
    fn file_that_is_no_queue_is_noticed() {
        for wrong in [
            "",
            "garbage",
            "-5",
            "1 2",
            "99999999999999999999999",
            "1.5",
            "{}",
            r#"{"through":-1,"waiting":{}}"#,
            r#"{"through":1,"waiting":{},"more":1}"#,
            r#"{"through":1,"waiting":{"a@b":{"attempts":0,"changes":{"r":{"number":2,"at":0,"occasion":"waits"}}}}}"#,
            r#"{"through":1,"waiting":{"a@b":{"attempts":-1,"changes":{}}}}"#,
        ] {
            assert_eq!(Queue::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(Queue::parse("17\n").unwrap().through(), 17);
        assert_eq!(Queue::parse("0").unwrap().through(), 0);
    }
}
