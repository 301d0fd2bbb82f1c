//! Who may have a certificate for a key.

use pki::crl::RevocationReason;
use pki::profile::CaKind;
use store::sqlx::{self, Sqlite, Transaction};

use crate::RegistryError;

/// Makes sure that a key is nobody else's than the holder's, where there is one, and not a compromised one.
pub(crate) async fn check_key(
    tx: &mut Transaction<'static, Sqlite>,
    spki: &str,
    holder: Option<(CaKind, &str)>,
) -> Result<(), RegistryError> {
    let (authority, name) = holder.map_or(("", ""), |(authority, name)| (authority.name(), name));
    let taken: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM issued i WHERE i.spki_sha256 = ?1
             AND (NOT (i.authority = ?2 AND i.holder_id = ?3) OR EXISTS (
                 SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial
                 AND r.reason = ?4)))",
    )
    .bind(spki)
    .bind(authority)
    .bind(name)
    .bind(RevocationReason::KeyCompromise.name())
    .fetch_one(&mut **tx)
    .await?;
    match taken {
        true => Err(RegistryError::KeyInUse),
        false => Ok(()),
    }
}
