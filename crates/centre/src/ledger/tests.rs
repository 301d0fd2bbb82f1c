use audit::{Actor, AuditSink, MemorySink, Recorded};
use time::OffsetDateTime;
use time::macros::datetime;

use super::record::State;
use super::*;

const AT: OffsetDateTime = datetime!(2026-11-21 10:00 UTC);

fn hash(digit: &str) -> Sha256Digest {
    digit.repeat(64).parse().unwrap()
}

fn block_event(action: &str, digit: &str, outcome: Outcome) -> Event {
    let resource = format!("block/{}", hash(digit));
    Event::new(AT, Actor::device("camera-17"), action, resource, outcome).with_detail("size", 9)
}

fn receive(digit: &str) -> Event {
    block_event("evidence.receive", digit, Outcome::Ok)
        .with_detail("manifest_sha256", hash("e").to_string())
        .with_detail("custody_count", 1)
        .with_detail("received_at", 5)
}

fn look(digit: &str) -> Event {
    let resource = format!("violation/{}", violation_id(&hash(digit)));
    let actor = Actor::user("u", "U");
    Event::new(AT, actor, "evidence.view", resource, Outcome::Permit)
}

fn numbered(digit: &str, count: u64, previous: u64) -> Event {
    look(digit)
        .with_detail("custody_count", count)
        .with_detail("custody_previous", previous)
}

fn decision(digit: &str, decision: &str, count: u64, previous: u64) -> Event {
    let mut event = numbered(digit, count, previous).with_detail("decision", decision);
    "evidence.decide".clone_into(&mut event.action);
    event.outcome = Outcome::Ok;
    event
}

/// The ledger of a log with these events, in each of the two ways in which it is made.
fn ledger(events: Vec<Event>) -> Ledger {
    let sink: Arc<dyn AuditSink> = Arc::new(MemorySink::default());
    let followed = FollowedLog::open(sink.clone()).unwrap();
    for event in events {
        followed.record(event).unwrap();
    }
    let again = FollowedLog::open(sink).unwrap().ledger;
    let facts = |ledger: &Ledger| format!("{:?}", ledger.read_facts());
    assert_eq!(facts(&again), facts(&followed.ledger));
    // Read twice, it says the same.
    followed.ledger.read_on(&followed, 0).unwrap();
    assert_eq!(facts(&again), facts(&followed.ledger));
    for known in again
        .read_facts()
        .blocks
        .iter()
        .map(|(block, e)| e.known(*block))
    {
        if known.verdict == Verdict::Accepted {
            let (history, head) = History::read(&followed, &known).unwrap();
            assert_eq!(head, known.head);
            assert_eq!(history.steps.last().unwrap().log_index, head.log_index);
        }
    }
    again
}

fn head(ledger: &Ledger, digit: &str) -> RecordHead {
    ledger.block(&hash(digit)).unwrap().head
}

fn outside(ledger: &Ledger) -> u64 {
    ledger.read_facts().outside
}

#[test]
fn record_is_the_chain_that_begins_with_the_receipt() {
    let all = ledger(vec![
        receive("1"),
        receive("2"),
        numbered("1", 2, 0),
        numbered("2", 2, 1),
        numbered("1", 3, 2),
    ]);
    let one = head(&all, "1");
    assert_eq!((one.count, one.log_index, one.is_numbered), (3, 4, true));
    assert_eq!(head(&all, "2").count, 2);
    assert_ne!(head(&all, "2").steps, one.steps);
    let known = all.violation("v-1111111111111111").unwrap();
    assert_eq!((known.block, known.size), (hash("1"), 9));
    assert_eq!((known.manifest, known.received_at), (Some(hash("e")), 5));
    for other in [
        "v-1111111111111112",
        "v-111111111111111",
        "",
        "v-",
        "1111111111111111",
    ] {
        assert!(all.violation(other).is_none(), "{other}");
    }
}

