//! The thread that has all connections.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::connection::{Connection, Kept, Shared};
use super::strangers::Strangers;
use super::{Command, ConnectionName, TcpCounters, TcpEvent, TcpSink, count};
use crate::outer::{canonical, would_block};

/// What wakes the thread besides connections, whose numbers begin above.
const WAKE: u64 = 0;
const LISTENER: u64 = 1;
/// Longest sleep: so often it is seen whether it is over, and who is too slow.
const LOOK: Duration = Duration::from_millis(250);
/// The same while a connection waits for its time.
const SOON: Duration = Duration::from_millis(50);
/// Events that are fetched at once.
const EVENTS: usize = 64;
/// Connections that are accepted in a row.
const ACCEPTS: usize = 64;

/// The connections, and whoever waits to be one.
pub struct Relay {
    listener: Option<TcpListener>,
    /// Whether it is asked: not while this host has no descriptors left.
    listens: bool,
    shared: Shared,
    connections: BTreeMap<u64, Connection>,
    by_name: BTreeMap<ConnectionName, u64>,
    strangers: Strangers,
    commands: Receiver<Command>,
    woken: UnixStream,
    next: u64,
    looked: Instant,
    /// Whether some connection waits for its time.
    soon: bool,
}

impl Relay {
    pub(super) fn new(
        listener: Option<TcpListener>,
        workers: SocketAddr,
        (commands, woken): (Receiver<Command>, UnixStream),
        sink: TcpSink,
        counters: Arc<TcpCounters>,
    ) -> io::Result<Self> {
        let shared = Shared::new(workers, sink, counters)?;
        let on = EventFlags::IN;
        epoll::add(&shared.epoll, &woken, EventData::new_u64(WAKE), on)?;
        if let Some(listener) = &listener {
            epoll::add(&shared.epoll, listener, EventData::new_u64(LISTENER), on)?;
        }
        Ok(Self {
            listener,
            listens: true,
            shared,
            connections: BTreeMap::new(),
            by_name: BTreeMap::new(),
            strangers: Strangers::default(),
            commands,
            woken,
            next: 1,
            looked: Instant::now(),
            soon: false,
        })
    }

