//! Holds: the certificates of a suspended holder, and of a person who is disabled in the directory.
//!
//! `holders.held_at` says since when; doors, OCSP responses and revocation lists follow from it. What lists have said of holds is
//! in `listed_holds`, which [`list_holds`] brings in line with the states each time that lists get a number: a delta list must
//! take back what a list before it named (RFC 5280, section 5.2.4), and lists of a run that was killed are made good.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use audit::Actor;
use event_catalogue::{Recorded as _, registry as events};
use pki::profile::CaKind;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::generation::AuthorityId;
use crate::holders::{HolderState, state_in};
use crate::on_hold::{HOLDER_OF, count, on_hold};
use crate::{Registry, RegistryError};

/// Gives the user ids of the people who are disabled in the directory now.
pub type DisabledLookup<'a> = dyn Fn() -> DisabledFuture<'a> + Send + Sync + 'a;
/// See [`DisabledLookup`].
pub type DisabledFuture<'a> = Pin<
    Box<
        dyn Future<Output = Result<Vec<String>, Box<dyn std::error::Error + Send + Sync>>>
            + Send
            + 'a,
    >,
>;

/// Time that a change of a hold waits for its lists. Our choice: a signature takes milliseconds, and one that takes longer waits
/// for a token that does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time after which all holds are compared again, although no change is known: a commit may have
/// outlived its caller. Our choice: 50 000 certificates on hold cost half a second of one processor.
const COMPARE_AGAIN: Duration = Duration::from_secs(60);

/// A condition on `k`, a hold on lists, whose certificate is on hold no longer, or since another time.
fn has_ended(k: &str) -> String {
    format!(
        "{k}.released IS NULL AND NOT EXISTS (
             SELECT 1 FROM issued i CROSS JOIN holders h ON {} WHERE i.authority = {k}.authority AND i.serial = {k}.serial
             AND h.held_at = {k}.at AND NOT EXISTS (
                 SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial))",
        *HOLDER_OF
    )
}

/// Certificates of an authority (?1) and generation (?2) that are on hold and, since then, on no list.
fn unlisted(columns: &str) -> String {
    on_hold(
        columns,
        "h.authority = ?1 AND i.generation = ?2 AND NOT EXISTS (
             SELECT 1 FROM listed_holds k WHERE k.authority = i.authority AND k.serial = i.serial
             AND k.released IS NULL AND k.at = h.held_at)",
    )
}

/// Which holds have been compared with the lists, so that nothing is looked at again while nothing changes.
#[derive(Default)]
pub(crate) struct HoldsCompared {
    /// Grows with every change of a hold that is committed.
    changes: AtomicU64,
    /// What the newest comparison of each authority found in order: its number of changes, and when.
    compared: Mutex<BTreeMap<AuthorityId, (u64, Instant)>>,
}

impl HoldsCompared {
    /// To be called after the commit.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn is_known(&self, id: AuthorityId) -> bool {
        let known = self.compared.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known
            .get(&id)
            .is_some_and(|(changes, at)| *changes == self.changes() && at.elapsed() < COMPARE_AGAIN)
    }

    fn note(&self, id: AuthorityId, changes: u64) {
        let known = self.compared.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.insert(id, (changes, Instant::now()));
    }
}

/// Changes of holds that the next lists tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedHolds {
    pub(crate) held: u64,
    pub(crate) released: u64,
}

/// Has the lists with `number` say what the states of holders say.
pub(crate) async fn list_holds(
    tx: &mut Transaction<'static, Sqlite>,
    id: AuthorityId,
    number: i64,
) -> Result<ListedHolds, RegistryError> {
    let release = format!(
        "UPDATE listed_holds SET released = ?3 WHERE authority = ?1 AND generation = ?2 AND {}",
        has_ended("listed_holds")
    );
    let hold = format!(
        "INSERT INTO listed_holds (authority, serial, generation, shard, at, listed) {}",
        unlisted("i.authority, i.serial, i.generation, i.shard, h.held_at, ?3")
    );
    let mut changed = [0; 2];
    for (changed, query) in changed.iter_mut().zip([release, hold]) {
        let done = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(id.kind().name())
            .bind(id.generation())
            .bind(number)
            .execute(&mut **tx);
        *changed = done.await?.rows_affected();
    }
    let [released, held] = changed;
    Ok(ListedHolds { held, released })
}

/// Tells whether the newest number has all holds. Looks at what is on hold now, and at nothing that was.
pub(crate) async fn are_listed(
    registry: &Registry,
    id: AuthorityId,
) -> Result<bool, RegistryError> {
    let compared = &registry.inner.holds;
    if compared.is_known(id) {
        return Ok(true);
    }
    // Before the look: a change during it is compared by the next one.
    let changes = compared.changes();
    let query = format!(
        "SELECT NOT EXISTS ({}) AND NOT EXISTS (
             SELECT 1 FROM listed_holds k WHERE k.authority = ?1 AND k.generation = ?2 AND {})",
        unlisted("1"),
        has_ended("k")
    );
    let are_listed = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
        .bind(id.kind().name())
        .bind(id.generation())
        .fetch_one(registry.inner.sql.read())
        .await?;
    if are_listed {
        compared.note(id, changes);
    }
    Ok(are_listed)
}

