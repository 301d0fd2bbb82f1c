//! What of the index a person may view.

use std::collections::{BTreeMap, BTreeSet};

use access::{Action, Context, PolicyDecisionPoint, Principal, Resource};
use pki::clearance::Clearance;
use store::sqlx::{self, Sqlite};
use store::{Sql, StoreError, readable, readable_rows};

/// Violations of one unit, classification and state.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) audience: i64,
    pub(super) unit: String,
    pub(super) classification: i64,
    pub(super) state: String,
    count: u64,
}

/// The groups of violations that somebody may view. Only the access rules make one, and no question
/// about more than one violation can be asked of the index without it.
#[derive(Clone, Debug)]
pub(super) struct Visible {
    groups: BTreeMap<i64, Group>,
    hidden: u64,
}

type Row = (i64, i64, String, i64, String, i64);
const GROUPS: &str = "SELECT g.id, a.id, a.unit, a.classification, g.state, g.count
    FROM audiences a JOIN violation_groups g ON g.audience = a.id";

impl Visible {
    /// Asks the rules about every unit and classification in the index.
    pub(super) async fn to(
        who: &Principal,
        access: &dyn PolicyDecisionPoint,
        sql: &Sql,
    ) -> Result<Self, StoreError> {
        let rows = sqlx::query(GROUPS).fetch_all(sql.read()).await?;
        // A group that cannot be read is nobody's until its violations are repaired.
        let (rows, _) = readable_rows::<Row>(rows);
        let mut visible = Self {
            groups: BTreeMap::new(),
            hidden: 0,
        };
        let mut decided: BTreeMap<i64, bool> = BTreeMap::new();
        for (id, group) in rows.into_iter().map(Group::from_row) {
            let permitted = *decided
                .entry(group.audience)
                .or_insert_with(|| may_view(access, who, &group.resource("any")));
            if permitted {
                visible.groups.insert(id, group);
            } else {
                visible.hidden = visible.hidden.saturating_add(group.count);
            }
        }
        Ok(visible)
    }

    /// Counts the violations that are in none of the groups.
    pub(super) fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Counts the violations in `state`.
    pub(super) fn count(&self, state: &str) -> u64 {
        let groups = self.groups.values().filter(|group| group.state == state);
        groups.map(|group| group.count).sum()
    }

    /// The group `id`, if it may be viewed.
    pub(super) fn group(&self, id: i64) -> Option<&Group> {
        self.groups.get(&id)
    }

    /// Whether anything of this audience may be viewed.
    pub(super) fn has_audience(&self, audience: i64) -> bool {
        self.groups.values().any(|group| group.audience == audience)
    }

    pub(super) fn audiences(&self) -> Vec<i64> {
        let all: BTreeSet<i64> = self.groups.values().map(|group| group.audience).collect();
        all.into_iter().collect()
    }

    /// Groups of one state or, if that is empty, of all. Not by their counts, which are as good as the index.
    pub(super) fn groups_in(&self, state: &str) -> Vec<i64> {
        let wanted = |group: &Group| state.is_empty() || group.state == state;
        let groups = self.groups.iter().filter(|(_, group)| wanted(group));
        groups.map(|(id, _)| *id).collect()
    }
}

impl Group {
    /// The group `id` of some violation.
    pub(super) async fn find(sql: &Sql, id: i64) -> Result<Option<Self>, StoreError> {
        let query = format!("{GROUPS} WHERE g.id = ?");
        let row = sqlx::query_as::<Sqlite, Row>(sqlx::AssertSqlSafe(query.as_str()))
            .bind(id)
            .fetch_optional(sql.read())
            .await;
        let row = readable(row)?;
        Ok(row.map(|row| Self::from_row(row).1))
    }

    fn from_row((id, audience, unit, classification, state, count): Row) -> (i64, Self) {
        let group = Self {
            audience,
            unit,
            classification,
            state,
            count: count.unsigned_abs(),
        };
        (id, group)
    }

    fn resource(&self, id: &str) -> Resource {
        resource(id, &self.unit, self.classification)
    }
}

/// Whether the rules let `who` view `resource`.
pub(super) fn may_view(
    access: &dyn PolicyDecisionPoint,
    who: &Principal,
    resource: &Resource,
) -> bool {
    access
        .decide(who, Action::EvidenceView, resource, &Context::default())
        .allowed
}

/// The resource of a violation. A classification that no clearance reaches, which only a damaged
/// index has, counts as the highest.
pub(super) fn resource(id: &str, unit: &str, classification: i64) -> Resource {
    let level = u8::try_from(classification)
        .ok()
        .and_then(|l| Clearance::try_from(l).ok());
    Resource::violation(id, unit, level.unwrap_or(Clearance::TopSecret))
}
