//! What the portal needs from the rest of the system, as one trait and plain data.

use std::net::IpAddr;

use access::Principal;
use axum::body::Body;
use pki::tls::PeerCertificates;
use time::OffsetDateTime;

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

/// What a password session rests on, as the backend counts it. A session whose person is in another
/// epoch by now has ended: the password was changed, or rights were taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub [i64; 2]);

/// Why a request of somebody known came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendError {
    /// The rules forbid it.
    Denied {
        /// What the deciding rules say, for people.
        reasons: Vec<String>,
        /// Their names.
        policies: Vec<String>,
    },
    /// There is no such thing.
    NotFound,
    /// The person asks for too much at once; the text says of what.
    Busy(String),
    /// The request makes no sense; the text says why.
    Invalid(String),
    /// Something broke; the text is for people and gives nothing away.
    Failed(String),
}

/// What a list of violations is narrowed to; `None` or empty means everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Captured at or after.
    pub from: Option<OffsetDateTime>,
    /// Captured before.
    pub to: Option<OffsetDateTime>,
    /// Part of the place's name.
    pub place: String,
    /// Exact name of the camera.
    pub device: String,
    /// Part of the plate.
    pub plate: String,
    /// At least this fast, km/h.
    pub min_speed: Option<u32>,
    /// `open`, `accepted` or `rejected`.
    pub state: String,
    /// Older than this place in the list, which a page gave as [`Page::older`].
    pub before: Option<i64>,
    /// Newer than this place in the list, which a page gave as [`Page::newer`].
    pub after: Option<i64>,
}

/// One page of a longer list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows of this page.
    pub rows: Vec<T>,
    /// Where the next page begins. A search that has compared as much as one page may cost stops
    /// there with fewer rows than fit.
    pub older: Option<i64>,
    /// Where the page before begins.
    pub newer: Option<i64>,
    /// How many violations the rules hide, on all pages; 0 when the list is narrowed.
    pub hidden: usize,
}

/// A violation in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationRow {
    /// Its address.
    pub id: String,
    /// When it was seen.
    pub captured_at: OffsetDateTime,
    /// Kind, for instance `speeding`.
    pub kind: String,
    /// Where.
    pub place: String,
    /// Camera.
    pub device: String,
    /// Number plate.
    pub plate: Option<String>,
    /// Measured speed, km/h.
    pub speed_kmh: Option<u32>,
    /// Limit, km/h.
    pub limit_kmh: Option<u32>,
    /// Clearance needed, 0 to 4.
    pub classification: u8,
    /// `open`, `accepted` or `rejected`.
    pub state: String,
    /// Whether another block claims the same number of the camera.
    pub disputed: bool,
}

/// One medium of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumRow {
    /// File name.
    pub name: String,
    /// Media type.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// One decision of a reviewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewRow {
    /// When.
    pub at: OffsetDateTime,
    /// Who.
    pub name: String,
    /// `accepted` or `rejected`.
    pub decision: String,
    /// Why.
    pub reason: String,
}

/// One step in the life of a piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustodyRow {
    /// When.
    pub at: OffsetDateTime,
    /// Who or what acted.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// Leaf index in the audit log.
    pub log_index: u64,
}

/// What makes a violation provable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proofs {
    /// SHA-256 of the sealed block.
    pub block_sha256: String,
    /// Bytes of the sealed block.
    pub block_size: u64,
    /// SHA-256 of the signed manifest.
    pub manifest_sha256: String,
    /// The camera's sequence number.
    pub sequence: u64,
    /// When the centre received it.
    pub received_at: OffsetDateTime,
    /// Leaf index of the receipt's event in the audit log.
    pub log_index: Option<u64>,
    /// Name of the audit log.
    pub log_origin: String,
}

