//! The issuing authorities of an open registry, and which of each kind issues.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use pki::Certificate;
use pki::clearance::Clearance;
use pki::issue::CertificateAuthority;
use pki::profile::CaKind;
use pki::status::{IssuerId, Revocation};
use pool::{Pool, Share};
use store::sqlx::{self, Sqlite, SqliteExecutor, Transaction};
use time::{Duration, OffsetDateTime};

use crate::generation::{AuthorityId, AuthorityState};
use crate::records::instant;
use crate::{Registry, RegistryError};

/// Time after the end of the last certificate during which a retired authority goes on signing: whoever reads its lists may have a
/// slow clock, and asks about a signature of the last day later.
const AFTER_LAST: Duration = Duration::days(30);
/// Generations of a kind that cameras are told of, at most. Our choice: with the root's, their lists are within the eight that a
/// camera takes, and the generations of all kinds within the sixteen authorities of a trust bundle.
pub const TOLD_TO_CAMERAS: usize = 5;

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

impl Standing {
    /// Whether it issues nothing any more, and everything that it issued has expired.
    pub(crate) fn is_over(&self, now: OffsetDateTime) -> bool {
        let end = self.needed_until.map(|end| end.saturating_add(AFTER_LAST));
        self.state == AuthorityState::Retired && end.is_none_or(|end| now > end)
    }
}

/// Where the generations of all kinds stand, by the database.
#[derive(Clone, Debug, Default)]
pub struct Standings(pub(crate) BTreeMap<AuthorityId, Standing>);

impl Standings {
    pub(crate) fn get(&self, id: AuthorityId) -> Option<&Standing> {
        self.0.get(&id)
    }

    /// State of an authority that has a certificate: those that the database does not know yet wait, but for the first.
    pub(crate) fn state(&self, id: AuthorityId) -> AuthorityState {
        match self.get(id) {
            Some(standing) => standing.state,
            None if id == AuthorityId::first(id.kind()) => AuthorityState::Issuing,
            None => AuthorityState::Ready,
        }
    }

    /// Whether it is retired without having issued anything.
    pub(crate) fn never_issued(&self, id: AuthorityId) -> bool {
        let retired = self
            .get(id)
            .filter(|one| one.state == AuthorityState::Retired);
        retired.is_some_and(|one| one.needed_until.is_none())
    }

    pub(crate) fn issuing(&self, kind: CaKind) -> Result<AuthorityId, RegistryError> {
        let of_kind = self.0.iter().filter(|(id, _)| id.kind() == kind);
        let mut issuing = of_kind.filter(|(_, one)| one.state == AuthorityState::Issuing);
        match (issuing.next(), issuing.next()) {
            (Some((id, _)), None) => Ok(*id),
            (None, _) => Err(RegistryError::NoneIssues(kind)),
            (Some((one, _)), Some((other, _))) => Err(RegistryError::SeveralIssue(*one, *other)),
        }
    }
}

/// All authorities, as they are at one instant.
#[derive(Clone, Default)]
pub(crate) struct Authorities {
    pub(crate) all: BTreeMap<AuthorityId, Arc<Authority>>,
    pub(crate) standings: Standings,
    /// Those of which nothing can be used, with the reason. None of them issues.
    pub(crate) unusable: BTreeMap<AuthorityId, String>,
}

impl Authorities {
    pub(crate) fn get(&self, id: AuthorityId) -> Result<&Arc<Authority>, RegistryError> {
        self.all.get(&id).ok_or(RegistryError::NoAuthority(id))
    }

    pub(crate) fn issuing(&self, kind: CaKind) -> Result<&Arc<Authority>, RegistryError> {
        self.get(self.standings.issuing(kind)?)
    }

    pub(crate) fn state(&self, id: AuthorityId) -> Option<AuthorityState> {
        self.standings.get(id).map(|standing| standing.state)
    }

    /// Generations of a kind, oldest first.
    pub(crate) fn of_kind(&self, kind: CaKind) -> impl Iterator<Item = &Arc<Authority>> {
        let all = self.all.values();
        all.filter(move |authority| authority.id.kind() == kind)
    }

    /// Tells whether it issues or is about to, or not all that it issued has expired.
    fn is_in_use(&self, id: AuthorityId, now: OffsetDateTime) -> bool {
        let Some((begin, end)) = self.all.get(&id).map(|one| one.validity()) else {
            return false;
        };
        match self.standings.get(id) {
            Some(standing) => match standing.state {
                AuthorityState::Issuing => true,
                AuthorityState::Ready => begin <= now && now <= end,
                AuthorityState::Retired => now <= end && !standing.is_over(now),
            },
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
    /// Set while it signs lists and OCSP signers: `false` before its certificate is valid, and once all that it issued has expired.
    pub is_needed: bool,
}

/// An authority of which nothing can be used, and which issues nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableAuthority {
    pub id: AuthorityId,
    /// `None` of one that is in the folder and not in the database.
    pub state: Option<AuthorityState>,
    pub reason: String,
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

    /// Whether it issues, and two thirds of its certificate's life are over.
    #[must_use]
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        let (begin, end) = self.validity();
        self.state == AuthorityState::Issuing && now >= end - (end - begin) / 3
    }

