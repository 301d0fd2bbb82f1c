//! All roles of one process on one central log.
//!
//! ```text
//! <dir>/log/               the central log (see crate::log)
//! <dir>/journal/<role>/    each role's journal (see crate::journal)
//! ```
//!
//! An event goes to its role's journal first and to the central log second; it is acknowledged
//! when both are on disk. Callers on many threads share the work: the first becomes the leader and
//! commits whatever has queued up, the others wait. After a crash, [`SharedLog::open`] ships what
//! a journal has and the central log lacks; leaves carry their role and number, so none is shipped
//! twice.
//!
//! After a failed write (a full disk, say) nothing is known of what reached the disk. The callers
//! concerned are refused, and the next commit first brings journals and log together again in the
//! same way; once the disk works, recording goes on without a restart.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use durable::SharedDisk;

use crate::authenticator::Authenticator;
use crate::event::Event;
use crate::journal::{Journal, JournalError, Shipped};
use crate::leaf::{Leaf, is_role_name};
use crate::log::merkle::leaf_hash;
use crate::log::note::{LogKey, VerifierKey};
use crate::log::{BUNDLE_ENTRIES, Log, MAX_BATCH, View};
use crate::mirror::{Batch, MAX_MIRROR_BYTES};
use crate::sink::{AuditError, AuditSink, Logged, Recorded};

mod recover;

/// Records of a role between two notes of how far it was shipped. The note only spares a restart
/// from searching the whole log, so it need not be exact.
const NOTE_EVERY: u64 = 1024;

/// The central log and the journals of all roles of this process; cheap to clone.
#[derive(Clone)]
pub struct SharedLog {
    inner: Arc<Inner>,
}

/// One role's way into the log.
#[derive(Clone)]
pub struct RoleLog {
    role: String,
    inner: Arc<Inner>,
}

struct Inner {
    dir: PathBuf,
    verifier: VerifierKey,
    authenticator: Authenticator,
    disk: SharedDisk,
    /// Waiting requests. Never held during disk work.
    queue: Mutex<Queue>,
    /// Wakes those whose work was done, and the next leader.
    done: Condvar,
    /// Only the leader takes this.
    writer: Mutex<Writer>,
    /// The signed checkpoint after the newest commit. Never held during disk work.
    checkpoint: Mutex<String>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Request>,
    leader: bool,
    next_ticket: u64,
    finished: BTreeMap<u64, Result<Vec<Recorded>, AuditError>>,
    /// A leader panicked.
    stopped: bool,
}

/// For each ticket, where its events are.
type CommitResult = Result<Vec<(u64, Vec<Recorded>)>, AuditError>;

struct Request {
    ticket: u64,
    role: String,
    events: Vec<Event>,
}

/// One role's part of a commit.
#[derive(Default)]
struct RoleBatch {
    events: Vec<Event>,
    /// Requests and the numbers of their results, in the order of the events.
    tickets: Vec<(u64, usize)>,
}

struct Writer {
    log: Log,
    authenticator: Authenticator,
    journals: BTreeMap<String, Role>,
    /// Size of the log when last all was well; what the journals note as shipped lies below.
    committed: u64,
    /// A write failed, so journals and log may differ.
    broken: bool,
}

struct Role {
    journal: Journal,
    /// The newest record that is in the central log.
    shipped: Option<Shipped>,
    /// Number in the journal's own note.
    noted_seq: u64,
}

impl SharedLog {
    /// Opens the log below `dir`, or starts an empty one, and ships what a crash held back.
    ///
    /// # Errors
    /// [`AuditError`]; in particular [`AuditError::Diverged`] when a journal lacks records that
    /// the central log has.
    pub fn open(dir: &Path, key: LogKey) -> Result<Self, AuditError> {
        Self::open_on(durable::real(), dir, key)
    }