/// A violation's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What the list shows.
    pub row: ViolationRow,
    /// Unit it belongs to.
    pub unit: String,
    /// Latitude in microdegrees.
    pub latitude_microdeg: i32,
    /// Longitude in microdegrees.
    pub longitude_microdeg: i32,
    /// Lane from the kerb.
    pub lane: Option<u32>,
    /// The media in the order of the block.
    pub media: Vec<MediumRow>,
    /// Decisions, oldest first.
    pub reviews: Vec<ReviewRow>,
    /// Steps, oldest first.
    pub custody: Vec<CustodyRow>,
    /// Hashes and places.
    pub proofs: Proofs,
    /// SHA-256 of the blocks in quarantine that claim the same number of the camera.
    pub disputed_by: Vec<String>,
    /// Whether the rules let this person accept or reject it.
    pub may_review: bool,
    /// Whether the rules let this person export it.
    pub may_export: bool,
}

/// A camera in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraRow {
    /// Name.
    pub device: String,
    /// Unit.
    pub unit: String,
    /// When the last block came.
    pub last_seen: Option<OffsetDateTime>,
    /// Blocks accepted.
    pub blocks: u64,
    /// Blocks in quarantine.
    pub quarantined: u64,
    /// Highest sequence number.
    pub head: u64,
    /// Ranges of missing numbers that no notice explains.
    pub gaps: Vec<(u64, u64)>,
    /// Numbers that the camera declared as lost.
    pub dropped: u64,
    /// Blocks in quarantine that claim a number of another block.
    pub forks: u64,
}

/// One audit event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Leaf index.
    pub index: u64,
    /// When, as recorded.
    pub at: String,
    /// Role that recorded it.
    pub role: String,
    /// Who acted.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// To what.
    pub resource: String,
    /// `permit`, `deny`, `ok` or `fail`.
    pub outcome: String,
    /// Reason and policies.
    pub why: String,
}

/// A page of the audit view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPage {
    /// Events, newest first.
    pub rows: Vec<AuditRow>,
    /// Index to continue below, when there are older ones.
    pub older: Option<u64>,
    /// Size of the log.
    pub size: u64,
    /// The signed checkpoint as published.
    pub checkpoint: String,
}

/// Figures for the first page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Violations nobody has decided on, that this person may see.
    pub open: u64,
    /// Violations of the last 24 hours, that this person may see.
    pub today: u64,
    /// Cameras that ever sent something.
    pub cameras: u64,
    /// Cameras with unexplained gaps.
    pub cameras_with_gaps: u64,
}

/// Bytes for the browser, made while it reads.
#[derive(Debug)]
pub struct Download {
    /// Media type.
    pub media_type: String,
    /// Suggested file name, plain ASCII.
    pub name: String,
    /// Bytes to come.
    pub size: u64,
    /// Content.
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

/// A reviewer's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewChoice {
    /// The violation is proven.
    Accept,
    /// It is not.
    Reject,
}

/// The rest of the system, as seen from the portal.
///
/// Every method that takes a [`Principal`] decides for itself whether that person may, and leaves
/// an audit event either way.
pub trait Backend: Send + Sync + 'static {
    /// Who presents these certificates from the address `from`; asked anew on every request.
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

    /// Who the holder of a password session of `epoch` is now; asked anew on every request.
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

    /// Violations, newest first.
    fn violations(
        &self,
        who: &Principal,
        filter: &Filter,
    ) -> impl Future<Output = Result<Page<ViolationRow>, BackendError>> + Send;

    /// One violation.
    fn violation(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<Violation, BackendError>> + Send;

    /// A small JPEG of the first picture.
    fn thumbnail(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<Vec<u8>, BackendError>> + Send;

    /// A medium, decrypted and checked against the camera's signature.
    fn medium(
        &self,
        who: &Principal,
        id: &str,
        index: usize,
    ) -> impl Future<Output = Result<Download, BackendError>> + Send;

    /// Accepts or rejects a violation.
    fn review(
        &self,
        who: &Principal,
        id: &str,
        choice: ReviewChoice,
        reason: &str,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// The custody package as one archive file.
    fn export(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<PackageDownload, BackendError>> + Send;

    /// All cameras.
    fn cameras(
        &self,
        who: &Principal,
    ) -> impl Future<Output = Result<Vec<CameraRow>, BackendError>> + Send;

    /// Audit events below index `before`, newest first.
    fn audit(
        &self,
        who: &Principal,
        before: Option<u64>,
    ) -> impl Future<Output = Result<AuditPage, BackendError>> + Send;

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
