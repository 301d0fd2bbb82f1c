//! The questions that people ask of the index.

use access::Resource;
use audit::Event;
use evidence::export::MAX_EVENTS;
use evidence::manifest::Manifest;
use pki::clearance::Clearance;
use serde::{Deserialize, Serialize};
use store::sqlx::{self, QueryBuilder, Sqlite};
use store::{Sql, StoreError};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::clock::{from_millis, millis};

/// Violations on one page.
pub(crate) const PAGE: u32 = 24;
/// Custody steps shown; a violation that was opened more often shows its newest.
const MAX_CUSTODY: i64 = 500;

/// What a list is narrowed to; missing or empty fields mean everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
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
    /// Part of the place's name.
    pub place: String,
    /// Name of the camera.
    pub device: String,
    /// Part of the number plate.
    pub plate: String,
    /// At least this fast, km/h.
    pub min_speed: Option<u32>,
    /// `open`, `accepted` or `rejected`.
    pub state: String,
    /// Page, from 1.
    pub page: u32,
}

impl Filter {
    /// The event of a search with what was looked for: who follows a car must be found by its plate.
    pub(super) fn describe(&self, mut event: Event) -> Event {
        let instant = |at: Option<OffsetDateTime>| at.map(|at| at.unix_timestamp().to_string());
        let text = |text: &str| (!text.is_empty()).then(|| term(text));
        let terms = [
            ("search.from", instant(self.from)),
            ("search.to", instant(self.to)),
            ("search.place", text(&self.place)),
            ("search.device", text(&self.device)),
            ("search.plate", text(&self.plate)),
            ("search.min_speed", self.min_speed.map(|s| s.to_string())),
            ("search.state", text(&self.state)),
            (
                "search.page",
                (self.page > 1).then(|| self.page.to_string()),
            ),
        ];
        for (name, value) in terms {
            if let Some(value) = value {
                event = event.with_detail(name, value);
            }
        }
        event
    }

    /// Whether nothing is narrowed.
    pub(super) fn is_everything(&self) -> bool {
        let page = self.page;
        *self
            == Self {
                page,
                ..Self::default()
            }
    }
}

/// A term as an event shows it: an event has a bound, and no plate or place is longer.
fn term(text: &str) -> String {
    const MAX: usize = 256;
    let count = text.chars().count();
    if count <= MAX {
        return text.to_owned();
    }
    let start: String = text.chars().take(MAX).collect();
    format!("{start}… ({count} characters)")
}

/// One page of a longer list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Page<T> {
    /// The rows of this page.
    pub rows: Vec<T>,
    /// Whether there is a next page.
    pub more: bool,
    /// How many violations the rules hide from the asker, on all pages. Only counted when the
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
    /// Where.
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
}

impl Summary {
    /// What the access rules decide about.
    pub(super) fn resource(&self) -> Resource {
        resource(&self.id, &self.unit, i64::from(self.classification))
    }
}

/// The resource of a violation. A classification that no clearance reaches, which only a damaged
/// index has, counts as the highest.
pub(super) fn resource(id: &str, unit: &str, classification: i64) -> Resource {
    let level = u8::try_from(classification)
        .ok()
        .and_then(|l| Clearance::try_from(l).ok());
    Resource::violation(id, unit, level.unwrap_or(Clearance::TopSecret))
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

/// One decision of a reviewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReviewedBy {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    #[schema(value_type = String, format = DateTime)]
    pub at: OffsetDateTime,
    /// Who.
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
    /// Who or what acted.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// Leaf index in the audit log.
    pub log_index: u64,
}

/// Everything about one violation but its pictures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Details {
    /// What the list shows.
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
    /// Visible violations received in the last 24 hours.
    pub today: u64,
    /// Cameras that ever sent something.
    pub cameras: u64,
    /// Cameras with unexplained gaps.
    pub cameras_with_gaps: u64,
}

type SummaryRow = (
    String,
    i64,
    String,
    String,
    String,
    String,
    Option<String>,
    Option<i64>,
    Option<i64>,
    i64,
    Option<String>,
);
const SUMMARY: &str = "SELECT v.id, v.captured_at, v.kind, v.place, v.device, v.unit, v.plate,
    v.speed_kmh, v.limit_kmh, v.classification, (SELECT decision FROM reviews r
    WHERE r.violation = v.id ORDER BY r.at DESC, r.rowid DESC LIMIT 1) AS state FROM violations v";

fn from_row(row: SummaryRow) -> Summary {
    Summary {
        id: row.0,
        captured_at: from_millis(row.1),
        kind: row.2,
        place: row.3,
        device: row.4,
        unit: row.5,
        plate: row.6,
        speed_kmh: row.7.and_then(|n| u32::try_from(n).ok()),
        limit_kmh: row.8.and_then(|n| u32::try_from(n).ok()),
        classification: u8::try_from(row.9).unwrap_or(u8::MAX),
        state: row.10.unwrap_or_else(|| "open".to_owned()),
    }
}

