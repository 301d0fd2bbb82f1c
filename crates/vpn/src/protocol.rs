//! The thread of the protocol half: between [`Control`] and everybody else.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ikev2::{CrashSecret, Random};
use time::OffsetDateTime;
use tunnel::data_plane::NegotiatedKeying;
use tunnel::tcp::TcpHandle;

use super::backlog::Backlog;
use super::command::OtherCounters;
use super::control::{Control, Effect, Host, Now};
use super::ike_sender::IkeSender;
use super::journal::JournalHandle;
use super::links::LinkCommand;
use super::peer_verifier::{OcspCounters, TrustJob, VerifierEvent};
use super::resolve::ResolvedConfig;
use super::route::{connected, source_of};
use super::signature::KeyJob;
use super::tcp::{self, Attached, TcpConnections};
use super::threads::{Inbox, Input, SlowJob};
use super::tickets::{self, TicketFile};
use super::trust::{Accepted, SharedTrust};

/// Interval between looks at certificates of peers, apart from new revocation lists.
const RECHECK: Duration = Duration::from_secs(5);
/// Time before the end of a peer's certificate at which the initiator authenticates anew, to learn the
/// peer's next one.
const NEXT_CERTIFICATE: Duration = Duration::from_secs(24 * 3600);
/// Time for peers to confirm that the daemon ends.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1500);

struct System;

impl Random for System {
    fn fill(&mut self, out: &mut [u8]) {
        // Without random numbers nothing here is safe; going on would be worse than ending.
        aws_lc_rs::rand::fill(out).unwrap_or_else(|_| std::process::abort());
    }
}

/// The protocol half's thread.
pub(super) struct Protocol {
    pub(super) inputs: Receiver<Input>,
    pub(super) inbox: Inbox,
    pub(super) plane: Arc<dyn NegotiatedKeying>,
    pub(super) keys: Backlog<KeyJob>,
    pub(super) trust: Backlog<TrustJob>,
    pub(super) tls: SyncSender<SlowJob>,
    pub(super) shared: SharedTrust,
    pub(super) links: Sender<LinkCommand>,
    pub(super) journal: Option<JournalHandle>,
    pub(super) audit_errors: Arc<AtomicU64>,
    pub(super) asked: Arc<OcspCounters>,
    pub(super) sender: IkeSender,
    /// TCP connections, where there may be some.
    pub(super) tcp: Option<TcpHandle>,
    pub(super) over: Arc<AtomicBool>,
    pub(super) crash_secret: Option<CrashSecret>,
    pub(super) tickets: Option<TicketFile>,
    pub(super) stop_at: Option<Instant>,
    pub(super) start: Instant,
}

impl Protocol {
    fn now(&self) -> Now {
        Now::since(self.start, Instant::now())
    }

