use super::*;
use audit::Leaf;
use proptest::prelude::*;

#[test]
fn journal_events_can_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
    let (sender, receiver) = channel();
    let event = |action, peer: Option<&str>| AuditEvent {
        action,
        good: peer.is_some(),
        peer: peer.map(str::to_owned),
        connection: Some("cameras".into()),
        reason: Some("because".into()),
        remote: Some("192.0.2.7:4500".into()),
        detail: None,
    };
    assert!(sender.offer(event(What::Up, Some("CN=camera-17"))));
    assert!(sender.offer(event(What::Refuse, None)));
    drop(sender);
    let errors = AtomicU64::new(0);
    Audit::new(open(), None).run(&receiver, &errors);
    let records: Vec<_> = open().read_from(1).unwrap().map(Result::unwrap).collect();
    let of = |at: usize| Leaf::decode(&records[at].leaf).unwrap().event;
    assert_eq!(of(0).actor.id, "CN=camera-17");
    assert_eq!(
        (of(0).action.as_str(), of(0).outcome),
        ("tunnel.up", Outcome::Ok)
    );
    assert_eq!(of(1).actor, Actor::unknown("192.0.2.7:4500"));
    assert_eq!(
        (of(1).outcome, of(1).resource.as_str()),
        (Outcome::Deny, "tunnel/cameras")
    );
    assert_eq!(errors.into_inner(), 0);
}

#[test]
fn central_log_gets_every_event_once_and_in_order() {
    use std::sync::{Arc, Mutex};
    let folder = tempfile::tempdir().unwrap();
    let open = || Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
    let taken: Arc<Mutex<Vec<(u64, String)>>> = Arc::default();
    // Refuses as many records as the test says.
    let central = |mut refusals: usize| -> Central {
        let taken = Arc::clone(&taken);
        Box::new(move |first, events: Vec<Event>| {
            if refusals > 0 {
                refusals -= 1;
                return Err("not now".into());
            }
            let mut taken = taken.lock().unwrap();
            taken.extend((first..).zip(events.into_iter().map(|event| event.resource)));
            Ok(taken.len() as u64 - 1)
        })
    };
    let event = |connection: usize| AuditEvent {
        action: What::Up,
        good: true,
        peer: None,
        connection: Some(connection.to_string()),
        reason: None,
        remote: None,
        detail: None,
    };
    let errors = AtomicU64::new(0);
    let many = 2 * BATCH + 3;
    for (round, refusals) in [(0, 0), (1, usize::MAX), (2, 1)] {
        let (sender, receiver) = channel();
        let all = (0..many).map(|n| event(round * many + n));
        all.for_each(|event| assert!(sender.offer(event)));
        drop(sender);
        let mut audit = Audit::new(open(), Some(central(refusals)));
        while let Ok(events) = receiver.next() {
            audit.write(events, &errors);
        }
        // Refused for good in the second round, and once in the third.
        let outcomes = [audit.ship().is_ok(), audit.ship().is_ok()];
        assert_eq!(outcomes, [round == 0, round != 1]);
        assert_eq!(audit.behind, round == 1);
    }
    let expected = (0..3 * many).map(|n| (n as u64 + 1, format!("tunnel/{n}")));
    assert_eq!(*taken.lock().unwrap(), expected.collect::<Vec<_>>());
}

#[test]
fn strangers_events_leave_room_and_lost_ones_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
    let event = |peer: Option<&str>| AuditEvent {
        action: What::Up,
        good: true,
        peer: peer.map(str::to_owned),
        connection: None,
        reason: None,
        remote: None,
        detail: None,
    };
    let (sender, receiver) = channel();
    let strangers = (0..WAITING).filter(|_| sender.offer(event(None))).count();
    assert_eq!(strangers, STRANGERS);
    let known = (0..WAITING)
        .filter(|_| sender.offer(event(Some("a"))))
        .count();
    assert_eq!(known, WAITING - STRANGERS);
    drop(sender);
    Audit::new(open(), None).run(&receiver, &AtomicU64::new(0));
    let records = open().read_from(1).unwrap().map(Result::unwrap);
    let events: Vec<Event> = records
        .map(|r| Leaf::decode(&r.leaf).unwrap().event)
        .collect();
    assert_eq!(events.len(), WAITING + 1);
    assert_eq!(events[0].action, "tunnel.more");
    let reason = events[0].reason.as_deref().unwrap();
    assert_eq!(reason, "4096 more events, for which there was no room");
    assert_eq!(receiver.waiting.load(Ordering::Relaxed), 0);
}

