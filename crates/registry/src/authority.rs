//! The issuing authorities of an open registry, and which of each kind issues.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use pki::Certificate;
use pki::clearance::Clearance;
use pki::issue::CertificateAuthority;
use pki::profile::CaKind;
use pki::status::{IssuerId, Revocation};
use pool::{Pool, Share};
use store::Sql;
use store::sqlx::{self, Sqlite, Transaction};
use time::{Duration, OffsetDateTime};

use crate::generation::{AuthorityId, AuthorityState};
use crate::records::instant;
use crate::{Registry, RegistryError};

/// Time after the end of the last certificate during which a retired authority goes on signing: whoever reads its lists may have a
/// slow clock, and asks about a signature of the last day later.
const AFTER_LAST: Duration = Duration::days(30);

/// An authority that is open.
pub(crate) struct Authority {
    pub(crate) id: AuthorityId,
    certificate: Certificate,
    /// `None` if its key is not to be had; only one that issues nothing may be without.
    key: Option<CertificateAuthority>,
    /// Held while a list of this authority is made, so that numbers, files and memory advance together. An authority whose
    /// key does not answer keeps no other one's lists.
    pub(crate) list_turn: Arc<tokio::sync::Mutex<()>>,
}

impl Authority {
    pub(crate) fn new(
        id: AuthorityId,
        certificate: Certificate,
        key: Option<CertificateAuthority>,
    ) -> Self {
        Self {
            id,
            certificate,
            key,
            list_turn: Arc::default(),
        }
    }

    pub(crate) const fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// With its key.
    pub(crate) fn signing(&self) -> Result<&CertificateAuthority, RegistryError> {
        self.key.as_ref().ok_or(RegistryError::NoKey(self.id))
    }

    pub(crate) const fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The highest clearance that it may grant.
    pub(crate) fn max_clearance(&self) -> Result<Option<Clearance>, RegistryError> {
        Ok(self.signing()?.max_clearance())
    }

    pub(crate) fn issuer_id(&self) -> IssuerId {
        IssuerId::of(&self.certificate.tbs_certificate.subject)
    }

    /// First and last instant of its certificate.
    pub(crate) fn validity(&self) -> (OffsetDateTime, OffsetDateTime) {
        let validity = &self.certificate.tbs_certificate.validity;
        (
            validity.not_before.to_system_time().into(),
            validity.not_after.to_system_time().into(),
        )
    }
}

/// State of an authority in the database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) state: AuthorityState,
    /// End of the last certificate of a retired one.
    pub(crate) needed_until: Option<OffsetDateTime>,
}

/// All authorities, as they are at one instant.
#[derive(Clone, Default)]
pub(crate) struct Authorities {
    pub(crate) all: BTreeMap<AuthorityId, Arc<Authority>>,
    pub(crate) standings: BTreeMap<AuthorityId, Standing>,
}

impl Authorities {
    pub(crate) fn get(&self, id: AuthorityId) -> Result<&Arc<Authority>, RegistryError> {
        self.all.get(&id).ok_or(RegistryError::NoAuthority(id))
    }

    pub(crate) fn issuing(&self, kind: CaKind) -> Result<&Arc<Authority>, RegistryError> {
        let issues =
            |(_, standing): &(&AuthorityId, &Standing)| standing.state == AuthorityState::Issuing;
        let mut of_kind = self.standings.iter().filter(|(id, _)| id.kind() == kind);
        let id = of_kind.find(issues).map(|(id, _)| *id);
        self.get(id.ok_or(RegistryError::Corrupt("issuing authority"))?)
    }

    pub(crate) fn state(&self, id: AuthorityId) -> Option<AuthorityState> {
        self.standings.get(&id).map(|standing| standing.state)
    }

    /// Generations of a kind, oldest first.
    pub(crate) fn of_kind(&self, kind: CaKind) -> impl Iterator<Item = &Arc<Authority>> {
        let all = self.all.values();
        all.filter(move |authority| authority.id.kind() == kind)
    }

    /// Tells whether it issues or is about to, or not all that it issued has expired.
    fn is_in_use(&self, id: AuthorityId, now: OffsetDateTime) -> bool {
        let ended = self.all.get(&id).is_none_or(|one| one.validity().1 < now);
        match self.standings.get(&id) {
            Some(Standing {
                state: AuthorityState::Retired,
                needed_until,
            }) => !ended && needed_until.is_some_and(|end| now <= end.saturating_add(AFTER_LAST)),
            Some(_) => true,
            None => false,
        }
    }
}

/// Threads for signatures: those of an authority that does not answer take none of any other that issues.
pub(crate) struct SigningPools {
    issuing: BTreeMap<CaKind, Pool>,
    others: Pool,
}

impl SigningPools {
    pub(crate) fn new() -> Self {
        let issuing = CaKind::ALL.map(|kind| (kind, Pool::new(Share::Signing)));
        Self {
            issuing: issuing.into(),
            others: Pool::new(Share::Signing),
        }
    }
}

/// An issuing authority, for those who look after it.
#[derive(Clone, Debug)]
pub struct AuthorityRecord {
    pub id: AuthorityId,
    pub state: AuthorityState,
    pub certificate: Certificate,
    /// Set if the root's list names it.
    pub is_revoked: bool,
    /// Set if its key can be used.
    pub has_key: bool,
    /// Set while it signs lists and OCSP signers: `false` once all that it issued has expired.
    pub is_needed: bool,
}

