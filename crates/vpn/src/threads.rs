//! The daemon's threads apart from the worker, the protocol half and the verifier of certificates, and what they say to one another.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ikev2::auth::Scheme;
use ikev2::eap::TlsStep;
use ikev2::puzzle::{Puzzle, Solution};
use ikev2::{Path, RequestId};
use keyhost::{Key, KeyHost};
use quinn_udp::{BATCH_SIZE, RecvMeta};
use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::SockRef;
use tunnel::child_sa::ChildEvent;
use tunnel::outer::udp::{KEEPALIVE, udp_state};
use tunnel::outer::{canonical, enlarge_receive, would_block};

use super::command::{Command, Reply};
use super::config::NAT_PORT;
use super::fair::{FairQueue, Pushed, place};
use super::peer_verifier::VerifierEvent;
use super::signature::{self, KeyJob};

/// Bytes of the largest datagram, or of several that the kernel joined.
const LARGEST: usize = 65_536;
/// Messages that wait for the protocol half at most, first messages of handshakes and others each; further ones
/// are dropped, and peers repeat them.
const WAITING: usize = 2048;

/// A message, and the path over which it came.
pub(super) type Message = (Path, Vec<u8>);

/// Messages that wait for the protocol half, shared fairly between their senders' addresses. First messages
/// wait apart from others: a flood of them does not hold up peers that are known.
#[derive(Debug)]
struct Waiting {
    first: FairQueue<Message>,
    others: FairQueue<Message>,
    /// Whose turn it is.
    turn: bool,
}

impl Waiting {
    const fn new() -> Self {
        Self {
            first: FairQueue::new(WAITING),
            others: FairQueue::new(WAITING),
            turn: false,
        }
    }

    fn push(&mut self, message: Message) -> Pushed {
        let (path, bytes) = &message;
        let queue = match is_first(path, bytes) {
            true => &mut self.first,
            false => &mut self.others,
        };
        let place = place(path.remote.ip());
        queue.push(&place, message)
    }

    fn pop(&mut self) -> Option<Message> {
        // In turn: first messages get at most half of the time, however many there are.
        self.turn = !self.turn;
        let (one, two) = match self.turn {
            true => (&mut self.others, &mut self.first),
            false => (&mut self.first, &mut self.others),
        };
        one.pop().or_else(|| two.pop())
    }
}

/// Whether a datagram begins a handshake: the responder has no SPI yet (RFC 7296 §3.1).
fn is_first(path: &Path, bytes: &[u8]) -> bool {
    // On the shared port four zero bytes tell IKE from ESP (RFC 3948 §2.2).
    let marked = path.is_tcp() || path.local.port() == NAT_PORT;
    let marker = if marked { 4 } else { 0 };
    let spi = bytes.get(marker..).and_then(|header| header.get(8..16));
    spi.is_none_or(|spi| spi.iter().all(|byte| *byte == 0))
}

/// Input of the protocol half.
pub(super) enum Input {
    /// Messages wait where none did.
    Wake,
    /// A TCP connection of ours was broken, and is open again.
    Reopened(Path),
    /// A TCP connection of a known peer is gone.
    Ended(Path),
    Child(ChildEvent),
    Signed(RequestId, Result<Vec<u8>, String>),
    /// TLS inside EAP has worked.
    TlsDone(RequestId),
    /// Solution of a puzzle, if it was found.
    Solved(RequestId, Option<Solution>),
    Verifier(VerifierEvent<RequestId>),
    Command(Command, SyncSender<Reply>),
    Stop,
}

/// Handle to the protocol half; bounds what strangers can put into it.
#[derive(Clone)]
pub(super) struct Inbox {
    sender: Sender<Input>,
    waiting: Arc<Mutex<Waiting>>,
    /// Whether the protocol half has been told that messages wait, and has not found none since.
    woken: Arc<AtomicBool>,
    pub(super) busy: Arc<AtomicU64>,
}

impl Inbox {
    pub(super) fn new(sender: Sender<Input>) -> Self {
        Self {
            sender,
            waiting: Arc::new(Mutex::new(Waiting::new())),
            woken: Arc::default(),
            busy: Arc::default(),
        }
    }

    pub(super) fn datagram(&self, local: SocketAddr, remote: SocketAddr, bytes: &[u8]) {
        self.message(Path::udp(local, remote), bytes);
    }

    /// Takes a message of IKE.
    pub(super) fn message(&self, path: Path, bytes: &[u8]) {
        let message = (path, bytes.to_vec());
        let pushed = self.waiting().push(message);
        self.note_busy(pushed != Pushed::Added);
        // One wake-up for many messages: the channel has no bound, so it must not grow with them.
        if pushed == Pushed::Added && !self.woken.swap(true, Ordering::AcqRel) {
            self.send(Input::Wake);
        }
    }