impl Registry {
    /// Makes the lists of an authority after holds have begun or ended; tells whether they are made. The state is in force by
    /// itself: where the authority's key does not answer, the next [`Registry::refresh_crls`] makes them.
    pub(crate) async fn publish_holds(&self, kind: CaKind, now: OffsetDateTime) -> bool {
        let registry = self.clone();
        let renewal = tokio::spawn(async move { registry.renew_crls(kind, now).await });
        match tokio::time::timeout(PATIENCE, renewal).await {
            Ok(Ok(Ok(()))) => return true,
            Ok(Ok(Err(error))) => {
                let error = error_report::Report(&error);
                tracing::warn!(%error, "revocation lists lack a change of a hold");
            }
            Ok(Err(_)) | Err(_) => tracing::warn!("revocation lists lack a change of a hold"),
        }
        false
    }
}

/// Puts the certificates of disabled people on hold, and ends the holds of people who are enabled again. `disabled` gives the user ids; it is called again inside the transaction. Gives the number of people whose
/// hold began or ended. Cheap if nothing changed; call it every few seconds.
///
/// # Errors
/// [`RegistryError::Directory`], [`RegistryError::Store`] or [`RegistryError::Audit`]; then nothing changed.
pub async fn hold_disabled(
    registry: &Registry,
    disabled: &DisabledLookup<'_>,
    by: &Actor,
    now: OffsetDateTime,
) -> Result<usize, RegistryError> {
    let look = async || -> Result<String, RegistryError> {
        let disabled = disabled().await.map_err(RegistryError::Directory)?;
        serde_json::to_string(&disabled).map_err(|_| RegistryError::Corrupt("directory"))
    };
    let differing: Vec<(String, bool)> = sqlx::query_as(DIFFERING)
        .bind(look().await?)
        .fetch_all(registry.inner.people.read())
        .await?;
    if differing.is_empty() {
        return Ok(0);
    }
    let mut tx = registry.write(now).await?;
    let differing: Vec<(String, bool)> = sqlx::query_as(DIFFERING)
        .bind(look().await?)
        .fetch_all(&mut **tx)
        .await?;
    let mut events = Vec::with_capacity(differing.len());
    for (uid, is_disabled) in &differing {
        let changed = set_disabled(&mut tx, uid, *is_disabled, now).await?;
        events.push(changed.into_event(now, by.clone(), format!("person/{uid}")));
    }
    if events.is_empty() {
        return Ok(0);
    }
    tx.record(events).await?;
    tx.commit_then(|| registry.inner.holds.changed()).await?;
    registry.publish_holds(CaKind::Users, now).await;
    Ok(differing.len())
}

/// People with certificates whose rows say otherwise than the directory (user ids as JSON), and what it says. People who are revoked or
/// retired have nothing that could be held.
const DIFFERING: &str = "
    SELECT h.holder_id, 1 FROM json_each(?1) d JOIN holders h ON h.authority = 'users' AND h.holder_id = d.value
    WHERE h.disabled_at IS NULL AND h.state IN ('enrolled', 'suspended')
    UNION ALL
    SELECT h.holder_id, 0 FROM holders h WHERE h.authority = 'users' AND h.disabled_at IS NOT NULL
        AND h.holder_id NOT IN (SELECT value FROM json_each(?1))";

async fn set_disabled(
    tx: &mut Transaction<'static, Sqlite>,
    uid: &str,
    is_disabled: bool,
    now: OffsetDateTime,
) -> Result<events::HolderChanged, RegistryError> {
    let state = |state: Option<HolderState>| state.map_or("", HolderState::name).to_owned();
    let old = state(state_in(tx, CaKind::Users, uid).await?);
    let before = count(tx, CaKind::Users, uid).await?;
    sqlx::query(
        "UPDATE holders SET disabled_at = ?1, epoch = epoch + 1 WHERE authority = ?2 AND holder_id = ?3",
    )
    .bind(is_disabled.then(|| now.unix_timestamp()))
    .bind(CaKind::Users.name())
    .bind(uid)
    .execute(&mut **tx)
    .await?;
    let after = count(tx, CaKind::Users, uid).await?;
    Ok(events::HolderChanged {
        kind: match is_disabled {
            true => events::HolderChange::PersonHold,
            false => events::HolderChange::PersonRelease,
        },
        old,
        new: state(state_in(tx, CaKind::Users, uid).await?),
        certificates: before.abs_diff(after),
    })
}
