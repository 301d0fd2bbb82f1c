//! The workers of a tunnel together: one thread each, with a queue of the interface and a socket of its
//! own, and associations that are the same for all.
//!
//! ```text
//!            ┌─ queue 0 ◄─┐   ┌─► queue 1 ─┐
//! interface ─┤            worker 0         ├─ ...     each reads its own queue and socket,
//!            └────────────  socket 0  ─────┘          and writes to the next one's queue
//! ```
//!
//! What answers a packet comes from the queue to which that packet was written (tun driver, "automatic steering"), and
//! each worker writes to the queue of the next one. So what a peer sends is opened by one worker and what it is sent is
//! protected by another: two cores serve one peer, more serve more peers, and no two workers are after the same
//! association. The kernel spreads what comes in over the sockets by peer, or by SPI where keys are negotiated.
//!
//! Where each worker has a Child SA of its own (RFC 9611, `children::resources`), it writes to its own queue: what answers leaves by the same Child SA.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use offload::Accelerator;
use sys::privileges;
use sys::tun::Tun;

use crate::associations::{associations, reserved_associations};
use crate::child_sa::{ChildCommand, ChildSa};
use crate::children::Install;
use crate::command::{Command, WorkerHandle};
use crate::config::{InterfaceConfig, StaticConfig};
use crate::counters::Snapshot;
use crate::data_plane::{
    Capabilities, DataPlane, DataPlaneError, ManualKeying, NegotiatedKeying, PreparedChild, Refusal,
};
use crate::rekey::{RekeyError, SaPair};
use crate::reservation::ReservationStore;
use crate::worker::Worker;

/// Bytes of the largest GSO super-packet: protected, it still fits one send.
pub(crate) const GSO_MAX_SIZE: u32 = 60_000;

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Handle to all workers of a tunnel.
#[derive(Debug)]
pub struct WorkersHandle {
    workers: Arc<[WorkerHandle]>,
    /// Where sequence numbers of manual keys are reserved.
    store: Option<ReservationStore>,
    /// Device to which packets under negotiated keys are offered.
    accelerator: Option<Arc<dyn Accelerator>>,
}

impl WorkersHandle {
    /// The same, which reserves sequence numbers of later keys there.
    pub(crate) fn with_store(self, store: ReservationStore) -> Self {
        Self {
            store: Some(store),
            ..self
        }
    }

    /// The same, which has packets under negotiated keys offered to a device.
    pub(crate) fn with_accelerator(self, accelerator: Option<Arc<dyn Accelerator>>) -> Self {
        Self {
            accelerator,
            ..self
        }
    }

    /// Lets new associations take over, one pair for each worker.
    ///
    /// # Errors
    /// [`RekeyError`]; what was in use stays in use.
    fn install(&self, pairs: Vec<SaPair>) -> Result<(), RekeyError> {
        let answers: Vec<_> = self
            .workers
            .iter()
            .zip(pairs)
            .map(|(worker, pair)| {
                let (sender, receiver) = mpsc::sync_channel(1);
                worker.send(Command::Rekey(Box::new(pair), sender));
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

impl DataPlane for WorkersHandle {
    fn snapshot(&self) -> Option<Snapshot> {
        let answers: Vec<_> = self
            .workers
            .iter()
            .map(|worker| {
                let (sender, receiver) = mpsc::sync_channel(1);
                worker.send(Command::Snapshot(sender));
                receiver
            })
            .collect();
        let states: Result<Vec<Snapshot>, _> = answers
            .into_iter()
            .map(|answer| answer.recv_timeout(PATIENCE))
            .collect();
        states.ok()?.into_iter().reduce(Snapshot::and)
    }

    fn stop(&self) {
        // Those that have ended need no command.
        drop(StopAll(&self.workers));
    }
}

impl ManualKeying for WorkersHandle {
    fn rekey(&self, config: &StaticConfig) -> Result<(), DataPlaneError> {
        let now = Instant::now();
        let pairs = match &self.store {
            Some(store) => reserved_associations(config, store, now)?,
            None => associations(config, now)?,
        };
        Ok(self.install(pairs)?)
    }
}

impl NegotiatedKeying for WorkersHandle {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            workers: self.workers.len(),
            moves: true,
            same_spi: true,
        }
    }

    fn prepare(&self, child: &ChildSa, now: Instant) -> Result<PreparedChild, Refusal> {
        // There is one at least.
        let count = NonZeroUsize::new(self.workers.len()).unwrap_or(NonZeroUsize::MIN);
        let installs = Install::for_workers(child, now, count, self.accelerator.as_ref())?;
        let workers = Arc::clone(&self.workers);
        let switch = child
            .send_now
            .then_some(ChildCommand::Switch(child.inbound.spi));
        Ok(PreparedChild::new(move || {
            for (worker, install) in workers.iter().zip(installs) {
                worker.send(Command::Install(Box::new(install.until_commanded())));
            }
            // A peer answers to what one worker sends, and another one may get the answer.
            for (worker, switch) in workers.iter().zip(switch.iter().cycle()) {
                worker.send(Command::Child(switch.clone()));
            }
        }))
    }

    fn handle(&self, command: ChildCommand) {
        for worker in self.workers.iter() {
            worker.send(Command::Child(command.clone()));
        }
    }
}

/// Ends all workers when it goes, also by a panic.
struct StopAll<'a>(&'a [WorkerHandle]);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        for worker in self.0 {
            worker.send(Command::Stop);
        }
    }
}

/// The queues of an interface, each with the one to write to: the next worker's.
///
/// # Errors
/// What the kernel refused.
pub(crate) fn queues(config: &InterfaceConfig) -> io::Result<Vec<(Tun, Tun)>> {
    let queues = Tun::create_queues(&config.name, config.offload, config.workers)?;
    // The last one writes to the first; a single one to itself.
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
    /// Stops those that are left when one has ended.
    handles: Vec<WorkerHandle>,
}

impl Workers {
    /// Puts workers together that were made for one tunnel.
    ///
    /// # Errors
    /// Those of copying a descriptor.
    pub(crate) fn new(made: Vec<(Worker, WorkerHandle)>) -> io::Result<(Self, WorkersHandle)> {
        let (workers, handles): (Vec<Worker>, Vec<WorkerHandle>) = made.into_iter().unzip();
        let copies: io::Result<Vec<_>> = handles.iter().map(WorkerHandle::try_clone).collect();
        let handle = WorkersHandle {
            workers: copies?.into(),
            store: None,
            accelerator: None,
        };
        Ok((Self { workers, handles }, handle))
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
        let handles = &self.handles;
        let work = |worker: &mut Worker| {
            let _end = StopAll(handles);
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
                threads.push(started.inspect_err(|_| drop(StopAll(handles)))?);
            }
            let result = work(first);
            threads.into_iter().fold(result, |result, thread| {
                let ended = thread.join();
                result.and(ended.unwrap_or_else(|_| Err(io::Error::other("a worker panicked"))))
            })
        })
    }
}
