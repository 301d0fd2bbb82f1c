//! The journal of a tunnel daemon on its way into the central log.
//!
//! The daemon sends its events in order and repeats them until the site has them. So nothing that one event says may fail the
//! request: an event that the log does not take becomes a `journal.refused` event with its number, its hash and the reason.

use std::path::Path;

use audit::{Actor, ActorKind, Event, JOURNAL_REFUSED, RefusedRecord};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::request::{Answer, MAX_MESSAGE, Request};
use crate::failure::{Failure, OrHint as _, Outcome};
use crate::parts::Site;
use crate::parts::centre_parts::CentreParts;

/// Role of the daemon's events in the central log.
pub const GATEWAY_ROLE: &str = "gateway";
/// Numbers of records: beyond, JSON's numbers are not exact.
const MAX_SEQ: u64 = 1 << 53;

/// Records a tunnel daemon's events, each with its number there, so that one that comes twice is recognised.
///
/// # Errors
/// For the operator of the daemon, and never because of what an event says.
pub fn take_over(log: &dyn audit::AuditSink, first: u64, events: &[Value]) -> Result<u64, String> {
    if events.is_empty() {
        return Err("the request has no events".to_owned());
    }
    let end = first.checked_add(events.len() as u64);
    if end.is_none_or(|end| end > MAX_SEQ) {
        return Err(format!("event number {first} is too large"));
    }
    let now = OffsetDateTime::now_utc();
    let numbered = (first..).zip(events);
    let events = numbered.map(|(number, event)| recordable(number, event, now));
    let recorded = log.record_all(events.collect());
    let last = recorded.map_err(|error| error.to_string())?.pop();
    last.map(|last| last.leaf_index)
        .ok_or_else(|| "nothing was recorded".to_owned())
}

/// The event with its number, or the one that the log has in its place.
fn recordable(number: u64, value: &Value, now: OffsetDateTime) -> Event {
    let event = of_a_tunnel(value).and_then(|event| {
        let event = event.with_detail("journal_seq", number);
        let canonical = event.to_canonical();
        canonical.map_err(|error| error_report::Report(&error).to_string())?;
        Ok(event)
    });
    event.unwrap_or_else(|why| {
        let record = RefusedRecord::new(number, value.to_string().as_bytes(), why);
        record.into_event(now, Actor::service(GATEWAY_ROLE), "tunnel/journal")
    })
}

/// Reads an event that a tunnel daemon may have recorded: any process that reaches the socket can claim to be a daemon, but not
/// to be a person, and its text stays one line.
fn of_a_tunnel(value: &Value) -> Result<Event, String> {
    let text = value.to_string();
    let event: Event = serde_json::from_str(&text).map_err(|_| "not an event")?;
    if event.v != audit::event::EVENT_VERSION {
        return Err(format!("event version {} is not known", event.v));
    }
    let word = |c: char| c.is_ascii_lowercase() || c == '-';
    let name = event.action.strip_prefix("tunnel.");
    let own = name.is_some_and(|name| !name.is_empty() && name.chars().all(word));
    if !own && event.action != JOURNAL_REFUSED {
        return Err("action is not one of a tunnel".to_owned());
    }
    if event.actor.kind == ActorKind::User {
        return Err("actor is a person".to_owned());
    }
    // Daemons of earlier versions wrote names from certificates as they were.
    if event.has_invisible_text() {
        return Err("text has a control or format character".to_owned());
    }
    Ok(event)
}

/// Carries out [`Request::Journal`].
pub(super) async fn record(parts: &CentreParts, first: u64, events: Vec<Value>) -> Outcome<Value> {
    let log = parts.audit.role(GATEWAY_ROLE);
    let log = log.or_hint("cannot open the gateway's journal", "check the disk")?;
    let taken = parts
        .audit_pool
        .run(move || take_over(&log, first, &events))
        .await;
    let taken = taken.or_hint("cannot record the events", "see the log")?;
    let failed = |error| Failure::new(anyhow::anyhow!("{error}"), "see the log of the site");
    let moved = parts.centre.intake();
    let moved = moved.journal_moved(centre::GATEWAY_JOURNAL, OffsetDateTime::now_utc());
    if let Err(error) = moved.await {
        // The events are in the log: that the time is not noted must not have them sent again.
        tracing::error!(error = %error_report::Report(&error), "the gateway's journal moved, which is not noted");
    }
    Ok(json!({ "leaf_index": taken.map_err(failed)? }))
}

