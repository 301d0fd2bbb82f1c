//! Profiles that are in force: those that are built in, and what acts of the registration authority put in their place or
//! beside them.

pub(crate) mod evidence;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use approval::{Act, Request};
use event_catalogue::Recorded as _;
use event_catalogue::detail::Document;
use event_catalogue::registry::ProfileChanged;
use pki::clearance::Clearance;
use pki::profile::{Definition, Issuer, Presence, Profile, SharedDefinition, built_in};
use serde::Serialize;
use store::sqlx;
use time::OffsetDateTime;

use crate::sha256::sha256;
use crate::{Registry, RegistryError, Warrant};

/// Profiles that a site puts in force beside those that are built in, at most. Our choice: more than anybody tells apart.
pub const MAX_PROFILES: usize = 100;

/// Profiles that were put in force, by name. Changed in the turn of the transaction that writes it.
#[derive(Default)]
pub(crate) struct Profiles(RwLock<BTreeMap<String, InForce>>);

#[derive(Clone)]
struct InForce {
    /// `None` of a file that this version does not accept.
    definition: Option<SharedDefinition>,
    record: ProfileRecord,
    /// When it was put in force; in the record without its fraction of a second.
    changed: OffsetDateTime,
}

/// A profile of certificates that are issued on request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProfileRecord {
    pub name: String,
    /// Its file.
    pub text: String,
    /// SHA-256 of that, in hexadecimal.
    pub sha256: String,
    /// Set if it is built in, and was never changed.
    pub built_in: bool,
    /// The request that put it in force; `None` of what is built in, and of an order.
    pub request: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub changed_at: Option<OffsetDateTime>,
    /// Why it is not in force: nothing is issued by it, nor by what is built in under its name.
    pub waits: Option<String>,
}

impl Profiles {
    fn get(&self, name: &str) -> Option<InForce> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(name).cloned()
    }

    fn put(&self, one: InForce) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(one.record.name.clone(), one);
    }
}

impl InForce {
    fn new(
        name: String,
        text: String,
        request: Option<String>,
        changed: OffsetDateTime,
    ) -> Result<Self, RegistryError> {
        let definition = Definition::parse(&text);
        if definition.as_ref().is_ok_and(|one| one.name() != name) {
            return Err(RegistryError::ProfileNotApproved(name));
        }
        let (definition, waits) = match definition {
            Ok(definition) => (Some(Arc::new(definition)), None),
            // An earlier version may have taken it.
            Err(error) => (None, Some(error.to_string())),
        };
        let record = ProfileRecord {
            name,
            sha256: sha256(&text),
            text,
            built_in: false,
            request,
            changed_at: changed.replace_nanosecond(0).ok(),
            waits,
        };
        Ok(Self {
            definition,
            record,
            changed,
        })
    }

    fn profile(&self) -> Option<Profile> {
        self.definition.as_ref().and_then(|one| one.profile())
    }
}

impl Registry {
    /// Returns the definition of a profile that is in force.
    ///
    /// # Errors
    /// [`RegistryError::UnknownProfile`]; [`RegistryError::ProfileWaits`] of one that waits to be approved.
    pub fn definition(&self, profile: Profile) -> Result<SharedDefinition, RegistryError> {
        let name = profile.to_string();
        if let Some(changed) = self.inner.profiles.get(&name) {
            if let Some(why) = changed.record.waits {
                return Err(RegistryError::ProfileWaits { name, why });
            }
            // A name has the authority that it was given first.
            let definition = changed.definition;
            if let Some(own) = definition.filter(|one| one.profile() == Some(profile)) {
                return Ok(own);
            }
        }
        let definition = profile.definition().cloned();
        definition.ok_or(RegistryError::UnknownProfile(name))
    }

    /// The profile of this name, if such certificates are issued on request.
    #[must_use]
    pub fn requested_profile(&self, name: &str) -> Option<Profile> {
        let changed = self.inner.profiles.get(name);
        let changed = changed.and_then(|changed| changed.profile());
        let known = || {
            let mut known = built_in();
            known
                .find(|(one, _)| one.name() == name)
                .and_then(|(one, _)| one.profile())
        };
        changed
            .or_else(known)
            .filter(|profile| profile.is_on_request())
    }

