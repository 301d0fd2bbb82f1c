//! Rows of a database, by the log.
//!
//! Whoever keeps rows that decide of something puts a hash of all of them, as they are once a transaction is committed, into
//! the last event of it ([`ROWS`]). A start compares: rows that were changed, added, removed or put back by somebody else do not
//! have the hash that the log has. Between an event and its commit a process may be killed: then the rows are those of the
//! event before.

use std::ops::ControlFlow;

use serde_json::Value;

use crate::{AuditError, AuditSink, Event, Logged};

/// The detail of an event with the hash.
pub const ROWS: &str = "rows_sha256";
/// The detail of an event that numbers the transaction of its database.
pub const TRANSACTION: &str = "transaction";
/// The action of the event by which a person lets the site go on with a log that lacks what was lost: what the databases say
/// counts from there on.
pub const LOSS: &str = "audit.accept-loss";

/// Hashes of rows that a log has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum LoggedRows {
    /// Nothing: it is of an earlier version, or was lost.
    #[default]
    Unknown,
    /// They have this hash, and nothing was under way.
    Settled(String),
    /// They have this hash; or the other one, where the newest transaction was not committed.
    Newest(String, Option<String>),
}

/// Result of comparing rows with a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RowsByLog {
    /// Those of the newest event, which says that nothing was under way.
    Settled,
    /// Right, as far as the log knows: it is to be said in the log which they are.
    Unsettled,
    /// Others; the log has this hash.
    Others(String),
}

impl LoggedRows {
    /// Reads backwards through the log of a sink, as far as it has to. Hashes begin with a `version`, which says of what they are:
    /// those of others say nothing. `is_settled` tells of an event that it was recorded while no transaction was under way.
    ///
    /// # Errors
    /// As [`AuditSink::look_back`].
    pub fn read(
        sink: &dyn AuditSink,
        version: &str,
        is_settled: &dyn Fn(&Event) -> bool,
    ) -> Result<Self, AuditError> {
        let (has, loss) = (format!("\"{ROWS}\":"), format!("\"action\":\"{LOSS}\""));
        let wanted = |text: &str| text.contains(&has) || text.contains(&loss);
        let (mut found, mut newest) = (Self::Unknown, None);
        sink.look_back(&wanted, &mut |logged| {
            if logged.is_loss() {
                return ControlFlow::Break(());
            }
            let event = &logged.event;
            let hash = event.details.get(ROWS).and_then(Value::as_str);
            let hash = hash.filter(|hash| logged.is_own && hash.starts_with(version));
            let Some(hash) = hash else {
                return ControlFlow::Continue(());
            };
            let number = event.details.get(TRANSACTION).cloned();
            match &mut found {
                Self::Unknown if is_settled(event) => {
                    found = Self::Settled(hash.to_owned());
                    ControlFlow::Break(())
                }
                Self::Unknown => {
                    found = Self::Newest(hash.to_owned(), None);
                    newest = number;
                    ControlFlow::Continue(())
                }
                // An earlier event of the same transaction says nothing of what was there before.
                Self::Newest(..) if !is_settled(event) && number.is_some() && number == newest => {
                    ControlFlow::Continue(())
                }
                Self::Newest(_, before) => {
                    *before = Some(hash.to_owned());
                    ControlFlow::Break(())
                }
                Self::Settled(_) => ControlFlow::Break(()),
            }
        })?;
        Ok(found)
    }

    /// Tells what rows with the hash `found` are by the log.
    #[must_use]
    pub fn compare(self, found: &str) -> RowsByLog {
        match self {
            Self::Unknown => RowsByLog::Unsettled,
            Self::Settled(hash) if hash == found => RowsByLog::Settled,
            Self::Newest(hash, before) if hash == found || before.as_deref() == Some(found) => {
                RowsByLog::Unsettled
            }
            Self::Settled(hash) | Self::Newest(hash, _) => RowsByLog::Others(hash),
        }
    }
}

impl Event {
    /// Tells whether it says that a part of the log was lost, and that a person let the site go on.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        self.role == "site" && self.action == LOSS
    }
}