    /// Whether its certificate is valid at `now`.
    #[must_use]
    pub fn is_valid(&self, now: OffsetDateTime) -> bool {
        let (begin, end) = self.validity();
        begin <= now && now <= end
    }
}

/// Reads where all authorities stand: exactly one of each kind issues.
pub(crate) async fn standings(
    from: impl SqliteExecutor<'_>,
) -> Result<BTreeMap<AuthorityId, Standing>, RegistryError> {
    let rows: Vec<(String, i64, String, Option<i64>)> =
        sqlx::query_as("SELECT kind, generation, state, needed_until FROM authorities")
            .fetch_all(from)
            .await?;
    let standing = |(kind, generation, state, end): (String, i64, String, Option<i64>)| {
        let standing = Standing {
            state: state.parse()?,
            needed_until: end.map(instant).transpose()?,
        };
        Ok((id_of(&kind, generation)?, standing))
    };
    let standings = rows.into_iter().map(standing);
    let standings = Standings(standings.collect::<Result<_, RegistryError>>()?);
    for kind in CaKind::ALL {
        standings.issuing(kind)?;
    }
    Ok(standings.0)
}

/// The authority that a row names.
pub(crate) fn id_of(kind: &str, generation: i64) -> Result<AuthorityId, RegistryError> {
    let kind = kind.parse().ok();
    let id = kind.and_then(|kind| AuthorityId::new(kind, generation));
    id.ok_or(RegistryError::Corrupt("authority"))
}

/// The generation that issues, as the transaction that issues sees it.
pub(crate) async fn issuing_row(
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

    /// The generation that issues, as the transaction that issues sees it.
    ///
    /// # Errors
    /// [`RegistryError::OtherIssues`] where that is not the one that this process had put to use: somebody wrote to the database.
    pub(crate) async fn issuing_in(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        kind: CaKind,
    ) -> Result<AuthorityId, RegistryError> {
        let (row, held) = (issuing_row(tx, kind).await?, self.issuing(kind)?.id);
        match row == held {
            true => Ok(row),
            false => Err(RegistryError::OtherIssues { row, known: held }),
        }
    }

    /// Whether the certificate of the generation of this kind that issues is valid at `now`: else nothing is issued.
    #[must_use]
    pub fn issues_at(&self, kind: CaKind, now: OffsetDateTime) -> bool {
        self.issuing(kind).is_ok_and(|one| {
            let (begin, end) = one.validity();
            begin <= now && now <= end
        })
    }

    /// Where the generations of all kinds stand.
    #[must_use]
    pub fn standings(&self) -> Standings {
        self.held().standings.clone()
    }

    /// The authorities of which nothing can be used. The site goes on without them, as they issue nothing.
    #[must_use]
    pub fn unusable_authorities(&self) -> Vec<UnusableAuthority> {
        let held = self.held();
        let unusable = held.unusable.iter().map(|(id, reason)| UnusableAuthority {
            id: *id,
            state: held.state(*id),
            reason: reason.clone(),
        });
        unusable.collect()
    }

    /// The generations of a kind that cameras are told of: the one that issues, the one that waits, and the newest of the others
    /// of which anything is needed, [`TOLD_TO_CAMERAS`] together.
    #[must_use]
    pub fn told_to_cameras(&self, kind: CaKind, now: OffsetDateTime) -> Vec<AuthorityRecord> {
        let records = self.authority_records(now).into_iter();
        let mut records: Vec<_> = records
            .filter(|record| record.is_needed && record.id.kind() == kind)
            .collect();
        records.sort_by_key(|record| (record.state == AuthorityState::Retired, Reverse(record.id)));
        records.truncate(TOLD_TO_CAMERAS);
        records.sort_by_key(|record| record.id);
        records
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

    /// Tells whether a certificate is by an authority in whose place another one issues, and which was revoked, or which cameras are
    /// not [told of](Self::told_to_cameras) any more.
    #[must_use]
    pub fn is_replaced(&self, certificate: &Certificate, now: OffsetDateTime) -> bool {
        let held = self.held();
        let mut all = held.all.values();
        let issuer = all.find(|one| {
            one.certificate().tbs_certificate.subject == certificate.tbs_certificate.issuer
        });
        issuer.is_some_and(|issuer| {
            let is_told = || {
                let mut told = self.told_to_cameras(issuer.id.kind(), now).into_iter();
                told.any(|record| record.id == issuer.id)
            };
            let retired = held.state(issuer.id) == Some(AuthorityState::Retired);
            (self.revocation_of(issuer).is_some() || (retired && !is_told()))
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