    /// SHA-256 of the file of a profile that is not as it is built in.
    pub(crate) fn changed_profile(&self, profile: Profile) -> Option<String> {
        let changed = self.inner.profiles.get(&profile.to_string())?;
        Some(changed.record.sha256)
    }

    /// Refuses what was approved before its profile was changed: approvers saw another one.
    pub(crate) fn check_profile_seen(
        &self,
        profile: Profile,
        approved: &Request,
    ) -> Result<(), RegistryError> {
        let Some(present) = self.inner.profiles.get(&profile.to_string()) else {
            return Ok(());
        };
        let mut approvals = approved.state().approvals().iter();
        match approvals.any(|approval| approval.at() <= present.changed) {
            false => Ok(()),
            true => Err(RegistryError::ProfileChanged {
                name: present.record.name,
                at: present.changed,
            }),
        }
    }

    /// The same of an invitation, by the request that it names; an order has nobody's approval.
    pub(crate) async fn check_profile_of_invitation(
        &self,
        profile: Profile,
        request: Option<&str>,
    ) -> Result<(), RegistryError> {
        let is_changed = self.inner.profiles.get(&profile.to_string()).is_some();
        match request {
            Some(id) if is_changed => {
                self.check_profile_seen(profile, &self.request(id).await?.request)
            }
            _ => Ok(()),
        }
    }

    /// Profiles of certificates that are issued on request, by name.
    #[must_use]
    pub fn profiles(&self) -> Vec<ProfileRecord> {
        let mut all: BTreeMap<String, ProfileRecord> = built_in()
            .filter(|(one, _)| one.profile().is_some_and(Profile::is_on_request))
            .map(|(one, text)| {
                let record = ProfileRecord {
                    name: one.name().to_owned(),
                    text: text.to_owned(),
                    sha256: sha256(text),
                    built_in: true,
                    request: None,
                    changed_at: None,
                    waits: None,
                };
                (record.name.clone(), record)
            })
            .collect();
        let changed = &self.inner.profiles.0;
        let changed = changed.read().unwrap_or_else(PoisonError::into_inner);
        for one in changed.values() {
            all.insert(one.record.name.clone(), one.record.clone());
        }
        all.into_values().collect()
    }

    /// The highest clearance that certificates of a profile can have: what is approved with it.
    ///
    /// # Errors
    /// [`RegistryError::NotALeaf`] of one that nobody asks for, [`RegistryError::NoAuthority`].
    pub fn clearance_of_profile(
        &self,
        definition: &Definition,
    ) -> Result<Clearance, RegistryError> {
        let Issuer::Authority(authority) = definition.issuer() else {
            return Err(RegistryError::NotALeaf);
        };
        let bound = self.issuing(authority)?.max_clearance()?;
        let bound = bound.unwrap_or(Clearance::TopSecret);
        Ok(match definition.clearance() {
            Presence::None => Clearance::Unclassified,
            _ => definition.highest_clearance().unwrap_or(bound),
        })
    }

    /// Reads the profile of an act, which must say of it what is so.
    pub(crate) fn profile_of_act(
        &self,
        name: &str,
        clearance: Clearance,
        text: &str,
    ) -> Result<Definition, RegistryError> {
        let definition = Definition::parse(text)?;
        if definition.name() != name {
            return Err(RegistryError::NotCovered("name"));
        }
        if self.clearance_of_profile(&definition)? != clearance {
            return Err(RegistryError::NotCovered("clearance"));
        }
        // A certificate that is out there keeps its meaning: the name does not go to another authority.
        if let Some(present) = self.requested_profile(name)
            && definition.profile() != Some(present)
        {
            return Err(RegistryError::NotCovered("authority"));
        }
        let is_new = self.inner.profiles.get(name).is_none();
        let changed = &self.inner.profiles.0;
        let count = changed.read().unwrap_or_else(PoisonError::into_inner).len();
        if is_new && count >= MAX_PROFILES {
            return Err(RegistryError::TooManyProfiles);
        }
        Ok(definition)
    }

