//! TCP connections as the protocol half sees them (RFC 9329): by their paths.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use ikev2::Path;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tunnel::outer::NextHop;
use tunnel::tcp::{ConnectionName, TcpEvent, TcpHandle, TcpSink};

use super::report::TcpCounts;
use super::threads::{Inbox, Input};

/// Connections of peers that have proved who they are at most (our choice): each takes two descriptors.
const ATTACHED: usize = 4096;
/// Descriptors besides those of connections: sockets, files, threads' own.
const OTHER_FILES: u64 = 512;

/// Name of a path's connection.
pub(super) const fn name(path: &Path) -> ConnectionName {
    (path.local, path.remote)
}

/// What the protocol half does with TCP connections.
pub(super) trait TcpConnections: Send {
    /// Opens one, and returns our end.
    fn dial(&mut self, local: IpAddr, remote: SocketAddr) -> io::Result<SocketAddr>;

    /// Where the data plane sends packets for a peer that has proved who it is.
    fn next_hop(&mut self, path: &Path) -> io::Result<NextHop>;

    /// Forgets one that is being closed.
    fn forget(&mut self, path: &Path);
}

/// The thread's connections.
pub(super) struct Attached {
    handle: TcpHandle,
    next_hops: BTreeMap<ConnectionName, NextHop>,
}

impl Attached {
    pub(super) const fn new(handle: TcpHandle) -> Self {
        Self {
            handle,
            next_hops: BTreeMap::new(),
        }
    }
}

impl TcpConnections for Attached {
    fn dial(&mut self, local: IpAddr, remote: SocketAddr) -> io::Result<SocketAddr> {
        self.handle.dial(local, remote)
    }

    fn next_hop(&mut self, path: &Path) -> io::Result<NextHop> {
        let name = name(path);
        // One for each connection, however many Child SAs go over it.
        if let Some(next_hop) = self.next_hops.get(&name) {
            return Ok(*next_hop);
        }
        if self.next_hops.len() >= ATTACHED {
            return Err(io::Error::other("too many TCP connections"));
        }
        let next_hop = self.handle.attach(name)?;
        self.next_hops.insert(name, next_hop);
        Ok(next_hop)
    }

    fn forget(&mut self, path: &Path) {
        self.next_hops.remove(&name(path));
    }
}

/// Counts of the thread's connections.
pub(super) fn counts(handle: &TcpHandle) -> TcpCounts {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &handle.counters;
    TcpCounts {
        open: of(&counters.open),
        accepted: of(&counters.accepted),
        displaced: of(&counters.displaced),
        malformed: of(&counters.malformed),
        reopened: of(&counters.reopened),
        dropped: of(&counters.dropped),
    }
}

/// What the relay's thread reports.
pub(super) fn sink(inbox: Inbox) -> TcpSink {
    Box::new(move |event| match event {
        TcpEvent::Ike((local, remote), message) => {
            inbox.message(Path::tcp(local, remote), message);
        }
        TcpEvent::Reopened((local, remote)) => {
            inbox.send(Input::Reopened(Path::tcp(local, remote)));
        }
        TcpEvent::Ended((local, remote)) => {
            inbox.send(Input::Ended(Path::tcp(local, remote)));
        }
    })
}

/// Lets the process have as many open files as connections may take, as far as the host permits.
pub(super) fn raise_open_files() {
    // The hard limit stays the host's business: with fewer files, there are fewer connections.
    let wanted = OTHER_FILES.saturating_add(ATTACHED as u64 * 2);
    let limit = getrlimit(Resource::Nofile);
    let enough = limit.current.is_none_or(|current| current >= wanted);
    let most = limit.maximum.map_or(wanted, |most| most.min(wanted));
    let raised = Rlimit {
        current: Some(most),
        ..limit
    };
    if !enough && let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays: few TCP connections");
    }
}
