//! What the database knows of revocation lists: their numbers, what stands on them, their parts.

use std::collections::BTreeMap;

use audit::Actor;
use event_catalogue::Recorded as _;
use event_catalogue::registry::{RevocationsListed, SupersededListed};
use pki::crl::{RevocationReason, RevokedEntry};
use pki::status::Revocation;
use store::sqlx::sqlite::SqliteRow;
use store::sqlx::{self, Row as _, Sqlite, Transaction};
use time::{Duration, OffsetDateTime};

use super::name::Part;
use crate::generation::AuthorityId;
use crate::holds::{ListedHolds, are_listed, list_holds};
use crate::records::instant;
use crate::{Registry, RegistryError};

/// Most entries of a delta list, which has at most 64 KiB with them. Beyond it the base moves on: whoever has an older
/// complete list than that fetches the newest one.
const MAX_CHANGES: usize = 1000;
/// Addresses of a shard in its lists, the newest. Each change of the site's public address adds one.
const MAX_ADDRESSES: i64 = 32;
/// How long a superseded certificate stays off the revocation lists. Our choice: the tunnel daemon
/// of a camera uses the same certificate and reads the new one when it is reloaded; were the old
/// one listed at once, the gateway would close the tunnel before anybody could do that.
const OVERLAP: Duration = Duration::days(7);
/// Revocations of an authority (kind: first parameter, generation: sixth) that stand on its list. A superseded certificate
/// leaves it once it has expired (before the second parameter): every camera adds one with each
/// renewal, and the lists would grow for ever. It was never in doubt, so no evidence rests on its
/// entry. Any other revocation stays, because old signatures are validated against it.
const LISTED: &str = "SELECT r.serial, r.at, r.reason, r.listed FROM revoked r
    JOIN issued i ON i.authority = r.authority AND i.serial = r.serial
    WHERE r.authority = ?1 AND r.generation = ?6 AND (r.reason <> 'superseded' OR i.not_after >= ?2)";
/// Holds that stand on the lists; each leaves them after the end of its certificate.
const HELD: &str =
    "SELECT r.serial, r.at, 'certificate-hold' AS reason, r.listed FROM listed_holds r
    JOIN issued i ON i.authority = r.authority AND i.serial = r.serial
    WHERE r.authority = ?1 AND r.generation = ?6 AND r.released IS NULL AND i.not_after >= ?2";
/// Certificates whose hold has ended: those that are neither held again nor revoked. They have no reason.
const RELEASED: &str = "SELECT r.serial, r.at, NULL AS reason, max(r.released) AS listed FROM listed_holds r
    JOIN issued i ON i.authority = r.authority AND i.serial = r.serial
    WHERE r.authority = ?1 AND r.generation = ?6 AND i.not_after >= ?2
    AND NOT EXISTS (SELECT 1 FROM listed_holds o WHERE o.authority = r.authority AND o.serial = r.serial AND o.released IS NULL)
    AND NOT EXISTS (SELECT 1 FROM revoked o WHERE o.authority = r.authority AND o.serial = r.serial)";
/// How long after its expiry: whoever reads the list may have a slow clock.
const AFTER_EXPIRY: Duration = Duration::days(30);

fn kept_from(now: OffsetDateTime) -> i64 {
    now.saturating_sub(AFTER_EXPIRY).unix_timestamp()
}

/// What changed since a complete list.
pub(super) struct Changes {
    /// The number of that list.
    pub(super) base: i64,
    pub(super) revoked: Vec<RevokedEntry>,
    /// Serial numbers of those whose hold has ended.
    pub(super) released: Vec<Vec<u8>>,
}

/// A change that lists tell of.
enum Change {
    Revoked(RevokedEntry),
    Released(Vec<u8>),
}

impl Change {
    fn into_revoked(self) -> Result<RevokedEntry, RegistryError> {
        match self {
            Self::Revoked(entry) => Ok(entry),
            Self::Released(_) => Err(RegistryError::Corrupt("reason")),
        }
    }
}