    pub(super) fn run(mut self, loaded: ResolvedConfig) -> io::Result<()> {
        let path = loaded.config.path.clone();
        let listen = path.listen;
        let interface = loaded.config.interface.name.clone();
        let host = Host {
            source_of: Box::new(move |remote| source_of(listen, remote)),
            connected: Box::new(move || connected(&interface)),
            tcp: self
                .tcp
                .clone()
                .map(|handle| Box::new(Attached::new(handle)) as Box<dyn TcpConnections>),
        };
        let plane = Arc::clone(&self.plane);
        let random = Box::new(System);
        let mut control = Control::new(path, plane, random, host, self.now());
        if let Some(secret) = self.crash_secret.take() {
            control.set_crash_secret(secret);
        }
        if let Some(tickets) = &self.tickets {
            control.set_ticket_keys(tickets.keys(self.now().stamp));
        }
        control.begin(loaded.connections, &loaded.config, self.now());
        let mut recheck = Instant::now() + RECHECK;
        loop {
            let now = self.now();
            // First what is due: a flood of messages must not hold timers back.
            control.tick(now);
            if now.instant >= recheck {
                self.recheck(&mut control, now);
                recheck = now.instant + RECHECK;
                self.rotate_ticket_keys(&mut control, now);
            }
            self.flush(&mut control);
            self.keys.pass_on();
            self.trust.pass_on();
            if self
                .stop_at
                .is_some_and(|at| control.is_over() || at <= now.instant)
            {
                break;
            }
            let next = control.poll_timeout().map(|at| at.since(now.stamp));
            let deadlines = [Some(recheck), self.stop_at].into_iter().flatten();
            let other = deadlines.map(|at| at.saturating_duration_since(now.instant));
            let wait = other.chain(next).min().unwrap_or(RECHECK);
            // Answers and commands come before messages, of which strangers can send any number.
            let input = match self.inputs.try_recv() {
                Err(TryRecvError::Empty) => match self.inbox.next() {
                    Some((path, bytes)) => {
                        control.message(path, &bytes, now);
                        continue;
                    }
                    None => self.inputs.recv_timeout(wait),
                },
                Ok(input) => Ok(input),
                Err(TryRecvError::Disconnected) => break,
            };
            match input {
                Ok(input) => self.handle(&mut control, input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The threads that read sockets see it at their next look.
        self.over.store(true, Ordering::Relaxed);
        self.plane.stop();
        // By its own message, since others hold senders to that thread as well.
        self.trust.send(TrustJob::End);
        Ok(())
    }

    fn handle(&mut self, control: &mut Control, input: Input) {
        let now = self.now();
        match input {
            Input::Wake => {}
            Input::Reopened(path) => control.reopened(path, now),
            Input::Ended(path) => control.disconnected(path),
            Input::Child(event) => control.child_event(event, now),
            Input::Signed(pending, result) => control.signed(pending, result, now),
            Input::Solved(pending, solution) => control.solved(pending, solution, now),
            Input::TlsDone(pending) => control.tls_done(pending, now),
            Input::Verifier(VerifierEvent::Verified(pending, result)) => {
                control.verified(pending, result, now)
            }
            Input::Verifier(VerifierEvent::Reviewed(pending, result)) => {
                control.reviewed(pending, result, now)
            }
            Input::Verifier(VerifierEvent::Recheck) => self.recheck(control, now),
            Input::Command(command, answer) => {
                let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                control.count(OtherCounters {
                    busy: count(&self.inbox.busy),
                    audit_errors: count(&self.audit_errors),
                    ocsp_questions: count(&self.asked.requests),
                    ocsp_unanswered: count(&self.asked.undetermined),
                    in_fragments: self.sender.in_fragments(),
                    tcp: self.tcp.as_ref().map(tcp::counts).unwrap_or_default(),
                });
                // Who does not wait any more is no trouble.
                let _ = answer.try_send(control.handle(command, now));
            }
            Input::Stop => {
                self.stop_at = self.stop_at.or(Some(now.instant + CLOSE_TIMEOUT));
                control.stop(now);
            }
        }
    }

    /// Replaces the key of tickets when its time is over. One that cannot be kept is not used: the next start would
    /// not know its tickets, and the one in use serves until then.
    fn rotate_ticket_keys(&mut self, control: &mut Control, now: Now) {
        let Some(tickets) = &mut self.tickets else {
            return;
        };
        match tickets.rotate(tickets::wall()) {
            Ok(false) => {}
            Ok(true) => control.set_ticket_keys(tickets.keys(now.stamp)),
            Err(error) => tracing::error!(error, "the key of session tickets is not replaced"),
        }
    }

    fn recheck(&self, control: &mut Control, now: Now) {
        let trust = self
            .shared
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let utc = OffsetDateTime::now_utc();
        let check =
            |connection: &str, accepted: &Accepted| trust.recheck(connection, accepted, utc);
        control.recheck(&check, now);
        control.renew_peers(
            &|accepted| accepted.ends_before(utc + NEXT_CERTIFICATE),
            now,
        );
    }

    /// Carries out what the control wants.
    fn flush(&mut self, control: &mut Control) {
        loop {
            while let Some(transmit) = control.poll_transmit() {
                match &self.tcp {
                    Some(connections) if transmit.path().is_tcp() => {
                        connections.send(tcp::name(&transmit.path()), transmit.payload);
                    }
                    _ => self.sender.send(&transmit),
                }
            }
            let Some(effect) = control.poll_effect() else {
                return;
            };
            self.carry_out(effect, control);
        }
    }

    fn carry_out(&mut self, effect: Effect, control: &Control) {
        match effect {
            // Too many handshakes at once: without an answer this one ends by its time, and the peer tries
            // again. A refusal would tell it that it is not who it says.
            Effect::Sign(pending, key, scheme, message) => {
                let job = KeyJob::Sign(pending, key, scheme, message);
                let taken = self.keys.offer(control.requester(pending), 0, job);
                self.inbox.note_busy(!taken);
            }
            Effect::Verify(pending, shown, id) => {
                // Bytes of a peer that wait in memory have a bound, and certificates are most of them.
                let sizes = shown.chain.iter().chain(&shown.ocsp).map(Vec::len);
                let bytes = sizes.sum();
                let job = TrustJob::Verify(pending, shown, id);
                let taken = self.trust.offer(control.requester(pending), bytes, job);
                self.inbox.note_busy(!taken);
            }
            Effect::Review(pending, connection, accepted) => {
                let job = TrustJob::Review(pending, connection, accepted);
                let taken = self.trust.offer(control.requester(pending), 0, job);
                self.inbox.note_busy(!taken);
            }
            Effect::Tls(pending, step) => {
                let job = SlowJob::Tls(pending, step);
                self.inbox.note_busy(self.tls.try_send(job).is_err());
            }
            Effect::Solve(pending, puzzle) => {
                let job = SlowJob::Solve(pending, puzzle);
                self.inbox.note_busy(self.tls.try_send(job).is_err());
            }
            // Rare, and must not be lost.
            Effect::SetKeys(name, keys) => self.keys.send(KeyJob::Set(name, keys)),
            Effect::Open(way) => way.open(self.keys.sender(), Arc::clone(&self.shared)),
            Effect::SetTrust(trust) => {
                let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
                trust.inherit(&shared);
                *shared = trust;
            }
            Effect::Install(child) => child.install(),
            Effect::Child(command) => self.plane.handle(command),
            Effect::CloseTcp(path) => {
                if let Some(connections) = &self.tcp {
                    connections.close(tcp::name(&path));
                }
            }
            Effect::Link(command) => drop(self.links.send(command)),
            Effect::Audit(event) => {
                let lost = self
                    .journal
                    .as_ref()
                    .is_some_and(|journal| !journal.offer(event));
                if lost {
                    self.audit_errors.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}
