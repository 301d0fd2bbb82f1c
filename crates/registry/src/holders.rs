//! Devices and people as entities with a state, which every request and every issuing reads.
//!
//! ```text
//!   (issued or invited) ─► enrolled ◄─ resume ─── suspended
//!                            │  ▲  └── suspend ──►   │
//!                     revoke │  │ readmit            │ revoke
//!                            ▼  │                    │
//!                           revoked ◄────────────────┘
//!          retire, from any state ─► retired (final: the name is not used again)
//! ```
//!
//! Revoking and retiring revoke every certificate of the holder in the transaction that sets the
//! state. Issuing reads the state inside of its own write transaction, so that of an issuing and a
//! revocation at the same time either the revocation sees the new certificate or the issuing sees
//! the new state.
//!
//! Certificates of a suspended holder are on hold (RFC 5280, section 5.3.1). No row says so of a certificate: lists and OCSP
//! responses follow from the state ([`crate::holds`]). A person who is disabled in the directory is suspended as well,
//! until the directory enables them.

mod states;

use std::fmt;
use std::str::FromStr;

use event_catalogue::{Recorded as _, registry as events};
use pki::crl::RevocationReason;
use pki::profile::{CaKind, Profile};
use pki::status::Revocation;
use serde::Serialize;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::error::{called, noun, noun_of};
pub(crate) use crate::holder_profiles::{has_state, own_profiles};
use crate::on_hold;
use crate::warrant::check_change;
use crate::{Registry, RegistryError, Warrant};

pub use self::states::HolderRecord;

/// Where a device or a person stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HolderState {
    Enrolled,
    /// Refused until the suspension ends; the certificates are on hold.
    Suspended,
    /// Refused, with all certificates revoked; may be readmitted and then needs new ones.
    Revoked,
    /// Gone for good, with all certificates revoked.
    Retired,
}

impl HolderState {
    /// The state's name in database, audit log and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enrolled => "enrolled",
            Self::Suspended => "suspended",
            Self::Revoked => "revoked",
            Self::Retired => "retired",
        }
    }

    /// Stable name of a refusal for this state.
    const fn refusal_code(self) -> &'static str {
        match self {
            Self::Enrolled => "holder-enrolled",
            Self::Suspended => "holder-suspended",
            Self::Revoked => "holder-revoked",
            Self::Retired => "holder-retired",
        }
    }
}

impl fmt::Display for HolderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for HolderState {
    type Err = RegistryError;

    fn from_str(name: &str) -> Result<Self, RegistryError> {
        [
            Self::Enrolled,
            Self::Suspended,
            Self::Revoked,
            Self::Retired,
        ]
        .into_iter()
        .find(|state| state.name() == name)
        .ok_or(RegistryError::Corrupt("holder's state"))
    }
}

/// A holder that is not enrolled. Fit to be shown to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {} {holder} is {state}", called(*.authority))]
pub struct HolderRefused {
    /// Whose certificates the holder has.
    pub authority: CaKind,
    /// User id, or name of a device, gateway or server.
    pub holder: String,
    pub state: HolderState,
}

impl HolderRefused {
    /// Stable name of the reason, in kebab case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.state.refusal_code()
    }
}

/// A change of state that somebody orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderChange {
    Suspend,
    Resume,
    /// Refuse, and revoke all certificates for this reason.
    Revoke(RevocationReason),
    /// Refuse for good, and revoke all certificates (cessation of operation).
    Retire,
    /// Allow a revoked holder to get new certificates.
    Readmit,
}

