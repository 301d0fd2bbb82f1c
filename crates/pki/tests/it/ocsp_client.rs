//! The OCSP client, without sockets and clock.

use std::time::{Duration, Instant};

use pki::ocsp::Query;
use pki::ocsp::client::{
    Client, MAX_QUERIES, MAX_RESPONSE_LEN, MAX_SENT, MAX_WAITING, OutgoingRequest, TIME_LIMIT,
};
use time::OffsetDateTime;
use time::macros::datetime;

use crate::ocsp_site::Site;

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
fn questions(site: &Site, count: usize) -> Vec<Query> {
    let device = |number| site.query(&site.device(&format!("camera-{number}")));
    (0..count).map(device).collect()
}

fn refused<W>(result: Result<(), (W, &'static str)>) -> &'static str {
    result.err().map(|(_, why)| why).unwrap()
}

#[test]
fn query_of_several_peers_is_sent_once_and_a_good_response_is_cached() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let about = site.query(&site.camera);
    let mut client = Client::new();
    for peer in 1..=3 {
        client
            .request(about.clone(), &urls(1), peer, start)
            .unwrap();
    }
    let sent = client.poll_request(start).unwrap();
    assert_eq!(sent.url, "http://a.example.org/");
    assert_eq!(sent.request, about.request());
    assert_eq!(sent.time_limit, TIME_LIMIT);
    assert_eq!(client.poll_request(start), None);
    assert!(!client.is_good(&about, UTC));
    let answer = site.good(&site.camera);
    let done = client
        .handle_response(sent.number, Ok(answer.clone()), UTC)
        .unwrap();
    assert_eq!(done.waiting, [1, 2, 3]);
    assert_eq!(done.response, Ok(answer.clone()));
    // Until its end, and not for another certificate.
    let end = UTC + time::Duration::HOUR;
    assert!(client.is_good(&about, end));
    assert!(!client.is_good(&about, end + time::Duration::SECOND));
    assert!(!client.is_good(&site.query(&site.device("camera-18")), UTC));
    // It counts once.
    assert!(
        client
            .handle_response(sent.number, Ok(answer), UTC)
            .is_none()
    );
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn query_about_a_revoked_certificate_is_sent_again() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let about = site.query(&site.camera);
    let mut client = Client::new();
    for peer in 1..=2 {
        client
            .request(about.clone(), &urls(2), peer, start)
            .unwrap();
        let sent = client.poll_request(start).unwrap();
        let revoked = site.revoked(&site.camera);
        // The second responder is not asked whether it thinks otherwise.
        let done = client
            .handle_response(sent.number, Ok(revoked.clone()), UTC)
            .unwrap();
        assert_eq!((done.waiting, done.response), (vec![peer], Ok(revoked)));
        assert!(!client.is_good(&about, UTC));
    }
}

#[test]
fn response_that_determines_nothing_leads_to_the_next_responder() {
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
        (Ok(at_most(MAX_RESPONSE_LEN + 1)), "the answer is too large"),
        (
            Ok(at_most(MAX_RESPONSE_LEN)),
            "the answer is no OCSP response",
        ),
        (Ok(other), "the answer is about another certificate"),
        (
            Ok(site.unknown(&site.camera)),
            "it does not know the certificate",
        ),
    ] {
        let mut client = Client::new();
        let about = site.query(&site.camera);
        client.request(about, &urls(2), (), start).unwrap();
        let first = client.poll_request(start).unwrap();
        assert!(
            client
                .handle_response(first.number, answer.clone(), UTC)
                .is_none()
        );
        let second = client.poll_request(start).unwrap();
        assert_eq!(second.url, "http://b.example.org/");
        // An answer of the first one that comes now is late.
        let good = site.good(&site.camera);
        assert!(
            client
                .handle_response(first.number, Ok(good), UTC)
                .is_none()
        );
        let done = client.handle_response(second.number, answer, UTC).unwrap();
        let both = format!("http://a.example.org/: {why}; http://b.example.org/: {why}");
        assert_eq!(done.response, Err(both));
        assert_eq!(client.poll_timeout(), None);
    }
}

