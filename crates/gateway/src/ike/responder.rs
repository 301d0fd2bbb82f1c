//! Asks OCSP responders about certificates of peers (RFC 6960 §2.1), in turn, and remembers good answers.
//!
//! Nothing here waits, opens a socket or reads a clock: questions come out of [`Asking::poll_question`],
//! answers go into [`Asking::answered`], and whoever hears none is told so in time.
//!
//! ```text
//! ask ──► its turn comes ──► asked ──► a useful answer ─────────► Done (good ones are remembered)
//!              ▲               │
//!              └── next address ┴── none, useless, too late ──► no address left, no time left ─► Done
//! ```
//!
//! Who is asked stands in the configuration. The address in a peer's certificate is never followed:
//! whoever had it certified would choose whom a gateway talks to.

mod cache;

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use time::OffsetDateTime;

use self::cache::Cache;
use super::judge::Job;
use super::ocsp::{About, Said};

/// Bytes of an answer at most; larger ones are as none. Usual ones have less than two thousand.
pub const ANSWER_MAX: usize = 16 * 1024;
/// Responders that can be named.
pub(super) const RESPONDERS: usize = 4;

/// How long a peer waits in all, whatever the number of responders. Handshakes have 30 seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Responders that are asked at a time; further questions wait for their turn.
const AT_ONCE: usize = 8;
/// Certificates in question, those with the responder and those that wait for their turn; further ones
/// get no answer.
const QUESTIONS: usize = 64;
/// Peers that wait for the answer about one certificate. Each has a chain here; further ones get no answer.
const SAME: usize = 8;

/// What a responder is asked.
///
/// Whoever has it asks within [`Self::patience`] and gives the answer; when none came by then, nobody
/// waits for it any more.
pub struct Question {
    url: String,
    request: Vec<u8>,
    patience: Duration,
    number: u64,
    answers: Answers,
}

/// How responders are asked. It is called by the thread that judges certificates, so it does not wait.
pub type AskResponder = Box<dyn Fn(Question) + Send>;

impl Question {
    /// The responder's address, as it was configured.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is sent there (DER), as `application/ocsp-request` (RFC 6960 Appendix A.1).
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// How long it may take.
    pub const fn patience(&self) -> Duration {
        self.patience
    }

    /// Gives the answer (DER, at most [`ANSWER_MAX`] bytes), or why there is none, in words for the
    /// operator. Does not wait.
    pub fn answer(self, answer: Result<Vec<u8>, String>) {
        self.answers.put(self.number, answer);
    }
}

type Numbered = (u64, Result<Vec<u8>, String>);

/// Answers on their way back. Those who bring them need not wait for a thread that is busy.
#[derive(Clone)]
pub(super) struct Answers {
    come: Arc<Mutex<Vec<Numbered>>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Answers {
    /// With a way to wake the thread that judges.
    pub(super) fn new<T: Send + 'static>(jobs: SyncSender<Job<T>>) -> Self {
        Self {
            come: Arc::default(),
            // If there is no room, it is awake.
            wake: Arc::new(move || drop(jobs.try_send(Job::Answered))),
        }
    }

    fn put(&self, number: u64, answer: Result<Vec<u8>, String>) {
        let mut come = self.come.lock().unwrap_or_else(PoisonError::into_inner);
        come.push((number, answer));
        drop(come);
        (self.wake)();
    }

    /// What came since the last time.
    pub(super) fn take(&self) -> Vec<Numbered> {
        std::mem::take(&mut *self.come.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Something to ask, with the way back.
    pub(super) fn question(&self, sent: Sent) -> Question {
        Question {
            url: sent.url,
            request: sent.request,
            patience: sent.patience,
            number: sent.number,
            answers: self.clone(),
        }
    }
}

/// A question that goes out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Names it.
    pub(super) number: u64,
    /// To whom.
    pub(super) url: String,
    /// What (DER).
    pub(super) request: Vec<u8>,
    /// How long it may take.
    pub(super) patience: Duration,
}

/// Those who waited for an answer, and the answer (DER), or why there is none.
pub(super) struct Done<W> {
    pub(super) waiting: Vec<W>,
    pub(super) answer: Result<Vec<u8>, String>,
}

/// A question that is with a responder.
struct Attempt {
    number: u64,
    url: String,
    until: Instant,
}

/// A certificate in question.
struct Open<W> {
    about: About,
    /// Responders that were not asked yet.
    urls: VecDeque<String>,
    attempt: Option<Attempt>,
    deadline: Instant,
    waiting: Vec<W>,
    /// What came of earlier attempts.
    failures: Vec<String>,
}

/// Questions to responders, and those who wait for the answers (`W`).
pub(super) struct Asking<W> {
    /// By what is asked, so the same is asked once.
    open: BTreeMap<Vec<u8>, Open<W>>,
    /// Whose turn comes next.
    turn: VecDeque<Vec<u8>>,
    cache: Cache,
    next: u64,
}

impl<W> Asking<W> {
    pub(super) fn new() -> Self {
        Self {
            open: BTreeMap::new(),
            turn: VecDeque::new(),
            cache: Cache::default(),
            next: 0,
        }
    }