impl Registry {
    /// Addresses that certificates of each shard name, newest first.
    pub(super) async fn shards(
        &self,
        id: AuthorityId,
    ) -> Result<BTreeMap<u16, Vec<String>>, RegistryError> {
        let rows: Vec<(i64, String)> = sqlx::query_as(
            "SELECT shard, url FROM crl_shards WHERE authority = ? ORDER BY rowid DESC",
        )
        .bind(id.to_string())
        .fetch_all(self.inner.sql.read())
        .await?;
        let mut shards = BTreeMap::<u16, Vec<String>>::new();
        for (shard, url) in rows {
            let shard = u16::try_from(shard).map_err(|_| RegistryError::Corrupt("shard"))?;
            let urls = shards.entry(shard).or_default();
            if i64::try_from(urls.len()).is_ok_and(|count| count < MAX_ADDRESSES) {
                urls.push(url);
            }
        }
        Ok(shards)
    }

    /// Whether any certificate names this shard.
    pub(super) async fn is_shard(
        &self,
        id: AuthorityId,
        shard: u16,
    ) -> Result<bool, RegistryError> {
        let query = "SELECT EXISTS (SELECT 1 FROM crl_shards WHERE authority = ? AND shard = ?)";
        Ok(sqlx::query_scalar(query)
            .bind(id.to_string())
            .bind(i64::from(shard))
            // Strangers ask: not with the connections that devices wait for.
            .fetch_one(self.inner.people.read())
            .await?)
    }

