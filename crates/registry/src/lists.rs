//! Revocation lists: when they are made, and how they are published.
//!
//! Each authority has a list of all its certificates and one for each shard: the part whose certificates name that list
//! as their distribution point. Each of these has a delta list. A revocation has four of them made anew, whatever the
//! number of shards: the whole list, the certificate's shard, and their delta lists.
//!
//! `revoked.listed` is the number of the first list that names a revocation. From it follows which lists are behind, also
//! after a crash and where another process revoked, and what a delta list must say. Holds have such numbers in
//! [`holds`](crate::holds).

mod book;
mod name;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aws_lc_rs::digest;
use pki::crl::{CrlError, CrlForm, CrlRequest, CrlScope, RevokedEntry};
use pki::file;
use pki::profile::CaKind;
use store::sqlx::{Sqlite, Transaction};
use time::{Duration, OffsetDateTime};

use self::name::Part;
pub use self::name::{CrlName, UnknownCrl};
use crate::authority::Authority;
use crate::generation::AuthorityId;
use crate::{Registry, RegistryError, files};

/// How far ahead of the clock a list of ours may be dated.
const AHEAD: Duration = Duration::minutes(5);
/// Mode of revocation lists in files.
const PUBLIC_MODE: u32 = 0o644;
/// Shards whose lists are made anew at once for their age alone: a revocation must not wait for hundreds of files.
const AGED_AT_ONCE: usize = 16;

/// Pause after lists could not be made for somebody who asked.
const PAUSE: Duration = Duration::minutes(1);

/// A list that is published.
struct Published {
    list: PublishedList,
    number: i64,
    this_update: OffsetDateTime,
    next_update: OffsetDateTime,
    scope: CrlScope,
}

/// A list, and what tells it from others of its name.
#[derive(Clone, Debug)]
pub struct PublishedList {
    /// In DER.
    pub der: Arc<[u8]>,
    /// The beginning of its SHA-256 in hexadecimal digits.
    pub tag: Arc<str>,
}

/// Octets of a hash that tell two lists of one name apart: nobody chooses their content.
const TAG: usize = 16;

impl PublishedList {
    /// A list with its tag.
    #[must_use]
    pub fn new(der: Arc<[u8]>) -> Self {
        let hash = digest::digest(&digest::SHA256, &der);
        let tag = hash.as_ref().get(..TAG).map(hex::encode);
        Self {
            der,
            tag: tag.unwrap_or_default().into(),
        }
    }
}

/// The lists that are published.
#[derive(Default)]
pub(crate) struct Lists {
    published: RwLock<BTreeMap<CrlName, Published>>,
    /// The number up to which all lists of an authority name what they must.
    whole_to: Mutex<BTreeMap<AuthorityId, i64>>,
    /// When lists of an authority could not be made for somebody who asked.
    failed_at: Mutex<BTreeMap<AuthorityId, OffsetDateTime>>,
}

impl Lists {
    fn with<T>(&self, name: CrlName, give: impl FnOnce(&Published) -> T) -> Option<T> {
        let published = self.published.read();
        let published = published.unwrap_or_else(PoisonError::into_inner);
        published.get(&name).map(give)
    }

    fn failed_at(&self, id: AuthorityId) -> Option<OffsetDateTime> {
        let failed = self.failed_at.lock();
        let failed = failed.unwrap_or_else(PoisonError::into_inner);
        failed.get(&id).copied()
    }

    fn set_failed_at(&self, id: AuthorityId, now: OffsetDateTime) {
        let failed = self.failed_at.lock();
        let mut failed = failed.unwrap_or_else(PoisonError::into_inner);
        failed.insert(id, now);
    }

    fn whole_to(&self, id: AuthorityId) -> i64 {
        let known = self.whole_to.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known.get(&id).copied().unwrap_or_default()
    }

    fn set_whole_to(&self, id: AuthorityId, number: i64) {
        let known = self.whole_to.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.insert(id, number);
    }
}

/// What of a part's lists is made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Both,
    Delta,
}

/// What is to be signed under a name.
struct Draft {
    id: AuthorityId,
    name: CrlName,
    number: i64,
    revoked: Vec<RevokedEntry>,
    points: Vec<String>,
    /// Of a delta list.
    base: Option<i64>,
    /// Serial numbers that a delta list takes from hold.
    released: Vec<Vec<u8>>,
    freshest_url: Option<String>,
    life: Duration,
}

/// The lists that a certificate names.
pub(crate) struct OwnShard {
    shard: u16,
    pub(crate) crl_url: String,
    pub(crate) delta_url: String,
}

