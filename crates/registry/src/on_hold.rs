//! Queries of certificates that are on hold.

use std::sync::LazyLock;

use pki::profile::CaKind;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::RegistryError;
use crate::holder_profiles::own_profiles;
use crate::records::instant;

/// Whose state decides of a certificate `i`: a holder `h`. The site's own certificates have none; they may have the name of one.
pub(crate) static HOLDER_OF: LazyLock<String> = LazyLock::new(|| {
    let own: Vec<String> = own_profiles()
        .iter()
        .map(|name| format!("'{name}'"))
        .collect();
    format!(
        "h.authority = i.authority AND h.holder_id = i.holder_id AND (i.authority <> '{}' OR i.profile NOT IN ({}))",
        CaKind::Services.name(),
        own.join(", "),
    )
});

/// A query of certificates `i` that are on hold with their holders `h`. A revocation is for good and ends the hold. The indexes
/// and the order are named: SQLite would look at everything that was ever issued.
pub(crate) fn on_hold(columns: &str, and: &str) -> String {
    format!(
        "SELECT {columns} FROM holders h INDEXED BY holders_held
             CROSS JOIN issued i INDEXED BY issued_by_holder_id ON {} WHERE h.held_at IS NOT NULL AND NOT EXISTS (
             SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial) AND {and}",
        *HOLDER_OF
    )
}

/// A query of one certificate (authority, serial number, generation): revocation, and since when it is on hold.
pub(crate) fn status_query() -> String {
    format!(
        "SELECT r.at, r.reason, h.held_at FROM issued i
         LEFT JOIN revoked r ON r.authority = i.authority AND r.serial = i.serial
         LEFT JOIN holders h ON {}
         WHERE i.authority = ? AND i.serial = ? AND i.generation = ?",
        *HOLDER_OF
    )
}

/// The instant from which certificates of a holder are revoked at `now`: the beginning of a hold, so that what was signed since
/// stays refused.
pub(crate) async fn revoked_from(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
    now: OffsetDateTime,
) -> Result<OffsetDateTime, RegistryError> {
    let held_at: Option<Option<i64>> =
        sqlx::query_scalar("SELECT held_at FROM holders WHERE authority = ? AND holder_id = ?")
            .bind(authority.name())
            .bind(holder)
            .fetch_optional(&mut **tx)
            .await?;
    // Whole seconds, as in lists.
    let now = now.replace_nanosecond(0).unwrap_or(now);
    let held_at = held_at.flatten().map(instant).transpose()?;
    Ok(held_at.map_or(now, |held_at| held_at.min(now)))
}

/// Number of a holder's certificates that are on hold.
pub(crate) async fn count(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
) -> Result<u64, RegistryError> {
    let query = on_hold("count(*)", "h.authority = ? AND h.holder_id = ?");
    let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
        .bind(authority.name())
        .bind(holder)
        .fetch_one(&mut **tx)
        .await?;
    Ok(count.unsigned_abs())
}
