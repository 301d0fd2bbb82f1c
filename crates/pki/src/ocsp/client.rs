//! An OCSP client without sockets and clock (RFC 6960 §2.1): asks responders in turn, and remembers good
//! answers.
//!
//! Requests come out of [`Client::poll_request`], responses go into [`Client::handle_response`], and
//! whoever waits hears in time that none came. How a request is carried (HTTP) is the caller's.
//!
//! ```text
//! request ──► its turn ──► sent ──► status determined ──────────► Completed (good ones are cached)
//!                ▲           │
//!                └── next URL ┴── none, undetermined, too late ──► no URL, no time left ─► Completed
//! ```
//!
//! Who is asked stands in the configuration. The address in a peer's certificate is never followed:
//! whoever had it certified would choose whom a gateway talks to.

mod cache;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use time::OffsetDateTime;

use self::cache::Cache;
use super::{CertStatus, Query};

/// Bytes of a response at most; larger ones are as none. Usual ones have less than two thousand.
pub const MAX_RESPONSE_LEN: usize = 16 * 1024;
/// Responders that can be named.
pub const MAX_RESPONDERS: usize = 4;

/// How long a peer waits in all, whatever the number of responders. Handshakes have 30 seconds.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Requests that are with responders at a time; further ones wait for their turn.
pub const MAX_SENT: usize = 8;
/// Certificates whose status is asked for, those with a responder and those that wait for their turn;
/// further ones stay undetermined.
pub const MAX_QUERIES: usize = 64;
/// Peers that wait for the status of one certificate. Each has a chain here; further ones are not waited
/// for.
pub const MAX_WAITING: usize = 8;

/// A request on its way to a responder.
#[derive(Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// Number that the response is handed in with.
    pub number: u64,
    /// Address of the responder.
    pub url: String,
    /// The request (DER).
    pub request: Vec<u8>,
    /// How long it may take.
    pub time_limit: Duration,
}

/// A query that came to its end.
#[derive(Debug)]
pub struct Completed<W> {
    pub waiting: Vec<W>,
    /// A response (DER) that determines the status, or why there is none.
    pub response: Result<Vec<u8>, String>,
}

/// A request that is with a responder.
struct Attempt {
    number: u64,
    url: String,
    until: Instant,
}

/// A certificate whose status is asked for.
struct Open<W> {
    query: Query,
    /// Responders that were not asked yet.
    urls: VecDeque<String>,
    attempt: Option<Attempt>,
    deadline: Instant,
    waiting: Vec<W>,
    /// What came of earlier attempts.
    failures: Vec<String>,
}

/// Queries, and those who wait for them (`W`).
pub struct Client<W> {
    /// By what is asked, so the same is asked once.
    open: BTreeMap<Vec<u8>, Open<W>>,
    /// Whose turn comes next.
    turn: VecDeque<Vec<u8>>,
    cache: Cache,
    next: u64,
}

impl<W> Default for Client<W> {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            turn: VecDeque::new(),
            cache: Cache::default(),
            next: 0,
        }
    }
}

impl<W> Client<W> {
    /// A client that has asked nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a responder said before that this certificate is good, and that is still current.
    pub fn is_good(&mut self, query: &Query, utc: OffsetDateTime) -> bool {
        let known = self.cache.get(query.request(), utc);
        known.is_some_and(|answer| matches!(query.status(answer, utc), Ok((CertStatus::Good, _))))
    }

    /// Asks the responders at `urls`, the first one first, for somebody who waits.
    ///
    /// # Errors
    /// Gives who would wait back, and why that is not possible.
    pub fn request(
        &mut self,
        query: Query,
        urls: &[String],
        waiting: W,
        now: Instant,
    ) -> Result<(), (W, &'static str)> {
        if let Some(open) = self.open.get_mut(query.request()) {
            if open.waiting.len() >= MAX_WAITING {
                return Err((waiting, "too many peers wait for the same answer"));
            }
            open.waiting.push(waiting);
            return Ok(());
        }
        if self.open.len() >= MAX_QUERIES {
            return Err((waiting, "too many questions wait for responders"));
        }
        let key = query.request().to_vec();
        let open = Open {
            query,
            urls: urls.iter().cloned().collect(),
            attempt: None,
            deadline: now + TIME_LIMIT,
            waiting: vec![waiting],
            failures: Vec::new(),
        };
        self.open.insert(key.clone(), open);
        self.turn.push_back(key);
        Ok(())
    }

    /// The request to send next; none while enough are out.
    pub fn poll_request(&mut self, now: Instant) -> Option<OutgoingRequest> {
        let out = self.open.values().filter(|open| open.attempt.is_some());
        if out.count() >= MAX_SENT {
            return None;
        }
        let key = self.turn.pop_front()?;
        let open = self.open.get_mut(&key)?;
        let left = u32::try_from(open.urls.len()).unwrap_or(u32::MAX).max(1);
        let url = open.urls.pop_front()?;
        // Each that is left gets its share, so that a silent one does not take the others' time.
        let time_limit = open.deadline.saturating_duration_since(now) / left;
        self.next = self.next.wrapping_add(1);
        open.attempt = Some(Attempt {
            number: self.next,
            url: url.clone(),
            until: now + time_limit,
        });
        Some(OutgoingRequest {
            number: self.next,
            url,
            request: key,
            time_limit,
        })
    }

    /// Takes a response, or why none came. One that comes too late is nobody's.
    pub fn handle_response(
        &mut self,
        number: u64,
        response: Result<Vec<u8>, String>,
        utc: OffsetDateTime,
    ) -> Option<Completed<W>> {
        let is_it = |open: &Open<W>| open.attempt.as_ref().is_some_and(|a| a.number == number);
        let (key, open) = self.open.iter().find(|(_, open)| is_it(open))?;
        let key = key.clone();
        let determined = response.and_then(|response| {
            if response.len() > MAX_RESPONSE_LEN {
                return Err("the answer is too large".to_owned());
            }
            let status = open.query.status(&response, utc);
            let (status, until) = status.map_err(|undetermined| undetermined.to_string())?;
            Ok((response, status, until))
        });
        match determined {
            Ok((response, status, until)) => {
                if status == CertStatus::Good {
                    self.cache.insert(key.clone(), response.clone(), until, utc);
                }
                let waiting = self.open.remove(&key)?.waiting;
                let response = Ok(response);
                Some(Completed { waiting, response })
            }
            Err(why) => self.failed(key, &why),
        }
    }

    /// Goes on with the next responder, if there is one.
    fn failed(&mut self, key: Vec<u8>, why: &str) -> Option<Completed<W>> {
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

    /// Ends queries that have taken too long.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Completed<W>> {
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

    /// Time of the next call of [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let of = |open: &Open<W>| match &open.attempt {
            Some(attempt) => attempt.until.min(open.deadline),
            None => open.deadline,
        };
        self.open.values().map(of).min()
    }
}

impl<W> Open<W> {
    fn nothing(self) -> Completed<W> {
        Completed {
            waiting: self.waiting,
            response: Err(self.failures.join("; ")),
        }
    }
}