    /// Puts a profile in force for certificates from now on, as `warrant` says; recorded, with the former one, when this returns.
    ///
    /// # Errors
    /// [`RegistryError::Profile`] with the first mistake, [`RegistryError::NotCovered`] for something else than was approved,
    /// [`RegistryError::ClearanceAboveAuthority`], [`RegistryError::TooManyProfiles`]; or as [`Self::issue`].
    pub async fn change_profile(
        &self,
        text: &str,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<ProfileRecord, RegistryError> {
        let definition = Definition::parse(text)?;
        let clearance = self.clearance_of_profile(&definition)?;
        self.profile_of_act(definition.name(), clearance, text)?;
        self.check_profile_bound(&definition)?;
        match warrant.approved().map(|approved| approved.act()) {
            None => {}
            Some(Act::ChangeProfile {
                definition: approved,
                ..
            }) if approved == text => {}
            Some(_) => return Err(RegistryError::NotCovered("profile")),
        }
        let turn = self.begin_warrant(&warrant, now).await?;
        let registry = self.on_behalf(&warrant);
        let outcome = registry.put_profile(text, warrant, now).await;
        self.end_warrant(turn, outcome).await
    }

    /// No profile promises more than its authority may grant.
    fn check_profile_bound(&self, definition: &Definition) -> Result<(), RegistryError> {
        let Issuer::Authority(authority) = definition.issuer() else {
            return Err(RegistryError::NotALeaf);
        };
        match (
            definition.highest_clearance(),
            self.issuing(authority)?.max_clearance()?,
        ) {
            (Some(requested), Some(allowed)) if requested > allowed => {
                Err(pki::issue::IssueError::ClearanceAboveAuthority { requested, allowed }.into())
            }
            _ => Ok(()),
        }
    }

    async fn put_profile(
        &self,
        text: &str,
        warrant: Warrant,
        now: OffsetDateTime,
    ) -> Result<ProfileRecord, RegistryError> {
        let request = warrant.approved().map(|approved| approved.request());
        let request = request.map(|request| request.id().0.clone());
        let name = Definition::parse(text)?.name().to_owned();
        let new = InForce::new(name, text.to_owned(), request.clone(), now)?;
        let record = new.record.clone();
        let mut tx = self.write(now).await?;
        let former = self.inner.profiles.get(&record.name);
        let former = match (
            &former,
            built_in().find(|(one, _)| one.name() == record.name),
        ) {
            (Some(former), _) => Some(former.record.text.clone()),
            (None, Some((_, text))) => Some(text.to_owned()),
            (None, None) => None,
        };
        let by = warrant.by().clone();
        let resource = format!("profile/{}", record.name);
        // With a request, its events have the file; the former one is in the event that put it in force.
        let is_ordered = warrant.approved().is_none();
        let changed = ProfileChanged {
            sha256: record.sha256.clone(),
            old_sha256: former.as_ref().map(sha256),
            definition: is_ordered.then(|| Document(text.to_owned())),
        };
        let mut events = vec![changed.into_event(now, by, resource)];
        let finished = self.finish_in(&mut tx, warrant, &record.sha256, now);
        events.extend(finished.await?);
        sqlx::query(
            "INSERT INTO profiles (name, definition, request, changed_at, changed_nanos)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (name) DO UPDATE SET definition = ?2, request = ?3, changed_at = ?4,
                 changed_nanos = ?5",
        )
        .bind(&record.name)
        .bind(text)
        .bind(request)
        .bind(now.unix_timestamp())
        .bind(now.nanosecond())
        .execute(&mut **tx)
        .await?;
        let recorded = tx.record(events).await?;
        let entry = recorded.first().map(|recorded| recorded.leaf_index);
        sqlx::query("UPDATE profiles SET entry = ? WHERE name = ?")
            .bind(entry.and_then(|index| i64::try_from(index).ok()))
            .bind(&record.name)
            .execute(&mut **tx)
            .await?;
        // Before anybody else may write: no certificate by the former file has its event after this one's.
        tx.commit_then(|| self.inner.profiles.put(new)).await?;
        Ok(record)
    }
}
