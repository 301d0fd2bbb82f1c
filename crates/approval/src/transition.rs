//! Changes of a request, each with its event.

use access::Credential;
use audit::Event;

use crate::Request;

/// A change of a request that has not happened yet.
///
/// The event is to be recorded before the request is stored.
#[derive(Debug)]
#[must_use = "the change has not happened before it is recorded and stored"]
pub struct Transition {
    pub(crate) event: Event,
    pub(crate) request: Request,
}

impl Transition {
    /// The event to record.
    #[must_use]
    pub const fn event(&self) -> &Event {
        &self.event
    }

    /// The request as it will be, for whatever is prepared before the event.
    #[must_use]
    pub const fn next(&self) -> &Request {
        &self.request
    }

    /// Adds to the event how its author proved who they are: by which certificate.
    pub fn proved_by(mut self, credential: &Credential) -> Self {
        self.event = self.event.with_detail("login", credential.to_string());
        self
    }

    /// The event, which is to be recorded first, and the request that is to be stored then.
    #[must_use]
    pub fn into_parts(self) -> (Event, Request) {
        (self.event, self.request)
    }
}
