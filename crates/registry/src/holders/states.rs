//! States of holders, to be looked up and shown.

use pki::profile::CaKind;
use serde::Serialize;
use store::sqlx;
use time::OffsetDateTime;

use super::HolderState;
use crate::{Registry, RegistryError};

/// A device or a person with its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HolderRecord {
    /// Name of the authority: `users` or `devices`.
    pub authority: String,
    /// Device name or user id.
    pub holder: String,
    pub state: HolderState,
    #[serde(with = "time::serde::rfc3339")]
    pub changed_at: OffsetDateTime,
}

impl Registry {
    /// The state of a device or person with its epoch, which grows with every change of the state
    /// and every revocation of a certificate: what rests on an older epoch has ended. `None` for
    /// one that never got a certificate.
    ///
    /// # Errors
    /// [`RegistryError::Store`] or [`RegistryError::Corrupt`].
    pub async fn holder_state(
        &self,
        authority: CaKind,
        holder: &str,
    ) -> Result<Option<(HolderState, i64)>, RegistryError> {
        let row: Option<(String, i64)> = sqlx::query_as(
            "SELECT effective, epoch FROM holders WHERE authority = ? AND holder_id = ?",
        )
        .bind(authority.name())
        .bind(holder)
        .fetch_optional(self.readers(authority))
        .await?;
        row.map(|(name, epoch)| Ok((name.parse()?, epoch)))
            .transpose()
    }

    /// Names of the holders of an authority that are not enrolled.
    ///
    /// # Errors
    /// [`RegistryError::Store`].
    pub async fn refused_holders(&self, authority: CaKind) -> Result<Vec<String>, RegistryError> {
        let rows = sqlx::query_scalar(
            "SELECT holder_id FROM holders WHERE authority = ? AND effective <> 'enrolled'
             ORDER BY holder_id",
        )
        .bind(authority.name())
        .fetch_all(self.readers(authority))
        .await?;
        Ok(rows)
    }

    /// All devices and people with their states, by name.
    ///
    /// # Errors
    /// [`RegistryError::Store`] or [`RegistryError::Corrupt`].
    pub async fn holders(&self) -> Result<Vec<HolderRecord>, RegistryError> {
        let rows: Vec<(String, String, String, i64)> = sqlx::query_as(
            "SELECT authority, holder_id, effective, changed_at FROM holders
             ORDER BY authority, holder_id",
        )
        .fetch_all(self.inner.sql.read())
        .await?;
        rows.into_iter()
            .map(|(authority, holder, state, at)| {
                Ok(HolderRecord {
                    authority,
                    holder,
                    state: state.parse()?,
                    changed_at: crate::records::instant(at)?,
                })
            })
            .collect()
    }
}