    /// Takes the number of the next lists, which are the first for everything that was on none.
    ///
    /// The number is used up before anything is signed: it must never stand on two different lists of one scope. It is at
    /// least the time in seconds, so that it also grows where a database of before was put back.
    pub(super) async fn next_crl_number(
        &self,
        id: AuthorityId,
        now: OffsetDateTime,
    ) -> Result<i64, RegistryError> {
        let mut tx = self.write(now).await?;
        let number: i64 = sqlx::query_scalar(
            "INSERT INTO crl_numbers (authority, number) VALUES (?1, ?2)
             ON CONFLICT (authority) DO UPDATE SET number = max(number + 1, excluded.number)
             RETURNING number",
        )
        .bind(id.to_string())
        .bind(now.unix_timestamp().max(1))
        .fetch_one(&mut **tx)
        .await?;
        let listed = sqlx::query(
            "UPDATE revoked SET listed = ?2, shard = (SELECT i.shard FROM issued i
                 WHERE i.authority = revoked.authority AND i.serial = revoked.serial)
             WHERE authority = ?1 AND generation = ?3 AND listed IS NULL",
        )
        .bind(id.kind().name())
        .bind(number)
        .bind(id.generation())
        .execute(&mut **tx)
        .await?
        .rows_affected();
        let holds = list_holds(&mut tx, id, number).await?;
        if listed > 0 || holds != ListedHolds::default() {
            let actor = Actor::service("registry");
            let list = format!("revocation-list/{id}");
            let listed = RevocationsListed {
                number,
                certificates: listed,
                held: (holds.held > 0).then_some(holds.held),
                released: (holds.released > 0).then_some(holds.released),
            };
            let event = listed
                .into_event(now, actor, list)
                .with_reason("the next lists are the first that say so of these certificates");
            tx.record(vec![event]).await?;
        }
        tx.commit().await?;
        Ok(number)
    }

    /// The number that the list of each part must have at least, where it is above `after`. What is on no list yet
    /// demands the highest of the whole list; its shard is found when it is listed.
    pub(super) async fn needed_numbers(
        &self,
        id: AuthorityId,
        after: i64,
    ) -> Result<BTreeMap<Part, i64>, RegistryError> {
        let unlisted: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM revoked WHERE authority = ? AND generation = ? AND listed IS NULL)",
        )
        .bind(id.kind().name())
        .bind(id.generation())
        .fetch_one(self.inner.sql.read())
        .await?;
        let unlisted = unlisted || !are_listed(self, id).await?;
        // By the other index SQLite would look at everything that was ever revoked, every few seconds.
        let rows: Vec<(Option<i64>, i64)> = sqlx::query_as(
            "SELECT shard, max(number) FROM (
                 SELECT shard, listed AS number FROM revoked INDEXED BY revoked_by_listing
                 WHERE authority = ?1 AND generation = ?2 AND listed > ?3
                 UNION ALL
                 SELECT shard, listed FROM listed_holds INDEXED BY listed_holds_by_listing
                 WHERE authority = ?1 AND generation = ?2 AND listed > ?3
                 UNION ALL
                 SELECT shard, released FROM listed_holds INDEXED BY listed_holds_by_release
                 WHERE authority = ?1 AND generation = ?2 AND released > ?3) GROUP BY shard",
        )
        .bind(id.kind().name())
        .bind(id.generation())
        .bind(after)
        .fetch_all(self.inner.sql.read())
        .await?;
        let mut needed = BTreeMap::new();
        let mut whole = unlisted.then_some(i64::MAX);
        for (shard, number) in rows {
            whole = whole.max(Some(number));
            if let Some(shard) = shard {
                let shard = u16::try_from(shard).map_err(|_| RegistryError::Corrupt("shard"))?;
                needed.insert(Part::Shard(shard), number);
            }
        }
        if let Some(whole) = whole {
            needed.insert(Part::Whole, whole);
        }
        Ok(needed)
    }

    /// Everything that is known to be revoked for good.
    pub(crate) async fn every_entry(
        &self,
        id: AuthorityId,
    ) -> Result<Vec<RevokedEntry>, RegistryError> {
        let query = format!("{LISTED} ORDER BY r.at, r.serial");
        let rows = self.rows(id, Part::Whole, i64::MIN, query, 0).await?;
        rows.into_iter()
            .map(|(change, _)| change.into_revoked())
            .collect()
    }

    /// What stands on the complete list of a part made at `now` with `number`: what is revoked meanwhile has a higher number,
    /// so that complete and delta lists of one number say the same.
    pub(super) async fn entries(
        &self,
        id: AuthorityId,
        part: Part,
        number: i64,
        now: OffsetDateTime,
    ) -> Result<Vec<RevokedEntry>, RegistryError> {
        let shard = part.condition();
        let query = format!(
            "{LISTED} {shard} AND r.listed <= ?4 UNION ALL {HELD} {shard} AND r.listed <= ?4 ORDER BY 2, 1"
        );
        let rows = self.rows(id, part, kept_from(now), query, number).await?;
        rows.into_iter()
            .map(|(change, _)| change.into_revoked())
            .collect()
    }

    /// What a delta list made at `now` says, where the newest complete list has the number `complete`.
    ///
    /// Its base is the oldest complete list that is in date, if there are not too many changes since.
    pub(super) async fn changes(
        &self,
        id: AuthorityId,
        part: Part,
        complete: i64,
        now: OffsetDateTime,
    ) -> Result<Changes, RegistryError> {
        let bases: Vec<i64> = sqlx::query_scalar(
            "SELECT number FROM crl_bases
             WHERE authority = ? AND shard = ? AND issued_at > ? AND number <= ? ORDER BY number",
        )
        .bind(id.to_string())
        .bind(part.row())
        .bind(self.bases_from(now))
        .bind(complete)
        .fetch_all(self.inner.sql.read())
        .await?;
        let mut base = bases.first().copied().unwrap_or(complete);
        let shard = part.condition();
        // RFC 5280, section 5.2.4: what was put on hold after the base and released since is taken back as well.
        let query = format!(
            "{LISTED} {shard} AND r.listed > ?4 UNION ALL {HELD} {shard} AND r.listed > ?4
             UNION ALL {RELEASED} {shard} AND r.released > ?4 GROUP BY r.serial ORDER BY 4 DESC, 2, 1 LIMIT ?5"
        );
        let mut rows = self.rows(id, part, kept_from(now), query, base).await?;
        if let Some((_, first_left_out)) = rows.get(MAX_CHANGES) {
            let later = bases.iter().copied();
            base = later
                .filter(|base| base >= first_left_out)
                .min()
                .unwrap_or(complete);
            rows.retain(|(_, listed)| *listed > base);
        }
        let (mut revoked, mut released) = (Vec::new(), Vec::new());
        for (change, _) in rows {
            match change {
                Change::Revoked(entry) => revoked.push(entry),
                Change::Released(serial) => released.push(serial),
            }
        }
        Ok(Changes {
            base,
            revoked,
            released,
        })
    }

    async fn rows(
        &self,
        id: AuthorityId,
        part: Part,
        kept_from: i64,
        query: String,
        number: i64,
    ) -> Result<Vec<(Change, i64)>, RegistryError> {
        let limit = i64::try_from(MAX_CHANGES.saturating_add(1)).unwrap_or(i64::MAX);
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(id.kind().name())
            .bind(kept_from)
            .bind(part.row())
            .bind(number)
            .bind(limit)
            .bind(id.generation())
            .fetch_all(self.inner.sql.read())
            .await?;
        rows.iter().map(change).collect()
    }

    /// Remembers complete lists as bases of delta lists, and forgets those out of date.
    pub(super) async fn note_bases(
        &self,
        id: AuthorityId,
        parts: &[Part],
        number: i64,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        if parts.is_empty() {
            return Ok(());
        }
        let mut tx = self.inner.sql.write().await?;
        for part in parts {
            sqlx::query(
                "INSERT OR REPLACE INTO crl_bases (authority, shard, number, issued_at)
                 VALUES (?, ?, ?, ?)",
            )
            .bind(id.to_string())
            .bind(part.row())
            .bind(number)
            .bind(now.unix_timestamp())
            .execute(&mut *tx)
            .await?;
            sqlx::query(
                "DELETE FROM crl_bases WHERE authority = ? AND shard = ? AND issued_at <= ?",
            )
            .bind(id.to_string())
            .bind(part.row())
            .bind(self.bases_from(now))
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// From when on a complete list that was issued is in date at `now`.
    fn bases_from(&self, now: OffsetDateTime) -> i64 {
        let life = self.inner.config.lifetimes.crl;
        now.saturating_sub(life).unix_timestamp()
    }

    /// Puts superseded certificates on the lists once [`OVERLAP`] is over. The listeners of this
    /// system refuse them from the first use of their successors on.
    pub(super) async fn list_superseded(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let due = now.saturating_sub(OVERLAP).unix_timestamp();
        // The writer is taken only when there is something to write.
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM issued WHERE unlisted = 1 AND superseded_at <= ?",
        )
        .bind(due)
        .fetch_one(self.inner.sql.read())
        .await?;
        if waiting == 0 {
            return Ok(());
        }
        let mut tx = self.write(now).await?;
        let revoked = sqlx::query(
            "INSERT INTO revoked (authority, serial, at, reason, generation)
             SELECT i.authority, i.serial, i.superseded_at, ?1, i.generation FROM issued i
             WHERE i.unlisted = 1 AND i.superseded_at <= ?2 AND NOT EXISTS (
                 SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)",
        )
        .bind(RevocationReason::Superseded.name())
        .bind(due)
        .execute(&mut **tx)
        .await?
        .rows_affected();
        sqlx::query("UPDATE issued SET unlisted = 0 WHERE unlisted = 1 AND superseded_at <= ?")
            .bind(due)
            .execute(&mut **tx)
            .await?;
        let actor = Actor::service("registry");
        let listed = SupersededListed {
            certificates: revoked,
        };
        let event = listed
            .into_event(now, actor, "registry")
            .with_reason("what was superseded long enough ago comes onto the lists");
        tx.record(vec![event]).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// Records that a certificate names this shard at `url`.
pub(super) async fn note_shard(
    tx: &mut Transaction<'static, Sqlite>,
    id: AuthorityId,
    shard: u16,
    url: &str,
) -> Result<(), RegistryError> {
    sqlx::query("INSERT OR IGNORE INTO crl_shards (authority, shard, url) VALUES (?, ?, ?)")
        .bind(id.to_string())
        .bind(i64::from(shard))
        .bind(url)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// What lists say of a certificate, and the number of the first list that says so.
fn change(row: &SqliteRow) -> Result<(Change, i64), RegistryError> {
    let serial: String = row.try_get("serial")?;
    let reason: Option<String> = row.try_get("reason")?;
    let listed: Option<i64> = row.try_get("listed")?;
    let serial = hex::decode(serial).map_err(|_| RegistryError::Corrupt("serial"))?;
    // What is on no list yet will be on the next one.
    let listed = listed.unwrap_or(i64::MAX);
    let Some(reason) = reason else {
        return Ok((Change::Released(serial), listed));
    };
    let revocation = Revocation {
        at: instant(row.try_get("at")?)?,
        reason: reason
            .parse()
            .map_err(|_| RegistryError::Corrupt("reason"))?,
    };
    Ok((Change::Revoked(RevokedEntry { serial, revocation }), listed))
}
