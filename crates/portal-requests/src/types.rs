//! Registration requests as pages show them and as forms ask for them. What becomes of one is not decided here.

use serde::Deserialize;
use time::OffsetDateTime;

use portal::PageError;

/// Which requests a page lists, and from where on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestQuery {
    /// Name of a state, `all`, or empty for those that wait.
    pub state: String,
    pub before: Option<RequestPlace>,
}

/// A place in a list that goes from the latest change to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPlace {
    /// Seconds since 1970.
    pub changed_at: i64,
    pub id: String,
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRow {
    pub id: String,
    pub act: String,
    /// Person, device or gateway that it concerns.
    pub subject: String,
    pub requester: String,
    pub state: String,
    pub changed_at: OffsetDateTime,
    /// Whether the second approval of an emergency is overdue.
    pub overdue: bool,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPage {
    pub rows: Vec<RequestRow>,
    /// Where to continue, when there are earlier changes.
    pub older: Option<RequestPlace>,
}

/// A value before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedValue {
    pub name: String,
    /// Empty where there was none.
    pub old: String,
    pub new: String,
}

/// A step in a request's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestChange {
    pub version: i64,
    pub at: OffsetDateTime,
    /// User id of its author.
    pub by: String,
    pub step: String,
    /// State after it.
    pub state: String,
    pub reason: String,
    /// What it changed of the content.
    pub changes: Vec<ChangedValue>,
}

/// An approval of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestApproval {
    pub uid: String,
    pub at: OffsetDateTime,
    /// SHA-256 of the signer's certificate, in hexadecimal.
    pub certificate_sha256: String,
}

/// Steps that the rules would let the viewer make now. The step itself is decided again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSteps {
    pub edit: bool,
    pub submit: bool,
    pub withdraw: bool,
    /// Return or refuse it.
    pub object: bool,
    pub approve: bool,
    /// Why an approval would not be taken; empty if it would.
    pub no_approval: String,
    pub carry_out: bool,
    /// Take the certificate that came out.
    pub collect: bool,
}

/// A request with everything that a page shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestView {
    pub id: String,
    pub version: u64,
    pub state: String,
    pub act: String,
    /// Person, device or gateway that it concerns; empty where there is none.
    pub subject: String,
    pub requester: String,
    pub reason: String,
    /// What is so now, and what the act makes of it.
    pub values: Vec<ChangedValue>,
    pub history: Vec<RequestChange>,
    pub approvals: Vec<RequestApproval>,
    /// Approvals that it needs in the end.
    pub needed: usize,
    /// What has to happen until it is carried out and confirmed.
    pub missing: Vec<String>,
    /// Other waiting requests about the same subject.
    pub others: Vec<RequestRow>,
    /// The content as a form.
    pub form: RequestForm,
    pub may: RequestSteps,
}

/// A certificate of a person, device, gateway or server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRow {
    pub serial: String,
    pub profile: String,
    pub clearance: String,
    pub issued_at: OffsetDateTime,
    pub not_after: OffsetDateTime,
    /// `valid`, `expired`, or `revoked` with the reason.
    pub status: String,
    /// Whether it counts now.
    pub valid: bool,
}

/// Everything that is known of a person, device or gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectView {
    pub name: String,
    /// States of the holders of this name, and the entry in the directory.
    pub facts: Vec<ChangedValue>,
    /// What an approver should look at first, such as two valid certificates.
    pub warnings: Vec<String>,
    pub certificates: Vec<CertificateRow>,
    pub requests: RequestPage,
}

/// An act as a form asks for it; what is not of its kind is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestForm {
    /// `issue`, `invite`, `renew`, `revoke`, `recover`, `holder`, `person`, `profile` or `authority`.
    pub act: String,
    /// `person`, `device`, `gateway` or `server`.
    pub holder: String,
    /// User id, or name of a device, gateway, server or authority.
    pub name: String,
    /// Certification request in PEM.
    pub csr: String,
    /// Level, or empty for the usual one.
    pub clearance: String,
    /// Filled for a device that only opens tunnels.
    pub tunnel_only: String,
    /// Name of the certificate's profile; empty for the usual one.
    pub profile: String,
    /// Principal name of the account in Windows.
    pub principal: String,
    /// Security identifier of that account.
    pub sid: String,
    /// Further names of a server, with commas between.
    pub names: String,
    /// Hours that the code of an invitation is good for.
    pub hours: String,
    /// Number of renewals of an invitation's certificate.
    pub renewals: String,
    /// A profile's file.
    pub definition: String,
    pub serial: String,
    /// Reason of a revocation, as lists give it.
    pub cause: String,
    /// Change of a holder's state.
    pub change: String,
    /// Filled for an act that waits for one approval only.
    pub emergency: String,
    /// Roles with commas between; empty leaves them as they are.
    pub roles: String,
    /// Units with commas between; empty leaves them as they are.
    pub units: String,
    pub reason: String,
}

/// A step with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestStep {
    Edit(Box<RequestForm>),
    Submit,
    Withdraw,
    Return {
        reason: String,
    },
    Refuse {
        reason: String,
    },
    /// With the signature over the statement, made by the key of the viewer's certificate.
    Approve {
        signature: Vec<u8>,
    },
    CarryOut,
}

/// What a person has and asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnCertificates {
    pub certificates: Vec<CertificateRow>,
    /// Requests of this person for their own certificates.
    pub requests: RequestPage,
    /// Names of profiles that the person may ask for, beside the usual one.
    pub profiles: Vec<String>,
}

/// A certificate, as its owner asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CertificateRequestForm {
    /// Certification request in PEM.
    pub csr: String,
    /// Name of the certificate's profile; empty for the usual one.
    pub profile: String,
    pub reason: String,
}

/// A step of an applicant with their own request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnStep {
    Edit(CertificateRequestForm),
    Submit,
    Withdraw,
    /// Has the certificate made that was approved.
    CarryOut,
}

/// Another person's change since the viewer looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestConflict {
    /// Version that the viewer saw.
    pub shown: u64,
    pub current: u64,
    pub by: String,
    pub step: String,
    pub at: OffsetDateTime,
    /// Content that differs between the two versions; `None` where the former one was not kept.
    pub changes: Option<Vec<ChangedValue>>,
}

/// Why a step was not made; the request is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    Conflict(RequestConflict),
    /// The rules of requests, or what the site knows, are against it.
    Refused {
        /// Stable name of the reason, in kebab case; may be empty.
        code: String,
        message: String,
    },
    Page(PageError),
}

impl From<PageError> for StepError {
    fn from(error: PageError) -> Self {
        Self::Page(error)
    }
}
