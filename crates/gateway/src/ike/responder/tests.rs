use ikev2::Limits;
use time::macros::datetime;

use super::super::ocsp::tests::Site;
use super::*;

const UTC: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
const SECOND: Duration = Duration::from_secs(1);

fn urls(count: usize) -> Vec<String> {
    let all = [
        "http://a.example.org/",
        "http://b.example.org/",
        "http://c/",
        "http://d/",
    ];
    all.iter()
        .take(count)
        .map(|url| (*url).to_owned())
        .collect()
}

/// Certificates nobody looks into, as questions of their own.
fn questions(site: &Site, count: usize) -> Vec<About> {
    let device = |number| site.about(&site.device(&format!("camera-{number}")));
    (0..count).map(device).collect()
}

fn refused<W>(result: Result<(), (W, &'static str)>) -> &'static str {
    result.err().map(|(_, why)| why).unwrap()
}

#[test]
fn waiting_fits_into_a_handshake() {
    assert!(2 * PATIENCE < Limits::default().handshake_time);
}

#[test]
fn the_same_is_asked_once_and_a_good_answer_is_kept() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let about = site.about(&site.camera);
    let mut asking = Asking::new();
    for peer in 1..=3 {
        asking.ask(about.clone(), &urls(1), peer, start).unwrap();
    }
    let sent = asking.poll_question(start).unwrap();
    assert_eq!(sent.url, "http://a.example.org/");
    assert_eq!(sent.request, about.request());
    assert_eq!(sent.patience, PATIENCE);
    assert_eq!(asking.poll_question(start), None);
    assert!(!asking.is_good(&about, UTC));
    let answer = site.good(&site.camera);
    let done = asking
        .answered(sent.number, Ok(answer.clone()), UTC)
        .unwrap();
    assert_eq!(done.waiting, [1, 2, 3]);
    assert_eq!(done.answer, Ok(answer.clone()));
    // Until its end, and not for another certificate.
    let end = UTC + time::Duration::HOUR;
    assert!(asking.is_good(&about, end));
    assert!(!asking.is_good(&about, end + time::Duration::SECOND));
    assert!(!asking.is_good(&site.about(&site.device("camera-18")), UTC));
    // It counts once.
    assert!(asking.answered(sent.number, Ok(answer), UTC).is_none());
    assert_eq!(asking.poll_timeout(), None);
}

#[test]
fn a_revoked_certificate_is_asked_about_again() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let about = site.about(&site.camera);
    let mut asking = Asking::new();
    for peer in 1..=2 {
        asking.ask(about.clone(), &urls(2), peer, start).unwrap();
        let sent = asking.poll_question(start).unwrap();
        let revoked = site.revoked(&site.camera);
        // The second responder is not asked whether it thinks otherwise.
        let done = asking
            .answered(sent.number, Ok(revoked.clone()), UTC)
            .unwrap();
        assert_eq!((done.waiting, done.answer), (vec![peer], Ok(revoked)));
        assert!(!asking.is_good(&about, UTC));
    }
}

#[test]
fn useless_answers_lead_to_the_next_responder() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let other = site.good(&site.device("camera-18"));
    let at_most = |length| {
        // Readable up to the end, which does not belong to it.
        let mut answer = site.good(&site.camera);
        answer.resize(length, 0);
        answer
    };
    for (answer, why) in [
        (Err("connection refused".to_owned()), "connection refused"),
        (Ok(at_most(ANSWER_MAX + 1)), "the answer is too large"),
        (Ok(at_most(ANSWER_MAX)), "the answer is no OCSP response"),
        (Ok(other), "the answer is about another certificate"),
        (
            Ok(site.unknown(&site.camera)),
            "it does not know the certificate",
        ),
    ] {
        let mut asking = Asking::new();
        let about = site.about(&site.camera);
        asking.ask(about, &urls(2), (), start).unwrap();
        let first = asking.poll_question(start).unwrap();
        assert!(asking.answered(first.number, answer.clone(), UTC).is_none());
        let second = asking.poll_question(start).unwrap();
        assert_eq!(second.url, "http://b.example.org/");
        // An answer of the first one that comes now is late.
        let good = site.good(&site.camera);
        assert!(asking.answered(first.number, Ok(good), UTC).is_none());
        let done = asking.answered(second.number, answer, UTC).unwrap();
        let both = format!("http://a.example.org/: {why}; http://b.example.org/: {why}");
        assert_eq!(done.answer, Err(both));
        assert_eq!(asking.poll_timeout(), None);
    }
}

