//! Changes of entries inside a transaction, each with its event.

use std::collections::BTreeSet;

use audit::{Actor, Event};
use event_catalogue::Recorded as _;
use event_catalogue::directory::{Change, Changed, PasswordSet};
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::{DirectoryError, Person};

type Tx = Transaction<'static, Sqlite>;

/// Writes `person` over `old`; no event if nothing changes.
pub(crate) async fn put(
    tx: &mut Tx,
    old: Option<&Person>,
    person: &Person,
    actor: &Actor,
    now: OffsetDateTime,
) -> Result<Option<Event>, DirectoryError> {
    if old == Some(person) {
        return Ok(None);
    }
    let epochs = i64::from(old.is_some_and(|old| ends_sessions(old, person)));
    sqlx::query(
        "INSERT INTO people (uid, name, given_name, surname, email, organisation, clearance,
             roles, units, active, country) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?12)
         ON CONFLICT (uid) DO UPDATE SET name = ?2, given_name = ?3, surname = ?4, email = ?5,
             organisation = ?6, clearance = ?7, roles = ?8, units = ?9, active = ?10,
             epoch = epoch + ?11, country = ?12",
    )
    .bind(&person.uid)
    .bind(&person.name)
    .bind(&person.given_name)
    .bind(&person.surname)
    .bind(&person.email)
    .bind(&person.organisation)
    .bind(i64::from(person.clearance.level()))
    .bind(serde_json::to_string(&person.roles).unwrap_or_default())
    .bind(serde_json::to_string(&person.units).unwrap_or_default())
    .bind(person.active)
    .bind(epochs)
    .bind(&person.country)
    .execute(&mut **tx)
    .await?;
    Ok(Some(event(old, person, actor, now)))
}

/// Writes a password's verifier, and ends what the one before opened.
pub(crate) async fn put_password(
    tx: &mut Tx,
    uid: &str,
    verifier: &str,
    actor: &Actor,
    now: OffsetDateTime,
) -> Result<Event, DirectoryError> {
    let before: Option<i64> = sqlx::query_scalar("SELECT failures FROM passwords WHERE uid = ?")
        .bind(uid)
        .fetch_optional(&mut **tx)
        .await?;
    sqlx::query("INSERT OR REPLACE INTO passwords VALUES (?, ?, 0, 0)")
        .bind(uid)
        .bind(verifier)
        .execute(&mut **tx)
        .await?;
    sqlx::query("UPDATE people SET epoch = epoch + 1 WHERE uid = ?")
        .bind(uid)
        .execute(&mut **tx)
        .await?;
    let set = PasswordSet {
        replaced: before.is_some(),
        failures_before: before.unwrap_or(0),
    };
    Ok(set.into_event(now, actor.clone(), format!("person/{uid}")))
}

/// Whether the change takes something away that a session may rest on.
fn ends_sessions(old: &Person, new: &Person) -> bool {
    (old.active && !new.active)
        || new.clearance < old.clearance
        || !new.roles.is_superset(&old.roles)
        || !new.units.is_superset(&old.units)
}

fn event(old: Option<&Person>, new: &Person, actor: &Actor, now: OffsetDateTime) -> Event {
    let kind = match old {
        None => Change::Add,
        Some(old) if old.active && !new.active => Change::Disable,
        Some(old) if !old.active && new.active => Change::Enable,
        Some(_) => Change::Change,
    };
    // Old and new value, both only where they differ; a new person has no old ones.
    let values = |of: fn(&Person) -> String| {
        let (before, after) = (old.map(of), of(new));
        match before.as_ref() == Some(&after) {
            true => (None, None),
            false => (before, Some(after)),
        }
    };
    let (old_name, new_name) = values(|person| person.name.clone());
    let (old_given_name, new_given_name) = values(|person| person.given_name.clone());
    let (old_surname, new_surname) = values(|person| person.surname.clone());
    let (old_email, new_email) = values(|person| person.email.clone());
    let (old_organisation, new_organisation) = values(|person| person.organisation.clone());
    let (old_country, new_country) = values(|person| person.country.clone());
    let (old_clearance, new_clearance) = values(|person| person.clearance.level().to_string());
    let (old_roles, new_roles) = values(|person| list(person.roles.iter().map(|r| r.name())));
    let (old_units, new_units) = values(|person| list(person.units.iter().map(String::as_str)));
    let (old_active, new_active) = values(|person| person.active.to_string());
    let changed = Changed {
        kind,
        old_name,
        new_name,
        old_given_name,
        new_given_name,
        old_surname,
        new_surname,
        old_email,
        new_email,
        old_organisation,
        new_organisation,
        old_country,
        new_country,
        old_clearance,
        new_clearance,
        old_roles,
        new_roles,
        old_units,
        new_units,
        old_active,
        new_active,
    };
    changed.into_event(now, actor.clone(), format!("person/{}", new.uid))
}

/// Words in their order, with commas between.
fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: BTreeSet<&str> = words.collect();
    words.into_iter().collect::<Vec<_>>().join(", ")
}