impl OwnShard {
    pub(crate) fn number(&self) -> i64 {
        i64::from(self.shard)
    }

    pub(crate) async fn note(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        id: AuthorityId,
    ) -> Result<(), RegistryError> {
        book::note_shard(tx, id, self.shard, &self.crl_url).await
    }
}

impl Registry {
    /// The newest list in DER.
    #[must_use]
    pub fn crl(&self, name: CrlName) -> Option<Arc<[u8]>> {
        self.published(name).map(|list| list.der)
    }

    /// As [`Self::crl`], with the list's tag.
    #[must_use]
    pub fn published(&self, name: CrlName) -> Option<PublishedList> {
        self.inner.lists.with(name, |list| list.list.clone())
    }

    /// As [`Self::crl`], with the list's tag; the first list of a shard is made if a certificate names it already.
    ///
    /// # Errors
    /// [`RegistryError`]: database, file, clock.
    pub async fn crl_for(
        &self,
        name: CrlName,
        now: OffsetDateTime,
    ) -> Result<Option<PublishedList>, RegistryError> {
        let known = self.published(name);
        let (CrlName::Shard(id, shard) | CrlName::ShardDelta(id, shard)) = name else {
            return Ok(known);
        };
        // Anybody may ask: where lists cannot be made, only the site tries again.
        let failed = self.inner.lists.failed_at(id);
        if known.is_some()
            || failed.is_some_and(|failed| now < failed.saturating_add(PAUSE))
            || !self.is_shard(id, shard).await?
        {
            return Ok(known);
        }
        let made = self.renew_crl(id, now).await;
        made.inspect_err(|_| self.inner.lists.set_failed_at(id, now))?;
        Ok(self.published(name))
    }

    /// The end of each list that is to be kept current at `now`.
    #[must_use]
    pub fn crl_ends(&self, now: OffsetDateTime) -> Vec<(CrlName, OffsetDateTime)> {
        let held = self.held();
        let published = self.inner.lists.published.read();
        let published = published.unwrap_or_else(PoisonError::into_inner);
        let ends = published.iter();
        ends.filter(|(name, _)| {
            let id = name.authority();
            id.is_none_or(|id| self.is_needed(&held, id, now))
        })
        .map(|(name, list)| (*name, list.next_update))
        .collect()
    }

    /// Tells whether the list of all certificates of an authority is published.
    pub(crate) fn has_list(&self, id: AuthorityId) -> bool {
        self.published(CrlName::Issuing(id)).is_some()
    }

    /// Makes the lists of all authorities of a kind that are due.
    pub(crate) async fn renew_crls(
        &self,
        kind: CaKind,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let (held, mut outcome) = (self.held(), Ok(()));
        let needed = |one: &&Arc<Authority>| self.is_needed(&held, one.id, now);
        for authority in held.of_kind(kind).filter(needed) {
            outcome = outcome.and(self.renew_crl(authority.id, now).await);
        }
        outcome
    }