    /// Whether a responder said before that this certificate is good, and that is still current.
    pub(super) fn is_good(&mut self, about: &About, utc: OffsetDateTime) -> bool {
        let known = self.cache.get(about.request(), utc);
        known.is_some_and(|answer| matches!(about.says(answer, utc), Ok((Said::Good, _))))
    }

    /// Asks the responders at `urls`, the first one first, for somebody who waits.
    ///
    /// # Errors
    /// Gives who would wait back, and why that is not possible.
    pub(super) fn ask(
        &mut self,
        about: About,
        urls: &[String],
        waiting: W,
        now: Instant,
    ) -> Result<(), (W, &'static str)> {
        if let Some(open) = self.open.get_mut(about.request()) {
            if open.waiting.len() >= SAME {
                return Err((waiting, "too many peers wait for the same answer"));
            }
            open.waiting.push(waiting);
            return Ok(());
        }
        if self.open.len() >= QUESTIONS {
            return Err((waiting, "too many questions wait for responders"));
        }
        let key = about.request().to_vec();
        let open = Open {
            about,
            urls: urls.iter().cloned().collect(),
            attempt: None,
            deadline: now + PATIENCE,
            waiting: vec![waiting],
            failures: Vec::new(),
        };
        self.open.insert(key.clone(), open);
        self.turn.push_back(key);
        Ok(())
    }

    /// What goes out next; none when enough is out.
    pub(super) fn poll_question(&mut self, now: Instant) -> Option<Sent> {
        let out = self.open.values().filter(|open| open.attempt.is_some());
        if out.count() >= AT_ONCE {
            return None;
        }
        let key = self.turn.pop_front()?;
        let open = self.open.get_mut(&key)?;
        let left = u32::try_from(open.urls.len()).unwrap_or(u32::MAX).max(1);
        let url = open.urls.pop_front()?;
        // Each that is left gets its share, so that a silent one does not take the others' time.
        let patience = open.deadline.saturating_duration_since(now) / left;
        self.next = self.next.wrapping_add(1);
        open.attempt = Some(Attempt {
            number: self.next,
            url: url.clone(),
            until: now + patience,
        });
        Some(Sent {
            number: self.next,
            url,
            request: key,
            patience,
        })
    }

    /// What a responder answered. What comes too late is nobody's.
    pub(super) fn answered(
        &mut self,
        number: u64,
        answer: Result<Vec<u8>, String>,
        utc: OffsetDateTime,
    ) -> Option<Done<W>> {
        let is_it = |open: &Open<W>| open.attempt.as_ref().is_some_and(|a| a.number == number);
        let (key, open) = self.open.iter().find(|(_, open)| is_it(open))?;
        let key = key.clone();
        let useful = answer.and_then(|answer| {
            if answer.len() > ANSWER_MAX {
                return Err("the answer is too large".to_owned());
            }
            let said = open.about.says(&answer, utc);
            let (said, until) = said.map_err(|useless| useless.to_string())?;
            Ok((answer, said, until))
        });
        match useful {
            Ok((answer, said, until)) => {
                if said == Said::Good {
                    self.cache.insert(key.clone(), answer.clone(), until, utc);
                }
                let waiting = self.open.remove(&key)?.waiting;
                let answer = Ok(answer);
                Some(Done { waiting, answer })
            }
            Err(why) => self.failed(key, &why),
        }
    }

    /// Goes on with the next responder, if there is one.
    fn failed(&mut self, key: Vec<u8>, why: &str) -> Option<Done<W>> {
        let open = self.open.get_mut(&key)?;
        let attempt = open.attempt.take()?;
        open.failures.push(format!("{}: {why}", attempt.url));
        if !open.urls.is_empty() {
            // It has waited for its turn already.
            self.turn.push_front(key);
            return None;
        }
        let open = self.open.remove(&key)?;
        Some(open.nothing())
    }

    /// Ends what has taken too long.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Vec<Done<W>> {
        let late = |open: &Open<W>| {
            let attempt = open.attempt.as_ref();
            open.deadline <= now || attempt.is_some_and(|attempt| attempt.until <= now)
        };
        let late = self.open.iter().filter(|(_, open)| late(open));
        let late: Vec<Vec<u8>> = late.map(|(key, _)| key.clone()).collect();
        let mut done = Vec::new();
        for key in late {
            if let Some(ended) = self.failed(key.clone(), "no answer in time") {
                done.push(ended);
            }
            // Others may be left, but no time for them.
            if self.open.get(&key).is_some_and(|open| open.deadline <= now)
                && let Some(mut open) = self.open.remove(&key)
            {
                self.turn.retain(|other| *other != key);
                for url in open.urls.drain(..) {
                    open.failures
                        .push(format!("{url}: there was no time to ask it"));
                }
                done.push(open.nothing());
            }
        }
        done
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let of = |open: &Open<W>| match &open.attempt {
            Some(attempt) => attempt.until.min(open.deadline),
            None => open.deadline,
        };
        self.open.values().map(of).min()
    }
}

impl<W> Open<W> {
    fn nothing(self) -> Done<W> {
        Done {
            waiting: self.waiting,
            answer: Err(self.failures.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests;