    /// The message whose turn it is; after none, the next one wakes.
    pub(super) fn next(&self) -> Option<Message> {
        let next = self.waiting().pop();
        if next.is_some() {
            return next;
        }
        self.woken.store(false, Ordering::Release);
        // One may have come before that could be seen.
        self.waiting().pop()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what was dropped because somebody is busy.
    pub(super) fn note_busy(&self, busy: bool) {
        if busy {
            self.busy.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn send(&self, input: Input) {
        // Nobody there any more means that the daemon ends.
        let _ = self.sender.send(input);
    }
}

/// The thread that has the private keys sign; with it the process that has them ends.
pub(super) fn sign(jobs: &Receiver<KeyJob>, inbox: &Inbox, key_host: &KeyHost) -> io::Result<()> {
    let mut keys: BTreeMap<String, Vec<Key>> = BTreeMap::new();
    while let Ok(job) = jobs.recv() {
        match job {
            KeyJob::Set(name, new) if new.is_empty() => drop(keys.remove(&name)),
            KeyJob::Set(name, new) => drop(keys.insert(name, new)),
            KeyJob::Sign(pending, (name, index), scheme, message) => {
                let signature = sign_with(&keys, &name, index, scheme, &message);
                inbox.send(Input::Signed(pending, signature));
            }
            KeyJob::SignNow(name, scheme, message, answer) => {
                // Who does not wait any more is no trouble.
                let _ = answer.try_send(sign_with(&keys, &name, 0, scheme, &message));
            }
        }
    }
    key_host.close();
    Ok(())
}

fn sign_with(
    keys: &BTreeMap<String, Vec<Key>>,
    name: &str,
    index: usize,
    scheme: Scheme,
    message: &[u8],
) -> Result<Vec<u8>, String> {
    let key = keys.get(name).and_then(|keys| keys.get(index));
    let key = key.ok_or("the connection has no such key")?;
    signature::sign(key, scheme, message)
}

/// Work that takes a while, and nobody waits for.
pub(super) enum SlowJob {
    Tls(RequestId, TlsStep),
    Solve(RequestId, Puzzle),
}

/// The thread on which TLS inside EAP works, as it waits for signatures and verifies certificates there, and on which
/// puzzles are solved.
pub(super) fn work_slowly(jobs: &Receiver<SlowJob>, inbox: &Inbox) -> io::Result<()> {
    while let Ok(job) = jobs.recv() {
        let (pending, step) = match job {
            SlowJob::Tls(pending, step) => (pending, step),
            SlowJob::Solve(pending, puzzle) => {
                inbox.send(Input::Solved(pending, puzzle.solve()));
                continue;
            }
        };
        // As in the protocol half, a fault ends the handshake that it came by: the step has no outcome.
        if catch_unwind(AssertUnwindSafe(|| step.run())).is_err() {
            tracing::error!("a fault in TLS ended a handshake");
        }
        inbox.send(Input::TlsDone(pending));
    }
    Ok(())
}

/// The thread that reads UDP port 500; and port 4500, where the kernel takes ESP out of it.
pub(super) fn listen_ike(socket: &UdpSocket, inbox: &Inbox, over: &AtomicBool) -> io::Result<()> {
    let state = udp_state(socket)?;
    // Kernels before 6.9 take ESP out of joined datagrams as if they were one.
    sys::option::separate_datagrams(socket)?;
    let local = socket.local_addr()?;
    // A flood comes in bursts, in which honest messages must not get lost.
    if let Err(error) = enlarge_receive(&SockRef::from(socket)) {
        tracing::warn!(%error, "the receive buffer of IKE stays small");
    }
    let mut buffers: [Vec<u8>; BATCH_SIZE] = std::array::from_fn(|_| vec![0; LARGEST]);
    while !over.load(Ordering::Relaxed) {
        // Woken now and then to see whether it is over.
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 250_000_000,
        };
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut meta = [RecvMeta::default(); BATCH_SIZE];
        let mut slices = buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
        match state.recv(socket.into(), &mut slices, &mut meta) {
            Ok(count) => {
                for (buffer, meta) in buffers.iter().zip(&meta).take(count) {
                    // Answers must leave from the address to which the peer sent, of which the host may have several.
                    let to = meta.dst_ip.unwrap_or(local.ip()).to_canonical();
                    let to = SocketAddr::new(to, local.port());
                    let bytes = buffer.get(..meta.len).unwrap_or_default();
                    let datagrams = bytes.chunks(meta.stride.max(1));
                    for datagram in datagrams.filter(|datagram| *datagram != KEEPALIVE) {
                        inbox.datagram(to, canonical(meta.addr), datagram);
                    }
                }
            }
            Err(error) if would_block(&error) => {}
            // About datagrams sent earlier: anybody who can send ICMP can cause these.
            Err(error) => tracing::debug!(%error, "receiving on port 500"),
        }
    }
    Ok(())
}
