//! The list of violations, page by page.
//!
//! What a page costs depends on the page, not on what is stored: rows lie in the order of the list,
//! each audience and state for itself, so that nothing hidden is read; a page begins where the one
//! before ended; and what no index answers is compared row by row up to [`SCAN`].

use audit::Event;
use centre_api::{Cursor, Filter, Page, Summary};
use event_catalogue::Details as _;
use event_catalogue::context::Search;
use store::sqlx::{self, Row as _, Sqlite};
use store::{Sql, StoreError, readable, readable_rows};
use time::OffsetDateTime;

use super::visible::{Group, Visible};
use crate::clock::{from_millis, millis};
use crate::search::{self, Hit, Text};

/// Violations on one page.
pub(crate) const PAGE: usize = 24;
/// Rows compared for one page where no index answers a filter: some milliseconds. The answer then
/// says where it stopped.
const SCAN: usize = 1024;
/// Rows compared at once, at most.
const CHUNK: usize = 256;
/// The same at first where the full text names candidates: nearly all of them are what is looked for.
const FIRST_CHUNK: usize = 2 * PAGE;
/// Audiences in one question to the full text, which bounds the depth of its expression.
const AUDIENCES: usize = 64;

/// The event of a search with what was looked for: who follows a car must be found by its plate.
pub(super) fn describe(filter: &Filter, event: Event) -> Event {
    let instant = |at: Option<OffsetDateTime>| at.map(|at| at.unix_timestamp().to_string());
    let text = |text: &str| (!text.is_empty()).then(|| term(text));
    let search = Search {
        from: instant(filter.from),
        to: instant(filter.to),
        place: text(&filter.place),
        device: text(&filter.device),
        plate: text(&filter.plate),
        min_speed: filter.min_speed.map(|s| s.to_string()),
        state: text(&filter.state),
        before: filter.before.map(|at| at.0.to_string()),
        after: filter.after.map(|at| at.0.to_string()),
    };
    search.add_to(event)
}