#[test]
fn event_that_does_not_continue_the_record_is_outside() {
    let begin = || vec![receive("1"), numbered("1", 2, 0), numbered("1", 3, 1)];
    for other in [
        numbered("1", 5, 2),
        numbered("1", 4, 1),
        numbered("1", 3, 0),
        numbered("1", 2, 0),
        numbered("1", 1, 0),
        numbered("2", 2, 0),
        look("1").with_detail("custody_count", 4),
    ] {
        let mut events = begin();
        events.push(other.clone());
        let all = ledger(events);
        assert_eq!((head(&all, "1").count, outside(&all)), (3, 1), "{other:?}");
    }
}

#[test]
fn copy_of_the_newest_event_takes_its_place() {
    let with = |events: Vec<Event>| head(&ledger(events), "1");
    let twice = with(vec![
        receive("1"),
        decision("1", "accepted", 2, 0),
        decision("1", "rejected", 2, 0),
        numbered("1", 3, 2),
    ]);
    assert_eq!((twice.count, twice.log_index), (3, 3));
    assert_eq!(twice.state, State::Rejected);
    // As if the first copy had never been.
    let once = with(vec![
        receive("1"),
        receive("2"),
        decision("1", "rejected", 2, 0),
        numbered("1", 3, 2),
    ]);
    assert_eq!(twice, once);
}

#[test]
fn events_of_earlier_versions_count_in_the_order_of_the_log() {
    let all = ledger(vec![
        receive("1"),
        look("1"),
        look("1"),
        numbered("1", 4, 2).with_detail("custody_earlier_sha256", "x"),
        numbered("1", 5, 3),
    ]);
    let head = head(&all, "1");
    assert_eq!((head.count, head.is_numbered, outside(&all)), (5, true, 0));
}

#[test]
fn state_is_that_of_the_newest_decision_that_was_made() {
    let mut refused = decision("1", "rejected", 3, 1);
    refused.outcome = Outcome::Deny;
    let events = vec![receive("1"), decision("1", "accepted", 2, 0), refused];
    assert_eq!(head(&ledger(events.clone()), "1").state, State::Accepted);
    let mut earlier = decision("1", "rejected", 3, 1);
    earlier.at -= time::Duration::SECOND;
    let before = vec![receive("1"), decision("1", "accepted", 2, 0), earlier];
    assert_eq!(head(&ledger(before), "1").state, State::Accepted);
    let begun = ledger(events[..1].to_vec());
    assert_eq!(head(&begun, "1").state, State::Open);
}

#[test]
fn verdict_follows_quarantine_release_and_rejection() {
    let quarantine = || block_event("evidence.quarantine", "1", Outcome::Fail);
    let of = |action| block_event(action, "1", Outcome::Ok);
    let known = |events| {
        let known = ledger(events).block(&hash("1")).unwrap();
        (known.verdict, known.is_released)
    };
    assert_eq!(known(vec![quarantine()]), (Verdict::Quarantined, false));
    let rejected = vec![quarantine(), of("evidence.reject")];
    assert_eq!(known(rejected), (Verdict::Rejected, false));
    let released = vec![quarantine(), of("evidence.release")];
    assert_eq!(known(released.clone()), (Verdict::Quarantined, true));
    let received = [released, vec![receive("1")]].concat();
    assert_eq!(known(received.clone()), (Verdict::Accepted, true));
    // Nothing takes it back.
    for later in [quarantine(), of("evidence.reject")] {
        let events = [received.clone(), vec![later]].concat();
        assert_eq!(known(events).0, Verdict::Accepted);
    }
    let failed = block_event("evidence.receive", "1", Outcome::Fail);
    assert!(ledger(vec![failed]).block(&hash("1")).is_none());
}