    /// Chooses the shard of a certificate that is about to be issued. Where the site has no public address, certificates
    /// name no list and belong to none.
    ///
    /// By chance, so that nobody steers many certificates into one shard.
    pub(crate) fn choose_shard(&self, id: AuthorityId) -> Result<Option<OwnShard>, RegistryError> {
        let config = &self.inner.config;
        let mut bytes = [0_u8; 8];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RegistryError::Random)?;
        let chosen = u64::from_be_bytes(bytes) % u64::from(config.crl_shards.get());
        let shard = u16::try_from(chosen).unwrap_or_default();
        let url = |name: CrlName| config.crl_url(&name.to_string());
        let urls = url(CrlName::Shard(id, shard)).zip(url(CrlName::ShardDelta(id, shard)));
        Ok(urls.map(|(crl_url, delta_url)| OwnShard {
            shard,
            crl_url,
            delta_url,
        }))
    }

    /// Renews every authority's list of which half the life is over, or which is not complete because an earlier attempt
    /// failed. Cheap; call it every few seconds.
    ///
    /// # Errors
    /// [`RegistryError`]; lists not reached remain as they are.
    pub async fn refresh_crls(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        self.list_superseded(now).await?;
        let mut outcome = Ok(());
        let held = self.held();
        for id in held
            .all
            .keys()
            .filter(|id| self.is_needed(&held, **id, now))
        {
            // One whose key is away must not keep the others' lists back.
            outcome = outcome.and(self.renew_crl(*id, now).await);
        }
        outcome
    }

    /// Makes, stores and publishes the lists of an authority that are due.
    pub(crate) async fn renew_crl(
        &self,
        id: AuthorityId,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let lists = &self.inner.lists;
        let authority = self.authority(id)?;
        let _turn = authority.list_turn.lock().await;
        if self.due(id, now).await?.is_empty() {
            return Ok(());
        }
        self.inner.config.clock.check(now)?;
        let number = self.next_crl_number(id, now).await?;
        let due = self.due(id, now).await?;
        // After that, as a certificate may be the first of its shard at any time; none ever goes.
        let shards = self.shards(id).await?;
        let (mut completed, mut outcome) = (Vec::new(), Ok(()));
        // The whole list comes first: the listeners of this system and tunnel gateways go by it.
        for (part, due) in due {
            let urls = match part {
                Part::Whole => Vec::new(),
                Part::Shard(shard) => shards.get(&shard).cloned().unwrap_or_default(),
            };
            match self.make_lists(id, part, due, urls, number, now).await {
                Ok(()) if due == Due::Both => completed.push(part),
                Ok(()) => {}
                // One file that cannot be written must not keep the others back.
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        self.note_bases(id, &completed, number, now).await?;
        outcome?;
        lists.set_whole_to(id, number);
        Ok(())
    }

    /// Which lists are to be made anew.
    async fn due(
        &self,
        id: AuthorityId,
        now: OffsetDateTime,
    ) -> Result<BTreeMap<Part, Due>, RegistryError> {
        let lists = &self.inner.lists;
        let needed = self.needed_numbers(id, lists.whole_to(id)).await?;
        let shards = self.shards(id).await?;
        let parts = shards
            .iter()
            .map(|(shard, urls)| (Part::Shard(*shard), urls.as_slice()));
        let (mut due, mut aged) = (BTreeMap::new(), 0_usize);
        for (part, urls) in std::iter::once((Part::Whole, &[][..])).chain(parts) {
            let needed = needed.get(&part).copied().unwrap_or_default();
            let scope = CrlScope::of_urls(urls)?;
            let life = &self.inner.config.lifetimes;
            let complete = lists.with(part.complete(id), |list| {
                let is_right = list.number >= needed && list.scope == scope;
                (is_right, self.is_fresh(list, life.crl, now), list.number)
            });
            let delta = lists.with(part.delta(id), |list| {
                let fresh = self.is_fresh(list, life.delta_crl, now) && list.scope == scope;
                (fresh, list.number)
            });
            let (what, is_aged) = match (complete, delta) {
                (Some((true, true, complete)), Some((fresh, number))) if number >= complete => {
                    match fresh {
                        true => continue,
                        false => (Due::Delta, true),
                    }
                }
                (Some((true, true, _)), _) => (Due::Delta, false),
                (Some((true, false, _)), _) => (Due::Both, true),
                _ => (Due::Both, false),
            };
            if is_aged && part != Part::Whole {
                aged = aged.saturating_add(1);
                if aged > AGED_AT_ONCE {
                    continue;
                }
            }
            due.insert(part, what);
        }
        Ok(due)
    }

    /// Whether a list of this life is in the first half of it.
    fn is_fresh(&self, list: &Published, life: Duration, now: OffsetDateTime) -> bool {
        // A list from the future is one that a clock made which has been put right since; nobody
        // takes it before its date. While the clock is behind what was known, the list is right.
        match list.this_update > now.saturating_add(AHEAD) {
            true => !self.is_clock_right(now),
            false => now < list.this_update.saturating_add(life / 2),
        }
    }

    /// Makes the lists of a part.
    async fn make_lists(
        &self,
        id: AuthorityId,
        part: Part,
        due: Due,
        points: Vec<String>,
        number: i64,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        if points.is_empty() && part != Part::Whole {
            // Without it the list would speak for all certificates, and hide what other shards revoke.
            return Err(RegistryError::Corrupt("shard"));
        }
        let config = &self.inner.config;
        let mut complete = number;
        if due == Due::Both {
            let draft = Draft {
                id,
                name: part.complete(id),
                number,
                revoked: self.entries(id, part, number, now).await?,
                points: points.clone(),
                base: None,
                released: Vec::new(),
                freshest_url: config.crl_url(&part.delta(id).to_string()),
                life: config.lifetimes.crl,
            };
            self.sign_list(draft, now).await?;
        } else {
            let lists = &self.inner.lists;
            let known = lists.with(part.complete(id), |list| list.number);
            complete = known.unwrap_or(number);
        }
        let changes = self.changes(id, part, complete, now).await?;
        let draft = Draft {
            id,
            name: part.delta(id),
            number,
            revoked: changes.revoked,
            points,
            base: Some(changes.base),
            released: changes.released,
            freshest_url: None,
            life: config.lifetimes.delta_crl,
        };
        self.sign_list(draft, now).await
    }

    /// Signs, stores and publishes a list.
    async fn sign_list(&self, draft: Draft, now: OffsetDateTime) -> Result<(), RegistryError> {
        let (name, id) = (draft.name, draft.id);
        let authority = self.authority(id)?;
        let inner = Arc::clone(&self.inner);
        let path = files::crl_path(&inner.directory, name);
        let work = move || -> Result<Arc<[u8]>, RegistryError> {
            let form = match draft.base {
                None => CrlForm::Complete {
                    freshest_url: draft.freshest_url.as_deref(),
                },
                Some(base) => CrlForm::Delta {
                    base: base.unsigned_abs(),
                    released: &draft.released,
                },
            };
            let der = authority.signing()?.sign_crl(&CrlRequest {
                number: draft.number.unsigned_abs(),
                revoked: &draft.revoked,
                this_update: now,
                next_update: now.saturating_add(draft.life),
                points: &draft.points,
                form,
            })?;
            file::write_atomic_on(&*inner.config.disk, &path, &der, PUBLIC_MODE)?;
            Ok(der.into())
        };
        let der = self.signers(id).run(work).await;
        let der = der.map_err(|_| RegistryError::Interrupted)??;
        self.publish(name, der, now)
    }

    /// Puts the root's list from its file into force, which only the root's key could renew: when the registry is opened, and
    /// after [`Self::install_authorities`]. One that is out of date, or of a clock that was ahead, is taken as of its own date, as what it revokes stays
    /// revoked: the site must come up, or no other list could be installed.
    ///
    /// # Errors
    /// [`RegistryError::Io`], or [`RegistryError::Crl`] for a list that does not verify or is older than the one in force.
    pub fn take_root_list(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        let path = files::crl_path(&self.inner.directory, CrlName::Root);
        let der = std::fs::read(&path).map_err(|source| RegistryError::Io {
            operation: "read",
            path,
            source,
        })?;
        let der: Arc<[u8]> = der.into();
        match self.publish(CrlName::Root, Arc::clone(&der), now) {
            Err(RegistryError::Crl(
                error @ (CrlError::Stale { .. } | CrlError::FromTheFuture { .. }),
            )) => {
                tracing::error!(%error, "the root's revocation list is taken as of its own date");
                let issued = pki::crl::parse(&der)?.tbs_cert_list.this_update;
                self.publish(CrlName::Root, der, issued.to_system_time().into())
            }
            other => other,
        }
    }

    /// Takes up the lists of shards from their files, which saves hundreds of signatures at each start. Whatever is
    /// missing, out of date or behind the database is made anew.
    pub(crate) async fn load_shards(&self, now: OffsetDateTime) -> Result<(), RegistryError> {
        for id in self.held().all.keys().copied() {
            for shard in self.shards(id).await?.into_keys() {
                let part = Part::Shard(shard);
                for name in [part.complete(id), part.delta(id)] {
                    let path = files::crl_path(&self.inner.directory, name);
                    let Ok(der) = std::fs::read(&path) else {
                        continue;
                    };
                    if let Err(error) = self.publish(name, der.into(), now) {
                        tracing::debug!(%error, list = %name, "list not taken from its file");
                    }
                }
            }
        }
        Ok(())
    }

    fn publish(
        &self,
        name: CrlName,
        der: Arc<[u8]>,
        now: OffsetDateTime,
    ) -> Result<(), RegistryError> {
        let verified = match name {
            // No table has holds of authorities: the root's list is their only source.
            CrlName::Root => self.inner.trust.accept_crl(&der, now)?,
            // Doors read the state of the holder, which may have changed after the list.
            _ => self.inner.trust.accept_own_crl(&der, now)?,
        };
        let is_delta = matches!(name, CrlName::Delta(_) | CrlName::ShardDelta(..));
        if verified.is_delta() != is_delta {
            return Err(RegistryError::Corrupt("revocation list"));
        }
        let number = verified.window.number.iter();
        let number = number.fold(0_i64, |n, byte| {
            n.saturating_mul(256).saturating_add(i64::from(*byte))
        });
        let list = Published {
            list: PublishedList::new(der),
            number,
            this_update: verified.window.this_update,
            next_update: verified.window.next_update,
            scope: verified.scope,
        };
        let published = self.inner.lists.published.write();
        let mut published = published.unwrap_or_else(PoisonError::into_inner);
        published.insert(name, list);
        Ok(())
    }
}
