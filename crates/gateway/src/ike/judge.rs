//! The thread that judges certificates of peers. While a responder is asked about one, it judges others.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use ikev2::AskId;
use ikev2::wire::Identification;
use time::OffsetDateTime;

use super::control::Shown;
use super::responder::{Answers, AskResponder, Asking, Done};
use super::trust::{Accepted, Distrust, Trust};

/// What it is to do. `T` names a peer until it is judged.
pub(super) enum Job<T> {
    Verify(T, Shown, Identification),
    Crls(Vec<Vec<u8>>),
    /// A responder has answered.
    Answered,
    /// The daemon ends, though others can still ask.
    End,
}

pub(super) type TrustJob = Job<AskId>;

/// Why a certificate is refused, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// By any connection.
    Unacceptable(String),
    /// It is valid, and another connection may take it.
    Elsewhere(String),
}

impl Refused {
    #[cfg(test)]
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Unacceptable(reason) | Self::Elsewhere(reason) => reason,
        }
    }
}

impl From<Distrust> for Refused {
    fn from(error: Distrust) -> Self {
        match error {
            Distrust::Requirement { .. } => Self::Elsewhere(error.to_string()),
            other => Self::Unacceptable(other.to_string()),
        }
    }
}

fn no_authority() -> Refused {
    Refused::Unacceptable("no authority is trusted".to_owned())
}

/// What it says.
pub(super) enum Finding<T> {
    /// The peer's public key, or why it is refused.
    Verdict(T, Result<(Vec<u8>, Accepted), Refused>),
    /// Revocation lists were taken over.
    Recheck,
}

pub(super) type SharedTrust = Arc<RwLock<Option<Arc<Trust>>>>;

/// How often responders were asked, and how often nothing came of it.
#[derive(Default)]
pub(super) struct Asked {
    /// Questions that went out.
    pub(super) questions: AtomicU64,
    /// Peers that were judged without the answer that was to come.
    pub(super) unanswered: AtomicU64,
}

pub(super) fn accept(trust: &Trust, lists: &[Vec<u8>]) {
    for list in lists {
        match trust.accept_crl(list, OffsetDateTime::now_utc()) {
            Ok(()) | Err(pki::crl::CrlError::Rollback) => {}
            Err(error) => tracing::error!(%error, "a revocation list is not taken over"),
        }
    }
}

/// A peer that waits for a responder's answer.
struct Waiting<T> {
    peer: T,
    shown: Shown,
    id: Identification,
}

/// The thread's state.
pub(super) struct Judge<T> {
    shared: SharedTrust,
    /// How responders are asked, where there is a way.
    ask: Option<AskResponder>,
    answers: Answers,
    asking: Asking<Waiting<T>>,
    asked: Arc<Asked>,
    tell: Box<dyn Fn(Finding<T>) + Send>,
}