/// What the rules look at beside the person: unit and classification.
pub(super) type Kind = (String, i64);

/// Narrows `query` to violations of `kinds`.
fn push_kinds(query: &mut QueryBuilder<Sqlite>, kinds: &[Kind]) {
    query.push(" WHERE (0");
    for (unit, classification) in kinds {
        query.push(" OR v.unit = ").push_bind(unit.clone());
        query
            .push(" AND v.classification = ")
            .push_bind(*classification);
    }
    query.push(")");
}

/// How many violations are of `kinds`.
pub(super) async fn count(sql: &Sql, kinds: &[Kind]) -> Result<usize, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new("SELECT count(*) FROM violations v");
    push_kinds(&mut query, kinds);
    let count: i64 = query.build_query_scalar().fetch_one(sql.read()).await?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// One page of the violations of the `visible` kinds, newest first.
pub(super) async fn list(
    sql: &Sql,
    filter: &Filter,
    visible: &[Kind],
) -> Result<Page<Summary>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new(SUMMARY);
    push_kinds(&mut query, visible);
    if let Some(from) = filter.from {
        query.push(" AND v.captured_at >= ").push_bind(millis(from));
    }
    if let Some(to) = filter.to {
        query.push(" AND v.captured_at < ").push_bind(millis(to));
    }
    for (column, part) in [("place", &filter.place), ("plate", &filter.plate)] {
        if !part.is_empty() {
            // instr, unlike LIKE, has no wildcards that somebody could type by accident.
            query
                .push(format!(" AND instr(lower(v.{column}), lower("))
                .push_bind(part.clone());
            query.push(")) > 0");
        }
    }
    if !filter.device.is_empty() {
        query
            .push(" AND v.device = ")
            .push_bind(filter.device.clone());
    }
    if let Some(speed) = filter.min_speed {
        query
            .push(" AND v.speed_kmh >= ")
            .push_bind(i64::from(speed));
    }
    match filter.state.as_str() {
        "" => {}
        "open" => {
            query.push(" AND state IS NULL");
        }
        state => {
            query.push(" AND state = ").push_bind(state.to_owned());
        }
    }
    let skip = u64::from(filter.page.max(1) - 1) * u64::from(PAGE);
    query
        .push(" ORDER BY v.captured_at DESC, v.id LIMIT ")
        .push_bind(i64::from(PAGE) + 1);
    query.push(" OFFSET ").push_bind(skip.cast_signed());
    let rows: Vec<SummaryRow> = query.build_query_as().fetch_all(sql.read()).await?;
    let mut rows: Vec<Summary> = rows.into_iter().map(from_row).collect();
    let more = rows.len() > PAGE as usize;
    rows.truncate(PAGE as usize);
    Ok(Page {
        rows,
        more,
        hidden: 0,
    })
}

/// One violation for a list.
pub(super) async fn summary(sql: &Sql, id: &str) -> Result<Option<Summary>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new(SUMMARY);
    query.push(" WHERE v.id = ").push_bind(id.to_owned());
    let row: Option<SummaryRow> = query.build_query_as().fetch_optional(sql.read()).await?;
    Ok(row.map(from_row))
}

/// Which pairs of unit and classification occur.
pub(super) async fn kinds(sql: &Sql) -> Result<Vec<Kind>, StoreError> {
    Ok(
        sqlx::query_as("SELECT DISTINCT unit, classification FROM violations")
            .fetch_all(sql.read())
            .await?,
    )
}

/// Figures over the violations of the `visible` kinds.
pub(super) async fn overview(
    sql: &Sql,
    visible: &[Kind],
    now: OffsetDateTime,
) -> Result<Overview, StoreError> {
    let mut overview = Overview::default();
    for (unit, classification) in visible {
        let (open, today): (i64, i64) = sqlx::query_as(
            "SELECT count(*) FILTER (WHERE NOT EXISTS
                    (SELECT 1 FROM reviews r WHERE r.violation = v.id)),
                count(*) FILTER (WHERE b.received_at >= ?3)
             FROM violations v JOIN blocks b USING (block_sha256)
             WHERE v.unit = ?1 AND v.classification = ?2",
        )
        .bind(unit)
        .bind(classification)
        .bind(millis(now - time::Duration::DAY))
        .fetch_one(sql.read())
        .await?;
        overview.open += open.unsigned_abs();
        overview.today += today.unsigned_abs();
    }
    let (cameras, gaps) = crate::cameras::counts(sql).await?;
    Ok(Overview {
        cameras,
        cameras_with_gaps: gaps,
        ..overview
    })
}