/// Events as [`take_over`] takes them.
///
/// # Errors
/// For the operator of the daemon.
pub fn as_values(events: Vec<Event>) -> Result<Vec<Value>, String> {
    let values = events.into_iter().map(serde_json::to_value);
    values
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// Sends a tunnel daemon's events to the running site and returns the place of the last in its log. Waits
/// for the answer.
///
/// # Errors
/// For the operator of the daemon.
pub fn send_journal(data: &Path, first: u64, events: Vec<Event>) -> Result<u64, String> {
    use std::io::{Read as _, Write as _};
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
    let socket = Site::control_socket(data);
    let shown = socket.display();
    let events = as_values(events)?;
    let mut line = serde_json::to_vec(&Request::Journal { first, events })
        .map_err(|error| error.to_string())?;
    line.push(b'\n');
    let talk = || -> std::io::Result<Vec<u8>> {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&line)?;
        let mut answer = Vec::new();
        stream.take(MAX_MESSAGE).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(|error| format!("{shown}: {error}"))?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Done(value)) => {
            let place = value.get("leaf_index").and_then(Value::as_u64);
            place.ok_or_else(|| format!("{shown}: an answer without a place"))
        }
        Ok(Answer::Failed { message, .. }) => Err(format!("{shown}: {message}")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit::{MAX_EVENT_BYTES, MemorySink, Outcome};

    fn event(peer: &str) -> Event {
        let actor = Actor::device(peer);
        let at = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        Event::new(at, actor, "tunnel.up", "tunnel/cameras", Outcome::Ok)
    }

    fn taken(values: &[Value]) -> Vec<Event> {
        let sink = MemorySink::default();
        take_over(&sink, 7, values).unwrap();
        sink.events()
    }

    #[test]
    fn event_that_the_log_does_not_take_is_marked_and_the_others_are_taken() {
        let good = serde_json::to_value(event("CN=a")).unwrap();
        let set = |path: &str, value: Value| {
            let mut changed = good.clone();
            *changed.pointer_mut(path).unwrap() = value;
            changed
        };
        let text = "text has a control or format character";
        let cases = [
            (set("/actor/id", "CN=a\u{85}b".into()), text),
            (set("/actor/id", "CN=a\nERROR forged".into()), text),
            (set("/resource", "tunnel/\u{202e}".into()), text),
            (
                set("/action", "tunnel.up\n".into()),
                "action is not one of a tunnel",
            ),
            (
                set("/action", "tunnel.".into()),
                "action is not one of a tunnel",
            ),
            (
                set("/action", "evidence.view".into()),
                "action is not one of a tunnel",
            ),
            (set("/actor/kind", "user".into()), "actor is a person"),
            (set("/v", 2.into()), "event version 2 is not known"),
            (set("/at", "yesterday".into()), "not an event"),
            (
                set("/resource", "x".repeat(MAX_EVENT_BYTES).into()),
                "event has",
            ),
            (Value::Null, "not an event"),
            (json!({ "a": [1, "\u{85}"] }), "not an event"),
        ];
        for (bad, why) in cases {
            let events = taken(&[good.clone(), bad.clone(), good.clone()]);
            let numbers: Vec<_> = events
                .iter()
                .map(|e| e.details["journal_seq"].clone())
                .collect();
            assert_eq!(numbers, [7, 8, 9], "{bad}");
            let actions: Vec<_> = events.iter().map(|e| e.action.as_str()).collect();
            assert_eq!(
                actions,
                ["tunnel.up", "journal.refused", "tunnel.up"],
                "{bad}"
            );
            let reason = events[1].reason.as_deref().unwrap();
            assert!(reason.contains(why), "{bad}: {reason}");
            assert!(!events[1].has_invisible_text() && events[1].to_canonical().is_ok());
        }
    }

    #[test]
    fn every_event_that_a_daemon_can_write_is_taken() {
        let characters = ('\0'..='\u{3000}').chain('\u{e0000}'..='\u{e0100}');
        let hostile: String = characters.collect();
        let at = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        for text in [hostile.as_str(), &hostile.repeat(9), "\"\\", ""] {
            for actor in [
                Actor::device(text),
                Actor::unknown(text),
                Actor::service(text),
            ] {
                let event = Event::new(at, actor, "tunnel.child-refuse", text, Outcome::Deny);
                let event = event.with_reason(text).with_detail("remote", text);
                let event = event.fitted(audit::MAX_SHIPPED_BYTES);
                let events = taken(&[serde_json::to_value(event).unwrap()]);
                assert_eq!(events[0].action, "tunnel.child-refuse");
            }
        }
    }

    #[test]
    fn daemon_s_own_marked_records_are_taken() {
        let marked = RefusedRecord::new(3, b"x", "not a leaf");
        let marked = marked.into_event(OffsetDateTime::UNIX_EPOCH, Actor::service("gateway"), "r");
        let events = taken(&[serde_json::to_value(marked).unwrap()]);
        assert_eq!(events[0].reason.as_deref(), Some("not a leaf"));
    }

    #[test]
    fn request_without_events_or_with_impossible_numbers_is_refused() {
        let sink = MemorySink::default();
        let good = serde_json::to_value(event("CN=a")).unwrap();
        assert!(take_over(&sink, 1, &[]).is_err());
        for first in [u64::MAX, MAX_SEQ, MAX_SEQ - 1] {
            let two = [good.clone(), good.clone()];
            assert!(take_over(&sink, first, &two).is_err(), "{first}");
        }
        assert!(take_over(&sink, MAX_SEQ - 2, &[good.clone(), good]).is_ok());
    }
}