/// Whether nothing is narrowed.
pub(super) fn is_everything(filter: &Filter) -> bool {
    let (before, after) = (filter.before, filter.after);
    *filter
        == Filter {
            before,
            after,
            ..Filter::default()
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

type SummaryRow = (
    i64,
    i64,
    String,
    i64,
    String,
    String,
    String,
    Option<String>,
    Option<i64>,
    Option<i64>,
    String,
);
const SUMMARY: &str = "SELECT v.position, v.violation_group, v.id, v.captured_at, v.kind, v.place,
    v.device, v.plate, v.speed_kmh, v.limit_kmh, v.manifest FROM violations v";

/// A row of the index: a claim, until it is compared with what the manifest and the log say.
pub(crate) struct Row {
    pub(crate) position: i64,
    pub(crate) audience: i64,
    pub(crate) summary: Summary,
    pub(crate) manifest: String,
}

impl Row {
    /// Reads a row, unless it is of a group that is not visible.
    fn new(row: SummaryRow, visible: &Visible) -> Option<Self> {
        let group = visible.group(row_group(&row))?;
        Some(Self::of_group(row, group))
    }

    fn of_group(row: SummaryRow, group: &Group) -> Self {
        let number = |n: Option<i64>| n.and_then(|n| u32::try_from(n).ok());
        let summary = Summary {
            id: row.2,
            captured_at: from_millis(row.3),
            kind: row.4,
            place: row.5,
            device: row.6,
            unit: group.unit.clone(),
            plate: row.7,
            speed_kmh: number(row.8),
            limit_kmh: number(row.9),
            classification: u8::try_from(group.classification).unwrap_or(u8::MAX),
            state: group.state.clone(),
            disputed: false,
            similar: false,
        };
        Self {
            position: row.0,
            audience: group.audience,
            summary,
            manifest: row.10,
        }
    }

    /// Tells if the row says what `derived` says, and is in its place.
    pub(crate) fn says(&self, derived: &Summary) -> bool {
        let first = millis(derived.captured_at).saturating_mul(PER_MILLI);
        let end = first.saturating_add(SPILL.saturating_mul(PER_MILLI));
        let claimed = Summary {
            // The index does not say it.
            disputed: derived.disputed,
            ..self.summary.clone()
        };
        claimed == *derived && (first..end).contains(&self.position)
    }

    /// The row of the violation `id`.
    pub(crate) async fn find(sql: &Sql, id: &str) -> Result<Option<Self>, StoreError> {
        let query = format!("{SUMMARY} WHERE v.id = ?");
        let row: Option<SummaryRow> = readable(
            sqlx::query_as::<Sqlite, _>(sqlx::AssertSqlSafe(query.as_str()))
                .bind(id)
                .fetch_optional(sql.read())
                .await,
        )?;
        let Some(row) = row else {
            return Ok(None);
        };
        let group = Group::find(sql, row_group(&row)).await?;
        Ok(group.map(|group| Self::of_group(row, &group)))
    }
}

const fn row_group(row: &SummaryRow) -> i64 {
    row.1
}

/// Gives what the manifest and the log say of a row; `None` if that is something else.
pub(super) type Derive<'a> = &'a (dyn Fn(&Row) -> Option<Summary> + Sync);

/// How a row is what is looked for, `None` if it is not; indices only say which may be.
fn hit(filter: &Filter, row: &Summary) -> Option<Hit> {
    let is_asked_for = filter.from.is_none_or(|from| row.captured_at >= from)
        && filter.to.is_none_or(|to| row.captured_at < to)
        && (filter.device.is_empty() || row.device == filter.device)
        && filter
            .min_speed
            .is_none_or(|least| row.speed_kmh.is_some_and(|speed| speed >= least))
        && (filter.state.is_empty() || row.state == filter.state);
    if !is_asked_for {
        return None;
    }
    let plate = row.plate.as_deref().unwrap_or_default();
    let plate = search::hit(Text::Plate, plate, &filter.plate)?;
    let place = search::hit(Text::Place, &row.place, &filter.place)?;
    Some(plate.max(place))
}

/// Positions that a page may have.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: i64,
    /// The one after the last.
    end: i64,
    /// From the start towards newer ones, else from the end towards older ones.
    ascending: bool,
}

impl Range {
    fn of(filter: &Filter) -> Self {
        // Positions within one millisecond may run into the next ones; `hit` looks at the time.
        let first = |at: OffsetDateTime| millis(at).saturating_mul(PER_MILLI);
        let start = filter.from.map_or(i64::MIN, first);
        let after = filter.after.map_or(i64::MIN, |at| at.0.saturating_add(1));
        Self {
            start: start.max(after),
            end: filter.before.map_or(i64::MAX, |at| at.0),
            ascending: filter.after.is_some() && filter.before.is_none(),
        }
        .until(filter.to)
    }

    /// Without what is captured much later than `to`.
    fn until(self, to: Option<OffsetDateTime>) -> Self {
        let end = to.map_or(i64::MAX, |to| {
            millis(to).saturating_add(SPILL).saturating_mul(PER_MILLI)
        });
        Self {
            end: self.end.min(end),
            ..self
        }
    }

    /// Narrows it to what is left after `position`.
    fn beyond(self, position: i64) -> Self {
        match self.ascending {
            true => Self {
                start: position.saturating_add(1),
                ..self
            },
            false => Self {
                end: position,
                ..self
            },
        }
    }

    fn order(self) -> &'static str {
        match self.ascending {
            true => "ASC",
            false => "DESC",
        }
    }
}

/// Milliseconds by which a position may be ahead of the capture. A millisecond with 32 million violations would be needed to get
/// past this.
const SPILL: i64 = 1000;

/// Positions per millisecond.
pub(crate) const PER_MILLI: i64 = 1 << 15;

/// One page of the visible violations, newest first.
pub(super) async fn list(
    sql: &Sql,
    filter: &Filter,
    visible: &Visible,
    derive: Derive<'_>,
    unreadable: &(dyn Fn(&str) + Sync),
) -> Result<Page<Summary>, StoreError> {
    let range = Range::of(filter);
    let (mut rest, mut compared, mut rows) = (range, 0, Vec::new());
    // With nothing to compare, the first candidates are the page.
    let compares = !is_answered_by_index(filter);
    let mut beyond = false;
    let mut count = match compares {
        false => PAGE + 1,
        true if has_text(filter) && filter.min_speed.is_none() => FIRST_CHUNK,
        true => CHUNK,
    };
    while rows.len() <= PAGE {
        let candidates = candidates(sql, filter, visible, rest, count).await?;
        let exhausted = candidates.len() < count;
        compared += candidates.len();
        if let Some(last) = candidates.last() {
            rest = rest.beyond(*last);
        }
        let found = fetch(sql, &candidates, filter.min_speed, visible, unreadable).await?;
        let derived = found
            .iter()
            .filter_map(|row| Some((row.position, derive(row)?)));
        rows.extend(derived.filter_map(|(position, mut row)| {
            row.similar = hit(filter, &row)? == Hit::Similar;
            Some((position, row))
        }));
        if exhausted {
            break;
        }
        if compared >= SCAN {
            beyond = true;
            break;
        }
        if compares {
            count = CHUNK;
        }
    }
    // Where the walk may go on: behind the last row shown, or behind the last one compared.
    let next = if rows.len() > PAGE {
        rows.truncate(PAGE);
        rows.last().map(|(position, _)| *position)
    } else if beyond {
        Some(if range.ascending {
            rest.start.saturating_sub(1)
        } else {
            rest.end
        })
    } else {
        None
    };
    if range.ascending {
        rows.reverse();
    }
    let end = |row: Option<&(i64, Summary)>| row.map(|(position, _)| *position);
    let (newest, oldest) = (end(rows.first()), end(rows.last()));
    let came_from = |bound: Option<Cursor>| bound.map(|at| at.0);
    let (older, newer) = match range.ascending {
        // The page from which one came lies on the other side.
        true => (
            oldest.or(came_from(filter.after).map(|at| at.saturating_add(1))),
            next,
        ),
        false => (
            next,
            filter
                .before
                .and(newest.or(came_from(filter.before).map(|at| at.saturating_sub(1)))),
        ),
    };
    // The order of the walk is that of time; on the page, what was asked for to the letter comes first.
    rows.sort_by_key(|(_, row)| row.similar);
    Ok(Page {
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        older: older.map(Cursor),
        newer: newer.map(Cursor),
        hidden: 0,
    })
}

