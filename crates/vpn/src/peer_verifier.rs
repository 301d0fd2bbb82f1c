//! The thread that verifies certificates of peers. While a responder is asked about one, it verifies others.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use ikev2::RequestId;
use ikev2::wire::Identification;
use pki::ocsp::client::{Client, Completed};
use time::OffsetDateTime;

use super::ocsp::{OcspTransport, Responses};
use super::trust::{
    Accepted, ExaminedPeer, PeerCredentials, Refused, SharedTrust, Trust, verify_key,
};

/// Job of the verifier. `T` names a peer until it is verified.
pub(super) enum Job<T> {
    Verify(T, PeerCredentials, Identification),
    /// A peer resumes a session with a certificate that was accepted before, on this connection.
    Review(T, String, Accepted),
    Crls(Vec<Vec<u8>>),
    /// An OCSP response came.
    OcspResponse,
    /// The daemon ends, though others can still ask.
    End,
}

pub(super) type TrustJob = Job<RequestId>;

fn no_authority() -> Refused {
    Refused::Unacceptable("no authority is trusted".into())
}

/// Report of the verifier.
pub(super) enum VerifierEvent<T> {
    /// The peer's public key, or why it is refused.
    Verified(T, Result<(Vec<u8>, Accepted), Refused>),
    /// Whether a certificate is still accepted.
    Reviewed(T, Result<Accepted, Refused>),
    /// Revocation lists were taken over.
    Recheck,
}

/// Counts of questions to responders, and of those without a result.
#[derive(Default)]
pub(super) struct OcspCounters {
    /// Requests that went out.
    pub(super) requests: AtomicU64,
    /// Peers that were decided about with an undetermined status.
    pub(super) undetermined: AtomicU64,
}

/// A peer that waits for an OCSP response.
struct Waiting<T> {
    peer: T,
    shown: PeerCredentials,
    id: Identification,
}

pub(super) struct PeerVerifier<T> {
    shared: SharedTrust,
    /// Carrier of requests to responders, if there is one.
    transport: Option<OcspTransport>,
    responses: Responses,
    ocsp: Client<Waiting<T>>,
    counters: Arc<OcspCounters>,
    notify: Box<dyn Fn(VerifierEvent<T>) + Send>,
}