impl Logged {
    /// As [`Event::is_loss`].
    #[must_use]
    pub fn is_loss(&self) -> bool {
        self.event.is_loss()
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;
    use crate::{Actor, MemorySink, Outcome};

    fn event(action: &str, rows: &str, transaction: Option<u64>) -> Event {
        let now = OffsetDateTime::UNIX_EPOCH;
        let event = Event::new(now, Actor::service("x"), action, "x", Outcome::Ok);
        let event = event.with_detail(ROWS, rows);
        match transaction {
            Some(number) => event.with_detail(TRANSACTION, number),
            None => event,
        }
    }

    fn read(events: Vec<Event>) -> LoggedRows {
        let sink = MemorySink::default();
        sink.record_all(events).unwrap();
        LoggedRows::read(&sink, "", &|event| event.action == "x.open").unwrap()
    }

    fn newest(newest: &str, before: Option<&str>) -> LoggedRows {
        LoggedRows::Newest(newest.to_owned(), before.map(str::to_owned))
    }

    fn settled(hash: &str) -> LoggedRows {
        LoggedRows::Settled(hash.to_owned())
    }

    #[test]
    fn newest_transaction_may_not_be_committed_and_others_are() {
        let other = event("x.open", "0", None);
        assert_eq!(read(vec![]), LoggedRows::Unknown);
        assert_eq!(read(vec![other.clone()]), settled("0"));
        let one = event("x.add", "1", Some(1));
        assert_eq!(
            read(vec![other.clone(), one.clone()]),
            newest("1", Some("0"))
        );
        let again = event("x.add", "2", Some(1));
        let both = vec![other.clone(), one.clone(), again.clone()];
        assert_eq!(read(both), newest("2", Some("0")));
        let unnumbered = vec![event("x.add", "1", None), event("x.add", "2", None)];
        assert_eq!(read(unnumbered), newest("2", Some("1")));
        // After a failed transaction its number is used again.
        let failed = vec![one.clone(), event("x.open", "0", Some(0)), again];
        assert_eq!(read(failed), newest("2", Some("0")));
        assert_eq!(read(vec![one, other]), settled("0"));
    }

    #[test]
    fn hash_of_another_version_says_nothing() {
        let sink = MemorySink::default();
        let events = vec![event("x.add", "1:a", None), event("x.add", "2:b", None)];
        sink.record_all(events).unwrap();
        let read = |version| LoggedRows::read(&sink, version, &|_| false).unwrap();
        assert_eq!(read("1:"), newest("1:a", None));
        assert_eq!(read("2:"), newest("2:b", None));
        assert_eq!(read("3:"), LoggedRows::Unknown);
    }

    #[test]
    fn rows_are_those_of_the_newest_event_or_of_the_one_before_if_it_was_under_way() {
        let others = |hash: &str| RowsByLog::Others(hash.to_owned());
        assert_eq!(LoggedRows::Unknown.compare("1"), RowsByLog::Unsettled);
        assert_eq!(settled("1").compare("1"), RowsByLog::Settled);
        assert_eq!(settled("1").compare("0"), others("1"));
        for found in ["1", "0"] {
            assert_eq!(newest("1", Some("0")).compare(found), RowsByLog::Unsettled);
        }
        assert_eq!(newest("1", Some("0")).compare("2"), others("1"));
        assert_eq!(newest("1", None).compare("0"), others("1"));
    }

    #[test]
    fn after_a_loss_nothing_is_known_and_only_the_site_tells_of_one() {
        let mut loss = event(LOSS, "9", None);
        loss.details.clear();
        let one = event("x.add", "1", None);
        let of_another = vec![one.clone(), loss.clone()];
        assert_eq!(read(of_another), newest("1", None));
        "site".clone_into(&mut loss.role);
        assert_eq!(read(vec![one.clone(), loss.clone()]), LoggedRows::Unknown);
        assert_eq!(read(vec![one.clone(), loss, one]), newest("1", None));
    }
}
