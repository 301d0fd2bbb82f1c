//! OCSP requests on their way to whoever carries them (HTTP), and responses on their way back.
//!
//! What is asked, in which order, and what is remembered is `pki::ocsp::client`.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pki::ocsp::client::OutgoingRequest;

use super::peer_verifier::Job;

/// A request for a responder.
///
/// Whoever has it sends it and hands in the response within [`Self::time_limit`]; when none came by then,
/// nobody waits for it any more.
pub struct OcspRequest {
    url: String,
    request: Vec<u8>,
    time_limit: Duration,
    number: u64,
    responses: Responses,
}

/// Carrier of requests. It is called by the thread that verifies certificates, so it does not wait.
pub type OcspTransport = Box<dyn Fn(OcspRequest) + Send>;

impl OcspRequest {
    /// The responder's address, as it was configured.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The request (DER), sent as `application/ocsp-request` (RFC 6960 Appendix A.1).
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Returns the longest time that it may take.
    pub const fn time_limit(&self) -> Duration {
        self.time_limit
    }

    /// Hands in the response (DER, at most [`super::MAX_OCSP_RESPONSE_LEN`] bytes), or why there is none, in
    /// words for the operator. Does not wait.
    pub fn respond(self, response: Result<Vec<u8>, String>) {
        self.responses.put(self.number, response);
    }
}

type Numbered = (u64, Result<Vec<u8>, String>);

/// Responses on their way back. Those who bring them need not wait for a thread that is busy.
#[derive(Clone)]
pub(super) struct Responses {
    come: Arc<Mutex<Vec<Numbered>>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Responses {
    /// With a way to wake the thread that verifies.
    pub(super) fn new<T: Send + 'static>(jobs: SyncSender<Job<T>>) -> Self {
        Self {
            come: Arc::default(),
            // If there is no room, it is awake.
            wake: Arc::new(move || drop(jobs.try_send(Job::OcspResponse))),
        }
    }

    fn put(&self, number: u64, response: Result<Vec<u8>, String>) {
        let mut come = self.come.lock().unwrap_or_else(PoisonError::into_inner);
        come.push((number, response));
        drop(come);
        (self.wake)();
    }

    /// Those that came since the last time.
    pub(super) fn take(&self) -> Vec<Numbered> {
        std::mem::take(&mut *self.come.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A request with the way back.
    pub(super) fn request(&self, outgoing: OutgoingRequest) -> OcspRequest {
        OcspRequest {
            url: outgoing.url,
            request: outgoing.request,
            time_limit: outgoing.time_limit,
            number: outgoing.number,
            responses: self.clone(),
        }
    }
}
