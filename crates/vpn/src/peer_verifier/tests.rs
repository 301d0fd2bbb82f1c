//! The thread itself, with a responder that is a function.

use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use der::Encode as _;
use x509_cert::Certificate;

use pki::ocsp::OcspPolicy;
use pki::ocsp::client::MAX_RESPONSE_LEN;

use super::super::identity;
use super::super::ocsp::OcspRequest;
use super::super::ocsp_site::Site;
use super::super::trust::Authorities;
use std::sync::RwLock;

use super::*;

const URL: &str = "http://ocsp.example.org/";
/// Longer than anything takes here but waiting for a responder.
const SOON: Duration = Duration::from_secs(4);

type Verified = Result<(Vec<u8>, Accepted), Refused>;

struct Thread {
    jobs: SyncSender<Job<u32>>,
    found: Receiver<(u32, Verified)>,
    shared: SharedTrust,
    counters: Arc<OcspCounters>,
    thread: JoinHandle<io::Result<()>>,
}

fn trust(site: &Site, policy: OcspPolicy, urls: &[&str]) -> Trust {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    let anchors = [site.devices.certificate().clone()];
    let trust = Trust::new(&anchors, &[], false).unwrap();
    trust.with_ocsp(policy, &urls)
}

impl Thread {
    fn start(trust: Trust, responder: impl Fn(OcspRequest) + Send + 'static) -> Self {
        let (jobs, received) = mpsc::sync_channel(16);
        let (tell, found): (Sender<_>, _) = mpsc::channel();
        let tell = move |finding| {
            if let VerifierEvent::Verified(peer, result) = finding {
                tell.send((peer, result)).unwrap();
            }
        };
        let shared: SharedTrust = Arc::new(RwLock::new(Authorities::new(Some(trust))));
        let counters = Arc::new(OcspCounters::default());
        let verifier = PeerVerifier::new(
            Arc::clone(&shared),
            Some(Box::new(responder)),
            Arc::clone(&counters),
            jobs.clone(),
            Box::new(tell),
        );
        let thread = std::thread::spawn(move || verifier.run(&received));
        Self {
            jobs,
            found,
            shared,
            counters,
            thread,
        }
    }

    fn show(&self, peer: u32, certificate: &Certificate, ocsp: &[Vec<u8>]) {
        let shown = PeerCredentials {
            connection: "peer".to_owned(),
            chain: vec![certificate.to_der().unwrap()],
            ocsp: ocsp.to_vec(),
            in_eap: false,
            requirement: Arc::default(),
        };
        let id = identity::of_subject(certificate).unwrap();
        self.jobs.send(Job::Verify(peer, shown, id)).unwrap();
    }

    fn result(&self) -> (u32, Verified) {
        self.found.recv_timeout(SOON).unwrap()
    }

    /// The result for a peer that shows just a certificate.
    fn verify(&self, certificate: &Certificate) -> Verified {
        self.show(7, certificate, &[]);
        self.result().1
    }

