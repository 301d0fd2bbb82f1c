//! Changes of entries inside a transaction, each with its event.

use std::collections::BTreeSet;

use audit::{Actor, Event, Outcome};
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
    let event = Event::new(
        now,
        actor.clone(),
        "directory.password",
        format!("person/{uid}"),
        Outcome::Ok,
    );
    Ok(event
        .with_detail("replaced", before.is_some())
        .with_detail("failures_before", before.unwrap_or(0)))
}

/// Whether the change takes something away that a session may rest on.
fn ends_sessions(old: &Person, new: &Person) -> bool {
    (old.active && !new.active)
        || new.clearance < old.clearance
        || !new.roles.is_superset(&old.roles)
        || !new.units.is_superset(&old.units)
}

fn event(old: Option<&Person>, new: &Person, actor: &Actor, now: OffsetDateTime) -> Event {
    let action = match old {
        None => "directory.add",
        Some(old) if old.active && !new.active => "directory.disable",
        Some(old) if !old.active && new.active => "directory.enable",
        Some(_) => "directory.change",
    };
    let resource = format!("person/{}", new.uid);
    let mut event = Event::new(now, actor.clone(), action, resource, Outcome::Ok);
    let before = old.map(fields);
    for (at, (name, value)) in fields(new).into_iter().enumerate() {
        let old = before.as_ref().and_then(|fields| fields.get(at));
        match old {
            Some((_, old)) if *old == value => {}
            Some((_, old)) => {
                event = event
                    .with_detail(format!("{name}.old"), old.clone())
                    .with_detail(format!("{name}.new"), value);
            }
            None => event = event.with_detail(format!("{name}.new"), value),
        }
    }
    event
}

/// The values of an entry as an event shows them.
fn fields(person: &Person) -> [(&'static str, String); 10] {
    let list = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
    [
        ("name", person.name.clone()),
        ("given_name", person.given_name.clone()),
        ("surname", person.surname.clone()),
        ("email", person.email.clone()),
        ("organisation", person.organisation.clone()),
        ("country", person.country.clone()),
        ("clearance", person.clearance.level().to_string()),
        (
            "roles",
            list(person.roles.iter().map(|r| r.name()).collect()),
        ),
        (
            "units",
            list(person.units.iter().map(String::as_str).collect()),
        ),
        ("active", person.active.to_string()),
    ]
}