    /// Does the same on another disk.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(disk: SharedDisk, dir: &Path, key: LogKey) -> Result<Self, AuditError> {
        let (verifier, authenticator) = (key.verifier(), key.authenticator("beside"));
        let log = Log::open_on(disk.clone(), &dir.join("log"), key)?;
        let mut writer = Writer {
            log,
            authenticator: authenticator.clone(),
            journals: BTreeMap::new(),
            committed: 0,
            broken: false,
        };
        recover::recover(&disk, &dir.join("journal"), &mut writer)?;
        writer.committed = writer.log.size();
        Ok(Self {
            inner: Arc::new(Inner {
                dir: dir.to_owned(),
                verifier,
                authenticator,
                disk,
                queue: Mutex::default(),
                done: Condvar::new(),
                checkpoint: Mutex::new(writer.log.checkpoint().to_owned()),
                writer: Mutex::new(writer),
            }),
        })
    }

    /// The sink of `role`; starts its journal when there is none.
    ///
    /// # Errors
    /// [`AuditError::RoleName`], or what went wrong with the journal.
    pub fn role(&self, role: &str) -> Result<RoleLog, AuditError> {
        if !is_role_name(role) {
            return Err(AuditError::RoleName(role.to_owned()));
        }
        let mut writer = lock(&self.inner.writer);
        if !writer.journals.contains_key(role) {
            let dir = self.inner.dir.join("journal").join(role);
            writer.guarded(|writer| recover::recover_role(&self.inner.disk, &dir, role, writer))?;
        }
        Ok(RoleLog {
            role: role.to_owned(),
            inner: Arc::clone(&self.inner),
        })
    }

    /// The folder of the central log.
    #[must_use]
    pub fn log_dir(&self) -> PathBuf {
        self.inner.dir.join("log")
    }

    /// The folder of the journals.
    #[must_use]
    pub fn journal_dir(&self) -> PathBuf {
        self.inner.dir.join("journal")
    }

    /// The key that checks the log's checkpoints.
    #[must_use]
    pub fn verifier(&self) -> &VerifierKey {
        &self.inner.verifier
    }

    /// Makes and checks authenticators for `purpose`, such as `settings`, under a key derived from the log's.
    #[must_use]
    pub fn authenticator(&self, purpose: &str) -> Authenticator {
        self.inner.authenticator.of(purpose)
    }

    /// Tells whether any journal has records that were written with the log's key, as all have since the version that began to
    /// write them so.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn has_authenticated_records(&self) -> Result<bool, AuditError> {
        for (name, role) in &lock(&self.inner.writer).journals {
            if role.journal.has_authenticated().map_err(in_journal(name))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A view of the central log at its newest checkpoint.
    ///
    /// # Errors
    /// As [`View::open`].
    pub fn view(&self) -> Result<View, AuditError> {
        Ok(View::open(&self.log_dir(), &self.inner.verifier)?)
    }

    /// Number of entries of the central log.
    ///
    /// # Errors
    /// As [`View::open`].
    pub fn size(&self) -> Result<u64, AuditError> {
        Ok(self.view()?.size())
    }

    /// Entries from `first` on for a copy of the log elsewhere, with the signed checkpoint after the last of them: at most
    /// [`MAX_BATCH`], and of `longest` bytes, but at least one. None where the log ends before `first`: the checkpoint is of the
    /// whole log.
    ///
    /// # Errors
    /// As [`View::open`] and [`View::entry`].
    pub fn batch(&self, first: u64, longest: usize) -> Result<Batch, AuditError> {
        let longest = longest.min(MAX_MIRROR_BYTES);
        let view = self.view()?;
        let mut entries = Vec::new();
        let mut bytes = view.note().len() + 64;
        for number in first / BUNDLE_ENTRIES..view.size().div_ceil(BUNDLE_ENTRIES) {
            let indexes = number * BUNDLE_ENTRIES..;
            let bundle = indexes.zip(view.bundle(number)?);
            for (_, entry) in bundle.filter(|(index, _)| *index >= first) {
                bytes += entry.len() + 2;
                let is_full = entries.len() == MAX_BATCH || bytes > longest;
                if is_full && !entries.is_empty() {
                    return self.signed_batch(first, entries, &view);
                }
                entries.push(entry);
            }
        }
        self.signed_batch(first, entries, &view)
    }

    fn signed_batch(
        &self,
        first: u64,
        entries: Vec<Vec<u8>>,
        view: &View,
    ) -> Result<Batch, AuditError> {
        let first = first.min(view.size());
        let end = first + entries.len() as u64;
        let note = match end == view.size() {
            true => view.note().to_owned(),
            false => self.signed_at(end, view)?,
        };
        Ok(Batch {
            first,
            note,
            entries,
        })
    }

    /// The signed checkpoint of the empty tree, with which a copy of the log begins.
    ///
    /// # Errors
    /// As [`View::open`].
    pub fn empty_checkpoint(&self) -> Result<String, AuditError> {
        self.signed_at(0, &self.view()?)
    }

    /// Signs the checkpoint of an earlier size, whose tree `view` has.
    fn signed_at(&self, size: u64, view: &View) -> Result<String, AuditError> {
        let root = view.root_at(size)?;
        let signed = lock(&self.inner.writer).log.sign_at(size, &root);
        signed.ok_or(AuditError::Stopped)
    }

    /// The newest signed checkpoint, which has every event that was recorded; from memory.
    #[must_use]
    pub fn checkpoint(&self) -> String {
        lock(&self.inner.checkpoint).clone()
    }

    /// Syncs the log and notes how far each journal was shipped, so that the next start is quick. Call it on a
    /// regular end; nothing depends on it.
    ///
    /// # Errors
    /// Failures of the log or a journal.
    pub fn note_shipped(&self) -> Result<(), AuditError> {
        let mut writer = lock(&self.inner.writer);
        writer.guarded(|writer| {
            writer.log.sync()?;
            recover::note_all(&mut writer.journals)
        })
    }
}

