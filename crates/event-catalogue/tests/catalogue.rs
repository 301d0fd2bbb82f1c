//! The catalogue against events that earlier versions recorded, and its page in the documentation.
#![expect(clippy::unwrap_used, reason = "tests panic with a plain message")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use audit::{Actor, Event, Outcome};
use event_catalogue::camera::Started;
use event_catalogue::context::{Block, Custody, Origin};
use event_catalogue::detail::Kind;
use event_catalogue::evidence::{Received, Reviewed};
use event_catalogue::request::{Step, Stepped};
use event_catalogue::{Details as _, Entry, Field, Recorded as _, Subject, entries, entry_of};
use time::macros::datetime;

/// Events in canonical JSON, one a line: tests of the version before the catalogue recorded them.
const RECORDED: &str = include_str!("recorded.jsonl");
/// Events that those tests did not record, written by that version's rules.
const WRITTEN: &str = include_str!("written.jsonl");

fn recorded() -> impl Iterator<Item = (&'static str, Event)> {
    let lines = RECORDED.lines().chain(WRITTEN.lines());
    lines.map(|line| (line, Event::from_canonical(line.as_bytes()).unwrap()))
}

#[test]
fn recorded_events_are_rendered_to_the_same_bytes() {
    let mut count = 0;
    for (line, event) in recorded() {
        let entry = entry_of(&event).unwrap_or_else(|| panic!("no entry for {line}"));
        let rewritten = entry
            .rewritten(&event)
            .unwrap_or_else(|| panic!("unreadable: {line}"));
        let bytes = rewritten.to_canonical().unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), line);
        assert!(entry.describes(&event), "{line}");
        count += 1;
    }
    assert!(count > 200, "{count} events");
}

