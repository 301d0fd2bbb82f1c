use super::*;
use audit::journal::{Journal, JournalOptions};
use audit::{JOURNAL_REFUSED, MAX_SHIPPED_BYTES, Outcome};
use proptest::prelude::*;

use super::record::ROLE;

fn written(events: Vec<Event>) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
    journal.append_batch(events).unwrap()
}

fn journal(events: usize) -> Vec<Vec<u8>> {
    let at = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
    let event = |n: usize| {
        let actor = Actor::device("camera-17");
        Event::new(at, actor, "camera.start", "camera/camera-17", Outcome::Ok).with_detail("n", n)
    };
    written((0..events).map(event).collect())
}

/// Leaves of a journal whose event `at` was changed as text before it was chained, as an earlier version wrote it.
fn chained(leaves: &[Vec<u8>], at: usize, change: impl Fn(&str) -> String) -> Vec<Vec<u8>> {
    let mut prev = "0".repeat(64);
    let rebuilt = leaves.iter().enumerate().map(|(n, leaf)| {
        let text = String::from_utf8(leaf.clone()).unwrap();
        let (front, rest) = text.split_once("\"prev\":\"").unwrap();
        let text = format!("{front}\"prev\":\"{prev}{}", &rest[64..]);
        let text = if n == at { change(&text) } else { text };
        prev = evidence::digest::Sha256Digest::of(text.as_bytes()).to_string();
        text.into_bytes()
    });
    rebuilt.collect()
}

fn recorded(records: &[Record]) -> Vec<Event> {
    let plan = compare(&Known::default(), records, false).unwrap();
    events("camera-17", records, &plan, Some("::1"))
}

fn records(leaves: &[Vec<u8>]) -> Vec<Record> {
    parse(&leaves.join(&b'\n')).unwrap()
}

fn known(records: &[Record]) -> Known {
    let hash = |r: &Record| (r.seq, r.hash.to_string());
    Known {
        last: records.last().unwrap().seq,
        hashes: records.iter().map(hash).collect(),
    }
}

#[test]
fn batch_is_of_a_camera_and_a_chain() {
    let leaves = journal(3);
    assert_eq!(records(&leaves).len(), 3);
    let text = |leaf: &[u8]| String::from_utf8(leaf.to_vec()).unwrap();
    let refused = |body: String| parse(body.as_bytes()).err().unwrap();
    let (one, three) = (text(&leaves[0]), text(&leaves[2]));
    assert_eq!(
        refused(format!("{one}\n{three}")),
        "the records are not in order"
    );
    assert_eq!(
        refused(one.replace("\"role\":\"camera\"", "\"role\":\"centre\"")),
        "a record is not of a camera"
    );
    assert_eq!(refused("{}".to_owned()), "a line is no record of a journal");
    assert_eq!(
        refused(one.replace(&"0".repeat(64), "0")),
        "a line is no record of a journal"
    );
    let large = one.replace("\"seq\":1", &format!("\"seq\":{}", 1_u64 << 53));
    assert_eq!(refused(large), "a number is too large");
    assert_eq!(refused(String::new()), "there is no record");
    let many = journal(MAX_RECORDS + 1);
    assert_eq!(records(&many[..MAX_RECORDS]).len(), MAX_RECORDS);
    assert_eq!(parse(&many.join(&b'\n')).err(), Some("too many records"));
}

#[test]
fn records_come_once() {
    let all = records(&journal(3));
    let nothing = compare(&known(&all), &all, false).unwrap();
    assert!(nothing.new.is_empty() && nothing.fork.is_none() && nothing.gap.is_none());
    let further = compare(&known(&all[..1]), &all, false).unwrap();
    assert_eq!(further.new, [1, 2]);
    let events = events("camera-17", &all, &further, Some("::1"));
    assert!(events.iter().all(|e| e.details["address"] == "::1"));
}

#[test]
fn gap_is_asked_for_and_then_reported() {
    let all = records(&journal(5));
    let before = known(&all[..1]);
    assert_eq!(compare(&before, &all[3..], false).err(), Some(1));
    let plan = compare(&before, &all[3..], true).unwrap();
    assert_eq!((plan.gap, plan.new.len()), (Some((2, 3)), 2));
    let told = events("camera-17", &all[3..], &plan, None);
    assert_eq!(told[0].action, "camera.journal-gap");
}

#[test]
fn numbers_far_ahead_hide_no_gap_below_them() {
    let all = records(&journal(6));
    // Known are the first record and the last, which came with a gap.
    let mut before = known(&all[..1]);
    before.hashes.insert(6, all[5].hash.to_string());
    assert_eq!(compare(&before, &all[3..5], false).err(), Some(1));
    let plan = compare(&before, &all[3..5], true).unwrap();
    assert_eq!((plan.gap, plan.new.len()), (Some((2, 3)), 2));
    // The one that was sent before may come again.
    assert!(compare(&before, &all[5..], false).unwrap().new.is_empty());
}

