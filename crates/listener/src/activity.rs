//! What a connection is doing, and when that has taken too long.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};

use super::Table;
use super::places::Id;

/// Largest piece of an answer handed to the connection at once: progress is seen piece by piece, so
/// that a reader of [`Deadlines::stall`] needs at least some 2 KB/s.
const PIECE: usize = 64 * 1024;

/// Deadlines of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// From accepting a connection to its first complete request: TLS handshake, HTTP/2 preface
    /// and headers included. Up to half as long again, differently for each connection: those that came together
    /// do not end together, and come again together, each time.
    pub first_request: Duration,
    /// Without any request, between requests.
    pub idle: Duration,
    /// Without the reader taking the next piece of an answer.
    pub stall: Duration,
}

/// Why a connection was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// No complete request came.
    FirstRequest,
    /// No further request came.
    Idle,
    /// An answer was not read.
    Stalled,
}

#[derive(Debug)]
struct State {
    accepted: Instant,
    /// 256ths of a half by which the first deadline is longer.
    patience: u32,
    requested: bool,
    idle_since: Instant,
    /// Requests under way: for each whose answer waits for its reader, since when.
    requests: BTreeMap<u64, Option<Instant>>,
    next: u64,
}

/// The activity of one connection; clones are handles to it.
#[derive(Clone)]
pub(crate) struct Activity {
    state: Arc<Mutex<State>>,
    table: Table,
    id: Id,
}

impl Activity {
    pub(crate) fn new(table: Table, id: Id, now: Instant) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                accepted: now,
                patience: u32::from(spread(id)),
                requested: false,
                idle_since: now,
                requests: BTreeMap::new(),
                next: 0,
            })),
            table,
            id,
        }
    }

    /// Notes a complete request; it lasts until what this returns is dropped.
    pub(crate) fn request(&self) -> Request {
        let now = Instant::now();
        let mut state = self.lock();
        state.requested = true;
        let number = state.next;
        state.next = state.next.wrapping_add(1);
        state.requests.insert(number, None);
        drop(state);
        self.table.lock().begin(self.id, now);
        Request {
            activity: self.clone(),
            number,
        }
    }

    /// Ends when the connection has taken too long over something.
    pub(crate) async fn overdue(&self, deadlines: Deadlines) -> Overdue {
        loop {
            let (why, at) = self.next_deadline(deadlines);
            let now = Instant::now();
            if now >= at {
                return why;
            }
            // What happens meanwhile can only move this deadline away or bring a nearer one that
            // is at least as long as the shortest deadline from now.
            let shortest = deadlines.idle.min(deadlines.stall);
            let pause = at.saturating_duration_since(now).min(shortest);
            tokio::time::sleep(pause).await;
        }
    }

    fn next_deadline(&self, deadlines: Deadlines) -> (Overdue, Instant) {
        let state = self.lock();
        if !state.requested {
            let longer = deadlines.first_request * state.patience / 512;
            let at = state.accepted + deadlines.first_request + longer;
            return (Overdue::FirstRequest, at);
        }
        if state.requests.is_empty() {
            return (Overdue::Idle, state.idle_since + deadlines.idle);
        }
        let waiting = state.requests.values().flatten().min();
        // Where nothing waits for the reader, the handler has its own limits.
        let since = waiting.copied().unwrap_or_else(Instant::now);
        (Overdue::Stalled, since + deadlines.stall)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number that differs between successive connections, evenly distributed (Fibonacci hashing).
const fn spread(id: Id) -> u8 {
    let [top, ..] = id.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    top
}

/// A request under way, until it is dropped.
pub struct Request {
    activity: Activity,
    number: u64,
}

impl Request {
    /// The answer's body, under watch until its last byte is taken.
    pub(crate) fn watch(self, body: Body) -> Body {
        self.waits_for_reader(Some(Instant::now()));
        Body::new(Watched {
            body,
            rest: Bytes::new(),
            request: self,
        })
    }

    /// Runs `write`, which sends a part of the answer: it must end within [`Deadlines::stall`].
    pub async fn while_writing<T>(&self, write: impl Future<Output = T>) -> T {
        self.waits_for_reader(Some(Instant::now()));
        let written = write.await;
        self.waits_for_reader(None);
        written
    }

    fn waits_for_reader(&self, since: Option<Instant>) {
        if let Some(entry) = self.activity.lock().requests.get_mut(&self.number) {
            *entry = since;
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.activity.lock();
        state.requests.remove(&self.number);
        state.idle_since = now;
        drop(state);
        let activity = &self.activity;
        activity.table.lock().end(activity.id, now);
    }
}

/// A body that notes when its reader takes something.
struct Watched {
    body: Body,
    rest: Bytes,
    request: Request,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            // While the source has nothing to give, the reader is not to blame.
            self.request.waits_for_reader(None);
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => {
                        self.request.waits_for_reader(Some(Instant::now()));
                        return Poll::Ready(Some(Ok(frame)));
                    }
                },
                other => return Poll::Ready(other),
            }
        }
        self.request.waits_for_reader(Some(Instant::now()));
        let len = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(len);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}