#[test]
fn silent_responders_share_the_time() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let mut asking = Asking::new();
    asking
        .ask(site.about(&site.camera), &urls(4), (), start)
        .unwrap();
    let mut now = start;
    let mut asked = Vec::new();
    let done = loop {
        let sent = asking.poll_question(now).unwrap();
        assert_eq!(sent.patience, PATIENCE / 4);
        asked.push(sent.url);
        assert_eq!(asking.poll_question(now), None);
        let until = asking.poll_timeout().unwrap();
        assert_eq!(until, now + PATIENCE / 4);
        let early = until - Duration::from_nanos(1);
        assert!(asking.handle_timeout(early).is_empty() && asking.poll_question(early).is_none());
        now = until;
        let mut done = asking.handle_timeout(now);
        if let Some(done) = done.pop() {
            break done;
        }
    };
    assert_eq!((now - start, asked), (PATIENCE, urls(4)));
    let why = done.answer.unwrap_err();
    assert_eq!(why.matches("no answer in time").count(), 4, "{why}");
    // One that answers gets all that the silent one has left.
    asking
        .ask(site.about(&site.camera), &urls(2), (), start)
        .unwrap();
    asking.poll_question(start).unwrap();
    assert!(asking.handle_timeout(start + PATIENCE / 2).is_empty());
    let second = asking.poll_question(start + PATIENCE / 2).unwrap();
    assert_eq!(second.patience, PATIENCE / 2);
    let good = site.good(&site.camera);
    assert!(
        asking
            .answered(second.number, Ok(good), UTC)
            .unwrap()
            .answer
            .is_ok()
    );
}

#[test]
fn so_many_are_asked_at_a_time_and_so_many_wait() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let mut asking = Asking::new();
    let all = questions(&site, QUESTIONS + 1);
    let (last, others) = all.split_last().unwrap();
    for (peer, about) in (0..).zip(others) {
        asking.ask(about.clone(), &urls(2), peer, start).unwrap();
    }
    let why = refused(asking.ask(last.clone(), &urls(2), 1000, start));
    assert_eq!(why, "too many questions wait for responders");
    // Whoever asks the same can wait as well, up to a bound.
    for peer in 1..SAME {
        asking
            .ask(others[0].clone(), &urls(2), 2000 + peer, start)
            .unwrap();
    }
    let why = refused(asking.ask(others[0].clone(), &urls(2), 3000, start));
    assert_eq!(why, "too many peers wait for the same answer");
    let out: Vec<Sent> = std::iter::from_fn(|| asking.poll_question(start)).collect();
    assert_eq!(out.len(), AT_ONCE);
    let asked = |sent: &[Sent], range: std::ops::Range<usize>| {
        let sent = sent.iter().map(|sent| sent.request.as_slice());
        assert!(sent.eq(others[range].iter().map(About::request)));
    };
    asked(&out, 0..AT_ONCE);
    // An answer makes room for the next in turn; one that goes to its second responder keeps its place.
    let nothing = || Err("nothing".to_owned());
    assert!(asking.answered(out[0].number, nothing(), UTC).is_none());
    let again = asking.poll_question(start + SECOND).unwrap();
    asked(std::slice::from_ref(&again), 0..1);
    let done = asking.answered(again.number, nothing(), UTC).unwrap();
    assert_eq!(done.waiting.len(), SAME);
    let next = asking.poll_question(start + SECOND).unwrap();
    asked(std::slice::from_ref(&next), AT_ONCE..AT_ONCE + 1);
    assert_eq!(asking.poll_question(start + SECOND), None);
    asking
        .ask(last.clone(), &urls(2), 1000, start + SECOND)
        .unwrap();
    // Everybody is told in the end, also those whose turn never came.
    let mut waiting = Vec::new();
    for done in asking.handle_timeout(start + PATIENCE) {
        assert!(done.answer.unwrap_err().contains("http://b.example.org/: "));
        waiting.extend(done.waiting);
    }
    waiting.sort_unstable();
    assert_eq!(waiting, (1..QUESTIONS).collect::<Vec<_>>());
    let own = asking.poll_question(start + PATIENCE).unwrap();
    asked(&[], 0..0);
    assert_eq!(
        (own.request.as_slice(), own.patience),
        (last.request(), SECOND / 2)
    );
    assert_eq!(asking.poll_timeout(), Some(start + PATIENCE + SECOND / 2));
}
