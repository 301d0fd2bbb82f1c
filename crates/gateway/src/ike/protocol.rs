//! The thread of the protocol half: between [`Control`] and everybody else.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ikev2::eap::TlsStep;
use ikev2::{AskId, CrashSecret, Random};
use time::OffsetDateTime;

use super::control::{Control, Effect, Elsewhere, Host, LinkOrder, NAT_PORT, Now};
use super::daemon::source_of;
use super::journal::Notes;
use super::peer_verifier::{Finding, OcspCounters, SharedTrust, TrustJob};
use super::plan::Loaded;
use super::plane::Plane;
use super::route::connected;
use super::threads::{Inbox, Input, KeyJob};
use super::trust::Accepted;
use crate::outer::udp::send_from;

/// How often certificates of peers are looked at again, apart from new revocation lists.
const RECHECK: Duration = Duration::from_secs(5);
/// How long peers get to confirm that the daemon ends.
const FAREWELL: Duration = Duration::from_millis(1500);

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
    pub(super) plane: Plane,
    pub(super) keys: SyncSender<KeyJob>,
    pub(super) trust: SyncSender<TrustJob>,
    pub(super) tls: SyncSender<(AskId, TlsStep)>,
    pub(super) shared: SharedTrust,
    pub(super) links: Sender<LinkOrder>,
    pub(super) notes: Option<Notes>,
    pub(super) audit_errors: Arc<AtomicU64>,
    pub(super) asked: Arc<OcspCounters>,
    /// On port 500, on port 4500.
    pub(super) sockets: (UdpSocket, UdpSocket),
    pub(super) over: Arc<AtomicBool>,
    pub(super) crash_secret: Option<CrashSecret>,
    pub(super) stop_at: Option<Instant>,
    pub(super) start: Instant,
}

impl Protocol {
    fn now(&self) -> Now {
        Now::since(self.start, Instant::now())
    }

    pub(super) fn run(mut self, loaded: Loaded) -> io::Result<()> {
        let path = loaded.config.path.clone();
        let (listen, workers) = (path.listen, loaded.config.interface.workers);
        let interface = loaded.config.interface.name.clone();
        let host = Host {
            source_of: Box::new(move |remote| source_of(listen, remote)),
            connected: Box::new(move || connected(&interface)),
        };
        let backend = loaded.config.backend;
        let random = Box::new(System);
        let mut control = Control::new(path, workers, backend, random, host, self.now());
        if let Some(secret) = self.crash_secret.take() {
            control.set_crash_secret(secret);
        }
        control.begin(loaded.plans, &loaded.config, self.now());
        let mut recheck = Instant::now() + RECHECK;
        loop {
            let now = self.now();
            control.tick(now);
            if now.instant >= recheck {
                self.recheck(&mut control, now);
                recheck = now.instant + RECHECK;
            }
            self.flush(&mut control);
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
                    Some((local, remote, bytes)) => {
                        control.datagram(local, remote, &bytes, now);
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
        self.over.store(true, Ordering::Relaxed);
        self.plane.stop();
        let _ = self.trust.send(TrustJob::End);
        Ok(())
    }

    fn handle(&mut self, control: &mut Control, input: Input) {
        let now = self.now();
        match input {
            Input::Wake => {}
            Input::Note(note) => control.note(note, now),
            Input::Signed(ask, result) => control.signed(ask, result, now),
            Input::TlsDone(ask) => control.tls_done(ask, now),
            Input::Found(Finding::Verified(ask, result)) => control.verified(ask, result, now),
            Input::Found(Finding::Recheck) => self.recheck(control, now),
            Input::Order(order, answer) => {
                let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                control.count(Elsewhere {
                    busy: count(&self.inbox.busy),
                    audit_errors: count(&self.audit_errors),
                    ocsp_questions: count(&self.asked.requests),
                    ocsp_unanswered: count(&self.asked.undetermined),
                });
                // Who does not wait any more is no trouble.
                let _ = answer.try_send(control.obey(order, now));
            }
            Input::Stop => {
                self.stop_at = self.stop_at.or(Some(now.instant + FAREWELL));
                control.stop(now);
            }
        }
    }

    fn recheck(&self, control: &mut Control, now: Now) {
        let trust = self
            .shared
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(trust) = trust else { return };
        let utc = OffsetDateTime::now_utc();
        let judge = |accepted: &Accepted| {
            trust
                .recheck(accepted, utc)
                .map_err(|error| error.to_string())
        };
        control.recheck(&judge, now);
    }

    /// Carries out what the control wants.
    fn flush(&self, control: &mut Control) {
        loop {
            while let Some(transmit) = control.poll_transmit() {
                let socket = match transmit.local.port() {
                    NAT_PORT => &self.sockets.1,
                    _ => &self.sockets.0,
                };
                let source = transmit.local.ip();
                // What does not go out is repeated like what gets lost.
                if let Err(error) = send_from(socket, source, transmit.remote, &transmit.payload) {
                    tracing::debug!(%error, remote = %transmit.remote, "IKE message not sent");
                }
            }
            let Some(effect) = control.poll_effect() else {
                return;
            };
            self.carry_out(effect);
        }
    }

    fn carry_out(&self, effect: Effect) {
        match effect {
            // Too many handshakes at once: without an answer this one ends by its time, and the peer tries
            // again. A refusal would tell it that it is not who it says.
            Effect::Sign(ask, key, scheme, message) => {
                let job = KeyJob::Sign(ask, key, scheme, message);
                self.inbox.note_busy(self.keys.try_send(job).is_err());
            }
            Effect::Verify(ask, shown, id) => {
                let job = TrustJob::Verify(ask, shown, id);
                self.inbox.note_busy(self.trust.try_send(job).is_err());
            }
            Effect::Tls(ask, step) => {
                self.inbox
                    .note_busy(self.tls.try_send((ask, step)).is_err());
            }
            // Rare, and must not be lost.
            Effect::SetKeys(name, keys) => drop(self.keys.send(KeyJob::Set(name, keys))),
            Effect::Open(way) => way.open(self.keys.clone(), Arc::clone(&self.shared)),
            Effect::SetTrust(trust) => {
                let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
                *shared = trust.map(Arc::new);
            }
            Effect::Child(order) => self.plane.order(order),
            Effect::KernelChild(child) => self.plane.install(child),
            Effect::Link(order) => drop(self.links.send(order)),
            Effect::Audit(note) => {
                let lost = self.notes.as_ref().is_some_and(|notes| !notes.offer(note));
                if lost {
                    self.audit_errors.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}