impl RoleLog {
    #[must_use]
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Decodes an entry of the log.
    fn logged(&self, index: u64, bytes: &[u8]) -> Result<Logged, AuditError> {
        let leaf = Leaf::decode(bytes);
        let leaf = leaf.map_err(|source| AuditError::Leaf { index, source })?;
        Ok(Logged {
            is_own: leaf.role == self.role,
            event: leaf.event,
            index,
        })
    }
}

impl AuditSink for RoleLog {
    fn record_all(&self, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        // Refused here, an unsuitable event cannot spoil the batch it would have been part of.
        for event in &events {
            event.to_canonical()?;
        }
        if events.is_empty() {
            return Ok(Vec::new());
        }
        self.inner.submit(&self.role, events)
    }

    fn event(&self, leaf_index: u64) -> Result<Option<Event>, AuditError> {
        let view = View::open(&self.inner.dir.join("log"), &self.inner.verifier)?;
        if leaf_index >= view.size() {
            return Ok(None);
        }
        let leaf = Leaf::decode(&view.entry(leaf_index)?);
        let leaf = leaf.map_err(|source| AuditError::Leaf {
            index: leaf_index,
            source,
        })?;
        Ok((leaf.role == self.role).then_some(leaf.event))
    }

    fn look_back(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged) -> ControlFlow<()>,
    ) -> Result<(), AuditError> {
        let view = View::open(&self.inner.dir.join("log"), &self.inner.verifier)?;
        view.newest_first(|index, bytes| {
            // What is no text is no leaf: the error names it.
            if std::str::from_utf8(bytes).is_ok_and(|text| !wanted(text)) {
                return Ok(ControlFlow::Continue(()));
            }
            Ok(each(self.logged(index, bytes)?))
        })
    }

    fn read_on(
        &self,
        from: u64,
        wanted: &dyn Fn(&str) -> bool,
        each: &mut dyn FnMut(Logged),
    ) -> Result<u64, AuditError> {
        let view = View::open(&self.inner.dir.join("log"), &self.inner.verifier)?;
        view.oldest_first(from, |index, bytes| {
            if !std::str::from_utf8(bytes).is_ok_and(|text| !wanted(text)) {
                each(self.logged(index, bytes)?);
            }
            Ok::<_, AuditError>(())
        })?;
        Ok(view.size())
    }
}

impl Inner {
    /// Queues the events and waits until they are durable, doing the work when nobody else does.
    fn submit(&self, role: &str, events: Vec<Event>) -> Result<Vec<Recorded>, AuditError> {
        let mut queue = lock(&self.queue);
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.waiting.push(Request {
            ticket,
            role: role.to_owned(),
            events,
        });
        loop {
            if let Some(result) = queue.finished.remove(&ticket) {
                return result;
            }
            if queue.leader {
                queue = self
                    .done
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.leader = true;
            queue = self.lead(queue);
            queue.leader = false;
            self.done.notify_all();
        }
    }

    /// Commits one batch from the queue.
    fn lead<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let batch = take_batch(&mut queue.waiting);
        let stopped = queue.stopped;
        drop(queue);
        let lead = Lead {
            inner: self,
            tickets: batch.iter().map(|request| request.ticket).collect(),
        };
        let result = if stopped {
            Err(AuditError::Stopped)
        } else {
            let mut writer = lock(&self.writer);
            let result = writer.guarded(|writer| writer.commit(batch));
            if result.is_ok() {
                writer
                    .log
                    .checkpoint()
                    .clone_into(&mut lock(&self.checkpoint));
            }
            result
        };
        lead.finish(result)
    }
}