    /// Works until `over`.
    ///
    /// # Errors
    /// What makes going on impossible: the kernel says of no socket any more when it is ready.
    pub fn run(mut self, over: &AtomicBool) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        while !over.load(Ordering::Relaxed) {
            events.clear();
            let wait = if self.soon { SOON } else { LOOK };
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: wait.subsec_nanos().into(),
            };
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.shared.epoll, spare, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            for event in &events {
                let (flags, data) = (event.flags, event.data.u64());
                match data {
                    WAKE => self.handle_commands(now),
                    LISTENER => self.accept(now),
                    _ => self.on_socket(data, flags, now),
                }
            }
            if now.saturating_duration_since(self.looked) >= SOON {
                self.looked = now;
                self.look(now);
            }
            let open = self.connections.len() as u64;
            self.shared.counters.open.store(open, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Does what is due, and ends connections of strangers whose time is over.
    fn look(&mut self, now: Instant) {
        for id in self.strangers.overdue(now) {
            count(&self.shared.counters.displaced);
            self.end(id);
        }
        let waiting = self.connections.values().filter(|one| one.waits());
        let waiting: Vec<u64> = waiting.map(|one| one.id).collect();
        self.soon = !waiting.is_empty();
        for id in waiting {
            self.with(id, |connection, shared| connection.tick(shared, now));
        }
        self.listen(true);
    }

    fn listen(&mut self, listens: bool) {
        let Some(listener) = self.listener.as_ref().filter(|_| self.listens != listens) else {
            return;
        };
        let flags = if listens {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        let data = EventData::new_u64(LISTENER);
        if epoll::modify(&self.shared.epoll, listener, data, flags).is_ok() {
            self.listens = listens;
        }
    }

    fn on_socket(&mut self, data: u64, flags: EventFlags, now: Instant) {
        let (id, esp) = (data >> 1, data & 1 == 1);
        self.with(id, |connection, shared| match esp {
            true => connection.on_esp(shared, now),
            false => connection.on_tcp(shared, flags, now),
        });
        if self.connections.get(&id).is_some_and(|one| one.speaks) {
            self.strangers.speaks(id);
        }
    }

    /// Has a connection do something, and forgets it if that was its end.
    fn with(&mut self, id: u64, work: impl FnOnce(&mut Connection, &mut Shared) -> Kept) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        match work(connection, &mut self.shared) {
            Kept::Yes => self.soon |= connection.waits(),
            Kept::No => self.end(id),
        }
    }

    fn named(
        &mut self,
        name: &ConnectionName,
        work: impl FnOnce(&mut Connection, &mut Shared) -> Kept,
    ) {
        if let Some(id) = self.by_name.get(name).copied() {
            self.with(id, work);
        }
    }

    fn end(&mut self, id: u64) {
        self.strangers.remove(id);
        if let Some(connection) = self.connections.remove(&id) {
            // Its name may be another one's by now: a peer may come again from the same port.
            if self.by_name.get(&connection.name) == Some(&id) {
                self.by_name.remove(&connection.name);
            }
            if connection.is_known_peers() {
                (self.shared.sink)(TcpEvent::Ended(connection.name));
            }
        }
    }

    fn add(&mut self, connection: Connection) {
        self.soon |= connection.waits();
        self.by_name.insert(connection.name, connection.id);
        self.connections.insert(connection.id, connection);
    }

    fn next(&mut self) -> u64 {
        self.next = self.next.saturating_add(1);
        self.next
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else {
                return;
            };
            let (stream, remote) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if would_block(&error) => return,
                // It went before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, "no TCP connection can be accepted for a moment");
                    // Asked again at the next look: until then it would say the same without a pause.
                    self.listen(false);
                    return;
                }
            };
            let Ok(local) = stream.local_addr() else {
                continue;
            };
            let (local, remote) = (canonical(local), canonical(remote));
            count(&self.shared.counters.accepted);
            let (id, name) = (self.next(), (local, remote));
            // The kernel has ended the one of this name, or there could be no other.
            if let Some(ended) = self.by_name.get(&name).copied() {
                self.end(ended);
            }
            if let Some(displaced) = self.strangers.add(id, remote.ip(), now) {
                count(&self.shared.counters.displaced);
                self.end(displaced);
            }
            match Connection::accepted(&self.shared, id, name, stream) {
                Ok(connection) => {
                    self.add(connection);
                    // Its first message may be here already. Read in its turn, it could come after so many newcomers of a flood
                    // that this one has made room as one that says nothing.
                    self.on_socket(id << 1, EventFlags::IN, now);
                }
                Err(error) => {
                    tracing::debug!(%error, %remote, "TCP connection not taken");
                    self.strangers.remove(id);
                }
            }
        }
    }

    fn handle_commands(&mut self, now: Instant) {
        let mut bytes = [0; 64];
        // Emptied before the queue is read: a command that comes meanwhile wakes again.
        while (&self.woken).read(&mut bytes).is_ok_and(|n| n > 0) {}
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Dial(name, socket) => {
                    let id = self.next();
                    let opened = Connection::dialled(&mut self.shared, id, name, socket, now);
                    self.add(opened);
                }
                Command::Attach(name, socket) => {
                    if let Some(id) = self.by_name.get(&name) {
                        self.strangers.remove(*id);
                    }
                    self.named(&name, |connection, shared| {
                        match connection.attach(shared, socket) {
                            Ok(()) => Kept::Yes,
                            Err(error) => {
                                tracing::warn!(%error, remote = %name.1, "no ESP over TCP");
                                Kept::No
                            }
                        }
                    });
                }
                Command::Send(name, message) => self.named(&name, |connection, shared| {
                    connection.send(shared, &message, now)
                }),
                Command::Close(name) => self.named(&name, |connection, _| connection.close(now)),
            }
        }
    }
}