    fn counts(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.counters.requests), of(&self.counters.undetermined))
    }

    fn end(self) {
        self.jobs.send(Job::End).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

fn site() -> Site {
    Site::new(OffsetDateTime::now_utc())
}

#[test]
fn responder_status_decides_and_is_requested_once() {
    let site = site();
    let bad = site.device("camera-18");
    let (yes, no) = (site.good(&site.camera), site.revoked(&bad));
    let (about, other) = (site.query(&site.camera), site.query(&bad));
    for policy in [OcspPolicy::IfGiven, OcspPolicy::Required] {
        let (yes, no) = (yes.clone(), no.clone());
        let (good, revoked) = (about.request().to_vec(), other.request().to_vec());
        let thread = Thread::start(trust(&site, policy, &[URL]), move |question| {
            assert_eq!(question.url(), URL);
            assert!(question.time_limit() < Duration::from_secs(6));
            let answer = if question.request() == good {
                yes.clone()
            } else {
                assert_eq!(question.request(), revoked);
                no.clone()
            };
            question.respond(Ok(answer));
        });
        for _ in 0..3 {
            let (_, accepted) = thread.verify(&site.camera).unwrap();
            assert_eq!(accepted.undetermined, None);
        }
        assert_eq!(thread.counts(), (1, 0));
        let refused = thread.verify(&bad).unwrap_err().reason().to_owned();
        assert!(refused.contains("camera-18 was revoked at "), "{refused}");
        assert!(refused.contains("an OCSP responder says"), "{refused}");
        // What the peer brings along makes asking unnecessary.
        let third = site.device("camera-19");
        thread.show(9, &third, &[site.good(&third)]);
        assert!(thread.result().1.is_ok());
        assert_eq!(thread.counts(), (2, 0));
        // A chain that is refused anyway is nothing to ask about.
        let stranger = Site::new(OffsetDateTime::now_utc());
        assert!(thread.verify(&stranger.camera).is_err());
        assert_eq!(thread.counts(), (2, 0));
        thread.end();
    }
}

#[test]
fn undetermined_status_is_left_to_the_policy() {
    let site = site();
    type Answer = Result<Vec<u8>, String>;
    let unknown = site.unknown(&site.camera);
    let cases: [(Answer, &str); 3] = [
        (Err("connection refused".into()), "connection refused"),
        (Ok(vec![0; MAX_RESPONSE_LEN + 1]), "the answer is too large"),
        (Ok(unknown), "it does not know the certificate"),
    ];
    for (answer, why) in cases {
        let why = format!("{URL}: {why}");
        for policy in [OcspPolicy::IfGiven, OcspPolicy::Required] {
            let answer = answer.clone();
            let responder = move |question: OcspRequest| question.respond(answer.clone());
            let thread = Thread::start(trust(&site, policy, &[URL]), responder);
            match (policy, thread.verify(&site.camera)) {
                (OcspPolicy::IfGiven, Ok((_, accepted))) => {
                    assert_eq!(accepted.undetermined.as_ref(), Some(&why));
                }
                (OcspPolicy::Required, Err(refused)) => {
                    let subject = "no current OCSP response for the certificate of camera-17";
                    assert_eq!(refused.reason(), format!("{subject}: {why}"));
                }
                (_, other) => panic!("{policy:?}: {other:?}"),
            }
            assert_eq!(thread.counts(), (1, 1));
            thread.end();
        }
    }
}

#[test]
fn peer_without_a_responder_or_inside_eap_causes_no_request() {
    let site = site();
    let nobody = |_: OcspRequest| panic!("nobody was to be asked");
    let off = trust(&site, OcspPolicy::Off, &[]);
    let silent = trust(&site, OcspPolicy::Required, &[]);
    let thread = Thread::start(off, nobody);
    assert!(thread.verify(&site.camera).is_ok());
    thread.end();
    let thread = Thread::start(silent, nobody);
    let refused = thread.verify(&site.camera).unwrap_err().reason().to_owned();
    assert!(
        refused.ends_with("for the certificate of camera-17"),
        "{refused}"
    );
    thread.end();
    let thread = Thread::start(trust(&site, OcspPolicy::IfGiven, &[URL]), nobody);
    let shown = PeerCredentials {
        connection: "peer".to_owned(),
        chain: vec![site.camera.to_der().unwrap()],
        ocsp: Vec::new(),
        in_eap: true,
        requirement: Arc::default(),
    };
    let id = identity::of_subject(&site.camera).unwrap();
    thread.jobs.send(Job::Verify(1, shown, id)).unwrap();
    assert!(thread.result().1.is_ok());
    assert_eq!(thread.counts(), (0, 0));
    thread.end();
}

#[test]
fn hanging_responder_delays_nobody_else() {
    let site = site();
    let (slow, quick) = (site.device("camera-18"), site.good(&site.camera));
    let silent = site.query(&slow).request().to_vec();
    let (keep, kept) = mpsc::channel();
    let responder = move |question: OcspRequest| {
        if question.request() == silent {
            keep.send(question).unwrap();
        } else {
            question.respond(Ok(quick.clone()));
        }
    };
    let thread = Thread::start(trust(&site, OcspPolicy::Required, &[URL]), responder);
    let begin = Instant::now();
    // The same twice: one question.
    thread.show(1, &slow, &[]);
    thread.show(2, &slow, &[]);
    // Meanwhile others are verified: with an answer, without a question, and refused.
    let third = site.device("camera-19");
    thread.show(3, &site.camera, &[]);
    thread.show(4, &third, &[site.good(&third)]);
    thread.show(5, &third, &[site.revoked(&third)]);
    let mut verified: Vec<(u32, bool)> = (0..3)
        .map(|_| thread.result())
        .map(|(peer, result)| (peer, result.is_ok()))
        .collect();
    verified.sort_unstable();
    assert_eq!(verified, [(3, true), (4, true), (5, false)]);
    let question = kept.recv_timeout(SOON).unwrap();
    let patience = question.time_limit();
    assert!(begin.elapsed() < patience, "others waited for it");
    // It ends by itself; both are told why.
    for peer in [1, 2] {
        let (verified, result) = thread.found.recv_timeout(2 * patience).unwrap();
        assert_eq!(verified, peer);
        let refused = result.unwrap_err().reason().to_owned();
        assert!(
            refused.ends_with(&format!("{URL}: no answer in time")),
            "{refused}"
        );
    }
    assert!(begin.elapsed() >= patience);
    assert_eq!(thread.counts(), (2, 2));
    // What it says then changes nothing, and is not remembered.
    question.respond(Ok(site.good(&slow)));
    thread.show(6, &slow, &[]);
    let again = kept.recv_timeout(SOON).unwrap();
    again.respond(Ok(site.good(&slow)));
    let (peer, result) = thread.result();
    assert_eq!((peer, result.is_ok()), (6, true));
    assert!(kept.try_recv().is_err());
    thread.end();
}

#[test]
fn settings_changed_while_waiting_count_at_once() {
    let site = site();
    let (keep, kept) = mpsc::channel();
    let responder = move |question: OcspRequest| keep.send(question).unwrap();
    let thread = Thread::start(trust(&site, OcspPolicy::Required, &[URL]), responder);
    thread.show(1, &site.camera, &[]);
    let question = kept.recv_timeout(SOON).unwrap();
    // Meanwhile the authority is not trusted any more: what the responder says does not help.
    let other = Site::new(OffsetDateTime::now_utc());
    let set = |trust| *thread.shared.write().unwrap() = Authorities::new(Some(trust));
    set(trust(&other, OcspPolicy::Required, &[URL]));
    question.respond(Ok(site.good(&site.camera)));
    let (_, result) = thread.result();
    let refused = result.unwrap_err().reason().to_owned();
    assert!(
        refused.contains("unknown authority") || refused.contains("signature"),
        "{refused}"
    );
    assert!(!refused.contains("OCSP"), "{refused}");
    // Another responder is asked from now on.
    let elsewhere = "http://elsewhere.example.org/";
    set(trust(&other, OcspPolicy::Required, &[elsewhere]));
    thread.show(2, &other.camera, &[]);
    let question = kept.recv_timeout(SOON).unwrap();
    assert_eq!(question.url(), elsewhere);
    question.respond(Ok(other.good(&other.camera)));
    assert!(thread.result().1.is_ok());
    thread.end();
}

#[test]
fn waiting_for_responders_fits_into_a_handshake() {
    let limit = pki::ocsp::client::TIME_LIMIT;
    assert!(2 * limit < ikev2::Limits::default().handshake_time);
}