fn named(text: &str) -> AuditEvent {
    AuditEvent {
        action: What::Refuse,
        good: false,
        peer: Some(text.to_owned()),
        connection: Some(text.to_owned()),
        reason: Some(text.to_owned()),
        remote: Some(text.to_owned()),
        detail: Some(text.to_owned()),
    }
}

#[test]
fn event_too_large_for_the_journal_is_cut_and_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Journal::open(folder.path(), ROLE, JournalOptions::default()).unwrap();
    let errors = AtomicU64::new(0);
    let events = vec![named("a"), named(&"x".repeat(100_000)), named("c")];
    Audit::new(open(), None).write(events, &errors);
    assert_eq!(errors.into_inner(), 0);
    assert_eq!(open().last_seq(), 3);
}

/// Ships everything and gives what the central log was offered: first number and events of each request.
fn shipped(audit: &mut Audit) -> Vec<(u64, Vec<Event>)> {
    let (sender, offered) = mpsc::channel();
    audit.central = Some(Box::new(move |first, events| {
        sender.send((first, events)).unwrap();
        Ok(first)
    }));
    audit.ship().unwrap();
    audit.central = None;
    offered.try_iter().collect()
}

#[test]
fn records_that_cannot_be_read_become_one_event_and_the_journal_moves_on() {
    let folder = tempfile::tempdir().unwrap();
    let options = JournalOptions {
        segment_bytes: 1000,
        ..JournalOptions::default()
    };
    let open = || Journal::open(folder.path(), ROLE, options).unwrap();
    let errors = AtomicU64::new(0);
    let mut audit = Audit::new(open(), None);
    for n in 1..=9 {
        audit.write(vec![named(&n.to_string())], &errors);
    }
    let mut segments: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "journal"))
        .collect();
    segments.sort();
    let firsts: Vec<u64> = segments
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect();
    assert!(firsts.len() >= 3, "{firsts:?}");
    // The first record of the second segment, and the newest record of all.
    for (path, at) in [
        (&segments[1], 100),
        (segments.last().as_ref().unwrap(), 100),
    ] {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let requests = shipped(&mut audit);
    let marked: Vec<_> = requests
        .iter()
        .flat_map(|(_, events)| events)
        .filter(|event| event.action == audit::JOURNAL_REFUSED)
        .map(|event| {
            (
                event.details["missing_from"].clone(),
                event.details["missing_to"].clone(),
            )
        })
        .collect();
    let newest = *firsts.last().unwrap();
    assert_eq!(
        marked,
        [
            (firsts[1].into(), (firsts[2] - 1).into()),
            (newest.into(), 9.into())
        ]
    );
    // What comes afterwards is read again, and numbers stay those of the journal.
    audit.write(vec![named("after")], &errors);
    let requests = shipped(&mut audit);
    let (first, events) = &requests[0];
    assert_eq!((requests.len(), *first, events.len()), (1, 10, 1));
    assert_eq!(events[0].actor.id, "after");
    assert_eq!(errors.into_inner(), 0);
}

#[test]
fn removed_segment_is_reported_and_the_journal_moves_on() {
    let folder = tempfile::tempdir().unwrap();
    let options = JournalOptions {
        segment_bytes: 500,
        ..JournalOptions::default()
    };
    let mut audit = Audit::new(Journal::open(folder.path(), ROLE, options).unwrap(), None);
    for n in 1..=4 {
        audit.write(vec![named(&n.to_string())], &AtomicU64::new(0));
    }
    audit.journal.keep_segments(1).unwrap();
    let oldest = audit.journal.first_seq().unwrap();
    let requests = shipped(&mut audit);
    assert_eq!(requests[0].0, 1);
    assert_eq!(requests[0].1[0].details["missing_to"], oldest - 1);
    assert_eq!(requests[1].0, oldest);
}

proptest! {
    #[test]
    fn every_event_of_the_daemon_is_recorded_in_one_line(
        text in "[\\x00-\u{9f}\u{2000}-\u{206f}\"\\\\č]{0,300}",
        repeat in 1_usize..60,
    ) {
        let event = entry(named(&text.repeat(repeat)), OffsetDateTime::UNIX_EPOCH);
        prop_assert!(event.to_canonical().unwrap().len() <= MAX_SHIPPED_BYTES);
        prop_assert!(!event.has_invisible_text());
        prop_assert_eq!(event.action.as_str(), "tunnel.refuse");
    }
}
