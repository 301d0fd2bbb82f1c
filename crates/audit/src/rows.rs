//! What the log says of the rows of a database.
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

/// What a log says of rows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum LoggedRows {
    /// Nothing: it is of an earlier version, or was lost.
    #[default]
    Unknown,
    /// They have this hash; or the other one, where the newest transaction was not committed.
    Hash(String, Option<String>),
}

impl LoggedRows {
    /// Reads backwards through the log of a sink, as far as it has to. `is_settled` tells of an event that it was recorded
    /// while no transaction was under way.
    ///
    /// # Errors
    /// As [`AuditSink::look_back`].
    pub fn read(
        sink: &dyn AuditSink,
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
            let Some(hash) = hash.filter(|_| logged.is_own) else {
                return ControlFlow::Continue(());
            };
            let number = event.details.get(TRANSACTION).cloned();
            match &mut found {
                Self::Unknown => {
                    found = Self::Hash(hash.to_owned(), None);
                    newest = number;
                    match is_settled(event) {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                }
                // An earlier event of the same transaction says nothing of what was there before.
                Self::Hash(..) if !is_settled(event) && number.is_some() && number == newest => {
                    ControlFlow::Continue(())
                }
                Self::Hash(_, before) => {
                    *before = Some(hash.to_owned());
                    ControlFlow::Break(())
                }
            }
        })?;
        Ok(found)
    }
}

impl Logged {
    /// Tells whether it says that a part of the log was lost, and that a person let the site go on.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        self.event.role == "site" && self.event.action == LOSS
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
        LoggedRows::read(&sink, &|event| event.action == "x.open").unwrap()
    }

    fn hash(newest: &str, before: Option<&str>) -> LoggedRows {
        LoggedRows::Hash(newest.to_owned(), before.map(str::to_owned))
    }

    #[test]
    fn newest_transaction_may_not_be_committed_and_others_are() {
        let other = event("x.open", "0", None);
        assert_eq!(read(vec![]), LoggedRows::Unknown);
        assert_eq!(read(vec![other.clone()]), hash("0", None));
        let one = event("x.add", "1", Some(1));
        assert_eq!(read(vec![other.clone(), one.clone()]), hash("1", Some("0")));
        let again = event("x.add", "2", Some(1));
        let both = vec![other.clone(), one.clone(), again.clone()];
        assert_eq!(read(both), hash("2", Some("0")));
        let unnumbered = vec![event("x.add", "1", None), event("x.add", "2", None)];
        assert_eq!(read(unnumbered), hash("2", Some("1")));
        // After a failed transaction its number is used again.
        let failed = vec![one.clone(), event("x.open", "0", Some(0)), again];
        assert_eq!(read(failed), hash("2", Some("0")));
        assert_eq!(read(vec![one, other]), hash("0", None));
    }

    #[test]
    fn after_a_loss_nothing_is_known_and_only_the_site_tells_of_one() {
        let mut loss = event(LOSS, "9", None);
        loss.details.clear();
        let one = event("x.add", "1", None);
        let of_another = vec![one.clone(), loss.clone()];
        assert_eq!(read(of_another), hash("1", None));
        "site".clone_into(&mut loss.role);
        assert_eq!(read(vec![one.clone(), loss.clone()]), LoggedRows::Unknown);
        assert_eq!(read(vec![one.clone(), loss, one]), hash("1", None));
    }
}