#[test]
fn responders_that_are_silent_share_the_time() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let mut client = Client::new();
    client
        .request(site.query(&site.camera), &urls(4), (), start)
        .unwrap();
    let mut now = start;
    let mut asked = Vec::new();
    let done = loop {
        let sent = client.poll_request(now).unwrap();
        assert_eq!(sent.time_limit, TIME_LIMIT / 4);
        asked.push(sent.url);
        assert_eq!(client.poll_request(now), None);
        let until = client.poll_timeout().unwrap();
        assert_eq!(until, now + TIME_LIMIT / 4);
        let early = until - Duration::from_nanos(1);
        assert!(client.handle_timeout(early).is_empty() && client.poll_request(early).is_none());
        now = until;
        let mut done = client.handle_timeout(now);
        if let Some(done) = done.pop() {
            break done;
        }
    };
    assert_eq!((now - start, asked), (TIME_LIMIT, urls(4)));
    let why = done.response.unwrap_err();
    assert_eq!(why.matches("no answer in time").count(), 4, "{why}");
    // One that answers gets all that the silent one has left.
    client
        .request(site.query(&site.camera), &urls(2), (), start)
        .unwrap();
    client.poll_request(start).unwrap();
    assert!(client.handle_timeout(start + TIME_LIMIT / 2).is_empty());
    let second = client.poll_request(start + TIME_LIMIT / 2).unwrap();
    assert_eq!(second.time_limit, TIME_LIMIT / 2);
    let good = site.good(&site.camera);
    assert!(
        client
            .handle_response(second.number, Ok(good), UTC)
            .unwrap()
            .response
            .is_ok()
    );
}

#[test]
fn queries_beyond_the_bounds_wait_or_are_refused() {
    let (site, start) = (Site::new(UTC), Instant::now());
    let mut client = Client::new();
    let all = questions(&site, MAX_QUERIES + 1);
    let (last, others) = all.split_last().unwrap();
    for (peer, about) in (0..).zip(others) {
        client
            .request(about.clone(), &urls(2), peer, start)
            .unwrap();
    }
    let why = refused(client.request(last.clone(), &urls(2), 1000, start));
    assert_eq!(why, "too many questions wait for responders");
    // Whoever asks the same can wait as well, up to a bound.
    for peer in 1..MAX_WAITING {
        client
            .request(others[0].clone(), &urls(2), 2000 + peer, start)
            .unwrap();
    }
    let why = refused(client.request(others[0].clone(), &urls(2), 3000, start));
    assert_eq!(why, "too many peers wait for the same answer");
    let out: Vec<OutgoingRequest> = std::iter::from_fn(|| client.poll_request(start)).collect();
    assert_eq!(out.len(), MAX_SENT);
    let asked = |sent: &[OutgoingRequest], range: std::ops::Range<usize>| {
        let sent = sent.iter().map(|sent| sent.request.as_slice());
        assert!(sent.eq(others[range].iter().map(Query::request)));
    };
    asked(&out, 0..MAX_SENT);
    // An answer makes room for the next in turn; one that goes to its second responder keeps its place.
    let nothing = || Err("nothing".to_owned());
    assert!(
        client
            .handle_response(out[0].number, nothing(), UTC)
            .is_none()
    );
    let again = client.poll_request(start + SECOND).unwrap();
    asked(std::slice::from_ref(&again), 0..1);
    let done = client
        .handle_response(again.number, nothing(), UTC)
        .unwrap();
    assert_eq!(done.waiting.len(), MAX_WAITING);
    let next = client.poll_request(start + SECOND).unwrap();
    asked(std::slice::from_ref(&next), MAX_SENT..MAX_SENT + 1);
    assert_eq!(client.poll_request(start + SECOND), None);
    client
        .request(last.clone(), &urls(2), 1000, start + SECOND)
        .unwrap();
    // Everybody is told in the end, also those whose turn never came.
    let mut waiting = Vec::new();
    for done in client.handle_timeout(start + TIME_LIMIT) {
        assert!(
            done.response
                .unwrap_err()
                .contains("http://b.example.org/: ")
        );
        waiting.extend(done.waiting);
    }
    waiting.sort_unstable();
    assert_eq!(waiting, (1..MAX_QUERIES).collect::<Vec<_>>());
    let own = client.poll_request(start + TIME_LIMIT).unwrap();
    asked(&[], 0..0);
    assert_eq!(
        (own.request.as_slice(), own.time_limit),
        (last.request(), SECOND / 2)
    );
    assert_eq!(client.poll_timeout(), Some(start + TIME_LIMIT + SECOND / 2));
}
