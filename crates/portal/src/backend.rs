//! What the portal needs from the rest of the system, as one trait; evidence as `centre-api` has it.

use std::net::IpAddr;

use access::Principal;
use axum::body::Body;
use centre_api::{Asked, Camera, Decision, Details, Filter, Overview, Page, Served, Summary};
use pki::tls::PeerCertificates;

use crate::requests::{
    ApplicantView, ApplicationForm, ApplicationStep, RequestForm, RequestPage, RequestPlace,
    RequestQuery, RequestStep, RequestView, StepError, SubjectView,
};

/// Why somebody is not let in at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Stable name of the reason, in kebab case.
    pub code: String,
    /// The reason for people.
    pub message: String,
    /// Whether the fault is on this side: it says nothing about the person, and ends no session.
    pub temporary: bool,
}

/// State on which a password session rests, as the backend counts it. A session whose person is in another
/// epoch by now has ended: the password was changed, or rights were taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub [i64; 2]);

/// Why a request of somebody known came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendError {
    /// The rules forbid it.
    Denied {
        /// Messages of the deciding rules, for people.
        reasons: Vec<String>,
        policies: Vec<String>,
    },
    /// There is no such thing.
    NotFound,
    /// The person asks for too much at once; the text says of what.
    Busy(String),
    /// Another person changed it after the page was made; the text says how.
    Stale(String),
    /// The medium has none of the bytes that were asked for, but this many.
    Range { size: u64 },
    /// The request makes no sense; the text says why.
    Invalid(String),
    /// Something broke; the text is for people and gives nothing away.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub index: u64,
    pub at: String,
    /// Role that recorded it.
    pub role: String,
    /// Person or service that acted.
    pub actor: String,
    pub action: String,
    pub resource: String,
    /// `permit`, `deny`, `ok` or `fail`.
    pub outcome: String,
    pub why: String,
}

/// A page of the audit view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPage {
    pub rows: Vec<AuditRow>,
    /// Index to continue below, when there are older ones.
    pub older: Option<u64>,
    /// Size of the log.
    pub size: u64,
    /// The signed checkpoint as published.
    pub checkpoint: String,
}

/// Bytes for the browser, made while it reads.
#[derive(Debug)]
pub struct Download {
    pub media_type: String,
    /// Suggested file name, plain ASCII.
    pub name: String,
    pub served: Served,
    pub body: Body,
}

/// A custody package for the browser.
#[derive(Debug)]
pub struct PackageDownload {
    /// Suggested file name, plain ASCII.
    pub name: String,
    /// A ZIP file, made while it is read.
    pub body: Body,
}

