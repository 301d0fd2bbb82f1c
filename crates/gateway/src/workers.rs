//! The workers of a tunnel together: one thread each, with a queue of the interface and a socket of its
//! own, and associations that are the same for all.
//!
//! ```text
//!            ┌─ queue 0 ◄─┐   ┌─► queue 1 ─┐
//! interface ─┤            worker 0         ├─ ...     each reads its own queue and socket,
//!            └────────────  socket 0  ─────┘          and writes to the next one's queue
//! ```
//!
//! The kernel spreads what comes in over the sockets by peer. What answers a packet comes from the queue
//! to which that packet was written (tun driver, "automatic steering"), and each worker writes to the
//! queue of the next one. So what a peer sends is opened by one worker and what it is sent is protected
//! by another: two cores serve one peer, more serve more peers, and no two workers are after the same
//! association.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use ipsec::sa::{InboundSa, OutboundSa};
use sys::tun::Tun;

use crate::backend::{Backend, BackendError};
use crate::children::ChildOrder;
use crate::config::{InterfaceConfig, StaticConfig};
use crate::counters::Snapshot;
use crate::privileges;
use crate::rekey::RekeyError;
use crate::reservation::ReservationStore;
use crate::worker::Worker;

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a worker can be told.
pub enum Command {
    /// Lets a new pair of associations take over; answers once it is installed.
    Rekey(Box<SaPair>, SyncSender<Result<(), RekeyError>>),
    /// What changes about Child SAs.
    Child(ChildOrder),
    /// Answers with the state.
    Snapshot(SyncSender<Snapshot>),
    /// Ends the worker.
    Stop,
}

/// Two associations that belong together.
pub struct SaPair {
    /// For what is sent.
    pub outbound: OutboundSa,
    /// For what is received.
    pub inbound: InboundSa,
    /// Where it is sent.
    pub remote: SocketAddr,
}

/// Tells one worker what to do.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) commands: Sender<Command>,
    pub(crate) wake: UnixStream,
}

impl Post {
    /// Sends a command and wakes the worker. False when it has ended.
    fn send(&self, command: Command) -> bool {
        // A full wake-up socket is as good as one more byte in it.
        self.commands.send(command).is_ok() && (&self.wake).write(&[1]).map_or(true, |n| n == 1)
    }
}

/// Tells all workers of a tunnel what to do.
#[derive(Debug)]
pub struct WorkersHandle {
    posts: Vec<Post>,
    /// Where sequence numbers of manual keys are reserved.
    store: Option<ReservationStore>,
}

impl WorkersHandle {
    /// The same, which reserves sequence numbers of later keys there.
    pub(crate) fn with_store(self, store: ReservationStore) -> Self {
        Self {
            store: Some(store),
            ..self
        }
    }

    /// Tells all about a Child SA. False when one has ended.
    pub fn child(&self, order: ChildOrder) -> bool {
        let orders = order.for_workers(self.posts.len());
        let told = self.posts.iter().zip(orders);
        told.fold(true, |all, (post, order)| {
            post.send(Command::Child(order)) && all
        })
    }

    /// Lets new associations take over, one pair for each worker.
    ///
    /// # Errors
    /// [`RekeyError`]; what was in use stays in use.
    fn install(&self, pairs: Vec<SaPair>) -> Result<(), RekeyError> {
        let answers: Vec<_> = self
            .posts
            .iter()
            .zip(pairs)
            .map(|(post, pair)| {
                let (sender, receiver) = mpsc::sync_channel(1);
                post.send(Command::Rekey(Box::new(pair), sender));
                receiver
            })
            .collect();
        // All have the same associations, so all say the same, unless one has ended.
        answers.into_iter().try_for_each(|answer| {
            let answer = answer.recv_timeout(PATIENCE);
            answer.unwrap_or(Err(RekeyError::Ended))
        })
    }
}

impl Backend for WorkersHandle {
    fn rekey(&self, config: &StaticConfig) -> Result<(), BackendError> {
        let now = Instant::now();
        let pairs = match &self.store {
            Some(store) => crate::daemon::reserved_associations(config, store, now)?,
            None => crate::daemon::associations(config, now)?,
        };
        Ok(self.install(pairs)?)
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let asked: Vec<_> = self
            .posts
            .iter()
            .map(|post| {
                let (sender, receiver) = mpsc::sync_channel(1);
                post.send(Command::Snapshot(sender));
                receiver
            })
            .collect();
        let states: Result<Vec<Snapshot>, _> = asked
            .into_iter()
            .map(|answer| answer.recv_timeout(PATIENCE))
            .collect();
        states.ok()?.into_iter().reduce(Snapshot::and)
    }

    fn stop(&self) {
        // Those that have ended need no order.
        drop(StopAll(&self.posts));
    }
}

/// Ends all workers when it goes, also by a panic.
struct StopAll<'a>(&'a [Post]);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        for post in self.0 {
            post.send(Command::Stop);
        }
    }
}

/// The queues of an interface, each with the one to write to: the next worker's.
///
/// # Errors
/// What the kernel refused.
pub(crate) fn queues(config: &InterfaceConfig) -> io::Result<Vec<(Tun, Tun)>> {
    let queues = Tun::create_queues(&config.name, config.offload, config.workers)?;
    let next = queues.iter().cycle().skip(1);
    let answers: io::Result<Vec<Tun>> = queues
        .iter()
        .zip(next)
        .map(|(_, next)| next.try_clone())
        .collect();
    Ok(queues.into_iter().zip(answers?).collect())
}

/// The workers of one tunnel, not yet running.
pub struct Workers {
    workers: Vec<Worker>,
    /// Wakes those that are left when one has ended.
    posts: Vec<Post>,
}

impl Workers {
    /// Puts workers together that were made for one tunnel.
    ///
    /// # Errors
    /// Those of copying a descriptor.
    pub(crate) fn new(made: Vec<(Worker, Post)>) -> io::Result<(Self, WorkersHandle)> {
        let (workers, posts): (Vec<Worker>, Vec<Post>) = made.into_iter().unzip();
        let copies: io::Result<Vec<Post>> = posts
            .iter()
            .map(|post| {
                Ok(Post {
                    commands: post.commands.clone(),
                    wake: post.wake.try_clone()?,
                })
            })
            .collect();
        let ours = Self {
            workers,
            posts: copies?,
        };
        Ok((ours, WorkersHandle { posts, store: None }))
    }

    /// Moves packets until told to stop, without privileges. When one worker fails, all end.
    ///
    /// # Errors
    /// What made the first one fail.
    pub fn run(self) -> io::Result<()> {
        // Most of what is resident by now read configurations and set things up.
        if let Err(error) = sys::memory::release_code() {
            tracing::debug!(%error, "code that is not needed stays resident");
        }
        let posts = &self.posts;
        let work = |worker: &mut Worker| {
            let _end = StopAll(posts);
            // Privileges belong to threads, and each gives up its own.
            privileges::drop_all().and_then(|()| worker.run())
        };
        let mut workers = self.workers;
        let Some((first, others)) = workers.split_first_mut() else {
            return Ok(());
        };
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, worker) in others.iter_mut().enumerate() {
                let name = format!("vpn-worker-{}", number + 1);
                let started = thread::Builder::new().name(name);
                let started = started.spawn_scoped(scope, || work(worker));
                threads.push(started.inspect_err(|_| drop(StopAll(posts)))?);
            }
            let result = work(first);
            threads.into_iter().fold(result, |result, thread| {
                let ended = thread.join();
                result.and(ended.unwrap_or_else(|_| Err(io::Error::other("a worker panicked"))))
            })
        })
    }
}