#[test]
fn every_action_has_a_recorded_event() {
    let recorded: BTreeSet<String> = recorded().map(|(_, event)| event.action).collect();
    let missing: BTreeSet<&str> = entries()
        .map(|entry| entry.action)
        .filter(|action| !recorded.contains(*action))
        .collect();
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn field_outside_of_the_catalogue_is_noticed() {
    for (line, event) in recorded() {
        let entry = entry_of(&event).unwrap();
        let more = event.clone().with_detail("plate", "unexpected");
        assert!(!entry.describes(&more), "{line}");
        let elsewhere = Event {
            resource: "elsewhere".to_owned(),
            ..event
        };
        assert!(!entry.describes(&elsewhere), "{line}");
    }
}

#[test]
fn missing_or_mistyped_field_gives_no_event() {
    let at = datetime!(2026-11-28 10:00 UTC);
    let started = Started {
        by: "root".to_owned(),
        version: "1".to_owned(),
        settings_sha256: "00".to_owned(),
    };
    let event = started
        .clone()
        .into_event(at, Actor::device("c"), "camera/c");
    assert_eq!(Started::from_event(&event), Some(started));
    let mut missing = event.clone();
    missing.details.remove("version");
    assert_eq!(Started::from_event(&missing), None);
    assert_eq!(
        Started::from_event(&event.clone().with_detail("by", 7)),
        None
    );
    let mut other = event;
    "camera.stop".clone_into(&mut other.action);
    assert_eq!(Started::from_event(&other), None);
}

#[test]
fn mistyped_optional_field_counts_as_missing() {
    let at = datetime!(2026-11-28 10:00 UTC);
    let event = Event::new(
        at,
        Actor::device("c"),
        Received::ACTION,
        "block/1",
        Outcome::Ok,
    )
    .with_detail("size", "large")
    .with_detail("custody_count", 1_u64);
    let block = Block::of(&event).unwrap();
    assert_eq!((block.size, block.received_at), (None, None));
    assert_eq!(Custody::of(&event).unwrap().count, Some(1));
    assert_eq!(Origin::of(&event), Some(Origin { address: None }));
}

#[test]
fn family_reads_its_own_actions_only() {
    let at = datetime!(2026-11-28 10:00 UTC);
    let actor = || Actor::user("u1", "U. Ser");
    for step in Step::ALL {
        assert_eq!(Step::of_action(step.action()), Some(*step));
        let event = Event::new(at, actor(), step.action(), "request/1", Outcome::Ok);
        assert!(Stepped::is(&event) && Stepped::from_event(&event).is_none());
        let read = Stepped::from_event(&event.with_detail("act", "{}")).unwrap();
        assert_eq!(read.kind, *step);
    }
    assert_eq!(Step::of_action("request.overdue"), None);
    assert_eq!(Step::of_action("draft"), None);
}

#[test]
fn text_from_outside_cannot_forge_lines() {
    let at = datetime!(2026-11-28 10:00 UTC);
    let reviewed = Reviewed {
        decision: "accepted\u{a}\u{202e}".to_owned(),
    };
    let event = reviewed.into_event(at, Actor::user("u1", "U"), "violation/v-1");
    assert_eq!(event.details["decision"], r"accepted\u{a}\u{202e}");
}

#[test]
fn entries_are_unambiguous() {
    let mut seen = BTreeSet::new();
    for entry in entries() {
        for outcome in entry.outcomes {
            assert!(
                seen.insert((entry.action, outcome.to_string())),
                "{}",
                entry.action
            );
        }
        let own: BTreeSet<&str> = entry.fields.iter().map(|field| field.key).collect();
        assert_eq!(own.len(), entry.fields.len(), "{}", entry.action);
        let shared = entry.contexts.iter().flat_map(|context| context.fields);
        for field in shared {
            assert!(!own.contains(field.key), "{}: {}", entry.action, field.key);
        }
    }
}

const HEAD: &str = "# Events of the audit log

Look up what an event means, what it carries, and which class of other schemes it corresponds to. The page is made from the
crate `event-catalogue`: `CORDON_WRITE_REFERENCE=1 cargo test -p event-catalogue page` writes it again.

Each event has a time `at`, a `role` that recorded it, an `actor` (`id`, `kind`, `name`), an `action`, a `resource`, an
`outcome`, and, if there is one, a `reason`, `policies` and `details`. [formats.md](formats.md) describes the encoding.

- *severity*: `routine` is ordinary operation, `review` is for a reviewer, `alert` is for an administrator.
- *OCSF*: class and activity of the Open Cybersecurity Schema Framework. `actor` maps to `actor.user` or `device`, `resource` to
  `resources`, `reason` to `status_detail`, and the outcome to `status_id`: 1 for `ok` and `permit`, 2 for `fail` and `deny`.
- *Sigma*: field name in a rule for this log. The head has the names above, with a dot for what is inside (`actor.id`).
- *personal*: the value is about a person. The `id` and `name` of an actor of the kind `user` are personal too, as is a
  `resource` that names a person.
";

#[test]
fn events_page_is_that_of_the_catalogue() {
    let mut page = HEAD.to_owned();
    for subject in event_catalogue::SUBJECTS {
        describe(&mut page, subject);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/events.md");
    if std::env::var_os("CORDON_WRITE_REFERENCE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let first = page.lines().zip(found.lines()).position(|(a, b)| a != b);
    assert!(
        page == found,
        "docs/events.md differs from line {:?} on: write it as this file's HEAD says",
        first.map(|line| line + 1)
    );
}

fn describe(page: &mut String, subject: &Subject) {
    let _ = write!(page, "\n## {}\n\n{}\n\n", subject.name, subject.about);
    page.push_str(
        "| event | meaning | object | outcome | severity | OCSF |\n|---|---|---|---|---|---|\n",
    );
    for entry in subject.events.iter().flat_map(|entries| entries.iter()) {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} {}: {} |",
            entry.action,
            words(entry.about),
            list(entry.objects),
            list(
                &entry
                    .outcomes
                    .iter()
                    .map(Outcome::to_string)
                    .collect::<Vec<_>>()
            ),
            entry.severity.name(),
            entry.ocsf.class,
            entry.ocsf.class_name,
            entry.ocsf.name,
        );
    }
    page.push_str("\nDetails:\n\n| events | detail | meaning | form | Sigma | personal |\n|---|---|---|---|---|---|\n");
    for entries in subject.events {
        let Some(first) = entries.first() else {
            continue;
        };
        let name = match entries.len() {
            1 => format!("`{}`", first.action),
            _ => format!("`{}` and its kind", first.action),
        };
        for field in all_fields(first) {
            let needed = if field.is_optional { ", optional" } else { "" };
            let _ = writeln!(
                page,
                "| {name} | `{}` | {} | {}{needed} | `details.{}` | {} |",
                field.key,
                words(field.about),
                form(field.kind),
                field.key,
                if field.is_personal { "yes" } else { "" },
            );
        }
    }
}

/// Fields of an entry, each key once.
fn all_fields(entry: &Entry) -> Vec<&'static Field> {
    let mut seen = BTreeSet::new();
    entry
        .all_fields()
        .filter(|field| seen.insert(field.key))
        .collect()
}

fn form(kind: Kind) -> &'static str {
    kind.name()
}

fn words(lines: &[&str]) -> String {
    lines.concat().trim().to_owned()
}

fn list<T: AsRef<str>>(words: &[T]) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("`{}`", word.as_ref()))
        .collect();
    quoted.join(", ")
}