impl<T: Send + 'static> PeerVerifier<T> {
    /// A verifier whose [`Self::run`] takes what is sent into `jobs`, and reports to `notify`.
    pub(super) fn new(
        shared: SharedTrust,
        transport: Option<OcspTransport>,
        counters: Arc<OcspCounters>,
        jobs: SyncSender<Job<T>>,
        notify: Box<dyn Fn(VerifierEvent<T>) + Send>,
    ) -> Self {
        Self {
            shared,
            transport,
            responses: Responses::new(jobs),
            ocsp: Client::new(),
            counters,
            notify,
        }
    }

    pub(super) fn run(mut self, jobs: &Receiver<Job<T>>) -> io::Result<()> {
        loop {
            self.serve_ocsp();
            let job = match self.ocsp.poll_timeout() {
                Some(at) => match jobs.recv_timeout(at.saturating_duration_since(Instant::now())) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => break,
                },
                None => match jobs.recv() {
                    Ok(job) => job,
                    Err(_) => break,
                },
            };
            match job {
                Job::Verify(peer, shown, id) => self.verify(Waiting { peer, shown, id }),
                Job::Review(peer, connection, accepted) => {
                    let result = self.review(&connection, accepted);
                    (self.notify)(VerifierEvent::Reviewed(peer, result));
                }
                Job::Crls(lists) => {
                    let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
                    let authorities = shared.clone();
                    drop(shared);
                    // Before anybody is told: whoever rechecks must see the new lists.
                    authorities.accept_crls(&lists, OffsetDateTime::now_utc());
                    (self.notify)(VerifierEvent::Recheck);
                }
                // Looked at before the next job.
                Job::OcspResponse => {}
                Job::End => break,
            }
        }
        Ok(())
    }

    fn trust(&self, connection: &str) -> Option<Arc<Trust>> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        shared.of(connection).cloned()
    }

    /// Takes responses, ends what has taken too long, and sends what may go out.
    fn serve_ocsp(&mut self) {
        for (number, response) in self.responses.take() {
            let utc = OffsetDateTime::now_utc();
            if let Some(completed) = self.ocsp.handle_response(number, response, utc) {
                self.resume(completed);
            }
        }
        for completed in self.ocsp.handle_timeout(Instant::now()) {
            self.resume(completed);
        }
        let Some(send) = &self.transport else { return };
        while let Some(outgoing) = self.ocsp.poll_request(Instant::now()) {
            self.counters.requests.fetch_add(1, Ordering::Relaxed);
            send(self.responses.request(outgoing));
        }
    }

    fn review(&self, connection: &str, accepted: Accepted) -> Result<Accepted, Refused> {
        let trust = self.trust(connection).ok_or_else(no_authority)?;
        let reviewed = trust.review(&accepted, OffsetDateTime::now_utc());
        reviewed.map_err(|error| Refused::Unacceptable(error.to_string().into()))?;
        Ok(accepted)
    }

    fn verify(&mut self, waiting: Waiting<T>) {
        let utc = OffsetDateTime::now_utc();
        let Waiting { shown, id, .. } = &waiting;
        if shown.requirement.without_chain {
            let own = shown.chain.first().map_or(&[][..], Vec::as_slice);
            let result = verify_key(own, id, &shown.requirement, utc).map_err(Refused::from);
            return (self.notify)(VerifierEvent::Verified(waiting.peer, result));
        }
        let Some(trust) = self.trust(&shown.connection) else {
            let none = Err(no_authority());
            return (self.notify)(VerifierEvent::Verified(waiting.peer, none));
        };
        let (certificates, claim) = ((&*shown.chain, &*shown.ocsp), (id, shown.in_eap));
        let examined = match trust.examine(certificates, claim, &shown.requirement, utc) {
            Ok(examined) => examined,
            Err(error) => {
                let refused = Err(error.into());
                return (self.notify)(VerifierEvent::Verified(waiting.peer, refused));
            }
        };
        let has_responder = !trust.responders().is_empty() && self.transport.is_some();
        let to_be_asked = has_responder && !shown.in_eap;
        // Only about a chain that is good otherwise: strangers must not make us ask.
        let query = to_be_asked.then(|| trust.query(&examined)).flatten();
        let (peer, examined, undetermined) = match query {
            None => (waiting.peer, examined, None),
            // An answer of a moment ago spares the responder, and the peer the wait.
            Some(query) if self.ocsp.is_good(&query, utc) => (waiting.peer, examined.good(), None),
            Some(query) => {
                let urls = trust.responders();
                match self.ocsp.request(query, urls, waiting, Instant::now()) {
                    Ok(()) => return,
                    Err((waiting, why)) => (waiting.peer, examined, Some(why.to_owned())),
                }
            }
        };
        self.conclude(&trust, peer, examined, undetermined);
    }

    /// Verifies those who waited for a response from the beginning: lists, authorities and the time may be
    /// others by now. They do not wait a second time.
    fn resume(&mut self, completed: Completed<Waiting<T>>) {
        for waiting in completed.waiting {
            let Some(trust) = self.trust(&waiting.shown.connection) else {
                let none = Err(no_authority());
                (self.notify)(VerifierEvent::Verified(waiting.peer, none));
                continue;
            };
            let Waiting { peer, shown, id } = waiting;
            // The response first: only so many are looked at.
            let mut ocsp: Vec<Vec<u8>> = completed.response.iter().cloned().collect();
            ocsp.extend(shown.ocsp);
            let (certificates, claim) = ((&*shown.chain, &*ocsp), (&id, shown.in_eap));
            let utc = OffsetDateTime::now_utc();
            match trust.examine(certificates, claim, &shown.requirement, utc) {
                Ok(examined) => {
                    let why = completed.response.as_ref().err().cloned();
                    let why = why.unwrap_or_else(|| "the answer came too late".to_owned());
                    let undetermined = examined.is_undetermined().then_some(why);
                    self.conclude(&trust, peer, examined, undetermined);
                }
                Err(error) => (self.notify)(VerifierEvent::Verified(peer, Err(error.into()))),
            }
        }
    }

    fn conclude(
        &self,
        trust: &Trust,
        peer: T,
        examined: ExaminedPeer,
        undetermined: Option<String>,
    ) {
        if undetermined.is_some() {
            self.counters.undetermined.fetch_add(1, Ordering::Relaxed);
        }
        let result = trust.conclude(examined, undetermined);
        (self.notify)(VerifierEvent::Verified(peer, result.map_err(Refused::from)));
    }
}

#[cfg(test)]
mod tests;
