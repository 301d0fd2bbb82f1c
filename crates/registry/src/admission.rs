//! Who may come in with a certificate: asked by every listener at every request.
//!
//! A valid path to the root is not enough. The registry's database must hold this very certificate, it
//! must be neither revoked nor superseded, and its holder must be enrolled. All of it is read from
//! the database, so that a change by another process counts from its commit on. The signatures of the
//! path are verified once ([`TrustStore::validate_chain`](pki::path::TrustStore::validate_chain)).

use audit::{Actor, Event};
use event_catalogue::Recorded as _;
use event_catalogue::registry::{FirstUsed, Superseded};
use pki::path::{Identity, PathError, Purpose, SubjectKind};
use pki::profile::{CaKind, Profile};
use rustls_pki_types::CertificateDer;
use store::sqlx::{self, Sqlite, Transaction};
use time::OffsetDateTime;

use crate::authority::id_of;
use crate::holders::{HolderRefused, HolderState, own_profiles, state_in};
use crate::{AdmissionError, Registry, RegistryError};

/// A certificate that passed every check at one instant; made by [`Registry::admit`] only.
#[derive(Clone, Debug)]
pub struct Admitted {
    identity: Identity,
    lineage: String,
    profile: String,
}

impl Admitted {
    /// Whose certificate it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether it is a gateway's.
    pub(crate) fn is_gateway(&self) -> bool {
        self.profile == Profile::Gateway.to_string()
    }

    /// Whether it is one of the site's own, whose holder has no state.
    fn is_own(&self) -> bool {
        authority_of(&self.identity) == CaKind::Services && own_profiles().contains(&self.profile)
    }

    /// The certificate and its renewals, as the database names them.
    pub(crate) fn lineage(&self) -> &str {
        &self.lineage
    }
}

/// What the database says of a certificate and its holder.
struct Entry {
    certificate: Vec<u8>,
    lineage: String,
    profile: String,
    used: bool,
    superseded: bool,
    revoked: Option<String>,
    state: Option<HolderState>,
}