impl HolderChange {
    /// The change as a verb, as in the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Revoke(_) => "revoke",
            Self::Retire => "retire",
            Self::Readmit => "readmit",
        }
    }

    /// The event of the change; holders of a kind without events of their own are services, as gateways are.
    fn recorded(self, noun: &str) -> events::HolderChange {
        use events::HolderChange as Event;
        match (noun, self) {
            ("device", Self::Suspend) => Event::DeviceSuspend,
            ("device", Self::Resume) => Event::DeviceResume,
            ("device", Self::Revoke(_)) => Event::DeviceRevoke,
            ("device", Self::Retire) => Event::DeviceRetire,
            ("device", Self::Readmit) => Event::DeviceReadmit,
            ("person", Self::Suspend) => Event::PersonSuspend,
            ("person", Self::Resume) => Event::PersonResume,
            ("person", Self::Revoke(_)) => Event::PersonRevoke,
            ("person", Self::Retire) => Event::PersonRetire,
            ("person", Self::Readmit) => Event::PersonReadmit,
            ("server", Self::Suspend) => Event::ServerSuspend,
            ("server", Self::Resume) => Event::ServerResume,
            ("server", Self::Revoke(_)) => Event::ServerRevoke,
            ("server", Self::Retire) => Event::ServerRetire,
            ("server", Self::Readmit) => Event::ServerReadmit,
            (_, Self::Suspend) => Event::GatewaySuspend,
            (_, Self::Resume) => Event::GatewayResume,
            (_, Self::Revoke(_)) => Event::GatewayRevoke,
            (_, Self::Retire) => Event::GatewayRetire,
            (_, Self::Readmit) => Event::GatewayReadmit,
        }
    }

    /// The state after this change of a holder in state `from`; `None` where it is not allowed.
    const fn apply(self, from: HolderState) -> Option<HolderState> {
        use HolderState::{Enrolled, Retired, Revoked, Suspended};
        match (self, from) {
            (Self::Suspend, Enrolled) => Some(Suspended),
            (Self::Resume, Suspended) | (Self::Readmit, Revoked) => Some(Enrolled),
            // Once more for one that is revoked: certificates may be left from an older version.
            (Self::Revoke(_), Enrolled | Suspended | Revoked) => Some(Revoked),
            (Self::Retire, Enrolled | Suspended | Revoked) => Some(Retired),
            _ => None,
        }
    }

    const fn revokes_for(self) -> Option<RevocationReason> {
        match self {
            Self::Revoke(reason) => Some(reason),
            Self::Retire => Some(RevocationReason::CessationOfOperation),
            Self::Suspend | Self::Resume | Self::Readmit => None,
        }
    }
}

/// What a change of state did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderChanged {
    pub from: HolderState,
    pub to: HolderState,
    /// Serial numbers of the certificates that this change revoked.
    pub revoked: Vec<String>,
    /// The revocation lists say so. Otherwise [`Registry::refresh_crls`] tries again.
    pub is_listed: bool,
}