impl<T: Send + 'static> Judge<T> {
    /// `jobs` is the way to [`Self::run`], `tell` hears what it finds.
    pub(super) fn new(
        shared: SharedTrust,
        ask: Option<AskResponder>,
        asked: Arc<Asked>,
        jobs: SyncSender<Job<T>>,
        tell: Box<dyn Fn(Finding<T>) + Send>,
    ) -> Self {
        Self {
            shared,
            ask,
            answers: Answers::new(jobs),
            asking: Asking::new(),
            asked,
            tell,
        }
    }

    pub(super) fn run(mut self, jobs: &Receiver<Job<T>>) -> io::Result<()> {
        loop {
            self.serve_questions();
            let job = match self.asking.poll_timeout() {
                Some(at) => match jobs.recv_timeout(at.saturating_duration_since(Instant::now())) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => break,
                },
                None => match jobs.recv() {
                    Ok(job) => job,
                    Err(_) => break,
                },
            };
            match job {
                Job::Verify(peer, shown, id) => self.verify(Waiting { peer, shown, id }),
                Job::Crls(lists) => {
                    if let Some(trust) = self.trust() {
                        accept(&trust, &lists);
                        (self.tell)(Finding::Recheck);
                    }
                }
                // Looked at before the next job.
                Job::Answered => {}
                Job::End => break,
            }
        }
        Ok(())
    }

    fn trust(&self) -> Option<Arc<Trust>> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        shared.clone()
    }

    /// Takes answers, ends what has taken too long, and sends what may go out.
    fn serve_questions(&mut self) {
        for (number, answer) in self.answers.take() {
            let utc = OffsetDateTime::now_utc();
            if let Some(done) = self.asking.answered(number, answer, utc) {
                self.judge_again(done);
            }
        }
        for done in self.asking.handle_timeout(Instant::now()) {
            self.judge_again(done);
        }
        let Some(ask) = &self.ask else { return };
        while let Some(sent) = self.asking.poll_question(Instant::now()) {
            self.asked.questions.fetch_add(1, Ordering::Relaxed);
            ask(self.answers.question(sent));
        }
    }

    fn verify(&mut self, waiting: Waiting<T>) {
        let Some(trust) = self.trust() else {
            let none = Err(no_authority());
            return (self.tell)(Finding::Verdict(waiting.peer, none));
        };
        let utc = OffsetDateTime::now_utc();
        let Waiting { shown, id, .. } = &waiting;
        let passed = match trust.examine(&shown.chain, &shown.ocsp, id, &shown.requirement, utc) {
            Ok(passed) => passed,
            Err(error) => {
                let refused = Err(error.into());
                return (self.tell)(Finding::Verdict(waiting.peer, refused));
            }
        };
        let to_be_asked = !shown.in_eap && !trust.responders().is_empty() && self.ask.is_some();
        let question = to_be_asked.then(|| passed.question()).flatten();
        let (peer, passed, unanswered) = match question {
            None => (waiting.peer, passed, None),
            Some(about) if self.asking.is_good(&about, utc) => (waiting.peer, passed.good(), None),
            Some(about) => {
                let urls = trust.responders();
                match self.asking.ask(about, urls, waiting, Instant::now()) {
                    Ok(()) => return,
                    Err((waiting, why)) => (waiting.peer, passed, Some(why.to_owned())),
                }
            }
        };
        self.conclude(&trust, peer, passed, unanswered);
    }

    /// Judges those who waited for an answer, from the beginning: lists, authorities and the time may be
    /// others by now. They do not wait a second time.
    fn judge_again(&mut self, done: Done<Waiting<T>>) {
        for waiting in done.waiting {
            let Some(trust) = self.trust() else {
                let none = Err(no_authority());
                (self.tell)(Finding::Verdict(waiting.peer, none));
                continue;
            };
            let Waiting { peer, shown, id } = waiting;
            // The answer first: only so many responses are looked at.
            let mut ocsp: Vec<Vec<u8>> = done.answer.iter().cloned().collect();
            ocsp.extend(shown.ocsp);
            let (chain, demand) = (&shown.chain, &shown.requirement);
            match trust.examine(chain, &ocsp, &id, demand, OffsetDateTime::now_utc()) {
                Ok(passed) => {
                    let why = done.answer.as_ref().err().cloned();
                    let why = why.unwrap_or_else(|| "the answer came too late".to_owned());
                    let unanswered = passed.is_unsaid().then_some(why);
                    self.conclude(&trust, peer, passed, unanswered);
                }
                Err(error) => (self.tell)(Finding::Verdict(peer, Err(error.into()))),
            }
        }
    }

    fn conclude(
        &self,
        trust: &Trust,
        peer: T,
        passed: super::trust::Passed,
        unanswered: Option<String>,
    ) {
        if unanswered.is_some() {
            self.asked.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        let verdict = trust.conclude(passed, unanswered);
        let verdict = verdict.map_err(Refused::from);
        (self.tell)(Finding::Verdict(peer, verdict));
    }
}

#[cfg(test)]
mod tests;
