//! The daemon's threads apart from the worker, the protocol half and the verifier of certificates, and what they say to one another.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender};

use ikev2::AskId;
use ikev2::auth::Scheme;
use quinn_udp::{RecvMeta, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::control::{Order, Reply};
use super::peer_verifier::Finding;
use super::signer::{Key, Signer};
use crate::children::Note;
use crate::outer::udp::KEEPALIVE;
use crate::outer::would_block;

/// Messages that wait for the protocol half at most; further ones are dropped, and peers repeat them.
const WAITING: usize = 4096;

/// What reaches the protocol half.
pub(super) enum Input {
    Datagram(SocketAddr, SocketAddr, Vec<u8>),
    Note(Note),
    Signed(AskId, Result<Vec<u8>, String>),
    /// About peers' certificates.
    Found(Finding<AskId>),
    Order(Order, SyncSender<Reply>),
    Stop,
}

/// The way to the protocol half; bounds what strangers can put into it.
#[derive(Clone)]
pub(super) struct Inbox {
    pub(super) sender: Sender<Input>,
    pub(super) waiting: Arc<AtomicUsize>,
    pub(super) busy: Arc<AtomicU64>,
}

impl Inbox {
    pub(super) fn datagram(&self, local: SocketAddr, remote: SocketAddr, bytes: &[u8]) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.busy.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.send(Input::Datagram(local, remote, bytes.to_vec()));
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

pub(super) enum KeyJob {
    Set(String, Vec<Key>),
    Sign(AskId, (String, usize), Scheme, Vec<u8>),
    /// For TLS, which waits, and has the first of a connection's certificates.
    SignNow(String, Scheme, Vec<u8>, SyncSender<Result<Vec<u8>, String>>),
}

/// The thread that has the private keys sign; with it the process that has them ends.
pub(super) fn sign(jobs: &Receiver<KeyJob>, inbox: &Inbox, signer: &Signer) -> io::Result<()> {
    let mut keys: BTreeMap<String, Vec<Key>> = BTreeMap::new();
    while let Ok(job) = jobs.recv() {
        match job {
            KeyJob::Set(name, new) if new.is_empty() => drop(keys.remove(&name)),
            KeyJob::Set(name, new) => drop(keys.insert(name, new)),
            KeyJob::Sign(ask, (name, index), scheme, message) => {
                let signature = sign_with(&keys, &name, index, scheme, &message);
                inbox.send(Input::Signed(ask, signature));
            }
            KeyJob::SignNow(name, scheme, message, answer) => {
                // Who does not wait any more is no trouble.
                let _ = answer.try_send(sign_with(&keys, &name, 0, scheme, &message));
            }
        }
    }
    signer.close();
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
    key.sign(scheme, message).map_err(|error| error.to_string())
}

/// The thread that reads UDP port 500; and port 4500, where the kernel takes ESP out of it.
pub(super) fn listen_ike(socket: &UdpSocket, inbox: &Inbox, over: &AtomicBool) -> io::Result<()> {
    let state = UdpSocketState::new(socket.into())?;
    // Kernels before 6.9 take ESP out of joined datagrams as if they were one.
    sys::option::separate_datagrams(socket)?;
    let local = socket.local_addr()?;
    let mut buffer = vec![0; 65_536];
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
        let mut meta = [RecvMeta::default()];
        let received = state.recv(
            socket.into(),
            &mut [IoSliceMut::new(&mut buffer)],
            &mut meta,
        );
        let [meta] = meta;
        match received {
            Ok(_) => {
                let to = SocketAddr::new(meta.dst_ip.unwrap_or(local.ip()), local.port());
                let bytes = buffer.get(..meta.len).unwrap_or_default();
                let datagrams = bytes.chunks(meta.stride.max(1));
                for datagram in datagrams.filter(|datagram| *datagram != KEEPALIVE) {
                    inbox.datagram(to, meta.addr, datagram);
                }
            }
            Err(error) if would_block(&error) => {}
            // About datagrams sent earlier: anybody who can send ICMP can cause these.
            Err(error) => tracing::debug!(%error, "receiving on port 500"),
        }
    }
    Ok(())
}