impl Registry {
    /// Changes the state of a device or person: durable, audited before it takes effect, and
    /// known to every listener when this returns. All certificates are revoked in the same
    /// transaction where the change says so, and one-time codes of the device become void.
    ///
    /// A suspension and its end do not fail because the lists cannot be made: the doors read the state.
    ///
    /// # Errors
    /// [`RegistryError::UnknownHolder`], [`RegistryError::Transition`], [`RegistryError::Disabled`];
    /// [`RegistryError::HoldIsNoRevocation`]; [`RegistryError::Audit`]
    /// or [`RegistryError::Store`], and then nothing changed; [`RegistryError::File`] if only the
    /// revocation list with a revocation could not be written: the change is in force then, and the list is made by
    /// the next [`Self::refresh_crls`].
    pub async fn change_holder(
        &self,
        authority: CaKind,
        holder: &str,
        change: HolderChange,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<HolderChanged, RegistryError> {
        check_change(&warrant, authority, holder, change)?;
        let turn = self.begin_warrant(&warrant, now).await?;
        let outcome = self
            .on_behalf(&warrant)
            .change_holder_by(authority, holder, change, warrant, now)
            .await;
        let (mut changed, at) = self.end_warrant(turn, outcome).await?;
        match change.revokes_for() {
            Some(reason) => {
                self.push(authority, &changed.revoked, Revocation { at, reason })
                    .await?;
                self.renew_crls(authority, now).await?;
            }
            None => changed.is_listed = self.publish_holds(authority, now).await,
        }
        Ok(changed)
    }

    /// Changes the state in the database, after its events. Gives the instant from which certificates are revoked, too.
    async fn change_holder_by(
        &self,
        authority: CaKind,
        holder: &str,
        change: HolderChange,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<(HolderChanged, OffsetDateTime), RegistryError> {
        let mut tx = self.write(now).await?;
        let from = match ordered_state(&mut tx, authority, holder).await? {
            // Suspended by the directory alone, which ends it.
            Some((HolderState::Enrolled, true)) if change == HolderChange::Resume => {
                return Err(RegistryError::Disabled(holder.to_owned()));
            }
            Some((state, _)) => state,
            // Invited and not enrolled yet: as good as enrolled, for what may become of it.
            None if invited(&mut tx, authority, holder).await? => HolderState::Enrolled,
            None => {
                return Err(RegistryError::UnknownHolder {
                    authority,
                    holder: holder.to_owned(),
                });
            }
        };
        let to = change
            .apply(from)
            .ok_or_else(|| RegistryError::Transition {
                authority,
                holder: holder.to_owned(),
                from,
                change: change.name(),
            })?;
        let noun = match is_network_server(&mut tx, authority, holder).await? {
            true => noun_of(Profile::NetworkServer),
            false => noun(authority),
        };
        let held_before = on_hold::count(&mut tx, authority, holder).await?;
        // Before the state changes, which ends the hold.
        let at = on_hold::revoked_from(&mut tx, authority, holder, now).await?;
        set_state(&mut tx, authority, holder, to, now).await?;
        let mut revoked = Vec::new();
        if let Some(reason) = change.revokes_for() {
            revoked = revoke_all(&mut tx, authority, holder, Revocation { at, reason }).await?;
            void_codes(&mut tx, authority, holder).await?;
        }
        let certificates = match change {
            HolderChange::Suspend => on_hold::count(&mut tx, authority, holder).await?,
            HolderChange::Resume => held_before,
            _ => revoked.len() as u64,
        };
        let changed = events::HolderChanged {
            kind: change.recorded(noun),
            old: from.name().to_owned(),
            new: to.name().to_owned(),
            certificates,
        };
        let by = warrant.by();
        let mut state_event = changed.into_event(now, by.clone(), format!("{noun}/{holder}"));
        let mut events = Vec::with_capacity(revoked.len() + 1);
        if let Some(reason) = change.revokes_for() {
            state_event = state_event.with_reason(reason.name());
            events.extend(revoked.iter().map(|serial| {
                let serial = serial.clone();
                let object = format!("certificate/{authority}/{holder}");
                let event = events::Revoked { serial }.into_event(now, by.clone(), object);
                event.with_reason(reason.name())
            }));
        }
        events.insert(0, state_event);
        events.extend(self.finish_in(&mut tx, warrant, to.name(), now).await?);
        let to = state_in(&mut tx, authority, holder).await?.unwrap_or(to);
        tx.record(events).await?;
        tx.commit_then(|| self.inner.holds.changed()).await?;
        let changed = HolderChanged {
            from,
            to,
            revoked,
            is_listed: true,
        };
        Ok((changed, at))
    }
}

/// Makes sure, inside the transaction that issues, that the holder may get a certificate; one that
/// never had any is enrolled by it.
pub(crate) async fn admit_issuing(
    tx: &mut Transaction<'static, Sqlite>,
    profile: Profile,
    holder: &str,
    now: OffsetDateTime,
) -> Result<(), RegistryError> {
    let Some(authority) = has_state(profile) else {
        return Ok(());
    };
    let state = state_in(tx, authority, holder).await?;
    check_enrolled(authority, holder, state)?;
    match state {
        None => set_state(tx, authority, holder, HolderState::Enrolled, now).await,
        Some(_) => Ok(()),
    }
}

/// Refuses a holder whose state is another than enrolled; one that got nothing yet has none.
pub(crate) fn check_enrolled(
    authority: CaKind,
    holder: &str,
    state: Option<HolderState>,
) -> Result<(), HolderRefused> {
    match state {
        None | Some(HolderState::Enrolled) => Ok(()),
        Some(state) => Err(HolderRefused {
            authority,
            holder: holder.to_owned(),
            state,
        }),
    }
}

pub(crate) async fn state_in(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
) -> Result<Option<HolderState>, RegistryError> {
    let state: Option<String> =
        sqlx::query_scalar("SELECT effective FROM holders WHERE authority = ? AND holder_id = ?")
            .bind(authority.name())
            .bind(holder)
            .fetch_optional(&mut **tx)
            .await?;
    state.map(|name| name.parse()).transpose()
}

/// The state by orders alone, and whether the directory has the person disabled.
async fn ordered_state(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
) -> Result<Option<(HolderState, bool)>, RegistryError> {
    let row: Option<(String, bool)> = sqlx::query_as(
        "SELECT state, disabled_at IS NOT NULL FROM holders WHERE authority = ? AND holder_id = ?",
    )
    .bind(authority.name())
    .bind(holder)
    .fetch_optional(&mut **tx)
    .await?;
    row.map(|(state, is_disabled)| Ok((state.parse()?, is_disabled)))
        .transpose()
}

async fn set_state(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
    state: HolderState,
    now: OffsetDateTime,
) -> Result<(), RegistryError> {
    sqlx::query(
        "INSERT INTO holders (authority, holder_id, state, changed_at) VALUES (?, ?, ?, ?)
         ON CONFLICT (authority, holder_id)
         DO UPDATE SET state = excluded.state, changed_at = excluded.changed_at,
             epoch = epoch + 1",
    )
    .bind(authority.name())
    .bind(holder)
    .bind(state.name())
    .bind(now.unix_timestamp())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn invited(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
) -> Result<bool, RegistryError> {
    Ok(sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM invitations WHERE authority = ?1 AND holder_id = ?2)
             OR (?1 = ?3 AND EXISTS (SELECT 1 FROM one_time_codes WHERE device = ?2))",
    )
    .bind(authority.name())
    .bind(holder)
    .bind(CaKind::Devices.name())
    .fetch_one(&mut **tx)
    .await?)
}

/// Revokes whatever of the holder is not revoked yet: a state, not a list, decides what "all" is.
async fn revoke_all(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
    revocation: Revocation,
) -> Result<Vec<String>, RegistryError> {
    let serials: Vec<String> = sqlx::query_scalar(
        "INSERT INTO revoked (authority, serial, at, reason, generation)
         SELECT i.authority, i.serial, ?3, ?4, i.generation FROM issued i
         WHERE i.authority = ?1 AND i.holder_id = ?2 AND (?1 <> ?5 OR i.profile NOT IN (SELECT value FROM json_each(?6))) AND NOT EXISTS (
             SELECT 1 FROM revoked r WHERE r.authority = i.authority AND r.serial = i.serial)
         RETURNING serial",
    )
    .bind(authority.name())
    .bind(holder)
    .bind(revocation.at.unix_timestamp())
    .bind(revocation.reason.name())
    // The site's own certificates have no holder; they may have the same name.
    .bind(CaKind::Services.name())
    .bind(serde_json::to_string(&own_profiles()).unwrap_or_default())
    .fetch_all(&mut **tx)
    .await?;
    Ok(serials)
}

async fn void_codes(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
) -> Result<(), RegistryError> {
    sqlx::query(
        "DELETE FROM invitations WHERE authority = ? AND holder_id = ? AND used_serial IS NULL",
    )
    .bind(authority.name())
    .bind(holder)
    .execute(&mut **tx)
    .await?;
    match authority {
        CaKind::Devices => {
            sqlx::query("DELETE FROM one_time_codes WHERE device = ?")
                .bind(holder)
                .execute(&mut **tx)
                .await?;
        }
        // Whoever has the key of the certificate may have that of the account, too.
        CaKind::Services => {
            sqlx::query("UPDATE acme_accounts SET state = 'revoked' WHERE holder = ?")
                .bind(holder)
                .execute(&mut **tx)
                .await?;
        }
        CaKind::Users => {}
    }
    Ok(())
}

/// Whether the holder is a server of the network: no gateway has its name.
async fn is_network_server(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
) -> Result<bool, RegistryError> {
    if authority != CaKind::Services {
        return Ok(false);
    }
    let mut others = own_profiles();
    others.push(Profile::Gateway.to_string());
    Ok(sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM invitations WHERE authority = ?1 AND holder_id = ?2 AND profile = ?3)
             OR EXISTS (SELECT 1 FROM issued WHERE authority = ?1 AND holder_id = ?2
                 AND profile NOT IN (SELECT value FROM json_each(?4)))",
    )
    .bind(authority.name())
    .bind(holder)
    .bind(Profile::NetworkServer.to_string())
    .bind(serde_json::to_string(&others).unwrap_or_default())
    .fetch_one(&mut **tx)
    .await?)
}

#[cfg(test)]
mod tests;
