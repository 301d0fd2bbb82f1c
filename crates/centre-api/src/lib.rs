//! The answers and questions of the acquisition centre's interface for people, as data.
//!
//! The centre gives them over HTTP as JSON, described by OpenAPI, and to the portal as they are: what a
//! violation is, is said here and nowhere else. Nothing is decided or computed here, and whatever a field
//! says is what the asker may see.
#![forbid(unsafe_code)]

mod range;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

pub use range::{Asked, Part, Served, Wanted};

/// A place in the list of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub i64);

// As text: a number of this size is not exact in every reader of JSON.
impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(number))
    }
}

/// Filter of a list; missing or empty fields mean everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Captured at or after (RFC 3339).
    #[serde(with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>, format = DateTime)]
    pub from: Option<OffsetDateTime>,
    /// Captured before (RFC 3339).
    #[serde(with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>, format = DateTime)]
    pub to: Option<OffsetDateTime>,
    /// Part of the place's name; letters with and without marks are similar.
    pub place: String,
    /// Name of the camera.
    pub device: String,
    /// Part of the number plate; case, blanks and dashes do not count, and letters that look alike are similar.
    pub plate: String,
    /// At least this fast, km/h.
    pub min_speed: Option<u32>,
    /// `open`, `accepted` or `rejected`.
    pub state: String,
    /// Older than this place in the list, which an answer gave as `older`.
    #[param(value_type = Option<String>)]
    pub before: Option<Cursor>,
    /// Newer than this place in the list, which an answer gave as `newer`.
    #[param(value_type = Option<String>)]
    pub after: Option<Cursor>,
}

/// One page of a longer list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Page<T> {
    /// The rows of this page.
    pub rows: Vec<T>,
    /// Start of the next page, as `before`; null at the end. A search that has compared as much
    /// as one answer may cost stops there with fewer rows than fit.
    #[schema(value_type = Option<String>)]
    pub older: Option<Cursor>,
    /// Start of the page before, as `after`; null on the first page.
    #[schema(value_type = Option<String>)]
    pub newer: Option<Cursor>,
    /// Number of violations that the rules hide from the asker, on all pages. Only counted when the
    /// filter is empty: else whoever may not see a violation could ask for its plate or place.
    pub hidden: usize,
}

/// A violation in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Summary {
    /// Its name.
    pub id: String,
    /// When it was seen.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub captured_at: OffsetDateTime,
    /// Kind, for instance `speeding`.
    pub kind: String,
    /// Name of the place.
    pub place: String,
    /// Camera.
    pub device: String,
    /// Unit it belongs to.
    pub unit: String,
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
    /// Whether another block of the camera, which is in quarantine, claims the same number.
    pub disputed: bool,
    /// Whether a search found it only by characters that are taken for those asked for, as O and 0. Such rows come
    /// after the others of their page.
    pub similar: bool,
}

/// One medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Medium {
    /// File name.
    pub name: String,
    /// Media type.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// The way in which a page shows a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presentation {
    Picture,
    Film,
    /// Anything else could be a page: it is saved, and never shown.
    File,
}

impl Presentation {
    /// The presentation of a medium by its media type in the manifest.
    #[must_use]
    pub fn of(media_type: &str) -> Self {
        match media_type {
            "image/jpeg" | "image/png" => Self::Picture,
            "video/mp4" => Self::Film,
            _ => Self::File,
        }
    }
}

impl Medium {
    /// The way in which a page shows it.
    #[must_use]
    pub fn presentation(&self) -> Presentation {
        Presentation::of(&self.media_type)
    }
}

/// One decision of a reviewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReviewedBy {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub at: OffsetDateTime,
    /// Name of the person.
    pub name: String,
    /// `accepted` or `rejected`.
    pub decision: String,
    /// Why.
    pub reason: String,
}

/// One step in the life of a violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CustodyStep {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub at: OffsetDateTime,
    /// Person or service that acted.
    pub actor: String,
    /// The act.
    pub action: String,
    /// Leaf index in the audit log.
    pub log_index: u64,
}

/// A block that contradicts a violation's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Disputing {
    /// SHA-256 of the sealed block.
    pub block_sha256: String,
    /// When it came.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub found_at: OffsetDateTime,
}

/// Everything about one violation but its pictures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Details {
    /// The row of the list.
    #[serde(flatten)]
    pub summary: Summary,
    /// Latitude in microdegrees.
    pub latitude_microdeg: i32,
    /// Longitude in microdegrees.
    pub longitude_microdeg: i32,
    /// Lane from the kerb.
    pub lane: Option<u32>,
    /// The camera's sequence number.
    pub sequence: u64,
    /// The media in the order of the block.
    pub media: Vec<Medium>,
    /// Blocks in quarantine that claim the same number: until somebody has found out which one is
    /// the camera's, neither proves anything.
    pub disputed_by: Vec<Disputing>,
    /// Decisions, oldest first.
    pub reviews: Vec<ReviewedBy>,
    /// Steps, oldest first.
    pub custody: Vec<CustodyStep>,
    /// SHA-256 of the sealed block.
    pub block_sha256: String,
    /// Bytes of the sealed block.
    pub block_size: u64,
    /// SHA-256 of the signed manifest.
    pub manifest_sha256: String,
    /// When the centre had received it.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub received_at: OffsetDateTime,
    /// Leaf index of the receipt's event.
    pub log_index: Option<u64>,
    /// Name of the audit log.
    pub log_origin: String,
    /// Whether the asker may accept or reject.
    pub may_review: bool,
    /// Whether the asker may export.
    pub may_export: bool,
}

/// Figures for the first page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Overview {
    /// Visible violations without a decision.
    pub open: u64,
    /// Visible violations received in the last 24 hours, reckoned from full ten minutes.
    pub today: u64,
    /// Cameras that ever sent something.
    pub cameras: u64,
    /// Cameras with unexplained gaps.
    pub cameras_with_gaps: u64,
}

/// Sources that a camera could not seal, as it last reported them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SetAside {
    /// How many.
    pub count: u64,
    /// When the oldest was set aside, by the camera's clock.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<OffsetDateTime>,
    /// Why the newest was set aside.
    pub reason: String,
    /// When the camera reported it, by the site's clock.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub reported_at: OffsetDateTime,
}

/// A camera that has sent something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Camera {
    /// Name.
    pub device: String,
    /// Unit.
    pub unit: String,
    /// When the last block came.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_seen: Option<OffsetDateTime>,
    /// Blocks accepted.
    pub blocks: u64,
    /// Blocks in quarantine.
    pub quarantined: u64,
    /// Epoch of the open chain: how often the camera was replaced.
    pub epoch: u64,
    /// Highest sequence number of the open chain.
    pub head: u64,
    /// Ranges of numbers of the open chain that neither arrived, nor are in quarantine, nor are declared lost, lowest first.
    pub gaps: Vec<(u64, u64)>,
    /// Numbers that the closed chains miss.
    pub missing_before: u64,
    /// Numbers that the camera declared lost.
    pub dropped: u64,
    /// Blocks in quarantine that claim a number of another block.
    pub forks: u64,
    /// Sources that it could not seal; null if it reports none.
    pub set_aside: Option<SetAside>,
}

/// A reviewer's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The violation is proven.
    Accepted,
    /// It is not.
    Rejected,
}

impl Decision {
    /// The name of it in answers, in the index and in events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }
}