/// Whether the candidates need no comparing, so that the first of them are the page.
fn is_answered_by_index(filter: &Filter) -> bool {
    filter.place.is_empty() && filter.plate.is_empty() && filter.min_speed.is_none()
}

/// Tells if the filter has a term that the full text can look up.
fn has_text(filter: &Filter) -> bool {
    search::question(&[0], &filter.plate, &filter.place).is_some()
}

/// Positions of violations that may match, in the order of `range`, at most `count`.
async fn candidates(
    sql: &Sql,
    filter: &Filter,
    visible: &Visible,
    range: Range,
    count: usize,
) -> Result<Vec<i64>, StoreError> {
    let limit = i64::try_from(count).unwrap_or(i64::MAX);
    let audiences = visible.audiences();
    if has_text(filter) {
        let query = format!(
            "SELECT rowid FROM violation_text WHERE violation_text MATCH ?1
             AND rowid >= ?2 AND rowid < ?3 ORDER BY rowid {} LIMIT ?4",
            range.order()
        );
        let mut found: Vec<i64> = Vec::new();
        for some in audiences.chunks(AUDIENCES) {
            let question = search::question(some, &filter.plate, &filter.place);
            let part: Vec<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(query.as_str()))
                .bind(question)
                .bind(range.start)
                .bind(range.end)
                .bind(limit)
                .fetch_all(sql.read())
                .await?;
            found.extend(part);
        }
        found.sort_unstable_by(|a, b| if range.ascending { a.cmp(b) } else { b.cmp(a) });
        found.truncate(count);
        return Ok(found);
    }
    // Every group for itself, as its rows lie in order; then the first of all of them.
    let by_device = if filter.device.is_empty() {
        ""
    } else {
        "AND w.device = ?5"
    };
    let query = format!(
        "SELECT v.position FROM json_each(?1) g CROSS JOIN violations v
         WHERE v.position IN (SELECT w.position FROM violations w
            WHERE w.violation_group = g.value AND w.position >= ?2 AND w.position < ?3 {by_device}
            ORDER BY w.position {order} LIMIT ?4)
         ORDER BY v.position {order} LIMIT ?4",
        order = range.order()
    );
    let groups = visible.groups_in(&filter.state);
    Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(query.as_str()))
        .bind(json(&groups))
        .bind(range.start)
        .bind(range.end)
        .bind(limit)
        .bind(&filter.device)
        .fetch_all(sql.read())
        .await?)
}

/// The rows at `positions`, in that order; of those that are fast enough, as far as it is asked.
async fn fetch(
    sql: &Sql,
    positions: &[i64],
    min_speed: Option<u32>,
    visible: &Visible,
    unreadable: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Row>, StoreError> {
    if positions.is_empty() {
        return Ok(Vec::new());
    }
    let query = format!(
        "{SUMMARY} JOIN json_each(?1) p ON p.value = v.position
         WHERE ?2 IS NULL OR v.speed_kmh >= ?2 ORDER BY p.key"
    );
    let rows = sqlx::query::<Sqlite>(sqlx::AssertSqlSafe(query.as_str()))
        .bind(json(positions))
        .bind(min_speed.map(i64::from))
        .fetch_all(sql.read())
        .await?;
    let (rows, others) = readable_rows::<SummaryRow>(rows);
    for row in others {
        let id: Vec<u8> = row.try_get_unchecked("id").unwrap_or_default();
        unreadable(&String::from_utf8_lossy(&id));
    }
    Ok(rows
        .into_iter()
        .filter_map(|row| Row::new(row, visible))
        .collect())
}

fn json(numbers: &[i64]) -> String {
    let list: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!("[{}]", list.join(","))
}