impl AuthorityRecord {
    /// First and last instant of its certificate.
    #[must_use]
    pub fn validity(&self) -> (OffsetDateTime, OffsetDateTime) {
        let validity = &self.certificate.tbs_certificate.validity;
        (
            validity.not_before.to_system_time().into(),
            validity.not_after.to_system_time().into(),
        )
    }
}

/// Reads where all authorities stand.
pub(crate) async fn standings(sql: &Sql) -> Result<BTreeMap<AuthorityId, Standing>, RegistryError> {
    let rows: Vec<(String, i64, String, Option<i64>)> =
        sqlx::query_as("SELECT kind, generation, state, needed_until FROM authorities")
            .fetch_all(sql.read())
            .await?;
    let standing = |(kind, generation, state, end): (String, i64, String, Option<i64>)| {
        let standing = Standing {
            state: state.parse()?,
            needed_until: end.map(instant).transpose()?,
        };
        Ok((id_of(&kind, generation)?, standing))
    };
    rows.into_iter().map(standing).collect()
}

/// The authority that a row names.
pub(crate) fn id_of(kind: &str, generation: i64) -> Result<AuthorityId, RegistryError> {
    let kind = kind.parse().ok();
    let id = kind.and_then(|kind| AuthorityId::new(kind, generation));
    id.ok_or(RegistryError::Corrupt("authority"))
}

/// The generation that issues, as the transaction that issues sees it.
pub(crate) async fn issuing_in(
    tx: &mut Transaction<'static, Sqlite>,
    kind: CaKind,
) -> Result<AuthorityId, RegistryError> {
    let generation: i64 = sqlx::query_scalar(
        "SELECT generation FROM authorities WHERE kind = ? AND state = 'issuing'",
    )
    .bind(kind.name())
    .fetch_one(&mut **tx)
    .await?;
    id_of(kind.name(), generation)
}

impl Registry {
    /// The authorities as they are now.
    pub(crate) fn held(&self) -> Arc<Authorities> {
        let held = self.inner.authorities.read();
        Arc::clone(&held.unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_held(&self, authorities: Authorities) {
        let held = self.inner.authorities.write();
        *held.unwrap_or_else(PoisonError::into_inner) = Arc::new(authorities);
    }

    pub(crate) fn authority(&self, id: AuthorityId) -> Result<Arc<Authority>, RegistryError> {
        self.held().get(id).cloned()
    }

    /// The generation of this kind that issues.
    pub(crate) fn issuing(&self, kind: CaKind) -> Result<Arc<Authority>, RegistryError> {
        self.held().issuing(kind).cloned()
    }

    /// Threads for signatures of an authority.
    pub(crate) fn signers(&self, id: AuthorityId) -> &Pool {
        let pools = &self.inner.signers;
        let issues = self.held().state(id) == Some(AuthorityState::Issuing);
        let of_kind = pools.issuing.get(&id.kind()).filter(|_| issues);
        of_kind.unwrap_or(&pools.others)
    }

    /// All issuing authorities, by kind and generation.
    #[must_use]
    pub fn authority_records(&self, now: OffsetDateTime) -> Vec<AuthorityRecord> {
        let held = self.held();
        let record = |authority: &Arc<Authority>| {
            let state = held.state(authority.id)?;
            Some(AuthorityRecord {
                id: authority.id,
                state,
                certificate: authority.certificate().clone(),
                is_revoked: self.revocation_of(authority).is_some(),
                has_key: authority.has_key(),
                is_needed: self.is_needed(&held, authority.id, now),
            })
        };
        held.all.values().filter_map(record).collect()
    }

    /// Tells whether anybody needs what an authority signs. What one signs that the root has revoked nobody takes; while no other
    /// issues in its place, it answers all the same, for those who have not heard of it yet.
    pub(crate) fn is_needed(
        &self,
        held: &Authorities,
        id: AuthorityId,
        now: OffsetDateTime,
    ) -> bool {
        let is_revoked = held.all.get(&id).and_then(|one| self.revocation_of(one));
        let issues = held.state(id) == Some(AuthorityState::Issuing);
        held.is_in_use(id, now) && (issues || is_revoked.is_none())
    }

    /// Tells whether a certificate is by an authority that was revoked and in whose place another one issues.
    #[must_use]
    pub fn is_replaced(&self, certificate: &Certificate) -> bool {
        let held = self.held();
        let mut all = held.all.values();
        let issuer = all.find(|one| {
            one.certificate().tbs_certificate.subject == certificate.tbs_certificate.issuer
        });
        issuer.is_some_and(|issuer| {
            self.revocation_of(issuer).is_some()
                && held
                    .issuing(issuer.id.kind())
                    .is_ok_and(|issuing| self.revocation_of(issuing).is_none())
        })
    }

    /// The revocation of an issuing authority, if the root's list names it.
    pub(crate) fn revocation_of(&self, authority: &Authority) -> Option<Revocation> {
        let tbs = &authority.certificate().tbs_certificate;
        let (issuer, serial) = (IssuerId::of(&tbs.issuer), tbs.serial_number.as_bytes());
        self.inner.status.lookup(issuer, serial)
    }

    /// The generation that issued a certificate of this kind; `None` if none did.
    pub(crate) async fn issuer_of(
        &self,
        kind: CaKind,
        serial: &str,
    ) -> Result<Option<AuthorityId>, RegistryError> {
        let generation: Option<i64> =
            sqlx::query_scalar("SELECT generation FROM issued WHERE authority = ? AND serial = ?")
                .bind(kind.name())
                .bind(serial)
                .fetch_optional(self.readers(kind))
                .await?;
        generation
            .map(|generation| id_of(kind.name(), generation))
            .transpose()
    }
}