#[test]
fn block_that_contradicts_another_disputes_it() {
    let dispute = block_event("evidence.quarantine", "2", Outcome::Fail)
        .with_detail("disputed_block", hash("1").to_string());
    let all = ledger(vec![receive("1"), dispute.clone(), dispute]);
    assert!(all.is_disputed(&hash("1")) && !all.is_disputed(&hash("2")));
    assert_eq!(all.disputes(&hash("1")).len(), 1);
}

fn begin_epoch(epoch: u64, closed_head: u64) -> Event {
    let actor = Actor::user("u", "U");
    let (action, resource) = ("chain.begin-epoch", "chain/camera-17");
    Event::new(AT, actor, action, resource, Outcome::Permit)
        .with_detail("epoch", epoch)
        .with_detail("closed_head", closed_head)
}

#[test]
fn repeated_begin_epoch_event_counts_once() {
    let heads = |events| ledger(events).closed_heads("camera-17");
    assert_eq!(heads(vec![begin_epoch(1, 5), begin_epoch(1, 6)]), [5]);
    assert_eq!(heads(vec![begin_epoch(1, 5), begin_epoch(2, 6)]), [5, 6]);
    // An epoch needs the one before it, and the first one is never begun.
    for other in [0, 2] {
        let all = ledger(vec![begin_epoch(other, 5)]);
        assert!(all.closed_heads("camera-17").is_empty());
        assert_eq!(
            (all.epoch("camera-17"), all.epoch_event("camera-17", 1)),
            (0, None)
        );
    }
    let mut without_head = begin_epoch(1, 5);
    without_head.details.remove("closed_head");
    assert_eq!(heads(vec![without_head]), [0]);
}

#[test]
fn quarantined_number_is_held_in_the_epoch_of_its_arrival() {
    let held = |digit, sequence: u64| {
        let event = block_event("evidence.quarantine", digit, Outcome::Fail);
        event
            .with_detail("sequence", sequence)
            .with_reason("too-old")
    };
    let events = vec![
        held("1", 2),
        held("4", 3),
        begin_epoch(1, 5),
        held("2", 2),
        held("3", 4),
        // Another device brought it again, in the later epoch.
        held("4", 3),
        block_event("evidence.reject", "3", Outcome::Permit),
    ];
    let all = ledger(events);
    let numbers = |epoch| Vec::from_iter(all.in_quarantine("camera-17", epoch));
    assert_eq!(
        (numbers(0), numbers(1), numbers(2)),
        (vec![2], vec![2, 3], vec![])
    );
    assert!(all.in_quarantine("camera-18", 0).is_empty());
}

/// Fails, before or after an event reached the log.
struct Failing {
    sink: MemorySink,
    fail: std::sync::atomic::AtomicU8,
}

impl AuditSink for Failing {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, audit::AuditError> {
        let fail = self.fail.swap(0, std::sync::atomic::Ordering::SeqCst);
        if fail == 1 {
            return Err(audit::AuditError::Stopped);
        }
        let recorded = self.sink.record_all(events)?;
        if fail == 2 {
            return Err(audit::AuditError::Stopped);
        }
        Ok(recorded)
    }

    fn read_on(
        &self,
        from: u64,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(audit::Logged),
    ) -> Result<u64, audit::AuditError> {
        self.sink.read_on(from, wanted, each)
    }
}

#[test]
fn event_whose_recording_failed_is_added_if_it_reached_the_log() {
    let sink = Arc::new(Failing {
        sink: MemorySink::default(),
        fail: 0.into(),
    });
    let followed = FollowedLog::open(sink.clone()).unwrap();
    followed.record(receive("1")).unwrap();
    for (fail, count) in [(1, 1), (2, 2)] {
        sink.fail.store(fail, std::sync::atomic::Ordering::SeqCst);
        followed.record(numbered("1", 2, 0)).unwrap_err();
        assert_eq!(head(&followed.ledger, "1").count, 1);
        followed.catch_up().unwrap();
        assert_eq!(head(&followed.ledger, "1").count, count);
    }
}