impl Registry {
    /// Admits the holder of `peer` (leaf first) for `purpose` at `now`.
    ///
    /// The first admission of a renewed certificate shows that the holder has it: from then on
    /// the certificates that it replaces are refused.
    ///
    /// # Errors
    /// [`AdmissionError`], one variant per reason.
    pub async fn admit(
        &self,
        peer: &[CertificateDer<'_>],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Admitted, AdmissionError> {
        let inner = &self.inner;
        let validated = inner.trust.validate_chain(peer, purpose, now)?;
        self.admit_validated(peer, validated.identity.clone(), now)
            .await
    }

    /// Admits the holder of `peer` for a renewal over EST; also with a certificate that ended no longer ago
    /// than [`Config::renewal_grace`](crate::Config) says.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub(crate) async fn admit_renewal(
        &self,
        peer: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<Admitted, AdmissionError> {
        let inner = &self.inner;
        let (purpose, grace) = (Purpose::ClientEnrolment, inner.config.renewal_grace);
        match inner.trust.validate_chain(peer, purpose, now) {
            Err(PathError::Expired { .. }) if grace.is_positive() => {
                let validated = inner.trust.validate_expired(peer, purpose, grace, now)?;
                // People are there to ask for an invitation.
                if let SubjectKind::User = validated.identity.kind {
                    inner.trust.validate(peer, purpose, now)?;
                }
                self.admit_validated(peer, validated.identity.clone(), now)
                    .await
            }
            Err(error) => Err(error.into()),
            Ok(validated) => {
                self.admit_validated(peer, validated.identity.clone(), now)
                    .await
            }
        }
    }

    /// What the database says of a certificate with a valid path.
    async fn admit_validated(
        &self,
        peer: &[CertificateDer<'_>],
        identity: Identity,
        now: OffsetDateTime,
    ) -> Result<Admitted, AdmissionError> {
        let authority = authority_of(&identity);
        let serial = &identity.serial_hex;
        let not_issued = || AdmissionError::NotIssued {
            serial: serial.clone(),
        };
        let entry = self.entry(authority, serial).await?;
        let entry = entry.ok_or_else(not_issued)?;
        // The whole certificate, not its number alone: who holds an authority's key chooses that.
        if peer.first().is_none_or(|leaf| **leaf != *entry.certificate) {
            return Err(not_issued());
        }
        if let Some(reason) = entry.revoked {
            return Err(AdmissionError::Revoked {
                serial: serial.clone(),
                reason,
            });
        }
        if entry.superseded {
            return Err(AdmissionError::Superseded {
                serial: serial.clone(),
            });
        }
        let admitted = Admitted {
            identity,
            lineage: entry.lineage,
            profile: entry.profile,
        };
        if !admitted.is_own() {
            check_state(authority, &admitted.identity, entry.state)?;
        }
        if !entry.used {
            self.confirm(authority, &admitted, now).await?;
        }
        Ok(admitted)
    }

    /// Whether a certificate that a device or person goes on using is still one to accept, by its serial number. What a
    /// renewal has replaced counts as long as it is on no list: whoever keeps a session open changes over later.
    ///
    /// # Errors
    /// [`AdmissionError`], one variant per reason.
    pub async fn check_standing(
        &self,
        authority: CaKind,
        serial: &str,
    ) -> Result<(), AdmissionError> {
        type Row = (i64, String, Option<String>, Option<String>);
        let row: Option<Row> = sqlx::query_as(
            "SELECT i.generation, i.holder_id, r.reason, h.effective
             FROM issued i
             LEFT JOIN revoked r ON r.authority = i.authority AND r.serial = i.serial
             LEFT JOIN holders h ON h.authority = i.authority AND h.holder_id = i.holder_id
             WHERE i.authority = ? AND i.serial = ?",
        )
        .bind(authority.name())
        .bind(serial)
        .fetch_optional(self.readers(authority))
        .await?;
        let serial = serial.to_owned();
        let Some((generation, holder, revoked, state)) = row else {
            return Err(AdmissionError::NotIssued { serial });
        };
        let issuer = self.authority(id_of(authority.name(), generation)?)?;
        if self.revocation_of(&issuer).is_some() {
            return Err(AdmissionError::AuthorityRevoked { authority });
        }
        if let Some(reason) = revoked {
            return Err(AdmissionError::Revoked { serial, reason });
        }
        let state: Option<HolderState> = state.map(|name| name.parse()).transpose()?;
        match state {
            Some(HolderState::Enrolled) => Ok(()),
            other => Err(AdmissionError::Holder(HolderRefused {
                authority,
                holder,
                state: other.unwrap_or(HolderState::Revoked),
            })),
        }
    }

    async fn entry(
        &self,
        authority: CaKind,
        serial: &str,
    ) -> Result<Option<Entry>, AdmissionError> {
        type Row = (
            Vec<u8>,
            String,
            String,
            Option<i64>,
            Option<i64>,
            Option<String>,
            Option<String>,
        );
        let row: Option<Row> = sqlx::query_as(
            "SELECT i.certificate, i.lineage, i.profile, i.first_used_at, i.superseded_at, r.reason, h.effective
             FROM issued i
             LEFT JOIN revoked r ON r.authority = i.authority AND r.serial = i.serial
             LEFT JOIN holders h ON h.authority = i.authority AND h.holder_id = i.holder_id
             WHERE i.authority = ? AND i.serial = ?",
        )
        .bind(authority.name())
        .bind(serial)
        .fetch_optional(self.readers(authority))
        .await?;
        let Some((certificate, lineage, profile, used, superseded, revoked, state)) = row else {
            return Ok(None);
        };
        Ok(Some(Entry {
            certificate,
            lineage,
            profile,
            used: used.is_some(),
            superseded: superseded.is_some(),
            revoked,
            state: state.map(|name| name.parse()).transpose()?,
        }))
    }

    /// Notes the first use of a certificate and supersedes what it replaces.
    async fn confirm(
        &self,
        authority: CaKind,
        admitted: &Admitted,
        now: OffsetDateTime,
    ) -> Result<(), AdmissionError> {
        let identity = &admitted.identity;
        let serial = &identity.serial_hex;
        let mut tx = self.write(now).await?;
        // The answer was read before this transaction: the holder may be revoked by now.
        let state = state_in(&mut tx, authority, holder_id(authority, identity)).await?;
        if !admitted.is_own() {
            check_state(authority, identity, state)?;
        }
        let first = sqlx::query(
            "UPDATE issued SET first_used_at = ? WHERE authority = ? AND serial = ?
             AND first_used_at IS NULL AND superseded_at IS NULL AND NOT EXISTS (
                 SELECT 1 FROM revoked r WHERE r.authority = issued.authority
                 AND r.serial = issued.serial)",
        )
        .bind(now.unix_timestamp())
        .bind(authority.name())
        .bind(serial)
        .execute(&mut **tx)
        .await?;
        if first.rows_affected() == 0 {
            // Somebody was quicker: with the first use, or with an end to it.
            drop(tx);
            return match self.entry(authority, serial).await? {
                Some(entry) if entry.used && !entry.superseded && entry.revoked.is_none() => Ok(()),
                _ => Err(AdmissionError::Superseded {
                    serial: serial.clone(),
                }),
            };
        }
        let older: Vec<String> = sqlx::query_scalar(
            "UPDATE issued SET superseded_at = ?4, unlisted = 1
             WHERE authority = ?1 AND holder_id = ?2 AND lineage = ?3 AND superseded_at IS NULL
             AND rowid < (SELECT rowid FROM issued WHERE authority = ?1 AND serial = ?5)
             AND NOT EXISTS (SELECT 1 FROM revoked r WHERE r.authority = issued.authority
                             AND r.serial = issued.serial)
             RETURNING serial",
        )
        .bind(authority.name())
        .bind(holder_id(authority, identity))
        .bind(&admitted.lineage)
        .bind(now.unix_timestamp())
        .bind(serial)
        .fetch_all(&mut **tx)
        .await?;
        let holder = holder_id(authority, identity);
        let actor = match authority {
            CaKind::Users => Actor::user(holder, &identity.common_name),
            CaKind::Devices => Actor::device(holder),
            CaKind::Services => Actor::service(holder),
        };
        let mut events = superseded_events(authority, holder, &actor, &older, serial, now);
        events.push(first_use(authority, holder, actor, serial, now));
        tx.record(events).await?;
        Ok(tx.commit().await?)
    }
}

/// Whose certificates the holder has.
pub(crate) const fn authority_of(identity: &Identity) -> CaKind {
    match identity.kind {
        SubjectKind::User => CaKind::Users,
        SubjectKind::Device => CaKind::Devices,
        SubjectKind::Service => CaKind::Services,
    }
}

/// The event of the first use of a certificate, which ends those before it.
pub(crate) fn first_use(
    authority: CaKind,
    holder: &str,
    actor: Actor,
    serial: &str,
    now: OffsetDateTime,
) -> Event {
    let resource = format!("certificate/{authority}/{holder}");
    let serial = serial.to_owned();
    FirstUsed { serial }.into_event(now, actor, resource)
}

/// One event for each certificate that `by` takes the place of.
pub(crate) fn superseded_events(
    authority: CaKind,
    holder: &str,
    actor: &Actor,
    older: &[String],
    by: &str,
    now: OffsetDateTime,
) -> Vec<Event> {
    let resource = format!("certificate/{authority}/{holder}");
    let event = |serial: &String| {
        let superseded = Superseded {
            serial: serial.clone(),
            successor: Some(by.to_owned()),
        };
        superseded.into_event(now, actor.clone(), &resource)
    };
    older.iter().map(event).collect()
}

/// Supersedes, in a transaction that issues, the certificates of a lineage that were never used:
/// at any time there is one certificate in use and at most one that waits to be.
pub(crate) async fn supersede_unused(
    tx: &mut Transaction<'static, Sqlite>,
    authority: CaKind,
    holder: &str,
    lineage: &str,
    now: OffsetDateTime,
) -> Result<Vec<String>, RegistryError> {
    let serials = sqlx::query_scalar(
        "UPDATE issued SET superseded_at = ?4, unlisted = 1
         WHERE authority = ?1 AND holder_id = ?2 AND lineage = ?3
         AND first_used_at IS NULL AND superseded_at IS NULL
         AND NOT EXISTS (SELECT 1 FROM revoked r WHERE r.authority = issued.authority
                         AND r.serial = issued.serial)
         RETURNING serial",
    )
    .bind(authority.name())
    .bind(holder)
    .bind(lineage)
    .bind(now.unix_timestamp())
    .fetch_all(&mut **tx)
    .await?;
    Ok(serials)
}

/// How the database names the holder of a certificate: a person by user id, anything else by name.
fn holder_id(authority: CaKind, identity: &Identity) -> &str {
    match (authority, &identity.uid) {
        (CaKind::Users, Some(uid)) => uid,
        _ => &identity.common_name,
    }
}

fn check_state(
    authority: CaKind,
    identity: &Identity,
    state: Option<HolderState>,
) -> Result<(), AdmissionError> {
    match state {
        Some(HolderState::Enrolled) => Ok(()),
        // A holder without a state is refused like a revoked one.
        other => Err(AdmissionError::Holder(HolderRefused {
            authority,
            holder: holder_id(authority, identity).to_owned(),
            state: other.unwrap_or(HolderState::Revoked),
        })),
    }
}
