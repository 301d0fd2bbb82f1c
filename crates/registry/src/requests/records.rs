//! What is known of requests, and how many there may be.

use approval::{Act, Request};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Open requests of one requester. Our choice: more than anybody has in hand, less than fills a queue.
pub const MAX_OPEN_OF_ONE: i64 = 50;
/// Open requests in all.
pub const MAX_OPEN: i64 = 2000;
/// Requests that one requester may begin in 24 hours; what is withdrawn stays in the database and the log.
pub const MAX_BEGUN_PER_DAY: i64 = 200;
/// Versions of a request, beyond which it is neither edited nor submitted.
pub const MAX_VERSIONS: u64 = 100;
/// Requests in one list.
pub(crate) const MAX_LISTED: usize = 1000;

/// A request with what belongs to it.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    pub request: Request,
    /// The certification request (DER) of an act that certifies a key.
    pub csr: Option<Vec<u8>>,
    /// Every change, oldest first.
    pub history: Vec<RequestChange>,
    /// Certificates (DER) of those who approved, as they showed them.
    pub certificates: Vec<Vec<u8>>,
}

/// What a request asks for in one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestContent {
    pub act: Act,
    /// The requester's reason.
    pub reason: String,
}

/// A change of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestChange {
    /// Version that it made.
    pub version: i64,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// User id of its author.
    pub by: String,
    /// Name of the step, as in events.
    pub step: String,
    /// State after it.
    pub state: String,
    /// Reason of a return or refusal, or the request's own where it was written.
    pub reason: String,
    /// Content that it wrote, of a draft or an edit; earlier versions of this program did not keep it.
    #[serde(skip)]
    pub content: Option<RequestContent>,
}

/// A line of a list of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestSummary {
    pub id: String,
    pub version: i64,
    pub requester: String,
    /// Name of the act.
    pub act: String,
    /// Person, device or gateway that it concerns.
    pub subject: String,
    pub state: String,
    #[serde(with = "time::serde::rfc3339")]
    pub changed_at: OffsetDateTime,
    /// Whether a second approval of an emergency is overdue.
    pub overdue: bool,
}

/// Which requests are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFilter {
    /// Those that wait for somebody.
    Waiting,
    /// Those in the state of this name.
    State(String),
    /// Those about this person, device or gateway.
    Subject(String),
    /// Those that this person made.
    Requester(String),
    All,
}

/// A place in a list of requests, which goes from the latest change to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCursor {
    /// Seconds since 1970.
    pub changed_at: i64,
    pub id: String,
}

/// A page of a list of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPage {
    pub rows: Vec<RequestSummary>,
    /// Where to continue, when there are earlier changes.
    pub older: Option<RequestCursor>,
}

/// The act with the certification request that it is about.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub act: Act,
    /// Certification request in DER, for acts that certify a new key.
    pub csr: Option<Vec<u8>>,
}