type DetailRow = (
    i64,
    i64,
    Option<i64>,
    String,
    String,
    i64,
    i64,
    Option<String>,
    Option<i64>,
);

/// Completes `summary` with everything but the pictures and the permissions.
pub(super) async fn details(
    sql: &Sql,
    summary: Summary,
    log_origin: String,
) -> Result<Details, StoreError> {
    let row: DetailRow = sqlx::query_as(
        "SELECT v.latitude, v.longitude, v.lane, v.manifest, b.block_sha256, b.size,
            b.received_at, b.manifest_sha256, b.log_index
         FROM violations v JOIN blocks b USING (block_sha256) WHERE v.id = ?",
    )
    .bind(&summary.id)
    .fetch_one(sql.read())
    .await?;
    let sequence: i64 = sqlx::query_scalar("SELECT sequence FROM violations WHERE id = ?")
        .bind(&summary.id)
        .fetch_one(sql.read())
        .await?;
    Ok(Details {
        latitude_microdeg: i32::try_from(row.0).unwrap_or(0),
        longitude_microdeg: i32::try_from(row.1).unwrap_or(0),
        lane: row.2.and_then(|n| u32::try_from(n).ok()),
        sequence: sequence.unsigned_abs(),
        media: media(&row.3),
        reviews: reviews(sql, &summary.id).await?,
        custody: custody(sql, &summary.id).await?,
        block_sha256: row.4,
        block_size: row.5.unsigned_abs(),
        received_at: from_millis(row.6),
        manifest_sha256: row.7.unwrap_or_default(),
        log_index: row.8.map(i64::unsigned_abs),
        log_origin,
        may_review: false,
        may_export: false,
        summary,
    })
}

/// The media that a stored manifest names.
fn media(manifest: &str) -> Vec<Medium> {
    let manifest = Manifest::parse_canonical(manifest.as_bytes());
    let media = manifest.map(|m| m.media).unwrap_or_default();
    let medium = |m: evidence::manifest::Medium| Medium {
        name: m.name,
        media_type: m.media_type,
        size: m.size,
        sha256: m.sha256.to_string(),
    };
    media.into_iter().map(medium).collect()
}

async fn reviews(sql: &Sql, id: &str) -> Result<Vec<ReviewedBy>, StoreError> {
    let rows: Vec<(i64, String, String, String)> = sqlx::query_as(
        "SELECT at, name, decision, reason FROM reviews WHERE violation = ? ORDER BY at, rowid",
    )
    .bind(id)
    .fetch_all(sql.read())
    .await?;
    let review = |(at, name, decision, reason)| ReviewedBy {
        at: from_millis(at),
        name,
        decision,
        reason,
    };
    Ok(rows.into_iter().map(review).collect())
}

async fn custody(sql: &Sql, id: &str) -> Result<Vec<CustodyStep>, StoreError> {
    let rows: Vec<(i64, String, String, i64)> = sqlx::query_as(
        "SELECT at, actor, action, log_index FROM custody WHERE violation = ?
         ORDER BY log_index DESC LIMIT ?",
    )
    .bind(id)
    .bind(MAX_CUSTODY)
    .fetch_all(sql.read())
    .await?;
    let step = |(at, actor, action, log_index): (i64, String, String, i64)| CustodyStep {
        at: from_millis(at),
        actor,
        action,
        log_index: log_index.unsigned_abs(),
    };
    Ok(rows.into_iter().rev().map(step).collect())
}

/// The block of a violation with its receipt.
pub(super) async fn block(
    sql: &Sql,
    id: &str,
) -> Result<Option<(String, Option<Vec<u8>>)>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT b.block_sha256, b.receipt FROM violations v JOIN blocks b USING (block_sha256)
         WHERE v.id = ?",
    )
    .bind(id)
    .fetch_optional(sql.read())
    .await?)
}

/// Leaf indices of the events about a violation up to the event `last`, lowest first; `None` if
/// they are more than a package holds.
pub(super) async fn log_indices(
    sql: &Sql,
    id: &str,
    last: u64,
) -> Result<Option<Vec<u64>>, StoreError> {
    let most = i64::try_from(MAX_EVENTS).unwrap_or(i64::MAX);
    let indices: Vec<i64> = sqlx::query_scalar(
        "SELECT log_index FROM custody WHERE violation = ?1 AND log_index <= ?2
         ORDER BY log_index LIMIT ?3",
    )
    .bind(id)
    .bind(last.cast_signed())
    .bind(most.saturating_add(1))
    .fetch_all(sql.read())
    .await?;
    let all: Vec<u64> = indices.into_iter().map(i64::unsigned_abs).collect();
    Ok((all.len() <= MAX_EVENTS).then_some(all))
}