/// A batch in work. If the leader panics, those who wait for it are refused instead of waiting
/// for ever, and nothing more is recorded.
struct Lead<'a> {
    inner: &'a Inner,
    tickets: Vec<u64>,
}

impl<'a> Lead<'a> {
    fn finish(mut self, result: CommitResult) -> MutexGuard<'a, Queue> {
        let inner = self.inner;
        let mut queue = lock(&inner.queue);
        let tickets = std::mem::take(&mut self.tickets);
        match result {
            Ok(results) => {
                let results = results.into_iter().map(|(ticket, r)| (ticket, Ok(r)));
                queue.finished.extend(results);
            }
            Err(cause) => queue.refuse(tickets, cause),
        }
        queue
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut queue = lock(&self.inner.queue);
            queue.stopped = true;
            queue.refuse(std::mem::take(&mut self.tickets), AuditError::Stopped);
            queue.leader = false;
            self.inner.done.notify_all();
        }
    }
}

impl Queue {
    /// Gives the cause to all of `tickets`.
    fn refuse(&mut self, tickets: Vec<u64>, cause: AuditError) {
        if let [ticket] = *tickets {
            self.finished.insert(ticket, Err(cause));
            return;
        }
        let cause = Arc::new(cause);
        for ticket in tickets {
            let e = AuditError::Together(Arc::clone(&cause));
            self.finished.insert(ticket, Err(e));
        }
    }
}

/// Takes requests with up to [`MAX_BATCH`] events in all, at least one request.
fn take_batch(waiting: &mut Vec<Request>) -> Vec<Request> {
    let mut events = 0;
    let fitting = waiting
        .iter()
        .take_while(|request| {
            events += request.events.len();
            events <= MAX_BATCH
        })
        .count();
    let count = fitting.max(1).min(waiting.len());
    waiting.drain(..count).collect()
}

impl Writer {
    /// Does `work`; before it, heals what failed work left behind.
    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        if self.broken {
            recover::heal(self)?;
        }
        self.broken = true;
        let done = work(self)?;
        self.committed = self.log.size();
        self.broken = false;
        Ok(done)
    }

    /// Journals first, one sync per role; then the central log, one checkpoint for all.
    fn commit(&mut self, batch: Vec<Request>) -> CommitResult {
        let mut by_role: BTreeMap<String, RoleBatch> = BTreeMap::new();
        for request in batch {
            let role = by_role.entry(request.role).or_default();
            role.tickets.push((request.ticket, request.events.len()));
            role.events.extend(request.events);
        }
        let mut leaves = Vec::new();
        let mut order = Vec::new();
        let mut ends = Vec::new();
        for (role, RoleBatch { events, tickets }) in by_role {
            let journal = &mut self.role(&role)?.journal;
            leaves.extend(journal.append_batch(events).map_err(in_journal(&role))?);
            order.extend(tickets);
            ends.push((role, leaves.len() as u64));
        }
        let mut leaf_index = self.log.append_batch(&leaves)?;
        for (name, end) in ends {
            let role = self.role(&name)?;
            role.shipped = Some(Shipped {
                seq: role.journal.last_seq(),
                leaf_index: leaf_index + end - 1,
            });
            role.note(NOTE_EVERY).map_err(in_journal(&name))?;
        }
        let mut hashes = leaves.iter().map(|leaf| leaf_hash(leaf));
        let mut results = Vec::with_capacity(order.len());
        for (ticket, count) in order {
            let mut recorded = Vec::with_capacity(count);
            for leaf_hash in hashes.by_ref().take(count) {
                recorded.push(Recorded {
                    leaf_index,
                    leaf_hash,
                });
                leaf_index += 1;
            }
            results.push((ticket, recorded));
        }
        Ok(results)
    }

    fn role(&mut self, role: &str) -> Result<&mut Role, AuditError> {
        // A `RoleLog` exists only for roles whose journal is open.
        self.journals
            .get_mut(role)
            .ok_or_else(|| AuditError::RoleName(role.to_owned()))
    }
}

/// A thread that panicked while holding a lock left consistent data: disk state is guarded by the
/// `stopped` flags of log and journal, the queue is changed in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn in_journal(role: &str) -> impl FnOnce(JournalError) -> AuditError + '_ {
    |source| AuditError::Journal {
        role: role.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