/// The rest of the system, as seen from the portal.
///
/// Every method that takes a [`Principal`] decides for itself whether that person may, and leaves
/// an audit event either way.
pub trait Backend: Send + Sync + 'static {
    /// A person who handles registration requests (ETSI EN 319 401: registration officer), for one request of the
    /// browser. None of them can be read or changed without one, and only [`Self::registration_officer`] gives it.
    type RegistrationOfficer: Send + Sync;

    /// A person who asks for certificates of the own, for one request of the browser; only [`Self::applicant`] gives it.
    type Applicant: Send + Sync;

    /// Finds the person who presents these certificates from the address `from`; asked anew on every request.
    fn by_certificate(
        &self,
        peer: &PeerCertificates,
        from: Option<IpAddr>,
    ) -> impl Future<Output = Result<Principal, Refused>> + Send;

    /// Checks a name and password given from the address `from`.
    fn by_password(
        &self,
        uid: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> impl Future<Output = Result<(Principal, Epoch), Refused>> + Send;

    /// Finds the holder of a password session of `epoch`; asked anew on every request.
    fn by_session(
        &self,
        uid: &str,
        epoch: Epoch,
        from: Option<IpAddr>,
    ) -> impl Future<Output = Result<Principal, Refused>> + Send;

    /// Figures for the first page.
    fn overview(
        &self,
        who: &Principal,
    ) -> impl Future<Output = Result<Overview, BackendError>> + Send;

    fn violations(
        &self,
        who: &Principal,
        filter: &Filter,
    ) -> impl Future<Output = Result<Page<Summary>, BackendError>> + Send;

    fn violation(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<Details, BackendError>> + Send;

    /// A small JPEG of the first picture.
    fn thumbnail(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<Vec<u8>, BackendError>> + Send;

    /// A medium or a part of it, decrypted and checked against the camera's signature.
    fn medium(
        &self,
        who: &Principal,
        id: &str,
        index: usize,
        asked: &Asked,
    ) -> impl Future<Output = Result<Download, BackendError>> + Send;

    /// Accepts or rejects a violation for somebody who saw `seen` decisions about it; [`BackendError::Stale`] if there
    /// are others.
    fn review(
        &self,
        who: &Principal,
        id: &str,
        decision: Decision,
        reason: &str,
        seen: u64,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// The custody package as one archive file.
    fn export(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<PackageDownload, BackendError>> + Send;

    fn cameras(
        &self,
        who: &Principal,
    ) -> impl Future<Output = Result<Vec<Camera>, BackendError>> + Send;

    /// Audit events below index `before`, newest first.
    fn audit(
        &self,
        who: &Principal,
        before: Option<u64>,
    ) -> impl Future<Output = Result<AuditPage, BackendError>> + Send;

    /// Decides whether `who`, who shows `certificate` (DER), handles registration requests; `page` is what for.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] for everybody else: whoever has nothing to do with requests learns nothing of them.
    fn registration_officer(
        &self,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> impl Future<Output = Result<Self::RegistrationOfficer, BackendError>> + Send;

    /// Decides whether `who` asks for certificates of the own; `certificate` (DER) is empty for a login by password.
    ///
    /// # Errors
    /// As [`Self::registration_officer`].
    fn applicant(
        &self,
        who: &Principal,
        certificate: &[u8],
        page: &str,
    ) -> impl Future<Output = Result<Self::Applicant, BackendError>> + Send;

    fn applications(
        &self,
        applicant: &Self::Applicant,
        before: Option<RequestPlace>,
    ) -> impl Future<Output = Result<ApplicantView, BackendError>> + Send;

    /// An application of this person; of nobody else's anything is told.
    fn application(
        &self,
        applicant: &Self::Applicant,
        id: &str,
    ) -> impl Future<Output = Result<RequestView, BackendError>> + Send;

    /// Begins an application, hands it in if `submit`, and gives its identifier.
    fn begin_application(
        &self,
        applicant: &Self::Applicant,
        form: &ApplicationForm,
        submit: bool,
    ) -> impl Future<Output = Result<String, StepError>> + Send;

    /// Makes a step with the application `id`, of which the person saw version `seen`.
    fn step_application(
        &self,
        applicant: &Self::Applicant,
        id: &str,
        seen: u64,
        step: ApplicationStep,
    ) -> impl Future<Output = Result<(), StepError>> + Send;

    /// The certificate that came of an application, with its issuer, in PEM.
    fn application_certificate(
        &self,
        applicant: &Self::Applicant,
        id: &str,
    ) -> impl Future<Output = Result<String, BackendError>> + Send;

    fn requests(
        &self,
        officer: &Self::RegistrationOfficer,
        query: &RequestQuery,
    ) -> impl Future<Output = Result<RequestPage, BackendError>> + Send;

    fn request(
        &self,
        officer: &Self::RegistrationOfficer,
        id: &str,
    ) -> impl Future<Output = Result<RequestView, BackendError>> + Send;

    /// A person, device or gateway, with a page of the requests about it.
    fn subject(
        &self,
        officer: &Self::RegistrationOfficer,
        name: &str,
        before: Option<RequestPlace>,
    ) -> impl Future<Output = Result<SubjectView, BackendError>> + Send;

    /// Begins a request, hands it in if `submit`, and gives its identifier.
    fn begin_request(
        &self,
        officer: &Self::RegistrationOfficer,
        form: &RequestForm,
        submit: bool,
    ) -> impl Future<Output = Result<String, StepError>> + Send;

    /// Makes a step with the request `id`, of which the person saw version `seen`.
    fn step_request(
        &self,
        officer: &Self::RegistrationOfficer,
        id: &str,
        seen: u64,
        step: RequestStep,
    ) -> impl Future<Output = Result<(), StepError>> + Send;

    /// The bytes that an approver of version `seen` signs.
    fn request_statement(
        &self,
        officer: &Self::RegistrationOfficer,
        id: &str,
        seen: u64,
    ) -> impl Future<Output = Result<Vec<u8>, StepError>> + Send;

    /// The certificate that came out, with its issuer, in PEM.
    fn request_certificate(
        &self,
        officer: &Self::RegistrationOfficer,
        id: &str,
    ) -> impl Future<Output = Result<String, BackendError>> + Send;

    /// Records that somebody was let in by password, or went.
    ///
    /// # Errors
    /// [`BackendError::Failed`]: nobody is let in without a record.
    fn note_session(
        &self,
        uid: &str,
        action: &'static str,
        from: Option<IpAddr>,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;
}