#[test]
fn record_that_the_log_does_not_take_is_marked_and_the_others_are_taken() {
    let leaves = journal(5);
    let replace = |from: &'static str, to: &str| {
        let to = to.to_owned();
        move |text: &str| {
            assert!(text.contains(from), "{text}");
            text.replace(from, &to)
        }
    };
    let long = format!("\"n\":\"{}\"", "x".repeat(9000));
    let site = "action is not one of a camera";
    let text = "text has a control or format character";
    let cases: [(&str, String, &str); 12] = [
        ("\"n\":2", "\"n\":\"a\\nb\"".into(), text),
        ("camera.start", "camera.start\\n".into(), site),
        ("camera.start", "camera.journal-gap".into(), site),
        ("camera.start", "camera.journal-fork".into(), site),
        ("camera.start", "evidence.view".into(), site),
        ("\"n\":2", "\"n\":\"a\u{85}b\"".into(), text),
        ("\"n\":2", "\"n\":\"a\\u001b[2K\"".into(), text),
        (
            "\"n\":2",
            "\"n\": 2".into(),
            "event is not in canonical form",
        ),
        ("camera/camera-17", "camera/a\u{202e}b".into(), text),
        ("\"n\":2", "\"n\":null".into(), "event detail"),
        ("\"v\":1", "\"v\":2".into(), "event version 2 is not known"),
        ("\"n\":2", long, "more than 8192"),
    ];
    for (from, to, why) in cases {
        let bad = chained(&leaves, 2, replace(from, &to));
        let taken = records(&bad);
        let events = recorded(&taken);
        assert_eq!(events.len(), 5, "{to:?}");
        for (n, event) in events.iter().enumerate() {
            assert!(event.to_canonical().is_ok() && !event.has_invisible_text());
            assert_eq!(event.details["journal_seq"], n + 1);
            assert_eq!(event.details["address"], "::1");
            let hash = evidence::digest::Sha256Digest::of(&bad[n]).to_string();
            assert_eq!(event.details["journal_sha256"], hash.as_str());
            let action = if n == 2 {
                JOURNAL_REFUSED
            } else {
                "camera.start"
            };
            assert_eq!(event.action, action, "{to:?}");
        }
        let reason = events[2].reason.as_deref().unwrap_or_default();
        assert!(reason.contains(why), "{to:?}: {reason}");
    }
}

#[test]
fn marked_record_is_taken_once_and_known_afterwards() {
    let leaves = chained(&journal(3), 1, |text| {
        text.replace("camera.start", "evidence.view")
    });
    let all = records(&leaves);
    assert_eq!(compare(&known(&all), &all, false).unwrap().new, [0; 0]);
    let more = compare(&known(&all[..2]), &all[2..], false).unwrap();
    assert!(more.fork.is_none() && more.new == [0]);
}

proptest! {
    /// Whatever a camera can write is taken as it is, not as a marked record.
    #[test]
    fn every_event_that_a_camera_can_write_is_taken(
        name in "[a-z-]{1,20}",
        text in "[\\x00-\u{9f}\u{2000}-\u{206f}\"\\\\č]{0,300}",
        repeat in 1_usize..40,
        details in proptest::collection::btree_map("[\\x00-\u{ff}]{0,80}", any::<i64>(), 0..60),
    ) {
        prop_assume!(!matches!(name.as_str(), "journal-gap" | "journal-fork"));
        let text = text.repeat(repeat);
        let at = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        let mut event = Event::new(at, Actor::device(&*text), format!("camera.{name}"), &*text, Outcome::Fail)
            .with_reason(&*text);
        for (name, value) in details {
            event = event.with_detail(name, value);
        }
        let leaves = written(vec![event.fitted(MAX_SHIPPED_BYTES)]);
        let events = recorded(&records(&leaves));
        prop_assert_eq!(&events[0].action, &format!("camera.{name}"));
        prop_assert!(events[0].to_canonical().is_ok());
    }
}

#[test]
fn other_journal_with_the_same_numbers_is_a_fork() {
    let mine = records(&journal(3));
    let at = |n: usize| journal(n + 1).split_off(n);
    // Another journal: its first record differs.
    let mut other = journal(2);
    let changed = String::from_utf8(other[0].clone())
        .unwrap()
        .replace("\"n\":0", "\"n\":9");
    other[0] = changed.into_bytes();
    let fork = compare(&known(&mine), &records(&other[..1]), false).unwrap();
    assert_eq!(fork.fork.as_ref().unwrap().sequence, 1);
    assert_eq!(fork.new, [0]);
    // A record that names another predecessor than the one that is known.
    let mut before = known(&mine[..1]);
    before.hashes.insert(1, "0".repeat(64));
    let plan = compare(&before, &records(&at(1)), false).unwrap();
    assert_eq!(plan.fork.unwrap().sequence, 1);
}

#[test]
fn records_of_a_day_are_bounded() {
    let journals = Journals::default();
    let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
    let all = usize::try_from(MAX_PER_DAY).unwrap();
    assert_eq!(journals.count("a", all, now), Ok(()));
    assert_eq!(journals.count("a", 1, now), Err(86_400));
    assert_eq!(journals.count("b", 1, now), Ok(()));
    assert_eq!(
        journals.count("a", 1, now + time::Duration::days(1)),
        Ok(())
    );
}
